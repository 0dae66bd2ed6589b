"""The document for one caller, redacted by who they are, with its `revision`: one picture for every face.

Only the kind of a wait is state. Place, who is ahead and the sentence are made here, on read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..model import (
    EACH,
    Caller,
    Device,
    DeviceView,
    Kind,
    Lease,
    Notice,
    QuotaView,
    State,
    Status,
    WaitingReason,
    Workload,
    WorkloadView,
    World,
)
from ..units import format_seconds, format_when
from .forecast import ahead_of, expected_end_at
from .outlook import expected_start_at
from .placement import in_order, is_well, suits
from .quota import HOUR_MS, Ledger, available_again_at, bind
from .victims import is_in_overtime

#: Others named in one sentence; the rest is counted.
MOST_NAMED = 3
#: Of a caller's own waiting work so many have their place and sentence in the document, and so many stand in it.
MOST_EXPLAINED = 20
MOST_SHOWN = 200


def may_see_names(world: World, it: Workload, caller: Caller) -> bool:
    """Whether a caller may know whose work this is."""
    return it.owner == caller.name or caller.is_operator or world.policy.names_are_public


def view(
    world: World,
    it: Workload,
    caller: Caller,
    now: float,
    *,
    alone: bool = False,
    ahead: int | None = None,
    explained: bool = False,
) -> WorkloadView:
    """One workload as a caller may see it. `alone` adds what only a look at this one needs: place, sentence, spec.

    `ahead` is its place where the caller of this function has walked the line already; `explained` adds the sentence.
    """
    is_mine = it.owner == caller.name
    ahead = ahead_of(world, it) if alone and it.state is State.QUEUED else ahead
    names = may_see_names(world, it, caller)
    may_look = is_mine or caller.is_operator
    return WorkloadView(
        **{name: getattr(it, name) for name in _SEEN_BY_ALL},
        **_of_lease(it.lease),
        owner=it.owner if names else None,
        team=it.team if names else None,
        name=it.name if names else None,
        reason=sentence(world, it, caller, now, ahead) if alone or explained else "",
        ahead=ahead,
        expected_start_at=None if ahead is None else expected_start_at(world, it, now, ahead),
        overtime=is_in_overtime(it, now),
        holder=it.holder if may_look else None,
        notice=notice_of(it),
        outcome=it.outcome if may_look else None,
        detail=it.detail if may_look else "",
        preemptions=len(it.preempted_at),
        is_mine=is_mine,
        command=it.spec.brief() if may_look and it.spec is not None else "",
        spec=it.spec if alone and may_look else None,
    )


#: What of a workload concerns everybody, under the same names in the view.
_SEEN_BY_ALL = (
    "id", "kind", "state", "queue", "ask", "submitted_at", "priority", "waiting", "paused", "lifted", "not_before",
    "back_off_until", "attempt", "started_at", "end", "ended_at", "failures",
)  # fmt: skip


def _of_lease(lease: Lease | None) -> dict[str, Any]:
    if lease is None:
        return {}
    return {name: getattr(lease, name) for name in ("devices", "granted_at", "ends_at", "attach_by")}


def notice_of(it: Workload) -> Notice | None:
    """The warning that a live workload stands under."""
    if it.eviction is None or it.yield_by is None or not it.is_live:
        return None
    return Notice(reason=it.eviction, yield_by=it.yield_by, detail=it.detail)


def device_view(world: World, device: Device, caller: Caller, now: float) -> DeviceView:
    """One device, its newest reading, and who holds it until when."""
    reading = world.readings.get(device.uuid)
    holders = world.holders_of(device.uuid)
    total = device.memory_bytes if reading is None else reading.memory_total_bytes or device.memory_bytes
    return DeviceView(
        uuid=device.uuid,
        index=device.index,
        number=device.number,
        name=device.name,
        device_class=device.device_class,
        pool=device.pool,
        simulated=device.simulated,
        cordoned=device.cordoned,
        shareable=device.shareable,
        card=None if device.card is None else device.card.uuid,
        shares_host_memory=device.shares_host_memory,
        condition=device.condition,
        condition_detail=device.condition_detail,
        memory_total_bytes=total,
        memory_used_bytes=None if reading is None else reading.memory_used_bytes,
        utilisation_percent=None if reading is None else reading.utilisation_percent,
        temperature_celsius=None if reading is None else reading.temperature_celsius,
        power_watts=None if reading is None else reading.power_watts,
        sampled_at=None if reading is None else reading.at,
        workloads=tuple(it.id for it in holders),
        holders=tuple(it.owner for it in holders if may_see_names(world, it, caller)),
        free_at=max((expected_end_at(world, it, now) for it in holders), default=None),
    )


def device_views(world: World, caller: Caller, now: float) -> tuple[DeviceView, ...]:
    """All devices, by node and index."""
    return tuple(device_view(world, device, caller, now) for device in in_order(world))


def status(
    world: World,
    caller: Caller,
    now: float,
    *,
    store_id: str,
    simulated: bool,
    warnings: tuple[str, ...] = (),
) -> Status:
    """The whole document: devices, the caller's own work, others' work on the devices, quota, lines."""
    line = line_of(world, caller, now)
    holders = (view(world, it, caller, now, explained=it.owner == caller.name) for it in world.holders())
    return Status(
        revision=world.revision,
        store_id=store_id,
        at=now,
        caller=caller.name,
        simulated=simulated,
        devices=device_views(world, caller, now),
        workloads=(*holders, *line.mine),
        more_of_mine=line.more_of_mine,
        quotas=quota_views(world, caller, now),
        waiting=line.waiting,
        warnings=warnings,
    )


class Line(NamedTuple):
    """The line as one caller sees it: how many wait in each queue, and their own with their places."""

    mine: tuple[WorkloadView, ...]
    more_of_mine: int
    waiting: dict[str, int]


def line_of(world: World, caller: Caller, now: float) -> Line:
    """Walk the line once, for all places of a caller's own work."""
    waiting: dict[str, int] = {queue.name: 0 for queue in world.policy.queues}
    mine: list[WorkloadView] = []
    count = 0
    for it in world.queued():
        ahead = waiting.get(it.queue, 0)
        waiting[it.queue] = ahead + 1
        if it.owner == caller.name:
            count += 1
            if count <= MOST_SHOWN:
                mine.append(view(world, it, caller, now, ahead=ahead, explained=count <= MOST_EXPLAINED))
    return Line(tuple(mine), count - len(mine), waiting)


def quota_views(world: World, caller: Caller, now: float) -> tuple[QuotaView, ...]:
    """Every bound that concerns the caller: what is held or used, what is allowed, when there is room again."""
    ledger = Ledger(world, now)
    team = world.policy.team_of(caller.name)
    found = []
    for number, rule in enumerate(world.policy.quotas):
        queues = [q.name for q in world.policy.queues] if rule.queue == EACH else [rule.queue or ""]
        classes = (
            sorted({d.device_class for d in world.devices.values()})
            if rule.device_class == EACH
            else [rule.device_class]
        )
        for queue in queues:
            for device_class in classes:
                binding = bind(number, rule, caller.name, team, queue, device_class)
                if binding is None:
                    continue
                found.append(
                    QuotaView(
                        rule=_named(
                            rule.title,
                            queue if rule.queue == EACH else "",
                            device_class if rule.device_class == EACH else "",
                        ),
                        devices_held=ledger.held(binding),
                        devices_allowed=rule.devices if rule.devices is not None else rule.share_devices,
                        used_ms=None if rule.gpu_hours is None else ledger.spent_ms(number, binding),
                        allowed_ms=None if rule.gpu_hours is None else rule.gpu_hours * HOUR_MS,
                        window_seconds=None if rule.gpu_hours is None else rule.window_seconds,
                        available_again_at=available_again_at(world, number, binding, now),
                    )
                )
    return tuple(found)


def _named(title: str, *parts: str | None) -> str:
    more = [part for part in parts if part]
    return f"{title} ({', '.join(more)})" if more else title


def sentence(world: World, it: Workload, caller: Caller, now: float, ahead: int | None) -> str:
    """What, why and what now, for people."""
    if it.state is State.QUEUED:
        return _why_waiting(world, it, caller, now, ahead or 0)
    if it.state is State.ENDED:
        return f"It ended: {it.end}" + (f" ({it.detail})." if it.detail else ".")
    if it.state is State.YIELDING:
        if it.outcome is not None:
            return f"It is over; its devices are being checked before anybody else gets them.{_left_text(world, it)}"
        return f"It must yield ({it.eviction}) by {format_when(it.yield_by, now)}." + (
            f" {it.detail}." if it.detail else ""
        )
    if is_in_overtime(it, now):
        return "Its time is over; it keeps the GPU until somebody waits for it. Save your work, or extend it."
    end = "" if it.lease is None or it.lease.ends_at is None else f" until {format_when(it.lease.ends_at, now)}"
    started = "" if it.kind is Kind.RESERVATION or it.started_at is not None else "; it is being started"
    return f"It holds {_devices_text(world, it)}{end}{started}."


def _left_text(world: World, it: Workload) -> str:
    """Like " GPU 0 still has process 4711 on it": what its kernel or command has left behind."""
    parts = []
    for uuid in it.lease.devices if it.lease is not None and it.lease.memory_bytes is None else ():
        reading = world.readings.get(uuid)
        if reading is not None and reading.processes and reading.at > (it.released_at or reading.at):
            pids = [str(pid) for pid, _ in reading.processes]
            more = f" and {len(pids) - MOST_NAMED} more" if len(pids) > MOST_NAMED else ""
            what = f"process{'es' if len(pids) > 1 else ''} {', '.join(pids[:MOST_NAMED])}{more}"
            parts.append(f" {world.devices[uuid].title} still has {what} on it.")
    return "".join(parts)


def _devices_text(world: World, it: Workload) -> str:
    uuids = it.lease.devices if it.lease is not None else ()
    return ", ".join(world.devices[uuid].title for uuid in uuids) or "no GPU"


def _why_waiting(world: World, it: Workload, caller: Caller, now: float, ahead: int) -> str:
    where = f"You are first in queue {it.queue}." if ahead == 0 else f"{ahead} ahead in queue {it.queue}."
    match it.waiting:
        case WaitingReason.PAUSED:
            detail = f" {it.detail}." if it.detail else ""
            return f"It is paused and keeps its place.{detail} Let it go with `jupyter gpu let-go {it.id}`."
        case WaitingReason.NOT_BEFORE:
            return f"It must not start before {format_when(it.not_before, now)}."
        case WaitingReason.BACK_OFF:
            wait = format_seconds(max(0, round((it.back_off_until or now) - now)))
            return f"Its last start failed ({it.detail}); the next try is in {wait}."
        case WaitingReason.QUOTA:
            return f"The quota is held already; it starts when some of it is given back. {where}"
        case WaitingReason.BUDGET:
            return f"The GPU-hours of the window are used. {_again_text(world, it, now)}{where}"
        case WaitingReason.HOLD:
            return f"The free GPUs are held for others for now. {where}"
        case WaitingReason.CLEARING:
            return f"A GPU is being made free for it. {where}"
        case WaitingReason.DRIVER:
            return f"No GPU can be read; `jupyter gpu doctor` says why. {where}"
        case WaitingReason.ENGINE:
            return f"There is no such GPU at the moment. {where}"
        case _:
            way_out = f"Leave the line with `jupyter gpu cancel {it.id}`."
            at = expected_start_at(world, it, now, ahead)
            expected = "" if at is None else f" Expected by about {format_when(at, now)}."
            what = f"{_how_many_are_free(world, it)}: {_who_holds(world, it, caller, now)}"
            return f"{what}. {where}{expected} {way_out}"


def _again_text(world: World, it: Workload, now: float) -> str:
    instants = []
    for number, rule in enumerate(world.policy.quotas):
        binding = bind(number, rule, it.owner, it.team, it.queue, it.ask.device_class)
        at = None if binding is None else available_again_at(world, number, binding, now)
        if at is not None:
            instants.append(at)
    return f"Some are available again at {format_when(max(instants), now)}. " if instants else ""


def _how_many_are_free(world: World, it: Workload) -> str:
    """Like "No GPU is free", or "1 of the 2 GPUs it wants is free"."""
    free = sum(1 for d in world.devices.values() if suits(d, it.ask) and is_well(d) and d.uuid not in world.leases)
    if free == 0:
        return "No GPU is free"
    return f"{free} of the {it.ask.devices} GPUs it wants {'is' if free == 1 else 'are'} free"


def _who_holds(world: World, it: Workload, caller: Caller, now: float) -> str:
    """Like "GPU 0 is reserved by ada until 14:05, GPU 1 runs job 12"; what one is short of when nobody holds it."""
    parts = []
    kin = [device for device in in_order(world) if suits(device, it.ask)]
    for device in kin:
        if device.condition is not None or device.cordoned:
            parts.append(f"{device.title} is {device.condition or 'cordoned'}")
        for other in world.holders_of(device.uuid):
            who = f" by {other.owner}" if may_see_names(world, other, caller) else ""
            until = f" until {format_when(other.lease.ends_at, now)}" if other.lease and other.lease.ends_at else ""
            verb = f"is reserved{who}" if other.kind is Kind.RESERVATION else f"runs job {other.id}"
            parts.append(f"{device.title} {verb}{until}")
    if not parts:
        return f"{it.ask.devices} are wanted together, and those before you in line come first"
    more = len(parts) - MOST_NAMED
    return ", ".join(parts[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
