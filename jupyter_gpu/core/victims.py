"""Who yields for a better claim: the right to preempt, the order of the victims, and the smallest sufficient set.

Useless preemption is impossible: the removal is simulated first, and only a set that makes the ask fit is returned;
what turned out not to be needed is put back.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import Kind, QueuePolicy, State, Workload, World
from .lifecycle import DAY_SECONDS
from .quota import Ledger

Fits = Callable[[set[str]], tuple[str, ...] | None]


def is_in_overtime(it: Workload, now: float) -> bool:
    """Whether a reservation holds on past its end because nobody waited."""
    return (
        it.kind is Kind.RESERVATION
        and it.state is State.ACTIVE
        and it.lease is not None
        and it.lease.ends_at is not None
        and it.lease.ends_at <= now
    )


def is_protected(world: World, it: Workload, now: float) -> bool:
    """Whether nobody may preempt this job now: its queue does not yield, its protected time runs, or its cap is reached."""
    queue = world.policy.queue(it.queue)
    if queue is None or not queue.preemptible or it.active_at is None:
        return True
    recent = sum(1 for at in it.preempted_at if at > now - DAY_SECONDS)
    return now < it.active_at + queue.protected_seconds or recent >= world.policy.preemptions_per_day


class Victims:
    """The candidates of one step, in the order in which they yield."""

    def __init__(self, world: World, ledger: Ledger, now: float) -> None:
        """Look at the live workloads once."""
        self._world, self._ledger, self._now = world, ledger, now
        self._found = [it for it in world.holders() if it.state is State.ACTIVE and self._may_yield(it)]
        self._found.sort(key=self._key)

    def _may_yield(self, it: Workload) -> bool:
        if it.kind is Kind.RESERVATION:
            return is_in_overtime(it, self._now)
        return not is_protected(self._world, it, self._now)

    def _key(self, it: Workload) -> tuple[int, int, int, float, float, int]:
        """Overtime, spent budgets, lowest priority, borrowers, least work at risk, youngest; it ends in the id."""
        if it.kind is Kind.RESERVATION:
            first = 0
        else:
            first = 1 if self._ledger.has_spent_its_budget(it) else 2
        begun = it.active_at or self._now
        at_risk = (self._now - begun) * it.ask.devices
        return (first, it.priority, not self._ledger.is_borrowing(it), at_risk, -begun, it.id)

    def _has_right(self, asker: Workload, victim: Workload) -> bool:
        if victim.kind is Kind.RESERVATION or asker.priority > victim.priority:
            return True
        if asker.priority == victim.priority and self._ledger.has_spent_its_budget(victim):
            return not self._ledger.has_spent_its_budget(asker)
        reclaims = self._ledger.is_within_share(asker) and asker.team != victim.team
        return reclaims and self._ledger.is_borrowing(victim) and asker.priority >= victim.priority

    def choose(self, asker: Workload, fits: Fits) -> list[Workload]:
        """The smallest prefix-minus-unneeded whose devices make `asker` fit; empty where none does."""
        chosen: list[Workload] = []
        given: set[str] = set()
        for victim in self._found:
            if not self._has_right(asker, victim) or victim.lease is None:
                continue
            chosen.append(victim)
            given.update(victim.lease.devices)
            if fits(given) is not None:
                break
        else:
            return []
        for victim in chosen[:-1]:
            fewer = given.difference(victim.lease.devices if victim.lease is not None else ())
            if fits(fewer) is not None:
                chosen.remove(victim)
                given = fewer
        return chosen

    def taken(self, victim: Workload) -> None:
        """It yields now and is no candidate any more."""
        self._found.remove(victim)


def grace_seconds(queue: QueuePolicy | None, it: Workload, reservation_grace_seconds: int) -> int:
    """From notice to the closing SIGTERM: what the job asked for, else its queue's."""
    if it.kind is Kind.RESERVATION:
        return reservation_grace_seconds
    if it.spec is not None and it.spec.grace_seconds is not None:
        return it.spec.grace_seconds
    return 120 if queue is None else queue.grace_seconds
