"""A scheduling step with 10,000 queued workloads and 1,000 devices, all of them held; one job ends per step.

The whole of `decide` is timed: the overlay's copy, the exit, the planner's step, the check. Beside it stand two bounds
of the same size: sorting the keys of the line once, and counting to ten million. How the cost grows with the line is
drawn by `python -m tests.bench.planner --picture FILE` (needs matplotlib), beside n log n.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable

import msgspec

from jupyter_gpu.core.decide import decide
from jupyter_gpu.core.forecast import rank_ms
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.core.planner import plan
from jupyter_gpu.model import (
    Ask,
    Device,
    EndReason,
    JobSpec,
    Kind,
    Outcome,
    Policy,
    QueuePolicy,
    QuotaRule,
    SeeExited,
    WaitingReason,
    Workload,
    World,
)

NOW = 1_790_000_000.0
QUEUED = 10_000
DEVICES = 1_000
USERS = 100
HABITS = 10
STEPS = 100
#: How long the lines are of which the growth is seen.
LENGTHS = (1_250, 2_500, 5_000, 10_000, 20_000, 40_000)
#: Class, how many nodes of eight, memory.
CLASSES = (("a100-80gb", 60, 80), ("h100-80gb", 30, 80), ("l4", 35, 24))
POLICY = Policy(
    quotas=(
        QuotaRule(user="*", devices=40),
        QuotaRule(user="*", queue="interactive", devices=4),
        QuotaRule(user="*", device_class="h100-80gb", devices=16),
        QuotaRule(team="*", gpu_hours=20_000),
    ),
    teams={f"team-{team}": tuple(f"user-{user}" for user in range(team, USERS, 8)) for team in range(8)},
)


def a_lab(seed: int = 1, *, habits: int | None = HABITS, queued: int = QUEUED) -> World:
    """A lab on a busy day: users, sizes, lengths, classes and queues mixed.

    People submit sweeps, so each has so many kinds of ask of their own; None makes every ask a new throw of the dice.
    """
    draw = random.Random(seed)
    world = World(POLICY)
    for node, (device_class, gib) in enumerate((name, gib) for name, nodes, gib in CLASSES for _ in range(nodes)):
        for index in range(8):
            world.put_device(
                Device(
                    uuid=f"GPU-{node:03}-{index}",
                    index=index,
                    name=device_class,
                    device_class=device_class,
                    memory_bytes=gib << 30,
                    node=f"node-{node:03}",
                    link_group="a" if index < 4 else "b",
                )
            )
    of_users = {user: [_an_ask(draw) for _ in range(habits or 0)] for user in range(USERS)}
    for id_ in range(1, queued + DEVICES + 1):
        user = draw.randrange(USERS)
        queue, ask = draw.choice(of_users[user]) if habits else _an_ask(draw)
        submitted_at = NOW - draw.uniform(0, 86_400)
        world.put_workload(_a_workload(world, id_, f"user-{user}", (queue, ask), submitted_at))
    for event in plan(world.copy(), NOW):
        evolve(world, event)
    return world


def _an_ask(draw: random.Random) -> tuple[QueuePolicy, Ask]:
    queue = draw.choices(POLICY.queues, weights=(1, 14, 5))[0]
    is_reservation = queue.kinds[0] is Kind.RESERVATION
    return queue, Ask(
        devices=draw.choices((1, 2, 3, 4, 5, 6, 7, 8), weights=(50, 20, 3, 12, 1, 1, 1, 12))[0],
        device_class=draw.choice((None, None, "a100-80gb", "h100-80gb", "l4")),
        duration_seconds=draw.choice((3600, 7200)) if is_reservation else draw.choice((None, 14_400, 86_400)),
    )


def _a_workload(world: World, id_: int, owner: str, habit: tuple[QueuePolicy, Ask], submitted_at: float) -> Workload:
    queue, ask = habit
    it = Workload(
        id=id_,
        kind=queue.kinds[0],
        owner=owner,
        team=world.policy.teams_of(owner)[0],
        queue=queue.name,
        name="train",
        ask=ask,
        submitted_at=submitted_at,
        priority=queue.priority,
        waiting=WaitingReason.DEVICES,
        spec=JobSpec(argv=("python", "train.py"), folder="/home") if queue.kinds[0] is Kind.JOB else None,
    )
    return msgspec.structs.replace(it, rank_ms=rank_ms(it, world, 0))


def steps(world: World, count: int = STEPS, seed: int = 2) -> list[float]:
    """How long each of so many steps took, in seconds; one job on one device ends per step."""
    draw = random.Random(seed)
    took = []
    now = NOW
    for _ in range(count):
        now += 5.0
        running = [it for it in world.holders() if it.kind is Kind.JOB and it.lease and it.ask.devices == 1]
        it = draw.choice(running)
        exited = SeeExited(workload=it.id, attempt=it.attempt + 1, outcome=Outcome(end=EndReason.SUCCEEDED), clear=True)
        begin = time.perf_counter()
        events = decide(world, exited, now)
        took.append(time.perf_counter() - begin)
        for event in events:
            evolve(world, event)
    return took


def run() -> list[dict[str, object]]:
    """The rows of this bench."""
    keys = list(a_lab().line)
    random.Random(3).shuffle(keys)
    sorting = _seconds(lambda: sorted(keys))
    counting = _seconds(_count)
    return [
        {
            "what": f"a scheduling step, 10,000 queued ({what}) and {DEVICES:,} devices, median",
            "value": round(statistics.median(steps(a_lab(habits=habits))) * 1000, 2),
            "unit": "ms",
            "reach": "under 10",
            "beside": f"sorting the line once {sorting * 1000:.1f} ms, ten million additions {counting * 1000:.0f} ms",
        }
        for what, habits in ((f"{USERS} users, each with {HABITS} kinds of ask", HABITS), ("hardly two alike", None))
    ] + [_of_growth()]


def growth() -> list[tuple[int, float]]:
    """(how many are queued, the median step in ms), where hardly two ask alike: the worst that a line can be."""
    return [
        (queued, statistics.median(steps(a_lab(habits=None, queued=queued), count=30)) * 1000) for queued in LENGTHS
    ]


def _of_growth() -> dict[str, object]:
    """From the shortest to the longest line, by how much more a step costs than n log n would have it."""
    found = growth()
    (few, first), (many, last) = found[0], found[-1]
    factor = (last / first) / (many * math.log(many) / (few * math.log(few)))
    return {
        "what": f"growth of a step from {few:,} to {many:,} queued, hardly two alike, over that of n log n",
        "value": round(factor, 2),
        "unit": "",
        "reach": "1 or less",
        "beside": ", ".join(f"{queued:,}: {ms:.1f} ms" for queued, ms in found),
    }


def draw(file: str) -> None:
    """The growth as a picture, both axes by powers of ten."""
    from matplotlib.figure import Figure

    found = growth()
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    lengths = [queued for queued, _ in found]
    (few, first), bound = found[0], [queued * math.log(queued) for queued in lengths]
    axes.loglog(lengths, [ms for _, ms in found], marker="o", label="a step, hardly two alike")
    axes.loglog(lengths, [first * it / (few * math.log(few)) for it in bound], linestyle="--", label="n log n")
    axes.set_xlabel("queued workloads")
    axes.set_ylabel("median step, ms")
    axes.legend()
    figure.savefig(file)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _count() -> int:
    total = 0
    for number in range(10_000_000):
        total += number
    return total


def main() -> None:
    """Print the rows, or draw the growth."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--picture", metavar="FILE", help="draw how a step's cost grows into this file")
    file = asked.parse_args().picture
    if file is not None:
        draw(file)
        return
    for row in run():
        print(row)


if __name__ == "__main__":
    main()
