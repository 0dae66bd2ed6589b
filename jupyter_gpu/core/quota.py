"""Held and allowed, used and left. Integer arithmetic: devices and device-milliseconds, never floats.

A `Ledger` is made once per step of the planner and kept in step with its grants, so asking is cheap. Which rules
concern whom is found in `core.bounds`, whose own the devices are in `core.shares`.

A part of a shared device counts as one device, for GPU-hours too: its memory is divided and its compute is not, so who
has a part of it may use all the time that it has. How much memory somebody has in such parts is a bound of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from ..model import BUCKET_SECONDS, Kind, Workload, World
from ..model.usage import UsageKey
from .bounds import HOUR_MS, NO_CLASSES, NO_LIMIT, Allowance, Binding, Bounds, Key, bind, bounds_of
from .shares import Shares

__all__ = ["HOUR_MS", "NO_CLASSES", "Allowance", "Binding", "Ledger", "available_again_at", "bind"]


def available_again_at(
    world: World, number: int, binding: Binding, now: float, ledger: Ledger | None = None
) -> float | None:
    """When enough of the window has passed that the budget has room; None where it has room now.

    `ledger` is one of this world and about now, where there is one.
    """
    rule = world.policy.bounds[number]
    if rule.gpu_hours is None:
        return None
    excess = (ledger or Ledger(world, now)).spent_ms(number, binding) - rule.gpu_hours * HOUR_MS
    if excess < 0:
        return None
    oldest = int(now - rule.window_seconds) // BUCKET_SECONDS
    buckets: Counter[int] = Counter()
    for (owner, team, queue, device_class), used in world.usage.items():
        if bind(number, rule, owner, team, queue, device_class) == binding:
            buckets.update({bucket: ms for bucket, ms in used.items() if bucket >= oldest})
    for bucket in sorted(buckets):
        excess -= buckets[bucket]
        if excess < 0:
            return float((bucket + 1) * BUCKET_SECONDS + rule.window_seconds)
    return None


def _price_ms(it: Workload) -> int:
    """What one device costs at the grant: a reservation is charged whole, a job as it runs."""
    return (it.ask.duration_seconds or 0) * 1000 if it.kind is Kind.RESERVATION else 0


class Ledger:
    """Who holds how much at this moment of a step, and what one more grant would come to."""

    def __init__(self, world: World, now: float) -> None:
        """Begin from what the world holds."""
        self._world, self._now = world, now
        self._rules = world.policy.bounds
        self._classes = world.layout.classes if self._rules else ()
        sums = world.sums
        if sums.made_for is None or sums.made_for[0] is not world.policy or sums.made_for[1] != self._classes:
            sums.made_for, sums.bounds = (world.policy, self._classes), {}
        self._bounds: dict[Key | Bounds, Bounds] = sums.bounds
        self._held: dict[Binding, int] = {}
        #: Of parts of shared devices, where a rule bounds that.
        self._held_bytes: defaultdict[Binding, int] = defaultdict(int)
        #: How much more is held than a rule allows now (devices, or with True bytes), once somebody has asked.
        self._excess: dict[tuple[bool, Binding], int] | None = None
        self._spent: dict[Binding, int] | None = None
        self._allowances: dict[tuple[object, ...], Allowance] = {}
        self.has_budgets = any(rule.gpu_hours is not None for rule in self._rules)
        self._has_memory_rules = any(rule.memory_bytes is not None for rule in self._rules)
        self._lends = {queue.name: queue.may_borrow for queue in world.policy.queues}
        shares = ((rule.team, rule.share_devices) for rule in self._rules)
        self.teams = Shares({team: share for team, share in shares if team is not None and share is not None})
        own = ((queue.name, queue.share_devices) for queue in world.policy.queues)
        self.queues = Shares({name: share for name, share in own if share is not None})
        #: The parts of teams, and what each may still get of its own.
        self.shares, self.left_of_shares = self.teams.own, self.teams.left
        if self._rules or self.queues:
            for key, count in world.held.items():
                self._count(key, count)
        for it in world.holders() if self._has_memory_rules else ():
            self._count_bytes(it, it.lease.devices if it.lease is not None else (), set())
        for id_ in world.yielding if self.shares or self.queues else ():
            self.leaves(world.workloads[id_])

    def _count(self, key: UsageKey, count: int) -> None:
        is_firm = not self._lends.get(key[2], True)
        self.teams.count(key[1], count, is_firm=is_firm)
        if self.queues:
            self.queues.count(key[2], count, is_firm=is_firm)
        held = self._held
        for binding in self._bounds_of(key).all:
            held[binding] = held.get(binding, 0) + count

    def _bounds_of(self, key: Key) -> Bounds:
        found = self._bounds.get(key)
        if found is None:
            found = bounds_of(self._rules, key, self._classes)
            self._bounds[key] = found = self._bounds.setdefault(found, found)
        return found

    def add(self, it: Workload, uuids: tuple[str, ...]) -> set[Binding] | None:
        """Count a grant, or devices that were promised and are sure to come; tell which counts changed (None: all)."""
        touched: set[Binding] = set()
        if self._has_memory_rules:
            self._count_bytes(it, uuids, touched)
        for uuid in uuids:
            key = (it.owner, it.team, it.queue, self._world.devices[uuid].device_class)
            self._count(key, 1)
            touched.update(to for _, to in self._bounds_of(key).devices)
            if it.kind is Kind.RESERVATION and self._spent is not None:
                for _, _, binding in self._bounds_of(key).hours:
                    self._spent[binding] = self._spent.get(binding, 0) + _price_ms(it)
                    touched.add(binding)
        if (self.shares or self.queues) and not self._lends.get(
            it.queue, True
        ):  # what is left of nobody's share depends on all of it
            self._allowances.clear()
            return None
        known = self._allowances.items()
        self._allowances = {key: allowed for key, allowed in known if touched.isdisjoint(allowed.depends_on)}
        return touched

    def _count_bytes(self, it: Workload, uuids: tuple[str, ...], touched: set[Binding]) -> None:
        """Count the parts of shared devices that somebody has."""
        for binding, size in self._parts_of(it, uuids):
            self._held_bytes[binding] += size
            touched.add(binding)

    def leaves(self, it: Workload, sign: int = 1) -> None:
        """Count what is about to be given up (or, with -1, that it is not)."""
        devices = sign * len(it.lease.devices) if it.lease is not None else 0
        self.teams.leaves(it.team, devices)
        if self.queues:
            self.queues.leaves(it.queue, devices)
        for use, size in self._uses_of(it) if self._excess else ():
            if self._excess is not None and use in self._excess:
                self._excess[use] -= sign * size

    def allowance(self, it: Workload) -> Allowance:
        """What this asker may have; the same for all asks of one owner, team, queue and class (price and part)."""
        bounds = self._bounds_of((it.owner, it.team, it.queue, it.ask.device_class))
        price_ms = _price_ms(it) if bounds.hours or bounds.by_class else 0
        part = it.ask.memory_bytes if self._has_memory_rules else None
        # Equal bounds are one object. Beside them only a share looks at the queue and the team.
        key: tuple[object, ...] = (id(bounds), price_ms, part)
        if self.shares or self.queues:
            key = (*key, it.queue, it.team)
        known = self._allowances.get(key)
        if known is None:
            known = self._allowances[key] = self._allowance(bounds, it, price_ms, part)
        return known

    def _allowance(self, bounds: Bounds, it: Workload, price_ms: int, part: int | None) -> Allowance:
        devices, affordable = self._left(bounds, price_ms, part)
        if not self._lends.get(it.queue, True):
            there = len(self._world.devices)
            for shares, name in ((self.teams, it.team), (self.queues, it.queue)):
                devices = min(devices, shares.firmly_left(name, there)) if shares else devices
        if not bounds.by_class:
            return Allowance(devices, affordable, depends_on=bounds.depends_on)
        by_class = {name: min(self._left(of_class, price_ms, part)) for name, of_class in bounds.by_class}
        most = NO_LIMIT if len(by_class) < len(self._classes) else max(by_class.values())
        return Allowance(devices, affordable, by_class, min(by_class.values()), most, bounds.depends_on)

    def _left(self, bounds: Bounds, price_ms: int, part: int | None) -> tuple[int, int]:
        """How many devices may still be held, and how many the budgets buy."""
        devices = affordable = NO_LIMIT
        held = self._held
        for most, binding in bounds.devices:
            left = most - held.get(binding, 0)
            devices = min(left, devices)
        for most, binding in bounds.memory if part else ():
            devices = min(devices, (most - self._held_bytes.get(binding, 0)) // (part or 1))
        for most_ms, _, binding in bounds.hours:
            left_ms = most_ms - self._spent_under(binding)
            if left_ms <= 0:  # what costs nothing yet still needs something left
                affordable = 0
            elif price_ms:
                affordable = min(affordable, left_ms // price_ms)
        return devices, affordable

    def held(self, binding: Binding) -> int:
        """Devices held under one bound now."""
        return self._held.get(binding, 0)

    def held_bytes(self, binding: Binding) -> int:
        """The memory of the parts of shared devices that are held under one bound now."""
        return self._held_bytes[binding]

    def spent_ms(self, number: int, binding: Binding) -> int:  # noqa: ARG002 - the binding names its rule
        """Device-ms charged within the rule's window, and what live jobs ran up in it since their grant."""
        return self._spent_under(binding)

    def _spent_under(self, binding: Binding) -> int:
        if self._spent is None:
            self._spent = self._all_spent()
        return self._spent.get(binding, 0)

    def _all_spent(self) -> dict[Binding, int]:
        spent: Counter[Binding] = Counter()
        world, now = self._world, self._now
        for key in world.usage if self.has_budgets else ():
            for _, window_seconds, binding in self._bounds_of(key).hours:
                spent[binding] += world.used_ms(key, window_seconds, now)
        now_ms = round(now * 1000)
        for key, (running, granted_ms, ran_ms) in world.runs.items() if self.has_budgets else ():
            for _, _, binding in self._bounds_of(key).hours:
                spent[binding] += running * now_ms - granted_ms + ran_ms
        self._take_off_what_is_past(spent)
        return dict(spent)

    def _take_off_what_is_past(self, spent: Counter[Binding]) -> None:
        """Of what runs longer than a window is, only the window counts."""
        windows = [rule.window_seconds for rule in self._rules if rule.gpu_hours is not None]
        oldest = self._now - min(windows, default=0)
        for it in self._world.holders() if windows else ():
            if it.kind is Kind.JOB and it.lease is not None and it.lease.granted_at < oldest:
                begin, end = it.lease.granted_at, self._now if it.released_at is None else it.released_at
                for device_class, count in self._classes_of(it):
                    for _, seconds, binding in self._bounds_of((it.owner, it.team, it.queue, device_class)).hours:
                        past = min(end, self._now - seconds) - begin
                        spent[binding] -= count * max(0, round(past * 1000))

    def _classes_of(self, it: Workload) -> Iterable[tuple[str, int]]:
        """The classes of what it holds, each with how many devices."""
        devices = self._world.devices
        uuids = it.lease.devices if it.lease is not None else ()
        if len(uuids) == 1:
            return ((devices[uuids[0]].device_class, 1),)
        classes = [devices[uuid].device_class for uuid in uuids]
        return Counter(classes).items()

    def _budgets_of(self, it: Workload) -> Iterator[int]:
        """What is left of each budget that a live workload's devices draw on; below zero where it is overdrawn."""
        for device_class, _ in self._classes_of(it):
            for most_ms, _, binding in self._bounds_of((it.owner, it.team, it.queue, device_class)).hours:
                yield most_ms - self._spent_under(binding)

    def left_ms(self, it: Workload) -> int | None:
        """Device-milliseconds left to a live workload in the tightest of its budgets; None where no budget binds it."""
        left = min(self._budgets_of(it), default=None)
        return None if left is None else max(0, left)

    def has_spent_its_budget(self, it: Workload) -> bool:
        """Whether a live job has outrun a budget: it may finish its protected time and is then the first to yield."""
        return self.has_budgets and it.kind is Kind.JOB and any(left <= 0 for left in self._budgets_of(it))

    def is_within_share(self, it: Workload) -> bool:
        """Whether the team would stay within its guaranteed share with this ask granted."""
        return self.teams.is_within(it.team, it.ask.devices)

    def is_queues_own(self, queue: str, devices: int) -> bool:
        """Whether a queue would stay within its guaranteed share with so many more."""
        return self.queues.is_within(queue, devices)

    def is_lent(self, it: Workload) -> bool:
        """Whether a live workload is beyond what its team has of its own, or beyond a quota that was lowered."""
        return (bool(self.teams) and self.teams.is_beyond(it.team)) or self.is_over_quota(it)

    def is_borrowing(self, it: Workload) -> bool:
        """Whether its team or its queue holds more than its own part, or a rule allows less by now than is held."""
        return self.is_lent(it) or (bool(self.queues) and self.queues.is_beyond(it.queue))

    def is_over_quota(self, it: Workload) -> bool:
        """Whether more is held under a rule of a live workload than it allows now: it was lowered since the grant."""
        if self._excess is None:
            self._excess = self._all_excess()
        return bool(self._excess) and any(self._excess.get(use, 0) > 0 for use, _ in self._uses_of(it))

    def _all_excess(self) -> dict[tuple[bool, Binding], int]:
        """What is held beyond the rules, less what of it is leaving already."""
        excess: dict[tuple[bool, Binding], int] = {}
        for key in self._world.held if self._rules else ():
            bounds = self._bounds_of(key)
            for is_bytes, those, held in ((False, bounds.devices, self._held), (True, bounds.memory, self._held_bytes)):
                excess |= {(is_bytes, to): held[to] - most for most, to in those if held.get(to, 0) > most}
        for id_ in self._world.yielding if excess else ():
            for use, size in self._uses_of(self._world.workloads[id_]):
                if use in excess:
                    excess[use] -= size
        return excess

    def _uses_of(self, it: Workload) -> Iterator[tuple[tuple[bool, Binding], int]]:
        """What a live workload holds under each rule that bounds devices or the memory of parts."""
        for device_class, count in self._classes_of(it):
            for _, binding in self._bounds_of((it.owner, it.team, it.queue, device_class)).devices:
                yield (False, binding), count
        for binding, size in self._parts_of(it, it.lease.devices if it.lease is not None else ()):
            yield (True, binding), size

    def _parts_of(self, it: Workload, uuids: tuple[str, ...]) -> Iterator[tuple[Binding, int]]:
        """The memory that its parts of these devices come to, under each rule that bounds it."""
        part = it.ask.memory_bytes if it.lease is None else it.lease.memory_bytes
        for uuid in uuids if part is not None and self._has_memory_rules else ():
            key = (it.owner, it.team, it.queue, self._world.devices[uuid].device_class)
            for _, binding in self._bounds_of(key).memory:
                yield binding, part or 0
