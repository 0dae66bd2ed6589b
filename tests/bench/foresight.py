"""A look ahead: how long one takes, how good it is on a real trace, and how long a look at one with its ways out takes.

It runs on a thread of the broker beside its work, so no answer waits for it save that about one workload by itself.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

import msgspec

from jupyter_gpu.broker.foreseeing import LOOK_SECONDS, _after, _alone
from jupyter_gpu.core.decide import step
from jupyter_gpu.core.foresight import foresee
from jupyter_gpu.model import (
    Ask,
    Device,
    EndReason,
    JobSpec,
    Kind,
    Outcome,
    Policy,
    SeeDevices,
    SeeExited,
    Submit,
    World,
)
from tests.bench.ground import row
from tests.bench.planner import NOW, a_lab
from tests.sim import foreseen, philly

#: Of those that wait in the whole trace, each so-manieth is told.
EVERY = 90


def run() -> list[dict[str, Any]]:
    """The rows of this bench."""
    rows = [
        *_of_world("100 queued and 8 devices", _a_small_lab()),
        *_of_world("10,000 queued and 1,000 devices", _a_large_lab()),
    ]
    found = foreseen.told(philly.pool_jobs(), philly.NODES, EVERY)
    teams = sorted(part for _, (told, part) in foreseen.by_team(found).items() if told >= 10)
    return [
        *rows,
        row(
            f"philly-pool: of {len(found)} that had to wait, started in the range that they were told",
            100 * foreseen.coverage(found),
            "%",
            reach="75 to 90",
            beside=f"teams {teams[0]:.0%} to {teams[-1]:.0%}; median of latest over earliest wait "
            f"{foreseen.median_width(found):.1f}",
        ),
    ]


def _of_world(what: str, world: World) -> list[dict[str, Any]]:
    begin = time.perf_counter()
    found = foresee(world, NOW, is_over=_after(LOOK_SECONDS))
    took = time.perf_counter() - begin
    closed = sum(it.until_at is not None for it in found.starts.values())
    middle = next(it for number, it in enumerate(world.queued()) if number == len(world.line) // 2)
    begin = time.perf_counter()
    _, ways = _alone(world, middle, NOW)
    alone = time.perf_counter() - begin
    return [
        row(
            f"a look ahead for all, {what}",
            took * 1000,
            "ms",
            beside=f"{closed:,} of {len(found.starts):,} with an end, the others after what it looked at; the copy for "
            f"the thread {_copying(world) * 1000:.1f} ms",
        ),
        row(
            f"a look at one in the middle and what would be sooner, {what}",
            alone * 1000,
            "ms",
            beside=f"{len(ways)} told",
        ),
    ]


def _copying(world: World) -> float:
    begin = time.perf_counter()
    world.copy()
    return time.perf_counter() - begin


def _a_large_lab() -> World:
    """That of the planner's bench; what its people ran of late is known."""
    world, draw = a_lab(), random.Random(4)
    for it in list(world.queued())[:2_000]:
        seconds = math.exp(draw.uniform(math.log(300), math.log(80_000)))
        world.habits.learn(msgspec.structs.replace(it, worked_seconds=seconds, ended_at=NOW - draw.uniform(0, 86_400)))
    return world


def _a_small_lab() -> World:
    """One node of eight, whose people have a history, and a hundred jobs in line."""
    world = World(Policy())
    devices = tuple(
        Device(uuid=f"GPU-{index}", index=index, name="A100", device_class="a100", memory_bytes=80 << 30)
        for index in range(8)
    )
    step(world, SeeDevices(pool="local", devices=devices), NOW - 200_000)
    for number in range(160):
        _submit(world, number, NOW - 150_000 + 10 * number)
    for number in range(60):
        it = next(iter(world.holders()))
        outcome = Outcome(end=EndReason.SUCCEEDED, exit_code=0)
        ended_at = NOW - 140_000 + 2_000 * number
        step(world, SeeExited(workload=it.id, attempt=1, outcome=outcome, clear=True), ended_at)
    while len(world.line) > 100:
        step(world, SeeExited(workload=next(iter(world.live)), attempt=1, outcome=outcome, clear=True), NOW)
    return world


def _submit(world: World, number: int, now: float) -> None:
    command = Submit(
        kind=Kind.JOB,
        owner=f"user-{number % 10}",
        ask=Ask(devices=(1, 1, 1, 2, 4)[number % 5], duration_seconds=(None, 14_400)[number % 2]),
        spec=JobSpec(argv=("python", "train.py"), folder="/home"),
    )
    step(world, command, now)


if __name__ == "__main__":
    for it in run():
        print(it)
