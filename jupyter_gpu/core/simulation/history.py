"""One life of the lab's own past as a row of a trace: pure, like the report that reads the same lives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...model import Kind, Lease, PastJob
from ..events import Event, Granted
from ..past import Life, Past, Span, past_of

NOT_OVER = "not over"
NEVER_RAN = "that never held a GPU"
SHARED = "on parts of shared GPUs"


def past_job(life: Life, events: Iterable[Event]) -> PastJob | str:
    """The row; or why a trace cannot have it."""
    known = list(events)
    if life.ended_at is None:
        return NOT_OVER
    lease = next((event.lease for event in known if isinstance(event, Granted)), None)
    if lease is None or not lease.devices:
        return NEVER_RAN
    if lease.memory_bytes is not None:
        return SHARED
    past = past_of(life, known)
    return PastJob(
        id=life.id,
        user=life.owner,
        team=life.team,
        queue=life.queue,
        submitted_at=life.submitted_at if past.free_at is None else past.free_at,
        gpus=len(lease.devices),
        duration_seconds=_seconds(life, past),
        limit_seconds=_limit(lease),
        end="" if life.end is None else str(life.end),
    )


def _limit(lease: Lease) -> float | None:
    return None if lease.ends_at is None else lease.ends_at - lease.granted_at


def _seconds(life: Life, past: Past) -> float:
    """How long it would have held its GPUs in one go: without what attempts of it did twice."""
    held = _sum(past.leased)
    return held if life.kind is Kind.RESERVATION else max(0.0, held - _sum(past.repeated))


def _sum(spans: Sequence[Span]) -> float:
    return sum(span.end - span.begin for span in spans if span.end is not None)
