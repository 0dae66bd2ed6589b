"""What is left of a document for who may not look at others' work: their own, and which devices are free or taken.

Everything is made as for everybody and narrowed here, in one place, so that a new field is at most forgotten once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from ..model import Caller, CardView, Change, DeviceView, Status, World


def narrow_device(world: World, device: DeviceView, caller: Caller) -> DeviceView:
    """A device of one's own without others who share it; any other one without what is done with it."""
    if caller.sees_others:
        return device
    mine = {it.id for it in world.holders_of(device.uuid) if it.owner == caller.name}
    if not mine:
        return msgspec.structs.replace(device, **_NOTHING)
    return msgspec.structs.replace(device, uses=tuple(use for use in device.uses if use.workload in mine))


def narrow_devices(world: World, devices: tuple[DeviceView, ...], caller: Caller) -> tuple[DeviceView, ...]:
    """All of these devices."""
    return tuple(narrow_device(world, device, caller) for device in devices)


def narrow_cards(cards: tuple[CardView, ...], caller: Caller) -> tuple[CardView, ...]:
    """Cards that several share, without what is done with them together."""
    return cards if caller.sees_others else tuple(msgspec.structs.replace(card, **_NOTHING_MEASURED) for card in cards)


def narrow_waiting(world: World, waiting: dict[str, int], caller: Caller) -> dict[str, int]:
    """How much of one's own waits in each queue; how much of others' does is theirs."""
    if caller.sees_others:
        return waiting
    mine = Counter(it.queue for it in world.queued() if it.owner == caller.name)
    return {queue: mine[queue] for queue in waiting}


def narrow_status(world: World, status: Status, caller: Caller) -> Status:
    """The whole document."""
    if caller.sees_others:
        return status
    return msgspec.structs.replace(
        status,
        devices=narrow_devices(world, status.devices, caller),
        cards=narrow_cards(status.cards, caller),
        workloads=tuple(it for it in status.workloads if it.is_mine),
        waiting=narrow_waiting(world, status.waiting, caller),
        holds=tuple(it for it in status.holds if it.is_mine),
        coming=(),
    )


def narrow_samples(world: World, line: Change, caller: Caller) -> Change:
    """The newest readings, of one's own devices alone."""
    uuids = {uuid for it in world.holders() if it.owner == caller.name and it.lease for uuid in it.lease.devices}
    return msgspec.structs.replace(
        line,
        samples=tuple(device for device in line.samples if device.uuid in uuids),
        cards=narrow_cards(line.cards, caller),
    )


_MEASURED = ("memory_used_bytes", "utilisation_percent", "temperature_celsius", "power_watts", "sampled_at")
_NOTHING_MEASURED: dict[str, Any] = dict.fromkeys(_MEASURED)
_NOTHING: dict[str, Any] = _NOTHING_MEASURED | {
    "memory_reserved_bytes": None,
    "memory_leased_bytes": None,
    "slowed_by": (),
    "condition_detail": "",
    "cordon_reason": "",
    "cordoned_by": None,
    "note": "",
    "nodes": (),
    "uses": (),
    "holders": (),
}
