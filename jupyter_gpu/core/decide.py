"""decide(world, command, now) -> events: the only door into the core, and the only place where a rule lives.

First a command's own events (or an error, which leaves nothing behind), then what they mean for those who wait for what
has ended by them (`chains`), then a step of the planner. `decide` writes nothing to the world that it is given; `step`
is the same on a world that its caller can do without. What people ask is here, what was observed and what time brings
is in `observed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ..errors import Conflict, GpuError, InvalidAsk, LimitExceeded, NotFound
from ..model import (
    AddHold,
    AddRecurring,
    Cancel,
    Chain,
    Command,
    Condition,
    Cordon,
    Drain,
    EndReason,
    EvictionReason,
    Extend,
    Fire,
    FireNow,
    Forget,
    Kind,
    KnowWindows,
    LetGo,
    LoadPolicy,
    Move,
    Outcome,
    Pause,
    PauseRecurring,
    Release,
    RemoveHold,
    RemoveRecurring,
    Reprioritise,
    Rerank,
    SeeAboveShare,
    SeeCondition,
    SeeDevices,
    SeeExited,
    SeeHolderGone,
    SeeHung,
    SeeIdle,
    SeeProbe,
    SeeStarted,
    State,
    Submit,
    Tick,
    Uncordon,
    Workload,
    World,
)  # fmt: skip
from . import booking, observed, recurring, withholding
from .admission import LONGEST_SECONDS, submit
from .arrays import concerned
from .chains import Links, chained, follow, linked, refuse_too_many_links
from .conditions import after_word
from .events import (
    Amended,
    DeviceForgotten,
    DeviceMarked,
    Ended,
    Event,
    Evicted,
    Moved,
    OfWorkload,
    PolicyLoaded,
    Released,
    Requeued,
    Submitted,
)  # fmt: skip
from .holds import may_extend
from .lifecycle import evolve
from .planner import Memory, plan
from .verdict import verdict
from .victims import grace_seconds
from .which import device_named, devices_named


def decide(world: World, command: Command, now: float) -> list[Event]:
    """What a command means for this world: the events that follow, or a GpuError that says why none do.

    `now` is Unix seconds. The world is not changed. Raises Conflict where the events would break an invariant.
    """
    return step(world.copy(), command, now, before=world)


def step(
    world: World,
    command: Command,
    now: float,
    *,
    before: World | None = None,
    memory: Memory | None = None,
    places: bool = True,
) -> list[Event]:
    """The same, in place: the world is evolved by the events that are returned.

    A refusal raises before anything is changed, so the revision is what it was. Whatever is raised after that is a
    fault of ours and leaves a world that is of no use any more. `before` is an earlier state of it: what must always
    hold and was broken there already is not this command's doing, and to refuse it for that would keep the fault.
    `memory` is of the steps on this world before. Without `places` no step of the planner follows: of what happens at
    one instant only the last needs one.
    """
    revision = world.revision
    known_policy = world.policy
    if isinstance(command, LoadPolicy):
        world.policy = command.policy
    try:
        own = _RULES[type(command)](world, command, now)
    except GpuError:
        world.policy = known_policy
        raise
    made_room_for = _made_room_for(world, own)
    for event in own:
        evolve(world, event)
    own += observed.rerank_requeued(world, own, now)
    has_booked = bool(world.booked)
    own += booking.end_what_is_over(world, now) if has_booked else ()
    own += follow(world, own, now)
    if memory is not None:
        memory.note(world, revision, own)
    events = own
    if places and type(command) not in _CHANGES_NO_PLACE:
        came = {event.it.id for event in own if isinstance(event, Submitted)}
        turns_of = None if isinstance(command, Tick) else came
        events = own + plan(world, now, memory, made_room_for, turns_of)
    events += booking.end_when_promised(world, events, now) if has_booked else ()
    _refuse_what_breaks(world, events, before)
    return events


def _refuse_what_breaks(world: World, events: Iterable[Event], before: World | None) -> None:
    touched = {event.workload for event in events if isinstance(event, OfWorkload)}
    touched.update(event.it.id for event in events if isinstance(event, Submitted))
    broken = world.check(touched)
    if broken and before is not None:
        known = before.check(touched)
        broken = [problem for problem in broken if problem not in known]
    if broken:
        raise Conflict(
            f"refused, since it would break what must always hold: {'; '.join(broken)}",
            hint="This is a fault of the broker: please report it with `jupyter gpu events` of the workload.",
        )


def _made_room_for(world: World, events: Iterable[Event]) -> set[int]:
    """Whom those made room for who leave their devices by these events."""
    leave = (world.workloads.get(event.workload) for event in events if isinstance(event, Requeued | Ended))
    return {it.evicted_for for it in leave if it is not None and it.evicted_for is not None}


def find(world: World, workload_id: int) -> Workload:
    """Look a workload up, or say that it is not there."""
    it = world.workloads.get(workload_id)
    if it is None:
        raise NotFound(f"there is no workload {workload_id}", hint="`jupyter gpu queue --all` lists what you may see.")
    return it


def _meant(world: World, command: Cancel | Pause | LetGo | Chain) -> list[Workload]:
    """Whom a word concerns: the one that is named, or with it all of its array."""
    it = find(world, command.workload)
    return concerned(world, it, only_waiting=not isinstance(command, Cancel)) if command.array else [it]


def _cancel(world: World, command: Cancel, now: float) -> list[Event]:
    return [event for it in _meant(world, command) for event in _cancelled(world, it, command, now)]


def _cancelled(world: World, it: Workload, command: Cancel, now: float) -> list[Event]:
    if it.state is State.ENDED:
        raise Conflict(f"{it.title} has ended already ({it.end})")
    if it.state is State.QUEUED:
        return [Ended(at=now, workload=it.id, end=EndReason.CANCELLED, detail=_said("cancelled", command))]
    if it.kind is Kind.RESERVATION:
        detail = _said("given back", command)
        return _release(world, Release(workload=it.id, by=command.by, detail=detail), now)
    if not EvictionReason.CANCELLED.is_stronger_than(it.eviction):
        return []
    if it.outcome is not None and it.eviction is None and isinstance(verdict(world, it, now), Ended):
        return []  # it had ended by itself, and only its devices are not clear yet: that outcome stands
    grace = grace_seconds(world.policy, world.policy.queue(it.queue), it)
    detail = _said("cancelled", command)
    return [
        Evicted(
            at=now,
            workload=it.id,
            reason=EvictionReason.CANCELLED,
            yield_by=now + grace,
            by=command.by,
            detail=detail,
        )
    ]


def _said(verb: str, command: Cancel | Drain) -> str:
    """Like "cancelled by grace: node maintenance"."""
    return f"{verb} by {command.by}" + (f": {command.reason}" if command.reason else "")


def _release(world: World, command: Release, now: float) -> list[Event]:
    it = find(world, command.workload)
    if it.kind is Kind.JOB:
        raise Conflict(f"{it.title} is a job: it is cancelled, not released", hint=f"`jupyter gpu cancel {it.id}`")
    if it.state is State.ENDED or it.outcome is not None:
        return []
    if command.holder_number is not None and it.holder is not None and command.holder_number != it.holder.number:
        return []  # a late word of an earlier holder
    if it.state is State.QUEUED:
        return [Ended(at=now, workload=it.id, end=EndReason.CANCELLED, detail=f"given up by {command.by}")]
    outcome = Outcome(end=EndReason.RELEASED, detail=command.detail or f"given back by {command.by}", ended_at=now)
    return [Released(at=now, workload=it.id, outcome=outcome, by=command.by)]


def _extend(world: World, command: Extend, now: float) -> list[Event]:
    it = find(world, command.workload)
    if not 0 < command.seconds <= LONGEST_SECONDS:
        raise InvalidAsk(f"an extension of {command.seconds} s cannot be meant", hint="Give a length like 30m.")
    if it.state is not State.ACTIVE or it.lease is None:
        raise Conflict(f"{it.title} is {it.state} and holds nothing to extend")
    if it.lease.ends_at is None:
        raise Conflict(f"{it.title} has no end to extend")
    end = may_extend(world, it, command.seconds, now)
    if end <= it.lease.ends_at:
        raise LimitExceeded(
            f"{it.title} cannot be extended: its quota, the limit of {it.queue} or the next hold ends it as it stands",
            hint="Release it and reserve anew, or ask an admin.",
        )
    return [Amended(at=now, workload=it.id, by=command.by, ends_at=end)]


def _must_wait(it: Workload, verb: str) -> Workload:
    if it.state is not State.QUEUED:
        raise Conflict(f"{it.title} is {it.state}; only what is queued can be {verb}", hint="Cancel it instead.")
    return it


def _pause(world: World, command: Pause, now: float) -> list[Event]:
    its = [_must_wait(it, "paused") for it in _meant(world, command)]
    if any(it.is_booked for it in its):
        raise Conflict(f"{its[0].title} is for later, and begins at its time", hint="Cancel it, and reserve anew.")
    return [Amended(at=now, workload=it.id, by=command.by, paused=True) for it in its if not it.paused]


def _let_go(world: World, command: LetGo, now: float) -> list[Event]:
    its = [_must_wait(it, "let go") for it in _meant(world, command)]
    return [Amended(at=now, workload=it.id, by=command.by, paused=False) for it in its if it.paused]


def _reprioritise(world: World, command: Reprioritise, now: float) -> list[Event]:
    it = _must_wait(find(world, command.workload), "moved in the line")
    if command.priority == it.priority:
        return []
    return [Amended(at=now, workload=it.id, by=command.by, priority=command.priority)]


def _chain(world: World, command: Chain, now: float) -> list[Event]:
    its = [_must_wait(it, "made to come after others") for it in _meant(world, command)]
    links = linked(world, command.after, command.past)
    more = sum(len(links.unmet) - len(it.unmet) for it in its)
    refuse_too_many_links(world, its[0].owner, more)
    return [event for it in its for event in _chained(world, it, command, links, now)]


def _chained(world: World, it: Workload, command: Chain, links: Links, now: float) -> list[Event]:
    if it.kind is not Kind.JOB:
        raise InvalidAsk(f"{it.title} comes after nothing: only jobs do", hint="Reserve once that has ended.")
    chained(world, it, links)
    if (it.after, it.unmet) == (links.after, links.unmet):
        return []
    return [Amended(at=now, workload=it.id, by=command.by, after=links.after, unmet=links.unmet)]


def _move(world: World, command: Move, now: float) -> list[Event]:
    it = find(world, command.workload)
    if it.kind is Kind.JOB:
        raise Conflict(f"{it.title} is a job: its lease belongs to its attempts")
    if it.state not in (State.QUEUED, State.ACTIVE):
        raise Conflict(f"{it.title} is {it.state}: there is no lease to move")
    number = 1 if it.holder is None else it.holder.number + 1
    return [Moved(at=now, workload=it.id, holder=msgspec.structs.replace(command.holder, number=number))]


def _cordon(world: World, command: Cordon, now: float) -> list[Event]:
    devices = devices_named(world, command.device)
    return [
        observed.marked(it, now, cordon_reason=command.reason, by=command.by)
        for it in devices
        if not it.cordoned or command.reason not in ("", it.cordon_reason)
    ]


def _uncordon(world: World, command: Uncordon, now: float) -> list[Event]:
    events: list[Event] = []
    for device in devices_named(world, command.device):
        left = after_word(device, world.wrong.get(device.uuid, ()))
        condition, detail = (None, "") if left is None else (left.condition, left.detail)
        if device.cordoned or device.condition is not condition:
            mark = DeviceMarked(at=now, device=device.uuid, by=command.by, condition=condition, detail=detail)
            events.append(mark)
    return events


def _drain(world: World, command: Drain, now: float) -> list[Event]:
    uuids = {device.uuid for device in devices_named(world, command.device)}
    on_them = [it for it in world.holders() if it.lease is not None and not uuids.isdisjoint(it.lease.devices)]
    return [
        *_cordon(world, Cordon(device=command.device, by=command.by, reason=command.reason), now),
        *observed.evict_all(
            world, on_them, EvictionReason.DRAINED, now, by=command.by, detail=_said("drained", command)
        ),
    ]


def _forget(world: World, command: Forget, now: float) -> list[Event]:
    device = device_named(world, command.device, lost=True)
    if device.condition is not Condition.LOST:
        raise Conflict(
            f"{device.title} is there, and only a lost GPU can be forgotten",
            hint=f"`jupyter gpu cordon {device.number}` keeps new work from it.",
        )
    holders = world.holders_of(device.uuid)
    if holders:
        raise Conflict(
            f"{device.title} is lost, but {', '.join(it.title for it in holders)} still holds it",
            hint="Wait until that has ended, or cancel it.",
        )
    return [DeviceForgotten(at=now, device=device.uuid, by=command.by)]


def _load_policy(world: World, command: LoadPolicy, now: float) -> list[Event]:
    problems = command.policy.problems()
    if problems:
        raise InvalidAsk("the policy cannot be meant: " + "; ".join(problems), hint="The one in force stays.")
    missing = sorted({it.queue for it in world.workloads.values() if it.state is not State.ENDED} - {
        queue.name for queue in command.policy.queues
    })  # fmt: skip
    if missing:
        raise InvalidAsk(
            f"the policy lacks queues that hold work: {', '.join(missing)}",
            hint="Keep them until they are empty, with no users admitted.",
        )
    return [PolicyLoaded(at=now, digest=command.policy.digest()), *observed.share_anew(world, now)]


_RULES: dict[type[Command], Callable[..., list[Event]]] = {
    Submit: submit,
    Cancel: _cancel,
    Release: _release,
    Extend: _extend,
    Pause: _pause,
    LetGo: _let_go,
    Reprioritise: _reprioritise,
    Chain: _chain,
    Move: _move,
    Cordon: _cordon,
    Uncordon: _uncordon,
    Drain: _drain,
    Forget: _forget,
    LoadPolicy: _load_policy,
    AddRecurring: recurring.add,
    Fire: recurring.fire,
    FireNow: recurring.fire_now,
    PauseRecurring: recurring.pause,
    RemoveRecurring: recurring.remove,
    AddHold: withholding.add,
    RemoveHold: withholding.remove,
    KnowWindows: withholding.know,
    Tick: observed.tick,
    Rerank: observed.rerank,
    SeeDevices: observed.see_devices,
    SeeAboveShare: observed.see_above_share,
    SeeCondition: observed.see_condition,
    SeeStarted: observed.see_started,
    SeeExited: observed.see_exited,
    SeeHung: observed.see_hung,
    SeeIdle: observed.see_idle,
    SeeHolderGone: observed.see_holder_gone,
    SeeProbe: observed.see_probe,
}

#: Commands after which nothing can be placed that could not be placed before.
_CHANGES_NO_PLACE = frozenset({Move, SeeStarted})
