"""Nobody's ask takes time or memory from the others, nor puts into a table what a terminal would obey."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jupyter_gpu.broker.api import bounds
from jupyter_gpu.broker.api.bounds import check_queued, check_size, check_word, check_words
from jupyter_gpu.errors import InvalidAsk, LimitExceeded
from jupyter_gpu.model import JobSpec, Kind, SubmitBody
from tests.conftest import Places

from .api_ground import an_api, job, play


@pytest.mark.parametrize("field", ["environment", "recorded"])
def test_millions_of_words_are_refused_before_they_are_decoded(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """By their bytes or by their number; the loop serves nobody while a body is decoded."""
    decoded: list[str] = []
    monkeypatch.setattr("jupyter_gpu.broker.api.submissions.read_submission", lambda *_, **__: decoded.append(field))

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            for count, said in ((1_000_000, "bytes without its script"), (150_000, "words")):
                words = ",".join(f'"{n:x}":""' for n in range(count))
                raw = json.dumps(job(spec={field: {}})).replace(f'"{field}": {{}}', f'"{field}": {{{words}}}')
                answer = await broker.as_("ada").post("/workloads", content=raw)
                assert (answer.status_code, said in answer.json()["message"]) == (422, True), answer.text

    play(story)
    assert not decoded


def test_who_sends_very_much_at_a_time_and_slowly_holds_bounded_memory(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one caller may be sending at a time is bounded, takes nothing from others, and is free again afterwards."""
    monkeypatch.setattr("jupyter_gpu.broker.api.application.MOST_HELD_BYTES", 1 << 20)
    part = b" " * (300 << 10)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            gate, begun = asyncio.Event(), [asyncio.Event() for _ in range(3)]

            async def slowly(number: int) -> AsyncIterator[bytes]:
                yield part
                begun[number].set()
                await gate.wait()
                yield json.dumps({"kind": "reservation"}).encode()

            ada = broker.as_("ada")
            slow = [asyncio.ensure_future(ada.post("/workloads", content=slowly(n))) for n in range(3)]
            await asyncio.gather(*(it.wait() for it in begun))
            while sum(it.held_bytes for it in broker.application._under_way) < 3 * len(part):
                await asyncio.sleep(0.01)
            answer = await ada.post("/workloads", content=part + b"{}")
            assert (answer.status_code, answer.json()["code"]) == (422, "limit-exceeded")
            assert (await ada.post("/workloads", json={"kind": "reservation"})).is_success
            for_grace = await broker.as_("grace").post("/workloads", content=part + b'{"kind": "reservation"}')
            assert for_grace.is_success
            gate.set()
            assert all(it.is_success for it in await asyncio.gather(*slow))
            assert (await ada.post("/workloads", content=part + b'{"kind": "reservation"}')).is_success

    play(story)


def test_a_script_of_the_largest_size_is_not_counted() -> None:
    """Only what stands beside it is; a second one of that name hides nothing."""
    text = base64.b64encode(bytes(16 << 20)).decode()
    large = json.dumps({"kind": "job", "script": {"name": "x", "content": text}}).encode()
    check_size(large)
    with pytest.raises(LimitExceeded):
        check_size(large[:-1] + b',"script":null}')


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"environment": {f"V{n}": "" for n in range(10_001)}}, "10001 variables"),
        ({"recorded": {str(n): "" for n in range(65)}}, "65 entries"),
        ({"recorded": {"git": "x" * (16 << 10)}}, "16387 characters"),
        ({"log_limit_bytes": (16 << 30) + 1}, "log_limit_bytes"),
        ({"parameters": {"a": json.loads("[" * 100 + "]" * 100)}}, "more than 32 deep"),
        ({"checkpoint_dir": "base64:a"}, "checkpoint_dir"),
        ({"checkpoint_dir": "base64:!!"}, "checkpoint_dir"),
        ({"recorded": {"python": "base64:A"}}, "recorded.python"),
        ({"unfilled": {"argv": ["base64:A"]}}, "unfilled"),
        ({"recorded": {"python": "base64:!!"}}, "recorded.python"),
        ({"checkpoint_dir": "a\0b"}, "checkpoint_dir"),
        ({"checkpoint_dir": "x" * 4096}, "checkpoint_dir"),
        ({"folder": "base64:a"}, "folder"),
        ({"folder": "/tmp\0"}, "folder"),
        ({"argv": ["true", "base64:a"]}, "argv[1]"),
        ({"argv": ["true", "a\0b"]}, "argv[1]"),
        ({"environment": {"A": "base64:a"}}, "'A'"),
        ({"environment": {"A": "a\0b"}}, "'A'"),
    ],
)
def test_a_job_that_would_only_break_later_is_refused(tmp_runtime: Places, spec: dict[str, Any], said: str) -> None:
    """What cannot be unpacked, holds a zero byte, or is more than anybody means: by name, before it is queued."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await broker.as_("ada").post("/workloads", json=job(spec=spec))
            assert (answer.status_code, said in answer.json()["message"]) == (422, True), answer.text
            assert not broker.loop.world.workloads

    play(story)


def test_what_an_owner_has_waiting_is_bounded(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large jobs count together; light ones and those of others do not."""
    monkeypatch.setattr(bounds, "MOST_QUEUED_BYTES", 50_000)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            large = job("true", "x" * 20_000, paused=True)
            told = [(await broker.as_("ada").post("/workloads", json=large)).status_code for _ in range(3)]
            assert told == [202, 202, 422]
            assert (await broker.as_("ada").post("/workloads", json=job(paused=True))).is_success
            assert (await broker.as_("grace").post("/workloads", json=large)).is_success
            with pytest.raises(LimitExceeded, match="waiting jobs"):
                check_queued(broker.loop.world, "ada", JobSpec(argv=("x" * 20_000,), folder="/"))

    play(story)


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\u200f", "\u061c", "\x1b", "\x9b", "\n", "\u2028"])
def test_words_that_a_terminal_would_obey_are_refused(sign: str) -> None:
    """Signs that command it and signs that turn the direction of a line; the refusal itself holds none."""
    with pytest.raises(InvalidAsk, match="control characters") as refused:
        check_word("name", f"train{sign}gpj")
    assert refused.value.message.isascii()
    check_word("name", "d\u00e9j\u00e0 \u05e9\u05dc\u05d5\u05dd \U0001f469\u200d\U0001f680")


@pytest.mark.parametrize(
    "ask",
    [
        {"ask": {"devices": 2**53 + 1}},
        {"ask": {"devices": -1}},
        {"ask": {"duration_seconds": 10**10}},
        {"spec": {"retries": -1}},
        {"spec": {"grace_seconds": 10**10}},
        {"not_before": 1e300},
        {"not_before": -1.0},
    ],
)
def test_numbers_that_no_calendar_has_are_refused(tmp_runtime: Places, ask: dict[str, Any]) -> None:
    """Wherever they stand in an ask, by their name."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await broker.as_("ada").post("/workloads", json=job(**ask))
            assert answer.status_code == 422
            assert next(iter(ask.get("ask", ask.get("spec", ask)))) in answer.json()["message"]

    play(story)


def test_a_plain_ask_passes() -> None:
    """Nothing of the above is said of what people really ask."""
    check_words(SubmitBody(kind=Kind.JOB, name="run(c=1,2)#1 'é'", spec=JobSpec(argv=("true",), folder="/")))


def test_parts_of_logs_that_are_being_taken_count_too(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an answer holds until its caller has taken it is bounded for each, and free again after that."""
    monkeypatch.setattr("jupyter_gpu.broker.api.application.MOST_HELD_BYTES", 1 << 20)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            id_ = (await ada.post("/workloads", json=job())).json()["id"]
            broker.engine.log_path(id_, 1).write_bytes(b"x" * (2 << 20))
            refused = await ada.get(f"/workloads/{id_}/log?limit={2 << 20}")
            assert (refused.status_code, refused.json()["code"]) == (422, "limit-exceeded")
            for offset in (0, 1 << 20):
                part = await ada.get(f"/workloads/{id_}/log?limit={1 << 20}&offset={offset}")
                assert (part.status_code, len(part.content)) == (200, 1 << 20)

    play(story)
