"""Recurring jobs over the API: whose they are, what of them is refused, what is kept for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.broker.api import room
from jupyter_gpu.model import EndReason, Fire, Holder, Outcome, PauseRecurring, SeeExited, SeeStarted
from tests.conftest import Places

from .api_ground import Served, an_api, job, play
from .test_api_submit import script

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()
#: 02:30 in Amsterdam, in winter.
NIGHT = datetime(2026, 12, 2, 1, 30, tzinfo=UTC).timestamp()
DAY = 86_400


def nightly(*argv: str, **more: Any) -> dict[str, Any]:
    """The body of a nightly job."""
    words = {name: more.pop(name) for name in ("cron", "timezone", "overlap") if name in more}
    return {"cron": "30 2 * * *", "timezone": "Europe/Amsterdam", "job": job(*argv, **more)} | words


async def add(broker: Served, body: dict[str, Any] | None = None, *, name: str = "ada", **headers: str) -> int:
    """Add one and give its number."""
    answer = await broker.as_(name).post("/recurring", json=body or nightly(), headers=headers)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


async def fire(broker: Served, id_: int) -> int:
    """Its instant comes, as the loop would say; gives the job."""
    it = broker.loop.world.recurring[id_]
    assert it.next_at is not None
    await broker.loop.handle(PauseRecurring(recurring=id_, by="", paused=False, next_at=broker.loop.now()))
    await broker.loop.handle(Fire(recurring=id_, due_at=broker.loop.now(), next_at=it.next_at))
    job_id = broker.loop.world.recurring[id_].last_workload
    assert job_id is not None
    return job_id


async def end(broker: Served, job_id: int) -> None:
    """A job ends well."""
    holder = Holder(kind="attempt", name="x", number=1)
    await broker.loop.handle(SeeStarted(workload=job_id, attempt=1, holder=holder))
    outcome = Outcome(end=EndReason.SUCCEEDED, exit_code=0)
    await broker.loop.handle(SeeExited(workload=job_id, attempt=1, outcome=outcome, clear=True))


def with_broker(tmp_runtime: Places, story: Callable[[Served], Any]) -> None:
    """Play a story against a broker whose clock stands at noon."""

    async def whole() -> None:
        async with an_api(tmp_runtime.runtime_dir, clock=lambda: NOON) as broker:
            await story(broker)

    play(whole)


def test_it_is_added_and_listed_with_its_next_instant(tmp_runtime: Places) -> None:
    """The answer says when the first job comes, as Unix seconds, and where it is found again."""

    async def story(broker: Served) -> None:
        answer = await broker.as_("ada").post("/recurring", json=nightly("sh", "train.sh", name="digits"))
        assert answer.status_code == 201
        assert answer.headers["Location"].endswith("/recurring/1")
        it = answer.json()
        assert it == it | {
            "id": 1, "owner": "ada", "team": "everyone", "name": "digits", "command": "sh train.sh",
            "cron": "30 2 * * *", "timezone": "Europe/Amsterdam", "overlap": "skip", "paused": False,
            "added_at": NOON, "next_at": NIGHT,
        }  # fmt: skip
        assert (await broker.as_("ada").get("/recurring")).json() == {"items": [it]}

    with_broker(tmp_runtime, story)


def test_the_job_of_an_instant_is_its_owners_and_tells_where_it_comes_from(tmp_runtime: Places) -> None:
    """Its view names the recurring job, and that names the job and how it ended."""

    async def story(broker: Served) -> None:
        id_ = await add(broker)
        job_id = await fire(broker, id_)
        view = (await broker.as_("ada").get(f"/workloads/{job_id}")).json()
        assert (view["owner"], view["recurring"], view["state"]) == ("ada", id_, "active")
        (listed,) = (await broker.as_("ada").get("/recurring")).json()["items"]
        assert (listed["last_workload"], listed["last_state"], listed["times"]) == (job_id, "active", 1)
        await end(broker, job_id)
        (listed,) = (await broker.as_("ada").get("/recurring")).json()["items"]
        assert (listed["last_state"], listed["last_end"]) == ("ended", "succeeded")

    with_broker(tmp_runtime, story)


@pytest.mark.parametrize("verb", ["", "/pause", "/let-go", "/fire"])
def test_to_others_it_is_not_there(tmp_runtime: Places, verb: str) -> None:
    """As what does not exist; who only looks may not change their own; an operator may do all."""

    async def story(broker: Served) -> None:
        id_ = await add(broker)

        def ask(name: str, number: object = id_) -> Any:
            return broker.as_(name).request("POST" if verb else "DELETE", f"/recurring/{number}{verb}")

        asked = [("grace", id_), ("reader", id_), ("ada", 99), ("ada", "x"), ("ada", "9" * 400)]
        strangers = [await ask(name, number) for name, number in asked]
        assert {answer.status_code for answer in strangers} == {404}
        assert strangers[0].json()["message"] == strangers[2].json()["message"].replace("99", str(id_))
        assert (await broker.as_("grace").get("/recurring")).json()["items"] == []
        assert len((await broker.as_("oper").get("/recurring")).json()["items"]) == 1
        assert (await ask("oper")).status_code == 200

    with_broker(tmp_runtime, story)


def test_its_number_is_no_workload_and_that_is_said_to_who_may_see_it(tmp_runtime: Places) -> None:
    """`show`, `events` and `cancel` of it lead to the commands that are meant; to others it is nothing."""

    async def story(broker: Served) -> None:
        id_ = await add(broker)
        ada = broker.as_("ada")
        asked = [await ada.get(f"/workloads/{id_}"), await ada.post(f"/workloads/{id_}/cancel", json={})]
        for answer in asked:
            assert answer.status_code == 404
            assert answer.json()["message"].startswith(f"{id_} is a recurring job")
            assert f"jupyter gpu recurring show {id_}" in answer.json()["hint"]
        assert "there is no workload" in (await broker.as_("grace").get(f"/workloads/{id_}")).json()["message"]
        one = (await ada.get(f"/recurring/{id_}")).json()
        assert (one["id"], one["spec"]["argv"][0]) == (id_, "true")
        assert (await broker.as_("grace").get(f"/recurring/{id_}")).status_code == 404

    with_broker(tmp_runtime, story)


def test_to_add_one_needs_what_a_submission_needs(tmp_runtime: Places) -> None:
    """A token that may only look adds nothing."""

    async def story(broker: Served) -> None:
        for name in ("reader", "nothing"):
            assert (await broker.as_(name).post("/recurring", json=nightly())).status_code == 403
        assert broker.loop.world.recurring == {}

    with_broker(tmp_runtime, story)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cron": "30 2 * *"}, "4 fields"),
        ({"cron": "30 2 \x1b[2J * *"}, "month"),
        ({"cron": "0 0 */30 2 MON#5"}, "no instant"),
        ({"timezone": "Europe/Atlantis"}, "no time zone"),
        ({"job": job("no-such-program-anywhere")}, "not found"),
        ({"job": job(spec={"folder": "/no/such/folder"})}, "folder"),
        ({"job": {"kind": "reservation"}}, "only jobs recur"),
        ({"job": job(not_before=NIGHT)}, "by its calendar"),
        ({"job": job(paused=True)}, "by its calendar"),
        ({"job": job(queue="nowhere")}, "no queue"),
        ({"job": job(ask={"devices": 9})}, "9"),
        ({"overlap": "kill"}, "overlap"),
    ],
)
def test_what_cannot_be_meant_is_refused_now(tmp_runtime: Places, change: dict[str, Any], said: str) -> None:
    """As POST /workloads refuses it, and not at night."""

    async def story(broker: Served) -> None:
        answer = await broker.as_("ada").post("/recurring", json=nightly() | change)
        assert answer.status_code == 422
        assert said in answer.json()["message"]
        assert "\x1b" not in answer.json()["message"]
        assert broker.loop.world.recurring == {}

    with_broker(tmp_runtime, story)


def test_the_zone_is_the_brokers_where_nobody_names_one(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the answer says which that is."""

    async def story(broker: Served) -> None:
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        answer = await broker.as_("ada").post("/recurring", json={"cron": "@daily", "job": job()})
        assert (answer.json()["timezone"], answer.json()["cron"]) == ("Asia/Kolkata", "0 0 * * *")

    with_broker(tmp_runtime, story)


def test_asked_again_with_its_key_it_is_the_same_one(tmp_runtime: Places) -> None:
    """A lost answer makes no second calendar."""

    async def story(broker: Served) -> None:
        first, again = [await add(broker, **{"Idempotency-Key": "k"}) for _ in range(2)]
        assert (first, list(broker.loop.world.recurring)) == (again, [again])

    with_broker(tmp_runtime, story)


def test_pause_let_go_and_remove(tmp_runtime: Places) -> None:
    """Each answers with how it stands; repeated they change nothing, and what was removed is not there."""

    async def story(broker: Served) -> None:
        id_, ada = await add(broker), broker.as_("ada")
        for _ in range(2):
            assert (await ada.post(f"/recurring/{id_}/pause")).json()["paused"] is True
        for _ in range(2):
            it = (await ada.post(f"/recurring/{id_}/let-go")).json()
            assert (it["paused"], it["next_at"]) == (False, NIGHT)
        assert (await ada.delete(f"/recurring/{id_}")).json()["id"] == id_
        assert (await ada.delete(f"/recurring/{id_}")).status_code == 404
        assert (await ada.get("/recurring")).json() == {"items": []}

    with_broker(tmp_runtime, story)


def test_once_more_now_answers_with_the_job(tmp_runtime: Places) -> None:
    """And while that one runs it is refused, with its number."""

    async def story(broker: Served) -> None:
        id_, ada = await add(broker), broker.as_("ada")
        first = (await ada.post(f"/recurring/{id_}/fire")).json()
        assert (first["recurring"], first["state"]) == (id_, "active")
        again = await ada.post(f"/recurring/{id_}/fire")
        assert again.status_code == 409
        assert f"job {first['id']}" in again.json()["message"]

    with_broker(tmp_runtime, story)


def test_its_script_and_record_are_kept_for_as_long_as_it_comes(tmp_runtime: Places) -> None:
    """Between two nights no job needs the copies, and they are there all the same; with it they go."""

    async def story(broker: Served) -> None:
        diff = script(b"+lr = 0.1", "diff")
        body = nightly("python3", "train.py", spec={"script_index": 1}, script=script(b"print()"), record=[diff])
        id_ = await add(broker, body)
        spec = broker.loop.world.recurring[id_].submit.spec
        assert spec is not None
        copies = [Path(spec.script_copy or ""), *map(Path, spec.kept.values())]
        assert [copy.read_bytes() for copy in copies] == [b"print()", b"+lr = 0.1"]

        await end(broker, await fire(broker, id_))
        sweep = broker.application.scripts.sweep
        assert await asyncio.to_thread(sweep, older_than_seconds=-1) == 0
        assert [copy.exists() for copy in copies] == [True, True]
        await broker.as_("ada").delete(f"/recurring/{id_}")
        assert await asyncio.to_thread(sweep, older_than_seconds=-1) == 2

    with_broker(tmp_runtime, story)


def test_a_refused_one_leaves_no_copy(tmp_runtime: Places) -> None:
    """The copy is made before it is decided, and belongs to nobody after."""

    async def story(broker: Served) -> None:
        body = nightly("python3", "t.py", spec={"script_index": 1}, script=script(b"1"), not_before=NIGHT)
        assert (await broker.as_("ada").post("/recurring", json=body)).status_code == 422
        assert list((broker.state / "scripts").iterdir()) == []

    with_broker(tmp_runtime, story)


def test_each_word_to_it_counts_as_what_is_written_down(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who pauses and lets go in a loop is stopped before the disk is full; to remove it is never refused."""

    async def story(broker: Served) -> None:
        ada, id_ = broker.as_("ada"), await add(broker)
        monkeypatch.setattr(room, "MOST_BYTES", 10 * room.EACH_BYTES)
        for _ in range(10):  # what changes nothing is not written down
            assert (await ada.post(f"/recurring/{id_}/let-go")).status_code == 200
        said = [
            (await ada.post(f"/recurring/{id_}/{word}")).status_code for _ in range(10) for word in ("pause", "let-go")
        ]
        assert said[0] == 200
        assert 429 in said
        assert (await ada.delete(f"/recurring/{id_}")).status_code == 200

    with_broker(tmp_runtime, story)


def test_what_comes_counts_as_what_is_submitted(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has submitted too much lately gets the next time later, and reads why until then."""

    async def story(broker: Served) -> None:
        id_ = await add(broker)
        monkeypatch.setattr("jupyter_gpu.broker.api.room.MOST_BYTES", 1)
        refused = await broker.as_("ada").post(f"/recurring/{id_}/fire")
        assert refused.status_code == 429
        command = Fire(recurring=id_, due_at=NIGHT, next_at=NIGHT + DAY)
        assert not broker.loop.clockwork.may_come(broker.loop.world, command)
        (listed,) = (await broker.as_("ada").get("/recurring")).json()["items"]
        assert "has submitted" in listed["last_detail"]

    with_broker(tmp_runtime, story)


def test_it_is_there_after_a_restart(tmp_runtime: Places) -> None:
    """From the store, with all that it runs."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, clock=lambda: NOON) as broker:
            id_ = await add(broker, nightly("sh", "--seed", "1"))
            before = broker.loop.world.recurring[id_]
        async with an_api(tmp_runtime.runtime_dir, clock=lambda: NOON) as broker:
            assert broker.loop.world.recurring == {id_: before}

    play(story)
