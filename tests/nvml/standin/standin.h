/* A stand-in for libnvidia-ml.so.1: it answers from a scenario file what a test has put there.
 *
 * scenario.c reads the file, calls.c does what all calls have in common (failing, being slow, hanging, being counted),
 * and the other files are the calls themselves. What a card has no value for it answers with "not supported".
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    NO_MEMORY = 20,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

#define NONE 0xFFFFFFFFu
#define MOST_EVENTS 256
#define MOST_CARDS 64
#define MOST_SLOTS 16

typedef unsigned int uint;
typedef unsigned long long ullong;

typedef struct {
    char *key;
    char *text;
    ullong number;
} Value;

/* What happens to calls whose name begins so (`is_prefix`) or is this. */
typedef struct {
    char *call;
    int is_prefix;
    int code;
    int slow_ms;
    int hangs;
} Rule;

typedef struct {
    char kind; /* c, g or m: compute, graphics, MPS */
    uint pid;
    ullong used;
    uint gpu_instance, compute_instance;
    uint sm_percent, memory_percent;
    char *name;
} Process;

/* The system (card -1), a card (slot -1) or a MIG device. */
typedef struct {
    int card, slot;
    Value *values;
    Rule *rules;
    Process *processes;
    size_t n_values, n_rules, n_processes;
} Object;

typedef struct {
    ullong serial, type, data;
    int card;
    uint gpu_instance, compute_instance;
} Event;

typedef struct {
    Object *objects; /* the first is the system; cards stand in the order of their indices */
    size_t n_objects;
    Event events[MOST_EVENTS];
    size_t n_events;
} Scenario;

/* A handle says which card it is of, and of a MIG device the slot: when the slot is filled anew it is used again. */
struct handle {
    int card, slot;
};
typedef struct handle *Handle;

/* One call under way. It holds the lock from ENTER to its return, but for the time that it is slow or hangs. */
typedef struct {
    const char *name;
    Scenario *scenario;
    Object *it;
} Call;

typedef struct {
    char legacy[16];
    uint domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

/* device.c */
int pci(Object *object, Pci *out, const char *key);

/* scenario.c */
Scenario *scenario_read(const char *path);
void scenario_free(Scenario *scenario);
Object *scenario_find(Scenario *scenario, int card, int slot);
Object *scenario_card_at(Scenario *scenario, uint index);
int scenario_index_of(Scenario *scenario, int card);
uint scenario_count(Scenario *scenario);
Value *value_of(Object *object, const char *key);

/* calls.c */
int enter(Call *call, const char *name, Handle handle, int needs_handle);
void leave(Call *call);
int may(Call *call, Object *object);
void pause_call(Call *call, int ms);
Handle handle_of(int card, int slot);
int number(Object *object, ullong *out, const char *key, ...) __attribute__((format(printf, 3, 4)));
int small(Object *object, uint *out, const char *key, ...) __attribute__((format(printf, 3, 4)));
int text(Object *object, char *out, uint length, const char *key);
int is_open(void);

#define ENTER_(handle, needs) \
    Call call __attribute__((cleanup(leave))) = {0}; \
    int code = enter(&call, __func__, handle, needs); \
    Object *it = call.it; \
    (void)it; \
    if (code) \
        return code
/* The first lines of a call: of a device, of the system, and one that gives a device's number under a key. */
#define ENTER(handle) ENTER_(handle, 1)
#define ENTER_SYSTEM() ENTER_(NULL, 0)
#define SMALL(name, key) \
    API int name(Handle device, uint *out) { ENTER(device); return small(it, out, key); }
#define NUMBER(name, key) \
    API int name(Handle device, ullong *out) { ENTER(device); return number(it, out, key); }
#define TEXT(name, key) \
    API int name(Handle device, char *out, uint length) { ENTER(device); return text(it, out, length, key); }
#define SMALL_BY(name, key) \
    API int name(Handle device, uint which, uint *out) { ENTER(device); return small(it, out, key ".%u", which); }

#endif
