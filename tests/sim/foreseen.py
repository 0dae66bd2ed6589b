"""How good the ranges are: at submission of some of those that wait in a replay, then told from what really came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from jupyter_gpu.core.events import Event, Granted, Submitted
from jupyter_gpu.core.foresight import foresee
from jupyter_gpu.core.outlook import Expected
from jupyter_gpu.core.simulation.replay import ours
from jupyter_gpu.core.simulation.trace import TraceJob
from jupyter_gpu.model import Policy, State, World

#: A team that stands in for its users may have more waiting than one person.
POLICY = Policy(most_queued=1_000_000)


class Told(NamedTuple):
    """What was told at a submission, and what came of it."""

    team: str
    at: float
    expected: Expected
    start_at: float

    @property
    def is_within(self) -> bool:
        """Whether it started in the range that was told."""
        until = self.expected.until_at
        return self.expected.from_at <= self.start_at and (until is None or self.start_at <= until)


class _Look:
    """Looks on at a replay, and ahead for each so-manieth that waits."""

    def __init__(self, every: int) -> None:
        self.told: list[Told] = []
        self._every, self._waited = every, 0
        self._came: list[int] = []
        self._open: dict[int, tuple[str, float, Expected]] = {}

    def __call__(self, world: World, now: float, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Submitted):
                self._came.append(event.it.id)
            elif isinstance(event, Granted) and event.workload in self._open:
                self.told.append(Told(*self._open.pop(event.workload), now))
        # Of what came at one moment all wait for the step that places them: until then none has a reason.
        waits = [it for id_ in self._came if (it := world.workloads[id_]).state is State.QUEUED]
        if any(it.waiting is None for it in waits):
            return
        self._came.clear()
        for it in waits:
            self._waited += 1
            if self._waited % self._every == 0:
                self._open[it.id] = (it.team, now, foresee(world, now, [it.id]).starts[it.id])


def told(jobs: Sequence[TraceJob], nodes: Sequence[int], every: int) -> list[Told]:
    """What was told to each so-manieth of those that had to wait."""
    look = _Look(every)
    ours(jobs, nodes, POLICY, seen=look)
    # Who gets the devices of somebody that leaves at the same moment has not waited: that is no art to foresee.
    return [it for it in look.told if it.start_at > it.at]


def coverage(found: Sequence[Told]) -> float:
    """Which part started within."""
    return sum(it.is_within for it in found) / len(found)


def by_team(found: Sequence[Told]) -> dict[str, tuple[int, float]]:
    """Of each team how many were told, and which part of them started within."""
    teams = defaultdict[str, list[Told]](list)
    for it in found:
        teams[it.team].append(it)
    return {team: (len(its), coverage(its)) for team, its in sorted(teams.items())}


def median_width(found: Sequence[Told]) -> float:
    """How many times as long the latest wait is as the earliest, each and a minute; half of them are narrower."""
    closed = [it for it in found if it.expected.until_at is not None]
    widths = sorted(
        ((it.expected.until_at or 0.0) - it.at + 60.0) / (it.expected.from_at - it.at + 60.0) for it in closed
    )
    return widths[len(widths) // 2]
