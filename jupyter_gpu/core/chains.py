"""Chains: what a job comes after, and what becomes of those who wait when a workload ends, whatever ended it.

A plain dependency is met by any end, save that of a job which was cancelled before it ever began: who asked for "after"
wanted what it would have done, or left behind. One for success is met by success alone. What can be met no more ends
as *dependency-unmet* in the same step, and with it whatever waits for that: nothing waits for what does not come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..errors import Conflict, InvalidAsk, LimitExceeded, NotFound
from ..model import Dependency, EndReason, Kind, State, Workload, World
from .events import Amended, Ended, Event
from .lifecycle import evolve

#: So many ends the waiting jobs of one owner may wait for: all of them are told in one step, in which nobody is served.
MOST_LINKS = 5_000
#: So much of a long path is told: where it begins is what helps.
MOST_TOLD = 400

#: And of a circle so many of its jobs.
_LONG_WAY = 20

_NEVER_BEGAN = frozenset({EndReason.CANCELLED, EndReason.DEPENDENCY_UNMET})


class Links(NamedTuple):
    """What a job comes after: each once, those it waits for; and one that it would wait for in vain, then for none."""

    after: tuple[Dependency, ...]
    unmet: tuple[int, ...]
    broken: tuple[Workload, Dependency] | None


def refuse_too_many_links(world: World, owner: str, more: int) -> None:
    """Refuse what would have an owner's jobs wait for more ends than can be told in one step."""
    if more > 0 and (links := world.links_by.get(owner, 0)) + more > MOST_LINKS:
        raise LimitExceeded(
            f"the waiting jobs of {owner} wait for {links} ends already; {more} more would be above {MOST_LINKS}, "
            "which is the most",
            hint="Let one job come after the others, and start what follows from it; or submit a smaller array.",
        )


def linked(world: World, after: Iterable[Dependency], past: Iterable[Workload]) -> Links:
    """Look up what is to be waited for. `past` are those that the world keeps no more."""
    wanted: dict[int, bool] = {}
    for asked in after:
        wanted[asked.workload] = wanted.get(asked.workload, False) or asked.ok
    if not wanted:
        return Links((), (), None)
    known, gone = world.workloads, {it.id: it for it in past}
    merged = tuple(Dependency(workload=id_, ok=ok) for id_, ok in wanted.items())
    firsts = [_first_of(known, gone, dependency) for dependency in merged]
    unmet = []
    for first, dependency in zip(firsts, merged, strict=True):
        is_awaited = False
        # Those that neither has have ended long ago, and met it. Arrays are long, and many come after the same one.
        for id_ in first.member.ids if first.member is not None and first.member.array == first.id else (first.id,):
            it = known.get(id_) or gone.get(id_)
            if it is None or it.end is EndReason.SUCCEEDED:
                continue
            if is_lost(it, dependency):
                return Links(merged, (), (it, dependency))
            is_awaited = is_awaited or it.state is not State.ENDED
        if is_awaited:
            unmet.append(dependency.workload)
    return Links(merged, tuple(unmet), None)


def _first_of(known: Mapping[int, Workload], gone: Mapping[int, Workload], dependency: Dependency) -> Workload:
    """The workload that a dependency names, the first of its array where it means one."""
    first = known.get(dependency.workload) or gone.get(dependency.workload)
    if first is None:
        raise NotFound(
            f"there is no workload {dependency.workload}", hint="`jupyter gpu queue --all` lists what you may see."
        )
    if dependency.ok and first.kind is Kind.RESERVATION:
        raise InvalidAsk(
            f"{first.title} cannot succeed: a reservation is given back", hint="Come after its end instead."
        )
    return first


def is_lost(parent: Workload, dependency: Dependency) -> bool:
    """Whether a workload has ended in a way that does not meet a dependency on it."""
    if parent.state is not State.ENDED:
        return False
    if dependency.ok:
        return parent.end is not EndReason.SUCCEEDED
    return parent.attempt == 0 and parent.end in _NEVER_BEGAN


def chained(world: World, it: Workload, links: Links) -> None:
    """Refuse what a queued job cannot come after: itself, whoever waits for it, and what it would wait for in vain."""
    path = _way_back(world, it, links.unmet)
    if path:
        raise Conflict(
            f"{it.title} would wait for itself: {_way(path)}, each after the next",
            hint=f"Leave {path[1]} out, or let {path[-2]} come after something else first."
            if path[1] != it.id
            else "Leave it out.",
        )
    if links.broken is not None:
        raise Conflict(
            f"it would never start: {why_never(it, *links.broken)}", hint="Let it come after something else."
        )


def _way(path: Sequence[int]) -> str:
    """A path in few words: of a long one its two ends."""
    if len(path) <= _LONG_WAY:
        return " → ".join(map(str, path))
    begin, end = path[: _LONG_WAY // 2], path[-_LONG_WAY // 2 :]
    left = len(path) - len(begin) - len(end)
    return f"{' → '.join(map(str, begin))} → ({left} more) → {' → '.join(map(str, end))}"


def _way_back(world: World, it: Workload, unmet: Iterable[int]) -> list[int]:
    """The shortest way from a job over what it would wait for back to itself; empty where there is none.

    Found from behind, over those who wait for it: of what they wait for, the beginning may be forgotten already.
    """
    wanted = set(unmet)
    before: dict[int, int] = {}
    line = deque([it.id])
    while line:
        id_ = line.popleft()
        member = world.workloads[id_].member
        names = {id_} if member is None else {id_, member.array}
        if not wanted.isdisjoint(names):
            path = [it.id]
            while id_ != it.id:
                path.append(id_)
                id_ = before[id_]
            return [*path, it.id]
        for child in (child for name in names for child in world.children_of(name)):
            if child not in before and child != it.id:
                before[child] = id_
                line.append(child)
    return []


def follow(world: World, events: Iterable[Event], now: float) -> list[Event]:
    """What these events mean for those who wait for what has ended by them; the world is evolved by it.

    Called for every command between what is its own and the planner's step, so it holds however something ended.
    """
    if not world.children:
        return []
    found: list[Event] = []
    over = deque(it for e in events if isinstance(e, Ended) and (it := world.workloads.get(e.workload)) is not None)
    while over:
        parent = over.popleft()
        of_array = () if parent.member is None else world.children_of(parent.member.array)
        array_is_over = bool(of_array) and _is_over(world, parent)
        if parent.end is EndReason.SUCCEEDED and not array_is_over:
            of_array = ()  # whatever they ask for, they wait on while one after another of it succeeds
        for child in dict.fromkeys((*world.children_of(parent.id), *of_array)):
            event = _followed(world, world.workloads[child], parent, now, array_is_over=array_is_over)
            if event is not None:
                found.append(event)
            if isinstance(event, Ended):
                over.append(world.workloads[child])
    return found


def _followed(
    world: World, child: Workload, parent: Workload, now: float, *, array_is_over: bool
) -> Amended | Ended | None:
    """What the end of one brings to another, with the world evolved by it.

    An end stands, whoever waits for it: a fault of ours over one of those, who may be somebody else's, must not keep
    anybody's devices. That one ends, and says why; where not even that can be, it is left as it was.
    """
    try:
        event = _after_end(child, parent, now, array_is_over=array_is_over)
        if event is not None:
            evolve(world, event)
    except Exception as fault:  # noqa: BLE001 - whatever it is, the event says it
        said = (
            f"the broker failed to find out what the end of {parent.kind} {parent.id} means for it "
            f"({type(fault).__name__}), which is a fault of the broker: please report it, and submit the job again"
        )
        event = Ended(at=now, workload=child.id, end=EndReason.DEPENDENCY_UNMET, detail=said)
        try:
            evolve(world, event)
        except Exception:  # noqa: BLE001 - as above
            return None
    return event


def _after_end(child: Workload, parent: Workload, now: float, *, array_is_over: bool) -> Amended | Ended | None:
    """What the end of one of those whom it waits for brings to a job."""
    array = None if parent.member is None else parent.member.array
    concerned = [it for it in child.after if it.workload in {parent.id, array} and it.workload in child.unmet]
    for dependency in concerned:
        if is_lost(parent, dependency):
            detail = why_never(child, parent, dependency)
            return Ended(at=now, workload=child.id, end=EndReason.DEPENDENCY_UNMET, detail=detail)
    over = {it.workload for it in concerned if it.workload != array or array_is_over}
    if not over:
        return None
    left = tuple(id_ for id_ in child.unmet if id_ not in over)
    detail = f"all of array {array} have ended" if array in over else f"{_name(parent, child)} ended ({parent.end})"
    return Amended(at=now, workload=child.id, unmet=left, detail=detail)


def _is_over(world: World, member: Workload) -> bool:
    """Whether all of an array have ended. The last are looked at first: mostly they are the last to end."""
    ids = member.member.ids if member.member is not None else range(0)
    found = (world.workloads.get(id_) for id_ in reversed(ids))
    return all(it is None or it.state is State.ENDED for it in found)


def why_never(child: Workload, parent: Workload, dependency: Dependency) -> str:
    """The path in words: "job 12 (prep) was cancelled before it began, and job 13 was to come after it"."""
    if parent.end is EndReason.DEPENDENCY_UNMET and parent.owner == child.owner:
        said = parent.detail
        if len(said) > MOST_TOLD:
            said = said[:MOST_TOLD].rpartition(", and ")[0] + ", and so on"
        return f"{said}, and {child.title} after {parent.kind} {parent.id}"
    began = parent.attempt > 0 or parent.end is not EndReason.CANCELLED
    how = _HOW.get(parent.end, f"ended ({parent.end})") if began else "was cancelled before it began"
    what = "its success" if dependency.ok else "it"
    return f"{_name(parent, child)} {how}, and {child.title} was to come after {what}"


_HOW: dict[EndReason | None, str] = {
    EndReason.CANCELLED: "was cancelled",
    EndReason.FAILED: "failed",
    EndReason.DEPENDENCY_UNMET: "waited in vain for something else",
}


def _name(parent: Workload, child: Workload) -> str:
    """How a job's own words name another: what somebody else calls theirs is not for its owner to read."""
    return parent.title if parent.owner == child.owner else f"{parent.kind} {parent.id}"
