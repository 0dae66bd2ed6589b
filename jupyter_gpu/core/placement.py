"""Which devices for one ask. Knows devices and readings; knows nothing of users, quotas or priorities.

Whole devices by best fit over link groups (the group with the fewest spare devices that serves), the devices of the
previous attempt first when they are free; a memory ask goes to the shareable device it fills best. A device that is
cordoned or has a condition serves nobody. Free memory is what NVML says as well as what leases say, so memory that
somebody took outside the queue counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..model import Ask, Device, World

Bar = Callable[[str], bool]


def suits(device: Device, ask: Ask) -> bool:
    """Whether the device is of the kind asked for, whatever its state."""
    if ask.pool is not None and device.pool != ask.pool:
        return False
    if ask.device_class is not None and device.device_class != ask.device_class:
        return False
    if ask.memory_bytes is not None and not device.shareable:
        return False
    wanted = max(ask.memory_bytes or 0, ask.min_free_bytes or 0)
    return device.memory_bytes is None or device.memory_bytes >= wanted


def is_well(device: Device) -> bool:
    """Whether new leases may be placed on it."""
    return not device.cordoned and device.condition is None


def could_ever_serve(world: World, ask: Ask) -> int:
    """How many known devices are of the kind asked for, leased, cordoned or not."""
    return sum(1 for device in world.devices.values() if suits(device, ask))


def free_devices(world: World) -> list[Device]:
    """The well devices without any lease, in the order of node and index."""
    leases = world.leases
    return [device for device in in_order(world) if device.uuid not in leases and is_well(device)]


def in_order(world: World) -> list[Device]:
    """All devices by node and index, so that placement is the same every time."""
    return sorted(world.devices.values(), key=_place)


def _place(device: Device) -> tuple[str, str, int, str]:
    return (device.pool, device.node, device.index, device.uuid)


def place(
    world: World,
    ask: Ask,
    candidates: Iterable[Device],
    *,
    previous: tuple[str, ...] = (),
    is_barred: Bar | None = None,
) -> tuple[str, ...] | None:
    """Choose devices for an ask among the candidates (all of them free or about to be), or None where it does not fit."""
    if ask.devices == 0:
        return ()
    if ask.memory_bytes is not None:
        return _place_memory(world, ask, is_barred)
    fitting = [
        device
        for device in candidates
        if suits(device, ask)
        and (is_barred is None or not is_barred(device.uuid))
        and _has_free(world, device, ask)
    ]
    if len(fitting) < ask.devices:
        return None
    uuids = {device.uuid for device in fitting}
    if previous and len(previous) == ask.devices and uuids.issuperset(previous):
        return previous
    return _best_group(ask, fitting)


def _has_free(world: World, device: Device, ask: Ask) -> bool:
    if ask.min_free_bytes is None:
        return True
    reading = world.readings.get(device.uuid)
    free = None if reading is None else reading.memory_free_bytes
    return free is None or free >= ask.min_free_bytes


def _best_group(ask: Ask, fitting: list[Device]) -> tuple[str, ...] | None:
    """The link group that leaves the fewest devices over; across groups of one node only where the ask allows it."""
    for key in (lambda d: (d.pool, d.node, d.link_group or ""), lambda d: (d.pool, d.node, "")):
        groups: dict[tuple[str, str, str], list[Device]] = {}
        for device in fitting:
            groups.setdefault(key(device), []).append(device)
        enough = [(len(devices), name) for name, devices in groups.items() if len(devices) >= ask.devices]
        if enough:
            return tuple(device.uuid for device in groups[min(enough)[1]][: ask.devices])
        if ask.same_link_group:
            return None
    return None


def _place_memory(world: World, ask: Ask, is_barred: Bar | None) -> tuple[str, ...] | None:
    """Parts of shareable devices: those that the ask fills best, by leases and by what NVML says is really free."""
    wanted = ask.memory_bytes or 0
    found = []
    for device in in_order(world):
        if (
            not suits(device, ask)
            or not is_well(device)
            or (is_barred is not None and is_barred(device.uuid))
        ):
            continue
        left = spare_bytes(world, device)
        if left is not None and left >= wanted:
            found.append((left, device.uuid))
    found.sort(key=lambda pair: pair[0])
    return tuple(uuid for _, uuid in found[: ask.devices]) if len(found) >= ask.devices else None


def spare_bytes(world: World, device: Device) -> int | None:
    """What is left of a shareable device: None where it is leased whole or its size is unknown."""
    if device.memory_bytes is None:
        return None
    leased = 0
    for it in world.holders_of(device.uuid):
        if it.lease is None or it.lease.memory_bytes is None:
            return None
        leased += it.lease.memory_bytes
    by_lease = device.memory_bytes - leased
    reading = world.readings.get(device.uuid)
    free = None if reading is None else reading.memory_free_bytes
    return by_lease if free is None else min(by_lease, max(free, 0))
