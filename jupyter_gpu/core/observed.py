"""Rules for what was observed and for what time brings. They pass through `decide` like every command.

A late word of an earlier attempt or holder changes nothing and is no error: it returns no events.
"""

from __future__ import annotations

import msgspec

from ..model import (
    Condition,
    Device,
    EndReason,
    EvictionReason,
    Holder,
    Kind,
    Outcome,
    SeeAboveShare,
    SeeCondition,
    SeeDevices,
    SeeExited,
    SeeHolderGone,
    SeeProbe,
    SeeStarted,
    State,
    Tick,
    Workload,
    World,
)  # fmt: skip
from .lifecycle import (
    Amended,
    DeviceAppeared,
    DeviceMarked,
    Ended,
    Event,
    Evicted,
    Overdue,
    Released,
    Started,
)  # fmt: skip
from .verdict import verdict
from .victims import grace_seconds

#: Conditions that one clean reading ends.
ENDS_WHEN_CLEAR = frozenset({Condition.NOT_CLEAR, Condition.FOREIGN, Condition.UNREADABLE})
_SAME = msgspec.UNSET


def marked(
    device: Device,
    now: float,
    *,
    cordoned: bool | msgspec.UnsetType = _SAME,
    condition: Condition | msgspec.UnsetType | None = _SAME,
    detail: str = "",
    by: str = "",
) -> DeviceMarked:
    """The event that changes one mark of a device and keeps the others."""
    return DeviceMarked(
        at=now,
        device=device.uuid,
        cordoned=device.cordoned if cordoned is _SAME else bool(cordoned),
        condition=device.condition if isinstance(condition, msgspec.UnsetType) else condition,
        detail=device.condition_detail if condition is _SAME else detail,
        by=by,
    )


def evict_from(world: World, uuid: str, reason: EvictionReason, now: float, *, by: str = "") -> list[Event]:
    """Evict every holder of a device that no stronger reason evicts already."""
    return [
        evicted(world, it, reason, now, by=by)
        for it in world.holders_of(uuid)
        if it.outcome is None and reason.is_stronger_than(it.eviction)
    ]


def evicted(
    world: World, it: Workload, reason: EvictionReason, now: float, *, by: str = "", detail: str = ""
) -> Evicted:
    """An eviction with the grace that the workload is entitled to; a job has nothing left to save on a lost device."""
    grace = grace_seconds(world.policy, world.policy.queue(it.queue), it)
    if reason is EvictionReason.DEVICE_LOST and it.kind is Kind.JOB:
        grace = 0
    return Evicted(at=now, workload=it.id, reason=reason, yield_by=now + grace, by=by, detail=detail)


def see_devices(world: World, command: SeeDevices, now: float) -> list[Event]:
    """New devices appear, changed ones keep their marks, missing ones are lost with what ran there."""
    events: list[Event] = []
    seen = {device.uuid for device in command.devices}
    for device in command.devices:
        known = world.devices.get(device.uuid)
        if known is None:
            events.append(DeviceAppeared(at=now, device=device))
            continue
        is_back = known.condition is Condition.LOST
        kept = msgspec.structs.replace(
            device,
            cordoned=known.cordoned,
            condition=None if is_back else known.condition,
            condition_detail="" if is_back else known.condition_detail,
            condition_since=None if is_back else known.condition_since,
        )
        if kept != known:
            events.append(DeviceAppeared(at=now, device=kept))
    for device in world.devices.values():
        if device.pool == command.pool and device.uuid not in seen and device.condition is not Condition.LOST:
            events.append(marked(device, now, condition=Condition.LOST, detail="it is not in the inventory any more"))
            events += evict_from(world, device.uuid, EvictionReason.DEVICE_LOST, now)
    return events


def see_condition(world: World, command: SeeCondition, now: float) -> list[Event]:
    """Quarantine a device for a stated fault, or end a quarantine that a clean reading ends."""
    device = world.devices.get(command.device)
    if device is None or device.condition is command.condition:
        return []
    if command.condition is None and device.condition not in ENDS_WHEN_CLEAR:
        return []
    if device.condition not in (None, *ENDS_WHEN_CLEAR):
        return []  # a hardware fault outlives the lighter ones
    events: list[Event] = [marked(device, now, condition=command.condition, detail=command.detail)]
    if command.condition is Condition.LOST:
        events += evict_from(world, device.uuid, EvictionReason.DEVICE_LOST, now)
    return events


def see_above_share(world: World, command: SeeAboveShare, now: float) -> list[Event]:
    """Who stays above their part of a shared device is evicted, with the grace of any eviction."""
    it = world.workloads.get(command.workload)
    if it is None or it.state is not State.ACTIVE or it.outcome is not None:
        return []
    return [evicted(world, it, EvictionReason.ABOVE_SHARE, now, detail=command.detail)]


def see_started(world: World, command: SeeStarted, now: float) -> list[Event]:
    """The number of an attempt rises here, not at the grant."""
    it = world.workloads.get(command.workload)
    if it is None or it.kind is not Kind.JOB or it.state is not State.ACTIVE:
        return []
    if it.started_at is not None or command.attempt != it.attempt + 1:
        return []  # a late word, or one said twice
    return [Started(at=now, workload=it.id, attempt=command.attempt, holder=command.holder)]


def see_exited(world: World, command: SeeExited, now: float) -> list[Event]:
    """The outcome is fixed; what was seen clear in the same breath closes in the same step."""
    it = world.workloads.get(command.workload)
    if it is None or it.kind is not Kind.JOB or not it.is_live or it.outcome is not None:
        return []
    is_first_sight = it.started_at is None
    if command.attempt != it.attempt + is_first_sight:
        return []  # a late word of an earlier attempt
    events: list[Event] = []
    begun = command.attempt if command.started else None
    if is_first_sight and it.state is State.ACTIVE and command.started:
        # It was over before its start was told: the mark is on the disk, so the number rises all the same.
        holder = Holder(kind="attempt", name=f"attempt {command.attempt}", number=command.attempt)
        events.append(Started(at=now, workload=it.id, attempt=command.attempt, holder=holder))
        it = msgspec.structs.replace(it, attempt=command.attempt)
    events.append(Released(at=now, workload=it.id, outcome=command.outcome, attempt=begun))
    if command.clear:
        after = msgspec.structs.replace(it, outcome=command.outcome, released_at=now, state=State.YIELDING)
        events.append(verdict(world, after, now))
    return events


def see_holder_gone(world: World, command: SeeHolderGone, now: float) -> list[Event]:
    """A reservation whose holder is provably gone is given back."""
    it = world.workloads.get(command.workload)
    if it is None or it.kind is not Kind.RESERVATION or it.holder is None or it.holder.number != command.holder_number:
        return []
    if it.state is State.QUEUED:
        return [Ended(at=now, workload=it.id, end=EndReason.ABANDONED, detail=command.detail)]
    if not it.is_live or it.outcome is not None:
        return []
    outcome = Outcome(end=EndReason.RELEASED, detail=command.detail or f"{it.holder.name} is gone", ended_at=now)
    return [Released(at=now, workload=it.id, outcome=outcome)]


def see_probe(world: World, command: SeeProbe, now: float) -> list[Event]:
    """Clear devices close the workload. What is not clear in bounded time is quarantined, and closes it too."""
    it = world.workloads.get(command.workload)
    if it is None or it.state is not State.YIELDING or it.outcome is None:
        return []
    mine = it.lease.devices if it.lease is not None else ()
    unclear = [world.devices[uuid] for uuid in mine if uuid in command.unclear]
    may_still_clear = any(device.condition is not Condition.LOST for device in unclear)
    if may_still_clear and command.unclear_seconds < world.policy.clear_seconds:
        return []
    events: list[Event] = [
        marked(device, now, condition=Condition.NOT_CLEAR, detail=command.detail)
        for device in unclear
        if device.condition is None
    ]
    events.append(verdict(world, it, now))
    return events


def tick(world: World, command: Tick, now: float) -> list[Event]:  # noqa: ARG001 - one shape for all the rules
    """What time alone brings: limits of running and of waiting, no-shows, graces that are over."""
    events: list[Event] = []
    for it in world.holders():
        events += _of_live(world, it, now)
    limits = {queue.name: queue.wait_limit_seconds for queue in world.policy.queues}
    for it in world.queued():
        limit = None if it.lifted or it.paused else limits.get(it.queue)
        if limit is not None and now > max(it.submitted_at, it.not_before or 0.0) + limit:
            events.append(Amended(at=now, workload=it.id, lifted=True, by="wait limit"))
    return events


def _of_live(world: World, it: Workload, now: float) -> list[Event]:
    if it.lease is None or it.outcome is not None:
        return []
    if it.state is State.YIELDING:
        return _of_yielding(it, now)
    if it.lease.attach_by is not None and it.holder is None and now >= it.lease.attach_by:
        detail = "nobody attached to it in time"
        return [Evicted(at=now, workload=it.id, reason=EvictionReason.NO_SHOW, yield_by=now, detail=detail), *(
            [_given_up(it, now, EndReason.ABANDONED, detail)]
        )]  # fmt: skip
    if it.kind is Kind.JOB and it.lease.ends_at is not None and now >= it.lease.ends_at:
        return [evicted(world, it, EvictionReason.TIMED_OUT, now, detail="its time limit is over")]
    return []


def _of_yielding(it: Workload, now: float) -> list[Event]:
    if it.yield_by is None or now < it.yield_by or it.overdue:
        return []
    events: list[Event] = [Overdue(at=now, workload=it.id)]
    if it.kind is Kind.RESERVATION and (it.holder is None or it.holder.kind == "shell"):
        # A login shell is never ended: the lease is, and whatever still sits on the card keeps it from being clear.
        events.append(_given_up(it, now, EndReason.EXPIRED, "its time was over"))
    return events


def _given_up(it: Workload, now: float, end: EndReason, detail: str) -> Released:
    return Released(at=now, workload=it.id, outcome=Outcome(end=end, detail=detail, ended_at=now))
