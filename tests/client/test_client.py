"""Both senders against a real broker: found or started, and every call."""

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

import jupyter_gpu
from jupyter_gpu import spawn
from jupyter_gpu.client import AsyncClient, Client
from jupyter_gpu.client.reserving import this_process
from jupyter_gpu.errors import Conflict, InvalidAsk, LeaseLost, NotFound, WaitTimeout
from jupyter_gpu.model import Ask, Dependency, Holder, JobSpec, Kind, Script, State, SubmitBody, WorkloadView
from tests.conftest import Places

pytestmark = pytest.mark.timeout(120)

RESERVE = SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=600))


@pytest.fixture
def broker(tmp_runtime: Places) -> Iterator[Client]:
    """A client of a broker of its own, on two simulated devices, started as faces start it."""
    spawn.start_broker(["--simulated=2"])
    with Client(start=False) as client:
        yield client
        for it in client.workloads():
            with contextlib.suppress(Exception):
                client.cancel(it.id)
        client.stop_broker()
    _until_gone()


@pytest.fixture
def few_files() -> Iterator[int]:
    """What this process starts may open few files at first, and more when it asks: as on most machines."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(hard // 2, 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_broker_opens_many_files_and_its_jobs_as_many_as_before(few_files: int, broker: Client) -> None:
    """Its callers need descriptors; programs that use select(2) fail where theirs have large numbers."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert resource.prlimit(broker.broker().pid, resource.RLIMIT_NOFILE) == (hard, hard)
    it = broker.submit(a_job("sh", "-c", "ulimit -Sn; ulimit -Hn"))
    assert broker.wait(it.id).end == "succeeded"
    assert broker.log(it.id).split() == [str(few_files).encode(), str(hard).encode()]


def _until_gone() -> None:
    deadline = time.monotonic() + 20
    while spawn._started and time.monotonic() < deadline:
        spawn._reap()
        time.sleep(0.02)  # the end of a detached process cannot be awaited


def a_job(*argv: str, **more: object) -> SubmitBody:
    """A job that runs here."""
    return SubmitBody(kind=Kind.JOB, spec=JobSpec(argv=argv, folder="/tmp", **more))  # type: ignore[arg-type]


def test_every_call_says_what_it_means(broker: Client) -> None:
    """One life after another, through each method of the client."""
    first, second, third = (broker.submit(RESERVE) for _ in range(3))
    assert [it.state for it in (first, second, third)] == [State.ACTIVE, State.ACTIVE, State.QUEUED]
    assert [it.id for it in broker.workloads(mine=True)] == [3, 2, 1]
    assert broker.pause(3).paused
    assert not broker.let_go(3).paused
    assert broker.reprioritise(3, 7).priority == 7
    before = first.ends_at
    assert broker.extend(1, 60).ends_at == pytest.approx((before or 0) + 60)
    assert broker.move(1, Holder(kind="kernel", name="k")).holder
    assert broker.renew(1, 1).renew_by > time.time()
    assert broker.renew(1, 1, busy=False, idle_since=time.time()).told == ""
    assert broker.keep(1).state is State.ACTIVE
    assert {it.cordoned for it in map(broker.cordon, ("0", "1"))} == {True}
    assert not broker.uncordon("0").cordoned
    assert broker.drain(broker.devices().items[1].uuid).cordoned
    with pytest.raises(Conflict, match="only a lost GPU"):
        broker.forget("0")
    with pytest.raises(WaitTimeout, match="first in queue") as caught:
        broker.wait(3, "active", 0.1)
    assert "gpu wait 3" in (caught.value.hint or "")
    assert broker.wait(3, "active", 0.1, raise_on_timeout=False).state is State.QUEUED
    assert broker.cancel(3).end == "cancelled"
    assert broker.release(1).id == 1
    assert broker.wait(1).end == "released"
    with pytest.raises(LeaseLost):
        broker.renew(1, 1)
    with pytest.raises(NotFound):
        broker.workload(99)
    with pytest.raises(Conflict):
        broker.pause(1)
    with pytest.raises(InvalidAsk):
        broker.wait(1, "never")
    assert [it.event for it in broker.events(1)] == [
        "submitted", "granted", "amended", "moved", "released", "ended",
    ]  # fmt: skip
    assert [it.id for it in broker.workloads(ended=True)] == [3, 2, 1]
    assert broker.quota().items == ()
    assert broker.broker().devices == 2
    assert broker.status().simulated


def test_a_job_runs_and_its_log_is_followed(broker: Client) -> None:
    """From before its first word to after its last, byte for byte; the copy of the script is what runs."""
    code = b"import sys, time\nprint('one', flush=True); time.sleep(.3)\nsys.stdout.buffer.write(b'\\xff\\n')\n"
    body = SubmitBody(
        kind=Kind.JOB,
        spec=JobSpec(argv=(sys.executable, "never_there.py"), folder="/tmp", script_index=1),
        script=Script(name="never_there.py", content=code),
    )
    it = broker.submit(body, "key")
    assert broker.submit(body, "key").id == it.id
    assert b"".join(broker.follow_log(it.id)) == b"one\n\xff\n"
    assert broker.wait(it.id).end == "succeeded"
    assert broker.log(it.id) == b"one\n\xff\n"
    assert b"".join(broker.follow_log(it.id, offset=-2)) == b"\xff\n"
    part = broker.log_part(it.id, offset=1, limit=2)
    assert (part.data, part.next_offset, part.attempt, part.is_complete) == (b"ne", 3, 1, False)


def test_the_stream_begins_with_the_whole(broker: Client) -> None:
    """And goes on with samples."""
    stream = broker.stream()
    assert next(stream).status is not None
    assert next(change for change in stream if change.samples).samples[0].uuid
    stream.close()


def test_the_async_client_says_the_same(broker: Client) -> None:
    """Every method of one is a method of the other; the calls are shared."""
    names = {name for name in dir(Client) if not name.startswith("_")}
    assert names ^ {name for name in dir(AsyncClient) if not name.startswith("_")} == set()

    async def story() -> None:
        async with AsyncClient(start=False) as client:
            it = await client.submit(a_job("echo", "hi"))
            assert b"".join([part async for part in client.follow_log(it.id)]) == b"hi\n"
            assert (await client.wait(it.id)).end == "succeeded"
            assert await client.log(it.id) == b"hi\n"
            assert [event.event async for event in client.events(it.id)][-1] == "ended"
            assert [found.id async for found in client.workloads(ended=True)] == [it.id]
            with pytest.raises(NotFound):
                await client.cancel(99)
            stream = client.stream()
            assert (await anext(stream)).status is not None
            await stream.aclose()
            blocked = [await client.submit(RESERVE) for _ in range(3)][-1]
            with pytest.raises(WaitTimeout):
                await client.wait(blocked.id, "active", 0.05)

    asyncio.run(story())


def test_a_block_holds_gpus_and_gives_them_back(broker: Client) -> None:
    """This process is pinned for the block and lives on after it; who waits too long loses the place."""
    with jupyter_gpu.reserve(2, "10m", name="block") as held:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ",".join(held.devices)
        assert len(held.devices) == 2
        assert (held.extend("1m") or 0) > time.time() + 600
        with pytest.raises(WaitTimeout), jupyter_gpu.reserve(wait_seconds=0.1):
            pytest.fail("nothing was free")
        assert [it.id for it in broker.workloads()] == [held.id]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert broker.wait(held.id).end == "released"
    with pytest.raises(ZeroDivisionError), jupyter_gpu.reserve(minutes=5) as held:
        _ = 1 / 0
    assert broker.wait(held.id).end == "released"


def test_too_late_a_pin_is_said(broker: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CUDA has counted the devices already, nothing is pretended."""
    monkeypatch.setattr("jupyter_gpu.client.reserving.cuda_is_loaded", lambda: True)
    block = jupyter_gpu.reserve()
    with pytest.warns(RuntimeWarning, match="CUDA is loaded"):
        held = block.__enter__()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert held.devices
    block.__exit__(None, None, None)


def test_a_holder_that_dies_gives_back(broker: Client) -> None:
    """The broker sees the process end, however it ends: nothing needs renewing, nothing stays held."""
    code = (
        "import jupyter_gpu, os\nwith jupyter_gpu.reserve() as r:\n  print(r.id, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -9, done.stderr
    assert broker.wait(int(done.stdout), timeout_seconds=30).state is State.ENDED


def test_a_command_is_queued_in_one_line(broker: Client) -> None:
    """Its environment is a selection, what is named passes, and the same key is the same job."""
    it = jupyter_gpu.submit(["printenv", "HF_TOKEN"], env=["HF_TOKEN=mine"], key="k", client=broker)
    assert jupyter_gpu.submit(["printenv", "HF_TOKEN"], key="k").id == it.id
    assert broker.wait(it.id).end == "succeeded"
    assert broker.log(it.id) == b"mine\n"
    assert jupyter_gpu.status().caller


def test_many_are_queued_in_one_call(broker: Client) -> None:
    """What came of each stands in its place; all that were accepted run."""
    accepted, refused, other = broker.submit_many([a_job("true"), a_job("no-such-command"), a_job("true")], "sweep")
    assert isinstance(accepted, WorkloadView)
    assert isinstance(refused, InvalidAsk)
    assert isinstance(other, WorkloadView)
    assert [broker.wait(it.id).end for it in (accepted, other)] == ["succeeded", "succeeded"]

    async def again() -> object:
        async with AsyncClient(start=False) as client:
            return (await client.submit_many([a_job("true")], "sweep"))[0]

    it = asyncio.run(again())
    assert isinstance(it, WorkloadView)
    assert it.id == accepted.id


def test_all_of_an_array_is_changed_in_one_call(broker: Client) -> None:
    """By both clients, named by any of it, as data that says what became of each."""
    body = SubmitBody(
        kind=Kind.JOB, spec=JobSpec(argv=("true",), folder="/"), array=({"a": "1"}, {"a": "2"}), paused=True
    )
    ids = broker.submit(body).member.ids  # type: ignore[union-attr]
    other = broker.submit(msgspec.structs.replace(body, array=()))

    assert [it.paused for it in broker.pause_array(ids[1])] == [True, True]
    assert [it.unmet for it in broker.chain_array(ids[1], [Dependency(workload=other.id)])] == [(other.id,)] * 2
    assert [it.paused for it in broker.let_go_array(ids[0])] == [False, False]

    async def story() -> None:
        async with AsyncClient(start=False) as client:
            assert [it.id for it in await client.pause_array(ids[1])] == [*ids]
            assert [it.waiting for it in await client.let_go_array(ids[1])] == ["dependency"] * 2
            assert [it.unmet for it in await client.chain_array(ids[1], [Dependency(workload=other.id, ok=True)])]
            with pytest.raises(Conflict, match="would wait for itself"):
                await client.chain_array(ids[1], [Dependency(workload=ids[0])])
            assert [it.end for it in await client.cancel_array(ids[0], "a slip")] == ["cancelled"] * 2

    asyncio.run(story())
    with pytest.raises(Conflict, match="has ended already"):
        broker.cancel_array(ids[0])


def test_two_that_start_at_once_get_one_broker(tmp_runtime: Places) -> None:
    """Whoever comes second finds the first's; no face is told that somebody holds the lock."""
    pids: list[int] = []

    def ask() -> None:
        with Client() as client:
            pids.append(client.broker().pid)

    os.environ["JUPYTER_CONFIG_PATH"] = _simulated(tmp_runtime)
    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        other = subprocess.run(
            [sys.executable, "-c", "from jupyter_gpu import Client\nwith Client() as c: print(c.broker().pid)"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        for thread in threads:
            thread.join()
        assert len({*pids, int(other.stdout)}) == 1
        assert len(pids) == 4
    finally:
        del os.environ["JUPYTER_CONFIG_PATH"]
        with Client(start=False) as client:
            client.stop_broker()
        _until_gone()


def _simulated(places: Places) -> str:
    folder = places.state_dir.parent / "config"
    folder.mkdir(exist_ok=True)
    (folder / "jupyter_gpu_config.py").write_text("c.GpuBroker.simulated_devices = 1\n")
    return str(folder)


def test_many_that_ask_first_at_once_share_one_connection_pool(broker: Client) -> None:
    """Neither threads nor coroutines of one client close each other's connections."""

    async def story() -> None:
        async with AsyncClient(start=False) as client:
            found = await asyncio.gather(*(client.broker() for _ in range(20)))
            assert len({it.pid for it in found}) == 1

    asyncio.run(story())
    with Client(start=False) as shared:
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(shared.broker().pid)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 20


def test_a_client_survives_its_broker(tmp_runtime: Places) -> None:
    """When the broker has stopped and another has begun, the same client goes on with that."""
    spawn.start_broker(["--simulated=1"])
    with Client(start=False) as client:
        first = client.broker().pid
        client.stop_broker()
        _until_gone()
        spawn.start_broker(["--simulated=1"])
        assert client.broker().pid != first
        client.stop_broker()
    _until_gone()


def test_a_broker_that_cannot_start_says_why(tmp_runtime: Places) -> None:
    """Its own error arrives, not a guess; what dies without a word is quoted from its log."""
    with pytest.raises(jupyter_gpu.errors.GpuError, match="ended at once"):
        spawn.start_broker(["--simulated=nonsense"])
    spawn.start_broker(["--simulated=1"])
    try:
        with pytest.raises(Conflict, match="served already"):
            spawn.start_broker(["--simulated=1"])
    finally:
        with Client(start=False) as client:
            client.stop_broker()
        _until_gone()


def test_this_process_is_named_so_that_no_other_is_taken_for_it() -> None:
    """Pid, start time and boot."""
    holder = this_process()
    assert (holder.pid, bool(holder.start_ticks), bool(holder.boot_id)) == (os.getpid(), True, True)
