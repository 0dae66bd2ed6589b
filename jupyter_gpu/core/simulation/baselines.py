"""Policies to compare with, as textbooks have them; all but `fifo` know what no scheduler knows: each run time.

One set of rules for all: at one moment ends come before arrivals, arrivals before scheduling; ties go by submission,
then by the order of the trace; a job sits where `Pool.find` says. `fifo` and `sjf` start what is first in line while it
fits, and the first that does not fit blocks all others. `easy` and `srtf` have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ...errors import InvalidAsk
from .pool import Places, Pool
from .runs import Runs, refuse_too_wide
from .trace import TraceJob

#: Called now and then with how many jobs have ended, of how many.
Progress = Callable[[int, int], None]
#: So many jobs end between two words of progress.
PROGRESS_EVERY = 500


def no_progress(_done: int, _of: int) -> None:
    """Nobody looks on."""


class Running(NamedTuple):
    """A job on the pool; the earliest end is first."""

    end: int
    number: int
    begin: int
    places: Places


class Clock:
    """The virtual clock of a replay: what arrives and what ends, and at each moment in which order."""

    def __init__(self, runs: Runs, progress: Progress) -> None:
        self.runs, self.jobs = runs, runs.jobs
        self.pool = Pool(runs.nodes)
        empty = self.pool.copy()
        fits = {gpus: empty.fits(gpus) for gpus in {job.gpus for job in runs.jobs}}
        self.coming = refuse_too_wide(runs, fits)
        self.next = self.ended = 0
        self.now = 0
        #: Whether something ended at this moment.
        self.has_freed = False
        self.running: list[Running] = []
        self._progress = progress

    def advance(self) -> range | None:
        """Go to the next moment and take off what ends then; which of `coming` arrive, or None when all is over."""
        running, coming, jobs = self.running, self.coming, self.jobs
        arrival = jobs[coming[self.next]].submit_s if self.next < len(coming) else None
        if running and (arrival is None or running[0].end <= arrival):
            self.now = running[0].end
        elif arrival is not None:
            self.now = arrival
        else:
            return None
        self.has_freed = bool(running) and running[0].end <= self.now
        while running and running[0].end <= self.now:
            self._end(heappop(running))
        first = self.next
        while self.next < len(coming) and jobs[coming[self.next]].submit_s <= self.now:
            self.next += 1
        return range(first, self.next)

    def _end(self, it: Running) -> None:
        self.pool.give(it.places)
        self.runs.spans.append((it.number, it.begin, it.end))
        self.runs.places.append(it.places)
        self.ended += 1
        if self.ended % PROGRESS_EVERY == 0:
            self._progress(self.ended, len(self.coming))

    def start(self, number: int, places: Places, seconds: int | None = None) -> Running:
        """A job begins now, and runs so long; its whole run time if nothing else is said."""
        self.pool.take(places)
        end = self.now + (self.jobs[number].duration_s if seconds is None else seconds)
        it = Running(end, number, self.now, places)
        heappush(self.running, it)
        return it

    def stop(self, them: Sequence[Running]) -> None:
        """These leave now, before they are done."""
        gone = {it.number for it in them}
        self.running = [it for it in self.running if it.number not in gone]
        heapify(self.running)
        for it in them:
            self.pool.give(it.places)
            self.runs.spans.append((it.number, it.begin, self.now))
            self.runs.places.append(it.places)
            self.runs.preemptions += 1


def fifo(jobs: Sequence[TraceJob], nodes: Sequence[int], progress: Progress = no_progress) -> Runs:
    """First come, first served."""
    return _blocking("fifo", jobs, nodes, lambda _job: 0, progress)


def sjf(jobs: Sequence[TraceJob], nodes: Sequence[int], progress: Progress = no_progress) -> Runs:
    """Shortest first, by the run time that nobody could have known."""
    return _blocking("sjf", jobs, nodes, lambda job: job.duration_s, progress)


def _blocking(
    name: str, jobs: Sequence[TraceJob], nodes: Sequence[int], key: Callable[[TraceJob], int], progress: Progress
) -> Runs:
    runs = Runs(policy=name, jobs=jobs, nodes=nodes)
    clock = Clock(runs, progress)
    pool, coming = clock.pool, clock.coming
    line: list[tuple[int, int]] = []
    blocked = None
    while (arrived := clock.advance()) is not None:
        for at in arrived:
            heappush(line, (key(jobs[coming[at]]), coming[at]))
        free = pool.total
        while line and (line[0], free) != blocked:
            places = pool.find(jobs[line[0][1]].gpus)
            if places is None:
                # The same head and not more free: nothing can have changed for it.
                blocked = (line[0], free)
                break
            clock.start(heappop(line)[1], places)
            free, blocked = pool.total, None
    return runs


def refuse_unknown(names: Sequence[str], known: Sequence[str]) -> None:
    """Say which policies there are."""
    for name in names:
        if name not in known:
            raise InvalidAsk(f"There is no policy {name!r} to replay.", hint=f"Some of: {', '.join(known)}.")
