"""Lanes: the queued workloads that are alike in all that a step of the planner looks at."""

from __future__ import annotations

from weakref import WeakValueDictionary

from .nouns import Workload
from .states import Kind


class Lane:
    """The queued workloads that are alike in all that a step of the planner looks at: they get one answer.

    Equal lanes are one object, and so are their equal parts, so that ten thousand workloads are told apart by
    identity, which is quick. `asker` is what quotas look at, `what` is what devices look at.
    """

    __slots__ = ("__weakref__", "array", "asker", "at_most", "comes_after", "devices", "team", "waiting", "what")

    def __init__(self, asker: Part, what: Part, it: Workload) -> None:
        """Only `lane_of` makes lanes."""
        self.asker, self.what = asker, what
        self.team, self.devices, self.waiting = it.team, it.ask.devices, it.waiting
        #: They wait for the end of other work.
        self.comes_after = bool(it.unmet)
        #: Of an array of which only so many run at once; such an array is in lanes of its own.
        self.array: int | None
        self.at_most: int | None
        self.array, self.at_most = _bounded_array(it)


class Part:
    """A part of lanes, known by its identity."""

    __slots__ = ("__weakref__",)


_LANES: WeakValueDictionary[tuple[object, ...], Lane] = WeakValueDictionary()
_PARTS: WeakValueDictionary[tuple[object, ...], Part] = WeakValueDictionary()


def lane_of(it: Workload) -> Lane:
    """The lane that a queued workload stands in once nothing of its own keeps it from starting."""
    grace_seconds = it.spec.grace_seconds if it.spec is not None else None
    price = it.ask.duration_seconds if it.kind is Kind.RESERVATION else None
    asker = _part(it.owner, it.team, it.queue, it.kind, it.ask.device_class, price)
    place = (it.avoids, it.avoids_until)
    what = _part(it.ask, it.queue, it.kind, it.priority, it.lifted, it.preempted_at, grace_seconds, place)
    key = (asker, what, it.waiting, bool(it.unmet), _bounded_array(it))
    lane = _LANES.get(key)
    if lane is None:
        lane = _LANES[key] = Lane(asker, what, it)
    return lane


def _bounded_array(it: Workload) -> tuple[int, int] | tuple[None, None]:
    if it.member is None or it.member.at_most is None:
        return None, None
    return it.member.array, it.member.at_most


def _part(*key: object) -> Part:
    part = _PARTS.get(key)
    if part is None:
        part = _PARTS[key] = Part()
    return part
