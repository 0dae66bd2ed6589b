"""Documents about one job, beside how it stands: its attempts, its progress, its calendar, what would become of it.

The same rules hold as in `documents`.
"""

from __future__ import annotations

import msgspec

from .documents import WorkloadView
from .jobs import JobSpec, Progress
from .nouns import Ask, Outcome
from .quota_views import QuotaView
from .recurring import Overlap
from .states import EndReason, EvictionReason, State


class AttemptView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of a job, read from the events of its life."""

    attempt: int
    started_at: float
    #: None while it runs.
    ended_at: float | None = None
    devices: tuple[str, ...] = ()
    #: What made it leave, and the workload with the better claim, where something did.
    eviction: EvictionReason | None = None
    evicted_for: int | None = None
    outcome: Outcome | None = None
    #: What of the attempt before it this one had to do again; None where that is not known.
    repeated_seconds: float | None = None


class AttemptPage(msgspec.Struct, frozen=True, kw_only=True):
    """All attempts of a job, oldest first."""

    items: tuple[AttemptView, ...]


class ProgressPage(msgspec.Struct, frozen=True, kw_only=True):
    """The curve of one attempt: some hundred points over all of it, oldest first, the newest always among them."""

    attempt: int
    items: tuple[Progress, ...]


class RecurringView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recurring job as its owner, or an operator, sees it."""

    id: int
    owner: str
    team: str
    name: str
    #: What it runs, in short.
    command: str
    cron: str
    timezone: str
    overlap: Overlap
    paused: bool
    added_at: float
    next_at: float | None
    last_at: float | None = None
    #: The last job that it led to (of an array the first), and how that stands or ended.
    last_workload: int | None = None
    last_state: State | None = None
    last_end: EndReason | None = None
    #: What is to be said of the last instant, or why the next one cannot come.
    last_detail: str = ""
    times: int = 0
    #: What each time is asked for and run; told of one alone.
    ask: Ask | None = None
    spec: JobSpec | None = None


class RecurringPage(msgspec.Struct, frozen=True, kw_only=True):
    """The recurring jobs that the caller may see."""

    items: tuple[RecurringView, ...]


class DryRunView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What would become of an ask; nothing was asked for."""

    #: As it would stand; of an array its first. Its id is not given away and means nothing.
    workload: WorkloadView
    #: How many jobs it would be.
    jobs: int
    #: How many of them would start at once; of a large array at least so many.
    starts_now: int
    #: Why the first of those that would not waits, of an array whose first would start.
    others_wait: str = ""
    #: Whom they would make yield.
    evicts: tuple[int, ...] = ()
    #: The bounds that it would count for, as they would stand then.
    quotas: tuple[QuotaView, ...] = ()
    #: Of one that would come by a calendar: its first instants, and the time zone that they were found in.
    times: tuple[float, ...] = ()
    timezone: str | None = None
