"""The stream of the server extension: one from the broker for each identity, and every page shows the same."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.errors import BrokerUnavailable, LimitExceeded, NotAllowed
from jupyter_gpu.jupyter import upstream
from jupyter_gpu.jupyter.documents import BrokerFrame, ChangeFrame, KernelsFrame, KernelView, StatusFrame
from jupyter_gpu.jupyter.identity import Identity, own_identity
from jupyter_gpu.jupyter.upstream import MOST_BEHIND_BYTES, Upstreams, read_frame
from jupyter_gpu.model import Ask, Change, DeviceView, Kind, QuotaView, Release, State, Status, WorkloadView
from tests.broker.api_ground import ME
from tests.broker.ground import a_reservation
from tests.jupyter.server_ground import a_broker, a_server, play

ADA = Identity("ada", "ada")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits a while in life waits a moment here."""
    monkeypatch.setattr(upstream, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(upstream, "LONGEST_PAUSE_SECONDS", 0.2)


def device(uuid: str = "GPU-0", **more: Any) -> DeviceView:
    """A device as a status shows it."""
    words = {
        "index": 0,
        "number": "0",
        "name": "Test",
        "device_class": "t",
        "pool": "local",
        "simulated": False,
        "cordoned": False,
    }
    return DeviceView(uuid=uuid, **({"simulated": False, "cordoned": False} | words | more))


def workload(id_: int, state: State = State.ACTIVE, **more: Any) -> WorkloadView:
    """A workload of the caller's, on a device."""
    words = {
        "kind": Kind.RESERVATION, "owner": "ada", "team": None, "queue": "interactive", "name": None, "ask": Ask(),
        "submitted_at": 1.0, "priority": 0, "is_mine": True, "devices": ("GPU-0",),
    }  # fmt: skip
    return WorkloadView(id=id_, state=state, **(words | more))


def status(revision: int = 1, **more: Any) -> Status:
    """A whole document."""
    words = {
        "store_id": "s", "at": 1.0, "caller": "ada", "simulated": False, "devices": (device(),), "workloads": (),
        "quotas": (), "waiting": {},
    }  # fmt: skip
    return Status(revision=revision, **(words | more))


def whole(**more: Any) -> Change:
    """The first line of a stream."""
    it = status(**more)
    return Change(revision=it.revision, status=it)


class FakeBroker:
    """Streams what the test puts: a change, an error, or None for an end in good order."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[Change | Exception | None] = asyncio.Queue()
        self.asked: list[bool] = []
        self.held: list[Status | None] = []
        self.open = 0

    def of(self, _identity: Identity, *, start: bool = True) -> FakeBroker:
        """As Clients."""
        self.start = start
        return self

    async def broker(self) -> None:
        """As the client's: it is found, or started."""
        self.asked.append(self.start)

    async def stream(self, held: Status | None):
        """As the client's."""
        self.held.append(held)
        self.open += 1
        try:
            while True:
                line = await self.lines.get()
                if line is None:
                    return
                if isinstance(line, Exception):
                    raise line
                yield line
        finally:
            self.open -= 1


class FakeKernels:
    """What looks after the kernels, as far as the stream knows it."""

    def __init__(self) -> None:
        self.on_change: list[Callable[[], None]] = []
        self.on_restart: list[Callable[[str, str], None]] = []
        self.kernels: tuple[KernelView, ...] = ()
        self.seen: list[WorkloadView] = []
        self.are_own: list[bool] = []

    def views(self) -> tuple[KernelView, ...]:
        """As the real ones."""
        return self.kernels

    def see(self, view: WorkloadView, *, is_own: bool) -> None:
        """As the real ones."""
        self.seen.append(view)
        self.are_own.append(is_own)


class FakePage:
    """A page that takes what it is sent, or does not."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.is_slow = is_slow
        self.sent: list[bytes] = []
        self.open: list[asyncio.Future[None]] = []
        self.news = asyncio.Event()

    def write_message(self, message: bytes) -> asyncio.Future[None]:
        """As a websocket."""
        self.sent.append(message)
        self.news.set()
        done = asyncio.get_running_loop().create_future()
        if self.is_slow:
            self.open.append(done)
        else:
            done.set_result(None)
        return done

    def take_all(self) -> None:
        """The network is fast again."""
        self.is_slow = False
        for done in self.open:
            done.set_result(None)
        self.open.clear()

    @property
    def frames(self) -> list[Any]:
        """What it heard."""
        return [read_frame(data) for data in self.sent]

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The first frame that is wanted."""
        async with asyncio.timeout(10):
            while True:
                found = next((frame for frame in self.frames if wanted(frame)), None)
                if found is not None:
                    return found
                self.news.clear()
                await self.news.wait()


def kinds(page: FakePage) -> list[str]:
    """The kinds of frames that a page heard."""
    return [type(frame).__name__.removesuffix("Frame") for frame in page.frames]


async def turns(count: int = 20) -> None:
    """Let the loop do what is due."""
    for _ in range(count):
        await asyncio.sleep(0)


class Ground:
    """Streams over a fake broker."""

    def __init__(self) -> None:
        self.broker, self.kernels = FakeBroker(), FakeKernels()
        self.all = Upstreams(self.broker, logging.getLogger("test"))  # type: ignore[arg-type]
        self.all.follow(self.kernels)

    async def page(self, *, is_slow: bool = False, identity: Identity = ADA) -> FakePage:
        """A page that has come."""
        page = FakePage(is_slow=is_slow)
        self.stream = self.all.join(page, identity)
        await turns()
        return page

    async def say(self, *lines: Change | Exception | None) -> None:
        """The broker says these."""
        for line in lines:
            self.broker.lines.put_nowait(line)
        await turns()


def story(test: Callable[[Ground], Any]) -> Callable[[], None]:
    """Play a test on a fake broker, and close everything."""

    def played() -> None:
        async def all_() -> None:
            ground = Ground()
            try:
                await test(ground)
            finally:
                await ground.all.close()
            assert ground.broker.open == 0

        asyncio.run(all_())

    played.__doc__, played.__name__ = test.__doc__, test.__name__
    return played


@story
async def test_a_page_hears_how_things_stand_and_then_what_changes(it):
    """First a status and the kernels, then changes and samples; signs of life are not passed on."""
    page = await it.page()
    assert page.sent == []
    await it.say(whole(), Change(), Change(revision=2, changes=(workload(1),)), Change(samples=(device(),)))

    assert kinds(page) == ["Status", "Kernels", "Change", "Change"]
    assert page.frames[2].change.changes[0].id == 1


@story
async def test_a_late_page_gets_everything_at_once(it):
    """What has changed since the first status is in it, readings too; nothing is asked of the broker for it."""
    await it.page()
    await it.say(
        whole(workloads=(workload(1), workload(2))),
        Change(revision=2, changes=(workload(1, State.ENDED), workload(2), workload(3))),
        Change(
            revision=3,
            changes=(workload(2), workload(3)),
            devices=(device(cordoned=True, holders=("ada",)),),
            quotas=(QuotaView(rule="r", devices_held=1),),
        ),
        Change(samples=(device(memory_used_bytes=7, sampled_at=9.0), device("GPU-unknown"))),
    )
    late = await it.page()

    assert kinds(late) == ["Status", "Kernels"]
    told = late.frames[0].status
    assert (told.revision, [view.id for view in told.workloads]) == (3, [2, 3])
    assert [(d.uuid, d.memory_used_bytes, d.cordoned, d.holders) for d in told.devices] == [
        ("GPU-0", 7, True, ("ada",))
    ]
    assert told.quotas[0].devices_held == 1
    assert it.broker.asked == [True]


@story
async def test_one_stream_for_an_identity(it):
    """However many pages; another identity has another."""
    for _ in range(5):
        await it.page()
    assert it.broker.open == 1
    await it.page(identity=Identity("grace", "grace"))
    assert it.broker.open == 2


@story
async def test_the_pages_of_one_identity_are_bounded(it):
    """One more is refused, another's is not, and one that goes makes room."""
    it.all.most_pages = 3
    pages = [await it.page() for _ in range(3)]
    with pytest.raises(LimitExceeded, match="3 pages"):
        await it.page()
    stream = it.stream
    await it.page(identity=Identity("grace", "grace"))
    stream.leave(pages[0])
    await it.page()


def test_a_page_too_many_is_told_why(tmp_path, tmp_runtime):
    """Its socket is closed with a code and a reason."""

    async def told():
        async with a_server(tmp_path, extension={"start_broker": False}) as server:
            server.extension.upstreams.most_pages = 1
            await (await server.listen()).frame()
            more = (await server.listen()).connection
            assert await asyncio.wait_for(more.read_message(), 10) is None
            assert (more.close_code, more.close_reason) == (1013, "1 pages listen already.")

    play(told)


@story
async def test_a_frame_is_encoded_once(it):
    """The very same bytes go to all."""
    pages = [await it.page() for _ in range(3)]
    await it.say(whole(), Change(samples=(device(),)))

    for number in (0, 2):
        assert len({id(page.sent[number]) for page in pages}) == 1


@story
async def test_a_slow_page_holds_nobody_up(it):
    """The others hear everything; it loses samples first, then all, and gets a whole status when it can take one."""
    slow, fast = await it.page(is_slow=True), await it.page()
    await it.say(whole())
    heard = len(slow.sent)
    big = "x" * (MOST_BEHIND_BYTES + 1)
    await it.say(Change(samples=(device(name=big),)))
    assert (len(slow.sent), kinds(fast)[-1]) == (heard, "Change")
    slow.take_all()
    await turns()
    assert len(slow.sent) == heard, "a sample is made up for by the next one"

    slow.is_slow = True
    await it.say(Change(revision=2, changes=(workload(1),)))
    await it.say(Change(revision=3, changes=(workload(2, command=big),)))
    assert len(slow.sent) == heard + 1
    await it.say(Change(revision=4, changes=(workload(1), workload(2), workload(3))), Change(samples=(device(),)))
    assert len(slow.sent) == heard + 1, "it has to catch up first"
    slow.take_all()
    await turns()
    assert kinds(slow)[heard + 1 :] == ["Status", "Kernels"]
    assert [view.id for view in slow.frames[-2].status.workloads] == [1, 2, 3]
    await it.say(Change(revision=5))
    assert kinds(slow)[-1] == "Change"


@story
async def test_what_is_on_its_way_is_bounded(it):
    """A page that takes nothing at all costs one whole status and the bound, for ever."""
    slow = await it.page(is_slow=True)
    await it.say(whole())
    for number in range(2, 300):
        await it.say(Change(revision=number, changes=(workload(1, command="x" * 20_000),)))

    assert sum(map(len, slow.sent)) < MOST_BEHIND_BYTES + 100_000


@story
async def test_a_page_that_is_gone_takes_nothing_along(it):
    """A write to a closed socket fails in its own way, and the others hear on."""
    gone, page = await it.page(), await it.page()
    await it.say(whole())

    def closed(_message: bytes) -> None:
        raise ConnectionError

    gone.write_message = closed
    await it.say(Change(revision=2))
    assert kinds(page)[-1] == "Change"


@story
async def test_broker_away_and_back(it):
    """Told once, however often it is tried; late pages too; back with a whole status for everybody."""
    page = await it.page()
    await it.say(whole(), BrokerUnavailable("gone", hint="wait"))
    await page.until(lambda frame: isinstance(frame, BrokerFrame))
    await it.say(*[BrokerUnavailable("gone", hint="wait")] * 3)
    late = await it.page()
    assert kinds(late) == ["Broker", "Kernels"]
    assert (late.frames[0].state, late.frames[0].message, late.frames[0].hint) == ("away", "gone", "wait")
    await it.say(whole(revision=7))
    await page.until(lambda frame: isinstance(frame, BrokerFrame) and frame.state == "back")
    await turns()

    assert kinds(page) == ["Status", "Kernels", "Broker", "Broker", "Status", "Kernels"]
    assert kinds(late) == ["Broker", "Kernels", "Broker", "Status", "Kernels"]
    assert page.frames[-2].status.revision == 7


@story
async def test_what_was_missed_is_told(it):
    """It goes on from the document that it holds: what ended meanwhile reaches the pages and the kernels."""
    page = await it.page()
    await it.say(whole(workloads=(workload(1),)), BrokerUnavailable("broke"))
    await page.until(lambda frame: isinstance(frame, BrokerFrame))
    it.kernels.seen.clear()
    await it.say(Change(revision=9, changes=(workload(1, State.ENDED),)))
    await page.until(lambda frame: isinstance(frame, StatusFrame) and frame.status.revision == 9)

    assert kinds(page) == ["Status", "Kernels", "Broker", "Broker", "Change", "Status", "Kernels"]
    assert [None if held is None else held.revision for held in it.broker.held] == [None, 1]
    assert [(view.id, view.state) for view in it.kernels.seen] == [(1, State.ENDED)]
    assert page.frames[-2].status.workloads == ()


@story
async def test_whom_it_starts_a_broker_for(it):
    """For a page that comes, and where the connection broke; not where somebody stopped it, nor every few seconds."""
    page = await it.page()
    await it.say(whole(), BrokerUnavailable("broke"))
    await page.until(lambda frame: isinstance(frame, BrokerFrame))
    await it.say(BrokerUnavailable("cannot be started"), BrokerUnavailable("cannot be started"))
    await page.until(lambda frame: isinstance(frame, BrokerFrame) and "started" in frame.message)
    await it.say(BrokerUnavailable("none runs"), NotAllowed("another's"))
    await page.until(lambda frame: isinstance(frame, BrokerFrame) and "another" in frame.message)
    assert it.broker.asked[:4] == [True, True, False, False]
    assert "none runs" not in [frame.message for frame in page.frames if isinstance(frame, BrokerFrame)]

    await it.say(whole(revision=2))
    await page.until(lambda frame: isinstance(frame, StatusFrame) and frame.status.revision == 2)
    count = len(it.broker.asked)
    await it.say(None)
    stopped = await page.until(lambda frame: isinstance(frame, BrokerFrame) and "stopped" in frame.message)
    assert stopped.hint
    await it.page()
    async with asyncio.timeout(10):
        while len(it.broker.asked) < count + 2:
            await it.say(BrokerUnavailable("stopped"))
            await asyncio.sleep(0.01)
    assert it.broker.asked[count : count + 2].count(True) == 1


@story
async def test_a_fault_of_the_stream_is_told(it):
    """Whatever it is: the pages hear that it broke off, and it is tried again."""
    page = await it.page()
    await it.say(whole(), ZeroDivisionError("ours"))
    away = await page.until(lambda frame: isinstance(frame, BrokerFrame))

    assert "ours" not in away.message
    await it.say(whole(revision=3))
    await page.until(lambda frame: isinstance(frame, StatusFrame) and frame.status.revision == 3)


@story
async def test_it_ends_a_while_after_the_last_page(it):
    """A page that is reloaded finds it still there; when nobody comes it ends."""
    upstream.KEEP_SECONDS, kept = 0.05, upstream.KEEP_SECONDS
    try:
        page = await it.page()
        await it.say(whole())
        it.stream.leave(page)
        again = await it.page()
        assert kinds(again) == ["Status", "Kernels"]
        assert it.broker.asked == [True]
        it.stream.leave(again)
        async with asyncio.timeout(10):
            while it.broker.open:
                await asyncio.sleep(0.01)
        await it.page()
        assert it.broker.open == 1
    finally:
        upstream.KEEP_SECONDS = kept


@story
async def test_the_kernels_hear_of_their_callers_work(it):
    """Own workloads of a status and of a change; never another's. Their news reach every page, once for a burst."""
    page = await it.page()
    await it.say(whole(workloads=(workload(1), workload(2, is_mine=False, owner=None))))
    await it.say(Change(revision=2, changes=(workload(3), workload(4, is_mine=False))))
    assert [view.id for view in it.kernels.seen] == [1, 3]
    assert it.kernels.are_own == [False, False], "ada shares a server that is not hers"

    other = await it.page(identity=Identity("grace", "grace"))
    it.kernels.kernels = (KernelView(kernel_id="k", name="Python", pinned=False, execution_state="idle"),)
    before = len(page.sent)
    for _ in range(3):
        it.kernels.on_change[0]()
    await turns()
    assert kinds(page)[before:] == ["Kernels"]
    assert page.frames[-1].kernels[0].kernel_id == "k"
    assert other.sent == [], "its first status is not there yet, and the kernels come with it"


@story
async def test_whose_server_it_is_is_told_as_such(it):
    """The server's kernels ask in that name, so what it reserves for one of them is believed."""
    await it.page(identity=own_identity())
    await it.say(whole(workloads=(workload(1),)))
    assert it.kernels.are_own == [True]


@story
async def test_a_page_is_asked_to_restart_a_kernel(it):
    """What the server wants restarted is restarted by a page, which mends its cells."""
    page = await it.page()
    await it.say(whole())
    it.kernels.on_restart[0]("k", "time is over")

    assert msgspec.json.decode(page.sent[-1]) == {"type": "restart", "kernel_id": "k", "reason": "time is over"}


def test_the_real_thing(tmp_path, tmp_runtime):
    """A real server and the broker's real doors: several pages, one stream, a reservation that comes and goes."""

    async def played():
        async with a_broker(tmp_runtime.runtime_dir, count=1) as broker, a_server(tmp_path) as server:
            pages = [await server.listen() for _ in range(3)]
            for page in pages:
                assert isinstance(await page.frame(), StatusFrame)
                assert isinstance(await page.frame(), KernelsFrame)
            assert broker.loop.publisher.listeners == 1

            await broker.loop.handle(a_reservation(owner=ME, duration_seconds=600))
            for page in pages:
                assert (await page.change()).changes[0].state is State.ACTIVE
            late = await server.listen()
            assert [it.state for it in (await late.status()).workloads] == [State.ACTIVE]
            broker.loop.publisher.send(b'{"samples":[]}\n')
            await broker.loop.handle(Release(workload=1, by=ME))
            for page in [*pages, late]:
                await page.until(
                    lambda frame: (
                        isinstance(frame, ChangeFrame)
                        and any(view.state is not State.ACTIVE for view in frame.change.changes)
                    )
                )

    play(played)


def test_the_real_broker_away_and_back(tmp_path, tmp_runtime):
    """It stops in good order and another comes: the pages are told, begin anew, and one that comes meanwhile knows."""

    async def played():
        async with a_server(tmp_path, extension={"start_broker": False}) as server:
            page = await server.listen()
            assert (await page.broker("away")).hint
            async with a_broker(tmp_runtime.runtime_dir) as first:
                await page.broker("back")
                store = (await page.status()).store_id
                assert store == first.loop.broker_view().store_id
            assert "stopped" in (await page.broker("away")).message
            late = await server.listen()
            assert (await late.broker("away")).state == "away"
            async with a_broker(tmp_runtime.runtime_dir) as second:
                for one in (page, late):
                    await one.broker("back")
                    assert (await one.status()).store_id == second.loop.broker_view().store_id

    play(played)


@pytest.mark.story
@pytest.mark.timeout(120)
def test_it_starts_a_broker_for_its_pages(tmp_path, tmp_runtime, monkeypatch):
    """A page comes and one is started; killed, it is started again; stopped by somebody, only for the next page."""
    (tmp_path / "jupyter_gpu_config.py").write_text("c.GpuBroker.simulated_devices = 1")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))

    async def played():
        async with a_server(tmp_path) as server, AsyncClient(start=False) as client:
            page = await server.listen()
            assert (await page.status()).simulated
            os.kill((await client.broker()).pid, signal.SIGKILL)
            await page.broker("away")
            await page.broker("back")
            assert (await page.status()).devices

            await client.stop_broker()
            assert "stopped" in (await page.broker("away")).message
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(page.frame(), 1)
            late = await server.listen()
            assert (await late.status()).devices
            await page.broker("back")
            await client.stop_broker()
            await page.broker("away")

    play(played)
