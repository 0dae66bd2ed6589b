"""When the first in line may expect its devices: a plain estimate, made on read. A later issue makes it a range.

It looks at what holds the devices now: when each holder ends by its time limit, or can have yielded to this ask at the
latest (its protected time, its grace and the kill after it). Where one has no limit and need not yield, nobody knows.
"""

from __future__ import annotations

import math

from ..model import Kind, State, WaitingReason, Workload, World
from .forecast import known_end_at
from .placement import avoided, has_room, in_order, is_well, suits
from .victims import grace_seconds, is_in_overtime, yields_to

_KNOWABLE = (WaitingReason.DEVICES, WaitingReason.CLEARING)


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
