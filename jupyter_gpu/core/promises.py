"""Promises of devices: what each of them is, whom it is for, what it leaves room for beside it.

A promise is a window of a hold, or the time of a reservation for later. What they make of the devices of a world is in
`calendar`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from ..model import Condition, Device, HoldPolicy, Kind, State, Window, Workload, World
from .placement import suits
from .victims import grace_seconds, has_reached_the_cap, is_in_overtime


class Leaves(NamedTuple):
    """When a device is empty: if its holders end as they said, and if they are made to leave as soon as they may be."""

    itself: float
    made: float


NOW = Leaves(0.0, 0.0)
NEVER = Leaves(inf, inf)


def is_entitled(hold: HoldPolicy, owner: str, team: str) -> bool:
    """Whether the hold is for this owner or team; nobody is entitled to maintenance."""
    return owner in hold.users or team in hold.teams


def overlap(one: HoldPolicy, other: HoldPolicy) -> bool:
    """Whether two are at one time."""
    return one.from_at < other.until_at and other.from_at < one.until_at


def leaves(world: World, it: Workload, now: float) -> Leaves:
    """When a holder is gone, by what it stated and by what it may be made to do. What states no end has none."""
    if it.outcome is not None or it.lease is None:
        return Leaves(now, now)
    policy, queue = world.policy, world.policy.queue(it.queue)
    after = grace_seconds(policy, queue, it) + policy.kill_after_seconds
    if it.state is State.YIELDING:
        by = max(now, it.yield_by or now) + policy.kill_after_seconds
        return Leaves(by, by)
    if is_in_overtime(it, now):
        return Leaves(inf, now + after)
    return leaves_at(world, it, inf if it.lease.ends_at is None else it.lease.ends_at, now)


def leaves_at(world: World, it: Workload, ends_at: float, now: float) -> Leaves:
    """The same if its lease were to end then."""
    if it.kind is Kind.RESERVATION:
        return Leaves(ends_at, ends_at)
    policy, queue = world.policy, world.policy.queue(it.queue)
    after = grace_seconds(policy, queue, it) + policy.kill_after_seconds
    itself = ends_at + after
    if queue is None or not queue.preemptible or has_reached_the_cap(world, it, now):
        return Leaves(itself, itself)
    settled = now if it.active_at is None else it.active_at + queue.protected_seconds
    return Leaves(itself, min(itself, max(now, settled) + after))


def window_of(it: Workload) -> Window:
    """The time of a reservation for later."""
    begin = it.not_before or 0.0
    return Window(
        name=it.title,
        from_at=begin,
        until_at=begin + (it.ask.duration_seconds or 0),
        devices=it.ask.on if len(set(it.ask.on)) == it.ask.devices else (),
        count=it.ask.devices,
        device_class=it.ask.device_class,
        workload=it.id,
        ask=it.ask,
        owner=it.owner,
        team=it.team,
    )


def windows_of_holds(world: World, now: float) -> Iterator[Window]:
    """The windows of the holds that were put by a word, without those that are over or were given back."""
    for _, it in sorted(world.holds.items()):
        for span in it.windows:
            if span.until_at > now and span.from_at != it.given_back:
                yield Window(
                    name=it.name,
                    from_at=span.from_at,
                    until_at=span.until_at,
                    devices=it.devices,
                    count=it.count,
                    device_class=it.device_class,
                    users=it.users,
                    teams=it.teams,
                    hold=it.id,
                )


def booked(world: World, now: float) -> Iterator[Window]:
    """The reservations for later whose time is not over."""
    for id_ in sorted(world.booked):
        window = window_of(world.workloads[id_])
        if window.until_at > now:
            yield window


def promised_first(window: HoldPolicy) -> tuple[int, float]:
    """By what was promised first; what stands in the policy goes before all."""
    number = (window.hold or window.workload or 0) if isinstance(window, Window) else 0
    return (number, window.from_at)


def is_of_the_kind(device: Device, window: Window) -> bool:
    """Whether a device could serve a promise, whatever its state."""
    if window.devices:
        return device.uuid in window.devices
    if window.ask is not None:
        return suits(device, window.ask)
    return window.device_class in (None, device.device_class) and device.condition is not Condition.LOST


def excludes(one: HoldPolicy, other: HoldPolicy) -> bool:
    """Whether two cannot have one device. A reservation for later may stand in a hold that is for its owner."""
    return overlap(one, other) and not may_share(one, other)


def may_share(one: HoldPolicy, other: HoldPolicy) -> bool:
    """Whether two may have one device at one time: a reservation for later stands in a hold for its owner."""
    return _stands_in(one, other) or _stands_in(other, one)


def _stands_in(one: HoldPolicy, hold: HoldPolicy) -> bool:
    return isinstance(one, Window) and one.ask is not None and is_entitled(hold, one.owner, one.team)
