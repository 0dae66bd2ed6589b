"""The broker may be killed at any instant: what recurs comes once each time, and no calendar is lost or doubled."""

from __future__ import annotations

import time

import pytest

from jupyter_gpu.core.events import RecurringChanged, RecurringPut
from jupyter_gpu.model import AddRecurring, EndReason, PauseRecurring
from tests.faults.house import House, job, until

APPEND = ("sh", "-c", "echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out")

COMMITS_OF_THE_STORY = 12
PLACES = (
    [(place, n) for n in range(1, COMMITS_OF_THE_STORY + 1) for place in ("before-commit", "after-commit")]
    + [(place, n) for n in (1, 2) for place in ("after-start", "after-mark", "after-exit")]
)  # fmt: skip


@pytest.fixture
def house(house: House) -> House:
    """Its broker looks often at the clock: what is due when it is said waits for a look, twice in each story."""
    house.tick_seconds = 0.1
    return house


def the_one(house: House) -> dict:
    """The recurring job as the broker has it."""
    (it,) = house.world()["recurring"]
    return dict(it)


def comes(house: House, times: int) -> int:
    """Wait until it has come so often and the job of it is over; gives that job."""
    until(lambda: the_one(house).get("times", 0) >= times, f"it came {times} times")
    job_id = the_one(house)["last_workload"]
    house.wait("ended", job_id)
    return int(job_id)


def play_the_story(house: House) -> tuple[int, int, int]:
    """It is added and due at once; then it is due once more. Every word may meet a dead broker, and is said again."""
    second = time.time() - 1
    first = second - 1
    add = AddRecurring(
        cron="0 0 1 1 *", timezone="Europe/Amsterdam", submit=job(house, APPEND, key="night"), next_at=first
    )
    (id_,) = house.submit(add)
    one = comes(house, 1)
    house.commands(PauseRecurring(recurring=id_, by="ada", paused=False, next_at=second))
    return id_, one, comes(house, 2)


def check_the_story(house: House, id_: int, one: int, two: int) -> None:
    """Two instants were two jobs, each of which ran once; the calendar stands where the next year begins."""
    assert house.lines() == [f"{one}.1", f"{two}.1"]
    assert house.world()["leases"] == {}
    house.kill()
    world = house.stored()
    assert {it.id: it.end for it in world.workloads.values()} == {
        one: EndReason.SUCCEEDED, two: EndReason.SUCCEEDED,
    }  # fmt: skip
    it = world.recurring[id_]
    assert (list(world.recurring), it.times, it.last_workload) == ([id_], 2, two)
    assert it.next_at is not None
    assert it.next_at > time.time()
    told = [event.what for event in house.events() if isinstance(event, RecurringPut | RecurringChanged)]
    assert told.count("added") == 1
    assert told.count("fired") == 2
    assert [event for event in told if event in ("skipped", "refused")] in ([], ["skipped"])


@pytest.mark.parametrize(("place", "n"), PLACES)
def test_the_story_survives_a_kill(house: House, place: str, n: int) -> None:
    """Wherever the broker is killed, between word and job or between job and end, the next one goes on."""
    house.start(f"{place}:{n}")
    check_the_story(house, *play_the_story(house))
    assert house.starts > 1 or n > COMMITS_OF_THE_STORY - 4, "nobody was killed"


def test_a_broker_that_was_dead_over_an_instant_brings_it_once(house: House) -> None:
    """Killed before it could, started after it, and killed and started once more: one job, which says it is late."""
    house.start(hold=("Fire", str(house.root / "never")))
    add = AddRecurring(cron="0 0 1 1 *", timezone="UTC", submit=job(house, APPEND), next_at=time.time() - 3600)
    (id_,) = house.submit(add)
    house.kill()
    for _ in range(2):
        house.start()
        comes(house, 1)
        house.kill()
    assert len(house.lines()) == 1
    it = house.stored().recurring[id_]
    assert it.times == 1
    assert it.last_detail.startswith("1h")
    assert it.last_detail.split()[1] == "late"
