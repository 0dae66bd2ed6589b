"""Chains, arrays and dry runs by way of the API: what is checked at the doors, and what nothing is left of."""

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpu.broker.api import bounds, parents, room
from jupyter_gpu.broker.api.room import EACH_BYTES, size_of
from jupyter_gpu.broker.store.history import History
from jupyter_gpu.model import JobSpec, Kind, SubmitBody, Workload
from tests.conftest import Places

from .api_ground import an_api, job, play


def after(*ids: int, ok: bool = False) -> list[dict[str, object]]:
    """What a job comes after, as JSON."""
    return [{"workload": id_, "ok": ok} for id_ in ids]


def test_a_job_after_another_says_whom_it_waits_for_and_its_events_say_what_came(tmp_runtime: Places) -> None:
    """In its view, its sentence and its life."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            ada = broker.as_("ada")
            await ada.post("/workloads", json=job(name="prep", paused=True))
            answer = await ada.post("/workloads", json=job(after=after(1, ok=True)))
            it = answer.json()
            assert (answer.status_code, it["waiting"], it["unmet"]) == (202, "dependency", [1])
            assert it["reason"].startswith("It comes after the success of job 1 (prep), which is paused. ")

            await ada.post("/workloads/1/cancel", json={"reason": "a slip"})
            it = (await ada.get("/workloads/2")).json()
            assert (it["end"], it["detail"]) == (
                "dependency-unmet",
                "job 1 (prep) was cancelled before it began, and job 2 was to come after its success",
            )
            life = (await ada.get("/workloads/2/events")).json()["items"]
            assert [(event["event"], event.get("note", "")) for event in life][-1] == ("ended", "dependency-unmet")

    play(story)


def test_what_a_queued_job_comes_after_is_amended(tmp_runtime: Places) -> None:
    """Circles are refused with their path; events say what was changed and by whom."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1) as broker:
            ada = broker.as_("ada")
            for _ in range(3):
                await ada.post("/workloads", json=job(paused=True))
            answer = await ada.post("/workloads/2/chain", json={"after": after(1)})
            assert (answer.status_code, answer.json()["unmet"]) == (200, [1])
            await ada.post("/workloads/3/chain", json={"after": after(2) + after(1, ok=True)})

            refused = await ada.post("/workloads/1/chain", json={"after": after(3)})
            assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
            assert "job 1 would wait for itself: 1 → 3 → 1" in refused.json()["message"]
            await ada.post("/workloads/3/chain", json={"after": []})

            life = (await ada.get("/workloads/3/events")).json()["items"]
            notes = [(event["note"], event["by"]) for event in life if event["event"] == "amended"]
            assert notes == [("after 2, 1 (success)", "ada"), ("after nothing", "ada")]
            assert (await broker.as_("grace").post("/workloads/3/chain", json={"after": []})).status_code == 403

    play(story)


def test_what_one_may_not_see_cannot_be_come_after(tmp_runtime: Places) -> None:
    """404, the same as what does not exist: a job that waits would tell when it ends."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1) as broker:
            broker.loop.world.policy = broker.loop.world.policy.__class__(names_are_public=False)
            await broker.as_("grace").post("/workloads", json=job(paused=True))
            ada = broker.as_("ada")
            await ada.post("/workloads", json=job(paused=True))
            for id_ in (1, 77):
                for answer in (
                    await ada.post("/workloads", json=job(after=after(id_))),
                    await ada.post("/workloads/2/chain", json={"after": after(id_)}),
                ):
                    assert (answer.status_code, answer.json()["message"]) == (404, f"there is no workload {id_}.")
            assert sorted(broker.loop.world.workloads) == [1, 2]

    play(story)


def test_a_parent_that_only_the_store_remembers_counts(tmp_runtime: Places) -> None:
    """Also an array of which the world keeps a part."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1) as broker:
            ada = broker.as_("ada")
            await ada.post("/workloads", json=job(array=[{}, {}, {}], paused=True))
            for id_ in (1, 2, 3):
                await ada.post(f"/workloads/{id_}/cancel", json={})
            for id_ in (1, 2):
                broker.loop.world._forget(id_)

            it = (await ada.post("/workloads", json=job(after=after(1)))).json()
            assert it["end"] == "dependency-unmet"
            assert it["detail"].startswith("job 1 (1 of 3 of array 1) was cancelled before it began, and job 4 was to")

    play(story)


def test_an_array_is_answered_with_its_first_and_stands_in_one_step(tmp_runtime: Places) -> None:
    """All or nothing, and the same key is the same array."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            ada, key = broker.as_("ada"), {"Idempotency-Key": "sweep"}
            body = job("echo", "{lr}", array=[{"lr": "0.1"}, {"lr": "0.01"}, {"lr": "x"}], at_most=1, name="digits")
            first = await ada.post("/workloads", json=body, headers=key)
            assert (first.status_code, first.json()["id"], first.headers["Location"][-2:]) == (201, 1, "/1")
            assert first.json()["member"] == {
                "array": 1, "index": 1, "of": 3, "at_most": 1, "parameters": {"lr": "0.1"}
            }  # fmt: skip
            again = await ada.post("/workloads", json=body, headers=key)
            assert (again.json()["id"], sorted(broker.loop.world.workloads)) == (1, [1, 2, 3])
            third = (await ada.get("/workloads/3")).json()
            assert (third["spec"]["argv"], third["spec"]["parameters"]) == (["echo", "x"], {"lr": "x"})
            assert third["reason"].startswith("1 of array 1 runs, the most that was asked for at once.")

            items = (await ada.post("/submissions", json={"items": [job(), body, job(after=after(1))]})).json()["items"]
            assert [it["workload"]["id"] for it in items] == [4, 5, 8]
            assert items[2]["workload"]["unmet"] == [1]

    play(story)


def test_each_command_of_an_array_is_looked_for(tmp_runtime: Places) -> None:
    """What could only fail later is refused now, whole."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1) as broker:
            body = job("{tool}", array=[{"tool": "true"}, {"tool": "no-such-command"}])
            answer = await broker.as_("ada").post("/workloads", json=body)
            assert (answer.status_code, broker.loop.world.workloads) == (422, {})
            assert "no-such-command" in answer.json()["message"]
            long = job("echo", "{x}" * 1000, array=[{"x": "1"}, {"x": "y" * 200}])
            assert (
                "argv[1] has 200000 bytes" in (await broker.as_("ada").post("/workloads", json=long)).json()["message"]
            )

    play(story)


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ({"array": [{"a": "1\n2"}]}, "invalid-ask", "The array's a holds control characters"),
        ({"array": [{"a": "x" * 5000}]}, "limit-exceeded", "The array's a has 5000 characters"),
        ({"array": [{f"p{n}": "" for n in range(65)}]}, "limit-exceeded", "The array has 65 parameters"),
        (
            {"array": [{}] * 5000, "spec": {"argv": ["true"] + [""] * 7000}},
            "limit-exceeded",
            "All of the array would have 35005000 words and variables; 2000000 are the most.",
        ),
        (
            {"array": [{"x": str(n)} for n in range(5000)], "spec": {"argv": ["true"] + ["{x}"] * 30}},
            "limit-exceeded",
            "All of the array would have 150000 words and variables with values of their own; 100000 are the most.",
        ),
        ({"array": [{}] * 10_001}, "limit-exceeded", "The array has 10001 jobs; 5000 are the most"),
        ({"array": [{"a\x1b": "1"}]}, "invalid-ask", "array holds control characters"),
        ({"array": [{"a": "1"}], "at_most": -1}, "invalid-ask", "at_most: -1 is below zero"),
        ({"array": [{"a": 1}]}, "invalid-ask", "The body cannot be meant"),
        (
            {"spec": {"argv": ["true", *["{a}" * 100] * 10]}, "array": [{"a": "x" * 4000}]},
            "limit-exceeded",
            "One of the array would have 4008002 bytes more",
        ),
        ({"after": [{"workload": 1}] * 101}, "limit-exceeded", "A job can come after 100 others, not after 101"),
    ],
)
def test_what_nobody_means_is_refused_at_the_door(
    tmp_runtime: Places, more: dict[str, object], code: str, said: str
) -> None:
    """Before anything of it is looked up or made."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await broker.as_("ada").post("/workloads", json=job(**more))
            assert (answer.status_code, answer.json()["code"]) == (422, code)
            assert said in answer.json()["message"]
            chain = {"after": more.get("after", [])}
            if "after" in more:
                assert said in (await broker.as_("ada").post("/workloads/1/chain", json=chain)).json()["message"]

    play(story)


def test_an_array_weighs_as_much_as_all_of_it(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the log, where each is written down, and in memory, where each waits."""
    spec = JobSpec(argv=("run", "x" * 1000), folder="/tmp")
    one = SubmitBody(kind=Kind.JOB, spec=spec)
    many = SubmitBody(kind=Kind.JOB, spec=spec, array=tuple({"a": str(n)} for n in range(100)))
    assert size_of(many) > 100 * size_of(one)

    monkeypatch.setattr(bounds, "MOST_QUEUED_BYTES", 50_000)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            assert (await ada.post("/workloads", json=job("true", "x" * 1000))).status_code == 201
            answer = await ada.post("/workloads", json=job("true", "x" * 1000, array=[{}] * 100))
            assert (answer.json()["code"], list(broker.loop.world.workloads)) == ("limit-exceeded", [1])
            assert "Your waiting jobs would have" in answer.json()["message"]

    play(story)


def test_a_dry_run_says_what_would_be_and_leaves_nothing_behind(tmp_runtime: Places) -> None:
    """No workload, no event, no copy of a script; the next id is the same. It counts as one ask, however large."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            ada = broker.as_("ada")
            script = {"name": "train.py", "content": "cHJpbnQoMSk="}
            body = job("sh", "train.py", script=script, spec={"script_index": 1}, array=[{"a": "1"}, {"a": "2"}])
            before = (broker.loop.world.revision, broker.loop.world.last_id)
            answer = await ada.post("/workloads?dry_run=true", json=body, headers={"Idempotency-Key": "k"})

            found = answer.json()
            assert (answer.status_code, found["jobs"], found["starts_now"]) == (200, 2, 2)
            assert (found["workload"]["state"], found["workload"]["member"]["of"]) == ("active", 2)
            assert "Location" not in answer.headers
            assert (broker.loop.world.revision, broker.loop.world.last_id) == before
            assert not list((broker.state / "scripts").glob("*"))
            assert broker.application.room._used["ada"][0] < 2 * EACH_BYTES  # as one job, however many it is of
            assert (await ada.post("/workloads", json=body, headers={"Idempotency-Key": "k"})).json()["id"] == 1

    play(story)


@pytest.mark.parametrize(
    "body",
    [
        job("no-such-command"),
        job(ask={"devices": 99}),
        job(after=after(7)),
        job(array=[{"a": "1"}, {"a": "1"}]),
        {"kind": "reservation", "array": [{}]},
        job("x.py", spec={"script_index": 0}, script={"name": "x.py", "content": "A" * (24 << 20)}),
    ],
    ids=["no command", "no such devices", "no parent", "twins", "no job", "a large script"],
)
def test_a_dry_run_is_refused_as_the_ask_would_be(tmp_runtime: Places, body: dict[str, object]) -> None:
    """The same error, code for code and word for word."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            tried, asked = [await ada.post(f"/workloads{query}", json=body) for query in ("?dry_run=true", "")]
            assert tried.status_code == asked.status_code >= 400
            assert json.loads(tried.text) == json.loads(asked.text)
            reader = await broker.as_("reader").post("/workloads?dry_run=true", json=body)
            assert reader.status_code == 403

    play(story)


def test_a_calendar_is_tried_with_the_job_and_refused_where_it_cannot_be_meant(tmp_runtime: Places) -> None:
    """Its first instants come back; an ask that is none of a calendar's has no place for one."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada, words = broker.as_("ada"), {"dry_run": "true", "cron": "30 2 * * *", "timezone": "Europe/Amsterdam"}
            found = (await ada.post("/workloads", params=words, json=job())).json()
            assert [datetime.fromtimestamp(at, ZoneInfo(found["timezone"])).hour for at in found["times"]] == [2, 2, 2]
            wrong = await ada.post("/workloads", params=words | {"cron": "30 2 * *"}, json=job())
            assert (wrong.status_code, "cron has 5" in wrong.json()["message"]) == (422, True)
            asked = await ada.post("/workloads", params={"cron": "30 2 * * *"}, json=job())
            assert asked.status_code == 422
            assert broker.loop.world.last_id == 0

    play(story)


def test_one_request_is_for_all_of_an_array(tmp_runtime: Places) -> None:
    """The answer has those that it concerned, those that wait or waited first; said twice it is told the same twice."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1) as broker:
            ada = broker.as_("ada")
            await ada.post("/workloads", json=job(array=[{"seed": seed} for seed in "1234"]))
            revision = broker.loop.world.revision

            async def say(verb: str, **more: object) -> list[tuple[int, str, bool]]:
                answer = await ada.post(f"/workloads/3/{verb}?array=true", **more)
                assert answer.status_code == 207
                return [(it["id"], it["state"], it.get("paused", False)) for it in answer.json()["items"]]

            paused = [(2, "queued", True), (3, "queued", True), (4, "queued", True)]
            assert [await say("pause"), await say("pause")] == [paused, paused]
            assert [it[2] for it in await say("let-go")] == [False] * 3
            assert len(await say("chain", json={"after": after()})) == 3
            wanted = [(2, "ended", False), (3, "ended", False), (4, "ended", False), (1, "yielding", False)]
            assert await say("cancel", json={"reason": "wrong data"}) == wanted
            ends = (await ada.get("/workloads/4")).json()
            assert ends["detail"] == "cancelled by ada: wrong data"
            # Each of them has an event of its own for each word, and the planner's sentences are one for all.
            assert broker.loop.world.revision == revision + 3 + 1 + 3 + 1 + 4

    play(story)


def test_an_array_of_others_is_theirs_and_one_that_is_over_is_told_so(tmp_runtime: Places) -> None:
    """403 as for one of it, 404 for what one may not see, 409 where nothing of it is left."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1) as broker:
            ada = broker.as_("ada")
            await ada.post("/workloads", json=job(array=[{"seed": "1"}, {"seed": "2"}], paused=True))
            assert (await broker.as_("grace").post("/workloads/1/cancel?array=true")).status_code == 403
            assert (await broker.as_("grace").post("/workloads/7/cancel?array=true")).status_code == 404
            assert (await ada.post("/workloads/2/cancel?array=true")).status_code == 207

            answer = await ada.post("/workloads/2/cancel?array=true")
            assert (answer.status_code, answer.json()["message"]) == (409, "all of array 1 has ended already.")
            broker.loop.world._forget(1)
            broker.loop.world._forget(2)
            answer = await ada.post("/workloads/2/cancel?array=true")
            assert (answer.status_code, answer.json()["message"]) == (
                409,
                "job 2 (2 of 2 of array 1) has ended long ago (cancelled), and all of its array with it.",
            )

    play(story)


def test_an_array_that_ended_long_ago_is_looked_at_once_for_a_request(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come after it, and not one by one: all commits wait meanwhile. Of arrays there are so many."""
    asked = []
    real = History.first_lost

    def first_lost(store: History, first: int, last: int, *, ok: bool) -> Workload | None:
        asked.append((first, last, ok))
        return real(store, first, last, ok=ok)

    monkeypatch.setattr(History, "first_lost", first_lost)
    monkeypatch.setattr(parents, "MOST_PAST_ARRAYS", 2)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1) as broker:
            ada = broker.as_("ada")
            for begin in (1, 4, 7):
                await ada.post("/workloads", json=job(array=[{}, {}, {}], paused=True))
                for id_ in range(begin, begin + 3):
                    await ada.post(f"/workloads/{id_}/cancel", json={})
                    broker.loop.world._forget(id_)

            items = [job(after=after(1)), job(after=after(1) + after(1)), job(after=after(1, ok=True))]
            answer = (await ada.post("/submissions", json={"items": items})).json()["items"]
            assert [it["workload"]["end"] for it in answer] == ["dependency-unmet"] * 3
            assert asked == [(1, 3, False), (1, 3, True)]
            refused = await ada.post("/workloads", json=job(after=after(1) + after(4) + after(7)))
            assert (refused.status_code, "more than 2 arrays" in refused.json()["message"]) == (422, True)

    play(story)


def test_words_to_a_job_and_asks_that_are_only_tried_take_room(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is written down or decided, so nobody does it in a loop for ever; to end what is there needs no room."""
    monkeypatch.setattr(room, "BYTES_PER_SECOND", 1)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1) as broker:
            for name, path, body, size in (
                ("ada", "/workloads?dry_run=true", job(array=[{}] * 1000), 3000),
                ("grace", "/workloads/{}/pause", {}, 300),
                ("oper", "/workloads/{}/chain", {"after": after(1, 2)}, 400),
            ):
                it = broker.as_(name)
                ids = [(await it.post("/workloads", json=job())).json()["id"] for _ in range(3)]
                used = broker.application.room._used[name][0]
                assert (await it.post(path.format(ids[2]), json=body)).status_code == 200
                assert 200 <= broker.application.room._used[name][0] - used < size
                with monkeypatch.context() as full:
                    full.setattr(room, "MOST_BYTES", 1)
                    assert (await it.post(path.format(ids[2]), json=body)).status_code == 429
                    assert (await it.post(f"/workloads/{ids[2]}/cancel", json={})).status_code == 200

    play(story)
