"""The document that is held while the stream is read, and that is gone on from when the connection breaks."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator

import msgspec
import pytest

from jupyter_gpu import spawn
from jupyter_gpu.client import AsyncClient, Client, aio, fold, sync
from jupyter_gpu.errors import BrokerUnavailable
from jupyter_gpu.model import AlertView, Ask, CardView, Change, Kind, State, Status, SubmitBody, UseKind, UseView
from tests.cli.fake import GIB, NOW, device, lab, workload
from tests.conftest import Places

RESERVE = SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=600))


# -- folding


def test_a_whole_is_the_document() -> None:
    """Whatever was held; and without one nothing else can be understood."""
    newer = msgspec.structs.replace(lab(), revision=8)

    assert fold(None, Change(revision=8, status=newer)) is newer
    assert fold(lab(), Change(revision=8, status=newer)) is newer
    with pytest.raises(BrokerUnavailable, match="does not begin with a whole"):
        fold(None, Change(revision=8))


def test_a_sign_of_life_changes_nothing() -> None:
    """The same document, not an equal one: who draws need not draw again."""
    held = lab()

    assert fold(held, Change()) is held


def test_a_reading_is_put_in() -> None:
    """A sample changes the readings and nothing else: who holds the device does not stand in it."""
    sample = device(0, memory_used_bytes=GIB, workloads=(), holders=(), sampled_at=NOW + 1)

    now = fold(lab(), Change(samples=(sample,)))

    assert now.devices[0].memory_used_bytes == GIB
    assert now.devices[0].workloads == (12,)
    assert now.devices[1:] == lab().devices[1:]
    assert (now.at, now.revision) == (NOW + 1, lab().revision)


def test_cards_come_with_the_samples() -> None:
    """The GPUs in MIG mode are all told with each sample, so one that is split no more goes; no revision takes them."""
    one, other = (CardView(uuid=f"GPU-{at}", index=at, name="A100", memory_used_bytes=at) for at in (0, 1))
    held = fold(lab(), Change(cards=(one, other)))

    assert held.cards == (one, other)
    assert fold(held, Change(revision=8)).cards == (one, other)
    assert fold(held, Change(samples=(device(0),), cards=(other,))).cards == (other,)
    assert fold(held, Change(samples=(device(0),))).cards == ()


def test_alerts_and_uses_come_with_a_revision() -> None:
    """Alerts are told whole each time; who is on a device stands with the device, and a sample says nothing of it."""
    use = UseView(pid=7, kind=UseKind.USER, foreign=True)
    alert = AlertView(key="k", since=NOW, text="GPU 1 is used without a lease.")

    held = fold(lab(), Change(revision=8, devices=(device(1, uses=(use,), note="n"),), alerts=(alert,)))
    later = fold(held, Change(samples=(device(1, memory_reserved_bytes=GIB, slowed_by=("hw-thermal",)),)))

    assert held.alerts == later.alerts == (alert,)
    assert later.devices[1].uses == (use,)
    assert later.devices[1].note == "n"
    assert (later.devices[1].memory_reserved_bytes, later.devices[1].slowed_by) == (GIB, ("hw-thermal",))
    assert fold(later, Change(revision=9)).alerts == ()


def test_a_change_is_put_in() -> None:
    """What ended goes, what is new comes, what waits stands in the order of the line; what is not told stays."""
    change = Change(
        revision=9,
        at=NOW + 5,
        changes=(
            workload(9, state=State.ENDED, is_mine=False),
            workload(12, state=State.YIELDING),
            workload(20, state=State.ACTIVE, is_mine=False),
            workload(21, ahead=None),  # beyond what a document shows
            workload(30, ahead=0),
            workload(14, ahead=1),
        ),
        devices=(device(1, workloads=(20,)),),
        more_of_mine=1,
        waiting={"training": 4},
    )

    now = fold(lab(), change)

    assert [(it.id, it.state.value) for it in now.workloads] == [
        (12, "yielding"), (20, "active"), (30, "queued"), (14, "queued"),
    ]  # fmt: skip
    assert [it.workloads for it in now.devices] == [(12,), (20,), (), ()]
    assert (now.revision, now.at, now.more_of_mine, now.waiting, now.quotas) == (9, NOW + 5, 1, {"training": 4}, ())
    assert (now.store_id, now.caller) == (lab().store_id, lab().caller)


def test_others_work_goes_with_its_device() -> None:
    """Where it waits again and nobody else may see that, only the device tells."""
    now = fold(lab(), Change(revision=8, changes=(workload(12, state=State.ACTIVE),), devices=(device(1),)))

    assert [it.id for it in now.workloads] == [12]


# -- following


class Told(Client):
    """A client whose connections say what the test wrote down: lines, then an end or an error."""

    def __init__(self, *connections: list[Change | BrokerUnavailable]) -> None:
        super().__init__(start=False)
        self.connections, self.begun_with = list(connections), list[Status | None]()

    def stream(self, held: Status | None = None) -> Iterator[Change]:
        self.begun_with.append(held)
        for line in self.connections.pop(0):
            if isinstance(line, BrokerUnavailable):
                raise line
            yield line


class ToldLater(AsyncClient):
    """As `Told`."""

    def __init__(self, *connections: list[Change | BrokerUnavailable]) -> None:
        super().__init__(start=False)
        self._told = Told(*connections)
        self.begun_with = self._told.begun_with

    async def stream(self, held: Status | None = None) -> AsyncGenerator[Change, None]:
        for change in self._told.stream(held):
            yield change


Follow = Callable[[list[list[Change | BrokerUnavailable]], Status | None], tuple[list[int], list[int | None]]]


@pytest.fixture(params=["Client", "AsyncClient"])
def follow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Follow:
    """Follow with one of the two until it raises: the revisions that were given, and those it went on from."""
    monkeypatch.setattr(sync, "BREAK_SECONDS", 0)
    monkeypatch.setattr(aio, "BREAK_SECONDS", 0)

    def followed(connections, held=None):
        client = (Told if request.param == "Client" else ToldLater)(*connections)
        given: list[int] = []

        async def read() -> None:
            nonlocal given
            if isinstance(client, Told):
                for status in client.follow_status(held):
                    given += [status.revision]
                return
            async for status in client.follow_status(held):
                given += [status.revision]

        with pytest.raises(BrokerUnavailable):
            asyncio.run(read())
        return given, [None if it is None else it.revision for it in client.begun_with]

    return followed


GONE = BrokerUnavailable("gone")
WHOLE = Change(revision=7, status=lab())


def test_it_goes_on_from_what_it_holds(follow: Follow) -> None:
    """After each break; what it yields has neither gap nor repetition, and a sign of life is no news."""
    given, begun = follow([[WHOLE, Change(), Change(revision=8), GONE], [Change(revision=9), GONE], *[[GONE]] * 5])

    assert given == [7, 8, 9]
    assert begun == [None, 8, *[9] * 5]


def test_a_document_that_is_held_already_is_where_it_begins(follow: Follow) -> None:
    """Of an earlier run, or from a question."""
    assert follow([[Change(revision=8), *[GONE]], *[[GONE]] * 5], lab()) == ([8], [7, *[8] * 5])


def test_it_tries_no_more_than_a_few_times_in_a_row(follow: Follow) -> None:
    """Each line that arrives begins the count anew."""
    given, begun = follow([*[[GONE]] * 5, [WHOLE, GONE], *[[GONE]] * 5], None)

    assert given == [7]
    assert len(begun) == 11


def test_a_broker_that_was_stopped_is_not_called_back(follow: Follow) -> None:
    """A stream that ended in good order is tried once more, for a broker that is replaced at once; no oftener."""
    assert follow([[WHOLE], [Change(revision=8)], [GONE]]) == ([7, 8], [None, 7, 8])


@pytest.mark.timeout(120)
def test_a_broker_that_dies_and_comes_back_goes_on_in_both_clients(tmp_runtime: Places) -> None:
    """The documents go on with what happened meanwhile, and they are what a question is answered."""
    spawn.start_broker(["--simulated=2"])
    with Client(start=False) as client, Client(start=False) as other:
        documents = client.follow_status()
        first = next(documents)
        held = other.submit(RESERVE)
        seen = next(it for it in documents if [w.id for w in it.workloads] == [held.id])

        os.kill(other.broker().pid, 9)
        spawn.start_broker(["--simulated=2"])
        other.release(held.id)
        gone = next(it for it in documents if not it.workloads)
        assert first.revision < seen.revision < gone.revision
        assert first.store_id == gone.store_id
        documents.close()

        missed = next(other.stream(seen))
        assert missed.status is None
        assert [(it.id, it.end) for it in missed.changes] == [(held.id, "released")]

        async def later() -> Status:
            async with AsyncClient(start=False) as waits:
                assert (await anext(waits.stream(seen))).status is None
                documents = waits.follow_status(seen)
                document = await anext(documents)
                await documents.aclose()
                return document

        assert _facts(asyncio.run(later())) == _facts(other.status())
        other.stop_broker()
    _until_gone()


def _facts(status: Status) -> Status:
    """Without what each look reads anew."""
    return msgspec.structs.replace(status, at=0.0, devices=())


def _until_gone() -> None:
    deadline = time.monotonic() + 20
    while spawn._started and time.monotonic() < deadline:
        spawn._reap()
        time.sleep(0.02)  # the end of a detached process cannot be awaited
