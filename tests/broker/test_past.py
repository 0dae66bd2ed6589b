"""The lab's own past, as `simulate` replays it: from the store, a page at a time, and for whom it concerns."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_gpu.broker.store import history
from jupyter_gpu.core.events import Granted
from jupyter_gpu.core.past import Life
from jupyter_gpu.core.simulation.history import NEVER_RAN, NOT_OVER, SHARED, past_job
from jupyter_gpu.model import EndReason, Kind, Lease
from tests.conftest import Places

from .api_ground import play
from .test_report import HOUR, a_lab, lived


def test_operators_have_the_past_of_all_and_everybody_else_their_own(tmp_runtime: Places) -> None:
    """An hour of ada's and two of grace's; what still runs is not over."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            begun = clock.now
            await lived(broker, clock, "ada")
            await lived(broker, clock, "grace", seconds=2 * HOUR, end="failed")

            whole = (await broker.as_("oper").get("/history")).json()
            assert [(it["user"], it["duration_seconds"], it["end"]) for it in whole["items"]] == [
                *(("ada", HOUR, "succeeded"), ("grace", 2 * HOUR, "failed")),
            ]
            assert whole["next"] is None
            assert whole["items"][0] == {
                "id": 1,
                "user": "ada",
                "team": "everyone",
                "queue": "training",
                "submitted_at": begun,
                "gpus": 1,
                "duration_seconds": HOUR,
                "end": "succeeded",
            }
            own = (await broker.as_("ada").get("/history")).json()
            assert [it["user"] for it in own["items"]] == ["ada"]

    play(story)


def test_a_long_past_comes_in_pages(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page says where the next begins, so that others come between; nothing is told twice or lost."""
    monkeypatch.setattr(history, "_LIVES_TOGETHER", 2)

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            for _ in range(5):
                await lived(broker, clock, "ada", seconds=60)
            found, after = [], 0
            while after is not None:
                page = (await broker.as_("oper").get("/history", params={"after": after})).json()
                found += [it["id"] for it in page["items"]]
                after = page["next"]
                await asyncio.sleep(0)

            assert found == [1, 2, 3, 4, 5]

    play(story)


@pytest.mark.parametrize("after", ["-1", "x", "0.5", str(2**70)])
def test_a_page_that_is_none_is_refused(tmp_runtime: Places, after: str) -> None:
    """As everywhere."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, _):
            assert (await broker.as_("oper").get("/history", params={"after": after})).status_code == 422

    play(story)


def life(**more: object) -> Life:
    """One that ended."""
    words = {"id": 1, "kind": Kind.JOB, "owner": "ada", "team": "v", "queue": "training", "submitted_at": 0.0}
    return Life(**{**words, "end": EndReason.SUCCEEDED, "ended_at": 100.0, **more})


def granted(at: float, **lease: object) -> Granted:
    """Two devices, for at most an hour."""
    words = {"devices": ("a", "b"), "pool": "local", "granted_at": at, "ends_at": at + HOUR}
    return Granted(at=at, workload=1, lease=Lease(**{**words, **lease}))


def test_what_a_trace_cannot_have_is_told_by_why() -> None:
    """What is not over, what never ran, what was on a part of a GPU."""
    assert past_job(life(ended_at=None), [granted(0.0)]) == NOT_OVER
    assert past_job(life(), []) == NEVER_RAN
    assert past_job(life(), [granted(0.0, devices=())]) == NEVER_RAN
    assert past_job(life(), [granted(0.0, memory_bytes=1 << 30)]) == SHARED


def test_a_limit_is_what_was_asked_for_and_waiting_begins_when_nothing_of_its_own_kept_it() -> None:
    """A job with a start of its own time waits from then on."""
    found = past_job(life(not_before=50.0), [granted(60.0)])

    assert not isinstance(found, str)
    assert (found.submitted_at, found.limit_seconds, found.gpus) == (50.0, HOUR, 2)
