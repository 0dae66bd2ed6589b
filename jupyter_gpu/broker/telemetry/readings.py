"""One reading of a whole GPU, a MIG device, or the card of MIG devices. Every field is read by itself.

One that is not offered is None, and so is a number that cannot be true. Of MIG devices NVML knows memory and processes
only, and of their card no utilisation (XuehaiPan/nvitop#5): what is never offered is not asked once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...model import Reading
from .calls import INSUFFICIENT_SIZE, Calls, code_of, within
from .inventory import Inventory, Part
from .memory import MOST_BYTES, Memory, host_memory, memory_of
from .vitals import AllVitals

_MOST_CELSIUS = 200
_MOST_MILLIWATTS = 10_000_000
_MOST_PERCENT = 100
_NO_INSTANCE = 0xFFFFFFFF

#: What lists compute processes, the newest first.
PROCESS_CALLS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")


class _Processes(NamedTuple):
    """Everybody on a device, once each, and those of them that only draw."""

    all: tuple[tuple[int, int | None], ...]
    drawing: tuple[int, ...]


class Readings:
    """Reads what the inventory found."""

    def __init__(self, calls: Calls, inventory: Inventory, vitals: AllVitals, *, meminfo: Path) -> None:
        self._calls, self._inventory, self._vitals, self._meminfo = calls, inventory, vitals, meminfo

    def of(self, uuid: str, at: float) -> Reading:
        """Read it now; what makes it unreadable as a whole is raised."""
        handle = self._calls.handle(uuid)
        part = self._inventory.parts.get(uuid)
        is_card = any(card.uuid == uuid for card in self._inventory.cards)
        memory = Memory() if uuid in self._inventory.unified else memory_of(self._calls, handle)
        processes = None if is_card else self._processes(handle, part, memory.total)
        if uuid in self._inventory.unified:
            memory = host_memory(processes and processes.all, self._meminfo)
        elif part:
            memory = _beside(memory, self._held_by_siblings(part))
        return Reading(
            uuid=uuid,
            at=at,
            memory_used_bytes=memory.used,
            memory_total_bytes=memory.total,
            memory_reserved_bytes=memory.reserved,
            utilisation_percent=None if part or is_card else self._utilisation(handle),
            temperature_celsius=None if part else self._celsius(handle),
            power_watts=None if part else self._watts(handle),
            processes=processes and processes.all,
            drawing_pids=processes.drawing if processes else (),
            vitals=self._vitals.of(part.card if part else uuid),
        )

    # --- figures --------------------------------------------------------------------------------

    def _utilisation(self, handle: Any) -> int | None:
        rates = self._calls.ask("nvmlDeviceGetUtilizationRates", handle)
        return None if rates is None else within(0, int(rates.gpu), _MOST_PERCENT)

    def _celsius(self, handle: Any) -> int | None:
        return within(1, self._calls.ask("nvmlDeviceGetTemperature", handle, 0), _MOST_CELSIUS)

    def _watts(self, handle: Any) -> float | None:
        milliwatts = within(1, self._calls.ask("nvmlDeviceGetPowerUsage", handle), _MOST_MILLIWATTS)
        return None if milliwatts is None else milliwatts / 1000

    def _held_by_siblings(self, part: Part) -> int:
        """What others hold of the memory that several compute instances of one GPU instance share."""
        held = 0
        for uuid, other in self._inventory.parts.items():
            if other[:2] == part[:2] and other != part and part.instance is not None:
                processes = self._processes(self._calls.handle(uuid), other, None)
                held += sum(used or 0 for _, used in processes.all) if processes else 0
        return held

    # --- processes ------------------------------------------------------------------------------

    def _processes(self, handle: Any, part: Part | None, total: int | None) -> _Processes | None:
        """None where its compute processes cannot be listed."""
        compute = self._listed("Compute", self._calls.field, handle)
        if compute is None and part is not None:
            # Older drivers list the processes of a whole card only, with the instance that each is on.
            handle = self._calls.handle(part.card)
            listed = self._listed("Compute", self._calls.field, handle)
            compute = listed if listed is not None and all(_instance(it) is not None for it in listed) else None
        if compute is None:
            return None
        graphics, mps = (self._listed(kind, self._calls.ask, handle) or () for kind in ("Graphics", "MPSCompute"))
        computing = self._sizes((*compute, *mps), part, total)
        drawing = self._sizes(graphics, part, total)
        found = dict(computing)
        for pid, used in drawing.items():
            found[pid] = _more(found.get(pid), used)
        return _Processes(tuple(sorted(found.items())), tuple(sorted(set(drawing) - set(computing))))

    def _sizes(self, listed: Sequence[Any], part: Part | None, total: int | None) -> dict[int, int | None]:
        """Process -> its memory, once each, of those that are on this device."""
        found: dict[int, int | None] = {}
        for info in listed:
            if part is None or _is_on(info, part):
                used = info.usedGpuMemory
                # All ones is the C library's "not available", which some releases of the bindings hand on.
                used = None if used is None else within(0, int(used), total or MOST_BYTES)
                found[int(info.pid)] = _more(found.get(int(info.pid)), used)
        return found

    def _listed(self, kind: str, ask: Callable[..., Any], handle: Any) -> Any:
        """One list of processes, by the newest call that bindings and driver both know."""
        for suffix in ("", "_v2"):
            name = f"nvmlDeviceGet{kind}RunningProcesses{suffix}"
            try:
                listed = ask(name, handle)
            except self._calls.nvml.NVMLError as error:
                if code_of(error) != INSUFFICIENT_SIZE:
                    raise
                listed = ask(name, handle)  # it grew between the question how long it is and the question for it
            if listed is not None:
                return listed
        return None


def _beside(memory: Memory, held: int) -> Memory:
    """Memory without what others hold of it: that is no more this device's use than what the driver keeps."""
    if not held or memory.used is None:
        return memory
    held = min(held, memory.used)
    return memory._replace(used=memory.used - held, reserved=(memory.reserved or 0) + held)


def _more(one: int | None, other: int | None) -> int | None:
    known = [it for it in (one, other) if it is not None]
    return max(known, default=None)


def _instance(info: Any) -> int | None:
    instance = getattr(info, "gpuInstanceId", None)
    return None if instance in (None, _NO_INSTANCE) else int(instance)


def _is_on(info: Any, part: Part) -> bool:
    """Whether a process is on this MIG device, as far as the driver says where it is: a list may be its card's."""
    instance = _instance(info)
    if instance is None or part.instance is None:
        return True
    compute = getattr(info, "computeInstanceId", None)
    return instance == part.instance and (compute in (None, _NO_INSTANCE) or part.compute in (None, compute))
