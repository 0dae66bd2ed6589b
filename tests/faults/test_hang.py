"""A job that hangs gets one notice and one more attempt, wherever the broker is killed meanwhile."""

from __future__ import annotations

import pytest

from jupyter_gpu.model import EndReason, EvictionReason, SeeHung
from tests.faults.house import PYTHON, House, job
from tests.faults.test_crash_matrix import TRAINING

COMMITS = 7
PLACES = [
    *((place, n) for n in range(1, COMMITS + 1) for place in ("before-commit", "after-commit")),
    *((place, n) for n in (1, 2) for place in ("after-start", "after-mark", "after-exit")),
    ("after-order", 1),
]


@pytest.mark.parametrize(("place", "n"), PLACES)
def test_a_hang_survives_a_kill(house: House, place: str, n: int) -> None:
    """It is seen to hang, saves at the notice, and goes on from there: nothing of it twice, and it counts once."""
    house.start(f"{place}:{n}")
    (id_,) = house.submit(job(house, [*PYTHON, TRAINING], key="training"))
    house.wait("started", id_)
    house.wait_line(f"start {id_}.1")
    house.commands(SeeHung(workload=id_, attempt=1, detail="it stood still"))
    house.wait("ended", id_)

    assert house.lines() == [f"start {id_}.1", f"notice {id_}.1 True", f"start {id_}.2", f"done {id_}.2"]
    assert house.starts > 1 or n > COMMITS - 3, "nobody was killed"
    house.kill()
    it = house.stored().workloads[id_]
    assert (it.end, it.attempt, it.failures) == (EndReason.SUCCEEDED, 2, 1)
    story = house.story_of(id_)
    assert story[3:6] == ["evicted", "released", "requeued"]
    assert [event.reason for event in house.events(id_) if hasattr(event, "yield_by")] == [EvictionReason.HUNG]
    assert "it stood still" in next(event.detail for event in house.events(id_) if hasattr(event, "cause"))
