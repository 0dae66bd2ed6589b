"""The loop outlives what goes wrong inside it: a fault of ours, a commit that may or may not have been written."""

from __future__ import annotations

import pytest

from jupyter_gpu.model import EndReason
from tests.faults.house import House, job, until

APPEND = ("sh", "-c", "echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out")


@pytest.mark.parametrize("n", [3, 5, 6, 8])
@pytest.mark.parametrize("place", ["before-commit", "after-commit"])
@pytest.mark.parametrize("error", ["fault", "disk"])
def test_a_commit_that_fails_once_is_made_good(house: House, place: str, n: int, error: str) -> None:
    """Written or not, and whatever was raised: the next look finds the truth, and the queue goes on."""
    house.start(f"{place}:{n}:{error}")
    for key in ("first", "second"):
        command = job(house, APPEND, key=key)
        until(lambda it=command: "workload" in house.commands(it)[0], "it is taken in the end")
    ended = house.wait("ended", 1, 2, seconds=10)
    assert [it.end for it in ended] == [EndReason.SUCCEEDED] * 2
    assert sorted(house.lines()) == ["1.1", "2.1"]
    assert house.starts == 1
    assert house.world()["leases"] == {}
    house.kill()
    house.stored()
