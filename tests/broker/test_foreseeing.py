"""Looks ahead beside the broker's work: told in documents and by the stream, and of one with what would be sooner."""

from __future__ import annotations

import pytest

from jupyter_gpu.broker import foreseeing
from jupyter_gpu.core.foresight import Foresight
from jupyter_gpu.core.outlook import Expected
from tests.conftest import Places

from .api_ground import an_api, play
from .ground import a_job, a_reservation

HOUR = 3600


@pytest.fixture(autouse=True)
def _without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreseeing, "LEAST_REST_SECONDS", 0.0)
    monkeypatch.setattr(foreseeing, "RESTS", 0.0)


def test_a_look_at_one_that_waits_has_its_range_and_what_would_be_sooner(tmp_runtime: Places) -> None:
    """Both are held, one until soon: one GPU would be had before two. That is its owner's, and operators', to know."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            loop = broker.loop
            await loop.handle(a_reservation("grace", duration_seconds=5 * HOUR))
            await loop.handle(a_reservation("oper", duration_seconds=HOUR))
            job = (await loop.handle(a_job("ada", devices=2))).workload

            shown, others, operators = [
                (await broker.as_(who).get(f"/workloads/{job}")).json() for who in ("ada", "grace", "oper")
            ]

            grace_seconds = loop.world.policy.reservation_grace_seconds
            leases = [it.lease for it in loop.world.holders()]
            latest, soonest = [max(it.ends_at for it in leases), min(it.ends_at for it in leases)]
            assert shown["expected_start_from"] == shown["expected_start_until"] == latest + grace_seconds
            assert shown["sooner"] == [
                {
                    "devices": 1,
                    "expected_start_from": soonest + grace_seconds,
                    "expected_start_until": soonest + grace_seconds,
                }
            ]
            assert operators["sooner"] == shown["sooner"]
            assert "sooner" not in others

    play(story)


def test_the_document_has_the_range_of_all_that_is_ones_own_once_it_was_looked_for(tmp_runtime: Places) -> None:
    """The first document begins a look and waits for none; when it is there those who listen are told."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            loop, ada = broker.loop, broker.as_("ada")
            await loop.handle(a_reservation("grace", devices=2, duration_seconds=HOUR))
            jobs = [(await loop.handle(a_job("ada", devices=2, duration_seconds=HOUR))).workload for _ in range(2)]
            heard = loop.subscribe()

            first = (await ada.get("/status")).json()
            assert all("expected_start_until" not in it for it in first["workloads"])
            look = await anext(heard)
            assert look.is_look

            mine = {it["id"]: it for it in (await ada.get("/status")).json()["workloads"] if it.get("is_mine")}
            ends = [mine[id_]["expected_start_until"] for id_ in jobs]
            assert loop.now() < ends[0] < ends[1]
            assert [mine[id_]["before"] for id_ in jobs[1:]] == [jobs[:1]]

    play(story)


def test_what_hardly_differs_is_not_told_again() -> None:
    """Half a minute more or less is no news; an end that is known now, or one more that waits, is."""
    before = Foresight({1: Expected(1000.0, 2000.0)})

    def told(after: dict[int, Expected]) -> bool:
        return foreseeing._differs(before, Foresight(after), 500.0)

    assert not told({1: Expected(1030.0, 1970.0)})
    assert not told({})
    assert told({1: Expected(1000.0, 2100.0)})
    assert told({1: Expected(1000.0, None)})
    assert told({1: Expected(1000.0, 2000.0), 2: Expected(1000.0, 2000.0)})
