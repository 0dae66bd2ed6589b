"""Taking turns: where a queue says so, long jobs of it yield to short ones of it, and small ones to a wide one.

A job that waits takes the devices of one of the same queue that runs, only where all of this holds: that one would now
stand behind it in line; it still needs many times as long, by what is expected; it has run through its protected time
and was not preempted too often today. And where so many devices are free as are asked for, but here one and there one,
small jobs are moved off one node that the free ones elsewhere can take, for one that has waited for as long as they are
protected. No preemption goes in circles: whoever yields stands behind whom it yielded to, and who has moved is
protected anew. What was expected is learnt from how long work ran, so nobody gets ahead by saying that their job is
short.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ..model import Kind, State, Workload, World
from ..model.shelves import Node, Shelf
from .forecast import expected_left_seconds, rank_ms
from .placement import suits_sort
from .recent_use import RecentUse
from .victims import has_reached_the_cap


class _Candidate(NamedTuple):
    #: Fewest devices first, then who needs longest: it is the least likely to be asked again.
    devices: int
    minus_left_seconds: float
    id: int
    shelf: Shelf


class Turns:
    """Who of a queue runs and may be asked to yield to others of it, by node."""

    def __init__(self, world: World, queue: str, factor: int, now: float) -> None:
        """Look at the live workloads of the queue once."""
        self._world, self._now, self._factor = world, now, factor
        self._by_node: dict[Node, list[_Candidate]] = {}
        self._use: RecentUse | None = None
        world.ends.advance(now, world.workloads)
        rule = world.policy.queue(queue)
        self._patience_seconds = 0 if rule is None else rule.protected_seconds
        if rule is None or not rule.preemptible:
            return
        before = now - rule.protected_seconds
        for id_ in world.live:
            it = world.workloads[id_]
            if it.queue == queue and it.state is State.ACTIVE and (it.active_at or now) <= before:
                self._add(it)
        for candidates in self._by_node.values():
            candidates.sort(key=lambda it: it[:3])

    def _add(self, it: Workload) -> None:
        if it.kind is not Kind.JOB or it.lease is None or it.lease.memory_bytes is not None or not it.lease.devices:
            return
        stock, uuids = self._world.stock, it.lease.devices
        shelf = stock.shelf(uuids[0])
        if it.ask.across_nodes or has_reached_the_cap(self._world, it, self._now):
            return
        left = self._world.ends.due(it.id) - self._now
        self._by_node.setdefault(shelf.node, []).append(_Candidate(len(uuids), -left, it.id, shelf))

    def choose(self, asker: Workload, barred: Collection[str], may_move: Callable[[Workload], bool]) -> list[Workload]:
        """Who is to yield so that it fits: all on one node, that where the fewest devices change hands.

        `may_move` says of whom it may be asked at all: not of what is the own of another team.
        """
        if asker.ask.across_nodes or asker.ask.memory_bytes is not None or asker.ask.on or asker.ask.same_link_group:
            return []
        free, size = self._free(asker, barred), asker.ask.devices
        # Who has only just come moves nobody: they might not stay.
        has_waited = self._now >= asker.submitted_at + self._patience_seconds
        is_scattered = has_waited and sum(free.values()) >= size > 1
        best: tuple[int, Node] | None = None
        chosen: list[_Candidate] = []
        for node, there in self._by_node.items():
            candidates = [it for it in there if suits_sort(it.shelf.sort, asker.ask) and may_move(self._workload(it))]
            lacks = size - free.get(node, 0)
            if best is not None and lacks > best[0]:
                continue
            some = self._enough(candidates, lacks, self._gives_way_to(asker))
            if not some and is_scattered:
                some = self._enough(candidates, lacks, self._fits_elsewhere(free, node))
            cost = sum(it.devices for it in some)
            if some and (best is None or (cost, node) < best):
                best, chosen = (cost, node), some
        return [self._world.workloads[it.id] for it in chosen]

    def _workload(self, it: _Candidate) -> Workload:
        return self._world.workloads[it.id]

    def taken(self, victim: Workload) -> None:
        """It yields now."""
        for candidates in self._by_node.values():
            candidates[:] = [it for it in candidates if it.id != victim.id]

    def _free(self, asker: Workload, barred: Collection[str]) -> dict[Node, int]:
        free: dict[Node, int] = {}
        for shelf, devices in self._world.stock.free.items():
            if suits_sort(shelf.sort, asker.ask):
                count = len(devices) if not barred else sum(device.uuid not in barred for device in devices)
                free[shelf.node] = free.get(shelf.node, 0) + count
        return free

    @staticmethod
    def _enough(candidates: list[_Candidate], lacks: int, yields: Callable[[_Candidate], bool]) -> list[_Candidate]:
        """The fewest and smallest that leave so many devices; none where all together would not."""
        some: list[_Candidate] = []
        for it in candidates:
            if lacks <= 0:
                break
            if yields(it):
                some.append(it)
                lacks -= it.devices
        if lacks > 0:
            return []
        for it in some.copy():  # who came first may not be needed beside a larger one
            if lacks + it.devices <= 0:
                some.remove(it)
                lacks += it.devices
        return some

    def _gives_way_to(self, asker: Workload) -> Callable[[_Candidate], bool]:
        least = self._factor * expected_left_seconds(self._world, asker)
        return lambda it: -it.minus_left_seconds >= least and self._rank_ms(it) > asker.rank_ms

    def _rank_ms(self, it: _Candidate) -> int:
        """Where a running job would stand if it were in line now."""
        if self._use is None:
            self._use = RecentUse(self._world, self._now)
        job = self._world.workloads[it.id]
        done = job.worked_seconds + self._now - (job.active_at or self._now)
        share = self._use.permille(job.owner, job.team)
        return rank_ms(job, self._world, share, left_seconds=-it.minus_left_seconds, done_seconds=done)

    @staticmethod
    def _fits_elsewhere(free: dict[Node, int], node: Node) -> Callable[[_Candidate], bool]:
        left = {other: count for other, count in free.items() if other != node and count}

        def moves(it: _Candidate) -> bool:
            fitting = [(count, other) for other, count in left.items() if count >= it.devices]
            if not fitting:
                return False
            left[min(fitting)[1]] -= it.devices
            return True

        return moves
