"""Held and allowed, used and left. Integer arithmetic: devices and device-milliseconds, never floats.

A `Ledger` is made once per step of the planner and kept in step with its grants, so asking is cheap. A rule binds a
workload when every selector matches; "*" binds each user (team, queue, class) by itself. All rules that match apply.
"""

from __future__ import annotations

from collections import Counter

from ..model import BUCKET_SECONDS, EACH, Kind, QuotaRule, WaitingReason, Workload, World

#: (rule number, user, team, queue, class): what one bound of one rule counts for.
Binding = tuple[int, str | None, str | None, str | None, str | None]

HOUR_MS = 3_600_000


def _matches(selector: str | None, value: str) -> bool:
    return selector is None or selector in (EACH, value)


def bind(
    number: int, rule: QuotaRule, owner: str, team: str, queue: str, device_class: str | None
) -> Binding | None:
    """What the rule counts this use under, or None when it does not concern it. A class rule needs a class."""
    if not (_matches(rule.user, owner) and _matches(rule.team, team) and _matches(rule.queue, queue)):
        return None
    if rule.device_class is not None and (
        device_class is None or not _matches(rule.device_class, device_class)
    ):
        return None
    return (
        number,
        owner if rule.user else None,
        team if rule.team else None,
        queue if rule.queue else None,
        device_class if rule.device_class else None,
    )


def used_ms(world: World, number: int, binding: Binding, now: float) -> int:
    """Device-milliseconds charged within the rule's rolling window, and what live jobs ran up since their grant."""
    rule = world.policy.quotas[number]
    oldest = int(now - rule.window_seconds) // BUCKET_SECONDS
    total = 0
    for (owner, team, queue, device_class), buckets in world.usage.items():
        if bind(number, rule, owner, team, queue, device_class) == binding:
            total += sum(used for bucket, used in buckets.items() if bucket > oldest)
    for it in world.holders():
        if it.kind is Kind.JOB and it.lease is not None:
            for uuid in it.lease.devices:
                if (
                    bind(number, rule, it.owner, it.team, it.queue, world.devices[uuid].device_class)
                    == binding
                ):
                    total += max(0, round((now - it.lease.granted_at) * 1000))
    return total


def available_again_at(world: World, number: int, binding: Binding, now: float) -> float | None:
    """When enough of the window has passed that the budget has room; None where it has room now."""
    rule = world.policy.quotas[number]
    if rule.gpu_hours is None:
        return None
    excess = used_ms(world, number, binding, now) - rule.gpu_hours * HOUR_MS
    buckets: Counter[int] = Counter()
    for (owner, team, queue, device_class), used in world.usage.items():
        if bind(number, rule, owner, team, queue, device_class) == binding:
            buckets.update(used)
    for bucket in sorted(buckets):
        if excess < 0:
            break
        excess -= buckets[bucket]
        if excess < 0:
            return float((bucket + 1) * BUCKET_SECONDS + rule.window_seconds)
    return None


def use_permille(world: World, owner: str, now: float) -> int:
    """An owner's decayed use as a part of everybody's, in thousandths. Use counts half after each half-life."""
    half_life = world.policy.half_life_seconds
    mine = total = 0
    for (who, _, _, _), buckets in world.usage.items():
        for bucket, used in buckets.items():
            decayed = max(0, used) >> min(60, max(0, int(now) - bucket * BUCKET_SECONDS) // half_life)
            total += decayed
            mine += decayed if who == owner else 0
    return mine * 1000 // total if total else 0


class Ledger:
    """Who holds how much at this moment of a step, and what one more grant would come to."""

    def __init__(self, world: World, now: float) -> None:
        """Count the live workloads once."""
        self._world = world
        self._now = now
        self._rules = list(enumerate(world.policy.quotas))
        self._held: Counter[Binding] = Counter()
        self._team_held: Counter[str] = Counter()
        self._spent: dict[Binding, int] = {}
        self.shares = {
            rule.team: rule.share_devices for _, rule in self._rules if rule.share_devices is not None
        }
        for it in world.holders():
            if it.lease is not None:
                self.add(it, it.lease.devices)

    def add(self, it: Workload, uuids: tuple[str, ...], sign: int = 1) -> None:
        """Count a grant (or, with -1, what an eviction will give back)."""
        self._team_held[it.team] += sign * len(uuids)
        if not self._rules:
            return
        for uuid in uuids:
            device_class = self._world.devices[uuid].device_class
            for number, rule in self._rules:
                binding = bind(number, rule, it.owner, it.team, it.queue, device_class)
                if binding is not None:
                    self._held[binding] += sign

    def refusal(self, it: Workload) -> WaitingReason | None:
        """Why this ask must wait whatever is free: quota, budget or nothing. Class rules come with `barred_classes`."""
        for number, rule in self._rules:
            binding = bind(number, rule, it.owner, it.team, it.queue, it.ask.device_class)
            if binding is not None:
                reason = self._over(number, rule, binding, it)
                if reason is not None:
                    return reason
        queue = self._world.policy.queue(it.queue)
        if self.shares and queue is not None and not queue.may_borrow and not self.is_within_share(it):
            return WaitingReason.QUOTA
        return None

    def barred_classes(self, it: Workload) -> frozenset[str]:
        """The device classes that a rule forbids to an ask which names none."""
        if it.ask.device_class is not None or not any(rule.device_class for _, rule in self._rules):
            return frozenset()
        barred = set()
        for device_class in {device.device_class for device in self._world.devices.values()}:
            for number, rule in self._rules:
                binding = bind(number, rule, it.owner, it.team, it.queue, device_class)
                if rule.device_class and binding is not None and self._over(number, rule, binding, it):
                    barred.add(device_class)
        return frozenset(barred)

    def _over(self, number: int, rule: QuotaRule, binding: Binding, it: Workload) -> WaitingReason | None:
        if rule.devices is not None and self._held[binding] + it.ask.devices > rule.devices:
            return WaitingReason.QUOTA
        if rule.gpu_hours is None:
            return None
        left = rule.gpu_hours * HOUR_MS - self.spent_ms(number, binding)
        if it.kind is Kind.RESERVATION:
            wanted = it.ask.devices * (it.ask.duration_seconds or 0) * 1000
            return WaitingReason.BUDGET if wanted > left else None
        return WaitingReason.BUDGET if left <= 0 and it.ask.devices else None

    def held(self, binding: Binding) -> int:
        """Devices held under one bound now."""
        return self._held[binding]

    def spent_ms(self, number: int, binding: Binding) -> int:
        """What the window of this bound has seen, counted once a step."""
        if binding not in self._spent:
            self._spent[binding] = used_ms(self._world, number, binding, self._now)
        return self._spent[binding]

    def left_ms(self, it: Workload) -> int | None:
        """Device-milliseconds left to a workload in the tightest of its budgets; None where no budget binds it."""
        left = None
        for number, rule in self._rules:
            binding = bind(number, rule, it.owner, it.team, it.queue, it.ask.device_class)
            if rule.gpu_hours is not None and binding is not None:
                here = max(0, rule.gpu_hours * HOUR_MS - self.spent_ms(number, binding))
                left = here if left is None else min(left, here)
        return left

    def has_spent_its_budget(self, it: Workload) -> bool:
        """Whether a live job has outrun a budget: it may finish its protected time and is then the first to yield."""
        if it.kind is not Kind.JOB or it.lease is None:
            return False
        for number, rule in self._rules:
            if rule.gpu_hours is None:
                continue
            for uuid in it.lease.devices:
                binding = bind(
                    number, rule, it.owner, it.team, it.queue, self._world.devices[uuid].device_class
                )
                if binding is not None and self.spent_ms(number, binding) >= rule.gpu_hours * HOUR_MS:
                    return True
        return False

    def is_within_share(self, it: Workload) -> bool:
        """Whether the team would stay within its guaranteed share with this ask granted."""
        return self._team_held[it.team] + it.ask.devices <= (self.shares.get(it.team) or 0)

    def is_borrowing(self, it: Workload) -> bool:
        """Whether the team of a live workload holds more than its share; without any shares nobody borrows."""
        return bool(self.shares) and self._team_held[it.team] > (self.shares.get(it.team) or 0)
