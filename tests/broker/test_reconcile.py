"""What must be done follows from the world and the engine's inventory alone, and may be lost or repeated at will."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.broker.engines.base import Attempt, Stage
from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.broker.reconcile import Reconciler
from jupyter_gpu.broker.watch import Watch
from jupyter_gpu.model import (
    Cancel,
    Condition,
    Device,
    EndReason,
    EvictionReason,
    LoadPolicy,
    Outcome,
    Policy,
    Release,
    SeeDevices,
    State,
    Workload,
)

from .ground import Clock, FakeEngine, FakeTelemetry, a_job, a_loop, a_reservation, succeeded


@dataclass
class Play:
    """One loop with its reconciler, stepped by hand."""

    loop: Loop
    engine: FakeEngine
    telemetry: FakeTelemetry
    reconciler: Reconciler

    async def job(self, **ask: object) -> int:
        """Submit a job and give its id."""
        return (await self.loop.handle(a_job(**ask))).workload or 0

    def it(self, workload: int) -> Workload:
        """A workload as it stands."""
        return self.loop.world.workloads[workload]

    async def until(self, workload: int, is_reached: Callable[[Workload], bool]) -> Workload:
        """Step until it is reached; the world's own events wake us, not the clock."""
        for _ in range(200):
            if is_reached(self.it(workload)):
                break
            await self.reconciler.step()
            await self.loop.wait_until(workload, is_reached, 0.05)
        assert is_reached(self.it(workload)), self.it(workload)
        return self.it(workload)


def story(
    tell: Callable[[Play], Awaitable[None]],
    folder: Path,
    *,
    count: int = 1,
    policy: Policy | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Play an asynchronous story with a loop of its own."""

    @contextlib.asynccontextmanager
    async def playing() -> AsyncIterator[Play]:
        async with a_loop(folder, count=count, policy=policy, clock=clock) as (loop, engine):
            telemetry = FakeTelemetry()
            reconciler = Reconciler(loop, {"local": engine}, Watch(loop, telemetry))  # type: ignore[arg-type]
            yield Play(loop, engine, telemetry, reconciler)
            await reconciler.close()

    async def run() -> None:
        async with playing() as play:
            await tell(play)

    asyncio.run(run())


def test_active_and_not_started_is_handed_over_once(tmp_path: Path) -> None:
    """However often we look, an attempt that the engine knows is not handed over again."""

    async def tell(play: Play) -> None:
        job = await play.job()
        for _ in range(3):
            await play.reconciler.step()
        assert [(one.workload, one.attempt) for one in play.engine.handed_over] == [(job, 1)]
        assert [device.uuid for device in play.engine.handed_over[0].devices] == ["GPU-0"]

    story(tell, tmp_path)


def test_the_engine_learns_all_nodes_and_what_a_job_must_not_open(tmp_path: Path) -> None:
    """Also those of a device that comes later."""

    async def tell(play: Play) -> None:
        seen = [
            Device(uuid=f"GPU-{n}", index=n, name="T", device_class="t", nodes=(f"/dev/nvidia{n}",)) for n in (0, 1)
        ]
        await play.loop.handle(SeeDevices(pool="local", devices=tuple(seen[:1])))
        await play.reconciler.step()
        assert play.engine.kept_apart == {"/dev/nvidia0"}
        await play.loop.handle(SeeDevices(pool="local", devices=tuple(seen)))
        await play.job()
        await play.reconciler.step()
        assert play.engine.kept_apart == {"/dev/nvidia0", "/dev/nvidia1"}
        (attempt,) = play.engine.handed_over
        assert {*attempt.withheld, *attempt.devices[0].nodes} == play.engine.kept_apart
        assert len(attempt.withheld) == 1

    story(tell, tmp_path, count=0)


def test_what_an_engine_forgot_before_its_start_is_handed_over_again(tmp_path: Path) -> None:
    """A hand-over that was lost with a crash leaves no mark, so the next look repeats it under the same number."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.reconciler.step()
        play.engine.seen.clear()
        await play.reconciler.step()
        assert [(one.workload, one.attempt) for one in play.engine.handed_over] == [(job, 1), (job, 1)]

    story(tell, tmp_path)


def test_the_number_rises_when_the_start_is_seen(tmp_path: Path) -> None:
    """Started is an observation: until then the job is active with attempt 0."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.reconciler.step()
        assert play.it(job).attempt == 0
        play.engine.see(job, 1, Stage.STARTED)
        assert (await play.until(job, lambda it: it.started_at is not None)).attempt == 1

    story(tell, tmp_path)


def test_gone_and_clear_closes_and_the_next_begins_in_the_same_step(tmp_path: Path) -> None:
    """The end of one and the grant to the next are one commit; the engine is told to forget the first."""

    async def tell(play: Play) -> None:
        first, second = await play.job(), await play.job()
        await play.reconciler.step()
        play.engine.see(first, 1, Stage.GONE, succeeded())
        ended = await play.until(first, lambda it: it.state is State.ENDED)
        assert ended.end is EndReason.SUCCEEDED
        granted = play.it(second).lease
        assert granted is not None
        assert granted.granted_at == ended.ended_at
        await play.reconciler.step()
        assert (first, 1) in play.engine.taken_back

    story(tell, tmp_path)


def test_the_outcome_is_told_before_the_device_is_clear(tmp_path: Path) -> None:
    """Clearing never delays the answer: released at once, ended and leased anew only after a clear reading."""

    async def tell(play: Play) -> None:
        first, second = await play.job(), await play.job()
        await play.reconciler.step()
        play.telemetry.used["GPU-0"] = ((4711, 5 << 30),)
        play.engine.see(first, 1, Stage.GONE, succeeded())
        await play.until(first, lambda it: it.outcome is not None)
        assert play.it(first).state is State.YIELDING
        assert play.it(second).state is State.QUEUED
        play.telemetry.used.clear()
        await play.until(first, lambda it: it.state is State.ENDED)
        assert play.it(second).state is State.ACTIVE

    story(tell, tmp_path)


def test_what_is_not_clear_in_time_is_quarantined_with_what_is_on_it(tmp_path: Path) -> None:
    """The workload is over, the device is leased to nobody, and the reason names the process."""

    async def tell(play: Play) -> None:
        first, second = await play.job(), await play.job()
        await play.reconciler.step()
        play.telemetry.used["GPU-0"] = ((4711, 5 << 30),)
        play.engine.see(first, 1, Stage.GONE, succeeded())
        await play.until(first, lambda it: it.state is State.ENDED)
        device = play.loop.world.devices["GPU-0"]
        assert device.condition is Condition.NOT_CLEAR
        assert "4711" in device.condition_detail
        assert play.it(second).state is State.QUEUED

    story(tell, tmp_path, policy=Policy(clear_seconds=1))


def test_while_nothing_can_be_read_the_clock_of_clearing_stands_still(tmp_path: Path) -> None:
    """A driver that does not answer proves nothing: the job is over, and its device is nobody's until it does."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.reconciler.step()
        play.telemetry.unreadable = True
        play.engine.see(job, 1, Stage.GONE, succeeded())
        await play.reconciler.step()
        while play.telemetry.probes < 12:  # more than clear_seconds of readable time would allow
            await asyncio.sleep(0.02)
        assert play.it(job).state is State.YIELDING
        assert play.it(job).outcome == succeeded()
        assert play.loop.world.devices["GPU-0"].condition is None
        play.telemetry.unreadable = False
        await play.until(job, lambda it: it.state is State.ENDED)

    story(tell, tmp_path, policy=Policy(clear_seconds=1))


def test_yielding_is_ordered_until_the_engine_has_taken_it(tmp_path: Path) -> None:
    """A cancel becomes an order with the end of the grace; an attempt that is gone is ordered nothing."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.reconciler.step()
        play.engine.see(job, 1, Stage.STARTED)
        await play.until(job, lambda it: it.started_at is not None)
        await play.loop.handle(Cancel(workload=job, by="ada"))
        await play.reconciler.step()
        order = play.engine.orders[0]
        assert (order.workload, order.attempt, order.reason) == (job, 1, EvictionReason.CANCELLED)
        assert order.yield_by == play.it(job).yield_by
        play.engine.see(job, 1, Stage.GONE, Outcome(end=EndReason.FAILED, exit_code=1, noticed=True))
        assert (await play.until(job, lambda it: it.state is State.ENDED)).end is EndReason.CANCELLED

    story(tell, tmp_path)


def test_cancelled_before_it_was_handed_over_never_starts(tmp_path: Path) -> None:
    """What the engine never saw is closed without it, and its number is not used up."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.loop.handle(Cancel(workload=job, by="ada"))
        ended = await play.until(job, lambda it: it.state is State.ENDED)
        assert (ended.end, ended.attempt, play.engine.handed_over) == (EndReason.CANCELLED, 0, [])

    story(tell, tmp_path)


def test_an_attempt_that_ran_before_its_start_was_told_uses_its_number(tmp_path: Path) -> None:
    """Evicted between start and sighting: the mark is on the disk, so the next attempt must have another number."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.reconciler.step()
        await play.loop.handle(Cancel(workload=job, by="ada"))
        play.engine.see(job, 1, Stage.GONE, Outcome(end=EndReason.FAILED, exit_code=1, noticed=True))
        assert (await play.until(job, lambda it: it.state is State.ENDED)).attempt == 1

    story(tell, tmp_path)


def test_an_engine_fault_backs_off_and_leaves_no_trace_of_an_attempt(tmp_path: Path) -> None:
    """What could not be started is taken back, waits a growing time, and is not counted as the user's failure."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.reconciler.step()
        fault = Outcome(end=EndReason.LAUNCH_FAILED, engine_fault=True, detail="[Errno 28] No space left on device")
        play.engine.see(job, 1, Stage.GONE, fault)
        first = play.engine.seen[job]
        play.engine.seen[job] = type(first)(workload=job, attempt=1, stage=Stage.GONE, outcome=fault)
        back = await play.until(job, lambda it: it.state is State.QUEUED)
        assert (back.waiting, back.launch_failures, back.failures, back.attempt) == ("back-off", 1, 0, 0)
        assert "Errno 28" in back.detail
        assert (job, 1) in play.engine.taken_back

    story(tell, tmp_path)


def test_what_the_engine_knows_and_the_world_does_not_is_taken_back(tmp_path: Path) -> None:
    """A workload that ended, or that this store never had, leaves nothing with the engine."""

    async def tell(play: Play) -> None:
        play.engine.see(77, 3, Stage.STARTED)
        await play.reconciler.step()
        assert play.engine.taken_back == [(77, 3)]

    story(tell, tmp_path)


def test_a_reservation_ends_when_its_devices_are_clear(tmp_path: Path) -> None:
    """Given back at once; leased to the next only after a reading that was made after that."""

    async def tell(play: Play) -> None:
        held = (await play.loop.handle(a_reservation())).workload or 0
        await play.loop.handle(Release(workload=held, by="grace"))
        assert play.it(held).state is State.YIELDING
        assert (await play.until(held, lambda it: it.state is State.ENDED)).end is EndReason.RELEASED
        assert play.telemetry.probes >= 1

    story(tell, tmp_path)


@pytest.mark.parametrize("stage", [Stage.STARTED, Stage.EXITED])
def test_an_attempt_whose_tree_lives_keeps_its_device(tmp_path: Path, stage: Stage) -> None:
    """The main process may be gone: as long as something of its tree lives nobody else gets the device."""

    async def tell(play: Play) -> None:
        first, second = await play.job(), await play.job()
        await play.reconciler.step()
        play.engine.see(first, 1, stage, succeeded() if stage is Stage.EXITED else None)
        for _ in range(5):
            await play.reconciler.step()
        await play.until(first, lambda it: it.attempt == 1)
        assert play.it(first).is_live
        assert play.it(second).state is State.QUEUED

    story(tell, tmp_path)


def test_one_that_fails_holds_up_none_of_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever an engine raises over one workload, the next in the same look is brought on."""

    async def tell(play: Play) -> None:
        poison, well = await play.job(), await play.job()
        hand_over = play.engine.hand_over

        async def hand_over_or_fail(attempt: Attempt) -> None:
            if attempt.workload == poison:
                raise ValueError("of its own")
            await hand_over(attempt)

        play.engine.hand_over = hand_over_or_fail  # type: ignore[method-assign]
        await play.reconciler.step()
        assert [it.workload for it in play.engine.handed_over] == [well]

    story(tell, tmp_path, count=2)
    assert "workload 1 cannot be brought on now" in caplog.text


def in_exited(play: Play, job: int) -> Callable[[Workload], bool]:
    """The main process is gone and told of; something of its tree lives."""
    play.engine.see(job, 1, Stage.EXITED, succeeded())
    return lambda it: it.outcome is not None


def test_the_rest_of_an_evicted_job_gets_no_grace(tmp_path: Path) -> None:
    """Its main process is gone: what is left has nothing to save, and is killed in the time that all get."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.reconciler.step()
        play.engine.see(job, 1, Stage.STARTED)
        await play.until(job, lambda it: it.started_at is not None)
        await play.loop.handle(Cancel(workload=job, by="ada"))
        await play.until(job, in_exited(play, job))
        play.engine.orders.clear()
        await play.reconciler.step()
        (order,) = play.engine.orders
        assert order.yield_by == order.ordered_at == play.it(job).evicted_at
        assert order.kill_after_seconds == play.loop.world.policy.kill_after_seconds
        play.engine.seen[job] = msgspec.structs.replace(play.engine.seen[job], order=order)
        await play.reconciler.step()
        assert play.engine.orders == [order]

    story(tell, tmp_path)


def test_the_rest_of_a_job_is_ended_in_bounded_time(tmp_path: Path) -> None:
    """Whatever was asked for under whatever policy: after the policy's time for it the rest is to be killed at once."""

    async def tell(play: Play) -> None:
        job = await play.job()
        await play.reconciler.step()
        await play.until(job, in_exited(play, job))
        await play.reconciler.step()
        assert play.engine.orders == []
        clock.now += 1.05
        await play.reconciler.step()
        (order,) = play.engine.orders
        assert (order.reason, order.kill_after_seconds) == ("left-over", 0)
        assert order.yield_by <= play.loop.now()

    clock = Clock()
    story(tell, tmp_path, policy=Policy(most_leftover_seconds=1, kill_after_seconds=0), clock=clock)


def test_a_job_is_started_with_no_longer_for_its_rest_than_the_policy_of_now_gives(tmp_path: Path) -> None:
    """It may have been let in under an older one."""

    async def tell(play: Play) -> None:
        await play.job()
        await play.loop.handle(LoadPolicy(policy=Policy(most_leftover_seconds=2)))
        await play.reconciler.step()
        assert [it.spec.leftover_seconds for it in play.engine.handed_over] == [2]

    story(tell, tmp_path)
