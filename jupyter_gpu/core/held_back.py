"""5 Hold back: a start for the first blocked workload of each kind of device, which later ones must not delay.

EASY backfill with learnt ends (Lifka, "The ANL/IBM SP scheduling system", 1995): whoever is behind runs only where they
have left by then. What wants more than any node has would keep whole nodes idle for long on the word of mere
expectations, so it is given a start only once it has waited past its queue's limit. From then on nothing at all may
begin where it waits, however short.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import Ask, Condition, Device, WaitingReason, Workload, World
from ..model.shelves import place_of
from .best_fit import first
from .holds import Kept
from .placement import Group, Room, group_of, suits

#: Whose starts compete: the pool, the class, whether whole devices, and those that it was placed on by hand.
_KindOfDevice = tuple[str | None, str | None, bool, tuple[str, ...]]


class HeldBack:
    """The starts that one step has promised to those who must wait."""

    def __init__(self, world: World, kept: Kept, now: float) -> None:
        """Nobody was promised a start yet."""
        self._world, self._kept, self._now = world, kept, now
        self._heads: set[_KindOfDevice] = set()

    def go_on(self, now: float) -> None:
        """Some seconds have passed."""
        self._now = now

    def consider(self, it: Workload, open_room: Callable[[Workload], Room]) -> bool:
        """Give it a start, where it is the first of its kind and there is something to hold back; tell whether so."""
        ask = it.ask
        kind = (ask.pool, ask.device_class, ask.memory_bytes is None, ask.on)
        if kind in self._heads or not (it.lifted or self._is_held_for_at_once(it)):
            return False
        self._heads.add(kind)
        if it.lifted and ask.memory_bytes is None:
            return self._keep_clear(it)
        return _has_some(self._world, ask) and self._promise_a_start(it, open_room(it))

    def _is_held_for_at_once(self, it: Workload) -> bool:
        """Where jobs take turns, what starts where the first waits can be moved soon, and nothing need idle for it."""
        queue = self._world.policy.queue(it.queue)
        return not it.ask.across_nodes and (queue is None or queue.slice_factor is None)

    def _keep_clear(self, it: Workload) -> bool:
        """Past the limit of waiting: nothing starts on the node that has the most free already, until all are free.

        So the most that are free on one node never gets less, and grows whenever something ends there: whoever is first
        in line starts, whatever else is asked for and however wrong the expectations are.
        """
        world, ask = self._world, it.ask
        groups: dict[Group, list[Device]] = {}
        for device in world.devices.values():
            if device.is_well and suits(device, ask):
                groups.setdefault(group_of(device, ask), []).append(device)
        freest = sorted(
            groups.values(), key=lambda some: (-sum(it.uuid not in world.leases for it in some), first(some))
        )
        chosen = _whole(freest, ask.devices) if ask.across_nodes else []
        if not chosen:
            chosen = [(some, ask.devices) for some in freest if len(some) >= ask.devices][:1]
        for some, count in chosen:
            clear = sorted(some, key=lambda it: (it.uuid in world.leases, place_of(it)))[:count]
            self._kept.hold_back([device.uuid for device in clear], self._now, it.priority)
        return bool(chosen)

    def _promise_a_start(self, it: Workload, room: Room) -> bool:
        """Nothing is kept idle for what would not fit even on an empty machine."""
        world = self._world
        world.ends.advance(self._now, world.workloads)
        for due, id_ in world.ends.order:
            if room.leave(world.workloads[id_]).fits:
                start = self._now if it.lifted else max(due, self._now)
                # What is free now may serve others until then, and longer: others are free by then as well.
                free = {device.uuid for devices in world.stock.free.values() for device in devices}
                self._kept.hold_back(room.place(spared=free) or (), start, it.priority)
                return True
        return False


def _whole(freest: list[list[Device]], count: int) -> list[tuple[list[Device], int]]:
    """The nodes for what no single one can hold, and how many devices of each; none where there are too few."""
    size = max(map(len, freest), default=0)
    if size == 0 or count <= size:
        return []
    full, rest = divmod(count, size)
    nodes = [some for some in freest if len(some) == size][:full]
    others = [some for some in freest if some not in nodes and len(some) >= rest][: 1 if rest else 0]
    if len(nodes) < full or (rest and not others):
        return []
    return [(some, size) for some in nodes] + [(some, rest) for some in others]


def _has_some(world: World, ask: Ask) -> bool:
    """Whether a device of the kind is free."""
    free = world.stock.free
    if any(suits(device, ask) for device in world.layout.shareable):
        return True
    if ask.on:
        return any(suits(device, ask) for devices in free.values() for device in devices)
    return any(suits(shelf.sort.sample, ask) for shelf in free)


def blocked_reason(world: World, ask: Ask) -> WaitingReason:
    """Devices, unless none of the kind is there any more (engine) or none of them can be read (driver)."""
    if ask.on:
        conditions = {it.condition for it in world.devices.values() if suits(it, ask)}
    else:
        sorts = world.layout.sorts.items()
        conditions = {condition for sort, found in sorts if suits(sort.sample, ask) for condition in found}
    if conditions <= {Condition.LOST}:
        return WaitingReason.ENGINE
    return WaitingReason.DRIVER if conditions <= {Condition.LOST, Condition.UNREADABLE} else WaitingReason.DEVICES
