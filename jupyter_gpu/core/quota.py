"""Held and allowed, used and left. Integer arithmetic: devices and device-milliseconds, never floats.

A `Ledger` is made once per step of the planner and kept in step with its grants, so asking is cheap. A rule binds a
workload when every selector matches; "*" binds each user (team, queue, class) by itself. All rules that match apply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..model import BUCKET_SECONDS, EACH, USAGE_SECONDS, Kind, QuotaRule, State, WaitingReason, Workload, World
from ..model.world import UsageKey

#: (rule number, user, team, queue, class): what one bound of one rule counts for.
Binding = tuple[int, str | None, str | None, str | None, str | None]
#: A rule with its number and what it counts a certain use under.
Bound = tuple[int, QuotaRule, Binding]

HOUR_MS = 3_600_000


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


def available_again_at(world: World, number: int, binding: Binding, now: float) -> float | None:
    """When enough of the window has passed that the budget has room; None where it has room now."""
    rule = world.policy.quotas[number]
    if rule.gpu_hours is None:
        return None
    excess = Ledger(world, now).spent_ms(number, binding) - rule.gpu_hours * HOUR_MS
    oldest = int(now - rule.window_seconds) // BUCKET_SECONDS
    buckets: Counter[int] = Counter()
    for (owner, team, queue, device_class), used in world.usage.items():
        if bind(number, rule, owner, team, queue, device_class) == binding:
            buckets.update({bucket: ms for bucket, ms in used.items() if bucket >= oldest})
    for bucket in sorted(buckets) if excess >= 0 else ():
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


class Ledger:
    """Who holds how much at this moment of a step, and what one more grant would come to."""

    def __init__(self, world: World, now: float) -> None:
        """Begin from what the world holds."""
        self._world, self._now = world, now
        self._rules = list(enumerate(world.policy.quotas))
        self._bounds: dict[tuple[str, str, str, str | None], tuple[Bound, ...]] = {}
        self._held: Counter[Binding] = Counter()
        self._team_held: Counter[str] = Counter()
        #: Held by work in queues that may not borrow: nobody can take it back by preemption.
        self._firm: Counter[str] = Counter()
        #: What is about to leave its devices counts as held, but no more as borrowed.
        self._leaving: Counter[str] = Counter()
        self._spent: Counter[Binding] | None = None
        self._classes = sorted({device.device_class for device in world.devices.values()})
        self._has_class_rules = any(rule.device_class is not None for _, rule in self._rules)
        self._lends = {queue.name: queue.may_borrow for queue in world.policy.queues}
        self.shares: dict[str | None, int] = {
            rule.team: rule.share_devices for _, rule in self._rules if rule.share_devices is not None
        }
        for key, count in world.held.items():
            self._count(key, count)
        for it in world.holders() if self.shares else ():
            if it.state is State.YIELDING:
                self.leaves(it)

    def _count(self, key: UsageKey, count: int) -> None:
        self._team_held[key[1]] += count
        if not self._lends.get(key[2], True):
            self._firm[key[1]] += count
        for _, _, binding in self._bounds_of(*key):
            self._held[binding] += count

    def _bounds_of(self, owner: str, team: str, queue: str, device_class: str | None) -> tuple[Bound, ...]:
        """The rules that concern this use, each with what it counts it under."""
        key = (owner, team, queue, device_class)
        found = self._bounds.get(key)
        if found is None:
            bound = [(number, rule, bind(number, rule, *key)) for number, rule in self._rules]
            found = self._bounds[key] = tuple((n, rule, to) for n, rule, to in bound if to is not None)
        return found

    def add(self, it: Workload, uuids: tuple[str, ...]) -> None:
        """Count a grant, or devices that were promised and are sure to come."""
        for uuid in uuids:
            key = (it.owner, it.team, it.queue, self._world.devices[uuid].device_class)
            self._count(key, 1)
            if it.kind is Kind.RESERVATION and self._spent is not None:
                for _, _, binding in self._bounds_of(*key):
                    self._spent[binding] += (it.ask.duration_seconds or 0) * 1000

    def leaves(self, it: Workload, sign: int = 1) -> None:
        """Count what is about to be given up (or, with -1, that it is not)."""
        self._leaving[it.team] += sign * len(it.lease.devices) if it.lease is not None else 0

    def refusal(self, it: Workload) -> WaitingReason | None:
        """Why this ask must wait whatever is free: quota, budget or nothing."""
        if it.ask.devices == 0:
            return None
        for number, rule, binding in self._bounds_of(it.owner, it.team, it.queue, it.ask.device_class):
            reason = self._over(number, rule, binding, it)
            if reason is not None:
                return reason
        if self.shares and not self._lends.get(it.queue, True) and not self._is_firmly_its_own(it):
            return WaitingReason.QUOTA
        barred = self.barred_classes(it)
        return WaitingReason.QUOTA if barred and len(barred) == len(self._classes) else None

    def barred_classes(self, it: Workload) -> frozenset[str]:
        """The device classes that a rule forbids to an ask which names none."""
        if it.ask.device_class is not None or not self._has_class_rules:
            return frozenset()
        return frozenset(
            device_class
            for device_class in self._classes
            for number, rule, binding in self._bounds_of(it.owner, it.team, it.queue, device_class)
            if rule.device_class is not None and self._over(number, rule, binding, it)
        )

    def _over(self, number: int, rule: QuotaRule, binding: Binding, it: Workload) -> WaitingReason | None:
        if rule.devices is not None and self._held[binding] + it.ask.devices > rule.devices:
            return WaitingReason.QUOTA
        if rule.gpu_hours is None:
            return None
        left = rule.gpu_hours * HOUR_MS - self.spent_ms(number, binding)
        if it.kind is Kind.RESERVATION:
            wanted = it.ask.devices * (it.ask.duration_seconds or 0) * 1000
            return WaitingReason.BUDGET if wanted > left else None
        return WaitingReason.BUDGET if left <= 0 else None

    def held(self, binding: Binding) -> int:
        """Devices held under one bound now."""
        return self._held[binding]

    def spent_ms(self, number: int, binding: Binding) -> int:  # noqa: ARG002 - the binding names its rule
        """Device-ms charged within the rule's window, and what live jobs ran up in it since their grant."""
        if self._spent is None:
            self._spent = self._all_spent()
        return self._spent[binding]

    def _all_spent(self) -> Counter[Binding]:
        spent: Counter[Binding] = Counter()
        if all(rule.gpu_hours is None for _, rule in self._rules):
            return spent
        for key in self._world.usage:
            for _, rule, binding in self._bounds_of(*key):
                spent[binding] += self._world.used_ms(key, rule.window_seconds, self._now)
        for it in self._world.holders():
            if it.kind is Kind.JOB and it.lease is not None:
                until = self._now if it.released_at is None else it.released_at
                for uuid in it.lease.devices:
                    device_class = self._world.devices[uuid].device_class
                    for _, rule, binding in self._bounds_of(it.owner, it.team, it.queue, device_class):
                        begin = max(it.lease.granted_at, self._now - rule.window_seconds)
                        spent[binding] += max(0, round((until - begin) * 1000))
        return spent

    def _budgets_of(self, it: Workload) -> Iterator[int]:
        """What is left of each budget that the devices of a live workload draw on; below zero where it is overdrawn."""
        classes = {self._world.devices[uuid].device_class for uuid in it.lease.devices} if it.lease is not None else ()
        for device_class in classes:
            for number, rule, binding in self._bounds_of(it.owner, it.team, it.queue, device_class):
                if rule.gpu_hours is not None:
                    yield rule.gpu_hours * HOUR_MS - self.spent_ms(number, binding)

    def left_ms(self, it: Workload) -> int | None:
        """Device-milliseconds left to a live workload in the tightest of its budgets; None where no budget binds it."""
        left = min(self._budgets_of(it), default=None)
        return None if left is None else max(0, left)

    def has_spent_its_budget(self, it: Workload) -> bool:
        """Whether a live job has outrun a budget: it may finish its protected time and is then the first to yield."""
        return it.kind is Kind.JOB and any(left <= 0 for left in self._budgets_of(it))

    def is_within_share(self, it: Workload) -> bool:
        """Whether the team would stay within its guaranteed share with this ask granted."""
        return self._team_held[it.team] + it.ask.devices <= self.shares.get(it.team, 0)

    def is_borrowing(self, it: Workload) -> bool:
        """Whether the team of a live workload holds more than its share; without any shares nobody borrows."""
        staying = self._team_held[it.team] - self._leaving[it.team]
        return bool(self.shares) and staying > self.shares.get(it.team, 0)

    def _is_firmly_its_own(self, it: Workload) -> bool:
        """Whether work that cannot be moved would still fit into the shares and into what is nobody's share.

        Only such work is counted: what the team's own jobs hold, they yield to it.
        """
        firm = self._firm + Counter({it.team: it.ask.devices})
        beyond = {team: count - self.shares.get(team, 0) for team, count in firm.items()}
        common = len(self._world.devices) - sum(self.shares.values())
        return beyond[it.team] <= 0 or sum(count for count in beyond.values() if count > 0) <= common
