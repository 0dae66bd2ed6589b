"""EASY backfill with perfect estimates.

The head of the line gets a start: the first end of something that runs at which it fits. A later job starts now if it
ends by then, or if the head would still fit then beside it; it sits where any job of its size would sit now. After each
such start the line is looked at anew, from its head. Where nothing has ended at a moment only those are looked at who
arrive at it: the others were refused when more was free.

With perfect estimates the head's start never moves, so it is found once for each head; and since only its size says
where a job would sit, each size is asked once for the first of its jobs that may start, so a line of thousands costs no
more than one of ten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from .baselines import Clock, Progress, no_progress
from .pool import Places
from .runs import Runs
from .trace import TraceJob

_NEVER = 1 << 62


class _Sorted:
    """Jobs of one size in the order of the line, which finds the first that takes no longer than so long.

    A tree of least durations over places that are only ever filled from the left and emptied.
    """

    def __init__(self) -> None:
        self._leaves = 1
        self._least = [_NEVER, _NEVER]
        self._numbers: list[int] = []
        self._first = 0

    def add(self, number: int, seconds: int) -> None:
        if len(self._numbers) == self._leaves:
            self._grow()
        self._numbers.append(number)
        self._put(len(self._numbers) - 1, seconds)

    def _grow(self) -> None:
        """Forget the places that are empty, else double the room."""
        kept = [
            (number, self._least[self._leaves + place])
            for place, number in enumerate(self._numbers)
            if self._least[self._leaves + place] != _NEVER
        ]
        while self._leaves < 2 * len(kept) + 2:
            self._leaves *= 2
        self._numbers = [number for number, _ in kept]
        self._least = [_NEVER] * (2 * self._leaves)
        for place, (_, seconds) in enumerate(kept):
            self._least[self._leaves + place] = seconds
        for node in range(self._leaves - 1, 0, -1):
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])

    def _put(self, place: int, seconds: int) -> None:
        least, node = self._least, self._leaves + place
        least[node] = seconds
        while node > 1:
            node //= 2
            least[node] = min(least[2 * node], least[2 * node + 1])

    def _place(self, most_seconds: int) -> int | None:
        if self._least[1] > most_seconds:
            return None
        node = 1
        while node < self._leaves:
            node *= 2
            if self._least[node] > most_seconds:
                node += 1
        return node - self._leaves

    def first(self, most_seconds: int = _NEVER - 1) -> int | None:
        """The job, by its number; None where all take longer."""
        place = self._place(most_seconds)
        return None if place is None else self._numbers[place]

    def __contains__(self, number: int) -> bool:
        place = bisect_left(self._numbers, number)
        is_known = place < len(self._numbers) and self._numbers[place] == number
        return is_known and self._least[self._leaves + place] != _NEVER

    def __bool__(self) -> bool:
        return self._least[1] != _NEVER

    def remove(self, number: int) -> None:
        """It waits no more."""
        self._put(bisect_left(self._numbers, number), _NEVER)


class _Promise:
    """The head's start: when, and what of the pool is free then."""

    def __init__(self, clock: Clock, number: int) -> None:
        self.number, self._gpus = number, clock.jobs[number].gpus
        self.at = clock.now
        self._then = clock.pool.copy()
        ends = sorted(clock.running, key=lambda it: it.end)
        for place, it in enumerate(ends):
            self._then.give(it.places)
            if (place + 1 == len(ends) or ends[place + 1].end > it.end) and self._then.fits(self._gpus):
                self.at = it.end
                break

    def bears(self, places: Places) -> bool:
        """Whether the head would still fit if somebody sat there until later."""
        self._then.take(places)
        fits = self._then.fits(self._gpus)
        self._then.give(places)
        return fits

    def sits(self, places: Places) -> None:
        """Somebody does."""
        self._then.take(places)


class _Line:
    """Who waits, by size."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sizes: dict[int, _Sorted] = {}

    def add(self, number: int) -> None:
        job = self._clock.jobs[number]
        self._sizes.setdefault(job.gpus, _Sorted()).add(number, job.duration_s)

    def first(self) -> int | None:
        """The head."""
        found = [number for line in self._sizes.values() if (number := line.first()) is not None]
        return min(found, default=None)

    def start_first(self, number: int) -> bool:
        """Start the head, if it fits."""
        gpus = self._clock.jobs[number].gpus
        places = self._clock.pool.find(gpus)
        if places is None:
            return False
        self._sizes[gpus].remove(number)
        self._clock.start(number, places)
        return True

    def backfill(self, promise: _Promise, only: Sequence[int] | None) -> bool:
        """Start the first that may, of all or of these only; whether there was one."""
        clock, best = self._clock, None
        for gpus, line in self._sizes.items():
            places = clock.pool.find(gpus) if line and gpus <= clock.pool.total else None
            if places is None:
                continue
            most = _NEVER - 1 if promise.bears(places) else promise.at - clock.now
            number = line.first(most) if only is None else _first_of(only, clock.jobs, gpus, most, line)
            if number is not None and (best is None or number < best[0]):
                best = (number, line, places)
        if best is None:
            return False
        number, line, places = best
        line.remove(number)
        if clock.start(number, places).end > promise.at:
            promise.sits(places)
        return True


def _first_of(
    numbers: Sequence[int], jobs: Sequence[TraceJob], gpus: int, most_seconds: int, line: _Sorted
) -> int | None:
    """The first of these that is of this size, takes no longer than so long, and waits still."""
    for number in numbers:
        job = jobs[number]
        if job.gpus == gpus and job.duration_s <= most_seconds and number in line:
            return number
    return None


def easy(jobs: Sequence[TraceJob], nodes: Sequence[int], progress: Progress = no_progress) -> Runs:
    """First come, first served, where later ones may pass who do not delay the first."""
    runs = Runs(policy="easy", jobs=jobs, nodes=nodes)
    clock = Clock(runs, progress)
    line = _Line(clock)
    promise: _Promise | None = None
    while (arrived := clock.advance()) is not None:
        came = [clock.coming[at] for at in arrived]
        for number in came:
            line.add(number)
        while (head := line.first()) is not None and line.start_first(head):
            pass
        if head is None or not clock.pool.total:
            continue
        if promise is None or promise.number != head:
            promise = _Promise(clock, head)
        while line.backfill(promise, None if clock.has_freed else came):
            pass
    return runs
