"""The past of a real broker, by both senders and by the command that replays it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator

import pytest
from rich.console import Console

from jupyter_gpu import spawn
from jupyter_gpu.cli import run
from jupyter_gpu.client import AsyncClient, Client
from jupyter_gpu.model import Ask, JobSpec, Kind, SubmitBody
from tests.conftest import Places

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def broker(tmp_runtime: Places) -> Iterator[Client]:
    """A client of a broker of its own."""
    spawn.start_broker(["--simulated=2"])
    with Client(start=False) as client:
        yield client
        client.stop_broker()


def test_what_has_run_can_be_replayed_on_other_gpus(broker: Client) -> None:
    """Two jobs that are over, and none that never had a GPU; then the question that they answer."""
    for devices in (1, 2, 0):
        it = broker.submit(
            SubmitBody(kind=Kind.JOB, ask=Ask(devices=devices), spec=JobSpec(argv=("/bin/true",), folder="/"))
        )
        broker.wait(it.id, "ended", 60)

    past = broker.past()
    assert [(it.id, it.gpus, it.queue, it.end) for it in past] == [
        *((1, 1, "training", "succeeded"), (2, 2, "training", "succeeded")),
    ]

    async def ask() -> object:
        async with AsyncClient(start=False) as client:
            return await client.past()

    assert asyncio.run(ask()) == past

    out = io.StringIO()
    code = run(
        ["simulate", "history", "--devices", "1,2", "--json"],
        client=broker,
        console=Console(file=out, width=80),
        errors=Console(file=io.StringIO()),
    )
    assert code == 0
    found = [(it["devices"], it["jobs"], len(it["not_run"])) for it in json.loads(out.getvalue())["runs"]]
    assert found == [(1, 1, 1), (2, 2, 0)]
