"""What is kept, and from whom: by holds, by promises, by the starts of those before in line. None of it is a lease."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ..model import BUCKET_SECONDS, Condition, HoldPolicy, Kind, Window, Workload, World
from .calendar import Calendar, worse
from .forecast import expected_seconds
from .placement import in_order
from .promises import Leaves, is_entitled, leaves_at, overlap, window_of
from .quota import Ledger
from .victims import grace_seconds, has_reached_the_cap, yields_to_all_above

__all__ = [
    "Kept", "calendar_of", "holds_with_devices", "is_attended", "is_entitled", "is_for", "may_extend", "next_hold_at",
]  # fmt: skip


def holds_with_devices(world: World, now: float) -> list[tuple[HoldPolicy, frozenset[str]]]:
    """The holds of the policy that are not over and not given back, each with its devices.

    Those of one instant share none. Named devices first, then counts take the highest indices that are left. The
    choice looks at all holds of the policy, past ones too, so it does not move when one of them ends.
    """
    taken: list[tuple[HoldPolicy, frozenset[str]]] = []
    for hold in sorted(world.policy.holds, key=lambda hold: not hold.devices):
        if hold.devices:
            uuids = frozenset(hold.devices).intersection(world.devices)
        else:
            others = {uuid for other, theirs in taken if overlap(hold, other) for uuid in theirs}
            kin = [
                device.uuid
                for device in in_order(world)
                if hold.device_class in (None, device.device_class)
                and device.condition is not Condition.LOST
                and device.uuid not in others
            ]
            uuids = frozenset(kin[len(kin) - min(hold.count, len(kin)) :])
        taken.append((hold, uuids))
    return [(hold, uuids) for hold, uuids in taken if hold.until_at > now and not _is_given_back(world, hold, now)]


def calendar_of(
    world: World,
    now: float,
    *,
    more: Iterable[Window] = (),
    leaving: dict[int, Leaves] | None = None,
    also: Workload | None = None,
) -> Calendar:
    """All promises of a world: the holds of its policy, those that were put by a word, the reservations for later."""
    policy = holds_with_devices(world, now) if world.policy.holds else []
    return Calendar(world, now, policy, more=more, leaving=leaving, also=also)


def _is_given_back(world: World, hold: HoldPolicy, now: float) -> bool:
    """A no-show: the time to come is over, nobody entitled is here, and none has used anything since it began."""
    if hold.no_show_seconds is None or now < hold.from_at + hold.no_show_seconds:
        return False
    return not is_attended(world, hold)


def is_attended(world: World, hold: HoldPolicy) -> bool:
    """Whether somebody entitled is here, or has used anything since it began, as far as use is told by the hour."""
    if any(is_entitled(hold, it.owner, it.team) for it in world.holders()):
        return True
    begin = int(hold.from_at) // BUCKET_SECONDS
    return any(
        used > 0
        for (owner, team, _, _), buckets in world.usage.items()
        if is_entitled(hold, owner, team)
        for bucket, used in buckets.items()
        if bucket >= begin
    )


def next_hold_at(world: World, it: Workload, now: float) -> float | None:
    """When the first promise that keeps a device of this workload from it begins; None where none does."""
    uuids = it.lease.devices if it.lease is not None else ()
    if not (world.policy.holds or world.holds or world.booked):
        return None
    begins = [
        hold.from_at
        for hold, held in calendar_of(world, now).look()
        if not is_entitled(hold, it.owner, it.team) and held.intersection(uuids)
    ]
    return min(begins, default=None)


class Kept:
    """What one step keeps from whom."""

    def __init__(self, world: World, now: float) -> None:
        """Begin with what is promised by the calendar; promises of the line come as the step goes down it."""
        self._world, self._now = world, now
        self._queues = {queue.name: queue for queue in world.policy.queues}
        self._has_promises = bool(world.policy.holds or world.holds or world.booked)
        self._looked_up: tuple[int, Calendar] | None = None
        #: Devices coming free that a workload before in line will get.
        self.promised: set[str] = set()
        #: Devices on which somebody before in line will start: when, and their priority.
        self.held_back: dict[str, tuple[float, int]] = {}

    @property
    def holds(self) -> list[tuple[HoldPolicy, frozenset[str]]]:
        """The windows of holds and the reservations for later, each with its devices, as far ahead as one has looked.

        Never empty where anybody is promised anything.
        """
        return self.calendar().kept if self._has_promises else []

    def calendar(self) -> Calendar:
        """Made anew after each grant: what was taken may serve a promise now, and what is free is anybody's then."""
        if self._looked_up is None or self._looked_up[0] != self._world.revision:
            calendar = calendar_of(self._world, self._now)
            calendar.look(self._now + calendar.notice_seconds)
            self._looked_up = (self._world.revision, calendar)
            self._has_promises = not calendar.is_empty
        return self._looked_up[1]

    def go_on(self, now: float) -> None:
        """Some seconds have passed."""
        self._now = now

    def hold_back(self, uuids: Iterable[str], start: float, priority: int) -> None:
        """Nobody later may delay this start; where two wait for a device, the earlier one."""
        for uuid in uuids:
            self.held_back[uuid] = min(self.held_back.get(uuid, (start, priority)), (start, priority))

    def entitlements(self, it: Workload) -> tuple[bool, ...]:
        """For which of the holds it is one of those entitled."""
        return tuple(is_for(hold, it) for hold, _ in self.holds)

    def barred_to(self, it: Workload, *, heed_holds: bool = True) -> set[str]:
        """The devices that it must not get now."""
        barred = set(self.promised)
        if self.held_back and not it.is_booked:  # a promise goes before what is only expected
            # It delays somebody before it by running on, or, where it would be preempted, by being protected. Where not
            # every queue above its own may preempt it, it counts as if none did.
            end = self._now + expected_seconds(self._world, it)
            queue = self._queues.get(it.queue)
            may_be_moved = queue is None or yields_to_all_above(self._world.policy, queue)
            soon = self._now + self.yields_after_seconds(it) if may_be_moved else end
            starts = self.held_back.items()
            barred |= {uuid for uuid, (at, priority) in starts if (soon if priority > it.priority else end) > at}
        if self._has_promises and heed_holds:
            # What was promised ends with its time, however late the word comes that it begins.
            late = window_of(it).until_at if it.is_booked else inf
            gone_by = min(late, self._now + self.sure_to_be_gone_after(it))
            kept = self.calendar().look(gone_by)
            mine = {uuid for hold, uuids in kept if is_for(hold, it) for uuid in uuids}
            for hold, uuids in kept:
                if hold.from_at < gone_by and not is_for(hold, it):
                    barred |= uuids
                    # Also where one that was promised before takes them from it for a part of its time.
                    barred |= set(hold.devices) - mine
        return barred

    def sure_to_be_gone_after(self, it: Workload) -> float:
        """As `yields_after_seconds`; but what states no end and does not yield is never sure to be gone."""
        seconds = self.yields_after_seconds(it)
        states_an_end = it.ask.duration_seconds is not None
        return seconds if states_an_end or self._yields(it) else inf

    def _yields(self, it: Workload) -> bool:
        queue = self._queues.get(it.queue)
        is_preemptible = it.kind is Kind.JOB and queue is not None and queue.preemptible
        return is_preemptible and not has_reached_the_cap(self._world, it, self._now)

    def yields_after_seconds(self, it: Workload) -> int:
        """When it will have left at the latest if a better claim comes: it ends, or has yielded."""
        stated = it.ask.duration_seconds  # what is expected may be far less, but nobody can count on that
        seconds = expected_seconds(self._world, it) if stated is None else stated
        if it.kind is Kind.RESERVATION:
            return seconds
        queue = self._queues.get(it.queue)
        if queue is not None and self._yields(it):
            seconds = min(seconds, queue.protected_seconds)
        return seconds + self.leaves_within_seconds(it)

    def leaves_within_seconds(self, it: Workload) -> int:
        """From the notice to the end of all that runs."""
        return self.grace_of(it) + self._world.policy.kill_after_seconds

    def grace_of(self, it: Workload) -> int:
        """From the notice to the closing SIGTERM."""
        return grace_seconds(self._world.policy, self._queues.get(it.queue), it)


def is_for(hold: HoldPolicy, it: Workload) -> bool:
    """Whether a promise is made to this workload: to its owner, to its team, or to itself."""
    return is_entitled(hold, it.owner, it.team) or (isinstance(hold, Window) and hold.workload == it.id)


def may_extend(world: World, it: Workload, seconds: int, now: float) -> float:
    """6: the end that an extension may have: up to quota, the queue's longest and the next promise; `ends_at` if none.

    In overtime the new time begins now, not at the end that is over.
    """
    if it.lease is None or it.lease.ends_at is None:
        return now
    end = max(it.lease.ends_at, now) + seconds
    queue = world.policy.queue(it.queue)
    if queue is not None and queue.longest_seconds is not None:
        end = min(end, it.lease.granted_at + queue.longest_seconds)
    end = _until_the_next_promise(world, it, end, now)
    left = Ledger(world, now).left_ms(it)
    if left is not None and it.lease.devices:
        # A reservation has paid up to its end, a job up to now.
        paid_until = it.lease.ends_at if it.kind is Kind.RESERVATION else now
        end = min(end, paid_until + left // 1000 // len(it.lease.devices))
    return max(end, it.lease.ends_at)


def _until_the_next_promise(world: World, it: Workload, end: float, now: float) -> float:
    """The latest end up to this one by which nobody gets less than was promised to them."""
    if not (world.policy.holds or world.holds or world.booked) or it.lease is None:
        return end
    before = calendar_of(world, now)
    before.look(end)
    mine = set(it.lease.devices)
    named = [
        hold.from_at
        for hold, uuids in before.kept
        if not isinstance(hold, Window) and mine & uuids and not is_for(hold, it)
    ]
    end = min([end, *named])
    begins = {hold.from_at for hold, _ in before.kept if now < hold.from_at < end}
    for latest in [end, *sorted(begins, reverse=True)]:
        after = calendar_of(world, now, leaving={it.id: leaves_at(world, it, latest, now)})
        after.look(end)
        if not worse(before, after):
            return latest
    return now
