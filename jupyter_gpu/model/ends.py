"""When those that hold devices are expected to give them back, kept in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from .nouns import Workload
from .states import State

#: Who outlives an expectation is expected to take half as long again as until then, and never less than this.
OVERRUN_SECONDS = 3600.0


def due_at(it: Workload) -> float:
    """When a live workload is due to leave: the end of its grace, what was bought, else what was expected of it."""
    if it.state is State.YIELDING:
        return it.yield_by or it.released_at or 0.0
    if it.lease is None:
        return 0.0
    ends_at = it.lease.ends_at if it.lease.expected_end_at is None else it.lease.expected_end_at
    return it.lease.granted_at if ends_at is None else ends_at


def due_after(it: Workload, now: float) -> float:
    """The same for one that has outlived that: what is expected of it now. What was bought stays the end."""
    due = due_at(it)
    if due > now or it.state is State.YIELDING or it.lease is None:
        return due
    ends_at, granted_at = it.lease.ends_at, it.lease.granted_at
    if ends_at is not None and (it.lease.expected_end_at is None or ends_at <= now):
        return ends_at
    due = now + max(OVERRUN_SECONDS, (now - granted_at) / 2)
    return due if ends_at is None else min(due, ends_at)


class Ends:
    """The live workloads, by when they are due to leave."""

    __slots__ = ("_due", "order")

    def __init__(self) -> None:
        """Begin with nobody."""
        self._due: dict[int, float] = {}
        self.order: list[tuple[float, int]] = []

    def copy(self) -> Ends:
        """One that can go its own way."""
        other = Ends()
        other._due, other.order = self._due.copy(), self.order.copy()
        return other

    def __eq__(self, other: object) -> bool:
        """Whether it is of the same: when they are due depends on when it was asked last."""
        return isinstance(other, Ends) and self._due.keys() == other._due.keys()

    __hash__ = None  # type: ignore[assignment]

    def put(self, it: Workload) -> None:
        """Somebody holds devices, or holds them in another way."""
        self.drop(it.id)
        self._due[it.id] = due = due_at(it)
        insort(self.order, (due, it.id))

    def drop(self, workload_id: int) -> None:
        """They do no more."""
        due = self._due.pop(workload_id, None)
        if due is not None:
            del self.order[bisect_left(self.order, (due, workload_id))]

    def due(self, workload_id: int) -> float:
        """When one is due to leave, as far as it was expected anew."""
        return self._due[workload_id]

    def advance(self, now: float, workloads: Mapping[int, Workload]) -> None:
        """Expect those anew who have outlived what was expected of them: each so often as its age grows by half."""
        overdue = self.order[: bisect_left(self.order, (now,))]
        for _, id_ in overdue:
            due = due_after(workloads[id_], now)
            if due > now:
                self.drop(id_)
                self._due[id_] = due
                insort(self.order, (due, id_))
