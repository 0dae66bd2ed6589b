/* How cards are joined, and what they report by themselves. */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a pair: under the other's number, else under "all". */
static int pair(Call *call, Handle one, Handle other, const char *what, uint *out)
{
    (void)one;
    if (!other || !scenario_find(call->scenario, other->card, other->slot))
        return INVALID_ARGUMENT;
    Object *peer = scenario_find(call->scenario, other->card, other->slot);
    int card = call->it->card, slot = call->it->slot;
    int code = may(call, peer); /* a pair of which one is lost cannot be told of */
    Object *it = scenario_find(call->scenario, card, slot);
    if (code || !it)
        return code ? code : NOT_FOUND;
    return small(it, out, "%s.%d", what, other->card) ? small(it, out, "%s.all", what) : OK;
}

API int nvmlDeviceGetP2PStatus(Handle one, Handle other, uint index, uint *out)
{
    ENTER(one);
    char what[24];
    snprintf(what, sizeof what, "p2p.%u", index);
    return pair(&call, one, other, what, out);
}

API int nvmlDeviceGetTopologyCommonAncestor(Handle one, Handle other, uint *out)
{
    ENTER(one);
    return pair(&call, one, other, "topology", out);
}

SMALL_BY(nvmlDeviceGetNvLinkState, "nvlink")
SMALL_BY(nvmlDeviceGetNvLinkRemoteDeviceType, "nvlink_remote_type")
SMALL_BY(nvmlDeviceGetNvLinkVersion, "nvlink_version")

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle device, uint link, Pci *out)
{
    ENTER(device);
    char key[32];
    snprintf(key, sizeof key, "nvlink_remote.%u", link);
    code = pci(it, out, key);
    out->device_id = out->subsystem_id = 0;
    return code;
}

/* --- events -------------------------------------------------------------------------------------------------- */

#define LOOK_MS 5

typedef struct Set {
    struct Set *next;
    int is_used;
    ullong seen; /* the serial of the last event that was delivered or was there before */
    ullong types[MOST_CARDS];
} Set;

static Set *sets;

API int nvmlEventSetCreate(Set **out)
{
    ENTER_SYSTEM();
    Set *set = calloc(1, sizeof *set);
    if (!is_open() || !set)
        return free(set), set ? UNINITIALIZED : NO_MEMORY;
    *set = (Set){.next = sets, .is_used = 1};
    for (size_t i = 0; i < call.scenario->n_events; i++)
        if (call.scenario->events[i].serial > set->seen)
            set->seen = call.scenario->events[i].serial;
    *out = sets = set;
    return OK;
}

/* Sets are never freed, so that one that is used after its end is seen to be. */
static int is_set(const Set *wanted)
{
    const Set *set = sets;
    while (set && set != wanted)
        set = set->next;
    return set && set->is_used;
}

API int nvmlEventSetFree(Set *set)
{
    ENTER_SYSTEM();
    if (!is_set(set))
        return INVALID_ARGUMENT;
    set->is_used = 0;
    return OK;
}

API int nvmlDeviceRegisterEvents(Handle device, ullong types, Set *set)
{
    ENTER(device);
    ullong offered = 0;
    if (!is_set(set) || it->slot >= 0)
        return INVALID_ARGUMENT;
    if (number(it, &offered, "events") || types & ~offered)
        return NOT_SUPPORTED;
    set->types[it->card] |= types;
    return OK;
}

typedef struct {
    Handle device;
    ullong type, data;
    uint gpu_instance, compute_instance;
} EventData;

static int deliver(Scenario *scenario, Set *set, EventData *out)
{
    for (size_t i = 0; i < scenario->n_events; i++) {
        const Event *event = &scenario->events[i];
        if (event->serial <= set->seen || event->card < 0 || event->card >= MOST_CARDS)
            continue;
        set->seen = event->serial;
        if (!(set->types[event->card] & event->type))
            continue;
        *out = (EventData){handle_of(event->card, -1), event->type, event->data, event->gpu_instance,
                           event->compute_instance};
        return OK;
    }
    return TIMEOUT;
}

static int wait_for(Call *call, Set *set, EventData *out, uint timeout_ms)
{
    for (ullong waited_ms = 0;; waited_ms += LOOK_MS) {
        if (!is_set(set))
            return INVALID_ARGUMENT;
        if (deliver(call->scenario, set, out) == OK)
            return OK;
        if (waited_ms >= timeout_ms)
            return TIMEOUT;
        pause_call(call, LOOK_MS);
    }
}

API int nvmlEventSetWait_v2(Set *set, EventData *out, uint timeout_ms)
{
    ENTER_SYSTEM();
    return wait_for(&call, set, out, timeout_ms);
}

/* The first form knows no instances. */
API int nvmlEventSetWait(Set *set, EventData *out, uint timeout_ms)
{
    ENTER_SYSTEM();
    EventData data;
    code = wait_for(&call, set, &data, timeout_ms);
    if (!code)
        memcpy(out, &data, offsetof(EventData, gpu_instance));
    return code;
}
