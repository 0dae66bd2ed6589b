"""What a command was about, for who sent it; and what events were about, for who listens."""

from __future__ import annotations

from collections.abc import Sequence

from ..core import withholding
from ..core.events import (
    DeviceAppeared,
    DeviceForgotten,
    DeviceMarked,
    Event,
    HoldChanged,
    HoldPut,
    HoldRemoved,
    OfLine,
    OfWorkload,
    PolicyLoaded,
    RecurringChanged,
    RecurringPut,
    Submitted,
)
from ..core.recurring import keyed
from ..model import AddHold, AddRecurring, Command, FireNow, Kind, Submit, Workload, World
from .store.store import Record

#: After these a listener gets the whole document.
_OF_EVERYTHING = (DeviceAppeared, DeviceForgotten, PolicyLoaded, HoldPut, HoldChanged, HoldRemoved)


def about(world: World, command: Command, events: Sequence[Event]) -> int | None:
    """The number that the answer names; where nothing was added, the key was used before."""
    match command:
        case Submit():  # of an array its first
            first = (event.it.id for event in events if isinstance(event, Submitted))
            return next(first, world.keys.get((command.owner, command.idempotency_key or "")))
        case AddRecurring():
            put = next((event.it for event in events if isinstance(event, RecurringPut)), None)
            known = put or keyed(world, command.submit.owner, command.submit.idempotency_key or "")
            return None if known is None else known.id
        case AddHold():
            new = next((event.it for event in events if isinstance(event, HoldPut)), None)
            hold = new or withholding.keyed(world, command.by, command.idempotency_key)
            return None if hold is None else hold.id
        case FireNow():
            return next((event.last_workload for event in events if isinstance(event, RecurringChanged)), None)
        case _:
            return getattr(command, "workload", None)


def concerned(records: Sequence[Record], world: World) -> tuple[set[int], set[str], bool]:
    """The workloads and the devices that look otherwise now; and whether more does than these."""
    workloads: set[int] = set()
    devices: set[str] = set()
    everything = False
    for event in (record.event for record in records):
        if isinstance(event, OfWorkload):
            workloads.add(event.workload)
            everything |= _is_for_later(world.workloads.get(event.workload))
        elif isinstance(event, Submitted):
            workloads.add(event.it.id)
            everything |= event.it.is_booked
        elif isinstance(event, OfLine):
            workloads.update(event.workloads)
        elif isinstance(event, DeviceMarked):
            devices.add(event.device)
        elif isinstance(event, _OF_EVERYTHING):
            everything = True
    return workloads, devices, everything


def _is_for_later(it: Workload | None) -> bool:
    """Whether it is, or was until now, among what is coming, which stands in the whole document alone."""
    return it is not None and it.kind is Kind.RESERVATION and it.not_before is not None
