"""What a replay of a trace came to: one policy, or one size of the pool, beside another.

The same rules hold as in `documents`. A wait is a job's time in the system less its run time, so what a preemption cost
it counts as waiting. Instants are seconds of the trace.
"""

from __future__ import annotations

import msgspec


class TeamFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How one team fared."""

    team: str
    jobs: int
    mean_wait_seconds: float
    p90_wait_seconds: float
    longest_wait_seconds: float
    #: All its time in the system over all its run time; 1 is to have waited for nothing. None where nothing ran.
    stretch: float | None


class SimulationPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How it stood, on average from this instant until the next point's."""

    at: float
    queued: float
    #: Devices that were held.
    busy: float


class SimulationRun(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one pool."""

    policy: str
    #: How many GPUs each node has.
    nodes: tuple[int, ...]
    devices: int
    #: Jobs that ran to their end.
    jobs: int
    #: Jobs that never ran, by why.
    not_run: dict[str, int]
    #: From submission to end; None, like all that follows, where no job ran.
    mean_time_in_system_seconds: float | None
    mean_wait_seconds: float | None
    median_wait_seconds: float | None
    p90_wait_seconds: float | None
    p999_wait_seconds: float | None
    longest_wait_seconds: float | None
    #: The worst of the teams', and whose it is.
    worst_stretch: float | None
    worst_team: str | None
    #: Jain's index over 1 / stretch of the teams: 1 is all alike, 1 / teams is one that gets everything.
    jain: float | None
    #: Of the device time from the first submission to the last end, and of that while somebody waited.
    utilisation: float | None
    utilisation_while_queued: float | None
    preemptions: int
    #: Held and not part of any run time: work that was lost to preemptions, and what coming back cost.
    lost_gpu_hours: float
    #: From the first submission to the last end.
    length_seconds: float
    teams: tuple[TeamFigures, ...] = ()
    points: tuple[SimulationPoint, ...] = ()


class SimulationView(msgspec.Struct, frozen=True, kw_only=True):
    """A trace, and what each policy or each size of the pool would have made of it."""

    trace: str
    jobs: int
    teams: int
    first_submit_at: float
    last_submit_at: float
    gpu_hours: float
    runs: tuple[SimulationRun, ...]
    #: By which rules `ours` decided, in words; empty where it was not asked for.
    rules: str = ""
    #: What is not in these numbers, in sentences.
    notes: tuple[str, ...] = ()


class PastJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job or reservation of the lab's own past, as a trace has it."""

    id: int
    user: str
    team: str
    queue: str
    #: From when on nothing of its own kept it from starting, in Unix seconds.
    submitted_at: float
    gpus: int
    #: How long it held its GPUs, less what it did twice.
    duration_seconds: float
    limit_seconds: float | None = None
    #: How it ended.
    end: str = ""


class PastPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the past, by id; `next` is where the next page begins, null at the end."""

    items: tuple[PastJob, ...]
    next: int | None
    #: Of these pages, what a trace cannot have: by why, how many.
    left_out: dict[str, int] = {}
