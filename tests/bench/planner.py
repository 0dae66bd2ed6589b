"""A scheduling step with 10,000 queued workloads and 1,000 devices, all of them held; one job ends per step.

The whole of `decide` is timed: the overlay's copy, the exit, the planner's step, the check. Beside it stand two bounds
of the same size: sorting the keys of the line once, and counting to ten million.
"""

from __future__ import annotations

import random
import statistics
import time

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
STEPS = 100
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


def a_lab(seed: int = 1) -> World:
    """A lab on a busy day: users, sizes, lengths, classes and queues mixed."""
    draw = random.Random(seed)
    world = World(POLICY)
    node = 0
    for device_class, nodes, gib in CLASSES:
        for _ in range(nodes):
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
            node += 1
    for id_ in range(1, QUEUED + DEVICES + 1):
        world.put_workload(_a_workload(draw, world, id_))
    for event in plan(world.copy(), NOW):
        evolve(world, event)
    return world


def _a_workload(draw: random.Random, world: World, id_: int) -> Workload:
    queue = draw.choices(world.policy.queues, weights=(1, 14, 5))[0]
    kind = queue.kinds[0]
    owner = f"user-{draw.randrange(USERS)}"
    ask = Ask(
        devices=draw.choices((1, 2, 3, 4, 5, 6, 7, 8), weights=(50, 20, 3, 12, 1, 1, 1, 12))[0],
        device_class=draw.choice((None, None, "a100-80gb", "h100-80gb", "l4")),
        duration_seconds=draw.choice((3600, 7200)) if kind is Kind.RESERVATION else draw.choice((None, 14_400, 86_400)),
    )
    it = Workload(
        id=id_,
        kind=kind,
        owner=owner,
        team=world.policy.team_of(owner),
        queue=queue.name,
        name="train",
        ask=ask,
        submitted_at=NOW - draw.uniform(0, 86_400),
        priority=queue.priority,
        waiting=WaitingReason.DEVICES,
        spec=JobSpec(argv=("python", "train.py"), folder="/home") if kind is Kind.JOB else None,
    )
    return _ranked(it, world)


def _ranked(it: Workload, world: World) -> Workload:
    return Workload(**{name: getattr(it, name) for name in it.__struct_fields__} | {"rank_ms": rank_ms(it, world, 0)})


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
    world = a_lab()
    took = steps(world)
    keys = list(world.line)
    random.Random(3).shuffle(keys)
    begin = time.perf_counter()
    sorted(keys)
    sorting = time.perf_counter() - begin
    begin = time.perf_counter()
    total = 0
    for number in range(10_000_000):
        total += number
    counting = time.perf_counter() - begin
    return [
        {
            "what": f"a scheduling step, {len(keys):,} queued and {len(world.devices):,} devices, median",
            "value": round(statistics.median(took) * 1000, 2),
            "unit": "ms",
            "reach": "under 10",
            "beside": (
                f"sorting {len(keys):,} keys takes {sorting * 1000:.1f} ms, adding ten million numbers"
                f" {counting * 1000:.0f} ms; slowest step {max(took) * 1000:.1f} ms"
            ),
        }
    ]


if __name__ == "__main__":
    for row in run():
        print(row)
