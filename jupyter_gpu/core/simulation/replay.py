"""Our own rules on a trace: a virtual clock that tells `decide.step` what a broker would have told it.

The very code that a broker runs decides; only the world around it is imagined. A job runs as long as the trace says,
whatever its owner said. At one moment ends come before arrivals, and arrivals before the planner looks. A job that must
yield leaves at once and loses what it did since its last checkpoint; each later start of it costs some seconds on its
devices before it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from ...errors import GpuError
from ...model import (
    Ask,
    Command,
    Device,
    EndReason,
    Holder,
    JobSpec,
    Kind,
    Outcome,
    Policy,
    Release,
    Rerank,
    SeeDevices,
    SeeExited,
    SeeProbe,
    State,
    Submit,
    Tick,
    World,
)  # fmt: skip
from ..decide import step
from ..events import Event, Evicted, Granted
from ..planner import Memory
from .baselines import PROGRESS_EVERY, Progress, no_progress
from .runs import Runs
from .trace import TraceJob

#: A Monday at midnight, where a trace has an origin of its own. One in Unix seconds keeps its calendar.
MONDAY_AT = 1_790_035_200
_IS_UNIX_S = 1_000_000_000

#: While somebody waits, time is told this often, as a broker tells it: what time alone brings, and ranks made anew.
TICK_SECONDS = 3600
#: Where jobs take turns, more often: some leave their protected time.
TURN_SECONDS = 600
#: When nothing runs and nothing comes any more: a budget may let work start so much later.
_LAST_TICKS, _LAST_TICK_SECONDS = 36 * 24, 3600

_SPEC = JobSpec(argv=("replay",), folder="/")
_HOLDER = Holder(kind="kernel", name="replay")
_DONE = Outcome(end=EndReason.SUCCEEDED, exit_code=0)
_GIB = 1 << 30
_MEMORY_BYTES = 80 * _GIB


class Assumed(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace does not tell and a replay has to assume."""

    #: How often a job saves while it runs; 0 never does.
    checkpoint_seconds: int = 600
    #: What each start after the first costs on its devices.
    restart_seconds: int = 60
    #: How often time is told while somebody waits; None is as often as the policy needs it.
    tick_seconds: int | None = None


class _Job:
    """Where one job of the trace stands."""

    __slots__ = ("attempt", "begin", "end", "is_reservation", "left", "number", "overhead")

    def __init__(self, number: int, seconds: int, *, is_reservation: bool) -> None:
        self.number = number
        #: How much of its work is not saved yet.
        self.left = seconds
        self.attempt = 0
        self.begin = 0
        self.overhead = 0
        #: None while it holds nothing.
        self.end: int | None = None
        self.is_reservation = is_reservation


class _Ending(NamedTuple):
    at: int
    workload: int
    attempt: int


def ours(
    jobs: Sequence[TraceJob],
    nodes: Sequence[int],
    policy: Policy | None = None,
    *,
    assumed: Assumed | None = None,
    progress: Progress = no_progress,
    seen: Callable[[World, float, list[Event]], None] | None = None,
) -> Runs:
    """Replay a trace under a policy; `seen` is told each step's events, for those who want to check them."""
    return Replay(jobs, nodes, policy or Policy(), assumed=assumed or Assumed(), progress=progress, seen=seen).run()


def a_pool(nodes: Sequence[int]) -> tuple[Device, ...]:
    """GPUs that are all alike, on nodes of so many."""
    return tuple(
        Device(
            uuid=f"GPU-{node:04}-{index:02}",
            index=index,
            name="GPU",
            device_class="gpu",
            memory_bytes=_MEMORY_BYTES,
            node=f"node-{node:04}",
            simulated=True,
        )
        for node, size in enumerate(nodes)
        for index in range(size)
    )


class Replay:
    """One trace under one policy."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        nodes: Sequence[int],
        policy: Policy,
        *,
        assumed: Assumed,
        progress: Progress,
        seen: Callable[[World, float, list[Event]], None] | None,
    ) -> None:
        """An empty world of these nodes; nothing has come yet."""
        self.runs = Runs(policy="ours", jobs=jobs, nodes=nodes)
        self.world = World(policy)
        self._assumed, self._progress, self._seen = assumed, progress, seen
        first = jobs[0].submit_s if jobs else 0
        self._origin_at = 0 if first >= _IS_UNIX_S else MONDAY_AT
        self._now = first
        self._memory = Memory()
        self._reranked = self._now // TICK_SECONDS
        slices = any(queue.slice_factor is not None for queue in policy.queues)
        self._tick_seconds = assumed.tick_seconds or (TURN_SECONDS if slices else TICK_SECONDS)
        self._jobs: dict[int, _Job] = {}
        self._ends: list[_Ending] = []
        self._leaving: list[int] = []
        self._done = 0
        #: Queue -> whether only people enter it.
        self._is_for_people = {queue.name: Kind.JOB not in queue.kinds for queue in policy.queues}
        #: The largest ask that one node serves.
        self._widest = max(nodes, default=0)

    def run(self) -> Runs:
        """From the first arrival to the last end."""
        self._decide(SeeDevices(pool="local", devices=a_pool(self.runs.nodes)))
        jobs, count, coming = self.runs.jobs, len(self.runs.jobs), 0
        ticked = self._now
        while True:
            self._drop_stale_ends()
            moments = [jobs[coming].submit_s] if coming < count else []
            moments += [self._ends[0].at] if self._ends else []
            if not moments:
                if self._wait_for_a_start():
                    continue
                break
            moment = min(moments)
            if self.world.line and moment > ticked + self._tick_seconds:
                self._now = ticked = max(self._now, ticked + self._tick_seconds)
                self._pass_time()
                continue
            self._now = moment
            if not self.world.line:
                ticked = moment
            came = coming
            while coming < count and jobs[coming].submit_s <= moment:
                coming += 1
            self._end_those_due(is_last=came == coming)
            for number in range(came, coming):
                self._submit(number, is_last=number + 1 == coming)
        self._refuse_the_stuck()
        return self.runs

    # -- what is told

    def _pass_time(self) -> None:
        if self._now // TICK_SECONDS != self._reranked:
            self._reranked = self._now // TICK_SECONDS
            self._tell(Rerank(), places=False)
        self._decide(Tick())

    def _decide(self, command: Command, *, places: bool = True) -> None:
        """One command; what is granted begins to run, and who must yield leaves at once."""
        self._tell(command, places=places)
        self._let_leave()

    def _let_leave(self) -> None:
        """However many must: one after another, and also those who must because of it."""
        while self._leaving:
            id_ = self._leaving.pop()
            self._leave(id_, places=not self._leaving)

    def _tell(self, command: Command, *, places: bool = True) -> None:
        now = float(self._origin_at + self._now)
        self._take_in(step(self.world, command, now, memory=self._memory, places=places), now)

    def _take_in(self, events: list[Event], now: float) -> None:
        for event in events:
            kind = type(event)
            if kind is Granted:
                self._begin(event.workload)  # type: ignore[attr-defined]
            elif kind is Evicted:
                self._leaving.append(event.workload)  # type: ignore[attr-defined]
        if self._seen is not None:
            self._seen(self.world, now, events)

    def _submit(self, number: int, *, is_last: bool) -> None:
        job = self.runs.jobs[number]
        queue = job.queue if job.queue in self._is_for_people else None
        is_reservation = queue is not None and self._is_for_people[queue]
        before = self.world.last_id
        # It is known before anything is decided: the step that lets it in may grant it.
        self._jobs[before + 1] = _Job(number, job.duration_s, is_reservation=is_reservation)
        try:
            self._decide(
                Submit(
                    kind=Kind.RESERVATION if is_reservation else Kind.JOB,
                    owner=job.user,
                    team=job.team,
                    groups=(job.team,),
                    queue=queue,
                    ask=self._ask(job, queue),
                    spec=None if is_reservation else _SPEC,
                    holder=_HOLDER if is_reservation else None,
                ),
                places=is_last,
            )
        except GpuError as error:
            del self._jobs[before + 1]
            self.runs.refused[number] = error.message
            self._done += 1
            if is_last:
                self._decide(Tick())

    def _ask(self, job: TraceJob, queue: str | None) -> Ask:
        """Nothing ran into its limit in the trace, so none does here: a limit below the run time was no limit."""
        limit = job.limit_s
        if limit is not None:
            limit = max(limit, job.duration_s + self._assumed.restart_seconds)
        if queue is not None and self._is_for_people[queue]:
            rule = self.world.policy.queue(queue)
            longest = None if rule is None else rule.longest_seconds
            limit = max(1, job.duration_s) if limit is None else limit
            limit = limit if longest is None else min(limit, longest)
        return Ask(devices=job.gpus, duration_seconds=limit, across_nodes=job.gpus > self._widest)

    # -- what runs

    def _begin(self, id_: int) -> None:
        it = self._jobs[id_]
        it.attempt += 1
        it.begin = self._now
        it.overhead = self._assumed.restart_seconds if it.attempt > 1 else 0
        it.end = self._now + it.overhead + it.left
        heappush(self._ends, _Ending(it.end, id_, it.attempt))

    def _drop_stale_ends(self) -> None:
        ends = self._ends
        while ends:
            it = self._jobs.get(ends[0].workload)
            if it is not None and it.end is not None and it.attempt == ends[0].attempt:
                return
            heappop(ends)

    def _end_those_due(self, *, is_last: bool) -> None:
        """Of all that happens at one moment only the last needs a step of the planner."""
        due: list[tuple[int, _Job]] = []
        while self._ends and self._ends[0].at <= self._now:
            ending = heappop(self._ends)
            it = self._jobs.get(ending.workload)
            if it is not None and it.end is not None and it.attempt == ending.attempt:
                due.append((ending.workload, it))
        for number, (id_, it) in enumerate(due, 1):
            self._close(id_, it)
            self._tell_the_end(id_, it, _DONE, places=is_last and number == len(due))
            self._let_leave()

    def _close(self, id_: int, it: _Job, *, is_over: bool = True) -> None:
        self.runs.spans.append((it.number, it.begin, self._now))
        it.end = None
        if is_over:
            del self._jobs[id_]
            self._done += 1
            if self._done % PROGRESS_EVERY == 0:
                self._progress(self._done, len(self.runs.jobs))

    def _tell_the_end(self, id_: int, it: _Job, outcome: Outcome, *, places: bool = True) -> None:
        if it.is_reservation:
            self._tell(Release(workload=id_, by="replay"), places=False)
            self._tell(SeeProbe(workload=id_), places=places)
            return
        self._tell(SeeExited(workload=id_, attempt=it.attempt, outcome=outcome, clear=True), places=places)

    def _leave(self, id_: int, *, places: bool) -> None:
        """It saves nothing more than it had saved: the notice is as short as can be."""
        it = self._jobs.get(id_)
        if it is None or it.end is None:
            return
        worked = max(0, self._now - it.begin - it.overhead)
        every = self._assumed.checkpoint_seconds
        saved = worked // every * every if every else 0
        it.left -= saved
        self._close(id_, it, is_over=False)
        self._tell_the_end(
            id_,
            it,
            Outcome(
                end=EndReason.SUCCEEDED,
                exit_code=0,
                noticed=True,
                progressed=saved > 0,
                unsaved_seconds=float(worked - saved),
            ),
            places=places,
        )
        known = self.world.workloads.get(id_)
        if known is None or known.state is State.ENDED:
            self._jobs.pop(id_, None)
            self._done += 1
        else:
            self.runs.preemptions += 1

    # -- the end

    def _wait_for_a_start(self) -> bool:
        """Whether time alone lets something start of what still waits."""
        for _ in range(_LAST_TICKS):
            if not self.world.line:
                return False
            self._now += _LAST_TICK_SECONDS
            self._pass_time()
            if self._ends:
                return True
        return False

    def _refuse_the_stuck(self) -> None:
        for id_, it in self._jobs.items():
            known = self.world.workloads.get(id_)
            why = "" if known is None or known.waiting is None else f" for {known.waiting}"
            self.runs.refused[it.number] = f"it never started: it waits{why}"
