"""Following a log over connections that break: every byte once, whatever it is made of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from jupyter_gpu.broker.api import log
from jupyter_gpu.model import EndReason, Holder, Outcome, SeeExited, SeeStarted
from tests.conftest import Places

from .api_ground import Served, an_api, job, play

#: Bytes that are no UTF-8, a character cut in two, a bar that draws itself anew, no newline at the end.
PARTS = (
    b"epoch 1\n",
    b"\r 10%|#  | 1/10",
    b"\r100%|###| 10/10\xff\n",
    "größe \N{HIGH VOLTAGE SIGN}".encode()[:-1],
    b"\xa1\0end",
)


async def started(broker: Served) -> Path:
    """A job of ada's that runs; where its log lies."""
    await broker.as_("ada").post("/workloads", json=job())
    await broker.loop.handle(SeeStarted(workload=1, attempt=1, holder=Holder(kind="attempt", name="1.1")))
    path = broker.engine.log_path(1, 1)
    path.touch()
    return path


async def follow(broker: Served, offset: int, most: int | None = None) -> bytes:
    """Take the log from an offset; drop the connection after so many bytes, or go on to the end."""
    got = b""
    query = {"follow": "true", "offset": str(offset)}
    headers = {"Authorization": "Bearer token-of-ada"}
    async with (
        httpx.AsyncClient(base_url=broker.url, trust_env=False, headers=headers) as client,
        client.stream("GET", "/workloads/1/log", params=query) as answer,
    ):
        async for part in answer.aiter_raw():
            got += part
            if most is not None and len(got) >= most:
                break
    return got


def test_who_was_cut_off_goes_on_by_offset_without_gap_or_repeat(tmp_runtime: Places) -> None:
    """The browser is closed, a lot is printed, and it is opened again: jupyterlab/jupyterlab#2833."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            path = await started(broker)
            seen = b""
            for part in PARTS:
                with path.open("ab") as file:
                    file.write(part)
                # Connected while this part comes, and dropped; what is printed between two connections is not lost.
                seen += await follow(broker, len(seen), most=1)
                with path.open("ab") as file:
                    file.write(b"meanwhile %d\n" % len(seen))
            last = asyncio.ensure_future(follow(broker, len(seen)))
            done = Outcome(end=EndReason.SUCCEEDED, exit_code=0)
            await broker.loop.handle(SeeExited(workload=1, attempt=1, outcome=done, clear=True))
            async with asyncio.timeout(20):
                seen += await last
            assert seen == path.read_bytes()
            assert all(part in seen for part in PARTS)

    play(story)


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_two_who_follow_from_different_places_see_the_same_bytes(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """However small the pieces are that are read."""
    monkeypatch.setattr(log, "PART_BYTES", size)
    monkeypatch.setattr(log, "LOOK_SECONDS", 0.001)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            path = await started(broker)
            readers = [asyncio.ensure_future(follow(broker, offset)) for offset in (0, 5, -3)]
            for part in PARTS:
                with path.open("ab") as file:
                    file.write(part)
                await asyncio.sleep(0)
            done = Outcome(end=EndReason.SUCCEEDED, exit_code=0)
            await broker.loop.handle(SeeExited(workload=1, attempt=1, outcome=done, clear=True))
            async with asyncio.timeout(20):
                whole, later, _ = await asyncio.gather(*readers)
            assert whole == b"".join(PARTS)
            assert later == whole[5:]

    play(story)
