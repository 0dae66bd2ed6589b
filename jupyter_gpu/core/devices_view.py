"""Devices and cards as one caller may see them: the newest reading, who holds them, who is on them."""

from __future__ import annotations

from typing import Any

from ..model import (
    Caller,
    Card,
    CardView,
    Condition,
    Device,
    DeviceView,
    Reading,
    Use,
    UseKind,
    UseView,
    Workload,
    World,
)
from ..units import format_bytes
from .best_fit import drives_display
from .forecast import known_end_at
from .names import is_of, may_see_names
from .told import known_detail


def device_view(world: World, device: Device, caller: Caller, now: float) -> DeviceView:
    """One device, its newest reading, who holds it until when, and who is on it."""
    holders = world.holders_of(device.uuid)
    return DeviceView(
        **known_of(device),
        **read_of(device, world.readings.get(device.uuid)),
        condition_detail=device.condition_detail if caller.is_operator else known_detail(world, device),
        condition_since=device.condition_since,
        cordon_reason=device.cordon_reason,
        cordoned_by=device.cordoned_by or None if _may_see_operators(world, caller) else None,
        memory_leased_bytes=_leased_bytes(device, holders),
        note=note_of(world, device),
        nodes=device.nodes,
        uses=tuple(_use_view(world, use, caller) for use in _uses_of(world, device)),
        workloads=tuple(it.id for it in holders),
        holders=tuple(it.owner for it in holders if may_see_names(world, it, caller)),
        free_at=_free_at(world, holders, now),
    )


def _free_at(world: World, holders: tuple[Workload, ...], now: float) -> float | None:
    """When the last of them is expected to be gone; None where nobody is there, or one has no end."""
    ends = [known_end_at(world, it, now) for it in holders]
    known = [end for end in ends if end is not None]
    return max(known, default=None) if len(known) == len(ends) else None


def _may_see_operators(world: World, caller: Caller) -> bool:
    return caller.is_operator or (world.policy.names_are_public and caller.sees_others)


def device_views(world: World, caller: Caller, now: float) -> tuple[DeviceView, ...]:
    """All devices in the order in which they are read: by node, card and slot."""
    return tuple(device_view(world, device, caller, now) for device in sorted(world.devices.values(), key=_as_read))


def _as_read(device: Device) -> tuple[str, str, int, int, str]:
    """A MIG device stands where its card does; its own index is one that no whole GPU has."""
    card = device.index if device.card is None else device.card.index
    return (device.pool, device.node, card, -1 if device.slot is None else device.slot, device.uuid)


def card_views(world: World, cards: tuple[Card, ...] = ()) -> tuple[CardView, ...]:
    """The GPUs in MIG mode: those of the inventory, and those that MIG devices are parts of."""
    known = {device.card.uuid: device.card for device in world.devices.values() if device.card is not None}
    known |= {card.uuid: card for card in cards}
    return tuple(card_view(card, world.readings.get(card.uuid)) for card in sorted(known.values(), key=_by_index))


def _by_index(card: Card) -> tuple[int, str]:
    return (card.index, card.uuid)


def card_view(card: Card, reading: Reading | None) -> CardView:
    """One GPU in MIG mode with its newest reading."""
    measured = {} if reading is None else _measured(reading)
    return CardView(
        uuid=card.uuid,
        index=card.index,
        name=card.name,
        memory_total_bytes=(None if reading is None else reading.memory_total_bytes) or card.memory_bytes,
        **measured,
    )


def known_of(device: Device) -> dict[str, Any]:
    """What is shown of a device to everybody, whatever it reads."""
    return {name: getattr(device, name) for name in _KNOWN} | {
        "card": None if device.card is None else device.card.uuid
    }


_KNOWN = (
    "uuid", "index", "number", "name", "device_class", "pool", "simulated", "cordoned", "shareable",
    "shares_host_memory", "condition",
)  # fmt: skip


def read_of(device: Device, reading: Reading | None) -> dict[str, Any]:
    """What is shown of a reading of a device; where there is none, only its size is known."""
    if reading is None:
        return {"memory_total_bytes": device.memory_bytes}
    return _measured(reading) | {
        "memory_total_bytes": reading.memory_total_bytes or device.memory_bytes,
        "memory_reserved_bytes": reading.memory_reserved_bytes,
        "slowed_by": () if reading.vitals is None else reading.vitals.slowed_by,
    }


def _measured(reading: Reading) -> dict[str, Any]:
    names = ("memory_used_bytes", "utilisation_percent", "temperature_celsius", "power_watts")
    return {name: getattr(reading, name) for name in names} | {"sampled_at": reading.at}


def _leased_bytes(device: Device, holders: tuple[Workload, ...]) -> int | None:
    parts = [it.lease.memory_bytes for it in holders if it.lease is not None and it.lease.memory_bytes is not None]
    return sum(parts) if parts or (device.shareable and not holders) else None


# -- notes: sentences that are no fault


def note_of(world: World, device: Device) -> str:
    """What is worth knowing of a device although nothing is wrong with it."""
    reading = world.readings.get(device.uuid)
    notes = [_display_note(world, device, reading)]
    if device.exclusive:
        notes.append("Its compute mode lets one process in at a time.")
    if device.shareable and reading is not None and any(used is None for _, used in reading.processes or ()):
        notes.append("The memory of single processes is not offered, so nobody's part is checked.")
    return " ".join(note for note in notes if note)


def _display_note(world: World, device: Device, reading: Reading | None) -> str:
    """A monitor hangs on it: it can be reserved, and not all of its memory is free (russellb/canhazgpu#5)."""
    if reading is None:
        return ""
    if not drives_display(world, device):
        return ""
    used: int | None = reading.memory_used_bytes
    if device.uuid in world.leases:  # what its holders use is not the display's
        drawn = [memory for pid, memory in reading.processes or () if pid in reading.drawing_pids]
        used = None if None in drawn else sum(memory for memory in drawn if memory is not None)
    return "Drives a display" + (f", {format_bytes(used)} already used." if used else ".")


# -- who is on it


def _uses_of(world: World, device: Device) -> list[Use]:
    """The largest first; of a device that is lost nothing is read any more, so nobody is said to be there."""
    uses = () if device.condition is Condition.LOST else world.uses.get(device.uuid, ())
    return sorted(uses, key=lambda use: (use.memory_bytes is None, -(use.memory_bytes or 0), use.pid))


def _use_view(world: World, use: Use, caller: Caller) -> UseView:
    """A process without what the caller may not know: whose it is, and what is run."""
    knows = caller.is_operator or is_of(world, use, caller)
    # What the machine runs for itself is nobody's secret.
    shows = knows or use.kind is UseKind.SYSTEM
    shows_name = shows or world.policy.names_are_public
    return UseView(
        pid=use.pid,
        kind=use.kind,
        foreign=use.is_foreign,
        memory_bytes=use.memory_bytes,
        name=use.name if shows else "",
        user=use.user if shows_name else None,
        owner=use.owner if shows_name else None,
        server=use.server if knows else None,
        notebook=use.notebook if knows else "",
        # What anybody may say of anybody is for who can find out.
        claim=use.claim if caller.is_operator else "",
        workload=use.workload,
        where=use.where if knows else "",
    )
