"""The life of a workload: the one table, and `evolve`, the only place where a state changes.

Two rules of this file: everything that touches transitions lives here, and nothing here knows why an event happened.
The events are in `events`. `docs/states.svg` is drawn from TABLE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from ..errors import Conflict
from ..model import BUCKET_SECONDS, USAGE_SECONDS, Kind, Recurring, State, WaitingReason, Workload, World
from .events import (
    Amended,
    DeviceAppeared,
    DeviceForgotten,
    DeviceMarked,
    Ended,
    Event,
    Evicted,
    Explained,
    Granted,
    HoldChanged,
    HoldPut,
    HoldRemoved,
    Moved,
    OfWorkload,
    Overdue,
    RecurringChanged,
    RecurringPut,
    RecurringRemoved,
    Released,
    Requeued,
    Reranked,
    Started,
    Submitted,
)  # fmt: skip
from .grace import learnt

DAY_SECONDS = 86_400

_NEW = None
_Q, _A, _Y, _E = State.QUEUED, State.ACTIVE, State.YIELDING, State.ENDED

#: (state, event) -> state. What is not here does not happen.
TABLE: dict[tuple[State | None, type[Event]], State] = {
    (_NEW, Submitted): _Q,
    (_Q, Granted): _A,
    (_Q, Amended): _Q,
    (_Q, Moved): _Q,  # a waiting ask passes to a kernel that was started anew, or to a changed one
    (_Q, Evicted): _Y,  # only work already handed over to an engine that places it: no lease
    (_Q, Ended): _E,
    (_A, Started): _A,
    (_A, Amended): _A,
    (_A, Moved): _A,
    (_A, Released): _Y,
    (_A, Evicted): _Y,
    (_Y, Released): _Y,
    (_Y, Evicted): _Y,
    (_Y, Overdue): _Y,
    (_Y, Requeued): _Q,
    (_Y, Ended): _E,
}


def next_state(state: State | None, event: type[Event]) -> State:
    """Look up the table; Conflict where there is no row."""
    try:
        return TABLE[state, event]
    except KeyError:
        what = event.__name__.lower()
        raise Conflict(f"a workload that is {state or 'new'} cannot be {what}") from None


def evolve(world: World, event: Event) -> None:
    """Apply one event to the world, in place. Raises Conflict, and changes nothing, where the table has no row."""
    if isinstance(event, OfWorkload):
        before = world.workloads.get(event.workload)
        if before is None:
            raise Conflict(f"there is no workload {event.workload}")
        state = next_state(before.state, type(event))
        after = msgspec.structs.replace(_CHANGES[type(event)](before, event), state=state)
        _charge(world, before, after, event.at)
        world.put_workload(after)
    elif isinstance(event, Submitted):
        known = world.workloads.get(event.it.id)
        next_state(_NEW if known is None else known.state, Submitted)
        world.put_workload(event.it)
    elif isinstance(event, Explained | Reranked):
        _of_line(world, event)
    elif isinstance(event, RecurringPut):
        world.put_recurring(event.it)
    elif isinstance(event, RecurringChanged):
        world.put_recurring(_recurring_changed(world.recurring[event.recurring], event))
    elif isinstance(event, RecurringRemoved):
        world.drop_recurring(event.recurring)
    elif isinstance(event, HoldPut | HoldChanged | HoldRemoved):
        _of_holds(world, event)
    else:
        _of_devices(world, event)
    world.revision += 1


def fold(world: World, events: Iterable[Event]) -> World:
    """Apply events in order and give the world back: replay."""
    for event in events:
        evolve(world, event)
    return world


_replace = msgspec.structs.replace


def _of_line(world: World, event: Explained | Reranked) -> None:
    """All at once: who has left the line meanwhile is none of them any more."""
    queued = [it for it in map(world.workloads.__getitem__, event.workloads) if it.state is State.QUEUED]
    for it in queued:
        change = {"waiting": event.reasons[it.id]} if isinstance(event, Explained) else {"rank_ms": event.ranks[it.id]}
        world.put_workload(_replace(it, **change))


def _recurring_changed(it: Recurring, event: RecurringChanged) -> Recurring:
    return _replace(
        it,
        paused=event.paused,
        next_at=event.next_at,
        last_at=event.last_at,
        last_workload=event.last_workload,
        last_detail=event.last_detail,
        times=event.times,
    )


def _of_holds(world: World, event: HoldPut | HoldChanged | HoldRemoved) -> None:
    if isinstance(event, HoldPut):
        world.put_hold(event.it)
    elif isinstance(event, HoldRemoved):
        world.drop_hold(event.hold)
    else:
        it = world.holds[event.hold]
        if event.windows is not None:
            it = _replace(it, windows=event.windows, known_until=event.known_until)
        if event.what == "attended":
            it = _replace(it, attended=event.window)
        elif event.what == "given back":
            it = _replace(it, given_back=event.window)
        world.put_hold(it)


def _granted(it: Workload, event: Granted) -> Workload:
    return _replace(
        it, lease=event.lease, waiting=None, active_at=event.at, started_at=None, back_off_until=None, outcome=None,
        released_at=None,
    )  # fmt: skip


def _started(it: Workload, event: Started) -> Workload:
    return _replace(it, attempt=event.attempt, holder=event.holder, started_at=event.at)


def _amended(it: Workload, event: Amended) -> Workload:
    lease = it.lease
    if event.ends_at is not None and lease is not None:
        lease = _replace(lease, ends_at=event.ends_at)
    return _replace(
        it, lease=lease,
        paused=it.paused if event.paused is None else event.paused,
        priority=it.priority if event.priority is None else event.priority,
        lifted=it.lifted if event.lifted is None else event.lifted,
        after=it.after if event.after is None else event.after,
        unmet=it.unmet if event.unmet is None else event.unmet,
    )  # fmt: skip


def _moved(it: Workload, event: Moved) -> Workload:
    lease = None if it.lease is None else _replace(it.lease, attach_by=None)
    return _replace(it, holder=event.holder, lease=lease)


def _released(it: Workload, event: Released) -> Workload:
    if event.attempt is None:
        return _replace(it, outcome=event.outcome, released_at=event.at)
    # The end may be the first that is heard of an attempt; what is left of it is still this one's.
    started_at = event.at if it.started_at is None else it.started_at
    return _replace(it, outcome=event.outcome, released_at=event.at, attempt=event.attempt, started_at=started_at)


def _evicted(it: Workload, event: Evicted) -> Workload:
    yield_by = event.yield_by if it.yield_by is None else min(it.yield_by, event.yield_by)
    if it.state is State.QUEUED:
        it = _replace(it, outcome=None, released_at=None)  # of an attempt before
    return _replace(
        it, eviction=event.reason, evicted_at=it.evicted_at or event.at, evicted_for=event.evicted_for, waiting=None,
        yield_by=yield_by, detail=event.detail,
    )  # fmt: skip


def _overdue(it: Workload, event: Overdue) -> Workload:  # noqa: ARG001 - one shape for all the rows
    return _replace(it, overdue=True)


def _cleared(it: Workload) -> Workload:
    """Without its lease and what belonged to it; the outcome stays, it says how the last attempt went."""
    return _replace(
        it, lease=None, previous_devices=it.lease.devices if it.lease is not None else (), holder=None, active_at=None,
        started_at=None, eviction=None, evicted_at=None, evicted_for=None, yield_by=None, overdue=False,
    )  # fmt: skip


#: The cause of a requeue -> the count it adds to. Preemptions are free.
_COUNTED = {
    "failed": "failures",
    "timed-out": "timeouts",
    "launch-failed": "launch_failures",
    "lost": "losses",
    "device-lost": "losses",
}


def _requeued(it: Workload, event: Requeued) -> Workload:
    changes: dict[str, object] = {}
    if event.cause != "launch-failed":
        changes["launch_failures"] = 0  # it ran, so the next failure to start is a first one
    if event.cause in _COUNTED:
        changes[_COUNTED[event.cause]] = getattr(it, _COUNTED[event.cause]) + 1
    if event.cause == "failed":
        changes["last_failure"] = it.outcome
    if event.cause == "preempted":
        recent = tuple(at for at in it.preempted_at if at > event.at - DAY_SECONDS)
        changes["preempted_at"] = (*recent, event.at)
    if event.cause == "device-lost":
        changes["previous_devices"] = ()  # it goes elsewhere
    if event.avoid_until is not None:
        changes |= _avoiding(it, event.avoid_until, event.at)
    if it.started_at is not None and it.outcome is not None:
        changes["repeated_seconds"] = it.repeated_seconds + (it.outcome.unsaved_seconds or 0.0)
    if it.outcome is not None and it.outcome.progressed:
        changes["stalls"] = 0
    elif event.cause == "asked":
        changes["stalls"] = it.stalls + 1
    changes["learnt_grace"] = learnt(it)
    return _replace(
        _replace(_cleared(it), **changes), waiting=WaitingReason.DEVICES, back_off_until=event.back_off_until,
        paused=it.paused or event.paused, detail=event.detail, worked_seconds=_worked_seconds(it, event.at),
    )  # fmt: skip


def _worked_seconds(it: Workload, at: float) -> float:
    """How long its attempts held devices, with the one that is over now."""
    if it.lease is None:
        return it.worked_seconds
    end = at if it.released_at is None else it.released_at
    return it.worked_seconds + max(0.0, end - it.lease.granted_at)


def _avoiding(it: Workload, until: float, at: float) -> dict[str, object]:
    before = it.avoids if (it.avoids_until or at) > at else ()
    now = it.lease.devices if it.lease is not None and until > at else ()
    return {
        "previous_devices": (),
        "avoids": tuple(sorted({*before, *now})),
        "avoids_until": until if now else it.avoids_until if before else None,
    }


def _ended(it: Workload, event: Ended) -> Workload:
    return _replace(
        it, lease=None, previous_devices=it.previous_devices if it.lease is None else it.lease.devices, active_at=None,
        yield_by=None, waiting=None, paused=False, unmet=(), end=event.end, ended_at=event.at,
        detail=event.detail or it.detail, worked_seconds=_worked_seconds(it, event.at),
    )  # fmt: skip


_CHANGES: dict[type[Event], Callable[..., Workload]] = {
    Granted: _granted, Started: _started, Amended: _amended, Moved: _moved, Released: _released, Evicted: _evicted,
    Overdue: _overdue, Requeued: _requeued, Ended: _ended,
}  # fmt: skip


def _of_devices(world: World, event: Event) -> None:
    if isinstance(event, DeviceAppeared):
        world.put_device(event.device)
    elif isinstance(event, DeviceMarked):
        _mark(world, event)
    elif isinstance(event, DeviceForgotten):
        if world.holders_of(event.device):
            raise Conflict(f"device {event.device} is held and cannot be forgotten")
        world.drop_device(event.device)


def _mark(world: World, event: DeviceMarked) -> None:
    device = world.devices[event.device]
    since = None
    if event.condition is not None:
        since = device.condition_since if device.condition is event.condition else event.at
    world.put_device(
        _replace(
            device,
            cordoned=event.cordoned,
            cordoned_by=event.cordoned_by,
            cordon_reason=event.cordon_reason,
            condition=event.condition,
            condition_since=since,
            condition_detail=event.detail if event.condition is not None else "",
        ),
    )


def paid_ms(it: Workload) -> int:
    """What one device of a workload's lease counts for at this moment, in ms.

    A reservation is charged whole at the grant, so nobody reserves a week and pays for an hour of it late; at its end
    it gets the rest back or pays its overtime. A job pays as it ran, when its lease ends.
    """
    if it.lease is None or it.kind is Kind.JOB or it.lease.ends_at is None:
        return 0
    return _ms(it.lease.ends_at - it.lease.granted_at)


def _charge(world: World, before: Workload, after: Workload, at: float) -> None:
    """Bring the use up to date with a lease that was made, extended or given up."""
    lease = before.lease or after.lease
    if lease is None:
        return
    used_until = at if before.released_at is None else before.released_at
    if before.kind is Kind.JOB or lease.ends_at is None:
        hours = [] if after.lease is not None else list(_hours(lease.granted_at, used_until))
    else:
        due = paid_ms(after) if after.lease is not None else _ms(used_until - lease.granted_at)
        hours = [(lease.granted_at, due - paid_ms(before))]
    hours = [(hour_at, device_ms) for hour_at, device_ms in hours if device_ms]
    for device_class, count in Counter(world.devices[uuid].device_class for uuid in lease.devices if hours).items():
        world.charge(after, device_class=device_class, used=[(hour_at, count * ms) for hour_at, ms in hours])


def _hours(begin: float, end: float) -> Iterator[tuple[float, int]]:
    """A time of running cut at the full hours, so that a window counts of a long job only what lies within it."""
    begin = max(begin, end - USAGE_SECONDS)
    while begin < end:
        until = min(end, (begin // BUCKET_SECONDS + 1) * BUCKET_SECONDS)
        yield begin, _ms(until) - _ms(begin)
        begin = until


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
