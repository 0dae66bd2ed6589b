"""What a replay came to: waits, fairness and use, made alike for every policy from when each job held its GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ...model import SimulationPoint, SimulationRun, TeamFigures
from .runs import Runs

HOUR_S = 3600
#: So many points draw any curve that a page has room for.
MOST_POINTS = 400


class _Stay(NamedTuple):
    """One job's time in the system."""

    team: str
    wait_s: int
    total_s: int
    ran_s: int


def figures(runs: Runs, *, most_points: int = MOST_POINTS) -> SimulationRun:
    """Add it up."""
    stays = _stays(runs)
    waits = sorted(it.wait_s for it in stays)
    devices = sum(runs.nodes)
    use = _Use(runs, devices, most_points)
    teams = _teams(stays)
    stretches = [(it.stretch, it.team) for it in teams if it.stretch is not None]
    worst = max(stretches, default=None)
    held = sum((end - begin) * runs.jobs[number].gpus for number, begin, end in runs.spans)
    ran = {number for number, _, _ in runs.spans}
    worked = sum(runs.jobs[number].duration_s * runs.jobs[number].gpus for number in ran)
    return SimulationRun(
        policy=runs.policy,
        nodes=tuple(runs.nodes),
        devices=devices,
        jobs=len(stays),
        not_run=_few(Counter(runs.refused.values())),
        mean_time_in_system_seconds=_mean([it.total_s for it in stays]),
        mean_wait_seconds=_mean(waits),
        median_wait_seconds=quantile(waits, 0.5),
        p90_wait_seconds=quantile(waits, 0.9),
        p999_wait_seconds=quantile(waits, 0.999),
        longest_wait_seconds=float(waits[-1]) if waits else None,
        worst_stretch=None if worst is None else worst[0],
        worst_team=None if worst is None else worst[1],
        jain=_jain([1 / stretch for stretch, _ in stretches if stretch]),
        utilisation=use.share,
        utilisation_while_queued=use.share_while_queued,
        preemptions=runs.preemptions,
        lost_gpu_hours=(held - worked) / HOUR_S,
        length_seconds=float(use.length_s),
        teams=teams,
        points=use.points,
    )


def quantile(ordered: Sequence[int], part: float) -> float | None:
    """Between the two values around it, in proportion: what most tools call a percentile."""
    if not ordered:
        return None
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


#: So many reasons are told apart.
_MOST_REASONS = 8


def _few(counted: Counter[str]) -> dict[str, int]:
    """The most frequent ones, and the rest together."""
    few = dict(counted.most_common(_MOST_REASONS))
    rest = counted.total() - sum(few.values())
    return few | ({"other reasons": rest} if rest else {})


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _jain(shares: Sequence[float]) -> float | None:
    squares = sum(it * it for it in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def _stays(runs: Runs) -> list[_Stay]:
    ends: dict[int, int] = {}
    for number, _, end in runs.spans:
        ends[number] = max(end, ends.get(number, end))
    found = []
    for number, end in ends.items():
        if number in runs.refused:
            continue
        job = runs.jobs[number]
        total = end - job.submit_s
        found.append(_Stay(job.team, total - job.duration_s, total, job.duration_s))
    return found


def _teams(stays: Iterable[_Stay]) -> tuple[TeamFigures, ...]:
    """By name."""
    of_teams: dict[str, list[_Stay]] = {}
    for it in stays:
        of_teams.setdefault(it.team, []).append(it)
    return tuple(_of_team(team, them) for team, them in sorted(of_teams.items()))


def _of_team(team: str, them: Sequence[_Stay]) -> TeamFigures:
    waits = sorted(it.wait_s for it in them)
    ran = sum(it.ran_s for it in them)
    return TeamFigures(
        team=team,
        jobs=len(them),
        mean_wait_seconds=_mean(waits) or 0.0,
        p90_wait_seconds=quantile(waits, 0.9) or 0.0,
        longest_wait_seconds=float(waits[-1]),
        stretch=sum(it.total_s for it in them) / ran if ran else None,
    )


class _Use:
    """How many waited and how many devices were held, over time."""

    def __init__(self, runs: Runs, devices: int, most_points: int) -> None:
        changes = _changes(runs)
        moments = sorted(changes)
        self.points: tuple[SimulationPoint, ...] = ()
        self.length_s = moments[-1] - moments[0] if moments else 0
        queued = busy = held_s = queued_s = held_while_queued_s = 0
        width = max(1, -(-self.length_s // most_points))
        bins = [[0, 0] for _ in range(-(-self.length_s // width))]
        for moment, following in pairwise(moments):
            more_queued, more_busy = changes[moment]
            queued, busy = queued + more_queued, busy + more_busy
            length = following - moment
            held_s += busy * length
            if queued:
                queued_s += length
                held_while_queued_s += busy * length
            _spread(bins, moment - moments[0], following - moments[0], width, (queued, busy))
        self.share = held_s / (devices * self.length_s) if devices and self.length_s else None
        self.share_while_queued = held_while_queued_s / (devices * queued_s) if devices and queued_s else None
        if moments:
            self.points = _points(bins, moments[0], self.length_s, width)


def _changes(runs: Runs) -> dict[int, tuple[int, int]]:
    """At each moment, how many more wait and how many more devices are held."""
    changes: dict[int, tuple[int, int]] = {}

    def change(moment: int, queued: int, busy: int) -> None:
        before = changes.get(moment, (0, 0))
        changes[moment] = (before[0] + queued, before[1] + busy)

    ends: dict[int, int] = {}
    for number, begin, end in sorted(runs.spans, key=lambda span: span[1]):
        gpus = runs.jobs[number].gpus
        # It waits from its submission, or from when it had to leave.
        change(ends.get(number, runs.jobs[number].submit_s), 1, 0)
        change(begin, -1, gpus)
        change(end, 0, -gpus)
        ends[number] = end
    return changes


def _spread(bins: list[list[int]], begin: int, end: int, width: int, values: tuple[int, int]) -> None:
    """Add a stretch of time to the bins that it lies in."""
    while begin < end:
        at = begin // width
        until = min(end, (at + 1) * width)
        bins[at][0] += values[0] * (until - begin)
        bins[at][1] += values[1] * (until - begin)
        begin = until


def _points(bins: list[list[int]], first: int, length: int, width: int) -> tuple[SimulationPoint, ...]:
    found = []
    for at, (queued, busy) in enumerate(bins):
        lasts = min(width, length - at * width)
        found.append(SimulationPoint(at=float(first + at * width), queued=queued / lasts, busy=busy / lasts))
    return tuple(found)
