"""What is the same for many who look is made once: counted, whatever the machine's speed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jupyter_gpu.broker.api import stream, views
from jupyter_gpu.core import moment
from jupyter_gpu.core import status as core_status
from jupyter_gpu.model import Caller, Change, LoadPolicy, Policy, QuotaRule, Scope
from tests.conftest import Places

from .api_ground import an_api, play
from .ground import Clock, a_reservation
from .test_stream import a_reader

RULED = Policy(quotas=(QuotaRule(user="*", devices=2), QuotaRule(user="*", gpu_hours=3)))
EACH = 5


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], Counter[str]]:
    """How often something is called, from now on."""
    counts: Counter[str] = Counter()

    def counting(module: Any, name: str) -> Counter[str]:
        called = getattr(module, name)

        def count_and_call(*args: Any, **words: Any) -> Any:
            counts[name] += 1
            return called(*args, **words)

        monkeypatch.setattr(module, name, count_and_call)
        return counts

    return counting


def test_the_listeners_of_a_caller_share_their_document(
    tmp_runtime: Places, count: Callable[[Any, str], Counter[str]]
) -> None:
    """At the first look, and when the rules change: not one for each of a thousand pages, while all others wait."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, policy=RULED) as broker, contextlib.AsyncExitStack() as open_:
            made = count(views, "whole_status")
            readers = [await open_.enter_async_context(a_reader(broker, who)) for who in ("ada", "grace") * EACH]
            assert made["whole_status"] == 2
            assert {it.held.caller for it in readers if it.held} == {"ada", "grace"}
            await broker.loop.handle(LoadPolicy(policy=msgspec.structs.replace(RULED, lapse_seconds=80)))
            for reader in readers:
                assert (await reader.line()).status is not None
            assert made["whole_status"] == 4

    play(story)


def test_a_shared_document_is_never_an_old_one(tmp_runtime: Places) -> None:
    """Who begins between two events of the same second begins with the newer one."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as first:
            await broker.loop.handle(a_reservation("ada"))
            async with a_reader(broker) as second:
                assert first.held is not None
                assert second.held is not None
                assert [len(it.held.workloads) for it in (first, second) if it.held] == [0, 1]
                assert second.held.revision == broker.loop.world.revision

    play(story)


def test_what_looks_different_ends_a_shared_document(tmp_runtime: Places) -> None:
    """No event tells of it, and whoever begins afterwards sees it all the same."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as first:
            broker.loop.world.wrong["GPU-0"] = ()
            broker.loop.publisher.look(broker.loop.world.revision, frozenset({"GPU-0"}))
            await first.line()
            made_at = first.held.at if first.held else 0.0
            async with a_reader(broker) as second:
                assert second.held is not None
                assert second.held.at >= made_at

    play(story)


def test_all_who_are_told_of_an_event_share_its_ledger_and_others_work(
    tmp_runtime: Places, count: Callable[[Any, str], Counter[str]]
) -> None:
    """Each hears of their own quota; who holds how much is summed up once."""

    async def story() -> None:
        clock = Clock()
        async with (
            an_api(tmp_runtime.runtime_dir, policy=RULED, clock=clock) as broker,
            a_reader(broker) as ada,
            a_reader(broker, "reader") as other,
            a_reader(broker, "oper") as oper,
        ):
            count(moment, "Ledger")
            made = count(core_status, "view")
            await broker.loop.handle(a_reservation("grace"))
            for reader in (ada, other, oper):
                change = await reader.line()
                assert [it.is_mine for it in change.changes] == [False]
                assert [it.used_ms for it in change.quotas] == [None, 0]
            # Ada and the other see as much of it as each other, an operator more.
            assert made == {"Ledger": 1, "view": 2}

    play(story)


def test_a_decision_ends_a_moment_and_so_does_time(tmp_runtime: Places) -> None:
    """What is shared is of this world, and hardly older than now."""

    async def story() -> None:
        clock = Clock()
        async with an_api(tmp_runtime.runtime_dir, clock=clock) as broker:
            first = views.moment_of(broker.loop)
            assert views.moment_of(broker.loop) is first
            await broker.loop.handle(a_reservation("ada"))
            second = views.moment_of(broker.loop)
            assert second.world is broker.loop.world
            assert first.world is not second.world
            clock.now += views.MOMENT_SECONDS
            assert views.moment_of(broker.loop).now == clock.now
            clock.now -= 3600  # a clock that was set back makes nothing last for an hour
            assert views.moment_of(broker.loop).now == clock.now

    play(story)


class Page:
    """A handler that keeps what is written."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.written: list[bytes] = []
        self.arrived = asyncio.Event()

    def write(self, line: bytes) -> None:
        self.written.append(line)
        self.arrived.set()

    def flush(self) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def on_connection_close(self) -> None:
        pass


def test_a_sample_is_read_once_for_all_who_see_only_their_own(
    tmp_runtime: Places, count: Callable[[Any, str], Counter[str]]
) -> None:
    """Hundreds of contractors each get a line of their own, of one sample."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            fanout = broker.application.stream
            pages = [Page(Caller(name=f"eve-{n}", account="", scopes=frozenset({Scope.RESERVE}))) for n in range(EACH)]
            listeners = [stream.Listener(page) for page in pages]  # type: ignore[arg-type]
            for page, listener in zip(pages, listeners, strict=True):
                await fanout.join(listener)
                page.arrived.clear()
            made = count(stream, "_decode")
            broker.loop.publisher.send(msgspec.json.encode(Change(samples=())) + b"\n")
            await asyncio.gather(*(page.arrived.wait() for page in pages))
            assert made["_decode"] == 1
            for listener in listeners:
                fanout.leave(listener)

    play(story)
