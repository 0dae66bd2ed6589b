"""When those in line will start: the planner itself, run forward on a copy of the world with a virtual clock.

Each job ends at a quantile of how long such work runs, reservations at their end, what must yield at the end of its
grace; nobody new comes. One run with early ends and one with late ends give the two sides of a range for all who wait
at once. Nothing of it is state: it is made on read, and the same world and time give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heappop, heappush
from math import ceil, exp, floor, inf
from typing import NamedTuple

from ..model import (
    Command,
    EndReason,
    Holder,
    Kind,
    Move,
    Outcome,
    Release,
    SeeExited,
    SeeProbe,
    State,
    Tick,
    Workload,
    World,
)  # fmt: skip
from .decide import step
from .events import Event, Evicted, Granted
from .likely import likely_left_seconds
from .outlook import Expected
from .planner import Memory

#: Early ends and late ends, in thousandths.
EARLY, LATE = 250, 750
#: Who comes later and goes before, and ends that surprise, are in neither run. So the range is wider than the two, by
#: these factors of the wait and a minute: on real traces 80 % of the starts are within, see tests/sim/test_calibration.
_SOONER, _LATER = exp(-0.3), exp(0.5)
_MINUTE = 60.0
#: While somebody waits, time is told this often; where jobs take turns, more often: some leave their protected time.
_TICK_SECONDS, _TURN_SECONDS = 3600.0, 600.0
#: So long nothing may happen but that time passes: what waits then waits for what no run can foresee.
_MOST_IDLE_SECONDS = 8 * 86_400.0
#: How much one run may look at: steps, each with those who wait and a part for itself.
BUDGET = 200_000
_OF_A_STEP = 50

_DONE = Outcome(end=EndReason.SUCCEEDED, exit_code=0, finished=True)
_SAVED = Outcome(end=EndReason.SUCCEEDED, exit_code=0, noticed=True, progressed=True, unsaved_seconds=0.0)
_HOLDER = Holder(kind="kernel", name="foreseen")


class Foresight(NamedTuple):
    """When all that wait are expected to start, as it was found at one moment."""

    starts: Mapping[int, Expected]

    def of(self, workload_id: int, now: float) -> Expected | None:
        """The same a while later: what has not come by then is open, and cannot be before now."""
        known = self.starts.get(workload_id)
        if known is None:
            return None
        until = known.until_at if known.until_at is not None and known.until_at >= now else None
        return Expected(max(now, known.from_at), until)


def foresee(
    world: World,
    now: float,
    only: Collection[int] | None = None,
    *,
    budget: int = BUDGET,
    horizon: float = inf,
    is_over: Callable[[int], bool] = lambda _: False,
) -> Foresight:
    """The range of the start of all that wait, or of these alone; what comes after `horizon` is not looked for.

    `is_over` is asked before each step of the first and of the second run whether it has had time enough.
    """
    early, late = (Run(world, now, permille, only, budget, horizon) for permille in (EARLY, LATE))
    early.go(lambda: is_over(0))
    late.go(lambda: is_over(1))
    found = ((id_, early.starts.get(id_), late.starts.get(id_)) for id_ in sorted(early.wanted))
    return Foresight({id_: _widened(now, first, last, early.now) for id_, first, last in found})


def _widened(now: float, early: float | None, late: float | None, looked_until: float) -> Expected:
    """The range that two runs give. Where both give one instant it follows from ends that are known, and stays."""
    if early is None or late is None:
        known = looked_until if early is None and late is None else early or late or now
        return Expected(_sooner(now, known), None)
    if early == late:
        return Expected(early, late)
    until = now + (max(early, late) - now + _MINUTE) * _LATER - _MINUTE
    return Expected(_sooner(now, min(early, late)), ceil(until / _MINUTE) * _MINUTE)


def _sooner(now: float, at: float) -> float:
    """To whole minutes: more would be said than is known."""
    sooner = now + (at - now + _MINUTE) * _SOONER - _MINUTE
    return max(now, floor(sooner / _MINUTE) * _MINUTE)


class Run:
    """One run forward with the ends at one quantile."""

    def __init__(  # noqa: PLR0917 - what one run is
        self, world: World, now: float, permille: int, only: Collection[int] | None, budget: int, horizon: float
    ) -> None:
        """Nothing has happened yet; those are wanted who can start by themselves."""
        self.now = now
        self.starts: dict[int, float] = {}
        self.wanted = {it.id for it in world.queued() if not it.paused and (only is None or it.id in only)}
        self._known, self._permille, self._budget, self._horizon = world, permille, budget, horizon
        self._world = world.copy()
        self._world.habits = world.habits.fixed()
        self._memory = Memory()
        #: When, whose, and which of its leases: a later lease of the same makes an end stale.
        self._ends: list[tuple[float, int, float]] = []
        self._instants = sorted(_instants(world, now), reverse=True)
        #: Job -> when it is over, of those that run; and what was left of it, of those that had to leave.
        self._over_at: dict[int, float] = {}
        self._left: dict[int, float] = {}
        slices = any(queue.slice_factor is not None for queue in world.policy.queues)
        self._tick_seconds = _TURN_SECONDS if slices else _TICK_SECONDS

    def go(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Until all that are wanted have started, or nothing more is found out."""
        for it in list(self._world.holders()):
            self._begin(it)
        self._tell(Tick())
        ticked = busy = self.now
        while self._budget > 0 and len(self.starts) < len(self.wanted) and not is_over():
            at = min(ticked + self._tick_seconds, *self._next())
            if at > min(self._horizon, busy + _MOST_IDLE_SECONDS):
                break
            self.now = max(self.now, at)
            while self._instants and self._instants[-1] <= self.now:
                self._instants.pop()
            due = self._due()
            for number, it in enumerate(due, 1):
                self._end(it, is_last=number == len(due))
            if due:
                busy = self.now
            else:
                ticked = self.now
                self._tell(Tick())

    def _next(self) -> Iterator[float]:
        while self._ends and not self._holds(self._ends[0]):
            heappop(self._ends)
        yield self._ends[0][0] if self._ends else inf
        yield self._instants[-1] if self._instants else inf

    def _holds(self, end: tuple[float, int, float]) -> bool:
        _, id_, granted_at = end
        it = self._world.workloads.get(id_)
        return it is not None and it.is_live and it.lease is not None and it.lease.granted_at == granted_at

    def _due(self) -> list[Workload]:
        due: dict[int, None] = {}
        while self._ends and self._ends[0][0] <= self.now:
            end = heappop(self._ends)
            if self._holds(end):
                due[end[1]] = None
        return [self._world.workloads[id_] for id_ in due]

    def _tell(self, command: Command, *, places: bool = True) -> None:
        events = step(self._world, command, self.now, memory=self._memory, places=places)
        self._budget -= _OF_A_STEP + (len(self._world.lanes.heads) if places else 0)
        self._take_in(events)

    def _take_in(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Granted):
                if event.workload in self.wanted:
                    self.starts.setdefault(event.workload, self.now)
                self._begin(self._world.workloads[event.workload])
            elif isinstance(event, Evicted):
                self._begin(self._world.workloads[event.workload])

    def _begin(self, it: Workload) -> None:
        """It holds devices, or must leave them: note when it does."""
        if it.lease is None:
            return
        if it.lease.attach_by is not None and it.holder is None:
            # That nobody comes is not foreseen.
            self._tell(Move(workload=it.id, by="foresight", holder=_HOLDER), places=False)
        at = self._leaves_at(it)
        if at is not None:
            heappush(self._ends, (max(self.now, at), it.id, it.lease.granted_at))

    def _leaves_at(self, it: Workload) -> float | None:
        if it.state is State.YIELDING:
            return self.now if it.outcome is not None else it.yield_by
        if it.kind is Kind.RESERVATION:
            return None if it.lease is None else it.lease.ends_at
        left = self._left.pop(it.id, None)
        left = likely_left_seconds(self._known, it, self.now, self._permille) if left is None else left
        self._over_at[it.id] = self.now + left
        return self.now + left

    def _end(self, it: Workload, *, is_last: bool) -> None:
        if it.kind is Kind.RESERVATION:
            self._end_reservation(it, is_last=is_last)
        elif it.outcome is not None:
            self._tell(SeeProbe(workload=it.id), places=is_last)
        else:
            over_at = self._over_at.pop(it.id, self.now)
            must_leave = it.state is State.YIELDING and over_at > self.now
            if must_leave:
                self._left[it.id] = max(_MINUTE, over_at - self.now)
            attempt, outcome = it.attempt + (it.started_at is None), _SAVED if must_leave else _DONE
            self._tell(SeeExited(workload=it.id, attempt=attempt, outcome=outcome, clear=True), places=is_last)

    def _end_reservation(self, it: Workload, *, is_last: bool) -> None:
        """At its end it goes into overtime, and leaves when somebody wants its devices."""
        if it.state is State.YIELDING:
            if it.outcome is None:
                self._tell(Release(workload=it.id, by="foresight"), places=False)
            self._tell(SeeProbe(workload=it.id), places=is_last)
        elif is_last:
            self._tell(Tick())


def _instants(world: World, now: float) -> Iterator[float]:
    """When something may start or must leave because of the time alone."""
    for it in world.queued():
        for at in (it.not_before, it.back_off_until):
            if at is not None and at > now:
                yield at
    windows = [(hold.from_at, hold.until_at) for hold in world.policy.holds]
    windows += [(span.from_at, span.until_at) for hold in world.holds.values() for span in hold.windows]
    yield from (at for window in windows for at in window if at > now)
    for it in world.holders():
        queue = world.policy.queue(it.queue)
        if queue is not None and queue.preemptible and it.active_at is not None:
            at = it.active_at + queue.protected_seconds
            if at > now:
                yield at
