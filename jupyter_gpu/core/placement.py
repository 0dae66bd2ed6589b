"""Which devices for one ask. Knows devices, leases and readings; knows nothing of users, quotas or priorities.

Whole devices by best fit over link groups (the group with the fewest spare devices that serves), the devices of the
previous attempt first when they are free; a memory ask goes to the shareable devices it fills best. All devices of an
ask are on one node. A device that drives a display is the last choice, since part of its memory and time are gone. Who
names no class gets devices of one class, of the largest that has enough; different ones only where no class has. A
device that is cordoned or has a condition serves nobody. Free memory is what NVML says as well as what leases say, so
memory that somebody took outside the queue counts (`core.spare`).

MIG devices serve asks for one device only: CUDA shows a process the first of several and drops the others, a whole GPU
beside it too (pytorch/pytorch#102715). Who names a class gets it, packed onto as few cards as may be. Who names none,
but says how much must be free, gets the smallest device that has it, which keeps the large ones for those who need
them. Who says neither gets a whole GPU where one is free, else the largest MIG device: never a slice by surprise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from math import inf

from ..model import Ask, Device, Policy, Workload, World
from .spare import spare_bytes

Group = tuple[str, str, str]

#: How the classes of MIG devices begin.
MIG = "mig-"


def is_mig(device: Device) -> bool:
    """Whether it is a part of a GPU, by its card or, in the store of an earlier version, by its class."""
    return device.card is not None or device.device_class.startswith(MIG)


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
    if ask.pool is not None and device.pool != ask.pool:
        return False
    if ask.device_class is not None and device.device_class != ask.device_class:
        return False
    if ask.on and device.uuid not in ask.on:
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
    return not device.cordoned and device.condition is None


def most_at_once(world: World, ask: Ask) -> int:
    """How many devices of the kind asked for one ask could ever get: leased, cordoned or not, but on one node."""
    groups = Counter(_group(device, ask) for device in world.devices.values() if suits(device, ask))
    return max(groups.values(), default=0)


def avoided(world: World, it: Workload, now: float) -> frozenset[str]:
    """The devices that it must not get because attempts of it died there; none where no others could serve it."""
    if not it.avoids or it.avoids_until is None or now >= it.avoids_until:
        return frozenset()
    others = (device for device in world.devices.values() if device.uuid not in it.avoids and is_well(device))
    groups = Counter(_group(device, it.ask) for device in others if suits(device, it.ask))
    return frozenset(it.avoids) if max(groups.values(), default=0) >= it.ask.devices else frozenset()


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


def drives_display(world: World, device: Device) -> bool:
    """Whether a monitor hangs on it, by its newest reading; where it does not tell, whether something draws there."""
    reading = world.readings.get(device.uuid)
    if reading is None:
        return False
    drives = None if reading.vitals is None else reading.vitals.drives_display
    return bool(drives or (drives is None and reading.drawing_pids))


def free_devices(world: World) -> list[Device]:
    """The well devices without any lease, in the order of node and index."""
    leases = world.leases
    return sorted((d for d in world.devices.values() if d.uuid not in leases and is_well(d)), key=_place)


def in_order(world: World) -> list[Device]:
    """All devices by node and index, so that placement is the same every time."""
    return sorted(world.devices.values(), key=_place)


def _place(device: Device) -> tuple[str, str, int, str]:
    return (device.pool, device.node, device.index, device.uuid)


def _group(device: Device, ask: Ask) -> Group:
    """What must hold all devices of an ask: a node, or a link group where that is asked for."""
    return (device.pool, device.node, _link(device) if ask.same_link_group else "")


def _link(device: Device) -> str:
    """A link group; of MIG devices their card, so that one card is filled before the next is begun."""
    if device.card is not None:
        return device.card.uuid
    return device.uuid if device.link_group is None else device.link_group


class Room:
    """The devices that would serve one ask: now, and once certain holders have left.

    `look_at` takes devices as they are, `leave` imagines a holder gone. Both only ever add, and each device is looked
    at no more often than somebody leaves it, so it is cheap to let holders leave one by one until the ask fits.
    """

    def __init__(
        self, world: World, ask: Ask, *, barred: Collection[str] = (), barred_classes: Collection[str] = ()
    ) -> None:
        """Begin with nothing; an ask for no devices fits at once."""
        self._world, self._ask = world, ask
        self._barred, self._barred_classes = barred, barred_classes
        self._gone: set[int] = set()
        self._serving: dict[str, Device] = {}
        self._counts: Counter[Group] = Counter()
        #: Where it fits; None as long as it does not.
        self._fitting: Group | None = None
        self.fits = ask.devices == 0

    def look_at(self, devices: Iterable[Device]) -> Room:
        """Count those of the devices that serve."""
        for device in devices:
            if device.uuid not in self._serving and self._serves(device):
                self._serving[device.uuid] = device
                group = _group(device, self._ask)
                self._counts[group] += 1
                if self._fitting is None and self._counts[group] >= self._ask.devices:
                    self._fitting, self.fits = group, True
        return self

    def leave(self, holder: Workload) -> Room:
        """Imagine a holder gone, and count what of its devices serves then."""
        self._gone.add(holder.id)
        if holder.lease is not None:
            self.look_at(self._world.devices[uuid] for uuid in holder.lease.devices)
        return self

    def concerns(self, holder: Workload) -> bool:
        """Whether a holder's devices are where it fits."""
        uuids = holder.lease.devices if holder.lease is not None else ()
        return any(_group(self._world.devices[uuid], self._ask) == self._fitting for uuid in uuids)

    def _serves(self, device: Device) -> bool:
        if not suits(device, self._ask) or not is_well(device):
            return False
        if device.uuid in self._barred or device.device_class in self._barred_classes:
            return False
        return has_room(self._world, device, self._ask, self._gone)

    def place(self, previous: tuple[str, ...] = ()) -> tuple[str, ...] | None:
        """Choose among what serves: the devices of before, else the best fit; None where it does not fit."""
        count = self._ask.devices
        if not self.fits or count == 0:
            return () if self.fits else None
        if len(previous) == count and self._serving.keys() >= set(previous):
            return previous
        serving = sorted(_preferred(list(self._serving.values()), self._ask), key=_place)
        if self._ask.memory_bytes is not None:  # the fullest that still have room
            serving.sort(key=lambda device: spare_bytes(self._world, device, self._gone) or 0)
            return _best(count, ((device.uuid, _group(device, self._ask)) for device in serving))
        for some in _choices(self._world, serving):
            linked = _best(count, ((device.uuid, (device.pool, device.node, _link(device))) for device in some))
            found = linked or _best(count, ((device.uuid, _group(device, self._ask)) for device in some))
            if found is not None:
                return found
        return None


def _best(count: int, devices: Iterable[tuple[str, Group]]) -> tuple[str, ...] | None:
    """The first so many devices of the group that leaves the fewest over."""
    groups: dict[Group, list[str]] = {}
    for uuid, group in devices:
        groups.setdefault(group, []).append(uuid)
    enough = [(len(uuids), group) for group, uuids in groups.items() if len(uuids) >= count]
    return tuple(groups[min(enough)[1]][:count]) if enough else None


def _choices(world: World, serving: list[Device]) -> Iterator[list[Device]]:
    """What to choose from, the best first: without a display, and of one class, the largest; all of them at last."""
    dark = [device for device in serving if not drives_display(world, device)]
    for some in (dark, serving) if len(dark) < len(serving) else (serving,):
        classes: dict[str, list[Device]] = {}
        for device in some:
            classes.setdefault(device.device_class, []).append(device)
        if len(classes) > 1:
            yield from sorted(classes.values(), key=lambda alike: (-max(map(_size, alike)), alike[0].device_class))
        yield some


def _preferred(serving: list[Device], ask: Ask) -> list[Device]:
    """Of what serves an ask for one device of no class, those of the size that it should have."""
    if ask.devices != 1 or ask.device_class is not None or ask.memory_bytes is not None:
        return serving
    if ask.min_free_bytes is not None:
        least = min(map(_size, serving))
        return [device for device in serving if _size(device) == least]
    whole = [device for device in serving if not is_mig(device)]
    most = 0 if whole else max(map(_size, serving))
    return whole or [device for device in serving if _size(device) == most]


def _size(device: Device) -> float:
    """What is not known is taken for the largest."""
    return inf if device.memory_bytes is None else device.memory_bytes
