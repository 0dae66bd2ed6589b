"""Holds and reservations for later over the API: who may, what is shown to whom, what stays after a restart."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from jupyter_gpu.model import Policy
from tests.conftest import Places

from .api_ground import Served, an_api, play

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()
HOUR = 3600
COURSE = {
    "name": "ml101", "teams": ["ml101"], "count": 1, "every": "tue 13:00-15:00", "timezone": "UTC",
    "no_show_seconds": 900,
}  # fmt: skip


def with_broker(tmp_runtime: Places, story: Callable[[Served], Any], policy: Policy | None = None) -> None:
    """Play a story against a broker whose clock stands at noon of a Tuesday."""

    async def whole() -> None:
        words = {} if policy is None else {"policy": policy}
        async with an_api(tmp_runtime.runtime_dir, clock=lambda: NOON, **words) as broker:
            await story(broker)

    play(whole)


def test_an_operator_puts_a_hold_and_everybody_sees_it(tmp_runtime: Places) -> None:
    """With its next window, and whether they are among those it is for."""

    async def story(broker: Served) -> None:
        answer = await broker.as_("oper").post("/holds", json=COURSE)
        assert answer.status_code == 201, answer.text
        assert answer.headers["Location"].endswith("/holds/1")
        it = answer.json()
        assert it == it | {
            "id": 1, "name": "ml101", "from_at": NOON + HOUR, "until_at": NOON + 3 * HOUR, "every": "tue 13:00-15:00",
            "timezone": "UTC", "count": 1, "teams": ["ml101"], "no_show_seconds": 900, "by": "oper",
        }  # fmt: skip
        (mine,) = (await broker.as_("ada").get("/holds")).json()["items"]
        (grace,) = (await broker.as_("grace").get("/holds")).json()["items"]
        assert mine["is_mine"] is True
        assert "is_mine" not in grace
        assert "by" not in mine
        assert (await broker.as_("ada").get("/status")).json()["holds"] == [mine]

    with_broker(tmp_runtime, story, Policy(teams={"ml101": ("ada",)}))


def test_only_operators_put_and_remove(tmp_runtime: Places) -> None:
    """Others are told that they lack the scope."""

    async def story(broker: Served) -> None:
        assert (await broker.as_("ada").post("/holds", json=COURSE)).status_code == 403
        assert (await broker.as_("oper").post("/holds", json=COURSE)).status_code == 201
        assert (await broker.as_("ada").delete("/holds/1")).status_code == 403
        assert (await broker.as_("oper").delete("/holds/1")).json()["id"] == 1
        for missing in ("1", "x", "9" * 30):
            assert (await broker.as_("oper").delete(f"/holds/{missing}")).status_code == 404
            assert (await broker.as_("oper").get(f"/holds/{missing}")).status_code == 404

    with_broker(tmp_runtime, story)


@pytest.mark.parametrize(
    "words",
    [
        {"every": "MONDAYxyz 10:00-12:00"},
        {"every": None, "from_at": 1e308, "until_at": 1.1e308},
        {"every": None, "from_at": -1e15, "until_at": NOON},
        {"until": 1e300},
        {"teams": ["ml101", " "]},
        {"every": None},
        {"from_at": NOON},
        {"every": "never"},
        {"timezone": "Europe/Atlantis"},
        {"teams": []},
        {"maintenance": True},
        {"count": 0},
        {"devices": ["0"]},
        {"name": "x" * 2000},
        {"until": NOON - HOUR},
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_say(tmp_runtime: Places, words: dict[str, Any]) -> None:
    """And nothing is left of it."""

    async def story(broker: Served) -> None:
        answer = await broker.as_("oper").post("/holds", json=COURSE | words)
        assert answer.status_code == 422, answer.text
        assert answer.json()["hint"]
        assert broker.loop.world.holds == {}

    with_broker(tmp_runtime, story)


def test_a_repeated_ask_is_the_same_hold(tmp_runtime: Places) -> None:
    """Where its answer was lost."""

    async def story(broker: Served) -> None:
        key = {"Idempotency-Key": "k"}
        numbers = [(await broker.as_("oper").post("/holds", json=COURSE, headers=key)).json()["id"] for _ in range(2)]
        assert numbers == [1, 1]

    with_broker(tmp_runtime, story)


def test_a_single_one_by_device(tmp_runtime: Places) -> None:
    """Maintenance of a device by its number; others' reservations for that time are refused with its name."""

    async def story(broker: Served) -> None:
        body = {
            "name": "works",
            "maintenance": True,
            "devices": ["0"],
            "from_at": NOON + HOUR,
            "until_at": NOON + 2 * HOUR,
        }
        it = (await broker.as_("oper").post("/holds", json=body)).json()
        assert it["devices"] == ["GPU-0"]
        ask = {"kind": "reservation", "ask": {"devices": 1, "on": ["GPU-0"]}, "not_before": NOON + HOUR}
        answer = await broker.as_("ada").post("/workloads", json=ask)
        assert answer.status_code == 409
        assert "hold 1 (works)" in answer.json()["message"]

    with_broker(tmp_runtime, story)


def test_a_reservation_for_later_is_promised_and_others_see_it_coming(tmp_runtime: Places) -> None:
    """Its owner reads it among their work, others under what is coming."""

    async def story(broker: Served) -> None:
        ask = {"kind": "reservation", "ask": {"devices": 1, "duration_seconds": HOUR}, "not_before": NOON + HOUR}
        answer = await broker.as_("ada").post("/workloads", json=ask)
        assert answer.status_code == 202, answer.text
        it = answer.json()
        assert it["waiting"] == "not-before"
        assert "It is promised from" in it["reason"]
        theirs = (await broker.as_("grace").get("/status")).json()
        assert [(one["id"], one["owner"], one["not_before"]) for one in theirs["coming"]] == [
            (it["id"], "ada", NOON + HOUR)
        ]
        mine = (await broker.as_("ada").get("/status")).json()
        assert "coming" not in mine
        assert [one["id"] for one in mine["workloads"]] == [it["id"]]

    with_broker(tmp_runtime, story)


def test_names_that_are_not_public_are_not_shown_with_what_comes(tmp_runtime: Places) -> None:
    """When and how much, but not whose."""

    async def story(broker: Served) -> None:
        ask = {"kind": "reservation", "ask": {"devices": 1, "duration_seconds": HOUR}, "not_before": NOON + HOUR}
        await broker.as_("ada").post("/workloads", json=ask)
        body = {"name": "thesis", "users": ["ada"], "count": 1, "from_at": NOON + 5 * HOUR, "until_at": NOON + 6 * HOUR}
        await broker.as_("oper").post("/holds", json=body)
        theirs = (await broker.as_("grace").get("/status")).json()
        assert theirs["coming"][0]["owner"] is None
        assert theirs["holds"][0]["users"] is None
        assert "ada" not in str(theirs)

    with_broker(tmp_runtime, story, Policy(names_are_public=False))


def test_what_is_in_the_way_is_told_to_operators(tmp_runtime: Places) -> None:
    """Accepted with a warning: the reservation keeps its time."""

    async def story(broker: Served) -> None:
        for device in broker.loop.world.devices:
            ask = {"kind": "reservation", "ask": {"on": [device], "duration_seconds": 2 * HOUR}}
            assert (await broker.as_("ada").post("/workloads", json=ask)).status_code == 201
        it = (await broker.as_("oper").post("/holds", json=COURSE)).json()
        assert "held by reservation 1 until" in it["warnings"][0]
        assert "warnings" not in (await broker.as_("grace").get("/holds")).json()["items"][0]

    with_broker(tmp_runtime, story)
