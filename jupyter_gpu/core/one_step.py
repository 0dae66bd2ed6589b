"""One step of scheduling, in numbered parts: 1 order, 2 quota, 3 fit, 4 preempt, 5 hold back, 6 extend, 7 explain.

It works on a world that it may evolve, so each part sees the effect of the grants before it. Extension (6) is a
command of its own and uses `may_extend`. Within a step things only get scarcer, so what was refused once is refused
for the whole step: for a lane (workloads alike in everything) without a look, for a kind of ask by comparing counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush

from ..model import (
    Ask,
    EvictionReason,
    Kind,
    State,
    WaitingReason,
    Workload,
    World,
)
from ..model.lanes import Lane, LineKey, Part, lane_of, line_key
from ..model.shelves import Node
from .beside import Beside
from .events import Event, Evicted, Explained, Granted
from .forecast import expected_left_seconds, expected_seconds
from .held_back import HeldBack, blocked_reason
from .holds import Kept
from .leasing import lease_of
from .lifecycle import evolve
from .placement import Room, avoided, suits_sort
from .preemption import Preemption
from .quota import NO_CLASSES, Binding, Ledger

#: What a step knows of an owner with their team, queue and class: so many devices within the quota, so many within the
#: budget, up to so many no class is barred; what of theirs found no devices; and the counts that this depends on.
Asker = tuple[int, int, int, dict[Part, WaitingReason], frozenset[Binding]]
#: All that decides whether an ask fits and whom it may preempt, save how many devices it wants.
AskKind = tuple[object, ...]


class Step:
    """What one step knows: free devices, promises made to those before, what was refused already."""

    def __init__(self, world: World, now: float, turns_of: Collection[int] | None = None) -> None:
        self.world, self.now = world, now
        self.events: list[Event] = []
        self.ledger = Ledger(world, now)
        self.kept = Kept(world, now)
        self.yielding = [world.workloads[id_] for id_ in sorted(world.yielding)]
        #: Lanes of which all is known, and their reason is what it was.
        self.settled: set[Lane | None] = set()
        #: Who gets devices that are being made free.
        self.awaiting: set[int] = set()
        self.askers: dict[Part, Asker] = {}
        #: What found no devices, by whom it concerns; and by kind of ask, from how many devices on.
        self.without: dict[object, dict[Part, WaitingReason]] = {}
        self.lacking: dict[AskKind, tuple[int, WaitingReason]] = {}
        self.changed: dict[int, WaitingReason] = {}
        #: Array -> how many of it get devices that are being made free.
        self.to_come: Counter[int] = Counter()
        #: Of a kind of ask: the most that are free on one node, and on all.
        self.most_free: dict[object, tuple[int, int]] = {}
        self.held_back = HeldBack(world, self.kept, now)
        self.beside = Beside(world, self.kept, now)
        #: The last in line for whom any device is kept.
        self.last_kept: LineKey | None = None
        self.preemption = Preemption(world, self.ledger, self.kept, now, turns_of)

    def _record(self, event: Event) -> None:
        evolve(self.world, event)
        self.events.append(event)

    # -- 1 order

    def walk(self, first: Iterable[int] = ()) -> None:
        """Consider all in line; the world keeps the order. Before all those for whom others make, or made, room.

        Within one priority who stays within a share goes before borrowers: else what a team reclaimed would go back
        to the borrower, whose old place in line may be before it. So does, before all, what is its queue's own.
        """
        made_room_for = {it.evicted_for for it in self.yielding if it.evicted_for is not None}
        for key in sorted(
            line_key(it)
            for it in (self.world.workloads.get(id_) for id_ in made_room_for.union(first))
            if it is not None and it.state is State.QUEUED
        ):
            self._answer(key, self.world.lanes.of[key[3]])
        if self.ledger.queues:
            self._walk(self._is_its_queues_own)
        self._walk(None)

    def go_on(self, now: float) -> None:
        """Some seconds have passed, and only who is new is looked at."""
        self.now = now
        self.kept.go_on(now)
        self.held_back.go_on(now)

    def stands_before_a_promise(self, it: Workload) -> bool:
        """Whether devices would do that are kept for somebody behind it: only a look at the whole line tells."""
        # By shares who is within one goes before those of the same priority that borrow.
        is_by_key = not (self.ledger.shares or self.ledger.queues)
        if self.last_kept is None or (is_by_key and line_key(it) > self.last_kept) or not self._may_fit(it.ask):
            return False
        room = Room(self.world, it.ask)
        return (room.look_at_free() if it.ask.memory_bytes is None else room.look_at(self.world.layout.shareable)).fits

    def _note_kept(self, it: Workload) -> None:
        self.last_kept = max(line_key(it), self.last_kept or line_key(it))

    def greet(self, came: Iterable[int]) -> None:
        """Consider who is new in line, in its order."""
        self.events, self.changed = [], {}
        for key in sorted(line_key(self.world.workloads[id_]) for id_ in came):
            self._answer(key, self.world.lanes.of[key[3]])

    def _walk(self, is_meant: Callable[[int, Lane | None], bool] | None) -> None:
        at, heads, is_own = 0, self.world.lanes.heads, self._is_within_share
        while at < len(heads):
            band = heads[at][0][0]
            if self.ledger.shares:
                self._consider_all(
                    at, band, is_own if is_meant is None else lambda id_, it: is_own(id_, it) and is_meant(id_, it)
                )
            at = self._consider_all(at, band, is_meant)

    def _is_its_queues_own(self, id_: int, lane: Lane | None) -> bool:
        it = self.world.workloads[id_] if lane is None else lane
        return self.ledger.is_queues_own(it.queue, it.devices if isinstance(it, Lane) else it.ask.devices)

    def _is_within_share(self, id_: int, lane: Lane | None) -> bool:
        if lane is None:
            return self.ledger.is_within_share(self.world.workloads[id_])
        return lane.devices <= self.ledger.left_of_shares.get(lane.team, 0)

    def _consider_all(self, at: int, band: int, is_meant: Callable[[int, Lane | None], bool] | None) -> int:
        """Consider those of one priority, from the head at `at` on; tell where the next priority begins.

        All of a lane get one answer. So the next of a lane is looked at only where the one before got something:
        devices, then it is the head instead of them, or the word that others leave some.
        """
        heads, settled, known_reason = self.world.lanes.heads, self.settled, self._known_reason
        nexts: list[tuple[LineKey, Lane | None]] = []
        while True:
            is_head = at < len(heads) and heads[at][0][0] == band and not (nexts and nexts[0] < heads[at])
            if not is_head and not nexts:
                return at
            key, lane = heads[at] if is_head else heappop(nexts)
            if lane in settled or (is_meant is not None and not is_meant(key[3], lane)):
                at += is_head
                continue
            if lane is not None and known_reason(lane) is lane.waiting:  # most of a long line ends here
                at += is_head
                continue
            reason = WaitingReason.CLEARING if key[3] in self.awaiting else self._answer(key, lane)
            if is_head and reason is None:
                continue
            at += is_head
            if lane is None:
                continue
            if reason is None or reason is WaitingReason.CLEARING:
                following = self.world.lanes.after(lane, key)
                if following is not None:
                    heappush(nexts, (following, lane))
            else:
                settled.add(lane)

    def _answer(self, key: LineKey, lane: Lane | None) -> WaitingReason | None:
        """Grant it, or say why it waits; where all of its lane do, that is the answer to all."""
        it = self.world.workloads[key[3]]
        reason = self._of_its_own(it) if lane is None else self._known_reason(lane)
        if reason is None:
            reason = self._consider(it, lane or lane_of(it))
        if reason is WaitingReason.CLEARING:
            self.awaiting.add(it.id)
        if reason is not None and reason is not it.waiting:
            alone = lane is None or reason is WaitingReason.CLEARING
            for _, _, _, id_ in [key] if alone or lane is None else self.world.lanes.members(lane, key):
                self.changed[id_] = reason
        return reason

    def _of_its_own(self, it: Workload) -> WaitingReason | None:
        if it.paused:
            return WaitingReason.PAUSED
        if it.unmet:
            return WaitingReason.DEPENDENCY
        if it.not_before is not None and it.not_before > self.now:
            return WaitingReason.NOT_BEFORE
        if it.back_off_until is not None and it.back_off_until > self.now:
            return WaitingReason.BACK_OFF
        return None

    def _known_reason(self, lane: Lane) -> WaitingReason | None:
        """Why all of a lane wait, where that follows from what is known of the asker and of what is asked for.

        A long line has thousands of lanes, so this looks at nothing but two dictionaries.
        """
        if lane.comes_after:
            return WaitingReason.DEPENDENCY
        if lane.array is not None and self._runs_as_many_as_it_may(lane):
            return WaitingReason.QUOTA
        known = self.askers.get(lane.asker)
        if known is None:
            return None
        allowed, affordable, in_any_class, without, _ = known
        devices = lane.devices
        if devices > allowed:
            return WaitingReason.QUOTA
        if devices > affordable:
            return WaitingReason.BUDGET
        return without.get(lane.what) if devices <= in_any_class else None

    def _consider(self, it: Workload, lane: Lane) -> WaitingReason | None:
        """Grant it, or say why not."""
        if lane.array is not None and self._runs_as_many_as_it_may(lane):
            return WaitingReason.QUOTA
        allowed = self.ledger.allowance(it)
        if lane.asker not in self.askers:
            without = self.without.setdefault(self._party_of(it, NO_CLASSES), {})
            self.askers[lane.asker] = (
                max(0, allowed.devices), allowed.affordable, allowed.in_any_class, without, allowed.depends_on,
            )  # fmt: skip
            reason = self._known_reason(lane)
            if reason is not None:
                return reason
        reason = allowed.refusal(it.ask.devices)
        if reason is not None:
            return reason
        party = self._party_of(it, allowed.barred_classes(it.ask.devices))
        without = self.without.setdefault(party, {})
        reason = without.get(lane.what) or self._place(it, self._kind_of(it, party))
        # Whoever waits for a victim has taken it; the next alike may still find another.
        if reason is not None and reason is not WaitingReason.CLEARING and self._is_for_all_alike(it):
            without[lane.what] = reason
        return reason

    def _is_for_all_alike(self, it: Workload) -> bool:
        """Whether others who ask for the same get the same answer, however long their work is expected to run."""
        queue = self.world.policy.queue(it.queue)
        if queue is not None and queue.slice_factor is not None:
            return False
        return not (self.kept.held_back or self.kept.holds) or not self._may_fit(it.ask)

    def _runs_as_many_as_it_may(self, lane: Lane) -> bool:
        """Whether so many of an array run, or have devices made free for them, as its owner said may at once."""
        array = lane.array or 0
        return self.world.members.get(array, 0) + self.to_come[array] >= (lane.at_most or 0)

    # -- 2 and 3 fit, by the quota and by the devices

    def _place(self, it: Workload, kind: AskKind) -> WaitingReason | None:
        lack, reason = self.lacking.get(kind, (None, WaitingReason.DEVICES))
        if lack is not None and it.ask.devices >= lack:
            return reason
        if self._may_fit(it.ask):
            uuids = self._room(it).place(it.previous_devices)
            if uuids is None and self.kept.holds:
                uuids = self.beside.place(it, lambda barred: self._room(it, heed_holds=False, barred=barred))
            if uuids is not None:
                self._grant(it, uuids)
                return None
        if self._wait_for_what_leaves(it) or self._preempt(it):
            return WaitingReason.CLEARING
        reason = self._hold_back(it)
        if reason is not WaitingReason.HOLD:
            self.lacking[kind] = (it.ask.devices, reason)
        return reason

    def _may_fit(self, ask: Ask) -> bool:
        """Whether so many are free at all, on one node if they must be: most that wait are answered by that."""
        if ask.memory_bytes is not None:
            return True
        kind = (ask.pool, ask.device_class, ask.devices > 1, ask.min_free_bytes)
        known = self.most_free.get(kind)
        if known is None:
            nodes: dict[Node, int] = {}
            for shelf, devices in self.world.stock.free.items():
                if suits_sort(shelf.sort, ask):
                    nodes[shelf.node] = nodes.get(shelf.node, 0) + len(devices)
            known = self.most_free[kind] = (max(nodes.values(), default=0), sum(nodes.values()))
        return ask.devices <= known[1 if ask.across_nodes else 0]

    def _party_of(self, it: Workload, barred_classes: frozenset[str]) -> object:
        """What of the asker, beside the quota, decides which devices it may have."""
        if not self.ledger.shares and not self.kept.holds:
            return barred_classes
        return (barred_classes, it.team if self.ledger.shares else None, self.kept.entitlements(it))

    def _kind_of(self, it: Workload, party: object) -> AskKind:
        ask = it.ask
        kind: AskKind = (
            ask.pool,
            ask.device_class,
            ask.memory_bytes,
            ask.min_free_bytes,
            ask.same_link_group,
            ask.on,
            (it.avoids, it.avoids_until),
            (it.priority, it.queue),
            party,
        )
        queue = self.world.policy.queue(it.queue)
        if queue is not None and queue.slice_factor is not None:
            kind = (*kind, expected_left_seconds(self.world, it))
        if self.kept.holds or self.kept.held_back:
            return (*kind, expected_seconds(self.world, it), self.kept.yields_after_seconds(it))
        return kind

    def _room(self, it: Workload, *, heed_holds: bool = True, barred: Collection[str] = ()) -> Room:
        """What would serve it as things are."""
        barred = self.kept.barred_to(it, heed_holds=heed_holds).union(barred)
        if it.avoids:
            barred |= avoided(self.world, it, self.now)
        room = Room(
            self.world, it.ask, barred=barred, barred_classes=self.ledger.allowance(it).barred_classes(it.ask.devices)
        )
        return room.look_at_free() if it.ask.memory_bytes is None else room.look_at(self.world.layout.shareable)

    def _room_to_come(self, it: Workload) -> Room:
        """What would serve it once those have left who are leaving anyway."""
        room = self._room(it)
        for other in self.yielding:
            room.leave(other)
        return room

    def _grant(self, it: Workload, uuids: tuple[str, ...]) -> None:
        lease = lease_of(self.world, it, uuids, self.now)
        self._record(Granted(at=self.now, workload=it.id, lease=lease))
        self.most_free.clear()
        self._count(it, uuids)

    # -- 4 preempt

    def _wait_for_what_leaves(self, it: Workload) -> bool:
        uuids = self._room_to_come(it).place(it.previous_devices) if self.yielding else None
        return uuids is not None and self._promise(it, uuids)

    def _preempt(self, it: Workload) -> bool:
        """Make room by moving others, if that makes it fit."""
        yielding = self.preemption.choose(it, self._room_to_come)
        if not yielding:
            return False
        room = self._room_to_come(it)
        for victim, _ in yielding:
            room.leave(victim)
        for victim, why in yielding:
            self._evict(victim, it, why)
        return self._promise(it, room.place(it.previous_devices) or ())

    def _promise(self, it: Workload, uuids: tuple[str, ...]) -> bool:
        self.kept.promised.update(uuids)
        self._note_kept(it)
        self._count(it, uuids)
        if it.member is not None:
            self.to_come[it.member.array] += 1
        return True

    def _count(self, it: Workload, uuids: tuple[str, ...]) -> None:
        touched = self.ledger.add(it, uuids)
        if touched is None:
            self.askers.clear()
            return
        self.askers = {asker: known for asker, known in self.askers.items() if touched.isdisjoint(known[4])}

    def _evict(self, victim: Workload, better: Workload | None, why: str = "") -> None:
        self._record(
            Evicted(
                at=self.now,
                workload=victim.id,
                reason=EvictionReason.EXPIRED if victim.kind is Kind.RESERVATION else EvictionReason.PREEMPTED,
                yield_by=self.now + self.kept.grace_of(victim),
                evicted_for=None if better is None else better.id,
                detail="makes room for a hold" if better is None else f"makes room for {better.title}: {why}",
            )
        )
        self.ledger.leaves(victim)
        self.yielding.append(victim)

    # -- 5 hold back

    def _hold_back(self, it: Workload) -> WaitingReason:
        is_on_hold = bool(self.kept.holds) and self._room(it, heed_holds=False).fits
        if not (is_on_hold and it.lifted) and self.held_back.consider(it, self._room):
            self._note_kept(it)
        if is_on_hold:
            return WaitingReason.HOLD
        return blocked_reason(self.world, it.ask)

    def clear_the_holds(self) -> None:
        """Give notice, a grace early, to what must leave a device before a hold begins."""
        for it in self.preemption.before_holds():
            self._evict(it, None)

    # -- 7 explain

    def explain(self) -> None:
        """One event for all the reasons that changed."""
        if self.changed:
            self._record(Explained(at=self.now, reasons=self.changed))
