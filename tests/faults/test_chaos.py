"""Everything at once, at random: brokers, launchers and supervisors die while jobs and reservations come and go."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from jupyter_gpu.broker.engines import procs
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.model import Ask, Cancel, Dependency, EndReason, State, World
from tests.faults.house import QUICK, Died, House, job, reservation, twice

#: Says that it began, works a little, and heeds a notice as many scripts do: by leaving at once.
WORK = ("sh", "-c", 'echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out; trap "exit 0" TERM; sleep "$1" & wait', "sh")
STEPS = 60


def kill_something(house: House, dice: random.Random) -> None:
    """The broker, its launcher, or a supervisor."""
    victim = dice.choice(["broker", "broker", "launcher", "supervisor"])
    try:
        seen = house.ask("engine")
    except Died:
        house.start()
        return
    pids = [seen["launcher"]] if victim == "launcher" else []
    if victim == "supervisor":
        pids = [it["holder"]["pid"] for it in seen["inventory"].values() if it["stage"] == "started"]
    proc = procs.find(dice.choice(pids)) if pids and pids != [None] else None
    if proc is not None:
        procs.send(proc, signal.SIGKILL)
    if victim == "broker":
        house.kill()
        place = dice.choice(["before-commit", "after-commit", "after-start", "after-mark", "after-exit"])
        house.start(dice.choice([None, f"{place}:{dice.randint(3, 12)}"]))


def submit_many(house: House, dice: random.Random, n: int, before: list[int]) -> list[int]:
    """An array, so many of it at once as it happens, that may come after something else."""
    seeds = tuple({"seed": str(seed)} for seed in range(dice.randint(2, 4)))
    after = tuple(Dependency(workload=id_) for id_ in dice.sample(before, min(len(before), dice.choice([0, 0, 1, 2]))))
    many = job(house, [*WORK, "0.02"], key=f"array {n}", array=seeds, at_most=dice.choice([None, 1, 2]), after=after)
    (first,) = house.submit(many)
    return [*range(first, first + len(seeds))]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_dies_nothing_is_lost_and_nothing_runs_twice(make_house: Callable[..., House], seed: int) -> None:
    """Each attempt runs once, all come to an end, no device is in two leases at any event, and none stays leased."""
    dice = random.Random(seed)
    house = make_house(devices=3, policy={**QUICK, "losses": 100, "clear_seconds": 10})
    house.start()
    ids: list[int] = []
    for n in range(STEPS):
        what = dice.random()
        if what < 0.15:
            ids += submit_many(house, dice, n, ids)
        elif what < 0.5:
            ask = Ask(devices=dice.choice([0, 1, 1, 2]))
            ids += house.submit(job(house, [*WORK, str(dice.choice([0, 0, 0.02, 0.2, 1]))], key=f"job {n}", ask=ask))
        elif what < 0.65:
            ids += house.submit(reservation(key=f"reservation {n}", devices=dice.choice([1, 2])))
        elif what < 0.8 and ids:
            house.commands(Cancel(workload=dice.choice(ids), by="ada", array=dice.random() < 0.3))
        else:
            kill_something(house, dice)
    for it in house.world()["workloads"]:
        if it["kind"] == "reservation":
            house.release(it["id"])
    ended = house.wait("ended", *ids, seconds=40)
    assert [it.title for it in ended if it.state is not State.ENDED] == []
    allowed = {EndReason.SUCCEEDED, EndReason.CANCELLED, EndReason.RELEASED, EndReason.DEPENDENCY_UNMET}
    assert {it.end for it in ended} <= allowed, [(it.id, it.end, it.detail) for it in ended if it.end not in allowed]
    assert twice(house.lines()) == []
    assert house.world()["leases"] == {}
    house.kill()
    house.stored()
    world = World()
    for event in house.events():
        evolve(world, event)
        assert world.check() == []
