"""Rules for what was observed and for what time brings. They pass through `decide` like every command.

A late word of an earlier attempt or holder changes nothing and is no error: it returns no events.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model import (
    Condition,
    Device,
    EndReason,
    EvictionReason,
    Holder,
    Kind,
    Outcome,
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
    Tick,
    Workload,
    World,
)  # fmt: skip
from ..units import format_seconds
from .conditions import condition_after
from .events import (
    Amended,
    DeviceAppeared,
    DeviceForgotten,
    DeviceMarked,
    Ended,
    Event,
    Evicted,
    Overdue,
    Released,
    Requeued,
    Reranked,
    Started,
)  # fmt: skip
from .forecast import rank_ms
from .lifecycle import evolve
from .placement import is_mig, why_not_shared
from .recent_use import RecentUse
from .told import WORDS, above_its_part, what_it_used
from .verdict import verdict
from .victims import grace_seconds
from .withholding import see_windows

_SAME = msgspec.UNSET
#: A place in line that differs by less is the same.
_LEAST_CHANGE_MS = 60_000


def marked(
    device: Device,
    now: float,
    *,
    cordon_reason: str | msgspec.UnsetType = _SAME,
    condition: Condition | msgspec.UnsetType | None = _SAME,
    detail: str = "",
    by: str = "",
) -> DeviceMarked:
    """The event that changes one mark of a device and keeps the others; with `cordon_reason` it is cordoned by `by`."""
    is_cordon = cordon_reason is not _SAME
    return DeviceMarked(
        at=now,
        device=device.uuid,
        cordoned=device.cordoned or is_cordon,
        cordoned_by=by if is_cordon else device.cordoned_by,
        cordon_reason=device.cordon_reason if isinstance(cordon_reason, msgspec.UnsetType) else cordon_reason,
        condition=device.condition if isinstance(condition, msgspec.UnsetType) else condition,
        detail=device.condition_detail if condition is _SAME else detail,
        by=by,
    )


def evict_all(
    world: World, holders: Iterable[Workload], reason: EvictionReason, now: float, *, by: str = "", detail: str = ""
) -> list[Event]:
    """Evict every one of these that is not over, and that no stronger reason evicts already."""
    return [
        evicted(world, it, reason, now, by=by, detail=detail)
        for it in holders
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
    """New devices appear, changed ones keep their marks, missing ones are lost with what ran there.

    A device is known by its UUID: its index may have moved. One that was lost and is listed again stays lost until a
    reading of it is clean. A MIG device that is gone because its GPU was split anew is lost like any other; it never
    comes back under its UUID, so at the next look, once nobody holds it, it is forgotten.
    """
    events: list[Event] = []
    seen = {device.uuid for device in command.devices}
    for device in command.devices:
        known = world.devices.get(device.uuid)
        kept = device if known is None else msgspec.structs.replace(device, **_marks_of(known))
        kept = shared_by(world, kept)
        if kept != known:
            events.append(DeviceAppeared(at=now, device=kept))
    gone = [it for it in world.devices.values() if it.pool == command.pool and it.uuid not in seen]
    missing = [device for device in gone if device.condition is not Condition.LOST]
    events += [marked(device, now, condition=Condition.LOST, detail=_why_missing(device)) for device in missing]
    events += [DeviceForgotten(at=now, device=device.uuid) for device in gone if _is_no_more(world, command, device)]
    return events + _lose(world, missing, now)


def _is_no_more(world: World, command: SeeDevices, device: Device) -> bool:
    """Whether its GPU is there without it, as it was at an earlier look already: one look may have missed it."""
    if device.card is None or device.condition is not Condition.LOST or world.holders_of(device.uuid):
        return False
    there = {card.uuid for card in command.cards}
    # Of a GPU that is split no more the whole device is listed, which has the UUID that the card had.
    there |= {it.uuid if it.card is None else it.card.uuid for it in command.devices}
    return device.card.uuid in there


def _lose(world: World, devices: list[Device], now: float) -> list[Event]:
    """Evict everybody who holds one of these, once, however many of theirs are among them."""
    lost_to: dict[int, Device] = {}
    for device in devices:
        for it in world.holders_of(device.uuid):
            lost_to.setdefault(it.id, device)
    events: list[Event] = []
    for id_, device in lost_to.items():
        events += evict_all(
            world, [world.workloads[id_]], EvictionReason.DEVICE_LOST, now, detail=f"{device.title} is lost"
        )
    return events


def _marks_of(device: Device) -> dict[str, object]:
    names = ("cordoned", "cordoned_by", "cordon_reason", "condition", "condition_detail", "condition_since")
    return {name: getattr(device, name) for name in names}


def _why_missing(device: Device) -> str:
    if is_mig(device):
        return "it is not in the inventory any more: perhaps its GPU was split anew"
    return "it is not in the inventory any more"


def shared_by(world: World, device: Device) -> Device:
    """The device as the policy in force has it: with parts of its memory to lease, or only whole."""
    shareable = why_not_shared(device, world.policy) is None
    return device if device.shareable is shareable else msgspec.structs.replace(device, shareable=shareable)


def share_anew(world: World, now: float) -> list[Event]:
    """The devices that the policy in force shares otherwise than before. Leases stay as they are."""
    anew = ((device, shared_by(world, device)) for device in world.devices.values())
    return [DeviceAppeared(at=now, device=shared) for device, shared in anew if shared is not device]


def see_condition(world: World, command: SeeCondition, now: float) -> list[Event]:
    """Take a device out of use for a stated fault, or give it back; and move off it what must not stay."""
    device = world.devices.get(command.device)
    if device is None:
        return []
    condition = condition_after(device, command)
    if condition is device.condition:
        return []
    events: list[Event] = [marked(device, now, condition=condition, detail=command.detail)]
    if condition is Condition.LOST:
        events += _lose(world, [device], now)
    elif condition in world.policy.drains:
        detail = f"{device.title} {WORDS[condition]}" + (f" ({command.detail})" if command.detail else "")
        jobs = (it for it in world.holders_of(device.uuid) if it.kind is Kind.JOB)  # a person is told, and decides
        events += evict_all(world, jobs, EvictionReason.DRAINED, now, detail=detail)
    return events


def see_above_share(world: World, command: SeeAboveShare, now: float) -> list[Event]:
    """Who stays above their part of a shared device is evicted, with the grace of any eviction."""
    it = world.workloads.get(command.workload)
    if it is None or it.state is not State.ACTIVE or it.outcome is not None:
        return []
    if it.lease is None or it.lease.memory_bytes is None:
        return []
    above = above_its_part(world, it)
    said = command.detail or "it used more of a GPU's memory than its part"
    detail = said if above is None else what_it_used(above)
    return [evicted(world, it, EvictionReason.ABOVE_SHARE, now, detail=detail)]


def see_idle(world: World, command: SeeIdle, now: float) -> list[Event]:
    """A reservation that nobody uses is given back, after the warning that the watch has given."""
    it = world.workloads.get(command.workload)
    if it is None or it.kind is not Kind.RESERVATION or it.state is not State.ACTIVE or it.outcome is not None:
        return []
    return [evicted(world, it, EvictionReason.IDLE, now, detail=command.detail)]


def see_hung(world: World, command: SeeHung, now: float) -> list[Event]:
    """A job that stands still is ended, with the grace of any eviction: it may still save."""
    it = world.workloads.get(command.workload)
    if it is None or it.kind is not Kind.JOB or it.state is not State.ACTIVE or it.outcome is not None:
        return []
    if it.started_at is None or command.attempt != it.attempt:
        return []  # a late word of an earlier attempt
    return [evicted(world, it, EvictionReason.HUNG, now, detail=command.detail)]


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


def rerank(world: World, command: Rerank, now: float) -> list[Event]:  # noqa: ARG001 - one shape for all the rules
    """New ranks for those whose rank would be another by now, by more than it matters."""
    recent, ranks = RecentUse(world, now), dict[int, int]()
    for it in world.queued():
        rank = rank_ms(it, world, recent.permille(it.owner, it.team))
        if abs(rank - it.rank_ms) >= _LEAST_CHANGE_MS:
            ranks[it.id] = rank
    return [Reranked(at=now, ranks=ranks)] if ranks else []


def rerank_requeued(world: World, events: Iterable[Event], now: float) -> list[Event]:
    """Where jobs take turns, who comes back stands where its turn leaves it."""
    sliced = {queue.name for queue in world.policy.queues if queue.slice_factor is not None}
    back = [world.workloads[event.workload] for event in events if sliced and isinstance(event, Requeued)]
    its = [it for it in back if it.queue in sliced]
    if not its:
        return []
    recent = RecentUse(world, now)
    ranks = {it.id: rank_ms(it, world, recent.permille(it.owner, it.team)) for it in its}
    event = Reranked(at=now, ranks=ranks)
    evolve(world, event)
    return [event]


def tick(world: World, command: Tick, now: float) -> list[Event]:  # noqa: ARG001 - one shape for all the rules
    """What time alone brings: limits of running and of waiting, no-shows, graces that are over."""
    events: list[Event] = see_windows(world, now) if world.holds else []
    for it in world.holders():
        events += _of_live(world, it, now)
    limits = {queue.name: queue.wait_limit_seconds for queue in world.policy.queues}
    for it in world.queued():
        limit = None if it.lifted or it.paused or it.unmet else limits.get(it.queue)
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
        limit = it.lease.ends_at - it.lease.granted_at
        said = f"its time limit of {format_seconds(round(limit))} is over"
        return [evicted(world, it, EvictionReason.TIMED_OUT, now, detail=said)]
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
