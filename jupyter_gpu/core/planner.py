"""One step of scheduling, in numbered parts: 1 order, 2 quota, 3 fit, 4 preempt, 5 hold back, 6 extend, 7 explain.

`plan` works on an overlay that it may evolve, so each part sees the effect of the grants before it. Extension (6) is a
command of its own and uses `may_extend`. Within a step things only get scarcer, so what was refused once is refused
for the whole step: for a lane (workloads alike in everything) without a look, for a kind of ask by comparing counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from ..model import Ask, Condition, EvictionReason, Kind, Lease, QueuePolicy, State, WaitingReason, Workload, World
from ..model.world import Lane, lane_of
from .forecast import expected_end_at, expected_seconds
from .holds import holds_with_devices, is_entitled, next_hold_at
from .lifecycle import Event, Evicted, Explained, Granted, evolve
from .placement import Room, free_devices, is_well, suits
from .quota import Ledger
from .victims import Victims, grace_seconds, has_reached_the_cap, is_in_overtime, is_protected

#: All that decides whether an ask fits and whom it may preempt, save how many devices it wants.
AskKind = tuple[object, ...]


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
    step.walk()
    step.explain()
    return step.events


class _Step:
    """What one step knows: free devices, promises made to those before, what was refused already."""

    def __init__(self, world: World, now: float) -> None:
        self.world, self.now = world, now
        self.events: list[Event] = []
        self.ledger = Ledger(world, now)
        self.queues = {queue.name: queue for queue in world.policy.queues}
        self.free = free_devices(world)
        self.shareable = [d for d in world.devices.values() if d.shareable and is_well(d)]
        self.holds = holds_with_devices(world, now) if world.policy.holds else []
        self.yielding = [it for it in world.holders() if it.state is State.YIELDING]
        #: Lanes whose reason is settled and as it was; lanes whose reason changed; kinds with the least they lack.
        self.settled: set[Lane] = set()
        self.refused: dict[Lane, WaitingReason] = {}
        self.lacking: dict[AskKind, tuple[int, WaitingReason]] = {}
        self.changed: dict[int, WaitingReason] = {}
        #: Devices coming free that a workload before in line will get.
        self.promised: set[str] = set()
        #: Devices held back for the first blocked workload of each kind of device: until when, and its priority.
        self.held_back: dict[str, tuple[float, int]] = {}
        self.heads: set[tuple[str | None, str | None]] = set()
        self._victims: Victims | None = None
        self._ends: list[tuple[float, Workload]] | None = None

    def _record(self, event: Event) -> None:
        evolve(self.world, event)
        self.events.append(event)

    # -- 1 order

    def walk(self) -> None:
        """Consider all in line; the world keeps the order.

        Within one priority who stays within a share goes before borrowers: else what a team reclaimed would go back
        to the borrower, whose old place in line may be before it.
        """
        if not self.ledger.shares:
            self._consider_all([key[3] for key in self.world.line])
            return
        for _, band in groupby(tuple(self.world.line), key=itemgetter(0)):
            borrowers = []
            for *_, id_ in band:
                if self.world.lanes.get(id_) in self.settled:
                    continue
                if self.ledger.is_within_share(self.world.workloads[id_]):
                    self._consider_all([id_])
                else:
                    borrowers.append(id_)
            self._consider_all(borrowers)

    def _consider_all(self, ids: Iterable[int]) -> None:
        lanes, settled = self.world.lanes, self.settled
        for id_ in ids:
            lane = lanes.get(id_)
            if lane in settled:
                continue  # nearly all of a long line ends here
            it = self.world.workloads[id_]
            reason = self._of_its_own(it) if lane is None else None
            if reason is None:
                reason = self._consider(it, lane or lane_of(it))
            if reason is not None and reason is not it.waiting:
                self.changed[id_] = reason

    def _of_its_own(self, it: Workload) -> WaitingReason | None:
        if it.paused:
            return WaitingReason.PAUSED
        if it.not_before is not None and it.not_before > self.now:
            return WaitingReason.NOT_BEFORE
        if it.back_off_until is not None and it.back_off_until > self.now:
            return WaitingReason.BACK_OFF
        return None

    def _consider(self, it: Workload, lane: Lane) -> WaitingReason | None:
        """Grant it, or say why not."""
        reason = self.refused.get(lane)
        if reason is None:
            reason = self.ledger.refusal(it) or self._place(it)
            # Whoever waits for a victim has taken it; the next alike may still find another.
            if reason is not None and reason is not WaitingReason.CLEARING:
                self.refused[lane] = reason
                if reason is it.waiting:
                    self.settled.add(lane)
        return reason

    # -- 2 and 3 fit, by the quota and by the devices

    def _place(self, it: Workload) -> WaitingReason | None:
        kind = self._kind_of(it)
        lack, reason = self.lacking.get(kind, (None, WaitingReason.DEVICES))
        if lack is not None and it.ask.devices >= lack:
            return reason
        uuids = self._room(it).place(it.previous_devices)
        if uuids is not None:
            self._grant(it, uuids)
            return None
        if self._wait_for_what_leaves(it) or self._preempt(it):
            return WaitingReason.CLEARING
        reason = self._hold_back(it)
        if reason is not WaitingReason.HOLD:
            self.lacking[kind] = (it.ask.devices, reason)
        return reason

    def _kind_of(self, it: Workload) -> AskKind:
        ask, ledger = it.ask, self.ledger
        kind: AskKind = (ask.pool, ask.device_class, ask.memory_bytes, ask.min_free_bytes, ask.same_link_group)
        kind += (it.priority, it.team if ledger.shares else None, ledger.barred_classes(it))
        if self.holds or self.held_back:
            entitled = tuple(is_entitled(hold, it.owner, it.team) for hold, _ in self.holds)
            kind += (expected_seconds(self.world, it), self._yields_after_seconds(it), entitled)
        return kind

    def _room(self, it: Workload, *, heed_holds: bool = True) -> Room:
        """What would serve it as things are."""
        barred = self.promised | self._held_back_from(it)
        if heed_holds:
            barred |= self._withheld_from(it)
        room = Room(self.world, it.ask, barred=barred, barred_classes=self.ledger.barred_classes(it))
        return room.look_at(self.free if it.ask.memory_bytes is None else self.shareable)

    def _room_to_come(self, it: Workload) -> Room:
        """What would serve it once those have left who are leaving anyway."""
        room = self._room(it)
        for other in self.yielding:
            room.leave(other)
        return room

    def _held_back_from(self, it: Workload) -> set[str]:
        """The devices on which it would delay somebody before it in line, by running on or by being protected."""
        if not self.held_back:
            return set()
        end = self.now + expected_seconds(self.world, it)
        soon = self.now + self._yields_after_seconds(it)
        return {
            uuid for uuid, (until, priority) in self.held_back.items()
            if (soon if priority > it.priority else end) > until
        }  # fmt: skip

    def _withheld_from(self, it: Workload) -> set[str]:
        """The devices that holds keep from it: held now, or before it would have left."""
        withheld: set[str] = set()
        for hold, uuids in self.holds:
            if not is_entitled(hold, it.owner, it.team) and hold.from_at < self.now + self._yields_after_seconds(it):
                withheld |= uuids
        return withheld

    def _yields_after_seconds(self, it: Workload) -> float:
        """When it will have left at the latest if a better claim comes: it ends, or has yielded."""
        seconds = expected_seconds(self.world, it)
        if it.kind is Kind.RESERVATION:
            return seconds
        queue = self.queues.get(it.queue)
        if queue is not None and queue.preemptible and not has_reached_the_cap(self.world, it, self.now):
            seconds = min(seconds, queue.protected_seconds)
        return seconds + self._leaves_within_seconds(it)

    def _leaves_within_seconds(self, it: Workload) -> int:
        """From the notice to the end of all that runs."""
        return self._grace_of(it) + self.world.policy.kill_after_seconds

    def _grace_of(self, it: Workload) -> int:
        return grace_seconds(self.queues.get(it.queue), it, self.world.policy.reservation_grace_seconds)

    def _grant(self, it: Workload, uuids: tuple[str, ...]) -> None:
        seconds = it.ask.duration_seconds
        comes_by_itself = it.kind is Kind.JOB or it.holder is not None
        lease = Lease(
            devices=uuids,
            pool=self.world.devices[uuids[0]].pool if uuids else it.ask.pool or "local",
            granted_at=self.now,
            memory_bytes=it.ask.memory_bytes,
            ends_at=None if seconds is None else self.now + seconds,
            attach_by=None if comes_by_itself else self.now + self.world.policy.attach_seconds,
        )
        self._record(Granted(at=self.now, workload=it.id, lease=lease))
        self.ledger.add(it, uuids)
        self.free = [device for device in self.free if device.uuid not in uuids]

    # -- 4 preempt

    def _wait_for_what_leaves(self, it: Workload) -> bool:
        uuids = self._room_to_come(it).place(it.previous_devices) if self.yielding else None
        return uuids is not None and self._promise(it, uuids)

    def _preempt(self, it: Workload) -> bool:
        """Make room by moving others, if that makes it fit."""
        if self._victims is None:
            self._victims = Victims(self.world, self.ledger, self.now)
        victims = self._victims.choose(it, lambda: self._room_to_come(it))
        if not victims:
            return False
        room = self._room_to_come(it)
        for victim in victims:
            room.leave(victim)
        for victim in victims:
            self._victims.taken(victim)
            self._evict(victim, it)
        return self._promise(it, room.place(it.previous_devices) or ())

    def _promise(self, it: Workload, uuids: tuple[str, ...]) -> bool:
        self.promised.update(uuids)
        self.ledger.add(it, uuids)
        return True

    def _evict(self, victim: Workload, better: Workload | None) -> None:
        self._record(
            Evicted(
                at=self.now,
                workload=victim.id,
                reason=EvictionReason.EXPIRED if victim.kind is Kind.RESERVATION else EvictionReason.PREEMPTED,
                yield_by=self.now + self._grace_of(victim),
                evicted_for=None if better is None else better.id,
                detail="makes room for a hold" if better is None else f"makes room for {better.title}",
            )
        )
        self.ledger.leaves(victim)
        self.yielding.append(victim)

    # -- 5 hold back

    def _hold_back(self, it: Workload) -> WaitingReason:
        """Give the first blocked workload of each kind of device a start, which later ones must not delay."""
        kind = (it.ask.pool, it.ask.device_class)
        if kind not in self.heads:
            self.heads.add(kind)
            if any(suits(device, it.ask) for device in (*self.free, *self.shareable)):
                self._promise_a_start(it)
        if self.holds and self._room(it, heed_holds=False).fits:
            return WaitingReason.HOLD
        return _blocked_reason(self.world, it.ask)

    def _promise_a_start(self, it: Workload) -> None:
        """Nothing is kept idle for what would not fit even on an empty machine."""
        room = self._room(it)
        for end, holder in self._expected_ends():
            if room.leave(holder).fits:
                # Past its limit of waiting nothing may start where it waits, however short: ends are only expected.
                start = self.now if it.lifted else end
                for uuid in room.place(it.previous_devices) or ():
                    self.held_back[uuid] = min(self.held_back.get(uuid, (start, it.priority)), (start, it.priority))
                return

    def _expected_ends(self) -> list[tuple[float, Workload]]:
        if self._ends is None:
            ends = [(expected_end_at(self.world, it, self.now), it) for it in self.world.holders()]
            self._ends = sorted(ends, key=lambda pair: (pair[0], pair[1].id))
        return self._ends

    def clear_the_holds(self) -> None:
        """Give notice, a grace early, to what must leave a device before a hold begins."""
        for hold, uuids in self.holds:
            held = {it.id: it for uuid in sorted(uuids) for it in self.world.holders_of(uuid)}
            for it in held.values():
                is_time = self.now >= hold.from_at - self._leaves_within_seconds(it)
                stays = is_entitled(hold, it.owner, it.team) or it.state is not State.ACTIVE
                if is_time and not stays and self._may_be_moved(it):
                    self._evict(it, None)

    def _may_be_moved(self, it: Workload) -> bool:
        return is_in_overtime(it, self.now) if it.kind is Kind.RESERVATION else not is_protected(
            self.world, it, self.now
        )  # fmt: skip

    # -- 7 explain

    def explain(self) -> None:
        """One event for all the reasons that changed."""
        if self.changed:
            self._record(Explained(at=self.now, reasons=self.changed))


def _blocked_reason(world: World, ask: Ask) -> WaitingReason:
    """Devices, unless none of the kind is there any more (engine) or none of them can be read (driver)."""
    conditions = {device.condition for device in world.devices.values() if suits(device, ask)}
    if conditions <= {Condition.LOST}:
        return WaitingReason.ENGINE
    return WaitingReason.DRIVER if conditions <= {Condition.LOST, Condition.UNREADABLE} else WaitingReason.DEVICES


def may_extend(world: World, it: Workload, seconds: int, now: float) -> float:
    """6: the end that an extension may have: up to quota, the queue's longest and the next hold; `ends_at` if none.

    In overtime the new time begins now, not at the end that is over.
    """
    if it.lease is None or it.lease.ends_at is None:
        return now
    end = max(it.lease.ends_at, now) + seconds
    queue: QueuePolicy | None = world.policy.queue(it.queue)
    if queue is not None and queue.longest_seconds is not None:
        end = min(end, it.lease.granted_at + queue.longest_seconds)
    hold_at = next_hold_at(world, it, now)
    if hold_at is not None:
        end = min(end, hold_at)
    left = Ledger(world, now).left_ms(it)
    if left is not None and it.lease.devices:
        # A reservation has paid up to its end, a job up to now.
        paid_until = it.lease.ends_at if it.kind is Kind.RESERVATION else now
        end = min(end, paid_until + left // 1000 // len(it.lease.devices))
    return max(end, it.lease.ends_at)
