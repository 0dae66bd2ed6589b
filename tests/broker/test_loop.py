"""The loop: decided one at a time, committed together, acted on afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_gpu.broker import loop as loop_module
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.core.events import Event
from jupyter_gpu.errors import BrokerUnavailable, InvalidAsk, LeaseLost, NotFound, StoreUnavailable
from jupyter_gpu.model import (
    Cancel,
    Command,
    Holder,
    LoadPolicy,
    Policy,
    QuotaRule,
    Release,
    SeeProbe,
    State,
    Submit,
    Tick,
    World,
)

from .ground import Clock, a_job, a_loop, a_reservation

PERSON = Holder(kind="shell", name="bash")


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run one asynchronous story."""
    asyncio.run(story())  # type: ignore[arg-type]


def test_commands_that_wait_together_are_decided_one_at_a_time(tmp_path: Path) -> None:
    """Of two asks for the last device exactly one is granted, though both were decided before either was committed."""

    async def story() -> None:
        async with a_loop(tmp_path, count=1) as (loop, _):
            answers = await asyncio.gather(*(loop.handle(a_reservation(owner)) for owner in ("ada", "grace")))
            states = [loop.world.workloads[answer.workload or 0].state for answer in answers]
            assert states == [State.ACTIVE, State.QUEUED]

    play(story)


def test_commands_that_wait_together_share_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred submissions that come at once cost far fewer transactions than a hundred."""
    commits = []
    commit = Store.commit
    monkeypatch.setattr(Store, "commit", lambda self, *args: (commits.append(1), commit(self, *args))[1])
    monkeypatch.setattr(loop_module, "LONGEST_STEP_SECONDS", 60)

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            commits.clear()
            await asyncio.gather(*(loop.handle(a_job()) for _ in range(100)))
            assert len(commits) <= 3

    play(story)


def test_others_are_served_between_commands_that_take_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits longest is first; the rest is decided a little later, and at a close told that it was not."""
    monkeypatch.setattr(loop_module, "LONGEST_STEP_SECONDS", 0)

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            served = []
            asked = [asyncio.ensure_future(loop.handle(a_job(devices=n % 2 - 1))) for n in range(10)]
            while not all(it.done() for it in asked):
                served.append(sum(it.done() for it in asked))
                await asyncio.sleep(0)
            assert len(set(served)) > 5
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert [isinstance(it, InvalidAsk) for it in answers] == [True, False] * 5
            late = [asyncio.ensure_future(loop.handle(a_job())) for _ in range(10)]
            while not loop._batch:
                await asyncio.sleep(0)
        told = await asyncio.wait_for(asyncio.gather(*late[1:], return_exceptions=True), 30)
        assert all(isinstance(it, BrokerUnavailable) for it in told)

    play(story)


def test_a_refusal_rolls_back_only_its_own(tmp_path: Path) -> None:
    """What was asked beside a refused command is committed as if the refused one had never come."""

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            good, bad, other = await asyncio.gather(
                loop.handle(a_job()), loop.handle(a_job(devices=-1)), loop.handle(a_job()), return_exceptions=True
            )
            assert isinstance(bad, InvalidAsk)
            assert [good.workload, other.workload] == [1, 2]  # type: ignore[union-attr]
            assert sorted(loop.world.workloads) == [1, 2]

    play(story)


def test_a_failed_commit_changes_nothing_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The asker hears why, the world is as before, the trouble is shown, and it goes away by itself."""
    commit = Store.commit

    def full(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            before = loop.world.revision
            monkeypatch.setattr(Store, "commit", full)
            with pytest.raises(StoreUnavailable):
                await loop.handle(a_job())
            assert (loop.world.revision, loop.world.workloads) == (before, {})
            assert "the disk is full" in loop.warnings
            monkeypatch.setattr(Store, "commit", commit)
            assert (await loop.handle(a_job())).workload == 1
            assert loop.warnings == ()

    play(story)


def test_a_fault_of_ours_ends_one_command_and_never_the_loop(tmp_path: Path) -> None:
    """A command that cannot be decided at all is an error for who sent it; the next is decided."""

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            with pytest.raises(KeyError):
                await loop.handle(msgspec.UNSET)  # type: ignore[arg-type]
            assert (await loop.handle(a_job())).workload == 1

    play(story)


@pytest.mark.parametrize("fault", [RuntimeError("an index is wrong"), InvalidAsk("found too late")])
def test_a_fault_that_is_found_too_late_leaves_nothing_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """What it has changed by then is undone; of the batch the others count, those before it and those after it.

    The one before it is a new policy: that is no event, and stays all the same.
    """
    decide, generous = loop_module.step, Policy(quotas=(QuotaRule(devices=7),))

    def step(world: World, command: Command, *args: Any, **words: Any) -> list[Event]:
        events = decide(world, command, *args, **words)
        if isinstance(command, Submit) and command.name == "faulty":
            assert world.workloads[world.last_id].name == "faulty", "it is in the world by now"
            raise fault
        return events

    async def story() -> None:
        async with a_loop(tmp_path, count=1) as (loop, _):
            monkeypatch.setattr(loop_module, "step", step)
            monkeypatch.setattr(loop_module, "LONGEST_STEP_SECONDS", 60)
            faulty = msgspec.structs.replace(a_job("ada"), name="faulty")
            commands = [LoadPolicy(policy=generous), faulty, a_job("bob"), faulty, a_job("cleo")]
            answers = await asyncio.gather(*map(loop.handle, commands), return_exceptions=True)

            assert [it for it in answers if isinstance(it, Exception)] == [fault, fault]
            assert [(it.id, it.owner, it.state) for it in loop.world.workloads.values()] == [
                (1, "bob", State.ACTIVE), (2, "cleo", State.QUEUED),
            ]  # fmt: skip
            assert loop.world.policy == generous
            assert loop.world.check() == []
            replayed = await loop.read(lambda store: store.replay(generous))
            assert replayed.workloads == loop.world.workloads
            assert replayed.revision == loop.world.revision
            assert (await loop.handle(a_job())).workload == 3

    play(story)


def test_the_world_is_read_back_at_the_next_start(tmp_path: Path) -> None:
    """What was committed is there again: workloads, leases, devices, revision, and both ways to the truth agree."""

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            await loop.handle(a_job())
            await loop.handle(a_reservation())
            before = {id_: msgspec.json.encode(it) for id_, it in loop.world.workloads.items()}
        async with a_loop(tmp_path) as (loop, _):
            assert {id_: msgspec.json.encode(it) for id_, it in loop.world.workloads.items()} == before
            replayed = await loop.read(lambda store: store.replay(Policy()))
            assert replayed.workloads == loop.world.workloads
            assert replayed.devices == loop.world.devices

    play(story)


def test_a_repeated_key_is_the_same_workload(tmp_path: Path) -> None:
    """A client that asks again after a lost answer gets the workload that exists."""

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            ask: Submit = msgspec.structs.replace(a_job(), idempotency_key="k")
            first, again = await loop.handle(ask), await loop.handle(ask)
            assert (first.workload, again.workload, again.events) == (1, 1, ())

    play(story)


def test_waiting_ends_with_the_event_or_with_the_time(tmp_path: Path) -> None:
    """Who waits is woken by the commit; who waits too long gets the workload as it stands."""

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            held = await loop.handle(a_reservation(holder=PERSON))
            queued = await loop.handle(a_reservation("ada"))
            still = await loop.wait_until(queued.workload or 0, lambda it: it.state is State.ACTIVE, 0.01)
            assert still.state is State.QUEUED
            waiting = asyncio.ensure_future(
                loop.wait_until(queued.workload or 0, lambda it: it.state is State.ACTIVE, 30)
            )
            await loop.handle(Release(workload=held.workload or 0, by="grace"))
            await loop.handle(SeeProbe(workload=held.workload or 0))
            assert (await waiting).state is State.ACTIVE
            with pytest.raises(NotFound):
                await loop.wait_until(99, lambda _: True, 1)

    play(story)


def test_a_renewal_moves_no_event_and_carries_the_notice(tmp_path: Path) -> None:
    """The holder lives, says so, and hears in the answer when it must leave; a stale number hears that it lost."""
    clock = Clock()

    async def story() -> None:
        async with a_loop(tmp_path, clock=clock) as (loop, _):
            held = (await loop.handle(a_reservation(holder=PERSON, duration_seconds=60))).workload or 0
            before = loop.world.revision
            renewal = loop.renew(held, 1)
            assert (renewal.renew_by, renewal.ends_at, renewal.notice) == (clock.now + 90, clock.now + 60, None)
            assert loop.world.revision == before
            with pytest.raises(LeaseLost, match="moved"):
                loop.renew(held, 7)
            clock.now += 61
            await loop.handle(a_reservation("ada"))
            notice = loop.renew(held, 1).notice
            assert notice is not None
            assert notice.reason == "expired"
            await loop.handle(Release(workload=held, by="grace"))
            with pytest.raises(LeaseLost, match="over"):
                loop.renew(held, 1)

    play(story)


def test_a_lapse_is_counted_from_the_first_look(tmp_path: Path) -> None:
    """After a start of the broker every renewal's time begins anew, so a restart ends no lease."""
    clock = Clock()

    async def story() -> None:
        async with a_loop(tmp_path, clock=clock) as (loop, _):
            held = (await loop.handle(a_reservation(holder=PERSON))).workload or 0
            clock.now += 1000
            assert not loop.has_lapsed(loop.world.workloads[held])
            clock.now += 91
            assert loop.has_lapsed(loop.world.workloads[held])

    play(story)


def test_after_a_stall_nobody_has_lapsed(tmp_path: Path) -> None:
    """A machine that slept let nobody renew: the time of every renewal begins anew when it wakes."""
    clock = Clock()

    async def story() -> None:
        async with a_loop(tmp_path, clock=clock) as (loop, _):
            held = (await loop.handle(a_reservation(holder=PERSON))).workload or 0
            loop.renew(held, 1)
            waiting = (await loop.handle(a_reservation("ada", duration_seconds=60))).workload or 0
            clock.now += 3600
            lifted = await loop.wait_until(waiting, lambda it: it.lifted, 10)
            assert lifted.lifted  # so a tick has seen the gap
            assert not loop.has_lapsed(loop.world.workloads[held])

    play(story)


def test_listeners_hear_of_each_commit_and_a_slow_one_is_told(tmp_path: Path) -> None:
    """One line names what changed; who does not keep up begins again with a whole status and slows nobody."""

    async def story() -> None:
        async with a_loop(tmp_path) as (loop, _):
            line = loop.subscribe()
            job = (await loop.handle(a_job())).workload
            heard = await anext(line)
            assert not isinstance(heard, bytes)
            assert (heard.revision, heard.workloads) == (loop.world.revision, frozenset({job}))
            for number in range(300):
                loop.publisher.send(b"%d" % number)
            assert line.fell_behind
            line.close()
            loop.publisher.send(b"nobody")
            assert loop.publisher.listeners == 0

    play(story)


def test_a_lowered_quota_evicts_nobody_and_a_bad_policy_changes_nothing(tmp_path: Path) -> None:
    """A reload never stops the queue and never drops a lease."""

    async def story() -> None:
        async with a_loop(tmp_path, count=2) as (loop, _):
            jobs = [(await loop.handle(a_job())).workload or 0 for _ in range(2)]
            await loop.handle(LoadPolicy(policy=Policy(quotas=(QuotaRule(user="*", devices=1),))))
            assert [loop.world.workloads[job].state for job in jobs] == [State.ACTIVE] * 2
            with pytest.raises(InvalidAsk, match="lapse_seconds"):
                await loop.handle(LoadPolicy(policy=Policy(lapse_seconds=1)))
            assert loop.world.policy.quotas[0].devices == 1

    play(story)


def test_idle_time_counts_only_without_work(tmp_path: Path) -> None:
    """The broker may stop only when nothing is queued or held and nobody listens."""
    clock = Clock()

    async def story() -> None:
        async with a_loop(tmp_path, clock=clock, idle_seconds=60) as (loop, _):
            assert loop.stops_at() == clock.now + 60
            job = (await loop.handle(a_job(devices=1))).workload or 0
            assert loop.stops_at() is None
            waiting = (await loop.handle(a_job(devices=1))).workload or 0
            clock.now += 1000
            await loop.handle(Cancel(workload=waiting, by="ada"))
            assert loop.stops_at() is None
            assert loop.world.workloads[job].state is State.ACTIVE
            line = loop.subscribe()
            assert loop.broker_view().stops_at is None
            line.close()
            await loop.handle(Tick())

    play(story)
