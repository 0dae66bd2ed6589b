"""One life, however it went, as what a report adds up: spans of time and single instants. Pure, and without a window.

A life is read from a few words of its workload and from the events of it that `OF_A_PAST` names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ..model import EndReason, EvictionReason, Kind, Lease, Member, Outcome
from .events import Amended, Ended, Event, Evicted, Granted, OfWorkload, Released, Requeued, Started

#: All other events of a workload change nothing here.
OF_A_PAST: tuple[type[OfWorkload], ...] = (Granted, Started, Amended, Released, Evicted, Requeued, Ended)

#: Ends of jobs that nobody wished for.
FAILURES = frozenset(
    {
        EndReason.FAILED, EndReason.GPU_OOM, EndReason.HOST_OOM, EndReason.DISK_FULL, EndReason.DEVICE_LOST,
        EndReason.ABOVE_SHARE, EndReason.HUNG, EndReason.TIMED_OUT, EndReason.LAUNCH_FAILED, EndReason.LOST,
    }
)  # fmt: skip


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """Of a workload as it stands now what a report needs; named as there, so that it is read from the same words."""

    id: int
    kind: Kind
    owner: str
    team: str
    queue: str
    submitted_at: float
    not_before: float | None = None
    paused: bool = False
    unmet: tuple[int, ...] = ()
    member: Member | None = None
    end: EndReason | None = None
    ended_at: float | None = None


class Span(NamedTuple):
    """A time on devices; the end is None while it lasts."""

    begin: float
    end: float | None
    devices: tuple[str, ...]
    memory_bytes: int | None


@dataclass(slots=True)
class Past:
    """What a life came to so far."""

    leased: list[Span] = field(default_factory=list)
    #: Of a job: its attempts.
    worked: list[Span] = field(default_factory=list)
    #: The ends of attempts that others had to do again.
    repeated: list[Span] = field(default_factory=list)
    #: Attempts that others followed and that could not say what of them these had to do again.
    untold: list[float] = field(default_factory=list)
    failed: list[tuple[float, EndReason]] = field(default_factory=list)
    preempted: list[float] = field(default_factory=list)
    #: Where it was taken back for standing idle: the rest of what was bought.
    idle: list[Span] = field(default_factory=list)
    #: From when on nothing of its own kept it from its first grant; None while something does.
    free_at: float | None = None
    granted_at: float | None = None


def past_of(life: Life, events: Iterable[Event]) -> Past:
    """Read a life from its events in order."""
    reader = _Reader(life)
    for event in events:
        reader.read(event)
    return reader.done()


class _Reader:
    """Where a life stands while it is read."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._past = Past(free_at=max(life.submitted_at, life.not_before or 0.0))
        self._is_job = life.kind is Kind.JOB
        self._lease: Lease | None = None
        self._granted_at = 0.0
        self._began_at: float | None = None
        self._outcome: Outcome | None = None
        self._worked: Span | None = None
        self._eviction: EvictionReason | None = None
        self._evicted_at = 0.0
        #: What keeps it by its own or its owner's wish; of how it began the events do not tell.
        self._is_paused: bool | None = None
        self._awaits: bool | None = None

    def read(self, event: Event) -> None:
        """Take the next one in."""
        if isinstance(event, Granted):
            self._grant(event)
        elif isinstance(event, Started):
            self._began_at = event.at
        elif isinstance(event, Amended):
            self._amend(event)
        elif isinstance(event, Evicted):
            self._eviction, self._evicted_at = event.reason, event.at
        elif isinstance(event, Released):
            self._release(event)
        elif isinstance(event, Requeued):
            self._requeue(event)
        elif isinstance(event, Ended):
            self._end(event)

    def done(self) -> Past:
        """What was read, with what lasts still."""
        if self._lease is not None:
            if self._began_at is not None and self._worked is None:
                self._work(None)
            self._past.leased.append(self._span(self._granted_at, None))
        if self._past.granted_at is None:
            life = self._life
            paused = life.paused if self._is_paused is None else self._is_paused
            awaits = bool(life.unmet) if self._awaits is None else self._awaits
            if paused or awaits:
                self._past.free_at = None
        return self._past

    def _span(self, begin: float, end: float | None) -> Span:
        lease = self._lease
        return Span(begin, end, () if lease is None else lease.devices, None if lease is None else lease.memory_bytes)

    def _grant(self, event: Granted) -> None:
        self._lease, self._granted_at = event.lease, event.at
        self._began_at = self._outcome = self._worked = self._eviction = None
        if self._past.granted_at is None:
            self._past.granted_at = event.at

    def _amend(self, event: Amended) -> None:
        if event.ends_at is not None and self._lease is not None:
            self._lease = msgspec.structs.replace(self._lease, ends_at=event.ends_at)
        if self._past.granted_at is None and not (event.paused is None and event.unmet is None):
            self._is_paused = self._is_paused if event.paused is None else event.paused
            self._awaits = self._awaits if event.unmet is None else bool(event.unmet)
            self._past.free_at = max(self._past.free_at or 0.0, event.at)

    def _release(self, event: Released) -> None:
        self._outcome = event.outcome
        if event.attempt is not None and self._began_at is None:  # its end was the first that was heard of it
            self._began_at = event.at
        if self._began_at is not None and self._worked is None:
            self._work(event.at if event.outcome.ended_at is None else event.outcome.ended_at)

    def _work(self, until: float | None) -> None:
        """It ran so long. What it says it had not saved it has surely done, however late its start was heard of."""
        if not self._is_job or self._began_at is None:
            return
        begin = self._began_at
        unsaved = None if self._outcome is None else self._outcome.unsaved_seconds
        if until is not None and unsaved is not None:
            begin = min(begin, until - unsaved)
        self._worked = self._span(begin, until)
        self._past.worked.append(self._worked)

    def _close(self, at: float) -> None:
        """Its devices are clear."""
        if self._began_at is not None and self._worked is None:
            self._work(at)
        if self._lease is not None:
            self._past.leased.append(self._span(self._granted_at, at))
            bought_until = self._lease.ends_at
            is_idle = not self._is_job and self._eviction is EvictionReason.IDLE
            if is_idle and bought_until is not None:
                self._past.idle.append(self._span(at, max(at, bought_until)))

    def _requeue(self, event: Requeued) -> None:
        self._close(event.at)
        unsaved = None if self._outcome is None else self._outcome.unsaved_seconds
        if self._worked is not None and self._worked.end is not None and unsaved:
            self._past.repeated.append(self._span(self._worked.end - unsaved, self._worked.end))
        elif self._worked is not None and unsaved is None:
            self._past.untold.append(event.at)
        if event.cause == EvictionReason.PREEMPTED:
            self._past.preempted.append(event.at)
        elif event.cause in FAILURES:
            hung = event.cause == EndReason.FAILED and self._eviction is EvictionReason.HUNG
            self._past.failed.append((event.at, EndReason.HUNG if hung else EndReason(event.cause)))
        self._lease = self._began_at = self._outcome = self._worked = self._eviction = None

    def _end(self, event: Ended) -> None:
        self._close(event.at)
        if self._is_job and event.end in FAILURES:
            self._past.failed.append((event.at, event.end))
        self._lease = self._began_at = self._outcome = self._worked = self._eviction = None
