"""Held and allowed, used and left. Integer arithmetic: devices and device-milliseconds, never floats.

A `Ledger` is made once per step of the planner and kept in step with its grants, so asking is cheap. A rule binds a
workload when every selector matches; "*" binds each user (team, queue, class) by itself. All rules that match apply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from ..model import BUCKET_SECONDS, EACH, USAGE_SECONDS, Kind, QuotaRule, State, WaitingReason, Workload, World
from ..model.usage import UsageKey

#: (rule number, user, team, queue, class): what one bound of one rule counts for.
Binding = tuple[int, str | None, str | None, str | None, str | None]
#: Whose use: owner, team, queue, and the class where it is known.
Key = tuple[str, str, str, str | None]

HOUR_MS = 3_600_000
NO_LIMIT = 1 << 60
NO_CLASSES: frozenset[str] = frozenset()


def _matches(selector: str | None, value: str) -> bool:
    return selector is None or selector in (EACH, value)


def bind(  # noqa: PLR0917 - whose use it is, in the order of every key
    number: int, rule: QuotaRule, owner: str, team: str, queue: str, device_class: str | None
) -> Binding | None:
    """What the rule counts this use under, or None when it does not concern it. A class rule needs a class."""
    if not (_matches(rule.user, owner) and _matches(rule.team, team) and _matches(rule.queue, queue)):
        return None
    if rule.device_class is not None and (device_class is None or not _matches(rule.device_class, device_class)):
        return None
    return (
        number,
        owner if rule.user else None,
        team if rule.team else None,
        queue if rule.queue else None,
        device_class if rule.device_class else None,
    )


def available_again_at(
    world: World, number: int, binding: Binding, now: float, ledger: Ledger | None = None
) -> float | None:
    """When enough of the window has passed that the budget has room; None where it has room now.

    `ledger` is one of this world and about now, where there is one.
    """
    rule = world.policy.quotas[number]
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


def use_permille(world: World, owner: str, team: str, now: float) -> int:
    """The decayed use of an owner and of their team, each as a part of everybody's, in thousandths: the mean of both.

    Use counts half after each half-life. It is summed by the day, since the order of a line needs no more.
    """
    today = int(now) // 86_400
    half_life = world.policy.half_life_seconds

    def decayed(days: dict[int, int]) -> int:
        return sum(
            max(0, used) >> min(60, (today - day) * 86_400 // half_life)
            for day, used in days.items()
            if 0 <= today - day <= USAGE_SECONDS // 86_400
        )

    days = world.days()
    total = decayed(days.get(("", ""), {}))
    mine = decayed(days.get(("user", owner), {})) + decayed(days.get(("team", team), {}))
    return mine * 500 // total if total else 0


class Bounds(msgspec.Struct, frozen=True):
    """The rules that concern one use: what is allowed, and what it is counted under."""

    devices: tuple[tuple[int, Binding], ...]
    #: Device-ms, the window, and the binding.
    hours: tuple[tuple[int, int, Binding], ...]
    #: What a share is counted under too, which bounds nothing.
    all: tuple[Binding, ...]
    #: For a use of no class yet: the bounds that name a class, by the classes that have any.
    by_class: tuple[tuple[str, Bounds], ...] = ()
    #: All that is counted for these bounds.
    depends_on: frozenset[Binding] = frozenset()


def bounds_of(quotas: tuple[QuotaRule, ...], key: Key, classes: tuple[str, ...]) -> Bounds:
    """Find the rules that concern one use; `classes` are those of all devices."""
    bound = [(rule, bind(number, rule, *key)) for number, rule in enumerate(quotas)]
    here = [(rule, to) for rule, to in bound if to is not None]
    by_class = []
    for name in classes if key[3] is None else ():
        of_class = [
            (rule, bind(number, rule, *key[:3], name)) for number, rule in enumerate(quotas) if rule.device_class
        ]
        found = _bounds([(rule, to) for rule, to in of_class if to is not None])
        if found.devices or found.hours:
            by_class.append((name, found))
    return _bounds(here, tuple(by_class))


def _bounds(here: list[tuple[QuotaRule, Binding]], by_class: tuple[tuple[str, Bounds], ...] = ()) -> Bounds:
    all_of_them = tuple(to for _, to in here)
    return Bounds(
        tuple((rule.devices, to) for rule, to in here if rule.devices is not None),
        tuple((rule.gpu_hours * HOUR_MS, rule.window_seconds, to) for rule, to in here if rule.gpu_hours is not None),
        all_of_them,
        by_class,
        frozenset(all_of_them).union(*(bounds.depends_on for _, bounds in by_class)),
    )


class Allowance(msgspec.Struct, frozen=True):
    """How many devices one more ask of somebody may come to, as far as their bounds go."""

    #: At once, and by the GPU-hours that are left.
    devices: int
    affordable: int = NO_LIMIT
    #: For an ask that names no class: how many devices of a class its rules allow, and the least and most of these.
    by_class: dict[str, int] = {}
    in_any_class: int = NO_LIMIT
    in_some_class: int = NO_LIMIT
    #: It is as said until one of these changes.
    depends_on: frozenset[Binding] = frozenset()

    def refusal(self, devices: int) -> WaitingReason | None:
        """Why an ask for so many must wait whatever is free: quota, budget or nothing."""
        if devices == 0:
            return None
        if devices > self.devices:
            return WaitingReason.QUOTA
        if devices > self.affordable:
            return WaitingReason.BUDGET
        return WaitingReason.QUOTA if devices > self.in_some_class else None

    def barred_classes(self, devices: int) -> frozenset[str]:
        """The device classes that a rule forbids to an ask for so many which names none."""
        if devices <= self.in_any_class:
            return NO_CLASSES
        return frozenset(device_class for device_class, count in self.by_class.items() if count < devices)


def _price_ms(it: Workload) -> int:
    """What one device costs at the grant: a reservation is charged whole, a job as it runs."""
    return (it.ask.duration_seconds or 0) * 1000 if it.kind is Kind.RESERVATION else 0


class Ledger:
    """Who holds how much at this moment of a step, and what one more grant would come to."""

    def __init__(self, world: World, now: float) -> None:
        """Begin from what the world holds."""
        self._world, self._now = world, now
        self._rules = list(enumerate(world.policy.quotas))
        self._classes = world.layout.classes if self._rules else ()
        sums = world.sums
        if sums.made_for is None or sums.made_for[0] is not world.policy or sums.made_for[1] != self._classes:
            sums.made_for, sums.bounds = (world.policy, self._classes), {}
        self._bounds: dict[Key | Bounds, Bounds] = sums.bounds
        self._held: Counter[Binding] = Counter()
        self._team_held: Counter[str] = Counter()
        #: Held by work in queues that may not borrow: nobody can take it back by preemption.
        self._firm: Counter[str] = Counter()
        #: What is about to leave its devices counts as held, but no more as borrowed.
        self._leaving: Counter[str] = Counter()
        self._spent: dict[Binding, int] | None = None
        self._allowances: dict[tuple[object, ...], Allowance] = {}
        self.has_budgets = any(rule.gpu_hours is not None for _, rule in self._rules)
        self._lends = {queue.name: queue.may_borrow for queue in world.policy.queues}
        self.shares: dict[str, int] = {
            rule.team: rule.share_devices
            for _, rule in self._rules
            if rule.share_devices is not None and rule.team is not None
        }
        #: What a team may still get of its own share.
        self.left_of_shares = dict(self.shares)
        if self._rules:
            for key, count in world.held.items():
                self._count(key, count)
        for it in world.holders() if self.shares else ():
            if it.state is State.YIELDING:
                self.leaves(it)

    def _count(self, key: UsageKey, count: int) -> None:
        self._team_held[key[1]] += count
        if key[1] in self.left_of_shares:
            self.left_of_shares[key[1]] -= count
        if not self._lends.get(key[2], True):
            self._firm[key[1]] += count
        held = self._held
        for binding in self._bounds_of(key).all:
            held[binding] = held.get(binding, 0) + count

    def _bounds_of(self, key: Key) -> Bounds:
        found = self._bounds.get(key)
        if found is None:
            found = bounds_of(self._world.policy.quotas, key, self._classes)
            self._bounds[key] = found = self._bounds.setdefault(found, found)
        return found

    def add(self, it: Workload, uuids: tuple[str, ...]) -> set[Binding] | None:
        """Count a grant, or devices that were promised and are sure to come; tell which counts changed (None: all)."""
        touched: set[Binding] = set()
        for uuid in uuids:
            key = (it.owner, it.team, it.queue, self._world.devices[uuid].device_class)
            self._count(key, 1)
            touched.update(to for _, to in self._bounds_of(key).devices)
            if it.kind is Kind.RESERVATION and self._spent is not None:
                for _, _, binding in self._bounds_of(key).hours:
                    self._spent[binding] = self._spent.get(binding, 0) + _price_ms(it)
                    touched.add(binding)
        if self.shares and not self._lends.get(it.queue, True):  # what is left of nobody's share depends on all of it
            self._allowances.clear()
            return None
        known = self._allowances.items()
        self._allowances = {key: allowed for key, allowed in known if touched.isdisjoint(allowed.depends_on)}
        return touched

    def leaves(self, it: Workload, sign: int = 1) -> None:
        """Count what is about to be given up (or, with -1, that it is not)."""
        self._leaving[it.team] += sign * len(it.lease.devices) if it.lease is not None else 0

    def allowance(self, it: Workload) -> Allowance:
        """What this asker may have; the same for all asks of one owner, team, queue and class (and price)."""
        bounds = self._bounds_of((it.owner, it.team, it.queue, it.ask.device_class))
        price_ms = _price_ms(it) if bounds.hours or bounds.by_class else 0
        # Equal bounds are one object. Beside them only a share looks at the queue and the team.
        key = (id(bounds), price_ms, it.queue, it.team) if self.shares else (id(bounds), price_ms)
        known = self._allowances.get(key)
        if known is None:
            known = self._allowances[key] = self._allowance(bounds, it, price_ms)
        return known

    def _allowance(self, bounds: Bounds, it: Workload, price_ms: int) -> Allowance:
        devices, affordable = self._left(bounds, price_ms)
        if self.shares and not self._lends.get(it.queue, True):
            devices = min(devices, self._firmly_left(it.team))
        if not bounds.by_class:
            return Allowance(devices, affordable, depends_on=bounds.depends_on)
        by_class = {name: min(self._left(of_class, price_ms)) for name, of_class in bounds.by_class}
        most = NO_LIMIT if len(by_class) < len(self._classes) else max(by_class.values())
        return Allowance(devices, affordable, by_class, min(by_class.values()), most, bounds.depends_on)

    def _left(self, bounds: Bounds, price_ms: int) -> tuple[int, int]:
        """How many devices may still be held, and how many the budgets buy."""
        devices = affordable = NO_LIMIT
        held = self._held
        for most, binding in bounds.devices:
            left = most - held.get(binding, 0)
            devices = min(left, devices)
        for most_ms, _, binding in bounds.hours:
            left_ms = most_ms - self._spent_under(binding)
            if left_ms <= 0:  # what costs nothing yet still needs something left
                affordable = 0
            elif price_ms:
                affordable = min(affordable, left_ms // price_ms)
        return devices, affordable

    def held(self, binding: Binding) -> int:
        """Devices held under one bound now."""
        return self._held[binding]

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
        windows = [rule.window_seconds for _, rule in self._rules if rule.gpu_hours is not None]
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
        return it.ask.devices <= self.left_of_shares.get(it.team, 0)

    def is_borrowing(self, it: Workload) -> bool:
        """Whether the team of a live workload holds more than its share; without any shares nobody borrows."""
        staying = self._team_held[it.team] - self._leaving[it.team]
        return bool(self.shares) and staying > self.shares.get(it.team, 0)

    def _firmly_left(self, team: str) -> int:
        """How much more a team may hold in queues that never yield: what is left of its share and of nobody's share.

        Only such work is counted: what the team's own jobs hold, they yield to it.
        """
        beyond = (held - self.shares.get(other, 0) for other, held in self._firm.items() if other != team)
        common = len(self._world.devices) - sum(self.shares.values()) - sum(count for count in beyond if count > 0)
        return self.shares.get(team, 0) - self._firm[team] + max(0, common)
