"""Our own rules on a real trace, beside the textbook's: the table of docs/simulate.md, and how long a replay takes.

The scenario is that of tests/sim/philly.py. The baselines `fifo`, `easy` and `sjf` stand in the same run, and each bar
that the design sets is of these. The time is told in loops of ten million additions: seconds are of one machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs

from jupyter_gpu.core.simulation.figures import figures
from jupyter_gpu.core.simulation.replay import Assumed, ours
from jupyter_gpu.core.simulation.runs import Runs
from jupyter_gpu.model import Policy, SimulationRun
from jupyter_gpu.simulated import BASELINES
from tests.bench.ground import row
from tests.bench.planner import _count, _seconds
from tests.sim import philly

#: A team that stands in for its users may have more waiting than one person.
POLICY = Policy(most_queued=1_000_000)
#: Trainings that take turns: one that is expected to need a fourth of another's rest goes first.
SLICED = structs.replace(
    POLICY,
    queues=tuple(
        structs.replace(queue, slice_factor=4) if queue.name == "training" else queue for queue in POLICY.queues
    ),
)


def run() -> list[dict[str, Any]]:
    """The rows of this bench."""
    jobs = philly.pool_jobs()
    known = {
        name: _replayed(lambda replay=BASELINES[name]: replay(jobs, philly.NODES, _quiet))
        for name in ("fifo", "easy", "sjf")
    }
    rows = [_of_baseline(name, *found) for name, found in known.items()]
    fifo, easy = known["fifo"][0], known["easy"][0]
    for name, policy, part in (("ours", POLICY, 0.5), ("ours, trainings take turns", SLICED, 0.25)):
        found, took = _replayed(lambda policy=policy: ours(jobs, philly.NODES, policy, assumed=Assumed()))
        rows += _of_ours(name, found, took, (fifo, easy), part)
    return [*rows, _of_hundred_thousand()]


def _quiet(_done: int, _of: int) -> None:
    """Nobody looks on."""


def _replayed(replay: Callable[[], Runs]) -> tuple[SimulationRun, float]:
    begin = time.perf_counter()
    runs = replay()
    took = time.perf_counter() - begin
    return figures(runs), took


def _of_baseline(name: str, found: SimulationRun, took: float) -> dict[str, Any]:
    is_right = abs((found.mean_wait_seconds or 0.0) - philly.TABLE[name][1]) < 1
    said = "as published" if is_right else f"published {philly.TABLE[name][1]:,}"
    return row(
        f"philly-pool, {name}: mean wait",
        round(found.mean_wait_seconds or 0.0),
        "s",
        reach=said,
        beside=_rest(found, took),
    )


def _of_ours(
    name: str, found: SimulationRun, took: float, others: tuple[SimulationRun, SimulationRun], part: float
) -> Iterator[dict[str, Any]]:
    fifo, easy = others
    title = f"philly-pool, {name}"
    share = (found.mean_wait_seconds or 0.0) / (easy.mean_wait_seconds or 1.0)
    tail = (found.p999_wait_seconds or 0.0) / (fifo.p999_wait_seconds or 1.0)
    longest = (found.longest_wait_seconds or 0.0) / (fifo.longest_wait_seconds or 1.0)
    yield row(f"{title}: mean wait over easy's", share, "", reach=f"{part} or less", beside=_rest(found, took))
    yield row(f"{title}: p99.9 of waits over fifo's", tail, "", reach="1 or less")
    yield row(f"{title}: longest wait over fifo's", longest, "", reach="1.35 or less")
    yield row(f"{title}: worst team's stretch", found.worst_stretch or 0.0, "", reach="2.0 or less")
    yield row(f"{title}: Jain's index", found.jain or 0.0, "", reach="0.96 or more")


def _rest(found: SimulationRun, took: float) -> str:
    waits = (found.median_wait_seconds, found.p90_wait_seconds, found.p999_wait_seconds, found.longest_wait_seconds)
    of_waits = "/".join(f"{it or 0.0:,.0f}" for it in waits)
    fair = f"stretch {found.worst_stretch or 0.0:.2f}, Jain {found.jain or 0.0:.3f}"
    return f"{found.mean_wait_seconds or 0.0:,.0f} s; p50/p90/p99.9/most {of_waits} s, {fair}; replayed in {took:.0f} s"


def _of_hundred_thousand() -> dict[str, Any]:
    """All of the trace and its first part twice, on the pool of the scenario."""
    jobs = philly.hundred_thousand()
    counting = min(_seconds(_count) for _ in range(3))
    begin = time.perf_counter()
    runs = ours(jobs, philly.NODES, POLICY)
    took = time.perf_counter() - begin
    beside = f"{took:.1f} s, and a loop {counting * 1000:.0f} ms; {len(runs.refused)} jobs never ran"
    return row(
        "100,000 jobs replayed, in loops of ten million additions",
        took / counting,
        "loops",
        reach="60 or less",
        beside=beside,
    )


if __name__ == "__main__":
    for it in run():
        print(it)
