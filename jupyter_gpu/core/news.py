"""What of a job's life its owner may want to be told, in sentences: what happened, why, and what becomes of it."""

from __future__ import annotations

from typing import NamedTuple

from ..model import EndReason, EvictionReason, Recurring, Workload, World
from ..units import format_at, format_seconds, format_when
from .advice import advice
from .events import Ended, Event, Evicted, Granted, RecurringChanged, RecurringPut, Requeued, Started
from .recurring import named
from .verdict import COMES_BACK


class Told(NamedTuple):
    """One piece of news: which moment it is, and the sentence."""

    what: str
    text: str
    end: EndReason | None = None


#: Causes of a requeue that are no failure: it was asked to leave, or left by itself to be called again.
_NO_FAILURE = frozenset({"asked", *map(str, COMES_BACK - {EvictionReason.DEVICE_LOST})})


def news_of(world: World, it: Workload, event: Event) -> Told | None:
    """What an event tells of a job as it stood after it; None where it is no news."""
    match event:
        case Started():
            return Told("started", _started(it, event))
        case Evicted(reason=EvictionReason.HUNG):
            return Told("hung", f"{it.title} hangs: {_sentence(event.detail)}It is ended and started anew.")
        case Evicted() if event.reason in COMES_BACK:
            by = format_when(event.yield_by, event.at)
            what = _sentence(event.detail)
            return Told("preempted", f"{it.title} must yield by {by}. {what}It goes on by itself when there is room.")
        case Requeued() if event.cause not in _NO_FAILURE:
            what = f"Attempt {it.attempt} of {it.title}" if it.attempt else f"The start of {it.title}"
            then = "It is paused until you let it go." if event.paused else "It is tried again."
            return Told("failed", f"{what} failed: {_sentence(event.detail or event.cause)}{then}")
        case Ended():
            return Told("ended", _ended(world, it, event), event.end)
    return None


def news_of_reservation(it: Workload, event: Event) -> Told | None:
    """What an event tells of a reservation to who is not at the screen: that it is theirs, or was missed."""
    match event:
        case Granted(lease=lease) if lease.attach_by is not None:
            by = format_at(lease.attach_by, event.at)
            return Told("offered", f"{it.title} has its GPUs. They are held until {by}, then others get them.")
        case Ended(end=EndReason.ABANDONED):
            return Told("no-show", f"{it.title} was passed on: {_sentence(event.detail)}".rstrip(), event.end)
        case Ended(end=EndReason.EXPIRED) if it.not_before is not None and it.previous_devices == ():
            return Told("no-show", f"{it.title} did not begin: {_sentence(event.detail)}".rstrip(), event.end)
    return None


def news_of_recurring(it: Recurring, event: RecurringPut | RecurringChanged) -> Told | None:
    """What of a recurring job led to no job of its own, and why."""
    if event.what not in ("skipped", "refused"):
        return None
    detail = event.it.last_detail if isinstance(event, RecurringPut) else event.last_detail
    return Told("left-out", f"{named(it)} did not run at its time: {detail}.")


def soon(it: Workload, at: float, now: float) -> Told:
    """That a job is expected to start."""
    return Told("starts-soon", f"{it.title} is expected to start by about {format_at(at, now)}.")


def is_wanted(told: Told, wanted: tuple[str, ...]) -> bool:
    """Whether somebody who asked for these moments is told; who named none is told all."""
    if not wanted or told.what in wanted:
        return True
    return "failed" in wanted and told.end not in (None, EndReason.SUCCEEDED, EndReason.CANCELLED)


def _started(it: Workload, event: Started) -> str:
    waited = format_seconds(max(0, round(event.at - it.submitted_at)))
    if event.attempt == 1:
        return f"{it.title} has started, {waited} after it was submitted."
    return f"{it.title} goes on with attempt {event.attempt}."


def _ended(world: World, it: Workload, event: Ended) -> str:
    outcome = it.outcome
    more = _sentence(event.detail or ("" if outcome is None else outcome.detail))
    if event.end is EndReason.SUCCEEDED:
        took = format_seconds(max(0, round(event.at - it.submitted_at)))
        return f"{it.title} succeeded, {took} after it was submitted."
    return f"{it.title} is over: {event.end}. {more}{advice(world, it)}".rstrip()


def _sentence(text: str) -> str:
    """A detail as a sentence with a space behind it, or nothing."""
    text = text.strip().rstrip(".")
    return f"{text[0].upper()}{text[1:]}. " if text else ""
