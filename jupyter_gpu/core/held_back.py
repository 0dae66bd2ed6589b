"""5 Hold back: a start for the first blocked workload of each kind of device, which later ones must not delay.

EASY backfill with learnt ends (Lifka, "The ANL/IBM SP scheduling system", 1995): whoever is behind runs only where they
have left by then. What wants more than any node has would keep whole nodes idle for long on the word of mere
expectations, so it is given a start only once it has waited past its queue's limit. From then on nothing at all may
begin where it waits, however short.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import Ask, Condition, WaitingReason, Workload, World
from .holds import Kept
from .placement import Room, suits

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
        return _has_some(self._world, ask) and self._promise_a_start(it, open_room(it))

    def _is_held_for_at_once(self, it: Workload) -> bool:
        """Where jobs take turns, what starts where the first waits can be moved soon, and nothing need idle for it."""
        queue = self._world.policy.queue(it.queue)
        return not it.ask.across_nodes and (queue is None or queue.slice_factor is None)

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
