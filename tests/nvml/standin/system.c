/* Calls about the machine, and those that find a device. */
#include "standin.h"

#include <stdio.h>
#include <string.h>

#define ENTER_OPEN() \
    ENTER_SYSTEM(); \
    if (!is_open()) \
        return UNINITIALIZED

API int nvmlSystemGetDriverVersion(char *out, uint length) { ENTER_OPEN(); return text(it, out, length, "driver"); }
API int nvmlSystemGetNVMLVersion(char *out, uint length) { ENTER_SYSTEM(); return text(it, out, length, "nvml"); }
API int nvmlSystemGetCudaDriverVersion(uint *out) { ENTER_SYSTEM(); return small(it, out, "cuda"); }
API int nvmlSystemGetCudaDriverVersion_v2(uint *out) { ENTER_SYSTEM(); return small(it, out, "cuda"); }

API int nvmlSystemGetProcessName(uint pid, char *out, uint length)
{
    ENTER_OPEN();
    for (size_t i = 0; i < call.scenario->n_objects; i++) {
        Object *object = &call.scenario->objects[i];
        for (size_t j = 0; j < object->n_processes; j++) {
            if (object->processes[j].pid != pid)
                continue;
            snprintf(out, length, "%s", object->processes[j].name);
            return OK;
        }
    }
    return NOT_FOUND;
}

static int count_cards(Call *call, uint *out)
{
    *out = scenario_count(call->scenario);
    return OK;
}

API int nvmlDeviceGetCount(uint *out) { ENTER_OPEN(); return count_cards(&call, out); }
API int nvmlDeviceGetCount_v2(uint *out) { ENTER_OPEN(); return count_cards(&call, out); }

/* A device that was looked up: it may be lost, which its own rules say. */
static int found(Call *call, Object *object, Handle *out)
{
    if (!object)
        return NOT_FOUND;
    int card = object->card, slot = object->slot;
    int code = may(call, object);
    if (!code)
        *out = handle_of(card, slot);
    return code;
}

static int at_index(Call *call, uint index, Handle *out)
{
    Object *object = scenario_card_at(call->scenario, index);
    return object ? found(call, object, out) : INVALID_ARGUMENT;
}

static Object *with_text(Scenario *scenario, const char *key, const char *wanted)
{
    for (size_t i = 1; i < scenario->n_objects; i++) {
        Value *value = value_of(&scenario->objects[i], key);
        if (value && !strcmp(value->text, wanted))
            return &scenario->objects[i];
    }
    return NULL;
}

API int nvmlDeviceGetHandleByIndex(uint i, Handle *out) { ENTER_OPEN(); return at_index(&call, i, out); }
API int nvmlDeviceGetHandleByIndex_v2(uint i, Handle *out) { ENTER_OPEN(); return at_index(&call, i, out); }

API int nvmlDeviceGetHandleByUUID(const char *uuid, Handle *out)
{
    ENTER_OPEN();
    return found(&call, with_text(call.scenario, "uuid", uuid), out);
}

API int nvmlDeviceGetHandleBySerial(const char *serial, Handle *out)
{
    ENTER_OPEN();
    return found(&call, with_text(call.scenario, "serial", serial), out);
}

static int at_bus_id(Call *call, const char *bus_id, Handle *out)
{
    return found(call, with_text(call->scenario, "bus_id", bus_id), out);
}

API int nvmlDeviceGetHandleByPciBusId(const char *id, Handle *out) { ENTER_OPEN(); return at_bus_id(&call, id, out); }
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Handle *out)
{
    ENTER_OPEN();
    return at_bus_id(&call, id, out);
}

API const char *nvmlErrorString(int code)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "The operating system has blocked the request.", "RM has detected an NVML/RM version mismatch.",
        "In use by another client", "Insufficient Memory", "No data", "vGPU ECC not supported",
        "Insufficient Resources", "Requested clocks not supported", "Argument Version Mismatch", "Deprecated",
        "Not ready", "GPU not found", "Invalid state", "Reset type not supported",
    };
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "Unknown Error";
}

/* --- MIG ----------------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetMigMode(Handle device, uint *now, uint *pending)
{
    ENTER(device);
    code = small(it, now, "mig_mode");
    if (!code && small(it, pending, "mig_pending"))
        *pending = *now;
    return code;
}

API int nvmlDeviceGetMaxMigDeviceCount(Handle device, uint *out)
{
    ENTER(device);
    *out = 0;
    small(it, out, "mig_slots");
    return OK;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, uint slot, Handle *out)
{
    ENTER(device);
    uint slots = 0;
    small(it, &slots, "mig_slots");
    return slot < slots ? found(&call, scenario_find(call.scenario, it->card, (int)slot), out) : INVALID_ARGUMENT;
}

API int nvmlDeviceIsMigDeviceHandle(Handle device, uint *out)
{
    ENTER(device);
    *out = it->slot >= 0;
    return OK;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle device, Handle *out)
{
    ENTER(device);
    if (it->slot < 0)
        return INVALID_ARGUMENT;
    return found(&call, scenario_find(call.scenario, it->card, -1), out);
}

SMALL(nvmlDeviceGetGpuInstanceId, "gpu_instance")
SMALL(nvmlDeviceGetComputeInstanceId, "compute_instance")

typedef struct {
    uint multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    ullong memory_mb;
} Attributes;

API int nvmlDeviceGetAttributes_v2(Handle device, Attributes *out)
{
    ENTER(device);
    ullong memory = 0;
    *out = (Attributes){0};
    code = small(it, &out->multiprocessors, "multiprocessors");
    small(it, &out->gpu_slices, "gpu_slices");
    small(it, &out->compute_slices, "compute_slices");
    small(it, &out->copy_engines, "gpu_slices");
    number(it, &memory, "memory_total");
    out->memory_mb = memory >> 20;
    return code;
}
