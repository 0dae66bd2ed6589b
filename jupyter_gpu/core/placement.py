"""Which devices for one ask. Knows devices, leases and readings; knows nothing of users, quotas or priorities.

Whole devices by best fit: the node that has the fewest free devices of those that serve, on it the link group with the
fewest, and devices that are linked before others; the devices of the previous attempt first when they are free. A
memory ask goes to the shareable devices it fills best. All devices of an ask are on one node, save where the ask says
otherwise. A device that drives a display is the last choice, since part of its memory and time are gone. Who names no
class gets devices of one class, of the largest that has enough; different ones only where no class has. A device that
is cordoned or has a condition serves nobody. Free memory is what NVML says as well as what leases say, so memory that
somebody took outside the queue counts (`core.spare`).

MIG devices serve asks for one device only: CUDA shows a process the first of several and drops the others, a whole GPU
beside it too (pytorch/pytorch#102715). Who names a class gets it, packed onto as few cards as may be. Who names none,
but says how much must be free, gets the smallest device that has it, which keeps the large ones for those who need
them. Who says neither gets a whole GPU where one is free, else the largest MIG device: never a slice by surprise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from ..model import Ask, Device, Policy, Workload, World
from ..model.shelves import MIG, Node, Shelf, Sort, is_mig, place_of, shelf_of
from .best_fit import Serving, across, best, choices, preferred
from .spare import spare_bytes

__all__ = [
    "MIG",
    "Room",
    "avoided",
    "free_bytes",
    "has_room",
    "in_order",
    "is_mig",
    "is_well",
    "most_at_once",
    "suits",
    "suits_sort",
]

#: What must hold all devices of an ask: a node, or a link group where that is asked for.
Group = Node | tuple[Node, str]


def why_not_shared(device: Device, policy: Policy) -> str | None:
    """Why no part of a device's memory can be leased, in words; None where it can."""
    if device.shares_host_memory:
        return "its memory is the machine's own, so no part of it can be leased"
    if device.memory_bytes is None:
        return "how much memory it has is not known"
    if device.exclusive:
        return "its compute mode is exclusive, which lets one process in at a time"
    if policy.sharing_of(device) is None:
        return "no rule of `sharing` in the policy names it"
    return None


def suits(device: Device, ask: Ask) -> bool:
    """Whether the device is of the kind asked for, whatever its state."""
    return (not ask.on or device.uuid in ask.on) and suits_sort(shelf_of(device).sort, ask)


def suits_sort(sort: Sort, ask: Ask) -> bool:
    """The same for all devices of one sort: which of them are named by hand is another matter."""
    device = sort.sample
    if ask.pool is not None and device.pool != ask.pool:
        return False
    if ask.device_class is not None and device.device_class != ask.device_class:
        return False
    if ask.devices > 1 and is_mig(device):
        return False
    if ask.memory_bytes is not None and not _is_shared(device):
        return False
    wanted = max(ask.memory_bytes or 0, ask.min_free_bytes or 0)
    return device.memory_bytes is None or device.memory_bytes >= wanted


def _is_shared(device: Device) -> bool:
    whole = device.exclusive or device.shares_host_memory or device.memory_bytes is None
    return device.shareable and not whole


def is_well(device: Device) -> bool:
    """Whether new leases may be placed on it."""
    return device.is_well


def most_at_once(world: World, ask: Ask) -> int:
    """How many devices of the kind asked for one ask could ever get: leased, cordoned or not, but on one node."""
    known = world.layout.most
    kind = msgspec.structs.replace(ask, devices=min(2, ask.devices), duration_seconds=None)
    most = known.get(kind)
    if most is None:
        most = known[kind] = _most_of((it for it in world.devices.values() if suits(it, ask)), ask)
    return most


def _most_of(devices: Iterable[Device], ask: Ask) -> int:
    groups = Counter(_group(shelf_of(device), ask, device) for device in devices)
    return sum(groups.values()) if ask.across_nodes else max(groups.values(), default=0)


def avoided(world: World, it: Workload, now: float) -> frozenset[str]:
    """The devices that it must not get because attempts of it died there; none where no others could serve it."""
    if not it.avoids or it.avoids_until is None or now >= it.avoids_until:
        return frozenset()
    others = (device for device in world.devices.values() if device.uuid not in it.avoids and is_well(device))
    most = _most_of((device for device in others if suits(device, it.ask)), it.ask)
    return frozenset(it.avoids) if most >= it.ask.devices else frozenset()


def has_room(world: World, device: Device, ask: Ask, gone: frozenset[int] | set[int] = frozenset()) -> bool:
    """Whether a well device of the kind has what one part of the ask wants, once those who are `gone` have left."""
    if ask.memory_bytes is not None:
        spare = spare_bytes(world, device, gone)
        return spare is not None and spare >= max(ask.memory_bytes, ask.min_free_bytes or 0)
    holders = world.leases.get(device.uuid, ())
    if holders or ask.min_free_bytes is None:
        # What NVML says of a device that is in use tells nothing of how it will be.
        return gone.issuperset(holders)
    free = free_bytes(world, device)
    return free is None or free >= ask.min_free_bytes


def free_bytes(world: World, device: Device) -> int | None:
    """What NVML says is free of a device; None where it does not say."""
    reading = world.readings.get(device.uuid)
    return None if reading is None else reading.memory_free_bytes


def in_order(world: World) -> list[Device]:
    """All devices by node and index, so that placement is the same every time."""
    return sorted(world.devices.values(), key=place_of)


def group_of(device: Device, ask: Ask) -> Group:
    """What must hold all devices of an ask."""
    return _group(shelf_of(device), ask, device)


def _group(shelf: Shelf, ask: Ask, device: Device) -> Group:
    if not ask.same_link_group:
        return shelf.node
    return shelf.node, device.uuid if shelf.link is None else shelf.link


class Room:
    """The devices that would serve one ask: now, and once certain holders have left.

    `look_at_free` takes what is free, `look_at` takes devices as they are, `leave` imagines a holder gone. All only
    ever add, so it is cheap to let holders leave one by one until the ask fits.
    """

    def __init__(
        self, world: World, ask: Ask, *, barred: Collection[str] = (), barred_classes: Collection[str] = ()
    ) -> None:
        """Begin with nothing; an ask for no devices fits at once."""
        self._world, self._ask = world, ask
        self._barred, self._barred_classes = barred, barred_classes
        self._gone: set[int] = set()
        self._sorts: dict[Sort, bool] = {}
        self._serving: Serving = {}
        self._groups: dict[Group, int] = {}
        #: Where it fits; None as long as it does not.
        self._fitting: Group | None = None
        self.fits = ask.devices == 0

    def look_at_free(self) -> Room:
        """Count what serves of the devices that nobody holds."""
        ask, barred = self._ask, self._barred
        plain = not (ask.on or ask.min_free_bytes)
        for shelf, devices in self._world.stock.free.items():
            if not self._takes(shelf):
                continue
            some = devices
            if not plain:
                some = tuple([device for device in devices if self._serves(device)])
            elif barred:
                some = tuple([device for device in devices if device.uuid not in barred])
            if some:
                self._add(shelf, some)
        self._look_across()
        return self

    def look_at(self, devices: Iterable[Device]) -> Room:
        """Count those of the devices that serve, and are not counted yet."""
        for device in devices:
            shelf = self._world.stock.shelf(device.uuid)
            if self._takes(shelf) and device not in self._serving.get(shelf, ()) and self._serves(device):
                self._add(shelf, (device,))
        self._look_across()
        return self

    def leave(self, holder: Workload) -> Room:
        """Imagine a holder gone, and count what of its devices serves then."""
        self._gone.add(holder.id)
        if holder.lease is not None:
            self.look_at(self._world.devices[uuid] for uuid in holder.lease.devices)
        return self

    def concerns(self, holder: Workload) -> bool:
        """Whether a holder's devices are where it fits."""
        devices = [self._world.devices[uuid] for uuid in holder.lease.devices] if holder.lease is not None else []
        if self._ask.across_nodes:
            return any(device in self._serving.get(shelf_of(device), ()) for device in devices)
        return any(_group(shelf_of(device), self._ask, device) == self._fitting for device in devices)

    def _takes(self, shelf: Shelf) -> bool:
        takes = self._sorts.get(shelf.sort)
        if takes is None:
            takes = shelf.device_class not in self._barred_classes and suits_sort(shelf.sort, self._ask)
            self._sorts[shelf.sort] = takes
        return takes

    def _serves(self, device: Device) -> bool:
        """Of one of a sort that suits."""
        if self._ask.on and device.uuid not in self._ask.on:
            return False
        return device.is_well and device.uuid not in self._barred and has_room(
            self._world, device, self._ask, self._gone
        )  # fmt: skip

    def _add(self, shelf: Shelf, devices: tuple[Device, ...]) -> None:
        serving, ask = self._serving, self._ask
        serving[shelf] = serving[shelf] + devices if shelf in serving else devices
        if not ask.same_link_group:
            self._count(shelf.node, len(devices))
        elif shelf.link is not None:
            self._count((shelf.node, shelf.link), len(devices))
        else:  # nothing says that any two of them are linked
            for device in devices:
                self._count(_group(shelf, ask, device), 1)

    def _look_across(self) -> None:
        if self._ask.across_nodes and not self.fits:
            self.fits = across(self._groups, self._size(), self._ask.devices) is not None

    def _count(self, group: Group, more: int) -> None:
        count = self._groups[group] = self._groups.get(group, 0) + more
        if self._fitting is None and count >= self._ask.devices:
            self._fitting, self.fits = group, True

    def _size(self) -> int:
        """How many devices that suit the largest node has, free or not."""
        layout, ask = self._world.layout, self._ask
        kind = (ask.pool, ask.device_class, ask.devices > 1, ask.memory_bytes, ask.min_free_bytes)
        size = layout.largest.get(kind)
        if size is None:
            suiting = {sort for sort in layout.sorts if suits_sort(sort, ask)}
            nodes = layout.counts.values()
            size = max((sum(sorts[sort] for sort in suiting) for sorts in nodes), default=0)
            layout.largest[kind] = size
        return size

    def place(self, previous: tuple[str, ...] = (), spared: Collection[str] = ()) -> tuple[str, ...] | None:
        """Choose among what serves: the devices of before, else the best fit; None where it does not fit.

        `spared` are taken last of those that are as good.
        """
        count = self._ask.devices
        if not self.fits or count == 0:
            return () if self.fits else None
        if len(previous) == count and self._have(previous):
            return previous
        if self._ask.memory_bytes is not None:
            return self._fullest(count)
        for some in choices(self._world, preferred(self._serving, self._ask)):
            found = best(some, self._ask, self._size, spared)
            if found is not None:
                return found
        return None

    def _have(self, uuids: tuple[str, ...]) -> bool:
        there = {device.uuid for devices in self._serving.values() for device in devices}
        return there.issuperset(uuids)

    def _fullest(self, count: int) -> tuple[str, ...] | None:
        """Of the group that leaves the fewest over those that have the least room and still enough."""
        groups: dict[Group, list[tuple[int, tuple[str, str, int, str]]]] = {}
        for shelf, devices in self._serving.items():
            for device in devices:
                spare = spare_bytes(self._world, device, self._gone) or 0
                groups.setdefault(_group(shelf, self._ask, device), []).append((spare, place_of(device)))
        enough = [(len(there), group) for group, there in groups.items() if len(there) >= count]
        chosen = sorted(groups[min(enough)[1]])[:count] if enough else None
        return None if chosen is None else tuple(place[-1] for _, place in chosen)
