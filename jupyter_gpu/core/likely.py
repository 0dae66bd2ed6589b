"""How long work may still run, as a quantile: of what its owner, their team and everybody ran of late.

`forecast` makes one expectation of these lengths, for the order of the line. Who asks when a device comes free asks for
more: what is likely of one that has run for so long already, and of that the early and the late.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from ..model import State, Workload, World

#: What the wider kinds of work say counts as much as so many lengths of the narrower, as in `forecast`.
_AS_MANY = 2
_HALF = 500
#: Of work of which nothing is known: parts of its time limit, or else of what its queue expects, each as likely.
_PARTS_OF_LIMIT = (0.05, 0.25, 0.6, 1.0)
_PARTS_OF_USUAL = (0.05, 0.4, 1.5, 6.0)
#: Who has outlived all that is known goes on by how old it is: such parts of that, each as likely.
_PARTS_OF_AGE = (0.14, 0.6, 1.7, 7.0)
#: How much that counts beside what is known, which is 1 in all before anything of it is outlived.
_OF_AGE = 0.05


def likely_left_seconds(world: World, it: Workload, now: float, permille: int) -> float:
    """So long a job holds its devices from now on, in so many of a thousand cases, or less.

    Of one that waits: from its next start on. Earlier attempts count, as far as none repeats them. Of whom nothing is
    known, not even a time limit, nobody can say that they will ever leave: what their queue expects is no end.
    """
    if permille > _HALF and it.ask.duration_seconds is None and next(world.habits.rings_of(it), None) is None:
        return inf
    begun = now if it.state is State.QUEUED else it.active_at or now
    age = max(0.0, it.worked_seconds - it.repeated_seconds + now - begun)
    left = _quantile(
        [(seconds - age, weight) for seconds, weight in _lengths(world, it, age) if seconds > age], permille
    )
    limit = it.ask.duration_seconds
    return left if limit is None else max(0.0, min(left, limit - (now - begun)))


def _lengths(world: World, it: Workload, age: float) -> Iterator[tuple[float, float]]:
    """The lengths that it may have, each with its weight: the narrowest kind of work counts first."""
    left = 1.0
    for ring in reversed(list(world.habits.rings_of(it))):
        weight = left * ring.count / (ring.count + _AS_MANY)
        left -= weight
        for _, _, seconds in ring.runs:
            yield seconds, weight / ring.count
    limit, queue = it.ask.duration_seconds, world.policy.queue(it.queue)
    usual, parts = (
        (limit, _PARTS_OF_LIMIT)
        if limit is not None
        else (3600 if queue is None else queue.expected_seconds, _PARTS_OF_USUAL)
    )
    for part in parts:
        yield part * usual, left / len(parts)
    if age > 0:
        for part in _PARTS_OF_AGE:
            yield age * (1 + part), _OF_AGE / len(_PARTS_OF_AGE)


def _quantile(weighted: list[tuple[float, float]], permille: int) -> float:
    """The least value such that so many of a thousand, by weight, are no larger."""
    weighted.sort()
    wanted = sum(weight for _, weight in weighted) * permille / 1000
    for value, weight in weighted:
        wanted -= weight
        if wanted <= 0:
            return value
    return weighted[-1][0] if weighted else 0.0
