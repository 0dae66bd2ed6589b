"""How long the work of each owner ran of late: what is known before a job has run itself.

A ring of the last so many lengths for each kind of work: an owner's jobs of one name and size, their jobs of one size,
all of theirs, all of their team's, everybody's. `core.forecast` makes one expectation of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import log

from .nouns import Workload
from .states import Kind

#: So many of the last lengths are remembered of a kind of work, each at most so long: one that ran for a month says
#: little of the next one.
REMEMBERED = 20
LONGEST_SECONDS = 2 * 86_400.0
#: So many kinds of work are remembered; that of which nothing was heard for longest is forgotten.
MOST_KINDS = 20_000

#: What a ring is of, from everybody's to an owner's own of one name and size.
KindOfWork = tuple[str | int, ...]


def kinds_of(it: Workload) -> tuple[KindOfWork, ...]:
    """The kinds of work that a job is of, the widest first."""
    size = it.ask.devices
    own = ((it.owner, size, it.name),) if it.name else ()
    return ((), ("team", it.team), (it.owner,), (it.owner, size), *own)


class Ring:
    """The last lengths of one kind of work; never written into."""

    __slots__ = ("_log_of_mean", "count", "runs")

    def __init__(self, runs: tuple[tuple[float, int, float], ...]) -> None:
        """Each as when it ended, its id, and how long it ran, in order."""
        self.runs = runs
        self.count = len(runs)
        self._log_of_mean: float | None = None

    @property
    def log_of_mean(self) -> float:
        """The logarithm of their mean, in seconds."""
        if self._log_of_mean is None:
            seconds = [min(run[2], LONGEST_SECONDS) for run in self.runs]
            self._log_of_mean = log(max(1.0, sum(seconds) / len(seconds)))
        return self._log_of_mean

    def with_one(self, run: tuple[float, int, float]) -> Ring:
        """The same and one more, without the oldest where that is one too many."""
        runs = list(self.runs)
        at = bisect_left(runs, run)
        if at < len(runs) and runs[at] == run:
            return self
        insort(runs, run)
        return Ring(tuple(runs[-REMEMBERED:]))


class Habits:
    """What is remembered of how long work ran."""

    __slots__ = ("_rings", "expected")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._rings: dict[KindOfWork, Ring] = {}
        #: What `core.forecast` made of this, until more is learnt.
        self.expected: dict[object, int] = {}

    def copy(self) -> Habits:
        """Habits that can go their own way."""
        other = Habits()
        other._rings, other.expected = self._rings.copy(), self.expected.copy()
        return other

    def __eq__(self, other: object) -> bool:
        """Whether the same is remembered."""
        return isinstance(other, Habits) and {kind: ring.runs for kind, ring in self._rings.items()} == {
            kind: ring.runs for kind, ring in other._rings.items()
        }

    __hash__ = None  # type: ignore[assignment]

    def learn(self, it: Workload) -> None:
        """Remember how long a job ran that has ended; of one that never ran there is nothing to learn."""
        if it.kind is not Kind.JOB or it.ask.devices == 0 or it.worked_seconds <= 0 or it.ended_at is None:
            return
        self.expected.clear()
        run, rings = (it.ended_at, it.id, it.worked_seconds), self._rings
        for kind in kinds_of(it):
            ring = rings.pop(kind, None)
            rings[kind] = Ring((run,)) if ring is None else ring.with_one(run)
        while len(rings) > MOST_KINDS:
            del rings[next(iter(rings))]

    def fixed(self) -> Habits:
        """The same, which no end teaches any more: what is only imagined is nobody's habit."""
        other = _Fixed()
        other._rings, other.expected = self._rings, self.expected.copy()  # noqa: SLF001 - of its own kind
        return other

    def knows(self, owner: str) -> bool:
        """Whether anything of theirs has run."""
        return (owner,) in self._rings

    def rings_of(self, it: Workload) -> Iterator[Ring]:
        """What is remembered of the kinds of work that a job is of, the widest first."""
        rings = self._rings
        return (rings[kind] for kind in kinds_of(it) if kind in rings)


class _Fixed(Habits):
    __slots__ = ()

    def learn(self, it: Workload) -> None:
        """Nothing."""
