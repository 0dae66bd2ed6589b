"""The attempts of a job, folded from the events of its life: when each ran, on what, how it ended, what it repeated."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model import AttemptView
from .events import Event, Evicted, Granted, Released, Requeued, Started

_replace = msgspec.structs.replace


def attempts_of(events: Iterable[Event]) -> tuple[AttemptView, ...]:
    """All attempts that began, the oldest first, of one job's events in order. Of a reservation there are none."""
    found: list[AttemptView] = []
    devices: tuple[str, ...] = ()
    evicted: Evicted | None = None
    has_begun = False
    for event in events:
        if isinstance(event, Granted):
            devices, evicted, has_begun = event.lease.devices, None, False
        elif isinstance(event, Started):
            found.append(_begun(found, event.attempt, event.at, devices))
            has_begun = True
        elif isinstance(event, Evicted):
            evicted = event
        elif isinstance(event, Released):
            if event.attempt is not None and not has_begun:  # its end was the first that was heard of it
                found.append(_begun(found, event.attempt, event.at, devices))
                has_begun = True
            if has_begun:
                ended_at = event.at if event.outcome.ended_at is None else event.outcome.ended_at
                found[-1] = _replace(found[-1], ended_at=ended_at, outcome=event.outcome)
        if has_begun and evicted is not None:
            found[-1] = _replace(found[-1], eviction=evicted.reason, evicted_for=evicted.evicted_for)
        if isinstance(event, Requeued):
            evicted, has_begun = None, False
    return tuple(found)


def _begun(before: list[AttemptView], attempt: int, at: float, devices: tuple[str, ...]) -> AttemptView:
    """The next one; it does again what the one before it had not saved."""
    last = before[-1].outcome if before else None
    return AttemptView(
        attempt=attempt,
        started_at=at,
        devices=devices,
        repeated_seconds=None if last is None else last.unsaved_seconds,
    )
