/* Who is on a device, in all the forms that drivers have given the list. */
#include "standin.h"

#include <string.h>

typedef struct {
    uint pid;
    ullong used;
} Old;

typedef struct {
    uint pid;
    ullong used;
    uint gpu_instance, compute_instance;
} New;

static uint count_of(const Object *it, char kind)
{
    uint count = 0;
    for (size_t i = 0; i < it->n_processes; i++)
        count += it->processes[i].kind == kind;
    return count;
}

static int listed(const Object *it, char kind, uint *room, void *out, int is_old)
{
    uint count = count_of(it, kind), had = *room;
    uint unlisted = 0;
    /* A card may not offer the list, like one whose driver is that of Windows. */
    if (!small((Object *)it, &unlisted, "unlisted.%c", kind))
        return (int)unlisted;
    *room = count;
    if (had < count || (count && !out))
        return INSUFFICIENT_SIZE;
    for (size_t i = 0, at = 0; i < it->n_processes; i++) {
        const Process *p = &it->processes[i];
        if (p->kind != kind)
            continue;
        if (is_old)
            ((Old *)out)[at++] = (Old){p->pid, p->used};
        else
            ((New *)out)[at++] = (New){p->pid, p->used, p->gpu_instance, p->compute_instance};
    }
    return OK;
}

#define LIST(name, letter, is_old) \
    API int name(Handle device, uint *room, void *out) { ENTER(device); return listed(it, letter, room, out, is_old); }
#define LISTS(kind, letter) \
    LIST(nvmlDeviceGet##kind##RunningProcesses, letter, 1) \
    LIST(nvmlDeviceGet##kind##RunningProcesses_v2, letter, 0) \
    LIST(nvmlDeviceGet##kind##RunningProcesses_v3, letter, 0)

LISTS(Compute, 'c')
LISTS(Graphics, 'g')
LISTS(MPSCompute, 'm')

typedef struct {
    uint pid;
    ullong used;
    uint gpu_instance, compute_instance;
    ullong protected_used;
} Detail;

typedef struct {
    uint version, mode, count;
    Detail *list;
} Details;

API int nvmlDeviceGetRunningProcessDetailList(Handle device, Details *out)
{
    ENTER(device);
    static const char kinds[] = "cgm";
    if (out->mode > 2)
        return INVALID_ARGUMENT;
    char kind = kinds[out->mode];
    uint count = count_of(it, kind), had = out->count;
    out->count = count;
    if (had < count || (count && !out->list))
        return INSUFFICIENT_SIZE;
    for (size_t i = 0, at = 0; i < it->n_processes; i++) {
        const Process *p = &it->processes[i];
        if (p->kind == kind)
            out->list[at++] = (Detail){p->pid, p->used, p->gpu_instance, p->compute_instance, ~0ULL};
    }
    return OK;
}

typedef struct {
    uint pid;
    ullong timestamp;
    uint sm, memory, encoder, decoder;
} Load;

API int nvmlDeviceGetProcessUtilization(Handle device, Load *out, uint *room, ullong since)
{
    ENTER(device);
    uint count = (uint)it->n_processes, had = *room;
    (void)since;
    if (!value_of(it, "utilisation"))
        return NOT_SUPPORTED;
    *room = count;
    if (!count)
        return NOT_FOUND;
    if (!out || had < count)
        return INSUFFICIENT_SIZE;
    for (uint i = 0; i < count; i++) {
        const Process *p = &it->processes[i];
        out[i] = (Load){p->pid, 1700000000000000, p->sm_percent, p->memory_percent, 0, 0};
    }
    return OK;
}
