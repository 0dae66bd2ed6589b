"""Who is before a workload in line, and when the first may expect its devices by a plain estimate, made on read.

`foresight` runs the planner forward and knows more, of all who wait; this is what can be said at once. It looks at what
holds the devices now: when each holder ends by its time limit, or can have yielded to this ask at the latest (its
protected time, its grace and the kill after it). Where one has no limit and need not yield, nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..model import Kind, State, WaitingReason, Workload, World
from .forecast import known_end_at
from .placement import avoided, has_room, in_order, is_well, suits
from .victims import grace_seconds, is_in_overtime, yields_to

_KNOWABLE = (WaitingReason.DEVICES, WaitingReason.CLEARING)
#: Others named in one sentence; the rest is counted.
MOST_NAMED = 3


class Expected(NamedTuple):
    """When one that waits is expected to start: a range of which the end may be open."""

    from_at: float
    until_at: float | None

    @property
    def middle(self) -> float | None:
        """One instant, for who wants no range."""
        return None if self.until_at is None else (self.from_at + self.until_at) / 2


class Place(NamedTuple):
    """Where one stands in its queue."""

    #: How many are before it; 0 is first.
    ahead: int
    #: The last few of those, in their order.
    before: tuple[int, ...]


def place_of(world: World, it: Workload) -> Place:
    """Where a queued workload stands: the line is walked up to it."""
    kin = []
    for other in world.queued():
        if other.id == it.id:
            break
        if other.queue == it.queue:
            kin.append(other.id)
    return place_among(kin, len(kin))


def place_among(kin: Sequence[int], ahead: int) -> Place:
    """The same of one of whose queue so many are before it, of those that wait in it in their order."""
    return Place(ahead, tuple(kin[max(0, ahead - MOST_NAMED) : ahead]))


def expected_start_at(world: World, it: Workload, now: float, ahead: int) -> float | None:
    """The instant by which the first in its queue may expect to start; None for all others, and where nobody knows."""
    if ahead > 0 or it.state is not State.QUEUED or it.waiting not in _KNOWABLE:
        return None
    kept_from = avoided(world, it, now)
    # A part of a device is there at the latest when all who share it have left.
    ends = [
        now
        if has_room(world, device, it.ask)
        else max((leaves_by(world, other, it, now) for other in world.holders_of(device.uuid)), default=now)
        for device in world.devices.values()
        if suits(device, it.ask) and is_well(device) and device.uuid not in kept_from
    ]
    at = sorted(ends)[it.ask.devices - 1] if 0 < it.ask.devices <= len(ends) else math.inf
    return at if math.isfinite(at) else None


def without_end(world: World, it: Workload, now: float) -> Workload | None:
    """The first of those on the devices that would serve it of whom nobody knows when they leave."""
    for device in in_order(world):
        if suits(device, it.ask) and is_well(device):
            for holder in world.holders_of(device.uuid):
                if math.isinf(leaves_by(world, holder, it, now)):
                    return holder
    return None


def leaves_by(world: World, holder: Workload, asker: Workload, now: float) -> float:
    """When a holder is expected to be gone, for this asker: its end, or earlier where it must yield to it.

    Infinite where it has no end and need not yield.
    """
    known = known_end_at(world, holder, now)
    end = math.inf if known is None else known
    policy = world.policy
    queue = policy.queue(holder.queue)
    grace = grace_seconds(policy, queue, holder) + policy.kill_after_seconds
    if is_in_overtime(holder, now):
        return min(end, now + grace)
    yields = holder.kind is Kind.JOB and queue is not None and queue.preemptible and asker.priority > holder.priority
    yields = yields and yields_to(queue, asker.queue)
    if not yields or queue is None or holder.state is not State.ACTIVE:
        return end
    return min(end, max(now, (holder.active_at or now) + queue.protected_seconds) + grace)
