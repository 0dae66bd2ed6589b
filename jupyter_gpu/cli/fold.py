"""Lists in which an array is one row. Pure: workloads in, groups of them and words for a group out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..model import State, WorkloadView
from .text import gpus_text, how_it_goes, state_word

#: What stands in one row: a workload alone, or those of an array that a list has.
Row = Sequence[WorkloadView]


def fold(items: Iterable[WorkloadView]) -> list[Row]:
    """Put those of an array together, where the first of them stands."""
    groups: dict[tuple[str, int], list[WorkloadView]] = {}
    for it in items:
        key = ("alone", it.id) if it.member is None else ("array", it.member.array)
        groups.setdefault(key, []).append(it)
    return list(groups.values())


def id_of(group: Row) -> int:
    """Give the number of a row: of an array that of its first, by which it is named."""
    it = group[0]
    return it.member.array if len(group) > 1 and it.member is not None else it.id


def name_of(group: Row) -> str:
    """Give the name of a row, else its command; of an array what its commands have in common."""
    it = group[0]
    if it.name or len(group) == 1:
        return it.name or it.command
    words = [one.command.split() for one in group]
    if len({len(its) for its in words}) > 1:
        return it.command.partition(" ")[0] + " …"
    return " ".join(its[0] if len(set(its)) == 1 else "…" for its in zip(*words, strict=True))


def state_of(group: Row) -> str:
    """Say in one word where a row stands: what most concerns its owner."""
    if len(group) == 1:
        return state_word(group[0])
    states = {it.state for it in group}
    for state in (State.YIELDING, State.ACTIVE):
        if state in states:
            return str(State.ACTIVE)
    words = {state_word(it) for it in group if it.state is State.QUEUED} or {state_word(it) for it in group}
    return words.pop() if len(words) == 1 else str(State.QUEUED if State.QUEUED in states else State.ENDED)


def how_they_go(group: Row, numbers: Mapping[str, str], now: float, *, is_whole: bool) -> str:
    """Say in a few words how a row goes; of an array how many of it, and what the running ones hold.

    `is_whole` where the list has all that have not ended, so that what is missing from it is over.
    """
    if len(group) == 1:
        return how_it_goes(group[0], numbers, now)
    live = [it for it in group if it.state in (State.ACTIVE, State.YIELDING)]
    if len(live) > 1:
        said = gpus_text(dict.fromkeys(uuid for it in live for uuid in it.devices), numbers)
    else:
        waiting = [it for it in group if it.state is State.QUEUED]
        last = max(group, key=lambda it: it.ended_at or 0.0)
        said = how_it_goes((live or waiting or [last])[0], numbers, now)
    return f"{counts_text(group, is_whole=is_whole)} {said}"


def counts_text(group: Row, *, is_whole: bool) -> str:
    """Count an array: "[5: 2 run, 3 wait]"."""
    member = group[0].member
    of = len(group) if member is None else member.of
    live = sum(it.state in (State.ACTIVE, State.YIELDING) for it in group)
    waiting = sum(it.state is State.QUEUED for it in group)
    ends = Counter(str(it.end) for it in group if it.state is State.ENDED)
    parts = [_count(live, "run"), _count(waiting, "wait"), *(f"{count} {end}" for end, count in ends.most_common())]
    if is_whole and of > len(group):
        parts.append(f"{of - len(group)} over")
    return f"[{of}: {', '.join(filter(None, parts))}]"


def _count(count: int, verb: str) -> str:
    return f"{count} {verb}{'s' if count == 1 else ''}" if count else ""
