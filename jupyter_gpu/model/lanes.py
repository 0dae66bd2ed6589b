"""The line, and its lanes: the queued workloads that are alike in all that a step of the planner looks at."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import count
from weakref import WeakValueDictionary

from .nouns import Workload
from .states import Kind

LineKey = tuple[int, bool, int, int]


def line_key(workload: Workload) -> LineKey:
    """The one comparison of the line: priority, lifted first, rank, and at last the id, so no two are equal."""
    return (-workload.priority, not workload.lifted, workload.rank_ms, workload.id)


class Lane:
    """The queued workloads that are alike in all that a step of the planner looks at: they get one answer.

    Equal lanes are one object, and so are their equal parts, so that ten thousand workloads are told apart by
    identity, which is quick. `asker` is what quotas look at, `what` is what devices look at.
    """

    __slots__ = (
        "__weakref__",
        "array",
        "asker",
        "at_most",
        "comes_after",
        "devices",
        "number",
        "queue",
        "team",
        "waiting",
        "what",
    )

    def __init__(self, asker: Part, what: Part, it: Workload) -> None:
        """Only `lane_of` makes lanes."""
        self.asker, self.what = asker, what
        #: Only to keep its own together: another process numbers them otherwise.
        self.number = next(_NUMBERS)
        self.team, self.queue, self.devices, self.waiting = it.team, it.queue, it.ask.devices, it.waiting
        #: They wait for the end of other work.
        self.comes_after = bool(it.unmet)
        #: Of an array of which only so many run at once; such an array is in lanes of its own.
        self.array: int | None
        self.at_most: int | None
        self.array, self.at_most = _bounded_array(it)


_NUMBERS = count(1)


class Part:
    """A part of lanes, known by its identity."""

    __slots__ = ("__weakref__",)


_LANES: WeakValueDictionary[tuple[object, ...], Lane] = WeakValueDictionary()
_PARTS: WeakValueDictionary[tuple[object, ...], Part] = WeakValueDictionary()


def lane_of(it: Workload) -> Lane:
    """The lane that a queued workload stands in once nothing of its own keeps it from starting."""
    stated = it.spec.grace_seconds if it.spec is not None else None
    grace = (stated, it.learnt_grace.seconds if it.learnt_grace is not None else None)
    price = it.ask.duration_seconds if it.kind is Kind.RESERVATION else None
    asker = _part(it.owner, it.team, it.queue, it.kind, it.ask.device_class, price, it.ask.memory_bytes)
    place = (it.avoids, it.avoids_until)
    what = _part(it.ask, it.queue, it.kind, it.priority, it.lifted, it.preempted_at, grace, place, it.worked_seconds)
    key = (asker, what, it.waiting, bool(it.unmet), _bounded_array(it))
    lane = _LANES.get(key)
    if lane is None:
        lane = _LANES[key] = Lane(asker, what, it)
    return lane


def lane_or_none(it: Workload) -> Lane | None:
    """None where something of its own keeps it from starting."""
    own = it.paused or it.not_before is not None or it.back_off_until is not None
    return None if own else lane_of(it)


def _bounded_array(it: Workload) -> tuple[int, int] | tuple[None, None]:
    if it.member is None or it.member.at_most is None:
        return None, None
    return it.member.array, it.member.at_most


def _part(*key: object) -> Part:
    part = _PARTS.get(key)
    if part is None:
        part = _PARTS[key] = Part()
    return part


class Lanes:
    """Who stands in which lane, and the first of each: a step looks at these instead of at ten thousand workloads."""

    __slots__ = ("_by_lane", "heads", "of")

    def __init__(self) -> None:
        """Begin with nobody."""
        #: Workload -> its lane; None for those that something of their own keeps from starting.
        self.of: dict[int, Lane | None] = {}
        #: The first of each lane, and all that stand in none, in the order of the line.
        self.heads: list[tuple[LineKey, Lane | None]] = []
        self._by_lane: list[tuple[int, LineKey]] = []

    def copy(self) -> Lanes:
        """Lanes that can go their own way."""
        other = Lanes()
        other.of, other.heads, other._by_lane = self.of.copy(), self.heads.copy(), self._by_lane.copy()
        return other

    def __eq__(self, other: object) -> bool:
        """Whether the same stand in the same order."""
        return isinstance(other, Lanes) and (self.of, self.heads, self._by_lane) == (
            other.of, other.heads, other._by_lane
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    def put(self, key: LineKey, lane: Lane | None) -> None:
        """Somebody joins the line."""
        self.of[key[3]] = lane
        if lane is None:
            insort(self.heads, (key, None))
            return
        entries, number = self._by_lane, lane.number
        at = bisect_left(entries, (number, key))
        if at == 0 or entries[at - 1][0] != number:
            if at < len(entries) and entries[at][0] == number:
                self._drop_head(entries[at][1])
            insort(self.heads, (key, lane))
        entries.insert(at, (number, key))

    def drop(self, key: LineKey) -> None:
        """Somebody leaves the line."""
        lane = self.of.pop(key[3])
        if lane is None:
            self._drop_head(key)
            return
        entries, number = self._by_lane, lane.number
        at = bisect_left(entries, (number, key))
        del entries[at]
        if at == 0 or entries[at - 1][0] != number:
            self._drop_head(key)
            if at < len(entries) and entries[at][0] == number:
                insort(self.heads, (entries[at][1], lane))

    def members(self, lane: Lane, key: LineKey) -> list[LineKey]:
        """All of a lane from one of them on, in the order of the line."""
        begin = bisect_left(self._by_lane, (lane.number, key))
        end = bisect_left(self._by_lane, (lane.number + 1,), begin)
        return [key for _, key in self._by_lane[begin:end]]

    def after(self, lane: Lane, key: LineKey) -> LineKey | None:
        """The next of a lane behind somebody who is, or was, in it; None behind the last."""
        at = bisect_left(self._by_lane, (lane.number, (*key, 0)))
        number, following = self._by_lane[at] if at < len(self._by_lane) else (0, key)
        return following if number == lane.number else None

    def _drop_head(self, key: LineKey) -> None:
        del self.heads[bisect_left(self.heads, (key,))]  # the shorter of two comes first
