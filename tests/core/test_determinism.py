"""The same input leads to the same events: whatever the hash seed, whatever ran before, in place or on copies."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.core.decide import decide, step
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.core.planner import Memory
from jupyter_gpu.errors import GpuError
from jupyter_gpu.model import (
    AddHold,
    Cancel,
    Command,
    Cordon,
    Holder,
    Kind,
    LoadPolicy,
    Outcome,
    Release,
    Rerank,
    SeeDevices,
    SeeExited,
    SeeProbe,
    SeeStarted,
    Span,
    State,
    Tick,
    Uncordon,
    World,
)
from tests.core.machine import DEVICES, POLICIES
from tests.world import BEGIN, DONE, GIB, HOUR, SAVED, a_job, a_reservation

ROOT = Path(__file__).parents[2]
OWNERS = ("ada", "bob", "cleo", "dan")


def told(draw: random.Random, world: World, now: float) -> Command:
    """What happens next, by all that there is: submissions of every kind, ends, holds, operators, other rules."""
    owner, live = draw.choice(OWNERS), sorted(world.live)
    what = draw.randrange(16)
    if what < 4:
        words = {"queue": draw.choice((None, "deferred")), "device_class": draw.choice((None, "a100", "l4"))}
        return a_job(owner, draw.choice((1, 1, 2)), draw.choice((None, HOUR)), **words)
    if what < 12 and live:
        return _of(world.workloads[draw.choice(live)], draw)
    others: tuple[Command, ...] = (
        a_reservation(owner, draw.choice((1, 2)), HOUR),
        a_reservation(owner, 1, HOUR, holder=None, not_before=now + HOUR),
        a_job(owner, 4, HOUR, across_nodes=True),
        a_job(owner, seconds=HOUR, memory_bytes=6 * GIB),
        a_job(owner, seconds=HOUR, array=({"n": "1"}, {"n": "2"}, {"n": "3"}), at_most=2),
        AddHold(
            name="h", by="op", teams=("vision",), count=1, no_show_seconds=600,
            windows=(Span(from_at=now + HOUR, until_at=now + 2 * HOUR),),
        ),
        Cordon(device=draw.choice(DEVICES).uuid, by="op"),
        *(Uncordon(device=device.uuid, by="op") for device in DEVICES),
        Cancel(workload=draw.randrange(1, world.last_id + 2), by="op"),
        LoadPolicy(policy=draw.choice(POLICIES)),
        Rerank(),
        Tick(),
    )  # fmt: skip
    return draw.choice(others)


def _of(it, draw: random.Random) -> Command:
    if it.state is State.YIELDING and it.outcome is not None:
        return SeeProbe(workload=it.id)
    if it.kind is Kind.RESERVATION:
        return Release(workload=it.id, by=it.owner)
    attempt = it.attempt + 1
    if it.started_at is None:
        return SeeStarted(workload=it.id, attempt=attempt, holder=Holder(kind="attempt", name="a", number=attempt))
    outcome: Outcome = SAVED if it.state is State.YIELDING else DONE
    return SeeExited(workload=it.id, attempt=it.attempt, outcome=outcome, clear=draw.random() < 0.8)


def a_busy_life(seed: int, steps: int, how: str) -> tuple[str, int]:
    """Play it, and give a digest of all its events with how many there were: "copied", "in place", or "remembered"."""
    draw, world, now = random.Random(seed), World(POLICIES[seed % len(POLICIES)]), BEGIN
    digest, count, memory = hashlib.sha256(), 0, Memory() if how == "remembered" else None
    command: Command = SeeDevices(pool="local", devices=DEVICES)
    for _ in range(steps):
        try:
            if how == "copied":
                events = decide(world, command, now)
                for event in events:
                    evolve(world, event)
                world.policy = command.policy if isinstance(command, LoadPolicy) else world.policy
            else:
                events = step(world, command, now, memory=memory)
        except GpuError as refusal:
            digest.update(str(refusal).encode())
        else:
            count += len(events)
            digest.update(msgspec.json.encode(events))
        now += draw.choice((0, 0, 1, 60, 600))
        command = told(draw, world, now)
    return digest.hexdigest(), count


@pytest.mark.parametrize("seed", range(7))
def test_what_is_decided_in_place_is_what_is_decided_on_a_copy(seed):
    """Event by event, under each policy, refusals too."""
    digest, count = a_busy_life(seed, 120, "copied")

    assert a_busy_life(seed, 120, "in place") == (digest, count)
    assert count > 120


@pytest.mark.parametrize("how", ["in place", "remembered"])
def test_what_was_played_before_changes_nothing(how):
    """Lanes, shelves and sorts are made once for a whole process, in whatever order they came."""
    first = a_busy_life(3, 120, how)
    for seed in (2, 1, 5):
        a_busy_life(seed, 40, how)

    assert a_busy_life(3, 120, how) == first


def test_the_same_input_gives_the_same_events_whatever_the_hash_seed():
    """In processes of their own, which have played nothing else before, or something else."""
    play = "from tests.core.test_determinism import a_busy_life as play; "
    show = "print(*(play(seed, 150, how) for seed in (1, 5) for how in ('in place', 'remembered')))"
    lines = [play + show, f"{play} play(6, 30, 'remembered'); {show}", play + show]
    seeds = ["0", "1", "random"]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", line],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for line, seed in zip(lines, seeds, strict=True)
    ]
    said = [run.communicate(timeout=50)[0] for run in runs]

    assert [run.returncode for run in runs] == [0, 0, 0]
    assert said[0] == said[1] == said[2] != ""
