"""Both senders and the recurring jobs of a real broker: every call says what it means."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from jupyter_gpu import spawn
from jupyter_gpu.client import AsyncClient, Client
from jupyter_gpu.errors import Conflict, InvalidAsk, NotFound
from jupyter_gpu.model import JobSpec, Kind, Overlap, RecurringBody, SubmitBody
from tests.conftest import Places

pytestmark = pytest.mark.timeout(120)

SLEEP = SubmitBody(kind=Kind.JOB, name="digits", spec=JobSpec(argv=("sleep", "60"), folder="/"))
NIGHTLY = RecurringBody(cron="30 2 * * *", timezone="Europe/Amsterdam", job=SLEEP)


@pytest.fixture
def broker(tmp_runtime: Places) -> Iterator[Client]:
    """A client of a broker of its own."""
    spawn.start_broker(["--simulated=2"])
    with Client(start=False) as client:
        yield client
        for it in client.workloads(ended=False):
            with contextlib.suppress(Conflict):
                client.cancel(it.id)
        client.stop_broker()


def test_every_call_says_what_it_means(broker: Client) -> None:
    """Added, listed, paused, let go, fired and removed."""
    it = broker.add_recurring(NIGHTLY, "key")
    assert (it.name, it.command, it.overlap, it.times) == ("digits", "sleep 60", Overlap.SKIP, 0)
    assert it.next_at is not None
    assert time.time() < it.next_at < time.time() + 86_400 + 3600
    assert broker.add_recurring(NIGHTLY, "key") == it
    assert broker.recurring() == (it,)
    assert broker.pause_recurring(it.id).paused
    assert not broker.let_go_recurring(it.id).paused
    job = broker.fire(it.id)
    assert (job.recurring, job.name) == (it.id, "digits")
    assert broker.recurring()[0].last_workload == job.id
    with pytest.raises(Conflict, match="not over"):
        broker.fire(it.id)
    assert broker.remove_recurring(it.id).times == 1
    assert broker.recurring() == ()
    assert broker.workload(job.id).end is None
    for call in (broker.pause_recurring, broker.let_go_recurring, broker.fire, broker.remove_recurring):
        with pytest.raises(NotFound, match="no recurring job"):
            call(it.id)
    with pytest.raises(InvalidAsk, match="no time zone") as refused:
        broker.add_recurring(RecurringBody(cron="@daily", timezone="Amsterdam", job=SLEEP))
    assert refused.value.hint == "Did you mean Europe/Amsterdam?"


def test_the_async_client_says_the_same(broker: Client) -> None:
    """The same calls, sent by the other sender; without a key each is one of its own."""

    async def story() -> None:
        async with AsyncClient(start=False) as client:
            it, other = await client.add_recurring(NIGHTLY), await client.add_recurring(NIGHTLY)
            assert it.id != other.id
            assert (await client.pause_recurring(it.id)).paused
            assert not (await client.let_go_recurring(it.id)).paused
            assert (await client.fire(it.id)).recurring == it.id
            assert {one.id for one in await client.recurring()} == {it.id, other.id}
            assert (await client.remove_recurring(it.id)).id == it.id
            assert [one.id for one in broker.recurring()] == [other.id]

    asyncio.run(story())
