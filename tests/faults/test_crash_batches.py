"""The broker may be killed at any commit of a chain and of an array: each runs once, in its order, and none is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from jupyter_gpu.core.events import Amended, Ended, Submitted
from jupyter_gpu.model import Cancel, Dependency, EndReason
from tests.faults.house import House, job

MEMBERS = 3
PREPARE = ("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; echo prepared >> out")
TRAIN = ("sh", "-c", "echo begin {seed}.$JUPYTER_GPU_ATTEMPT >> out; sleep 0.05; echo end {seed} >> out")
REPORT = ("sh", "-c", "echo reported >> out")

COMMITS_OF_THE_STORY = 16
PLACES = [(place, n) for n in range(1, COMMITS_OF_THE_STORY + 1) for place in ("before-commit", "after-commit")]


class Pipeline(NamedTuple):
    """The ids of what was submitted."""

    prepare: int
    members: range
    report: int
    never: int
    stranded: int


def play_the_pipeline(house: House) -> Pipeline:
    """Prepare, then an array one by one, then report; and what is left over is cancelled, with what waits for it."""
    (prepare,) = house.submit(job(house, PREPARE, key="prepare"))
    after = (Dependency(workload=prepare, ok=True),)
    seeds = tuple({"seed": str(seed)} for seed in range(1, MEMBERS + 1))
    (first,) = house.submit(job(house, TRAIN, key="train", array=seeds, at_most=1, after=after))
    members = range(first, first + MEMBERS)
    (report,) = house.submit(job(house, REPORT, key="report", after=(Dependency(workload=first, ok=True),)))
    (never,) = house.submit(job(house, REPORT, key="never", after=(Dependency(workload=report),), paused=True))
    (stranded,) = house.submit(job(house, REPORT, key="stranded", after=(Dependency(workload=never),)))
    (house.work / "go").touch()
    house.wait("ended", prepare, *members, report)
    house.commands(Cancel(workload=never, by="ada"))
    house.wait("ended", never, stranded)
    return Pipeline(prepare, members, report, never, stranded)


def check_the_pipeline(house: House, pipeline: Pipeline) -> None:
    """In order and once each, with one of the array at a time; both ways to the world agree."""
    prepare, members, report, never, stranded = pipeline
    trained = [line for seed in range(1, MEMBERS + 1) for line in (f"begin {seed}.1", f"end {seed}")]
    assert house.lines() == ["prepared", *trained, "reported"]
    assert house.world()["leases"] == {}
    house.kill()
    world = house.stored()
    assert {world.workloads[id_].end for id_ in (prepare, *members, report)} == {EndReason.SUCCEEDED}
    assert [world.workloads[id_].end for id_ in (never, stranded)] == [
        EndReason.CANCELLED, EndReason.DEPENDENCY_UNMET,
    ]  # fmt: skip
    assert (world.line, world.children, world.members) == ([], [], {})
    submitted = [event.it.id for event in house.events() if isinstance(event, Submitted)]
    assert submitted == [prepare, *members, report, never, stranded]
    met = [event.workload for event in house.events() if isinstance(event, Amended) and event.unmet is not None]
    assert met == [*members, report, never]


@pytest.mark.parametrize(("place", "n"), PLACES)
def test_a_pipeline_survives_a_kill(make_house: Callable[..., House], place: str, n: int) -> None:
    """Wherever the broker is killed, the next one goes on as if nothing had been: an array is there whole or not."""
    house = make_house(devices=2)
    house.start(f"{place}:{n}")
    check_the_pipeline(house, play_the_pipeline(house))
    # Commits that happen to come together are one: of the last ones there may be none.
    assert house.starts > 1 or n > COMMITS_OF_THE_STORY - 4, "nobody was killed"


COMMITS_OF_A_CANCEL = 5


@pytest.mark.parametrize("place", ["before-commit", "after-commit"])
@pytest.mark.parametrize("n", range(1, COMMITS_OF_A_CANCEL + 1))
def test_an_array_is_cancelled_whole_or_not_at_all(house: House, place: str, n: int) -> None:
    """One commit has the ends of all that wait: a broker that dies there leaves all of them or none."""
    house.start(f"{place}:{n}")
    seeds = tuple({"seed": str(seed)} for seed in range(5))
    (first,) = house.submit(job(house, ("sleep", "600"), key="sweep", array=seeds))
    house.wait("started", first)
    ids = range(first, first + len(seeds))
    house.commands(Cancel(workload=ids[2], by="ada", array=True))
    ended = house.wait("ended", *ids)

    assert {it.end for it in ended} == {EndReason.CANCELLED}
    assert [it.attempt for it in ended] == [1, 0, 0, 0, 0]
    assert house.starts > 1 or n == COMMITS_OF_A_CANCEL, "nobody was killed"
    house.kill()
    over = [number for number, event in enumerate(house.events()) if isinstance(event, Ended)]
    assert over[:4] == [*range(over[0], over[0] + 4)]
    assert house.stored().line == []
