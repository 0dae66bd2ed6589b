"""The stream goes on where a reader left it: what was missed comes in one change, and never twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_gpu.broker.alerts import Alert
from jupyter_gpu.broker.api import stream
from jupyter_gpu.broker.api.stream import Fanout, Listener
from jupyter_gpu.broker.foreseeing import Foreseeing
from jupyter_gpu.broker.store.rows import Touched
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.client import fold
from jupyter_gpu.errors import GpuError, StoreUnavailable
from jupyter_gpu.model import (
    Caller,
    Cancel,
    Change,
    Command,
    Cordon,
    Drain,
    EndReason,
    Forget,
    LoadPolicy,
    Outcome,
    Policy,
    QuotaRule,
    Reading,
    Release,
    Scope,
    SeeDevices,
    SeeExited,
    SeeProbe,
    State,
    Status,
    Uncordon,
    Use,
    UseKind,
    WorkloadView,
    World,
)
from tests.conftest import Places

from .api_ground import Served, an_api, hold_to, play
from .ground import Clock, a_job, a_loop, a_reservation
from .store_play import DEVICES, VERBS


@pytest.fixture(autouse=True)
def _nobody_looks_ahead(monkeypatch) -> None:
    """What a look ahead finds is told whenever it is found: lines that nobody here counts on."""
    monkeypatch.setattr(Foreseeing, "known", lambda *_: None)


SECRET = Policy(names_are_public=False, quotas=(QuotaRule(user="*", devices=2), QuotaRule(user="*", gpu_hours=3)))


class Reader:
    """Somebody who reads the stream, holds the document, and comes back with it."""

    def __init__(self, broker: Served, name: str = "ada") -> None:
        self.held: Status | None = None
        self.resumed = 0
        self.heard: list[WorkloadView] = []
        self._broker, self._client = broker, broker.as_(name)
        self._open = contextlib.AsyncExitStack()
        self._lines: AsyncIterator[str] | None = None

    async def go_on(self, **asked: Any) -> None:
        """Begin to read, from what is held unless something else is asked for."""
        if not asked and self.held is not None:
            asked = {"since": self.held.revision, "store": self.held.store_id}
        answer = await self._open.enter_async_context(self._client.stream("GET", "/stream", params=asked))
        self._lines = answer.aiter_lines()

    async def drop(self) -> None:
        """Break the connection, whatever is under way."""
        await self._open.aclose()
        self._lines = None

    @property
    def is_reading(self) -> bool:
        return self._lines is not None

    async def line(self) -> Change:
        """Read one line into the document."""
        assert self._lines is not None
        async with asyncio.timeout(10):
            text = await anext(self._lines)
        hold_to({"$ref": "#/components/schemas/Change"}, json.loads(text))
        change = msgspec.json.decode(text, type=Change)
        self.held = fold(self.held, change)
        self.heard += change.changes
        return change

    async def now(self) -> Status:
        """Read on until the document is of the newest revision."""
        while self.held is None or self.held.revision < self._broker.loop.world.revision:
            await self.line()
        return self.held

    async def be_fickle(self) -> None:
        """Drop the connection, or come back."""
        if self.is_reading:
            await self.drop()
        else:
            await self.go_on()
            self.resumed += (await self.line()).status is None

    async def stay(self) -> None:
        """Read on, where there is a connection."""
        if self.is_reading:
            await self.now()

    async def asked(self) -> Status:
        """The document that a question gives."""
        return msgspec.json.decode((await self._client.get("/status")).content, type=Status)


@contextlib.asynccontextmanager
async def a_reader(broker: Served, name: str = "ada") -> AsyncIterator[Reader]:
    """A reader that has begun, with the whole."""
    reader = Reader(broker, name)
    await reader.go_on()
    await reader.line()
    try:
        yield reader
    finally:
        await reader.drop()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are told when they happen, not once a second."""
    monkeypatch.setattr(stream, "COALESCE_SECONDS", 0.0)


# -- going on


def test_who_comes_back_hears_what_was_missed_and_then_what_happens(tmp_runtime: Places) -> None:
    """One change first, with what ended meanwhile and each device as it is; no status; then the live changes."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            held = (await broker.loop.handle(a_reservation("ada"))).workload or 0
            await reader.now()
            await reader.drop()
            await broker.loop.handle(Release(workload=held, by="ada"))
            await broker.loop.handle(SeeProbe(workload=held))
            job = (await broker.loop.handle(a_job("ada"))).workload or 0

            await reader.go_on()
            missed = await reader.line()
            assert missed.status is None
            assert missed.revision == broker.loop.world.revision
            assert [(it.id, it.state) for it in missed.changes] == [(held, State.ENDED), (job, State.ACTIVE)]
            assert [(it.uuid, it.workloads) for it in missed.devices] == [("GPU-0", (job,))]
            assert reader.held == msgspec.structs.replace(await reader.asked(), at=missed.at)

            await broker.loop.handle(a_job("ada"))
            assert [it.id for it in (await reader.line()).changes] == [job, job + 1]

    play(story)


def test_who_missed_nothing_is_told_so(tmp_runtime: Places) -> None:
    """The first line is a change of the same revision: the reader knows that nothing is missing."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            revision = (await reader.now()).revision
            await reader.drop()
            await reader.go_on()
            assert ((await reader.line()).status, reader.held.revision) == (None, revision)

    play(story)


def test_readings_begin_with_the_latest(tmp_runtime: Places) -> None:
    """Samples have no revision: who comes back gets each device with its newest reading, not those between."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            await reader.drop()
            for percent in (10, 20, 30):
                broker.loop.world.readings["GPU-0"] = Reading(uuid="GPU-0", at=1.0, utilisation_percent=percent)
            await reader.go_on()
            assert [it.utilisation_percent for it in (await reader.line()).devices] == [30]

    play(story)


def test_a_restart_of_the_broker_is_no_reason_to_begin_anew(tmp_runtime: Places) -> None:
    """The revision is the store's: another broker on the same store, with the same rules, goes on."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            job = (await broker.loop.handle(a_job("ada"))).workload
            held = await reader.now()
        async with an_api(tmp_runtime.runtime_dir) as broker:
            reader = Reader(broker)
            reader.held = held
            await broker.loop.handle(a_job("ada"))
            await reader.go_on()
            assert [it.id for it in (await reader.line()).changes] == [job, 2]
            assert await reader.now() == msgspec.structs.replace(await reader.asked(), at=reader.held.at)
            await reader.drop()

    play(story)


# -- beginning anew


@pytest.mark.parametrize(
    "asked",
    [
        {"since": 3, "store": "another"},
        {"since": 3},
        {"store": "mine"},
        {"since": 0, "store": "mine"},
        {"since": 4_711, "store": "mine"},
        {"since": 2**63 - 1, "store": "mine"},
    ],
)
def test_what_is_no_place_in_this_store_begins_with_the_whole(tmp_runtime: Places, asked: dict[str, Any]) -> None:
    """Another store's revision, half of a place, or one that is still to come says nothing about this store."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.loop.handle(a_job("ada"))
            reader = Reader(broker)
            if asked.get("store") == "mine":
                asked["store"] = broker.loop.store_id
            await reader.go_on(**asked)
            assert (await reader.line()).status is not None
            await reader.drop()

    play(story)


def test_who_missed_too_much_begins_with_the_whole(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the limit what was missed is told, one event more and it is not."""
    monkeypatch.setattr(stream, "MOST_MISSED", 4)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            for lot in (4, 5):
                revision = (await reader.now()).revision
                await reader.drop()
                for number in range(lot):  # one event each
                    verb = Uncordon if broker.loop.world.devices["GPU-0"].cordoned else Cordon
                    await broker.loop.handle(verb(device="GPU-0", by="oper"))
                    assert broker.loop.world.revision == revision + number + 1
                await reader.go_on()
                assert ((await reader.line()).status is not None) == (lot == 5)

    play(story)


@pytest.mark.parametrize(
    "command",
    [LoadPolicy(policy=SECRET), SeeDevices(pool="local", devices=DEVICES), Forget(device="GPU-0", by="oper")],
    ids=["rules", "devices", "forgotten"],
)
def test_other_rules_or_devices_are_shown_with_the_whole(tmp_runtime: Places, command: Command) -> None:
    """They change what is seen of everything, so both who listens and who comes back gets all of it."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, contextlib.AsyncExitStack() as open_:
            if isinstance(command, Forget):
                await broker.loop.handle(SeeDevices(pool="local", devices=()))
            there, away = [await open_.enter_async_context(a_reader(broker)) for _ in range(2)]
            await away.drop()
            await broker.loop.handle(command)
            await away.go_on()
            assert (await away.line()).status is not None
            assert (await there.line()).status is not None
            assert (await there.now()).revision == (await away.now()).revision

    play(story)


def test_what_has_left_the_world_is_not_passed_over(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended and is held in memory no more cannot be shown one by one; the whole says that it is gone."""
    monkeypatch.setattr("jupyter_gpu.model.world.KEPT_ENDED", 1)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            await broker.loop.handle(Cordon(device="GPU-0", by="oper"))
            jobs = [(await broker.loop.handle(a_job("ada"))).workload or 0 for _ in range(3)]
            assert [it.id for it in (await reader.now()).workloads] == jobs
            await reader.drop()
            for job in jobs:
                await broker.loop.handle(Cancel(workload=job, by="ada"))
            assert jobs[0] not in broker.loop.world.workloads
            await reader.go_on()
            assert (await reader.line()).status is not None
            assert reader.held.workloads == ()

    play(story)


def test_a_store_that_cannot_be_read_costs_only_the_history(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole is known without it, and brings the warning."""

    def fail(*_: object) -> None:
        raise StoreUnavailable("the disk is gone")

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            await reader.drop()
            await broker.loop.handle(a_job("ada"))
            monkeypatch.setattr(Store, "touched_since", fail)
            await reader.go_on()
            assert (await reader.line()).status is not None

    play(story)


@pytest.mark.parametrize("since", ["abc", "-1", "1.5", "", str(2**63)])
def test_a_place_that_cannot_be_meant_is_refused(tmp_runtime: Places, since: str) -> None:
    """With a code, a sentence and a way out, before anything is streamed."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await broker.as_("ada").get("/stream", params={"since": since, "store": broker.loop.store_id})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid-ask")
            assert "since" in answer.json()["message"]
            assert answer.json()["hint"]

    play(story)


# -- neither gap nor overlap


def test_what_is_decided_while_the_store_is_asked_is_not_lost(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place moves on under the question; the answer is of the revision that it names."""
    asked: list[Touched | None] = []

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            read = broker.loop.read

            async def read_slowly(call: Callable[[Store], Any]) -> Any:
                found = await read(call)
                if isinstance(found, Touched) and not asked:
                    asked.append(found)
                    await broker.loop.handle(a_job("ada"))
                return found

            await reader.drop()
            await broker.loop.handle(a_job("ada"))
            monkeypatch.setattr(broker.loop, "read", read_slowly)
            await reader.go_on()
            missed = await reader.line()
            assert asked
            assert {it.id for it in missed.changes} == {1, 2}
            assert missed.revision == broker.loop.world.revision

    play(story)


def test_nobody_is_told_a_revision_twice(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who joins while the others are about to be told knows it already; the next line is the next change."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as there, a_reader(broker) as back:
            await back.drop()
            monkeypatch.setattr(stream, "COALESCE_SECONDS", 0.3)
            await broker.loop.handle(a_job("ada"))
            await there.line()
            await broker.loop.handle(a_job("ada"))
            told = broker.loop.world.revision
            await back.go_on()
            async with a_reader(broker) as new:
                await back.line()
                assert (back.held.revision, new.held.revision) == (told, told)
                assert (await there.line()).revision == told
                await broker.loop.handle(a_job("ada"))
                assert {(await it.line()).revision for it in (there, back, new)} == {broker.loop.world.revision}

    play(story)


def test_a_line_names_the_last_commit_that_it_tells_of(tmp_runtime: Places) -> None:
    """The world may be ahead of what was heard of; who drops just then must still be told the rest."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as reader:
            await broker.loop.handle(Cordon(device="GPU-0", by="oper"))
            heard = broker.loop.world
            broker.loop.world = heard.copy()
            broker.loop.world.revision += 1
            assert (await reader.line()).revision == heard.revision
            broker.loop.world = heard

    play(story)


def test_the_first_listener_hears_what_is_decided_in_the_same_breath(tmp_path: Path) -> None:
    """Between the whole and the subscription there is no moment in which a commit could be missed."""

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            listener = Listener(FakeHandler())  # type: ignore[arg-type]
            fanout = Fanout(loop)
            await fanout.join(listener)
            assert loop.publisher.listeners == 1
            fanout.leave(listener)
            assert loop.publisher.listeners == 0

    play(story)


class FakeHandler:
    """A connection that takes everything."""

    caller = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))

    def write(self, line: bytes) -> None:
        pass

    def flush(self) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


# -- what a caller may see


def test_others_waiting_work_is_told_to_nobody_where_names_are_secret(tmp_runtime: Places) -> None:
    """Neither who listens nor who comes back hears that it came, waited and went; what held a device has ended."""

    async def story() -> None:
        async with (
            an_api(tmp_runtime.runtime_dir, policy=SECRET) as broker,
            a_reader(broker, "reader") as there,
            a_reader(broker, "reader") as back,
        ):
            await back.drop()
            held, waits = [(await broker.loop.handle(a_reservation("ada"))).workload or 0 for _ in range(2)]
            await broker.loop.handle(Cancel(workload=waits, by="ada"))
            await broker.loop.handle(Release(workload=held, by="ada"))
            await broker.loop.handle(SeeProbe(workload=held))
            await back.go_on()
            missed = await back.line()
            assert [(it.id, it.state, it.owner) for it in missed.changes] == [(held, State.ENDED, None)]
            assert (await there.now()).workloads == back.held.workloads == ()
            assert {(it.id, it.owner) for it in there.heard} == {(held, None)}

    play(story)


def test_others_work_that_waits_again_has_left_its_device(tmp_runtime: Places) -> None:
    """Where names are secret nobody else may see it wait: the device alone says that it is gone."""

    async def story() -> None:
        async with (
            an_api(tmp_runtime.runtime_dir, policy=SECRET) as broker,
            a_reader(broker, "reader") as there,
            a_reader(broker, "reader") as back,
        ):
            job = (await broker.loop.handle(a_job("ada"))).workload or 0
            for reader in (there, back):
                await reader.line()
                assert [it.id for it in reader.held.workloads] == [job]
            await back.drop()
            await broker.loop.handle(Drain(device="GPU-0", by="oper"))
            outcome = Outcome(end=EndReason.CANCELLED, noticed=True)
            await broker.loop.handle(SeeExited(workload=job, attempt=1, outcome=outcome, clear=True))
            assert broker.loop.world.workloads[job].state is State.QUEUED
            await back.go_on()
            for reader in (there, back):
                assert (await reader.now()).workloads == ()

    play(story)


# -- whatever happens


async def at_one_revision(one: Reader, other: Reader) -> tuple[Status, Status, Status]:
    """What two readers hold and a question gives, of the same moment: what came last may be starting meanwhile."""
    while True:
        held = await one.now(), await other.now(), await one.asked()
        if len({it.revision for it in held}) == 1:
            return held


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(8))
def test_a_reader_that_drops_ends_with_the_same_document(tmp_runtime: Places, seed: int) -> None:
    """Whatever happens, whenever the connection breaks: the same as one that never dropped, and as GET /status."""
    chance = random.Random(seed)
    verbs = VERBS | {"policy": lambda _play, which, _amount: LoadPolicy(policy=SECRET if which % 2 else Policy())}
    names = [name for name in sorted(verbs) if name not in ("policy", "devices")] * 4 + ["policy", "devices"]

    async def story() -> None:
        clock = Clock()
        async with (
            an_api(tmp_runtime.runtime_dir, count=0, policy=SECRET, clock=clock) as broker,
            contextlib.AsyncExitStack() as open_,
        ):
            drawn = Drawn(broker, clock)
            await broker.loop.handle(SeeDevices(pool="local", devices=DEVICES))
            steady, fickle = [
                [await open_.enter_async_context(a_reader(broker, name)) for name in ("ada", "reader", "oper")]
                for _ in range(2)
            ]
            for _ in range(80):
                command = verbs[chance.choice(names)](drawn, chance.randrange(6), chance.randrange(4000))
                if command is not None:
                    with contextlib.suppress(GpuError):
                        await broker.loop.handle(command)
                await chance.choice([Reader.be_fickle, Reader.stay])(chance.choice(fickle))
            await broker.loop.handle(a_job("ada"))  # so that the clock's last move is told too
            for one, other in zip(steady, fickle, strict=True):
                if not other.is_reading:
                    await other.go_on()
                    await other.line()
                steady_one, fickle_one, asked = await at_one_revision(one, other)
                assert steady_one == fickle_one == asked
            assert any(reader.resumed for reader in fickle)

    play(story)


@dataclass
class Drawn:
    """What drawn commands look at and move."""

    broker: Served
    clock: Clock

    @property
    def world(self) -> World:
        return self.broker.loop.world

    @property
    def now(self) -> float:
        return self.clock.now

    @now.setter
    def now(self, now: float) -> None:
        self.clock.now = now


# -- what changes without a commit


def test_who_is_on_a_device_is_told_without_a_commit(tmp_runtime: Places) -> None:
    """Of the same revision, to everybody, and once for all that changed within a second."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as ada, a_reader(broker, "grace") as her:
            world = broker.loop.world
            world.uses["GPU-0"] = (Use(pid=4711, kind=UseKind.USER, user="grace", name="python"),)
            for _ in range(3):
                broker.loop.publisher.look(world.revision, frozenset({"GPU-0"}))
            for reader in (ada, her):
                change = await reader.line()
                assert (change.revision, change.changes) == (world.revision, ())
                assert reader.held is not None
                assert [use.pid for use in reader.held.devices[0].uses] == [4711]
                assert reader.held == msgspec.structs.replace(await reader.asked(), at=change.at)
            await broker.loop.handle(Cordon(device="GPU-0", by="oper"))
            assert (await ada.line()).revision == world.revision + 1  # and no second line of the looks

    play(story)


def test_alerts_come_with_each_change_to_whom_they_concern(tmp_runtime: Places) -> None:
    """One that is opened or over is told at once, as in the whole document."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as ada, a_reader(broker, "oper") as oper:
            broker.loop.alerts.open("share:1", Alert(text="of ada", plain="yours", users=frozenset({"ada"})))
            broker.loop.alerts.open("device:0", Alert(text="hot"))
            for reader, texts in ((ada, ["yours"]), (oper, ["of ada", "hot"])):
                assert [it.text for it in (await reader.line()).alerts] == texts
                assert reader.held is not None
                assert reader.held.alerts == (await reader.asked()).alerts
            broker.loop.alerts.close("device:0")
            assert [it.key for it in (await oper.line()).alerts] == ["share:1"]

    play(story)


def test_a_look_leads_nobody_back(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is ahead of what was heard, from a whole of a moment ago, gets the whole instead of an older line."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, a_reader(broker) as there:
            monkeypatch.setattr(stream, "COALESCE_SECONDS", 0.3)
            heard = broker.loop.world
            broker.loop.publisher.look(heard.revision, frozenset({"GPU-0"}))
            assert (await there.line()).revision == heard.revision
            broker.loop.world = heard.copy()
            broker.loop.world.revision += 1
            async with a_reader(broker) as ahead:
                broker.loop.publisher.look(heard.revision, frozenset({"GPU-0"}))
                line = await ahead.line()
                assert line.status is not None
                assert line.revision == heard.revision + 1
            broker.loop.world = heard

    play(story)
