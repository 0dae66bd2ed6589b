"""decide(world, command, now) -> events: the only door into the core, and the only place where a rule lives.

A command is decided on an overlay: first its own events (or an error, which leaves nothing behind), then a step of the
planner. Nothing is written to the world that was given; whoever commits the events evolves it with them. What people
ask is here, what was observed and what time brings is in `observed`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..errors import Conflict, InvalidAsk, LimitExceeded, NotAllowed, NotFound
from ..model import (
    Ask,
    Cancel,
    Command,
    Cordon,
    Device,
    Drain,
    EndReason,
    EvictionReason,
    Extend,
    Kind,
    LetGo,
    LoadPolicy,
    Move,
    Outcome,
    Pause,
    Policy,
    QueuePolicy,
    Release,
    Reprioritise,
    SeeCondition,
    SeeDevices,
    SeeExited,
    SeeHolderGone,
    SeeProbe,
    SeeStarted,
    State,
    Submit,
    Tick,
    Uncordon,
    WaitingReason,
    Workload,
    World,
)  # fmt: skip
from . import observed
from .lifecycle import (
    Amended,
    DeviceMarked,
    Ended,
    Event,
    Evicted,
    Moved,
    OfWorkload,
    PolicyLoaded,
    Released,
    Submitted,
    evolve,
)  # fmt: skip
from .placement import could_ever_serve
from .planner import may_extend, plan, rank_ms
from .quota import use_permille
from .victims import grace_seconds


def decide(world: World, command: Command, now: float) -> list[Event]:
    """What a command means for this world: the events that follow, or a GpuError that says why none do.

    `now` is Unix seconds. The world is not changed. Raises Conflict where the events would break an invariant.
    """
    overlay = world.copy()
    if isinstance(command, LoadPolicy):
        overlay.policy = command.policy
    own = _RULES[type(command)](overlay, command, now)
    for event in own:
        evolve(overlay, event)
    events = own if type(command) in _CHANGES_NO_PLACE else own + plan(overlay, now)
    touched = {event.workload for event in events if isinstance(event, OfWorkload)}
    touched.update(event.it.id for event in events if isinstance(event, Submitted))
    broken = overlay.check(touched)
    if broken:
        raise Conflict(
            f"refused, since it would break what must always hold: {'; '.join(broken)}",
            hint="This is a fault of the broker: please report it with `jupyter gpu events` of the workload.",
        )
    return events


def find(world: World, workload_id: int) -> Workload:
    """Look a workload up, or say that it is not there."""
    it = world.workloads.get(workload_id)
    if it is None:
        raise NotFound(
            f"there is no workload {workload_id}", hint="`jupyter gpu queue --all` lists what you may see."
        )
    return it


def _find_device(world: World, name: str) -> Device:
    """By UUID or by index, as people type it."""
    device = world.devices.get(name)
    if device is None:
        named = [d for d in world.devices.values() if name in (str(d.index), d.uuid)]
        device = named[0] if len(named) == 1 else None
    if device is None:
        raise NotFound(f"there is no GPU {name!r}", hint="`jupyter gpu devices` lists them with their UUIDs.")
    return device


def _submit(world: World, command: Submit, now: float) -> list[Event]:
    if command.idempotency_key is not None and (command.owner, command.idempotency_key) in world.keys:
        return []
    queue = _queue_for(world.policy, command)
    _admit(queue, command)
    ask = _limited(world, command, queue)
    if sum(1 for it in world.queued() if it.owner == command.owner) >= world.policy.most_queued:
        raise LimitExceeded(
            f"{command.owner} has {world.policy.most_queued} workloads waiting already, which is the most",
            hint="Wait until some have ended, or cancel some.",
        )
    it = Workload(
        id=world.last_id + 1,
        kind=command.kind,
        owner=command.owner,
        team=_team_for(world.policy, command),
        queue=queue.name,
        name=command.name,
        ask=ask,
        submitted_at=now,
        priority=queue.priority,
        paused=command.paused,
        not_before=command.not_before,
        waiting=WaitingReason.DEVICES,
        spec=command.spec,
        account=command.account or command.owner,
        holder=command.holder,
        idempotency_key=command.idempotency_key,
    )
    ranked = msgspec.structs.replace(it, rank_ms=rank_ms(it, world, use_permille(world, it.owner, now)))
    return [Submitted(at=now, it=ranked)]


def _queue_for(policy: Policy, command: Submit) -> QueuePolicy:
    if command.queue is None:
        return next(queue for queue in policy.queues if command.kind in queue.kinds)
    queue = policy.queue(command.queue)
    if queue is None:
        raise InvalidAsk(
            f"there is no queue {command.queue!r}",
            hint="Use one of: " + ", ".join(q.name for q in policy.queues) + ".",
        )
    return queue


def _admit(queue: QueuePolicy, command: Submit) -> None:
    if command.kind not in queue.kinds:
        raise InvalidAsk(
            f"the queue {queue.name} takes no {command.kind}s", hint="Leave the queue out for the usual one."
        )
    if (queue.users or queue.teams) and command.owner not in queue.users and command.team not in queue.teams:
        raise NotAllowed(
            f"{command.owner} may not enter the queue {queue.name}",
            hint="Ask an admin, or use another queue.",
        )
    if command.kind is Kind.JOB and (command.spec is None or not command.spec.argv):
        raise InvalidAsk(
            "the job has nothing to run", hint="Give a command: `jupyter gpu submit -- python train.py`."
        )


def _team_for(policy: Policy, command: Submit) -> str:
    """Fixed at submission: the team asked for, if the owner is in it, else their first."""
    if command.team is None or command.team == policy.team_of(command.owner):
        return policy.team_of(command.owner)
    if command.owner not in policy.teams.get(command.team, ()):
        raise NotAllowed(
            f"{command.owner} is not in the team {command.team!r}",
            hint="Leave the team out for your usual one.",
        )
    return command.team


def _limited(world: World, command: Submit, queue: QueuePolicy) -> Ask:
    """The ask with its defaults filled in, or the limit that it goes beyond."""
    ask = command.ask
    if ask.devices < 0:
        raise InvalidAsk(
            f"{ask.devices} devices cannot be asked for", hint="Ask for 1 or more, or 0 to see no GPU."
        )
    if ask.devices == 0 and command.kind is Kind.RESERVATION:
        raise InvalidAsk("a reservation of 0 devices reserves nothing", hint="Ask for 1 or more.")
    for word, value in (
        ("duration", ask.duration_seconds),
        ("memory", ask.memory_bytes),
        ("memory", ask.min_free_bytes),
    ):
        if value is not None and value <= 0:
            raise InvalidAsk(
                f"a {word} of {value} cannot be meant", hint="Give something above zero, like 2h or 20GiB."
            )
    if command.kind is Kind.RESERVATION and ask.duration_seconds is None:
        ask = msgspec.structs.replace(ask, duration_seconds=world.policy.reservation_seconds)
    if queue.longest_seconds is not None and (ask.duration_seconds or 0) > queue.longest_seconds:
        raise LimitExceeded(
            f"{ask.duration_seconds} s is longer than the {queue.longest_seconds} s that the queue {queue.name} allows",
            hint="Ask for less, or send the work to a queue for long jobs.",
        )
    most = world.policy.most_devices
    if most is not None and ask.devices > most:
        raise LimitExceeded(f"one ask may contain {most} devices, not {ask.devices}", hint="Ask for fewer.")
    _refuse_the_impossible(world, ask)
    return ask


def _refuse_the_impossible(world: World, ask: Ask) -> None:
    """What no device of this broker could ever serve must not wait for ever."""
    if ask.devices == 0:
        return
    if not world.devices:
        raise LimitExceeded(
            "this broker has no GPU",
            hint="`jupyter gpu doctor` says why. `make demo` shows everything on simulated ones.",
        )
    classes = sorted({device.device_class for device in world.devices.values()})
    if ask.device_class is not None and ask.device_class not in classes:
        raise InvalidAsk(
            f"there is no device class {ask.device_class!r} here",
            hint="Use one of: " + ", ".join(classes) + ".",
        )
    there = could_ever_serve(world, ask)
    if there < ask.devices:
        what = f" of class {ask.device_class}" if ask.device_class else ""
        what += " with that much memory" if ask.memory_bytes or ask.min_free_bytes else ""
        raise LimitExceeded(
            f"{ask.devices} devices{what} cannot be had: there {'is' if there == 1 else 'are'} {there}",
            hint="`jupyter gpu devices` shows what there is.",
        )


def _cancel(world: World, command: Cancel, now: float) -> list[Event]:
    it = find(world, command.workload)
    if it.state is State.ENDED:
        raise Conflict(f"{it.title} has ended already ({it.end})")
    if it.state is State.QUEUED:
        return [Ended(at=now, workload=it.id, end=EndReason.CANCELLED, detail=f"cancelled by {command.by}")]
    if it.kind is Kind.RESERVATION:
        return _release(world, Release(workload=it.id, by=command.by), now)
    if not EvictionReason.CANCELLED.is_stronger_than(it.eviction):
        return []
    grace = grace_seconds(world.policy.queue(it.queue), it, world.policy.reservation_grace_seconds)
    detail = f"cancelled by {command.by}"
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


def _release(world: World, command: Release, now: float) -> list[Event]:
    it = find(world, command.workload)
    if it.kind is Kind.JOB:
        raise Conflict(
            f"{it.title} is a job: it is cancelled, not released", hint=f"`jupyter gpu cancel {it.id}`"
        )
    if it.state is State.QUEUED:
        return [Ended(at=now, workload=it.id, end=EndReason.CANCELLED, detail=f"given up by {command.by}")]
    if it.state is State.ENDED or it.outcome is not None:
        return []
    if (
        command.holder_number is not None
        and it.holder is not None
        and command.holder_number != it.holder.number
    ):
        return []  # a late word of an earlier holder
    outcome = Outcome(
        end=EndReason.RELEASED, detail=command.detail or f"given back by {command.by}", ended_at=now
    )
    return [Released(at=now, workload=it.id, outcome=outcome, by=command.by)]


def _extend(world: World, command: Extend, now: float) -> list[Event]:
    it = find(world, command.workload)
    if command.seconds <= 0:
        raise InvalidAsk(
            f"an extension of {command.seconds} s cannot be meant", hint="Give a length like 30m."
        )
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


def _amend_queued(world: World, workload_id: int, verb: str) -> Workload:
    it = find(world, workload_id)
    if it.state is not State.QUEUED:
        raise Conflict(
            f"{it.title} is {it.state}; only what is queued can be {verb}", hint="Cancel it instead."
        )
    return it


def _pause(world: World, command: Pause, now: float) -> list[Event]:
    it = _amend_queued(world, command.workload, "paused")
    return [] if it.paused else [Amended(at=now, workload=it.id, by=command.by, paused=True)]


def _let_go(world: World, command: LetGo, now: float) -> list[Event]:
    it = _amend_queued(world, command.workload, "let go")
    return [Amended(at=now, workload=it.id, by=command.by, paused=False)] if it.paused else []


def _reprioritise(world: World, command: Reprioritise, now: float) -> list[Event]:
    it = _amend_queued(world, command.workload, "moved in the line")
    return [Amended(at=now, workload=it.id, by=command.by, priority=command.priority)]


def _move(world: World, command: Move, now: float) -> list[Event]:
    it = find(world, command.workload)
    if it.state is not State.ACTIVE:
        raise Conflict(f"{it.title} is {it.state}: there is no lease to move")
    number = 1 if it.holder is None else it.holder.number + 1
    return [Moved(at=now, workload=it.id, holder=msgspec.structs.replace(command.holder, number=number))]


def _cordon(world: World, command: Cordon, now: float) -> list[Event]:
    device = _find_device(world, command.device)
    return [] if device.cordoned else [observed.marked(device, now, cordoned=True, by=command.by)]


def _uncordon(world: World, command: Uncordon, now: float) -> list[Event]:
    device = _find_device(world, command.device)
    if not device.cordoned and device.condition is None:
        return []
    return [DeviceMarked(at=now, device=device.uuid, by=command.by)]


def _drain(world: World, command: Drain, now: float) -> list[Event]:
    device = _find_device(world, command.device)
    return [
        *_cordon(world, Cordon(device=device.uuid, by=command.by), now),
        *observed.evict_from(world, device.uuid, EvictionReason.DRAINED, now, by=command.by),
    ]


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
    return [PolicyLoaded(at=now, digest=command.policy.digest())]


_RULES: dict[type[Command], Callable[..., list[Event]]] = {
    Submit: _submit,
    Cancel: _cancel,
    Release: _release,
    Extend: _extend,
    Pause: _pause,
    LetGo: _let_go,
    Reprioritise: _reprioritise,
    Move: _move,
    Cordon: _cordon,
    Uncordon: _uncordon,
    Drain: _drain,
    LoadPolicy: _load_policy,
    Tick: observed.tick,
    SeeDevices: observed.see_devices,
    SeeCondition: observed.see_condition,
    SeeStarted: observed.see_started,
    SeeExited: observed.see_exited,
    SeeHolderGone: observed.see_holder_gone,
    SeeProbe: observed.see_probe,
}

#: Commands after which nothing can be placed that could not be placed before.
_CHANGES_NO_PLACE = frozenset({Move, SeeStarted})
