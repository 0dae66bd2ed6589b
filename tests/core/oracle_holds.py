"""An oracle for promises of devices, by brute force: can all of them still be kept? It shares no code with the planner.

Only for small worlds: it tries every choice of devices for every promise.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from jupyter_gpu.model import Kind, State, Workload, World

NEVER = float("inf")


class Promise(NamedTuple):
    """So many devices from one instant to another, for whom."""

    name: str
    begin: float
    end: float
    count: int
    device_class: str | None
    named: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    #: Of a reservation for later: its workload, and whose it is. All its devices are of one node.
    workload: int | None = None
    owner: str = ""
    team: str = ""


def promises(world: World, now: float) -> list[Promise]:
    """All that was promised and is not over."""
    found = []
    for hold in world.holds.values():
        for span in hold.windows:
            if span.until_at > now and span.from_at != hold.given_back:
                count = len(hold.devices) or hold.count
                found.append(
                    Promise(
                        hold.name, span.from_at, span.until_at, count, hold.device_class, hold.devices, hold.users,
                        hold.teams,
                    )
                )  # fmt: skip
    for it in world.workloads.values():
        if it.state is State.QUEUED and it.kind is Kind.RESERVATION and it.not_before is not None:
            end = it.not_before + it.ask.duration_seconds
            if end > now:
                found.append(
                    Promise(
                        it.title, it.not_before, end, it.ask.devices, it.ask.device_class, it.ask.on, workload=it.id,
                        owner=it.owner, team=it.team,
                    )
                )  # fmt: skip
    return sorted(found, key=lambda it: (it.begin, it.name))


def gone_by(world: World, it: Workload, now: float) -> float:
    """When a holder that keeps to what it stated has left at the latest, if it is made to leave as soon as may be."""
    policy = world.policy
    if it.outcome is not None:
        return now
    kill = policy.kill_after_seconds
    if it.state is State.YIELDING:
        return max(now, it.yield_by) + kill
    if it.kind is Kind.RESERVATION:
        over = it.lease.ends_at <= now
        return now + policy.reservation_grace_seconds + kill if over else it.lease.ends_at
    queue = next(queue for queue in world.policy.queues if queue.name == it.queue)
    after = queue.grace_seconds + kill
    ends = NEVER if it.lease.ends_at is None else it.lease.ends_at + after
    recent = [at for at in it.preempted_at if at > now - 86_400]
    if not queue.preemptible or len(recent) >= policy.preemptions_per_day:
        return ends
    return min(ends, max(now, it.active_at + queue.protected_seconds) + after)


def would_be_gone_by(world: World, it: Workload, now: float) -> float:
    """The same of one that waits, were it to start now."""
    queue = next(queue for queue in world.policy.queues if queue.name == it.queue)
    if it.kind is Kind.RESERVATION:
        return now + it.ask.duration_seconds
    after = queue.grace_seconds + world.policy.kill_after_seconds
    ends = NEVER if it.ask.duration_seconds is None else now + it.ask.duration_seconds + after
    recent = [at for at in it.preempted_at if at > now - 86_400]
    if not queue.preemptible or len(recent) >= world.policy.preemptions_per_day:
        return ends
    return min(ends, now + queue.protected_seconds + after)


def entitled(one: Promise, owner: str, team: str) -> bool:
    """Whether a promise is for this owner or team."""
    return owner in one.users or team in one.teams


def can_all_be_kept(
    world: World, now: float, *, wanted: Iterable[Promise] | None = None, also: tuple[Workload, str] | None = None
) -> bool:
    """Whether some choice keeps every promise, if all leave when they must; `also` starts now on a device."""
    busy: dict[str, list[tuple[float, Workload]]] = {uuid: [] for uuid in world.devices}
    for it in world.holders():
        for uuid in it.lease.devices:
            busy[uuid].append((gone_by(world, it, now), it))
    if also is not None:
        busy[also[1]].append((would_be_gone_by(world, also[0], now), also[0]))
    return _place(world, now, list(promises(world, now) if wanted is None else wanted), {}, busy)


def _place(world: World, now: float, left: list[Promise], placed: dict[Promise, tuple[str, ...]], busy) -> bool:
    if not left:
        return True
    one, rest = left[0], left[1:]
    fit = [uuid for uuid in world.devices if _serves(world, now, one, uuid, placed, busy)]
    for chosen in combinations(fit, one.count):
        nodes = {world.devices[uuid].node for uuid in chosen}
        if one.workload is not None and len(nodes) > 1:
            continue
        if _place(world, now, rest, {**placed, one: chosen}, busy):
            return True
    return False


def stands_in(one: Promise, other: Promise) -> bool:
    """Whether one is a reservation for later of somebody for whom the other, a hold, is."""
    booked, hold = (one, other) if one.workload is not None else (other, one)
    return booked.workload is not None and hold.workload is None and entitled(hold, booked.owner, booked.team)


def _serves(world: World, now: float, one: Promise, uuid: str, placed, busy) -> bool:  # noqa: PLR0917
    device = world.devices[uuid]
    if one.named and uuid not in one.named:
        return False
    if one.device_class not in (None, device.device_class):
        return False
    if not one.named and (device.cordoned or device.condition is not None):
        return False
    for gone, it in busy[uuid]:
        theirs = one.workload is None and entitled(one, it.owner, it.team)
        if not theirs and gone > max(one.begin, now):
            return False
    for other, uuids in placed.items():
        if uuid in uuids and one.begin < other.end and other.begin < one.end and not stands_in(one, other):
            return False
    return True


def idle_without_need(world: World, it: Workload, now: float) -> str | None:
    """A free device on which a workload that wants one could start although it waits, with every promise kept."""
    if it.ask.devices != 1 or not can_all_be_kept(world, now):
        return None
    for uuid, device in world.devices.items():
        if uuid in world.leases or device.cordoned or device.condition is not None:
            continue
        if it.ask.device_class not in (None, device.device_class) or (it.ask.on and uuid not in it.ask.on):
            continue
        within = [
            one
            for one in promises(world, now)
            if one.named == (uuid,) and one.begin <= now and not entitled(one, it.owner, it.team)
        ]
        if not within and can_all_be_kept(world, now, also=(it, uuid)):
            return uuid
    return None
