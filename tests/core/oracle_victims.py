"""Who must yield, by brute force: every set of those who may be moved is tried. It shares no code with the planner.

The rules are written anew from docs/scheduling.md: who may be moved, in which order, and that of the sets that make an
ask fit the one is taken which leaves the last of them in the order where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from types import SimpleNamespace
from typing import Any

from jupyter_gpu.model import Kind, State, Workload, World

from . import oracle


def candidates(world: World, now: float) -> list[Workload]:
    """Who may be moved at all, in the order in which they yield."""
    found = [it for it in world.workloads.values() if it.state is State.ACTIVE and _may_be_moved(world, it, now)]
    return sorted(found, key=lambda it: _order(world, it, now))


def _may_be_moved(world: World, it: Workload, now: float) -> bool:
    if it.kind is Kind.RESERVATION:
        return it.lease.ends_at <= now
    queue = next(queue for queue in world.policy.queues if queue.name == it.queue)
    today = [at for at in it.preempted_at if at > now - 86_400]
    settled = now >= it.active_at + queue.protected_seconds
    return bool(it.lease.devices) and queue.preemptible and settled and len(today) < world.policy.preemptions_per_day


def _order(world: World, it: Workload, now: float) -> tuple[Any, ...]:
    kind = 0 if it.kind is Kind.RESERVATION else 1 if has_spent(world, it, now) else 2
    borrows = is_lent(world, it, ()) or (has_queue_shares(world) and _beyond(world, "queue", it.queue, ()))
    return (kind, it.priority, not borrows, (now - it.active_at) * len(it.lease.devices), -it.active_at, -it.id)


def has_right(world: World, asker: Workload, it: Workload, gone: Iterable[Workload], now: float) -> bool:
    """Whether it may be moved for the asker, once others have gone."""
    if it.kind is Kind.RESERVATION:
        return True
    if asker.priority >= it.priority and has_spent(world, it, now):
        return True
    is_own = not team_shares(world) or asker.team == it.team or is_lent(world, it, gone)
    if has_queue_shares(world) and asker.queue != it.queue:
        if not _beyond(world, "queue", it.queue, gone):
            return False
        if is_own and _stays_within(world, "queue", asker.queue, len_of(asker)):
            return True
    if asker.priority > it.priority:
        queue = next(queue for queue in world.policy.queues if queue.name == it.queue)
        return is_own and (queue.preempted_by is None or asker.queue in queue.preempted_by)
    if asker.priority < it.priority or asker.team == it.team:
        return False
    return is_lent(world, it, gone) and _stays_within(world, "team", asker.team, len_of(asker))


def len_of(asker: Workload) -> int:
    """How many devices it wants."""
    return asker.ask.devices


def team_shares(world: World) -> dict[str, int]:
    """What teams have of their own."""
    return {rule.team: rule.share_devices for rule in world.policy.quotas if rule.share_devices is not None}


def has_queue_shares(world: World) -> bool:
    """Whether any queue has something of its own."""
    return any(queue.share_devices is not None for queue in world.policy.queues)


def _own(world: World, kind: str, name: str) -> int:
    if kind == "team":
        return team_shares(world).get(name, 0)
    return next(queue.share_devices or 0 for queue in world.policy.queues if queue.name == name)


def _held(world: World, kind: str, name: str) -> list[Workload]:
    return [it for it in world.workloads.values() if it.lease is not None and getattr(it, kind) == name]


def _beyond(world: World, kind: str, name: str, gone: Iterable[Workload]) -> bool:
    left = {it.id for it in gone}
    stays = [it for it in _held(world, kind, name) if it.state is State.ACTIVE and it.id not in left]
    return sum(len(it.lease.devices) for it in stays) > _own(world, kind, name)


def _stays_within(world: World, kind: str, name: str, more: int) -> bool:
    held = sum(len(it.lease.devices) for it in _held(world, kind, name))
    return held + more <= _own(world, kind, name)


def is_lent(world: World, it: Workload, gone: Iterable[Workload]) -> bool:
    """Whether its team holds more than its own, or its owner more than a rule allows now."""
    if team_shares(world) and _beyond(world, "team", it.team, gone):
        return True
    left = {other.id for other in gone}
    for rule in world.policy.quotas:
        if rule.user in ("*", it.owner) and rule.devices is not None:
            mine = [w for w in _held(world, "owner", it.owner) if w.state is State.ACTIVE and w.id not in left]
            if sum(len(w.lease.devices) for w in mine) > rule.devices:
                return True
    return False


def has_spent(world: World, it: Workload, now: float) -> bool:
    """Whether the GPU-hours of its owner are used, by what ran before and what runs now."""
    for rule in world.policy.quotas:
        if rule.gpu_hours is not None and rule.user in ("*", it.owner) and it.kind is Kind.JOB:
            used = sum(sum(hours.values()) for key, hours in world.usage.items() if key[0] == it.owner) / 1000
            jobs = [w for w in _held(world, "owner", it.owner) if w.kind is Kind.JOB]
            used += sum((now - w.lease.granted_at) * len(w.lease.devices) for w in jobs)
            if used >= rule.gpu_hours * 3600:
                return True
    return False


def fits_without(world: World, asker: Workload, gone: Iterable[Workload]) -> bool:
    """Whether it fits once these have left."""
    left = {it.id for it in gone}
    rest = {id_: it for id_, it in world.workloads.items() if id_ not in left}
    there = SimpleNamespace(
        workloads=rest, devices=world.devices, readings=world.readings, uses=world.uses, policy=world.policy
    )
    return oracle.fits(there, asker)


def sets(world: World, asker: Workload, now: float) -> Iterator[tuple[Workload, ...]]:
    """Every set that may be moved one after another and makes it fit."""
    all_of_them = candidates(world, now)
    for count in range(len(all_of_them) + 1):
        for some in combinations(all_of_them, count):
            rights = (has_right(world, asker, it, some[:at], now) for at, it in enumerate(some))
            if all(rights) and fits_without(world, asker, some):
                yield some


def problems(world: World, asker: Workload, victims: list[int], now: float) -> list[str]:
    """What is wrong with whom the planner moved for an asker; `world` is as it was before."""
    found = list(sets(world, asker, now))
    chosen = [world.workloads[id_] for id_ in victims]
    if not chosen:
        return [f"nobody was moved, and {_named(some)} would do" for some in found[:1]]
    mine = set(victims)
    if not any({it.id for it in some} == mine for some in found):
        return [f"{_named(chosen)} may not be moved, or it does not fit without them"]
    smaller = [some for some in found if {it.id for it in some} < mine]
    if smaller:
        return [f"{_named(chosen)} were moved, and {_named(smaller[0])} would do"]
    best = first_choice(world, asker, now)
    if best is not None and {it.id for it in best} != mine:
        return [f"{_named(chosen)} were moved, and by the order it is {_named(best)}"]
    return []


def first_choice(world: World, asker: Workload, now: float) -> tuple[Workload, ...] | None:
    """Of the shortest run of those who come first and make it fit, what stays needed if the last may stay first.

    None where who leaves first shields what is needed: then any smallest set will do.
    """
    run: list[Workload] = []
    for it in candidates(world, now):
        if has_right(world, asker, it, (), now) and _is_of_use(world, asker, it):
            if not has_right(world, asker, it, run, now):
                return None
            run.append(it)
            if fits_without(world, asker, run):
                break
    *others, last = run
    some = [(*few, last) for count in range(len(run)) for few in combinations(others, count)]
    those = [few for few in some if fits_without(world, asker, few)]
    return min(those, key=lambda few: [it in few for it in reversed(others)], default=None)


def _is_of_use(world: World, asker: Workload, it: Workload) -> bool:
    return any(oracle.could_ever_serve(world, asker.ask, uuid) for uuid in it.lease.devices)


def _named(some: Iterable[Workload]) -> str:
    return ", ".join(it.title for it in some) or "nobody"
