"""The document for one caller, redacted by who they are, with its `revision`: one picture for every face.

Only the kind of a wait is state. Place, who is ahead and the sentence are made here, on read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

import msgspec

from ..model import (
    EACH,
    AlertView,
    Caller,
    Card,
    IsolationView,
    Kind,
    Lease,
    Notice,
    Profile,
    ProfileView,
    QuotaRule,
    QuotaView,
    State,
    Status,
    Workload,
    WorkloadView,
    World,
)
from .devices_view import card_views, device_view, device_views
from .holds_view import hold_views
from .moment import Moment
from .names import may_see_names
from .outlook import Expected, Place, expected_start_at, place_of
from .placement import suits
from .quota import HOUR_MS, Binding, available_again_at, bind
from .sentences import sentence, visible, why
from .victims import grace_seconds, is_in_overtime

__all__ = [
    "MOST_EXPLAINED",
    "MOST_SHOWN",
    "Line",
    "device_view",
    "device_views",
    "line_of",
    "may_see_names",
    "notice_of",
    "quota_views",
    "status",
    "view",
    "view_of",
]

#: Of a caller's own waiting work so many have their place and sentence in the document, and so many stand in it.
MOST_EXPLAINED = 20
MOST_SHOWN = 200


def view(
    world: World,
    it: Workload,
    caller: Caller,
    now: float,
    *,
    alone: bool = False,
    place: Place | None = None,
    explained: bool = False,
    expected: Expected | None = None,
) -> WorkloadView:
    """One workload as a caller may see it. `alone` adds what only a look at this one needs: place, sentence, spec.

    `place` is where it stands if the caller of this function has walked the line already, `expected` when it starts if
    that was looked for; `explained` adds the sentence.
    """
    is_mine = it.owner == caller.name
    place = place_of(world, it) if alone and it.state is State.QUEUED else place
    expected = None if it.state is not State.QUEUED else expected
    names = may_see_names(world, it, caller)
    may_look = is_mine or caller.is_operator
    expected_at = _expected_at(world, it, now, place, expected)
    waits_alone = alone and it.state is State.QUEUED
    return WorkloadView(
        **{name: getattr(it, name) for name in _SEEN_BY_ALL},
        **_of_lease(it.lease),
        owner=it.owner if names else None,
        team=it.team if names else None,
        name=it.name if names else None,
        reason=sentence(world, it, caller, now, place, expected) if alone or explained else "",
        why=why(world, it, caller, now, says_when=expected_at is None) if waits_alone else "",
        ahead=None if place is None else place.ahead,
        before=() if place is None else visible(world, place.before, caller),
        expected_start_at=expected_at,
        expected_start_from=None if expected is None else expected.from_at,
        expected_start_until=None if expected is None else expected.until_at,
        overtime=is_in_overtime(it, now),
        holder=it.holder if may_look else None,
        notice=notice_of(it, with_detail=may_look),
        outcome=it.outcome if may_look else None,
        detail=it.detail if may_look else "",
        preemptions=len(it.preempted_at),
        is_mine=is_mine,
        **(_of_owner(world, it) if may_look else _of_stranger(it) if names else {}),
        command=it.spec.brief() if may_look and it.spec is not None else "",
        spec=it.spec if alone and may_look else None,
        **(_of_grace(world, it) if alone and may_look and it.kind is Kind.JOB else {}),
    )


def _expected_at(
    world: World, it: Workload, now: float, place: Place | None, expected: Expected | None
) -> float | None:
    """One instant: the middle of the range, else the plain estimate for the first in line."""
    if expected is not None:
        return expected.middle
    return None if place is None else expected_start_at(world, it, now, place.ahead)


def view_of(moment: Moment, it: Workload, caller: Caller, now: float, *, explained: bool = False) -> WorkloadView:
    """One of many workloads. Others' looks the same to all who may see as much of it, so it is made once for them."""
    if it.owner == caller.name:
        return view(moment.world, it, caller, now, explained=explained)
    key = (it.id, caller.is_operator, caller.sees_others)
    known = moment.others.get(key)
    if known is None:
        known = moment.others[key] = view(moment.world, it, caller, moment.now)
    return known


#: What of a workload concerns everybody, under the same names in the view.
_SEEN_BY_ALL = (
    "id", "kind", "state", "queue", "ask", "submitted_at", "priority", "waiting", "paused", "lifted", "rank_ms",
    "not_before", "back_off_until", "attempt", "started_at", "end", "ended_at", "failures",
)  # fmt: skip


def _of_owner(world: World, it: Workload) -> dict[str, Any]:
    """What of it is for its owner and for operators."""
    fields = {name: getattr(it, name) for name in ("after", "unmet", "member", "recurring", "repeated_seconds")}
    return {**fields, "progress": world.progress.get(it.id)}


def _of_grace(world: World, it: Workload) -> dict[str, Any]:
    grace = grace_seconds(world.policy, world.policy.queue(it.queue), it)
    return {"grace_seconds": grace, "learnt_grace": it.learnt_grace}


def _of_stranger(it: Workload) -> dict[str, Any]:
    """Which jobs are one array may be seen with their names; what tells them from each other is their owner's."""
    return {} if it.member is None else {"member": msgspec.structs.replace(it.member, parameters={})}


def _of_lease(lease: Lease | None) -> dict[str, Any]:
    if lease is None:
        return {}
    return {name: getattr(lease, name) for name in ("devices", "granted_at", "ends_at", "attach_by")}


def notice_of(it: Workload, *, with_detail: bool = True) -> Notice | None:
    """The warning that a live workload stands under; the words about it are not everybody's."""
    if it.eviction is None or it.yield_by is None or not it.is_live:
        return None
    return Notice(reason=it.eviction, yield_by=it.yield_by, detail=it.detail if with_detail else "")


def status(
    world: World,
    caller: Caller,
    now: float,
    *,
    store_id: str,
    simulated: bool,
    warnings: tuple[str, ...] = (),
    cards: tuple[Card, ...] = (),
    alerts: tuple[AlertView, ...] = (),
    isolation: IsolationView | None = None,
    moment: Moment | None = None,
) -> Status:
    """The whole document: devices, the caller's own work, others' work on the devices, quota, lines.

    `cards` are the GPUs in MIG mode as the inventory has them: also those without MIG devices. `moment` is of this
    world, and not long ago, where several callers are told.
    """
    moment = moment or Moment(world, now)
    line = line_of(moment, caller, now)
    holders = (view_of(moment, it, caller, now, explained=True) for it in world.holders())
    return Status(
        revision=world.revision,
        store_id=store_id,
        at=now,
        caller=caller.name,
        simulated=simulated,
        devices=device_views(world, caller, now),
        workloads=(*holders, *line.mine),
        more_of_mine=line.more_of_mine,
        quotas=quota_views(moment, caller),
        waiting=line.waiting,
        warnings=warnings,
        cards=card_views(world, cards),
        alerts=alerts,
        isolation=isolation,
        profiles=profile_views(world, caller),
        holds=hold_views(moment, caller),
        coming=coming(moment, caller, now),
        teams=world.policy.teams_of(caller.name, caller.groups),
        teams_at=caller.groups_at,
    )


def coming(moment: Moment, caller: Caller, now: float) -> tuple[WorkloadView, ...]:
    """Others' reservations for later, in the order of their times."""
    its = (moment.world.workloads[id_] for id_ in sorted(moment.world.booked))
    others = [it for it in its if it.owner != caller.name]
    return tuple(view_of(moment, it, caller, now) for it in sorted(others, key=lambda it: (it.not_before or 0, it.id)))


def profile_views(world: World, caller: Caller) -> tuple[ProfileView, ...]:
    """The profiles that the caller may use, in the admin's order."""
    teams = world.policy.teams_of(caller.name, caller.groups)
    return tuple(profile_view(it) for it in world.policy.profiles_for(caller.name, teams))


def profile_view(it: Profile) -> ProfileView:
    """A profile without whose it is."""
    return ProfileView(
        name=it.name,
        title=it.title or it.name,
        description=it.description,
        devices=it.devices,
        device_class=it.device_class,
        memory_bytes=it.memory_bytes,
        duration_seconds=it.duration_seconds,
        queue=it.queue,
        for_servers=it.for_servers,
        for_kernels=it.for_kernels,
    )


class Line(NamedTuple):
    """The line as one caller sees it: how many wait in each queue, and their own with their places."""

    mine: tuple[WorkloadView, ...]
    more_of_mine: int
    waiting: dict[str, int]


def line_of(moment: Moment, caller: Caller, now: float) -> Line:
    """The places of a caller's own work, as far as they are told."""
    waiting = moment.waiting
    own = waiting.by_owner.get(caller.name, ())
    mine = tuple(
        view(
            moment.world,
            it,
            caller,
            now,
            place=waiting.place_of(it, ahead),
            explained=number < MOST_EXPLAINED,
            expected=moment.expected(it),
        )
        for number, (it, ahead) in enumerate(own[:MOST_SHOWN])
    )
    return Line(mine, len(own) - len(mine), waiting.counts)


def quota_views(moment: Moment, caller: Caller) -> tuple[QuotaView, ...]:
    """Every bound that concerns the caller: what is held or used, what is allowed, when there is room again."""
    world = moment.world
    teams = world.policy.teams_of(caller.name, caller.groups)
    there = sorted({it.device_class for it in world.devices.values()})
    found: list[QuotaView] = []
    for number, rule in enumerate(world.policy.bounds):
        queues = [it.name for it in world.policy.queues] if rule.queue == EACH else [rule.queue or ""]
        classes = there if rule.device_class == EACH else [rule.device_class]
        found += _quota_views(moment, number, rule, caller.name, product(queues, classes, teams))
    return tuple(found)


def quota_views_of(moment: Moment, it: Workload) -> tuple[QuotaView, ...]:
    """The bounds that one workload counts for: by the classes of what it holds, or of all that would serve it."""
    devices = moment.world.devices
    if it.ask.devices == 0:
        return ()
    its = [device for device in devices.values() if suits(device, it.ask)]
    if it.lease is not None:
        its = [devices[uuid] for uuid in it.lease.devices]
    classes: set[str | None] = {device.device_class for device in its}
    classes = classes or {it.ask.device_class}
    uses = [(it.queue, device_class, it.team) for device_class in sorted(classes, key=str)]
    rules = enumerate(moment.world.policy.bounds)
    return tuple(found for number, rule in rules for found in _quota_views(moment, number, rule, it.owner, uses))


def _quota_views(
    moment: Moment, number: int, rule: QuotaRule, owner: str, uses: Iterable[tuple[str, str | None, str]]
) -> Iterator[QuotaView]:
    """What a rule binds of somebody's uses (queue, class, team), each once, with a title that tells it from others."""
    world, ledger = moment.world, moment.ledger
    for binding, title in _bindings(number, rule, owner, uses):
        yield QuotaView(
            rule=title,
            devices_held=ledger.held(binding),
            devices_allowed=rule.devices if rule.devices is not None else rule.share_devices,
            memory_held_bytes=None if rule.memory_bytes is None else ledger.held_bytes(binding),
            memory_allowed_bytes=rule.memory_bytes,
            used_ms=None if rule.gpu_hours is None else ledger.spent_ms(number, binding),
            allowed_ms=None if rule.gpu_hours is None else rule.gpu_hours * HOUR_MS,
            window_seconds=None if rule.gpu_hours is None else rule.window_seconds,
            available_again_at=available_again_at(world, number, binding, moment.now, ledger),
        )


def _bindings(
    number: int, rule: QuotaRule, owner: str, uses: Iterable[tuple[str, str | None, str]]
) -> Iterator[tuple[Binding, str]]:
    seen = set()
    for queue, device_class, team in uses:
        binding = bind(number, rule, owner, team, queue, device_class)
        if binding is None or binding in seen:
            continue
        seen.add(binding)
        yield binding, _as_theirs(rule, team, queue, device_class)


def _as_theirs(rule: QuotaRule, team: str, queue: str, device_class: str | None) -> str:
    """How a rule reads to whom it binds: "you, queue training", "your team vision"; `title` is what it is to all.

    What is only guaranteed is called so: it bounds nobody, and more of it may be held than it says.
    """
    is_share = rule.share_devices is not None and rule.devices is rule.gpu_hours is rule.memory_bytes is None
    parts = (
        "you" if rule.user is not None else "",
        f"{'guaranteed to ' if is_share else ''}your team {team}" if rule.team is not None else "",
        f"queue {queue}" if rule.queue is not None else "",
        f"class {device_class}" if rule.device_class is not None else "",
    )
    return ", ".join(filter(None, parts)) or "everybody"
