/* Calls about one device: who it is, how it does, what has failed. */
#include "standin.h"

#include <stdio.h>
#include <string.h>

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
SMALL(nvmlDeviceGetMinorNumber, "minor")
SMALL(nvmlDeviceGetBrand, "brand")
SMALL(nvmlDeviceGetArchitecture, "architecture")
SMALL(nvmlDeviceGetPowerUsage, "power")
SMALL(nvmlDeviceGetPowerManagementLimit, "power_limit")
SMALL(nvmlDeviceGetEnforcedPowerLimit, "power_limit")
SMALL(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit")
SMALL(nvmlDeviceGetFanSpeed, "fan")
SMALL(nvmlDeviceGetPersistenceMode, "persistence")
SMALL(nvmlDeviceGetComputeMode, "compute_mode")
SMALL(nvmlDeviceGetDisplayActive, "display_active")
SMALL(nvmlDeviceGetDisplayMode, "display_mode")
SMALL(nvmlDeviceGetPerformanceState, "performance_state")
SMALL(nvmlDeviceGetPowerState, "performance_state")
SMALL(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")
SMALL(nvmlDeviceGetVirtualizationMode, "virtualization")
SMALL(nvmlDeviceGetNumGpuCores, "cores")
SMALL(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
SMALL(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
SMALL(nvmlDeviceGetNumaNodeId, "numa_node")
SMALL_BY(nvmlDeviceGetTemperature, "temperature")
SMALL_BY(nvmlDeviceGetTemperatureThreshold, "threshold")
SMALL_BY(nvmlDeviceGetClockInfo, "clock")
SMALL_BY(nvmlDeviceGetMaxClockInfo, "max_clock")
SMALL_BY(nvmlDeviceGetPcieThroughput, "pcie_throughput")
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "slowed")
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "slowed")
NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, "slowed_supported")
NUMBER(nvmlDeviceGetSupportedClocksEventReasons, "slowed_supported")
NUMBER(nvmlDeviceGetTotalEnergyConsumption, "energy")
NUMBER(nvmlDeviceGetSupportedEventTypes, "events")

API int nvmlDeviceGetIndex(Handle device, uint *out)
{
    ENTER(device);
    *out = it->slot >= 0 ? (uint)it->slot : (uint)scenario_index_of(call.scenario, it->card);
    return OK;
}

int pci(Object *it, Pci *out, const char *key)
{
    uint function;
    *out = (Pci){0};
    int code = text(it, out->bus_id, sizeof out->bus_id, key);
    if (code || sscanf(out->bus_id, "%x:%x:%x.%x", &out->domain, &out->bus, &out->device, &function) != 4)
        return code ? code : UNKNOWN;
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.%X", out->domain & 0xFFFF, out->bus & 0xFF,
             out->device & 0xFF, function & 7);
    small(it, &out->device_id, "pci_device");
    small(it, &out->subsystem_id, "pci_subsystem");
    return OK;
}

API int nvmlDeviceGetPciInfo_v3(Handle device, Pci *out) { ENTER(device); return pci(it, out, "bus_id"); }
API int nvmlDeviceGetPciInfo_v2(Handle device, Pci *out) { ENTER(device); return pci(it, out, "bus_id"); }
API int nvmlDeviceGetPciInfo(Handle device, Pci *out) { ENTER(device); return pci(it, out, "bus_id"); }

typedef struct {
    ullong total, reserved, free, used;
} Memory;

static int memory(Object *it, Memory *out)
{
    *out = (Memory){0};
    if (number(it, &out->total, "memory_total") || number(it, &out->used, "memory_used"))
        return NOT_SUPPORTED;
    number(it, &out->reserved, "memory_reserved");
    if (number(it, &out->free, "memory_free"))
        out->free = out->total - out->used - out->reserved;
    return OK;
}

typedef struct {
    ullong total, free, used;
} OldMemory;

typedef struct {
    uint version;
    Memory memory;
} VersionedMemory;

/* The first form counts what the driver keeps for itself as used. */
API int nvmlDeviceGetMemoryInfo(Handle device, OldMemory *out)
{
    ENTER(device);
    Memory seen;
    code = memory(it, &seen);
    if (code)
        return code;
    out->total = seen.total;
    out->free = seen.free;
    out->used = seen.used + seen.reserved;
    return OK;
}

API int nvmlDeviceGetMemoryInfo_v2(Handle device, VersionedMemory *out)
{
    ENTER(device);
    return out->version == 0x02000028 ? memory(it, &out->memory) : ARGUMENT_VERSION_MISMATCH;
}

API int nvmlDeviceGetBAR1MemoryInfo(Handle device, ullong out[3])
{
    ENTER(device);
    code = number(it, &out[0], "bar1_total");
    if (code || number(it, &out[2], "bar1_used"))
        return NOT_SUPPORTED;
    out[1] = out[0] - out[2];
    return OK;
}

API int nvmlDeviceGetConfComputeMemSizeInfo(Handle device, ullong out[2])
{
    ENTER(device);
    (void)out;
    return NOT_SUPPORTED;
}

API int nvmlDeviceGetUtilizationRates(Handle device, uint out[2])
{
    ENTER(device);
    code = small(it, &out[0], "utilisation");
    if (!code && small(it, &out[1], "memory_utilisation"))
        out[1] = 0;
    return code;
}

static int engine(Object *it, const char *key, uint *percent, uint *period_us)
{
    *period_us = 1000000;
    return small(it, percent, "%s", key);
}

API int nvmlDeviceGetEncoderUtilization(Handle d, uint *p, uint *us) { ENTER(d); return engine(it, "encoder", p, us); }
API int nvmlDeviceGetDecoderUtilization(Handle d, uint *p, uint *us) { ENTER(d); return engine(it, "decoder", p, us); }

typedef struct {
    uint version, sensor;
    int celsius;
} Temperature;

API int nvmlDeviceGetTemperatureV(Handle device, Temperature *out)
{
    ENTER(device);
    uint celsius = 0;
    code = small(it, &celsius, "temperature.%u", out->sensor);
    out->celsius = (int)celsius;
    return code;
}

API int nvmlDeviceGetDriverModel_v2(Handle device, uint *now, uint *pending)
{
    ENTER(device);
    (void)now, (void)pending;
    return NOT_SUPPORTED; /* Windows has it */
}

API int nvmlDeviceGetCudaComputeCapability(Handle device, uint *major, uint *minor)
{
    ENTER(device);
    code = small(it, major, "capability_major");
    return code ? code : small(it, minor, "capability_minor");
}

typedef struct {
    uint version, mode;
} Addressing;

API int nvmlDeviceGetAddressingMode(Handle device, Addressing *out)
{
    ENTER(device);
    return small(it, &out->mode, "addressing");
}

/* --- what has failed ----------------------------------------------------------------------------------------- */

API int nvmlDeviceGetEccMode(Handle device, uint *now, uint *pending)
{
    ENTER(device);
    code = small(it, now, "ecc_mode");
    *pending = code ? 0 : *now;
    return code;
}

/* Type 0 is corrected, 1 is not; counter 0 is since the driver was loaded, 1 is of the card's life. */
API int nvmlDeviceGetTotalEccErrors(Handle device, uint type, uint counter, ullong *out)
{
    ENTER(device);
    return number(it, out, "ecc.%u.%u", type, counter);
}

API int nvmlDeviceGetDetailedEccErrors(Handle device, uint type, uint counter, ullong out[4])
{
    ENTER(device);
    out[0] = out[1] = out[3] = 0;
    return number(it, &out[2], "ecc.%u.%u", type, counter);
}

API int nvmlDeviceGetMemoryErrorCounter(Handle device, uint type, uint counter, uint place, ullong *out)
{
    ENTER(device);
    code = number(it, out, "ecc.%u.%u", type, counter);
    if (!code && place != 2) /* only the device's own memory fails here */
        *out = 0;
    return code;
}

static int retired(Object *it, uint cause, uint *room, ullong *pages, ullong *times)
{
    uint count = 0, had = *room;
    int code = small(it, &count, "retired.%u", cause);
    if (code)
        return code;
    *room = count;
    if (had < count || (count && !pages))
        return INSUFFICIENT_SIZE;
    for (uint i = 0; i < count; i++) {
        pages[i] = 0x1000 * (i + 1);
        if (times)
            times[i] = 1700000000 + i;
    }
    return OK;
}

API int nvmlDeviceGetRetiredPages(Handle device, uint cause, uint *room, ullong *pages)
{
    ENTER(device);
    return retired(it, cause, room, pages, NULL);
}

API int nvmlDeviceGetRetiredPages_v2(Handle device, uint cause, uint *room, ullong *pages, ullong *times)
{
    ENTER(device);
    return retired(it, cause, room, pages, times);
}

API int nvmlDeviceGetRemappedRows(Handle device, uint *corrected, uint *uncorrected, uint *pending, uint *failed)
{
    ENTER(device);
    uint *const out[] = {corrected, uncorrected, pending, failed};
    static const char *const keys[] = {"remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed"};
    for (int i = 0; i < 4 && !code; i++)
        code = small(it, out[i], "%s", keys[i]);
    return code;
}

API int nvmlDeviceGetRowRemapperHistogram(Handle device, uint out[5])
{
    ENTER(device);
    memset(out, 0, 5 * sizeof *out);
    return small(it, &out[0], "remap_banks");
}

typedef struct {
    uint field, scope;
    int64_t timestamp, latency_us;
    uint type;
    int code;
    ullong value;
} Field;

/* Each field has an answer of its own: the call succeeds even where none of them does. */
API int nvmlDeviceGetFieldValues(Handle device, int count, Field *fields)
{
    ENTER(device);
    for (int i = 0; i < count; i++) {
        Field *field = &fields[i];
        field->timestamp = 1700000000000000;
        field->value = 0;
        uint failed = 0;
        field->code = number(it, &field->value, "field.%u", field->field);
        if (!small(it, &failed, "field_fails.%u", field->field))
            field->code = (int)failed;
        field->type = field->value >> 32 ? 3 : 1;
    }
    return OK;
}
