"""Whether the rules let a reservation for later have its devices then, counted with all that is promised for then."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..errors import LimitExceeded
from ..model import Lease, State, Window, Workload, World
from ..units import format_when
from .bounds import Binding, bounds_of
from .calendar import Calendar
from .lifecycle import paid_ms
from .promises import leaves, window_of
from .quota import Ledger

#: So much work is counted, each time anew, for others whose time begins meanwhile: beyond that the quota of their
#: instant decides, as for everybody.
MOST_COUNTED = 10_000


def refuse_beyond_quota(world: World, it: Workload, calendar: Calendar, now: float) -> None:
    """Whether the rules let it have them then, counted with what is promised and what people hold then.

    The calendar has looked at all that is promised for then, and at this besides.
    """
    if not world.policy.bounds:
        return
    begin, until_at = it.not_before or now, window_of(it).until_at
    then = _Then(world, it, calendar, now)
    if then.is_beyond(it, None):
        count = f"{it.ask.devices} GPU{'' if it.ask.devices == 1 else 's'}"
        raise LimitExceeded(
            f"what you and your team have reserved for {format_when(begin, now)} leaves too little of the quota for "
            f"{count} more",
            hint="`jupyter gpu quota` shows the bounds. Ask for fewer, or for another time.",
        )
    for other in then.others:
        is_meanwhile = begin < (other.not_before or 0.0) < until_at
        if is_meanwhile and then.is_beyond(other, it) and not then.is_beyond(other, None):
            raise LimitExceeded(
                f"{other.title} is promised from {format_when(other.not_before, now)}, and would be beyond the quota "
                "beside this",
                hint="Ask for fewer, or for a time that is over by then.",
            )
        if then.counted > MOST_COUNTED:
            break


class _Then:
    """Who counts beside a reservation for later, each with what they have by then."""

    def __init__(self, world: World, it: Workload, calendar: Calendar, now: float) -> None:
        self._world, self._now = world, now
        counts = _counts_with(world, it)
        self._holders = [(min(leaves(world, one, now)), one) for one in world.holders() if counts(one)]
        booked = (world.workloads[id_] for id_ in sorted(world.booked))
        self.others = sorted((one for one in booked if counts(one)), key=lambda one: (one.not_before or 0.0, one.id))
        self._uuids = {
            window.workload: tuple(sorted(uuids)) for window, uuids in calendar.kept if isinstance(window, Window)
        }
        #: How much work was counted so far, each time anew.
        self.counted = 0

    def is_beyond(self, it: Workload, also: Workload | None) -> bool:
        """Whether the rules keep it from its devices at its instant, with all others and with one more."""
        at = it.not_before or self._now
        then = World(self._world.policy)
        then.devices, then.usage = self._world.devices, self._world.usage.copy()
        self.counted += len(self._holders) + len(self.others)
        for until, holder in self._holders:
            if until > at:
                then.put_workload(holder)
        for other in [*self.others, *([] if also is None else [also])]:
            if other.id != it.id:
                self._let_it_have_been(then, other, at)
        return Ledger(then, at).allowance(it).refusal(it.ask.devices) is not None

    def _let_it_have_been(self, then: World, it: Workload, at: float) -> None:
        """Count a reservation for later as if it had begun, where it has by then."""
        window, uuids = window_of(it), self._uuids.get(it.id)
        if window.from_at > at or not uuids:
            return
        lease = Lease(devices=uuids, pool="", granted_at=window.from_at, ends_at=window.until_at)
        holds = msgspec.structs.replace(it, state=State.ACTIVE, lease=lease, waiting=None)
        for uuid in uuids:
            device_class = then.devices[uuid].device_class
            then.charge(it, device_class=device_class, used=[(window.from_at, paid_ms(holds))])
        if window.until_at > at:
            then.put_workload(holds)


def _counts_with(world: World, it: Workload) -> Callable[[Workload], bool]:
    """Whether somebody's use is counted under a rule under which this one's is; of a firm share all others' is."""
    known: dict[tuple[str, str, str], frozenset[Binding]] = {}

    def bindings(one: Workload) -> frozenset[Binding]:
        whose = (one.owner, one.team, one.queue)
        if whose not in known:
            known[whose] = bounds_of(world.policy.bounds, (*whose, None), world.layout.classes).depends_on
        return known[whose]

    if not all(queue.may_borrow for queue in world.policy.queues):
        return lambda _: True
    mine = bindings(it)
    return lambda one: not mine.isdisjoint(bindings(one))
