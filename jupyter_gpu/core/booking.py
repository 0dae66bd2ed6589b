"""Reservations for later: accepted only where they can be kept, by what is known; and what time brings to them.

Once accepted, the planner keeps the promise as it keeps a hold (`core.calendar`). What such a reservation buys is the
time that was stated: one that begins late ends when it was to end all the same, for the next may follow at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from ..errors import Conflict, InvalidAsk, LimitExceeded
from ..model import MOST_AHEAD_SECONDS, Ask, EndReason, Kind, WaitingReason, Window, Workload, World
from ..units import format_hours, format_seconds, format_when
from .calendar import Calendar, worse
from .events import Amended, Ended, Event, Granted
from .holds import calendar_of
from .in_the_way import in_the_way
from .lifecycle import evolve
from .promises import window_of
from .quota_then import refuse_beyond_quota

#: Of one owner: each of them is looked at in each step.
MOST_BOOKED = 20
#: For how many of those that wait in line a place is kept.
MOST_WAITING = 50
#: In how many other classes room is looked for.
MOST_CLASSES = 8

_IN_LINE = frozenset({WaitingReason.DEVICES, WaitingReason.HOLD, WaitingReason.CLEARING})
_replace = msgspec.structs.replace


def refuse_what_cannot_be_kept(world: World, it: Workload, now: float) -> None:
    """Raise what keeps a reservation for later from being promised, with what could be had instead."""
    _refuse_the_meaningless(world, it, now)
    _refuse_too_much_ahead(world, it)
    window, before = window_of(it), calendar_of(world, now)
    waiting = _beside_those_who_wait(world, before, now)
    before.look()
    after = _kept_with(before, waiting, window)
    if after is not None:
        refuse_beyond_quota(world, it, after, now)
        return
    begin, end = format_when(window.from_at, now), format_when(window.until_at, now)
    why = in_the_way(world, before, window, now) or "they are wanted together"
    raise Conflict(
        f"{_gpus(it.ask)} cannot be promised from {begin} to {end}: {why}", hint=_instead(world, it, before, now)
    )


def _refuse_the_meaningless(world: World, it: Workload, now: float) -> None:
    if it.ask.memory_bytes is not None:
        raise InvalidAsk(
            "a part of a GPU cannot be reserved for later",
            hint="Leave the memory out to reserve a whole one, or reserve the part when the time has come.",
        )
    if it.holder is not None:
        raise InvalidAsk(
            "a reservation for later has no holder yet", hint="Leave the holder out; who takes it attaches then."
        )
    if it.paused:
        raise InvalidAsk("a reservation for later is not paused: it begins at its time", hint="Leave that out.")
    if (it.not_before or 0.0) + (it.ask.duration_seconds or 0) > now + MOST_AHEAD_SECONDS:
        raise LimitExceeded(
            f"a reservation for later is over within {format_seconds(MOST_AHEAD_SECONDS)}",
            hint="Reserve nearer to the time.",
        )
    mine = sum(1 for id_ in world.booked if world.workloads[id_].owner == it.owner)
    if mine >= MOST_BOOKED:
        raise LimitExceeded(
            f"{it.owner} has {mine} reservations for later already, which is the most",
            hint="Cancel one that is not needed any more.",
        )


def _refuse_too_much_ahead(world: World, it: Workload) -> None:
    """A chain of reservations for later would else keep devices from all others for weeks."""
    most = world.policy.most_booked_gpu_hours
    if most is None:
        return
    theirs = (world.workloads[id_] for id_ in world.booked)
    seconds = sum(_device_seconds(other.ask) for other in theirs if other.owner == it.owner)
    more = _device_seconds(it.ask)
    if seconds + more > most * 3600:
        raise LimitExceeded(
            f"{it.owner} has {format_hours(seconds * 1000)} GPU-hours reserved for later already; with the "
            f"{format_hours(more * 1000)} of this it would be above {most}, which is the most",
            hint="Reserve fewer GPUs, or for a shorter time; or cancel one that is not needed any more.",
        )


def _device_seconds(ask: Ask) -> int:
    """What a reservation for later comes to."""
    return ask.devices * (ask.duration_seconds or 0)


# -- who waits, and what could be had instead


def _beside_those_who_wait(world: World, calendar: Calendar, now: float) -> list[Window]:
    """The reservations in line, each at the time at which it could begin: nobody passes them by naming a later time.

    Each is kept in the calendar from then on. Each is tried once, and takes no promise from anybody.
    """
    places: list[Window] = []
    waiting = (it for it in world.queued() if it.kind is Kind.RESERVATION and it.waiting in _IN_LINE)
    for it in islice((it for it in waiting if not it.is_booked and it.ask.memory_bytes is None), MOST_WAITING):
        calendar.look()
        found = calendar.earliest(window_of(_replace(it, not_before=now)), now)
        if found is not None:
            places.append(found)
            calendar.keep(found)
    return places


def _kept_with(before: Calendar, waiting: list[Window], window: Window) -> Calendar | None:
    """The promises with one more, where that takes nothing from anybody.

    Where there is room for it beside all, others keep what is chosen for them; else all are chosen for anew, once.
    """
    if before.room_for(window):
        after = before.beside([window])
        after.look(window.until_at)
        if not worse(before, after):
            return after
    without, after = before.beside(waiting), before.beside([*waiting, window])
    without.look(window.until_at)
    after.look(window.until_at)
    return None if worse(without, after) else after


def _instead(world: World, it: Workload, before: Calendar, now: float) -> str:
    """By what is free beside all that is promised: what others might be moved for is not looked for."""
    window, parts = window_of(it), []
    later = before.earliest(window, window.from_at)
    if later is not None and later.until_at <= now + MOST_AHEAD_SECONDS:
        parts.append(f"{_gpus(it.ask)} can be had at {format_when(later.from_at, now)}")
    if it.ask.on:
        return _told(parts)
    fewer = min(it.ask.devices - 1, max(before.most_beside(_with(it, devices=n)) for n in (1, it.ask.devices)))
    if fewer:
        parts.append(f"{_gpus(_replace(it.ask, devices=fewer))} at the time that you named")
    if it.ask.device_class:
        classes = sorted({device.device_class for device in world.devices.values()} - {it.ask.device_class})
        others = [name for name in classes[:MOST_CLASSES] if before.room_for(_with(it, device_class=name))]
        parts += [f"then there is room among {', '.join(others)}"] if others else []
        if len(classes) > MOST_CLASSES:
            parts.append(f"of {len(classes)} other classes {MOST_CLASSES} were looked at")
    return _told(parts)


def _told(parts: list[str]) -> str:
    return f"{'; '.join(parts)}." if parts else "Try another time, or a shorter one."


def _with(it: Workload, **words: object) -> Window:
    return window_of(_replace(it, ask=_replace(it.ask, **words)))


def _gpus(ask: Ask) -> str:
    kind = f" of class {ask.device_class}" if ask.device_class else ""
    return f"{ask.devices} GPU{'' if ask.devices == 1 else 's'}{kind}"


# -- what time brings


def end_what_is_over(world: World, now: float) -> list[Event]:
    """Reservations whose whole time passed before they could be granted: in place, as the step that calls it does."""
    events: list[Event] = []
    for id_ in sorted(world.booked):
        it = world.workloads[id_]
        if window_of(it).until_at <= now:
            why = "no broker was there" if it.waiting is WaitingReason.NOT_BEFORE else f"it waited for {it.waiting}"
            detail = f"its time was over before it could begin: {why}"
            events.append(Ended(at=now, workload=id_, end=EndReason.EXPIRED, detail=detail))
    for event in events:
        evolve(world, event)
    return events


def end_when_promised(world: World, events: Iterable[Event], now: float) -> list[Event]:
    """Of reservations for later that were granted: they end when they were to end, also where they began late."""
    found: list[Event] = []
    for event in events:
        it = world.workloads.get(event.workload) if isinstance(event, Granted) else None
        if it is None or it.kind is not Kind.RESERVATION or it.not_before is None or it.lease is None:
            continue
        end = window_of(it).until_at
        if it.lease.ends_at is not None and it.lease.ends_at > end:
            found.append(Amended(at=now, workload=it.id, ends_at=end, detail="it began late, and ends as promised"))
    for event in found:
        evolve(world, event)
    return found
