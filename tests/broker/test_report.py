"""The report of a broker: read from its store in pages, and shown to whom it concerns."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jupyter_gpu.broker.api import reports
from jupyter_gpu.broker.store import history
from jupyter_gpu.model import EndReason, Holder, Outcome, Policy, SeeExited, SeeStarted
from tests.conftest import Places

from .api_ground import CALLERS, Served, an_api, job, play
from .ground import Clock

HOUR = 3600


async def lived(broker: Served, clock: Clock, who: str, *, seconds: float = HOUR, end: str = "succeeded") -> int:
    """A job that runs for so long, and ends so."""
    id_ = int((await broker.as_(who).post("/workloads", json=job())).json()["id"])
    holder = Holder(kind="attempt", name=f"{id_}.1", number=1)
    await broker.loop.handle(SeeStarted(workload=id_, attempt=1, holder=holder))
    clock.now += seconds
    outcome = Outcome(end=EndReason(end), exit_code=0 if end == "succeeded" else 1)
    await broker.loop.handle(SeeExited(workload=id_, attempt=1, outcome=outcome, clear=True))
    return id_


@contextlib.asynccontextmanager
async def a_lab(tmp_runtime: Places, *, count: int = 2, **policy: object) -> AsyncIterator[tuple[Served, Clock]]:
    """Two devices and a clock that stands until it is moved."""
    clock = Clock()
    async with an_api(tmp_runtime.runtime_dir, count=count, policy=Policy(**policy), clock=clock) as broker:
        yield broker, clock


def test_everybody_has_a_report_of_their_own_work_and_an_operator_of_all(tmp_runtime: Places) -> None:
    """An hour of ada's and two of grace's, in three hours of two devices."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            await lived(broker, clock, "ada")
            await lived(broker, clock, "grace", seconds=2 * HOUR, end="gpu-oom")

            own = (await broker.as_("ada").get("/report")).json()
            assert (own["of"], own["spent"]["jobs"], own["job_ends"]) == ("own", 1, {"succeeded": 1})
            assert own["device_time"]["leased_seconds"] == HOUR
            assert own["device_time"]["leased_share"] == 1 / 6, "of all devices there were"

            whole = (await broker.as_("oper").get("/report", params={"by": "user"})).json()
            assert (whole["of"], whole["job_ends"]) == ("all", {"gpu-oom": 1, "succeeded": 1})
            assert whole["device_time"]["leased_share"] == 0.5
            assert [(row["name"], row["leased_device_seconds"]) for row in whole["rows"]] == [
                ("grace", 2 * HOUR), ("ada", HOUR),
            ]  # fmt: skip
            assert whole["failures"] == {"gpu-oom": 1}
            assert whole["spent"]["failures_per_device_hour"] == pytest.approx(1 / 3)

    play(story)


@pytest.mark.parametrize(("public", "names"), [(True, {"ada", "grace"}), (False, {"ada", ""})])
def test_others_see_the_totals_of_all_and_names_only_where_names_are_public(
    tmp_runtime: Places, public: bool, names: set[str]
) -> None:
    """Who may know of others at all may know how busy the lab was."""

    async def story() -> None:
        async with a_lab(tmp_runtime, names_are_public=public) as (broker, clock):
            await lived(broker, clock, "ada")
            await lived(broker, clock, "grace")

            found = (await broker.as_("ada").get("/report", params={"by": "user", "of": "all"})).json()

            assert found["spent"]["jobs"] == 2
            assert {row["name"] for row in found["rows"]} == names

    play(story)


def test_who_may_not_look_at_others_has_their_own_report_alone(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A contractor, who may submit and nothing else."""
    monkeypatch.setitem(CALLERS, "submitter", ["submit"])

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            await lived(broker, clock, "ada")
            contractor = broker.as_("submitter")

            assert (await contractor.get("/report")).json()["spent"]["jobs"] == 0
            answer = await contractor.get("/report", params={"of": "all"})
            assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed")

    play(story)


def test_a_report_is_of_the_time_that_was_asked_for(tmp_runtime: Places) -> None:
    """The last hour; the hour before it; and what cannot be meant is refused."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            begun = clock.now
            await lived(broker, clock, "ada")
            await lived(broker, clock, "ada", end="failed")
            ada = broker.as_("ada")

            last = (await ada.get("/report", params={"since": HOUR})).json()
            assert last["job_ends"] == {"failed": 1}
            assert (last["begin_at"], last["end_at"]) == (begun + HOUR, begun + 2 * HOUR)
            before = (await ada.get("/report", params={"from": begun, "to": begun + HOUR})).json()
            assert before["job_ends"] == {"succeeded": 1}
            assert before["device_time"]["leased_seconds"] == HOUR
            slips = (
                {"since": 60, "to": begun}, {"from": begun, "to": begun}, {"from": clock.now + 5}, {"since": 0},
                {"since": "nan"}, {"from": "nan"}, {"to": "inf", "from": "inf"}, {"by": "colour"}, {"of": "bob"},
            )  # fmt: skip
            for wrong in slips:
                assert (await ada.get("/report", params=wrong)).status_code == 422, wrong

    play(story)


def test_of_a_time_before_the_broker_nothing_is_known(tmp_runtime: Places) -> None:
    """Which is not that nothing was there: no share is told, and the notes say from when on something is known."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            begun = clock.now
            await lived(broker, clock, "ada")
            before = {"from": begun - 9 * HOUR, "to": begun - HOUR}

            found = (await broker.as_("oper").get("/report", params=before)).json()

            assert (found["spent"]["jobs"], found["device_time"]["leased_share"]) == (0, None)
            assert any("is not known" in note for note in found["notes"])

    play(story)


def test_a_report_says_from_when_on_something_is_known(tmp_runtime: Places) -> None:
    """Seven days were asked for, and the broker is an hour old."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            begun = clock.now
            await lived(broker, clock, "ada")

            found = (await broker.as_("ada").get("/report")).json()

            assert found["begin_at"] == begun
            assert found["device_time"]["there_seconds"] == 2 * HOUR
            assert any("is not known" in note for note in found["notes"])
            assert any("Cost is not in it" in note for note in found["notes"])

    play(story)


def test_pages_of_any_size_give_the_same_report(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, one by one, and cut by how much was read."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            for _ in range(7):
                await lived(broker, clock, "ada")
            found = [(await broker.as_("oper").get("/report", params={"by": "end"})).json()]
            monkeypatch.setattr(history, "_LIVES_TOGETHER", 2)
            monkeypatch.setattr(reports, "_ROWS", 1)
            found.append((await broker.as_("oper").get("/report", params={"by": "end"})).json())
            monkeypatch.setattr(history, "_LIVES_BYTES", 1)
            found.append((await broker.as_("oper").get("/report", params={"by": "end"})).json())

            assert found[0]["job_ends"] == {"succeeded": 7}
            assert found[0] == found[1] == found[2]

    play(story)


def test_too_many_lives_are_refused_with_what_to_ask_instead(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a report would look like a whole one."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, clock):
            await lived(broker, clock, "ada")
            await lived(broker, clock, "ada")
            monkeypatch.setattr(reports, "MOST_LIVES", 1)

            answer = await broker.as_("oper").get("/report")

            assert answer.status_code == 422
            assert "shorter time" in answer.json()["hint"]

    play(story)


def test_devices_are_found_in_the_log_without_a_look_at_all_of_it(tmp_runtime: Places) -> None:
    """By their own index: of a million events a thousand are about devices."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as (broker, _):
            file = broker.loop._store.path
        with contextlib.closing(sqlite3.connect(file)) as db:
            (plan, *_) = db.execute("EXPLAIN QUERY PLAN " + history._OF_DEVICES, (0, 10)).fetchall()
            (past, *_) = db.execute("EXPLAIN QUERY PLAN " + history._PAST_OF, (1,)).fetchall()
        assert "events_of_devices" in plan[-1]
        assert "events_of_workload" in past[-1]

    play(story)


def test_others_get_their_answers_between_the_pages(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages come to no end before somebody's job was accepted: who must wait for their end waits for ever."""
    accepted = threading.Event()
    read = history.History.lives

    async def story() -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def lives(self: history.History, after: int, *args: Any, **words: Any) -> int | None:
            loop.call_soon_threadsafe(begun.set)
            return read(self, after, *args, **words) if accepted.is_set() else 0

        monkeypatch.setattr(history.History, "lives", lives)
        async with a_lab(tmp_runtime) as (broker, clock):
            await lived(broker, clock, "ada")
            asked = asyncio.create_task(broker.as_("oper").get("/report"))
            await begun.wait()

            assert (await broker.as_("grace").post("/workloads", json=job())).status_code == 201
            assert (await broker.as_("oper").get("/status")).status_code == 200, (
                "whose report it is has their lists too"
            )
            accepted.set()

            assert (await asked).json()["job_ends"] == {"succeeded": 1}

    play(story)
