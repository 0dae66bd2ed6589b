"""Hold back, by brute force: what of a step delays whom. It shares no code with the planner.

For small worlds of whole devices in one line, without holds, quotas or shares. The expected ends are given, and taken
for the truth: from them it is told, by trying every instant and every set of devices, when the first that waits for a
kind of device could start; and who that is.
"""

from __future__ import annotations

from itertools import combinations

from jupyter_gpu.model import State, Workload, World

Busy = dict[str, float]


def busy_until(world: World, ends: dict[int, float]) -> Busy:
    """Of each device that is held: when it is expected to be given back."""
    return {uuid: ends[it.id] for it in world.workloads.values() if it.lease is not None for uuid in it.lease.devices}


def earliest(world: World, it: Workload, busy: Busy, now: float) -> tuple[float, list[frozenset[str]]] | None:
    """The first instant at which it could start, and every set of devices that would do then; None is never."""
    for at in sorted({now, *(end for end in busy.values() if end > now)}):
        free = [uuid for uuid in world.devices if serves(world, it, uuid) and busy.get(uuid, now) <= at]
        found = [frozenset(some) for some in combinations(free, it.ask.devices) if is_together(world, it, some)]
        if found:
            return at, found
    return None


def serves(world: World, it: Workload, uuid: str) -> bool:
    """Whether a device is well and of the kind."""
    device = world.devices[uuid]
    is_well = not device.cordoned and device.condition is None
    return is_well and it.ask.device_class in (None, device.device_class) and (not it.ask.on or uuid in it.ask.on)


def is_together(world: World, it: Workload, some: tuple[str, ...]) -> bool:
    """On one node; where the ask says so and no node has as many, whole nodes and a part of one more."""
    nodes = [world.devices[uuid].node for uuid in some]
    every = [
        device.node for uuid, device in world.devices.items() if it.ask.device_class in (None, device.device_class)
    ]
    size = max((every.count(node) for node in every), default=0)
    if it.ask.across_nodes and len(some) > size > 0:
        counts = sorted((nodes.count(node) for node in set(nodes)), reverse=True)
        whole, rest = divmod(len(some), size)
        return counts == [size] * whole + [rest] * (rest > 0)
    return len(set(nodes)) == 1


def in_line(world: World) -> list[Workload]:
    """Who waits for devices, in order."""
    waiting = [it for it in world.workloads.values() if it.state is State.QUEUED]
    return sorted(waiting, key=lambda it: (-it.priority, not it.lifted, it.rank_ms, it.id))


def kind(it: Workload) -> tuple[object, ...]:
    """Whose starts compete."""
    return (it.ask.device_class, it.ask.on)


def without_rival(world: World) -> list[Workload]:
    """Of the first of each kind those whom no other such ahead of them may delay, since they want other devices."""
    found, wanted = [], set[str]()
    for head in heads(world):
        mine = {uuid for uuid in world.devices if serves(world, head, uuid)}
        if not mine & wanted:
            found.append(head)
        wanted |= mine
    return found


def heads(world: World) -> list[Workload]:
    """The first that waits of each kind, save those that want several nodes and are not lifted yet."""
    found: dict[tuple[object, ...], Workload] = {}
    for it in in_line(world):
        if it.lifted or not it.ask.across_nodes:
            found.setdefault(kind(it), it)
    return list(found.values())


def delays(world: World, granted: list[int], ends: dict[int, float], now: float) -> list[str]:
    """Who of those that are the first of their kind starts later because of what was granted behind them."""
    found, busy = [], busy_until(world, ends)
    for head in without_rival(world):
        behind = [world.workloads[id_] for id_ in granted if stands_behind(world.workloads[id_], head)]
        taken = {uuid for it in behind for uuid in it.lease.devices}
        if head.lifted:
            found += less_is_free(world, head, busy, taken)
            continue
        before = earliest(world, head, {uuid: at for uuid, at in busy.items() if uuid not in taken}, now)
        if before is None or before[0] == now or not taken:
            continue  # it never fits, or is the line's to answer
        at, _ = before
        after = earliest(world, head, busy, now)
        if after is None or after[0] > at:
            found.append(f"{head.title} could start at {at}, and {[it.title for it in behind]} delay it: {after}")
    return found


def free_by_node(world: World, it: Workload, busy: Busy) -> dict[str, int]:
    """Node -> how many devices that serve it are free there, of nodes that have enough of them."""
    serving = [world.devices[uuid] for uuid in world.devices if serves(world, it, uuid)]
    nodes = [device.node for device in serving]
    return {
        node: sum(device.uuid not in busy for device in serving if device.node == node)
        for node in nodes
        if nodes.count(node) >= it.ask.devices
    }


def less_is_free(world: World, head: Workload, busy: Busy, taken: set[str]) -> list[str]:
    """Whether what started behind one past its limit made the most less that is free for it on one node."""
    before = free_by_node(world, head, {uuid: at for uuid, at in busy.items() if uuid not in taken})
    most = min(head.ask.devices, max(before.values(), default=0))
    if head.ask.across_nodes or max(free_by_node(world, head, busy).values(), default=0) >= most:
        return []
    return [f"{head.title} waited past its limit, and what had come free for it on one node was given to others"]


def stands_behind(it: Workload, head: Workload) -> bool:
    """Whether one that was granted something stood behind one that waits."""
    return (-it.priority, not it.lifted, it.rank_ms, it.id) > (-head.priority, not head.lifted, head.rank_ms, head.id)


def idles(world: World, ends: dict[int, float], lengths: dict[int, float], now: float) -> list[str]:
    """Who waits although some free devices would do, and nobody ahead could start later because of it."""
    found, busy, ahead = [], busy_until(world, ends), []
    firsts = {it.id for it in heads(world)}
    for it in in_line(world):
        free = earliest(world, it, busy, now)
        sets = free[1] if free is not None and free[0] == now else []
        for some in sets:
            then = {**busy, **dict.fromkeys(some, now + lengths[it.id])}
            if not any(_is_delayed(world, head, busy, then, some, now) for head in ahead):
                found.append(f"{it.title} could start on {sorted(some)} and delay nobody")
                break
        if it.id in firsts:
            ahead.append(it)
    return found


def _is_delayed(world: World, head: Workload, busy: Busy, then: Busy, some: frozenset[str], now: float) -> bool:  # noqa: PLR0917
    if head.lifted:
        free = free_by_node(world, head, busy)
        freest = min(free, key=lambda node: (-free[node], node), default=None)
        return head.ask.across_nodes or any(world.devices[uuid].node == freest for uuid in some)
    before, after = earliest(world, head, busy, now), earliest(world, head, then, now)
    if before is None:
        return False
    return after is None or after[0] > before[0]
