"""An oracle for "fits" and for what must never happen, by brute force. It shares no code with the planner.

Only for small worlds: it tries every subset of devices.
"""

from __future__ import annotations

from itertools import combinations

from jupyter_gpu.model import Ask, Dependency, EndReason, Kind, State, WaitingReason, Workload, World

EARLIER = {WaitingReason.PAUSED, WaitingReason.DEPENDENCY, WaitingReason.NOT_BEFORE, WaitingReason.BACK_OFF}
BOUND = {WaitingReason.QUOTA, WaitingReason.BUDGET}


def could_serve(world: World, it: Workload, uuid: str) -> bool:
    """Whether one device has room for one part of an ask at this moment."""
    device, ask = world.devices[uuid], it.ask
    if device.cordoned or device.condition is not None:
        return False
    if ask.pool not in (None, device.pool) or ask.device_class not in (None, device.device_class):
        return False
    if (ask.on and uuid not in ask.on) or (ask.devices > 1 and device.card is not None):
        return False
    held = [w for w in world.workloads.values() if w.lease is not None and uuid in w.lease.devices]
    if ask.memory_bytes is None:
        free = free_by_nvml(world, uuid)
        enough = ask.min_free_bytes is None or free is None or free >= ask.min_free_bytes
        big_enough = device.memory_bytes is None or device.memory_bytes >= (ask.min_free_bytes or 0)
        return not held and enough and big_enough
    if not is_shared(world, uuid) or any(w.lease.memory_bytes is None for w in held):
        return False
    return max(ask.memory_bytes, ask.min_free_bytes or 0) <= left_of(world, uuid, held)


def is_shared(world: World, uuid: str) -> bool:
    """Whether the policy of now, and the device, let parts of it be leased."""
    device = world.devices[uuid]
    if device.memory_bytes is None or device.exclusive or device.shares_host_memory:
        return False
    return any(
        (rule.device is None or rule.device == uuid)
        and (rule.device_class is None or rule.device_class == device.device_class)
        for rule in world.policy.sharing
    )


def free_by_nvml(world: World, uuid: str) -> int | None:
    """What a reading says is free."""
    reading = world.readings.get(uuid)
    if reading is None or None in (reading.memory_total_bytes, reading.memory_used_bytes):
        return None
    return max(0, reading.memory_total_bytes - reading.memory_used_bytes - (reading.memory_reserved_bytes or 0))


def left_of(world: World, uuid: str, held: list[Workload]) -> int:
    """What of a shared device could be leased: all but what somebody has, or may come to use of their part."""
    reading = world.readings.get(uuid)
    left = world.devices[uuid].memory_bytes
    if reading is not None and reading.memory_reserved_bytes is not None:
        left -= reading.memory_reserved_bytes
    uses = world.uses.get(uuid)
    if uses is None or [use for use in uses if use.memory_bytes is None]:
        for w in held:
            left -= w.lease.memory_bytes
        free = free_by_nvml(world, uuid)
        return left if free is None else min(left, free)
    of_holders = 0
    for w in held:
        used = sum(use.memory_bytes for use in uses if use.kind == "holder" and use.workload == w.id)
        of_holders += used
        left -= max(used, w.lease.memory_bytes)
    of_others = sum(use.memory_bytes for use in uses) - of_holders
    if reading is not None and reading.memory_used_bytes is not None:
        of_others = max(of_others, reading.memory_used_bytes - of_holders)
    return left - of_others


def fits(world: World, it: Workload, without: frozenset[str] = frozenset()) -> bool:
    """Whether some set of devices serves the whole ask now: all of one node, and of one link group if so asked.

    Where the ask says so, what no node could hold, free or not, takes whole nodes and what is missing of one more.
    """
    size = most_of_a_node(world, it.ask)
    serving = [uuid for uuid in world.devices if uuid not in without and could_serve(world, it, uuid)]
    for chosen in combinations(serving, it.ask.devices):
        devices = [world.devices[uuid] for uuid in chosen]
        nodes = [(d.pool, d.node) for d in devices]
        if it.ask.across_nodes and len(devices) > size > 0:
            counts = sorted((nodes.count(node) for node in set(nodes)), reverse=True)
            whole, rest = divmod(len(devices), size)
            if counts != [size] * whole + [rest] * (rest > 0):
                continue
        elif len(set(nodes)) > 1:
            continue
        if it.ask.same_link_group and len(devices) > 1:
            links = {d.link_group for d in devices}
            if len(links) > 1 or None in links:
                continue
        return True
    return False


def most_of_a_node(world: World, ask: Ask) -> int:
    """How many devices of the kind the largest node has, whoever holds them and however they are."""
    nodes = [(d.pool, d.node) for uuid, d in world.devices.items() if could_ever_serve(world, ask, uuid)]
    return max((nodes.count(node) for node in nodes), default=0)


def classes_over_quota(world: World, it: Workload) -> set[str]:
    """The device classes of which no more may be held by this asker."""
    return {
        device.device_class
        for device in world.devices.values()
        if not quota_allows(world, it, [device.device_class] * it.ask.devices, only_class_rules=True)
    }


def quota_allows(world: World, it: Workload, classes: list[str], *, only_class_rules: bool = False) -> bool:
    """Whether devices of these classes may be added to what is held, by every rule that matches."""
    return _queue_and_memory_allow(world, it, len(classes)) and _rules_allow(
        world, it, classes, only_class_rules=only_class_rules
    )


def _queue_and_memory_allow(world: World, it: Workload, more: int) -> bool:
    """What all of a queue may hold, and what somebody may have of parts; rules of classes and teams aside."""
    live = [w for w in world.workloads.values() if w.lease is not None]
    for queue in world.policy.queues:
        held = sum(len(w.lease.devices) for w in live if w.queue == queue.name)
        if queue.name == it.queue and queue.most_devices is not None and held + more > queue.most_devices:
            return False
    for rule in world.policy.quotas:
        if rule.memory_bytes is not None and rule.user in ("*", it.owner) and rule.team is rule.device_class is None:
            parts = [w for w in live if w.owner == it.owner and w.lease.memory_bytes is not None]
            has = sum(len(w.lease.devices) * w.lease.memory_bytes for w in parts)
            if it.ask.memory_bytes is not None and has + more * it.ask.memory_bytes > rule.memory_bytes:
                return False
    return True


def _rules_allow(world: World, it: Workload, classes: list[str], *, only_class_rules: bool) -> bool:
    def matches(selector: str | None, value: str) -> bool:
        return selector is None or selector in ("*", value)

    for rule in world.policy.quotas:
        if rule.devices is None or (only_class_rules and rule.device_class is None):
            continue
        if not (matches(rule.user, it.owner) and matches(rule.team, it.team) and matches(rule.queue, it.queue)):
            continue
        for device_class in set(classes) if rule.device_class is not None else {None}:
            if rule.device_class not in (None, "*", device_class):
                continue
            held = 0
            for w in world.workloads.values():
                if w.lease is None:
                    continue
                if (rule.user and w.owner != it.owner) or (rule.team and w.team != it.team):
                    continue
                if rule.queue and w.queue != it.queue:
                    continue
                of_class = [u for u in w.lease.devices if device_class in (None, world.devices[u].device_class)]
                held += len(of_class)
            wanted = sum(1 for name in classes if device_class in (None, name))
            if held + wanted > rule.devices:
                return False
    return True


def first_in_line(world: World) -> Workload | None:
    """The first that waits for nothing but devices, by comparing all with all."""
    eligible = [
        w
        for w in world.workloads.values()
        if w.state is State.QUEUED and w.waiting not in EARLIER | BOUND
    ]  # fmt: skip
    return min(eligible, key=place_in_line, default=None)


def place_in_line(it: Workload) -> tuple[int, bool, int, int]:
    """Priority, lifted, rank, id."""
    return (-it.priority, not it.lifted, it.rank_ms, it.id)


def is_eligible(world: World, it: Workload, now: float) -> bool:
    """Whether nothing but devices keeps it from starting now."""
    if it.unmet or (it.member is not None and live_of(world, it) >= (it.member.at_most or len(world.workloads))):
        return False
    if it.paused or (it.not_before or 0) > now or (it.back_off_until or 0) > now:
        return False
    classes = {device.device_class for device in world.devices.values()}
    classes = {it.ask.device_class} if it.ask.device_class is not None else classes
    return any(quota_allows(world, it, [device_class] * it.ask.devices) for device_class in classes)


def live_of(world: World, it: Workload) -> int:
    """How many of an array hold devices."""
    array = None if it.member is None else it.member.array
    return len([w for w in world.workloads.values() if w.member is not None and w.member.array == array and w.is_live])


def parents_of(world: World, dependency: Dependency) -> list[Workload]:
    """All of an array that is named by its first, else the one that is named."""
    all_of_it = [w for w in world.workloads.values() if w.member and w.member.array == dependency.workload]
    return all_of_it or [world.workloads[dependency.workload]]


def can_never_meet(parent: Workload, dependency: Dependency) -> bool:
    """Whether it ended as it must not: without success, or before it began."""
    if parent.state is not State.ENDED:
        return False
    if dependency.ok:
        return parent.end != "succeeded"
    return parent.attempt == 0 and parent.end in ("cancelled", "dependency-unmet")


def batch_problems(world: World) -> list[str]:
    """What is wrong with those that come after others, and with arrays: by looking at all of them."""
    found = []
    for it in world.workloads.values():
        parents = [(parent, one) for one in it.after for parent in parents_of(world, one)]
        lost = [parent.title for parent, one in parents if can_never_meet(parent, one)]
        if lost and it.state is not State.ENDED:
            found.append(f"{it.title} is {it.state}, and can never come after {', '.join(lost)}")
        if it.end is EndReason.DEPENDENCY_UNMET and not lost:
            found.append(f"{it.title} ended for nothing: {it.detail}")
        alive = [parent.title for parent, _ in parents if parent.state is not State.ENDED]
        if it.is_live and alive:
            found.append(f"{it.title} runs before the end of {', '.join(alive)}")
        for one in it.after if it.state is State.QUEUED else ():
            is_over = all(parent.state is State.ENDED for parent in parents_of(world, one))
            if is_over is (one.workload in it.unmet):
                found.append(
                    f"{it.title} waits for {it.unmet}, and {one.workload} has{'' if is_over else ' not'} ended"
                )
        if it.member is not None and it.member.at_most is not None and live_of(world, it) > it.member.at_most:
            found.append(f"{live_of(world, it)} of array {it.member.array} run, and {it.member.at_most} may")
    return found + [f"{it.title} waits for itself" for it in world.queued() if waits_for(world, it, it, set())]


def waits_for(world: World, it: Workload, other: Workload, seen: set[int]) -> bool:
    """Whether one waits for the end of another, over however many between."""
    for one in it.after if it.state is State.QUEUED else ():
        for parent in parents_of(world, one):
            if parent.id not in seen and parent.state is not State.ENDED:
                seen.add(parent.id)
                if parent.id == other.id or waits_for(world, parent, other, seen):
                    return True
    return False


def withheld(world: World, it: Workload, now: float) -> frozenset[str]:
    """The devices that any promise to others may come to need; and where it died, if it can."""
    found = shunned(world, it, now)
    for hold in world.holds.values():
        spans = [span for span in hold.windows if span.until_at > now and span.from_at != hold.given_back]
        if spans and it.owner not in hold.users and it.team not in hold.teams:
            alike = (u for u, device in world.devices.items() if hold.device_class in (None, device.device_class))
            found |= set(hold.devices or alike)
    for booked in world.workloads.values():
        is_booked = booked.kind is Kind.RESERVATION and booked.state is State.QUEUED and booked.not_before is not None
        if is_booked and booked.id != it.id and booked.not_before + booked.ask.duration_seconds > now:
            found |= {uuid for uuid in world.devices if could_ever_serve(world, booked.ask, uuid)}
    for hold in world.policy.holds:
        if hold.until_at > now and it.owner not in hold.users and it.team not in hold.teams:
            found |= set(hold.devices)
    return frozenset(found)


def shunned(world: World, it: Workload, now: float) -> set[str]:
    """The devices on which it died of the hardware not long ago, if there are others that could serve it one day."""
    bad = set(it.avoids) if it.avoids_until is not None and now < it.avoids_until else set()
    ask = it.ask
    others = [
        (device.pool, device.node, (device.link_group or uuid) if ask.same_link_group else "")
        for uuid, device in world.devices.items()
        if uuid not in bad and not device.cordoned and device.condition is None and could_ever_serve(world, ask, uuid)
    ]
    return bad if any(others.count(place) >= ask.devices for place in others) else set()


def could_ever_serve(world: World, ask: Ask, uuid: str) -> bool:
    """Whether a device is of the kind, whoever holds it."""
    device = world.devices[uuid]
    if ask.pool not in (None, device.pool) or ask.device_class not in (None, device.device_class):
        return False
    if (ask.on and uuid not in ask.on) or (ask.devices > 1 and device.card is not None):
        return False
    if ask.memory_bytes is not None and not is_shared(world, uuid):
        return False
    size = device.memory_bytes
    return size is None or size >= max(ask.memory_bytes or 0, ask.min_free_bytes or 0)


def grant_problems(world: World, it: Workload, now: float) -> list[str]:
    """What was wrong with the lease that `it` was given just now; `world` is the world without that grant."""
    assert it.lease is not None
    found = []
    before = world.workloads[it.id]
    for uuid in it.lease.devices:
        device = world.devices[uuid]
        if device.cordoned or device.condition is not None:
            found.append(f"{it.title} was granted {uuid}, which is not well")
        if not could_serve(world, before, uuid):
            found.append(f"{it.title} was granted {uuid}, which does not serve it")
        if uuid in shunned(world, before, now):
            found.append(f"{it.title} was granted {uuid}, on which it died, though there are others")
        for hold in world.policy.holds:
            entitled = it.owner in hold.users or it.team in hold.teams
            if uuid in hold.devices and not entitled and hold.from_at <= now < hold.until_at:
                found.append(f"{it.title} was granted {uuid} within the hold {hold.name}")
            ends_late = it.kind is Kind.RESERVATION and now < hold.until_at and it.lease.ends_at > hold.from_at
            if uuid in hold.devices and not entitled and ends_late:
                found.append(f"{it.title} was granted {uuid} beyond the beginning of the hold {hold.name}")
    found += promise_problems(world, before, it, now)
    if len(it.lease.devices) > 1 and any(world.devices[uuid].card is not None for uuid in it.lease.devices):
        found.append(f"{it.title} was granted a MIG device beside others")
    others = frozenset(world.devices).difference(it.lease.devices)
    if it.lease.devices and not fits(world, before, others):
        found.append(f"{it.title} was granted {it.lease.devices}, which do not go together")
    if len(it.lease.devices) != it.ask.devices:
        found.append(f"{it.title} asked for {it.ask.devices} devices and got {len(it.lease.devices)}")
    classes = [world.devices[uuid].device_class for uuid in it.lease.devices]
    if classes and not quota_allows(world, before, classes):
        found.append(f"{it.title} was granted beyond a quota")
    return found


def promise_problems(world: World, before: Workload, it: Workload, now: float) -> list[str]:
    """What a grant takes of the devices that are named by a hold of an operator, and by no promise before it."""
    found = []
    theirs = [hold for hold in world.holds.values() if it.owner in hold.users or it.team in hold.teams]
    if before.not_before is not None or theirs:
        return []
    for hold in world.holds.values():
        for span in hold.windows:
            is_over = span.until_at <= now or span.from_at == hold.given_back
            taken = set(hold.devices).intersection(it.lease.devices)
            ends_at = it.lease.ends_at if it.kind is Kind.RESERVATION else now
            if taken and not is_over and (span.from_at <= now or ends_at > span.from_at):
                found.append(f"{it.title} was granted {sorted(taken)}, which {hold.title} names")
    return found
