"""Many asks in one request: each stands for itself, and the same key submits nothing twice."""

import pytest

from jupyter_gpu.client import calls
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import MOST_SUBMISSIONS, JobSpec, Kind, SubmitBody
from tests.conftest import Places

from .api_ground import an_api, job, play


def test_each_stands_for_itself(tmp_runtime: Places) -> None:
    """In their order: the workload, or why it is refused; one refusal keeps no other back."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            bodies = [job(), job("no-such-command"), job(), {"kind": "reservation"}, job(ask={"devices": 99})]
            answer = await broker.as_("ada").post("/submissions", json={"items": bodies})
            assert answer.status_code == 200
            items = answer.json()["items"]
            assert [it["workload"]["id"] for it in items if "workload" in it] == [1, 2, 3]
            assert [list(it) for it in items] == [["workload"], ["error"], ["workload"], ["workload"], ["error"]]
            assert [it["error"]["code"] for it in items if "error" in it] == ["invalid-ask", "limit-exceeded"]
            assert "no-such-command" in items[1]["error"]["message"]

    play(story)


def test_more_than_are_decided_together(tmp_runtime: Places) -> None:
    """Their order is that of the request, across the chunks in which they are decided."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            bodies = [job(name=f"n{number}") for number in range(130)]
            items = (await broker.as_("ada").post("/submissions", json={"items": bodies})).json()["items"]
            assert [it["workload"]["name"] for it in items] == [body["name"] for body in bodies]
            assert [it["workload"]["id"] for it in items] == list(range(1, 131))

    play(story)


def test_the_same_key_submits_nothing_twice(tmp_runtime: Places) -> None:
    """An answer that was lost on the way is asked for again; what had not come is then submitted."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada, key = broker.as_("ada"), {"Idempotency-Key": "sweep"}
            first = await ada.post("/submissions", json={"items": [job(), job("sh")]}, headers=key)
            again = await ada.post("/submissions", json={"items": [job(), job("sh"), job("ls")]}, headers=key)
            ids = [[it["workload"]["id"] for it in answer.json()["items"]] for answer in (first, again)]
            assert ids == [[1, 2], [1, 2, 3]]
            other = await ada.post("/submissions", json={"items": [job("cat")]}, headers=key)
            assert other.json()["items"][0]["error"]["code"] == "conflict"

    play(story)


def test_what_may_not_be_asked_for_is_said_of_each(tmp_runtime: Places) -> None:
    """Scopes are of the kind that is asked for, so they are looked at one by one."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await broker.as_("reader").post("/submissions", json={"items": [job(), {"kind": "reservation"}]})
            assert [it["error"]["code"] for it in answer.json()["items"]] == ["not-allowed"] * 2
            assert not broker.loop.world.workloads

    play(story)


@pytest.mark.parametrize("body", [{}, {"items": {}}, {"items": [{}]}, {"items": [job()] * (MOST_SUBMISSIONS + 1)}])
def test_what_cannot_be_meant_submits_nothing(tmp_runtime: Places, body: dict[str, object]) -> None:
    """A request that is not understood as a whole is refused as a whole."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await broker.as_("ada").post("/submissions", json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid-ask")
            assert not broker.loop.world.workloads

    play(story)


def test_the_client_cuts_many_into_requests() -> None:
    """By their number and by their size, each with a key of its own that stays the same when it is sent again."""
    small = SubmitBody(kind=Kind.JOB, spec=JobSpec(argv=("true",), folder="/"))
    large = SubmitBody(kind=Kind.JOB, spec=JobSpec(argv=("x" * 100_000,), folder="/"))
    by_number = list(calls.submit_many([small] * (MOST_SUBMISSIONS + 1), "k"))
    assert [dict(call.headers)["Idempotency-Key"] for call in by_number] == ["k/0", f"k/{MOST_SUBMISSIONS}"]
    by_size = list(calls.submit_many([large] * 50, "k"))
    assert len(by_size) == 3
    assert all(len(call.content or b"") < calls.MOST_TOGETHER_BYTES + 200_000 for call in by_size)
    assert list(calls.submit_many([], "k")) == []


def test_the_client_gives_back_a_refusal_as_its_error() -> None:
    """In the place of the one that it is about, as the error that `submit` would raise."""
    body = b'{"items":[{"error":{"code":"invalid-ask","message":"no such command","hint":"look"}}]}'
    (error,) = calls.read(next(calls.submit_many([SubmitBody(kind=Kind.JOB)], "k")), 200, {}, body)
    assert isinstance(error, InvalidAsk)
    assert (str(error), error.hint) == ("no such command", "look")
