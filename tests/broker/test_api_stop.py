"""A broker that stops: who waits hears why, what is decided is answered, and nothing is reported as a fault."""

import asyncio
import logging
import threading

import httpx
import pytest

from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.errors import BrokerUnavailable
from jupyter_gpu.model import Holder, SeeStarted
from tests.conftest import Places

from .api_ground import Served, an_api, job, play
from .ground import a_job, a_loop

RESERVATION = {"kind": "reservation"}


async def until_served(broker: Served, count: int) -> None:
    """So many are being served."""
    async with asyncio.timeout(10):
        while len(broker.application._under_way) < count:
            await asyncio.sleep(0.01)


def test_who_waits_hears_that_the_broker_was_stopped(tmp_runtime: Places, caplog: pytest.LogCaptureFixture) -> None:
    """503 to a wait and to the follower of a log that has not begun; a stream ends in good order."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            await ada.post("/workloads", json=RESERVATION)
            await ada.post("/workloads", json=RESERVATION)
            await ada.post("/workloads", json=job())
            asks = ["/workloads/2/wait", "/workloads/3/log?follow=true", "/stream"]
            asked = [asyncio.ensure_future(ada.get(path)) for path in asks]
            await until_served(broker, len(asks))
            await broker.application.close()
            waited, followed, stream = await asyncio.gather(*asked)

            for answer in (waited, followed):
                assert (answer.status_code, answer.json()["code"]) == (503, "broker-unavailable")
                assert answer.json()["message"] == (
                    "The broker was stopped; what waits keeps its place for the next one."
                )
            assert (stream.status_code, len(stream.text.splitlines())) == (200, 1)
            assert (await ada.get("/status")).status_code == 503

    caplog.set_level(logging.WARNING)
    play(story)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_log_that_is_being_followed_is_cut(tmp_runtime: Places) -> None:
    """To end in good order would say that the attempt is over; its follower takes it up with the next broker."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            await ada.post("/workloads", json=job())
            await broker.loop.handle(
                SeeStarted(workload=1, attempt=1, holder=Holder(kind="attempt", name="1.1", number=1))
            )
            broker.loop.log_path(1, 1).write_bytes(b"one\n")
            ada.event_hooks = {}  # which would read the answer to its end
            async with ada.stream("GET", "/workloads/1/log?follow=true") as answer:
                parts = answer.aiter_raw()
                assert await anext(parts) == b"one\n"
                await broker.application.close()
                with pytest.raises(httpx.RemoteProtocolError):
                    await anext(parts)

    play(story)


def test_a_submission_under_way_is_answered(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being committed when the broker stops is decided to the end, and its asker hears it."""
    go_on, is_there = threading.Event(), threading.Event()
    commit = Store.commit

    def slow(self: Store, *args: object) -> None:
        is_there.set()
        assert go_on.wait(30)
        commit(self, *args)  # type: ignore[arg-type]

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            with monkeypatch.context() as patch:
                patch.setattr(Store, "commit", slow)
                asked = asyncio.ensure_future(ada.post("/workloads", json=RESERVATION))
                await asyncio.to_thread(is_there.wait, 30)
                closing = asyncio.ensure_future(broker.application.close())
                await asyncio.sleep(0)
                go_on.set()
                await closing
                assert (await asked).status_code == 201

    play(story)


def test_a_closed_loop_refuses(tmp_runtime: Places) -> None:
    """Who asks a loop that is closed, or whose command was not reached, hears so and does not wait for ever."""

    async def story() -> None:
        async with a_loop(tmp_runtime.runtime_dir / "state") as (loop, _):
            late = asyncio.ensure_future(loop.handle(a_job()))
            for task in loop._tasks:
                task.cancel()  # nobody takes it from the inbox any more
            await asyncio.sleep(0)
            await loop.close()
            with pytest.raises(BrokerUnavailable):
                await late
            with pytest.raises(BrokerUnavailable):
                await loop.handle(a_job())
            with pytest.raises(BrokerUnavailable):
                await loop.read(lambda store: store.store_id)
            loop.close = _nothing  # type: ignore[method-assign]

    play(story)


async def _nothing() -> None:
    pass
