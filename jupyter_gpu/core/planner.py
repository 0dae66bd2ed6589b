"""One step of scheduling, in numbered parts: 1 order, 2 quota, 3 fit, 4 preempt, 5 hold back, 6 extend, 7 explain.

`plan` works on an overlay that it may evolve, so each part sees the effect of the grants before it. Extension (6) is a
command of its own and uses `may_extend`. A shape (all that the answer depends on) that was refused is refused for the
whole step without a second look, so ten thousand alike workloads cost one look and a loop.
"""

from __future__ import annotations

from bisect import bisect_left

from ..model import (
    Device,
    EvictionReason,
    HoldPolicy,
    Kind,
    Lease,
    State,
    WaitingReason,
    Workload,
    World,
)  # fmt: skip
from .forecast import expected_end_at, expected_seconds
from .lifecycle import Event, Evicted, Explained, Granted, evolve
from .placement import free_devices, in_order, is_well, place, suits
from .quota import Ledger
from .victims import Victims, grace_seconds

Shape = tuple[object, ...]


def rank_ms(it: Workload, world: World, use_permille: int) -> int:
    """Submission time plus a bounded multiple of the expected GPU time, weighed by the owner's decayed use.

    Short work passes; the bound is why long work cannot be passed for ever: whoever submits later than the bound
    stands behind it.
    """
    policy = world.policy
    expected = expected_seconds(world, it) * max(1, it.ask.devices) * policy.order_multiple
    weighed = expected * (1000 + use_permille) // 1000
    return round(it.submitted_at * 1000) + min(weighed, policy.order_most_seconds) * 1000


def plan(world: World, now: float) -> list[Event]:
    """Give what is free to who is first, preempt where it helps, and say why the others wait."""
    step = _Step(world, now)
    step.clear_the_holds()
    for key in tuple(world.line):  # 1 order: kept by the world
        step.consider(world.workloads[key[3]])
    step.explain()
    return step.events


class _Step:
    """What one step knows: free devices, promises made to those before, shapes already refused."""

    def __init__(self, world: World, now: float) -> None:
        self.world, self.now = world, now
        self.events: list[Event] = []
        self.ledger = Ledger(world, now)
        self.free = free_devices(world)
        self.refused: dict[Shape, WaitingReason] = {}
        self.changed: dict[int, WaitingReason] = {}
        #: Devices coming free that a workload before in line will get.
        self.promised: set[str] = set()
        #: Devices held back for the first blocked workload of each kind of device, until its expected start.
        self.held_back: dict[str, float] = {}
        self.heads: set[tuple[str | None, str | None]] = set()
        self.coming = [
            world.devices[uuid]
            for it in world.holders()
            if it.state is State.YIELDING and it.lease is not None and it.lease.memory_bytes is None
            for uuid in it.lease.devices
            if is_well(world.devices[uuid])
        ]
        self._victims: Victims | None = None
        self._held = [
            (hold, _held_devices(world, hold)) for hold in world.policy.holds if hold.until_at > now
        ]

    def _record(self, event: Event) -> None:
        evolve(self.world, event)
        self.events.append(event)

    def consider(self, it: Workload) -> None:
        """Grant it, or remember why not."""
        reason = self._not_yet(it) if it.paused or it.not_before or it.back_off_until else None
        if reason is None:
            shape = (it.ask, it.queue, it.team, it.owner, it.priority)
            reason = self.refused.get(shape)
            if reason is None:
                reason = self._look_at(it)
                # Whoever waits for a victim has taken it; the next alike may still find another.
                if reason is not None and reason is not WaitingReason.CLEARING:
                    self.refused[shape] = reason
        if reason is not None and it.waiting is not reason:
            self.changed[it.id] = reason

    def _not_yet(self, it: Workload) -> WaitingReason | None:
        if it.paused:
            return WaitingReason.PAUSED
        if it.not_before is not None and it.not_before > self.now:
            return WaitingReason.NOT_BEFORE
        if it.back_off_until is not None and it.back_off_until > self.now:
            return WaitingReason.BACK_OFF
        return None

    def _look_at(self, it: Workload) -> WaitingReason | None:
        reason = self.ledger.refusal(it)  # 2 quota
        if reason is not None:
            return reason
        barred_classes = self.ledger.barred_classes(it)
        uuids = self._fit(it, self.free, barred_classes)  # 3 fit
        if uuids is not None:
            self._grant(it, uuids)
            return None
        return self._preempt(it, barred_classes) or self._hold_back(it, barred_classes)  # 4 and 5

    def _fit(
        self,
        it: Workload,
        candidates: list[Device],
        barred_classes: frozenset[str],
        *,
        heed_holds: bool = True,
    ) -> tuple[str, ...] | None:
        end = self.now + self._leaves_after_seconds(it)
        barred = {uuid for uuid, until in self.held_back.items() if end > until} | self.promised
        if heed_holds:
            barred |= self._withheld(it)

        def is_barred(uuid: str) -> bool:
            return uuid in barred or self.world.devices[uuid].device_class in barred_classes

        return place(self.world, it.ask, candidates, previous=it.previous_devices, is_barred=is_barred)

    def _leaves_after_seconds(self, it: Workload) -> float:
        """When it will have left at the latest if a better claim comes: it ends, or has yielded."""
        expected = expected_seconds(self.world, it)
        queue = self.world.policy.queue(it.queue)
        if queue is None or not queue.preemptible:
            return expected
        grace = grace_seconds(queue, it, 0) + self.world.policy.kill_after_seconds
        return min(expected, queue.protected_seconds + grace)

    def _withheld(self, it: Workload) -> set[str]:
        """The devices that holds keep from this workload: held now, or before it would have left."""
        withheld: set[str] = set()
        for hold, uuids in self._held:
            if it.owner in hold.users or it.team in hold.teams:
                continue
            if hold.from_at < self.now + self._leaves_after_seconds(it):
                withheld |= uuids
        return withheld

    def _grant(self, it: Workload, uuids: tuple[str, ...]) -> None:
        lease = Lease(
            devices=uuids,
            pool=self.world.devices[uuids[0]].pool if uuids else it.ask.pool or "local",
            granted_at=self.now,
            memory_bytes=it.ask.memory_bytes,
            ends_at=self._ends_at(it),
            attach_by=self._attach_by(it),
        )
        self._record(Granted(at=self.now, workload=it.id, lease=lease))
        self.ledger.add(it, uuids)
        given = set(uuids)
        self.free = [device for device in self.free if device.uuid not in given]
        self.changed.pop(it.id, None)

    def _ends_at(self, it: Workload) -> float | None:
        seconds = it.ask.duration_seconds
        if seconds is None and it.kind is Kind.RESERVATION:
            seconds = self.world.policy.reservation_seconds
        return None if seconds is None else self.now + seconds

    def _attach_by(self, it: Workload) -> float | None:
        if it.kind is Kind.JOB or it.holder is not None:
            return None
        return self.now + self.world.policy.attach_seconds

    def _preempt(self, it: Workload, barred_classes: frozenset[str]) -> WaitingReason | None:
        """Make room by moving others, if that makes it fit; what is coming free anyway is waited for first."""
        if it.ask.memory_bytes is not None:
            return None
        uuids = self._fit(it, self.free + self.coming, barred_classes)
        if uuids is not None:
            self.promised.update(uuids)
            return WaitingReason.CLEARING
        devices = self.world.devices

        def fits(given: set[str]) -> tuple[str, ...] | None:
            more = [devices[uuid] for uuid in sorted(given) if is_well(devices[uuid])]
            return self._fit(it, self.free + self.coming + more, barred_classes)

        if self._victims is None:
            self._victims = Victims(self.world, self.ledger, self.now)
        victims = self._victims.choose(it, fits)
        if not victims:
            return None
        uuids = fits(
            {uuid for victim in victims if victim.lease is not None for uuid in victim.lease.devices}
        )
        self.promised.update(uuids or ())
        for victim in victims:
            self._victims.taken(victim)
            self._evict(victim, it)
        return WaitingReason.CLEARING

    def _evict(self, victim: Workload, better: Workload | None) -> None:
        policy = self.world.policy
        grace = grace_seconds(policy.queue(victim.queue), victim, policy.reservation_grace_seconds)
        reason = EvictionReason.EXPIRED if victim.kind is Kind.RESERVATION else EvictionReason.PREEMPTED
        self._record(
            Evicted(
                at=self.now,
                workload=victim.id,
                reason=reason,
                yield_by=self.now + grace,
                evicted_for=None if better is None else better.id,
                detail="" if better is None else f"makes room for {better.title}",
            )
        )

    def _hold_back(self, it: Workload, barred_classes: frozenset[str]) -> WaitingReason:
        """Give the first blocked workload of each kind of device a start, which later ones must not delay."""
        kind = (it.ask.pool, it.ask.device_class)
        if kind not in self.heads and it.ask.memory_bytes is None:
            self.heads.add(kind)
            self._promise_a_start(it, barred_classes)
        if self._held and self._fit(it, self.free, barred_classes, heed_holds=False) is not None:
            return WaitingReason.HOLD
        return _blocked_reason(self.world, it)

    def _promise_a_start(self, it: Workload, barred_classes: frozenset[str]) -> None:
        ends: dict[str, float] = {}
        for other in self.world.holders():
            end = expected_end_at(self.world, other, self.now)
            for uuid in other.lease.devices if other.lease is not None else ():
                ends[uuid] = max(ends.get(uuid, 0.0), end)
        fitting = [d for d in in_order(self.world) if suits(d, it.ask) and is_well(d)]
        fitting.sort(key=lambda device: ends.get(device.uuid, self.now))
        if self._fit(it, fitting, barred_classes) is None:
            return  # not even on an empty machine: nothing is kept idle for it
        # More devices never make it fit worse, so the shortest prefix that serves is found by bisection.
        count = bisect_left(
            range(len(fitting)),
            1,
            lo=min(it.ask.devices, len(fitting)) if it.ask.devices else 0,
            key=lambda n: int(self._fit(it, fitting[:n], barred_classes) is not None),
        )
        uuids = self._fit(it, fitting[:count], barred_classes) or ()
        start = max((ends.get(uuid, self.now) for uuid in uuids), default=self.now)
        self.held_back.update(dict.fromkeys(uuids, start))

    def clear_the_holds(self) -> None:
        """Give notice, a grace early, to what must leave a device before a hold begins."""
        for hold, uuids in self._held:
            for it in list(self.world.holders()):
                if it.state is not State.ACTIVE or it.kind is not Kind.JOB or it.lease is None:
                    continue
                entitled = it.owner in hold.users or it.team in hold.teams
                queue = self.world.policy.queue(it.queue)
                if (
                    entitled
                    or queue is None
                    or not queue.preemptible
                    or not uuids.intersection(it.lease.devices)
                ):
                    continue
                if (
                    self.now
                    >= hold.from_at - grace_seconds(queue, it, 0) - self.world.policy.kill_after_seconds
                ):
                    self._evict(it, None)

    def explain(self) -> None:
        """7: one event for all the reasons that changed."""
        if self.changed:
            self._record(Explained(at=self.now, reasons=self.changed))


def _blocked_reason(world: World, it: Workload) -> WaitingReason:
    """Devices, unless none of the kind can be read at all (driver) or none is there any more (engine)."""
    kin = [device for device in world.devices.values() if suits(device, it.ask)]
    if not kin:
        return WaitingReason.ENGINE
    return (
        WaitingReason.DRIVER
        if all(device.condition == "unreadable" for device in kin)
        else WaitingReason.DEVICES
    )


def _held_devices(world: World, hold: HoldPolicy) -> set[str]:
    if hold.devices:
        return {uuid for uuid in hold.devices if uuid in world.devices}
    kin = [d for d in in_order(world) if hold.device_class in (None, d.device_class)]
    return {device.uuid for device in kin[len(kin) - min(hold.count, len(kin)) :]}


def may_extend(world: World, it: Workload, seconds: int, now: float) -> float:
    """6: the end that an extension may have: up to quota, the queue's longest and the next hold; `ends_at` if none."""
    if it.lease is None or it.lease.ends_at is None:
        return now
    end = it.lease.ends_at + seconds
    queue = world.policy.queue(it.queue)
    if queue is not None and queue.longest_seconds is not None:
        end = min(end, it.lease.granted_at + queue.longest_seconds)
    for hold in world.policy.holds:
        entitled = it.owner in hold.users or it.team in hold.teams
        if not entitled and hold.until_at > now and _held_devices(world, hold).intersection(it.lease.devices):
            end = min(end, hold.from_at)
    left = Ledger(world, now).left_ms(it)
    if left is not None and it.lease.devices:
        end = min(end, it.lease.ends_at + left // 1000 // len(it.lease.devices))
    return max(end, it.lease.ends_at)
