/* What all calls have in common: the scenario as it stands now, and whether this call fails, is slow or hangs. */
#define _GNU_SOURCE
#include "standin.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HANG_LOOK_MS 10

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Scenario *current;
static struct stat seen;
static int opened;      /* how often nvmlInit was called more than nvmlShutdown */
static pid_t opened_by; /* a fork has our memory but not our driver */
static struct handle handles[MOST_CARDS][MOST_SLOTS + 1];

static int is_same(const struct stat *one, const struct stat *other)
{
    return one->st_ino == other->st_ino && one->st_size == other->st_size
           && one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

static void look(void)
{
    const char *path = getenv("NVML_STANDIN_BOARD");
    struct stat now = {0};
    if (path && stat(path, &now))
        path = NULL;
    if (current && is_same(&now, &seen))
        return;
    scenario_free(current);
    current = scenario_read(path);
    seen = now;
}

static void count(const char *name, Object *it)
{
    const char *path = getenv("NVML_STANDIN_CALLS");
    if (!path)
        return;
    char line[160];
    int length = snprintf(line, sizeof line, "%d %s %d %d\n", getpid(), name, it ? it->card : -1, it ? it->slot : -1);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0 && write(file, line, length) < 0)
        abort();
    close(file);
}

static void sleep_ms(int ms)
{
    struct timespec wait = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&wait, NULL);
}

/* Let others in for a while. What the call holds of the scenario may be gone afterwards, so it is found again. */
void pause_call(Call *call, int ms)
{
    int card = call->it ? call->it->card : -1, slot = call->it ? call->it->slot : -1;
    pthread_mutex_unlock(&lock);
    sleep_ms(ms);
    pthread_mutex_lock(&lock);
    look();
    call->scenario = current;
    call->it = scenario_find(current, card, slot);
}

static int sum_of(const Call *call, Object *object, int *code, int *slow_ms)
{
    int hangs = 0;
    for (size_t i = 0; object && i < object->n_rules; i++) {
        const Rule *rule = &object->rules[i];
        size_t length = strlen(rule->call);
        if (rule->is_prefix ? strncmp(call->name, rule->call, length) : strcmp(call->name, rule->call))
            continue;
        hangs |= rule->hangs;
        *code = rule->code ? rule->code : *code;
        *slow_ms += rule->slow_ms;
    }
    return hangs;
}

/* What the rules of the system, or of this object, say of the call. `call->it` is the object while it waits. */
int may(Call *call, Object *object)
{
    int code = 0, slow_ms = 0, hangs;
    call->it = object;
    hangs = sum_of(call, object, &code, &slow_ms);
    if (slow_ms)
        pause_call(call, slow_ms);
    while (hangs && call->it) {
        pause_call(call, HANG_LOOK_MS);
        code = slow_ms = 0;
        hangs = sum_of(call, call->it, &code, &slow_ms);
    }
    return code ? code : call->it ? OK : NOT_FOUND;
}

static void after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void prepare(void)
{
    pthread_atfork(NULL, NULL, after_fork);
    for (int card = 0; card < MOST_CARDS; card++)
        for (int slot = -1; slot < MOST_SLOTS; slot++)
            handles[card][slot + 1] = (struct handle){card, slot};
}

Handle handle_of(int card, int slot)
{
    return &handles[card][slot + 1];
}

static int is_handle(Handle handle)
{
    return handle >= &handles[0][0] && handle < &handles[MOST_CARDS][0];
}

int enter(Call *call, const char *name, Handle handle, int needs_handle)
{
    pthread_mutex_lock(&lock);
    look();
    call->name = name;
    call->scenario = current;
    Object *it = is_handle(handle) ? scenario_find(current, handle->card, handle->slot) : &current->objects[0];
    count(name, it);
    if (needs_handle && (!opened || opened_by != getpid()))
        return UNINITIALIZED;
    if (needs_handle && !is_handle(handle))
        return INVALID_ARGUMENT;
    int code = may(call, &current->objects[0]);
    if (code || !needs_handle)
        return code;
    it = scenario_find(current, handle->card, handle->slot);
    return it ? may(call, it) : NOT_FOUND;
}

void leave(Call *call)
{
    if (call->name)
        pthread_mutex_unlock(&lock);
}

static int vnumber(Object *object, ullong *out, const char *format, va_list arguments)
{
    char key[64];
    vsnprintf(key, sizeof key, format, arguments);
    Value *value = value_of(object, key);
    if (!value)
        return NOT_SUPPORTED;
    *out = value->number;
    return OK;
}

int number(Object *object, ullong *out, const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    int code = vnumber(object, out, key, arguments);
    va_end(arguments);
    return code;
}

int small(Object *object, uint *out, const char *key, ...)
{
    ullong value = 0;
    va_list arguments;
    va_start(arguments, key);
    int code = vnumber(object, &value, key, arguments);
    va_end(arguments);
    if (!code)
        *out = (uint)value;
    return code;
}

int text(Object *object, char *out, uint length, const char *key)
{
    Value *value = value_of(object, key);
    if (!value)
        return NOT_SUPPORTED;
    if (strlen(value->text) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(out, value->text);
    return OK;
}

/* --- opening and closing ------------------------------------------------------------------------------------- */

static int open_nvml(void)
{
    if (opened_by != getpid())
        opened = 0;
    opened++;
    opened_by = getpid();
    return OK;
}

API int nvmlInit(void) { ENTER_SYSTEM(); return open_nvml(); }
API int nvmlInit_v2(void) { ENTER_SYSTEM(); return open_nvml(); }
API int nvmlInitWithFlags(uint flags) { (void)flags; ENTER_SYSTEM(); return open_nvml(); }

API int nvmlShutdown(void)
{
    ENTER_SYSTEM();
    if (!opened || opened_by != getpid())
        return UNINITIALIZED;
    opened--;
    return OK;
}

/* For calls of the system: is NVML open here? */
int is_open(void)
{
    return opened && opened_by == getpid();
}
