"""Shortest remaining time first: preemptive, and an oracle.

Whoever has least left goes first, and takes the GPUs of those who have more left: of those with most, as few as make
it fit. Who must leave loses nothing but what coming back costs, which depends on the size.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Sequence

from .baselines import Clock, Progress, Running, no_progress
from .runs import Runs
from .trace import TraceJob

#: Up to so many GPUs -> the seconds that each start after the first costs on them.
_ONE_RESTART_S, _NODE_RESTART_S, _WIDE_RESTART_S = 7, 30, 60


def restart_seconds(gpus: int, largest: int) -> int:
    """What coming back costs a job of this size where nodes have at most so many GPUs."""
    return _ONE_RESTART_S if gpus == 1 else _NODE_RESTART_S if gpus <= largest else _WIDE_RESTART_S


def srtf(jobs: Sequence[TraceJob], nodes: Sequence[int], progress: Progress = no_progress) -> Runs:
    """Replay it."""
    runs = Runs(policy="srtf", jobs=jobs, nodes=nodes)
    line = _Line(Clock(runs, progress))
    while (arrived := line.clock.advance()) is not None:
        for at in arrived:
            number = line.clock.coming[at]
            line.add(number, jobs[number].duration_s)
        while line.start_one():
            pass
    return runs


class _Line:
    """Who waits, by size: of each size only who has least left may be next."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._sizes: dict[int, list[tuple[int, int]]] = {}

    def add(self, number: int, left_s: int) -> None:
        """It waits, with so much left."""
        insort(self._sizes.setdefault(self.clock.jobs[number].gpus, []), (left_s, number))

    def start_one(self) -> bool:
        """Start who has least left of those who can; whether there was one."""
        heads = sorted((line[0], gpus) for gpus, line in self._sizes.items() if line)
        held: list[Running] | None = None
        for (left, number), gpus in heads:
            if self.clock.pool.find(gpus) is None:
                if held is None:
                    held = sorted(self.clock.running, reverse=True)
                victims = self._victims(gpus, left, held)
                if not victims:
                    continue
                self._preempt(victims)
            places = self.clock.pool.find(gpus)
            if places is not None:
                del self._sizes[gpus][0]
                self.clock.start(number, places, left)
                return True
        return False

    def _preempt(self, victims: Sequence[Running]) -> None:
        clock = self.clock
        clock.stop(victims)
        for it in victims:
            extra = restart_seconds(clock.jobs[it.number].gpus, clock.pool.largest)
            self.add(it.number, it.end - clock.now + extra)

    def _victims(self, gpus: int, left_s: int, held: Sequence[Running]) -> list[Running]:
        """Of those who have more left, and would still with what coming back costs them."""
        clock = self.clock
        longer = []
        for it in held:  # the last end is first
            if it.end - clock.now <= left_s:
                break
            longer.append(it)
        if gpus <= clock.pool.largest:
            return self._on_one_node(gpus, longer)
        room = clock.pool.copy()
        chosen = []
        for it in longer:
            room.give(it.places)
            chosen.append(it)
            if room.fits(gpus):
                break
        else:
            return []
        for it in reversed(chosen[:-1]):
            room.take(it.places)
            if room.fits(gpus):
                chosen.remove(it)
            else:
                room.give(it.places)
        return chosen

    def _on_one_node(self, gpus: int, longer: Sequence[Running]) -> list[Running]:
        """The first node on which those who have most left make room."""
        free, made = self.clock.pool.free, Counter[int]()
        for place, it in enumerate(longer):
            for node, count in it.places:
                made[node] += count
                if free[node] + made[node] >= gpus:
                    there = {other: _on(other, node) for other in longer[: place + 1] if _on(other, node)}
                    spare = free[node] + made[node] - gpus
                    for other in reversed(list(there)[:-1]):
                        if there[other] <= spare:
                            spare -= there.pop(other)
                    return list(there)
        return []


def _on(it: Running, node: int) -> int:
    return sum(count for at, count in it.places if at == node)
