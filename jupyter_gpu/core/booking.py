"""Reservations for later: accepted only where they can be kept, by what is known; and what time brings to them.

Once accepted, the planner keeps the promise as it keeps a hold (`core.calendar`). What such a reservation buys is the
time that was stated: one that begins late ends when it was to end all the same, for the next may follow at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import msgspec

from ..errors import Conflict, InvalidAsk, LimitExceeded
from ..model import (
    MOST_AHEAD_SECONDS,
    Ask,
    EndReason,
    Kind,
    Lease,
    State,
    WaitingReason,
    Window,
    Workload,
    World,
)
from ..units import format_seconds, format_when
from .calendar import Calendar, worse
from .events import Amended, Ended, Event, Granted
from .holds import calendar_of
from .in_the_way import in_the_way
from .lifecycle import evolve, paid_ms
from .promises import leaves, window_of
from .quota import Ledger

#: Of one owner: each of them is looked at in each step.
MOST_BOOKED = 20
#: For how many of those that wait in line a place is kept.
MOST_WAITING = 50

_IN_LINE = frozenset({WaitingReason.DEVICES, WaitingReason.HOLD, WaitingReason.CLEARING})
_replace = msgspec.structs.replace


def refuse_what_cannot_be_kept(world: World, it: Workload, now: float) -> None:
    """Raise what keeps a reservation for later from being promised, with what could be had instead."""
    _refuse_the_meaningless(world, it, now)
    window = window_of(it)
    before = _beside_those_who_wait(world, now)
    if _can_be_kept(world, before, window, now):
        _refuse_beyond_quota(world, it, before, now)
        return
    begin, end = format_when(window.from_at, now), format_when(window.until_at, now)
    why = in_the_way(world, _looked_at(world, now, before, inf), window, now) or "they are wanted together"
    raise Conflict(
        f"{_gpus(it.ask)} cannot be promised from {begin} to {end}: {why}",
        hint=_instead(world, it, before, now),
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


# -- whether it can be kept


def _beside_those_who_wait(world: World, now: float) -> list[Window]:
    """The reservations in line, each at the time at which it could begin: nobody passes them by naming a later time."""
    places: list[Window] = []
    waiting = (it for it in world.queued() if it.kind is Kind.RESERVATION and it.waiting in _IN_LINE)
    for it in waiting:
        if it.is_booked or it.ask.memory_bytes is not None:
            continue
        wanted = window_of(_replace(it, not_before=now))
        calendar = calendar_of(world, now, more=places)
        calendar.look()
        found = calendar.earliest(wanted, now)
        if found is not None:
            places.append(found)
        if len(places) == MOST_WAITING:
            break
    return places


def _looked_at(world: World, now: float, more: Iterable[Window], until: float) -> Calendar:
    calendar = calendar_of(world, now, more=more)
    calendar.look(until)
    return calendar


def _can_be_kept(world: World, before: Sequence[Window], window: Window, now: float) -> bool:
    """Whether it gets all that it wants in time, and nobody gets less than they do without it."""
    without = _looked_at(world, now, before, window.until_at)
    return not worse(without, _looked_at(world, now, [*before, window], window.until_at))


# -- what could be had instead


def _instead(world: World, it: Workload, before: Sequence[Window], now: float) -> str:
    window, parts = window_of(it), []
    calendar = _looked_at(world, now, before, inf)
    later = calendar.earliest(window, window.from_at)
    if later is not None and later.until_at <= now + MOST_AHEAD_SECONDS:
        parts.append(f"{_gpus(it.ask)} can be had at {format_when(later.from_at, now)}")
    fewer = next((n for n in range(it.ask.devices - 1, 0, -1) if _would_do(world, it, before, now, devices=n)), 0)
    if fewer and not it.ask.on:
        parts.append(f"{_gpus(_replace(it.ask, devices=fewer))} at the time that you named")
    classes = sorted({device.device_class for device in world.devices.values()} - {it.ask.device_class})
    others = [name for name in classes if it.ask.device_class and _would_do(world, it, before, now, device_class=name)]
    if others and not it.ask.on:
        parts.append(f"then there is room among {', '.join(others)}")
    return f"{'; '.join(parts)}." if parts else "Try another time, or a shorter one."


def _would_do(world: World, it: Workload, before: Sequence[Window], now: float, **words: object) -> bool:
    return _can_be_kept(world, before, window_of(_replace(it, ask=_replace(it.ask, **words))), now)


def _gpus(ask: Ask) -> str:
    kind = f" of class {ask.device_class}" if ask.device_class else ""
    return f"{ask.devices} GPU{'' if ask.devices == 1 else 's'}{kind}"


# -- quota at that time


def _refuse_beyond_quota(world: World, it: Workload, before: Sequence[Window], now: float) -> None:
    """Whether the rules let it have them then, counted with what is promised and what people hold then."""
    if not world.policy.bounds:
        return
    window = window_of(it)
    calendar = _looked_at(world, now, [*before, window], window.until_at)
    begin = it.not_before or now
    if _over_quota(world, calendar, it, None, now):
        raise LimitExceeded(
            f"what you and your team have reserved for {format_when(begin, now)} leaves too little of the quota for "
            f"{_gpus(it.ask)} more",
            hint="`jupyter gpu quota` shows the bounds. Ask for fewer, or for another time.",
        )
    for id_ in sorted(world.booked):
        other = world.workloads[id_]
        is_meanwhile = begin < (other.not_before or 0.0) < window.until_at
        if (
            is_meanwhile
            and not _over_quota(world, calendar, other, None, now)
            and (_over_quota(world, calendar, other, it, now))
        ):
            raise LimitExceeded(
                f"{other.title} is promised from {format_when(other.not_before, now)}, and would be beyond the quota "
                "beside this",
                hint="Ask for fewer, or for a time that is over by then.",
            )


def _over_quota(world: World, calendar: Calendar, it: Workload, also: Workload | None, now: float) -> bool:
    at = it.not_before or now
    then = World(world.policy)
    then.devices, then.usage = world.devices, world.usage.copy()
    for holder in world.holders():
        if min(leaves(world, holder, now)) > at:
            then.put_workload(holder)
    others = [world.workloads[id_] for id_ in sorted(world.booked) if id_ != it.id]
    for other in [*others, *([] if also is None else [also])]:
        _let_it_have_been(then, calendar, other, at)
    return Ledger(then, at).allowance(it).refusal(it.ask.devices) is not None


def _let_it_have_been(then: World, calendar: Calendar, it: Workload, at: float) -> None:
    """Count a reservation for later as if it had begun, where it has by then."""
    window = window_of(it)
    uuids = tuple(sorted(calendar.uuids_of(window)))
    if window.from_at > at or not uuids:
        return
    lease = Lease(devices=uuids, pool="", granted_at=window.from_at, ends_at=window.until_at)
    holds = _replace(it, state=State.ACTIVE, lease=lease, waiting=None)
    for uuid in uuids:
        device_class = then.devices[uuid].device_class
        then.charge(it, device_class=device_class, used=[(window.from_at, paid_ms(holds))])
    if window.until_at > at:
        then.put_workload(holds)


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
