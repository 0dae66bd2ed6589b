"""Real cards, read through NVML. Everything here runs in the sampler thread, and nothing raises at it.

NVML is opened once and stays open; only after it was lost is it opened anew, at most every few seconds (opening
and closing per poll leaks descriptors: lablup/all-smi#118). Every field is read by itself: one that a card does not
offer is None, and so is a number that cannot be true. A card that is lost is a reading with a fault, and the others
are read as ever (rossumai/nvgpu#6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pynvml
from msgspec.structs import replace

from ...model import Card, CardEvent, Device, DriverView, Reading
from .classes import device_class
from .clear import LOST

# Numbers of nvmlReturn_t, so that it does not matter which release of the bindings names them.
_UNKNOWN = 999
_NOT_FOUND = 6
#: This card cannot say it: no error, only "n/a".
_NOT_OFFERED = frozenset({2, 3, 4, _NOT_FOUND, 13, 21, 25, 26})
#: This card has gone: reset required, lost, not found.
_CARD_GONE = frozenset({15, 16, 28})
#: The whole of NVML has gone: not initialised, driver not loaded, library or driver replaced.
_NVML_GONE = frozenset({1, 9, 12, 18})

_REMEDIES = {
    4: "This account may not use the NVIDIA driver. Check the permissions of /dev/nvidiactl and /dev/nvidia*.",
    9: "The NVIDIA driver is not loaded. Load it with `modprobe nvidia` or reboot; the GPUs then appear by themselves.",
    12: (
        "NVML, the library of the NVIDIA driver, was not found. Install the driver; in a container, start it with "
        "GPU support and the driver capability `utility`."
    ),
    18: (
        "The NVIDIA driver was updated, but its old kernel module still runs. Reboot, or reload the module and "
        "restart the broker; what runs now goes on meanwhile."
    ),
}

_MOST_CELSIUS = 200
_MOST_MILLIWATTS = 10_000_000
_MOST_PERCENT = 100
_MIG_STRIDE = 100
#: The first pid namespace of a machine; in any other, NVML's pids are not those that /proc shows.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


class _CardGoneError(Exception):
    """The card has gone, says NVML."""


class _NvmlGoneError(Exception):
    """NVML itself has gone; the number says why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class NvmlSource:
    """The cards of this machine. `nvml` is pynvml or what a test puts in its place."""

    def __init__(
        self,
        nvml: Any = pynvml,
        *,
        node: str = "",
        retry_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fault: str | None = None
        self.busy_with: str | None = None
        self.driver: DriverView | None = None
        self.notes: tuple[str, ...] = ()
        self.has_local_pids = _sees_all_pids()
        self._nvml = nvml
        self._node = node
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._is_open = False
        self._next_try = float("-inf")
        self._handles: dict[str, Any] = {}
        #: What was found at each NVML index: facts do not change while the driver runs, and a card that only fails
        #: to answer just now has not gone.
        self._known: dict[int, tuple[Device, ...]] = {}

    def devices(self) -> tuple[Device, ...] | None:
        """The inventory; None where NVML cannot be used, with `fault` saying why. A lost card is not in it."""
        if not self._open():
            return None
        try:
            found = {index: self._devices_at(index) for index in range(self._call("nvmlDeviceGetCount"))}
            links = self._links([device for devices in found.values() for device in devices])
            self._known = {
                index: tuple(replace(device, link_group=links.get(device.uuid)) for device in devices)
                for index, devices in found.items()
            }
        except _NvmlGoneError as gone:
            self._lose(gone.code)
            return None
        except Exception as error:  # noqa: BLE001 - what it does not know it says; it never raises
            self.fault = _sentence(_code(error), error)
            return None
        finally:
            self.busy_with = None
        self.fault = None
        return tuple(device for devices in self._known.values() for device in devices)

    def cards(self) -> tuple[Card, ...]:
        """The GPUs in MIG mode that the last inventory found."""
        return ()

    def events(self) -> tuple[CardEvent, ...]:
        """What the driver has reported since the last call."""
        return ()

    def read(self, uuids: Sequence[str]) -> tuple[Reading, ...]:
        """Fresh readings of these; a card that cannot be read has a fault and keeps no other from being read."""
        readings: list[Reading] = []
        for uuid in uuids:
            at = time.time()
            if not self._open():
                readings.append(Reading(uuid=uuid, at=at, fault=self.fault))
                continue
            self.busy_with = uuid
            try:
                readings.append(self._reading(uuid, at))
            except _NvmlGoneError as gone:
                self._lose(gone.code)
                readings.append(Reading(uuid=uuid, at=at, fault=self.fault))
            except Exception as error:  # noqa: BLE001 - whatever one card does, the others are read
                self._handles.pop(uuid, None)
                readings.append(Reading(uuid=uuid, at=at, fault=_card_fault(error)))
            finally:
                self.busy_with = None
        return tuple(readings)

    # --- NVML as a whole ------------------------------------------------------------------------

    def _open(self) -> bool:
        """Open NVML unless it is open, and not more often than every few seconds: it may take long."""
        if self._is_open:
            return True
        if self._clock() < self._next_try:
            return False
        try:
            self._nvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - bindings of any age, libraries of any state
            self.fault = _sentence(_code(error), error)
        else:
            self._is_open, self.fault = True, None
        self._next_try = self._clock() + self._retry_seconds
        return self._is_open

    def _lose(self, code: int) -> None:
        """NVML has gone under us: say why, and open it anew later."""
        self.fault = _sentence(code, f"NVML error {code}")
        self._is_open = False
        self._handles.clear()
        self._next_try = self._clock() + self._retry_seconds
        try:
            self._nvml.nvmlShutdown()
        except Exception:  # noqa: BLE001 - it has gone already
            return

    def _call(self, name: str, *args: Any) -> Any:
        """One call, with the errors that are about more than this call told apart."""
        try:
            return getattr(self._nvml, name)(*args)
        except self._nvml.NVMLError as error:
            if _code(error) in _NVML_GONE:
                raise _NvmlGoneError(_code(error)) from error
            if _code(error) in _CARD_GONE:
                raise _CardGoneError(str(error)) from error
            raise

    # --- the inventory --------------------------------------------------------------------------

    def _devices_at(self, index: int) -> tuple[Device, ...]:
        """The device at an NVML index, or its MIG devices: a GPU in MIG mode is no device itself."""
        known = self._known.get(index, ())
        self.busy_with = known[0].uuid if known else None
        try:
            handle = self._call("nvmlDeviceGetHandleByIndex", index)
        except _CardGoneError:
            return ()
        except self._nvml.NVMLError as error:
            # Drivers say "unknown error" here of a card that has fallen off the bus while they still count it.
            return () if _code(error) == _UNKNOWN else known
        try:
            if self._field("nvmlDeviceGetMigMode", handle, default=(0, 0))[0]:
                return tuple(self._mig_devices(index, handle))
            return (self._device(handle, index),)
        except _CardGoneError:
            return ()
        except self._nvml.NVMLError:
            return known

    def _mig_devices(self, index: int, parent: Any) -> Iterable[Device]:
        for slot in range(self._field("nvmlDeviceGetMaxMigDeviceCount", parent, default=0)):
            # None is a hole, not the end: instances are made and destroyed in any order.
            handle = self._field("nvmlDeviceGetMigDeviceHandleByIndex", parent, slot)
            if handle is not None:
                yield self._device(handle, (index + 1) * _MIG_STRIDE + slot)

    def _device(self, handle: Any, index: int) -> Device:
        uuid = _text(self._call("nvmlDeviceGetUUID", handle))
        self._handles[uuid] = handle
        # Asked of known ones too: a lost card may still have a handle and a UUID, and must not seem to be back.
        _, total = self._memory(handle)
        for device in (it for devices in self._known.values() for it in devices):
            if device.uuid == uuid and device.index == index and device.memory_bytes is not None:
                return device
        name = _text(self._field("nvmlDeviceGetName", handle, default=""))
        return Device(
            uuid=uuid,
            index=index,
            name=name or "NVIDIA GPU",
            device_class=device_class(name, total),
            memory_bytes=total,
            node=self._node,
        )

    def _links(self, found: list[Device]) -> dict[str, str]:
        """Device -> its NVLink group. The driver's own verdict counts, which also sees through NVSwitches."""
        groups: list[list[Device]] = []
        for device in found:
            joined = [group for group in groups if any(self._has_link(device, other) for other in group)]
            groups = [group for group in groups if group not in joined]
            groups.append([*(it for group in joined for it in group), device])
        return {
            device.uuid: f"nvlink-{min(it.index for it in group)}"
            for group in groups
            if len(group) > 1
            for device in group
        }

    def _has_link(self, one: Device, other: Device) -> bool:
        if one.uuid.startswith("MIG-") or other.uuid.startswith("MIG-"):
            return False
        handles = [self._handles.get(it.uuid) for it in (one, other)]
        if None in handles:
            return False
        try:
            answer = self._field("nvmlDeviceGetP2PStatus", *handles, self._nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        except (_CardGoneError, self._nvml.NVMLError):
            # A pair that does not answer just now is what it was.
            return one.link_group is not None and one.link_group == other.link_group
        return bool(answer == self._nvml.NVML_P2P_STATUS_OK)

    # --- readings -------------------------------------------------------------------------------

    def _reading(self, uuid: str, at: float) -> Reading:
        handle = self._handle(uuid)
        used, total = self._memory(handle)
        return Reading(
            uuid=uuid,
            at=at,
            memory_used_bytes=used,
            memory_total_bytes=total,
            utilisation_percent=self._utilisation(handle),
            temperature_celsius=_within(1, self._extra("nvmlDeviceGetTemperature", handle, 0), _MOST_CELSIUS),
            power_watts=_watts(_within(1, self._extra("nvmlDeviceGetPowerUsage", handle), _MOST_MILLIWATTS)),
            processes=self._processes(handle),
        )

    def _handle(self, uuid: str) -> Any:
        """The handle of a device. That of a MIG device dies with it and is used again, so it is asked who it is."""
        handle = self._handles.get(uuid)
        if handle is not None and uuid.startswith("MIG-"):
            current = self._field("nvmlDeviceGetUUID", handle)
            if current is None or _text(current) != uuid:
                handle = None
        if handle is None:
            try:
                handle = self._call("nvmlDeviceGetHandleByUUID", uuid)
            except self._nvml.NVMLError as error:
                if _code(error) == _NOT_FOUND:
                    raise _CardGoneError("no device has its UUID any more") from error
                if _code(error) == _UNKNOWN:
                    raise _CardGoneError(str(error)) from error
                raise
            self._handles[uuid] = handle
        return handle

    def _field(self, name: str, *args: Any, default: Any = None) -> Any:
        """One reading, or the default where it is not offered; any other error is the caller's to weigh."""
        try:
            return self._call(name, *args)
        except self._nvml.NVMLError as error:
            if _code(error) in _NOT_OFFERED:
                return default
            raise
        except (AttributeError, TypeError, self._nvml.NVMLLibraryMismatchError):
            # Bindings older or newer than the driver; and some do sums with memory that is "not available".
            return default

    def _extra(self, name: str, *args: Any) -> Any:
        """One reading that nothing is decided by: whatever goes wrong with it alone is "n/a"."""
        try:
            return self._field(name, *args)
        except self._nvml.NVMLError:
            return None

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Used and total. The older call counts what the driver keeps for itself as used, so it comes second."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        info = self._field("nvmlDeviceGetMemoryInfo", handle, version) if version else None
        if info is None:
            info = self._field("nvmlDeviceGetMemoryInfo", handle)
        if info is None or not 0 < int(info.total) < 1 << 60:
            return None, None
        return _within(0, int(info.used), int(info.total)), int(info.total)

    def _utilisation(self, handle: Any) -> int | None:
        rates = self._extra("nvmlDeviceGetUtilizationRates", handle)
        return None if rates is None else _within(0, int(rates.gpu), _MOST_PERCENT)

    def _processes(self, handle: Any) -> tuple[tuple[int, int | None], ...] | None:
        """Everybody on the card, once each; None where its compute processes cannot be listed."""
        compute = self._listed("Compute", self._field, handle)
        if compute is None:
            return None
        others = [self._listed(kind, self._extra, handle) or () for kind in ("Graphics", "MPSCompute")]
        found: dict[int, int | None] = {}
        for info in chain(compute, *others):
            used = info.usedGpuMemory
            # All ones is the C library's "not available", which some releases of the bindings hand on.
            used = None if used is None else _within(0, int(used), 1 << 60)
            before = found.get(int(info.pid))
            found[int(info.pid)] = used if before is None else max(before, used or 0)
        return tuple(sorted(found.items()))

    def _listed(self, kind: str, ask: Callable[..., Any], handle: Any) -> Any:
        """One list of processes, by the newest call that bindings and driver both know."""
        for suffix in ("", "_v2"):
            listed = ask(f"nvmlDeviceGet{kind}RunningProcesses{suffix}", handle)
            if listed is not None:
                return listed
        return None


def _code(error: object) -> int:
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else _UNKNOWN


def _sentence(code: int, error: object) -> str:
    return _REMEDIES.get(code) or f"NVML cannot be used: {error}. `nvidia-smi` may say more; a reboot often helps."


def _card_fault(error: Exception) -> str:
    if isinstance(error, _CardGoneError):
        return f"{LOST}: {error}. Look for Xid errors in `dmesg`; a reset of the GPU or a reboot may bring it back."
    return f"The GPU could not be read: {str(error) or type(error).__name__}."


def _text(raw: Any) -> str:
    """Names are bytes or text, by the release of the bindings (rossumai/nvgpu#29)."""
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


def _within(least: int, number: int | None, most: int) -> int | None:
    """The number if it can be true, else None: a reading that lies is worse than none."""
    return number if number is not None and least <= number <= most else None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _sees_all_pids() -> bool:
    """Whether /proc shows the pids that NVML names. In a container they are others: nobody is known by number there."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_PID_NAMESPACE
    except OSError:
        return False
