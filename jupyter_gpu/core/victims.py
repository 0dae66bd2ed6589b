"""Who yields for a better claim: the right to preempt, the order of the victims, and the smallest sufficient set.

Useless preemption is impossible: the removal is simulated first, and only a set that makes the ask fit is returned;
what turned out not to be needed is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, islice

from ..model import Kind, Policy, QueuePolicy, State, Workload, World
from .lifecycle import DAY_SECONDS
from .placement import Room, suits
from .quota import Ledger

#: Where who leaves first shields what is needed, so many others are tried.
MOST_TRIED = 64


def is_in_overtime(it: Workload, now: float) -> bool:
    """Whether a reservation holds on past its end because nobody waited."""
    return (
        it.kind is Kind.RESERVATION
        and it.state is State.ACTIVE
        and it.lease is not None
        and it.lease.ends_at is not None
        and it.lease.ends_at <= now
    )


def has_reached_the_cap(world: World, it: Workload, now: float) -> bool:
    """Whether a job was preempted as often within a day as it may be."""
    cap = world.policy.preemptions_per_day
    return len(it.preempted_at) >= cap and sum(1 for at in it.preempted_at if at > now - DAY_SECONDS) >= cap


def is_protected(world: World, it: Workload, now: float) -> bool:
    """Whether nobody may preempt this job now: its queue never yields, or its protected time runs, or it is capped."""
    queue = world.policy.queue(it.queue)
    if queue is None or not queue.preemptible or it.active_at is None:
        return True
    return now < it.active_at + queue.protected_seconds or has_reached_the_cap(world, it, now)


def yields_to(queue: QueuePolicy | None, asker: str) -> bool:
    """Whether work of a queue may be moved for work of another one, of a higher priority."""
    return queue is not None and (queue.preempted_by is None or asker in queue.preempted_by)


def yields_to_all_above(policy: Policy, queue: QueuePolicy) -> bool:
    """Whether that holds for every queue of a higher priority."""
    return all(yields_to(queue, other.name) for other in policy.queues if other.priority > queue.priority)


class Victims:
    """The candidates of one step, in the order in which they yield."""

    def __init__(self, world: World, ledger: Ledger, now: float) -> None:
        """Look at the live workloads once."""
        self._world, self._ledger, self._now = world, ledger, now
        protected = {queue.name: queue.protected_seconds for queue in world.policy.queues if queue.preemptible}
        self._settled_before = {name: now - seconds for name, seconds in protected.items()}
        keyed = [(self._key(it), it) for it in world.holders() if it.state is State.ACTIVE and self._may_yield(it)]
        self._found = [it for _, it in sorted(keyed, key=lambda pair: pair[0])]

    def _may_yield(self, it: Workload) -> bool:
        if it.lease is None or not it.lease.devices:
            return False
        if it.kind is Kind.RESERVATION:
            return is_in_overtime(it, self._now)
        # As `is_protected` says, with what there is to look up looked up once.
        before = self._settled_before.get(it.queue)
        return (
            before is not None
            and it.active_at is not None
            and it.active_at <= before
            and not has_reached_the_cap(self._world, it, self._now)
        )

    def _key(self, it: Workload) -> tuple[int, int, bool, float, float, int]:
        """Overtime, spent budgets, lowest priority, borrowers, least work at risk, youngest; it ends in the id."""
        first = 0 if it.kind is Kind.RESERVATION else 1 if self._ledger.has_spent_its_budget(it) else 2
        begun = self._now if it.active_at is None else it.active_at
        at_risk = (self._now - begun) * it.ask.devices
        return (first, it.priority, not self._ledger.is_borrowing(it), at_risk, -begun, -it.id)

    def _has_right(self, asker: Workload, victim: Workload) -> bool:
        """Overtime and spent budgets yield to all; else the better claim is the higher priority or the share.

        Where teams have shares, a higher priority moves work of its own team and what is lent, never what another
        team holds of its own. What a queue holds of its own no other queue moves; a queue takes its own back from
        others whatever their priority.
        """
        ledger = self._ledger
        if victim.kind is Kind.RESERVATION:
            return True
        if asker.priority >= victim.priority and ledger.has_spent_its_budget(victim):
            return True
        lent = not ledger.shares or asker.team == victim.team or ledger.is_lent(victim)
        if ledger.queues and asker.queue != victim.queue:
            if not ledger.queues.is_beyond(victim.queue):
                return False
            if lent and ledger.is_queues_own(asker.queue, asker.ask.devices):
                return True
        if asker.priority > victim.priority:
            return lent and yields_to(self._world.policy.queue(victim.queue), asker.queue)
        if asker.priority < victim.priority or asker.team == victim.team:
            return False
        return ledger.is_within_share(asker) and ledger.is_lent(victim)

    def choose(self, asker: Workload, open_room: Callable[[], Room]) -> list[Workload]:
        """Remove in order until `asker` fits, then put back what is not needed, the best first; empty if it never fits.

        `open_room` gives the room without any victim. Of a team or a queue no more is taken back than it borrows. So
        what leaves early may shield what is needed: where that is so, others are tried, each without some of the first.
        """
        there = [victim for victim in self._found if self._is_of_use(asker, victim) and self._has_right(asker, victim)]
        for some in self._trials(there):
            chosen, fits, shielded = self._remove(asker, some, open_room())
            if fits:
                return self._put_back(chosen, open_room)
            if some is there and not shielded:
                return []
        return []

    def _trials(self, there: list[Workload]) -> Iterator[list[Workload]]:
        """All of them; those of one node at a time, since an ask is on one; then all but some."""
        yield there
        for node in dict.fromkeys(self._node(it) for it in there):
            yield [it for it in there if self._node(it) == node]
        without = (left_out for count in range(1, len(there)) for left_out in combinations(there, count))
        for left_out in islice(without, MOST_TRIED):
            yield [it for it in there if it not in left_out]

    def _remove(self, asker: Workload, those: list[Workload], room: Room) -> tuple[list[Workload], bool, bool]:
        """Who leaves until it fits, whether it fits then, and whether the first to leave shielded any of the others."""
        chosen, shielded = list[Workload](), False
        for victim in those:
            if not self._has_right(asker, victim):
                shielded = True
                continue
            chosen.append(victim)
            self._ledger.leaves(victim)
            if room.leave(victim).fits:
                break
        for victim in chosen:
            self._ledger.leaves(victim, -1)
        return chosen, room.fits, shielded

    @staticmethod
    def _put_back(chosen: list[Workload], open_room: Callable[[], Room]) -> list[Workload]:
        """Without those that it fits without, the last of them first; who made it fit is needed."""
        room = open_room()
        for victim in chosen:
            room.leave(victim)
        needed = [victim for victim in chosen if room.concerns(victim)]
        for victim in reversed(needed[:-1]):
            fewer = [other for other in needed if other is not victim]
            room = open_room()
            for other in fewer:
                room.leave(other)
            needed = fewer if room.fits else needed
        return needed

    def _is_of_use(self, asker: Workload, victim: Workload) -> bool:
        """Whether any of its devices is of the kind that is asked for."""
        uuids = victim.lease.devices if victim.lease is not None else ()
        return any(suits(device, asker.ask) for device in map(self._world.devices.__getitem__, uuids))

    def _node(self, victim: Workload) -> tuple[str, str]:
        device = self._world.devices[victim.lease.devices[0]] if victim.lease is not None else None
        return ("", "") if device is None else (device.pool, device.node)

    def taken(self, victim: Workload) -> None:
        """It yields now and is no candidate any more."""
        self._found.remove(victim)


def grace_seconds(policy: Policy, queue: QueuePolicy | None, it: Workload) -> int:
    """From notice to the closing SIGTERM: what the job asked for, else its queue's, or more where it needed more.

    For a job never too long, not even where it was let in under an older policy: others wait for it now.
    """
    if it.kind is Kind.RESERVATION:
        return policy.reservation_grace_seconds
    asked = None if it.spec is None else it.spec.grace_seconds
    if asked is None:
        usual = 120 if queue is None else queue.grace_seconds
        asked = usual if it.learnt_grace is None else max(usual, it.learnt_grace.seconds)
    return min(asked, policy.most_grace_seconds)
