"""What the documents of many callers have in common as of one moment, each made once, when the first of them needs it.

Hundreds of people look at one picture. What is redacted for each of them is made for each; who holds how much, who
waits before whom and how others' work looks from outside is the same for all, and would else be most of the work.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from ..model import HoldPolicy, Workload, WorkloadView, World
from .forecast import expected_end_at
from .foresight import Foresight
from .holds import calendar_of
from .in_the_way import warnings_of
from .outlook import Expected, Place, place_among
from .quota import Ledger


class Waiting(NamedTuple):
    """The line, walked once."""

    #: Queue -> how many wait in it.
    counts: dict[str, int]
    #: Owner -> what of theirs waits, in order, each with how many of its queue are before it.
    by_owner: dict[str, list[tuple[Workload, int]]]
    #: Queue -> who waits in it, in order.
    by_queue: dict[str, list[int]]

    def place_of(self, it: Workload, ahead: int) -> Place:
        """Where one stands of whose queue so many are before it."""
        return place_among(self.by_queue[it.queue], ahead)


class Moment:
    """A world at a time, and what was made of it. A world is replaced and never written to, save for what is seen."""

    def __init__(self, world: World, now: float, foresight: Foresight | None = None) -> None:
        self.world, self.now = world, now
        #: What a look ahead has found, if there was one lately.
        self.foresight = foresight
        #: Others' work, by its number and what tells one kind of stranger from another: made by `status.view_of`.
        self.others: dict[tuple[int, bool, bool], WorkloadView] = {}

    @cached_property
    def ledger(self) -> Ledger:
        """Who holds and has used how much. It is only read."""
        return Ledger(self.world, self.now)

    @cached_property
    def waiting(self) -> Waiting:
        """Who waits."""
        by_queue: dict[str, list[int]] = {queue.name: [] for queue in self.world.policy.queues}
        by_owner: dict[str, list[tuple[Workload, int]]] = {}
        for it in self.world.queued():
            kin = by_queue.setdefault(it.queue, [])
            by_owner.setdefault(it.owner, []).append((it, len(kin)))
            kin.append(it.id)
        return Waiting({queue: len(kin) for queue, kin in by_queue.items()}, by_owner, by_queue)

    def expected(self, it: Workload) -> Expected | None:
        """When one that waits is expected to start, where that was looked for."""
        return None if self.foresight is None else self.foresight.of(it.id, self.now)

    @cached_property
    def promises(self) -> list[tuple[HoldPolicy, frozenset[str]]]:
        """The windows of holds and the reservations for later, each with the devices that it would get."""
        world = self.world
        if not (world.policy.holds or world.holds or world.booked):
            return []
        return calendar_of(world, self.now).look()

    @cached_property
    def in_the_way(self) -> dict[int, str]:
        """Of holds and of reservations for later: what they would lack, and why."""
        return warnings_of(self.world, self.now)

    @cached_property
    def late(self) -> frozenset[int]:
        """What is past its time: it looks different from one moment to the next, and no event tells of it."""
        world = self.world
        return frozenset(
            it.id for it in world.holders() if expected_end_at(world, it, self.now) > expected_end_at(world, it, 0.0)
        )
