"""How much of a shared device is really free: what leases leave, less what is used by whom no lease explains."""

from __future__ import annotations

from collections.abc import Collection

from ..model import Device, UseKind, Workload, World


def spare_bytes(world: World, device: Device, gone: Collection[int] = ()) -> int | None:
    """What is left of a shareable device once those who are `gone` have left; None where it is leased whole.

    Each holder takes its part, or what it really uses where that is more. All else that is used counts in full,
    whoever uses it: a stranger, a display, memory of no process. Where it is not known who uses what, NVML's free
    memory bounds it; but not once somebody is imagined gone, since what they use is not free there yet.
    """
    if device.memory_bytes is None:
        return None
    holders = world.holders_of(device.uuid)
    staying = [it for it in holders if it.id not in gone]
    parts = {it.id: it.lease.memory_bytes for it in staying if it.lease is not None}
    if None in parts.values():
        return None
    reading = world.readings.get(device.uuid)
    reserved = 0 if reading is None else reading.memory_reserved_bytes or 0
    size = device.memory_bytes - reserved
    used = _used_by(world, device, holders)
    if used is not None:
        taken = sum(max(part or 0, used.get(id_, 0)) for id_, part in parts.items())
        return max(0, size - taken - _unexplained_bytes(world, device, used))
    spare = size - sum(part or 0 for part in parts.values())
    free = None if reading is None else reading.memory_free_bytes
    return max(0, spare if free is None or len(staying) < len(holders) else min(spare, free))


def _used_by(world: World, device: Device, holders: Collection[Workload]) -> dict[int, int] | None:
    """What each holder's processes use; None where it is not known of every process on the device."""
    uses = world.uses.get(device.uuid)
    if uses is None or any(use.memory_bytes is None for use in uses):
        return None
    ids = {it.id for it in holders}
    used: dict[int, int] = {}
    for use in uses:
        if use.kind is UseKind.HOLDER and use.workload in ids:
            used[use.workload] = used.get(use.workload, 0) + (use.memory_bytes or 0)
    return used


def _unexplained_bytes(world: World, device: Device, used: dict[int, int]) -> int:
    """What is used by others than the holders, by processes that can be seen or by none."""
    seen = sum(use.memory_bytes or 0 for use in world.uses[device.uuid]) - sum(used.values())
    reading = world.readings.get(device.uuid)
    in_all = None if reading is None else reading.memory_used_bytes
    return max(seen, 0 if in_all is None else in_all - sum(used.values()))
