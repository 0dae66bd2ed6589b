"""The broker may be killed at any instant: nothing runs twice, nothing is lost, nothing is leased twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpu.core.events import Granted, Requeued
from jupyter_gpu.model import Ask, EndReason, State
from tests.faults.house import PYTHON, House, job, reservation, twice

#: Saves and leaves at its first notice; goes on from there at the next start, and ends.
TRAINING = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
saved = os.path.exists("saved")
out = os.open("out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
me = os.environ["JUPYTER_GPU_JOB"] + "." + os.environ["JUPYTER_GPU_ATTEMPT"]
os.write(out, f"start {me}\\n".encode())
if not saved:
    signal.sigwait([signal.SIGTERM])
    os.write(out, f"notice {me} {os.path.exists(os.environ['JUPYTER_GPU_NOTICE_FILE'])}\\n".encode())
    open("saved", "w")
else:
    os.write(out, f"done {me}\\n".encode())
"""
APPEND = ("sh", "-c", "echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out")

COMMITS_OF_THE_STORY = 10
PLACES = (
    [(place, n) for n in range(1, COMMITS_OF_THE_STORY + 1) for place in ("before-commit", "after-commit")]
    + [(place, n) for n in (1, 2) for place in ("after-start", "after-mark", "after-exit")]
    + [("after-order", 1)]
)


def play_the_story(house: House) -> tuple[int, int]:
    """A training fills the device, a reservation takes it, and gives it back; every word may meet a dead broker."""
    (training,) = house.submit(job(house, [*PYTHON, TRAINING], key="training"))
    house.wait("started", training)
    house.wait_line(f"start {training}.1")
    (reserved,) = house.submit(reservation(key="reservation"))
    house.wait("active", reserved)
    house.release(reserved)
    house.wait("ended", training, reserved)
    return training, reserved


def check_the_story(house: House, training: int, reserved: int) -> None:
    """Each attempt began once, heard one notice, and both ended well."""
    assert house.lines() == [
        f"start {training}.1", f"notice {training}.1 True", f"start {training}.2", f"done {training}.2",
    ]  # fmt: skip
    assert house.world()["leases"] == {}
    house.kill()
    world = house.stored()
    assert [world.workloads[id_].end for id_ in (training, reserved)] == [EndReason.SUCCEEDED, EndReason.RELEASED]
    assert sum(isinstance(it, Requeued) for it in house.events(training)) == 1
    assert house.story_of(training) == [
        "submitted", "granted", "started", "evicted", "released", "requeued", "granted", "started", "released", "ended",
    ]  # fmt: skip


@pytest.mark.parametrize(("place", "n"), PLACES)
def test_the_story_survives_a_kill(house: House, place: str, n: int) -> None:
    """Wherever the broker is killed in preempt and resume, the next one finishes the story as if nothing had been."""
    house.start(f"{place}:{n}")
    check_the_story(house, *play_the_story(house))
    # Commits that happen to come together are one: of the last ones there may be none.
    assert house.starts > 1 or n > COMMITS_OF_THE_STORY - 2, "nobody was killed"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_story_survives_a_broker_that_dies_again_and_again(house: House, n: int) -> None:
    """No progress is lost even where each broker lives for only a few commits."""
    lives = iter(["before-commit", "after-commit", "after-start", "after-commit"])
    start = house.start

    def start_again(*_: object) -> str:
        place = next(lives, None)
        return start(None if place is None else f"{place}:{n}")

    house.start = start_again  # type: ignore[method-assign]
    start_again()
    check_the_story(house, *play_the_story(house))


CROWD = 60


def play_the_crowd(house: House) -> list[int]:
    """Jobs that are over before anybody looks."""
    ids = house.submit(*(job(house, APPEND, key=f"crowd {i}", ask=Ask(devices=1)) for i in range(CROWD)))
    house.wait("ended", *ids)
    return ids


@pytest.mark.parametrize("place", ["before-commit", "after-commit", "after-start", "after-mark", "after-exit"])
@pytest.mark.parametrize("n", [2, 5, 11, 29])
def test_a_crowd_survives_a_kill(make_house: Callable[..., House], place: str, n: int) -> None:
    """Of jobs that last a millisecond none runs twice and none is missing, however short their life."""
    house = make_house(devices=8)
    house.start(f"{place}:{n}")
    ids = play_the_crowd(house)
    assert house.starts > 1 or n > CROWD // 4, "nobody was killed"
    assert twice(house.lines()) == []
    assert sorted(house.lines()) == sorted(f"{id_}.1" for id_ in ids)
    assert house.world()["leases"] == {}
    house.kill()
    world = house.stored()
    assert {world.workloads[id_].end for id_ in ids} == {EndReason.SUCCEEDED}
    assert all(it.state is State.ENDED for it in world.workloads.values())
    assert sum(isinstance(it, Granted) for it in house.events()) == CROWD
