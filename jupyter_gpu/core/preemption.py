"""4 Preempt: whom one step makes yield for whom, and why. It is tried out first, so no preemption is useless."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ..model import Kind, State, Workload, World
from .holds import Kept, is_entitled
from .placement import Room
from .quota import Ledger
from .turns import Turns
from .victims import Victims, is_in_overtime, is_protected

#: Who yields, and why.
Yielding = list[tuple[Workload, str]]


class Preemption:
    """The candidates of one step; nobody is looked at before somebody needs it."""

    def __init__(
        self, world: World, ledger: Ledger, kept: Kept, now: float, turns_of: Collection[int] | None = None
    ) -> None:
        """Nobody yields yet."""
        self._world, self._ledger, self._kept, self._now = world, ledger, kept, now
        #: For whom others may be asked to take turns in this step; None is for everybody.
        self.turns_of = turns_of
        self._victims: Victims | None = None
        self._turns: dict[str, Turns] = {}

    def before_holds(self) -> Iterator[Workload]:
        """Who must leave a device, a grace early, before a hold begins; they are evicted as they come."""
        for hold, uuids in self._kept.holds:
            held = {it.id: it for uuid in sorted(uuids) for it in self._world.holders_of(uuid)}
            for it in held.values():
                is_time = self._now >= hold.from_at - self._kept.leaves_within_seconds(it)
                stays = is_entitled(hold, it.owner, it.team) or it.state is not State.ACTIVE
                if is_time and not stays and self._may_be_moved(it):
                    yield it

    def _may_be_moved(self, it: Workload) -> bool:
        if it.kind is Kind.RESERVATION:
            return is_in_overtime(it, self._now)
        return not is_protected(self._world, it, self._now)

    def choose(self, it: Workload, open_room: Callable[[Workload], Room]) -> Yielding:
        """Who is to yield so that it fits; empty where that would not make it fit."""
        chosen = self._by_right(it, open_room) if self._somebody_may_yield(it) else []
        return chosen or self._in_turns(it, open_room)

    def _by_right(self, it: Workload, open_room: Callable[[Workload], Room]) -> Yielding:
        if self._victims is None:
            self._victims = Victims(self._world, self._ledger, self._now)
        victims = self._victims.choose(it, lambda: open_room(it))
        why = [self._why(it, victim) for victim in victims]
        for victim in victims:
            self._victims.taken(victim)
        return list(zip(victims, why, strict=True))

    def _is_lent(self, asker: Workload, victim: Workload) -> bool:
        """Whether what somebody holds is not their team's own, or both are of one team."""
        return not self._ledger.shares or asker.team == victim.team or self._ledger.is_lent(victim)

    def _why(self, asker: Workload, victim: Workload) -> str:
        if victim.kind is Kind.RESERVATION:
            return "the time that was reserved is over"
        if self._ledger.has_spent_its_budget(victim):
            return "its GPU-hours are used up"
        if asker.priority > victim.priority:
            return f"queue {asker.queue} goes first"
        return f"takes back what is its own, of the {'team' if asker.team != victim.team else 'queue'}"

    def _somebody_may_yield(self, it: Workload) -> bool:
        """Whether it is worth a look at all that run: without shares and budgets only lower work and overtime yield."""
        ledger = self._ledger
        return bool(ledger.shares or ledger.queues) or ledger.has_budgets or any(
            kind is Kind.RESERVATION or priority < it.priority for kind, priority in self._world.live_by
        )  # fmt: skip

    def _in_turns(self, it: Workload, open_room: Callable[[Workload], Room]) -> Yielding:
        """Others of its queue, where they take turns."""
        queue = self._world.policy.queue(it.queue)
        if queue is None or queue.slice_factor is None or it.kind is not Kind.JOB:
            return []
        if self.turns_of is not None and it.id not in self.turns_of:
            return []
        turns = self._turns.get(it.queue)
        if turns is None:
            turns = self._turns[it.queue] = Turns(self._world, it.queue, queue.slice_factor, self._now)
        victims = turns.choose(it, self._kept.barred_to(it), lambda victim: self._is_lent(it, victim))
        if not victims:
            return []
        room = open_room(it)
        for victim in victims:
            room.leave(victim)
        if not room.fits:
            return []
        for victim in victims:
            turns.taken(victim)
        return [(victim, "their turn, or a place where both fit") for victim in victims]
