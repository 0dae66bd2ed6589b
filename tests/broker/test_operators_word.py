"""What an operator says of a device (`cordon`, `uncordon`), and what is told of it then: the word and the readings."""

import time
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.broker.watch import Watch
from jupyter_gpu.model import (
    AlertView,
    CardEvent,
    Condition,
    Cordon,
    EndReason,
    Outcome,
    Policy,
    Sample,
    SeeDevices,
    State,
    Uncordon,
    Workload,
)

from .ground import FakeTelemetry, a_job, devices
from .test_watch import GPU, OPER, sample, settle, story

DIED = Outcome(end=EndReason.DEVICE_LOST, detail="uncorrectable ECC error encountered")
HOT_AT_ONCE = Policy(hot_celsius=85, hot_seconds=0)


async def report(loop: Loop, watch: Watch, telemetry: FakeTelemetry, xid: int) -> None:
    """Let the driver report something beside a sample."""
    event = CardEvent(uuid=GPU, xid=xid, at=time.time())
    watch.on_sample(Sample(at=time.time(), readings=(telemetry.reading(GPU),), events=(event,)))
    await settle(watch)


async def say_well(loop: Loop) -> None:
    """An operator uncordons it."""
    await loop.handle(Uncordon(device=GPU, by="oper"))


def told(loop: Loop) -> list[AlertView]:
    """What operators are told."""
    return list(loop.alerts.views(OPER))


def test_the_usual_cordon_and_uncordon_gives_nobody_a_card_with_a_stranger_on_it(tmp_path: Path) -> None:
    """Maintenance is no reading: who waits gets the card when the stranger has gone, and not before."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.used[GPU] = ((4711, 3 << 30),)
        await sample(loop, watch, telemetry, times=2)
        await loop.handle(Cordon(device=GPU, by="oper"))
        job = (await loop.handle(a_job())).workload or 0
        await say_well(loop)
        device = loop.world.devices[GPU]
        assert (device.cordoned, device.condition) == (False, Condition.FOREIGN)
        assert "4711" in device.condition_detail
        assert loop.world.workloads[job].state is State.QUEUED
        telemetry.used.clear()
        await sample(loop, watch, telemetry)
        assert loop.world.workloads[job].state is State.ACTIVE

    story(tell, tmp_path)


@pytest.mark.parametrize("under", [Condition.FOREIGN, Condition.HOT])
def test_what_was_hidden_under_a_fault_is_there_as_soon_as_the_fault_is_over(under: Condition, tmp_path: Path) -> None:
    """A device that is well for no moment is granted in no moment, and what is told is what is shown."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        await report(loop, watch, telemetry, 48)
        if under is Condition.FOREIGN:
            telemetry.used[GPU] = ((4711, 3 << 30),)
        else:
            telemetry.shows = {"temperature_celsius": 91}
        await sample(loop, watch, telemetry, times=3)
        assert loop.world.devices[GPU].condition is Condition.FAULTY
        job = (await loop.handle(a_job())).workload or 0
        await say_well(loop)
        assert loop.world.devices[GPU].condition is under
        assert loop.world.workloads[job].state is State.QUEUED
        shown = [it.key for it in told(loop) if it.key.startswith("device:")]
        assert shown == ([f"device:{GPU}:hot"] if under is Condition.HOT else [])

    story(tell, tmp_path, policy=HOT_AT_ONCE)


def test_no_alert_outlives_what_it_is_about(tmp_path: Path) -> None:
    """With the operator's word, not with the sample after it."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        await report(loop, watch, telemetry, 48)
        await sample(loop, watch, telemetry)
        assert [it.key for it in told(loop)] == [f"device:{GPU}:faulty"]
        await say_well(loop)
        assert (loop.world.devices[GPU].condition, told(loop)) == (None, [])

    story(tell, tmp_path)


def test_work_that_gets_the_card_with_the_operators_word_meets_no_strike_of_before(tmp_path: Path) -> None:
    """Three have died of it, an operator has mended it, and the first that dies then is one, not the fourth."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        jobs = [(await loop.handle(a_job())).workload or 0 for _ in range(4)]
        # Each holds the device when it dies; who that is changes nothing here.
        first = loop.world.workloads[jobs[0]]
        for number in jobs[:3]:
            watch.hear_of_end(_as(first, number), 1, DIED)
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is Condition.FAULTY
        await say_well(loop)
        watch.hear_of_end(_as(first, jobs[3]), 1, DIED)  # before any sample
        await sample(loop, watch, telemetry, times=2)
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path)


def _as(it: Workload, number: int) -> Workload:
    return msgspec.structs.replace(it, id=number)


def test_what_is_wrong_after_an_operators_word_is_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same report of the same card within ten minutes: they had dealt with it, so they are called again."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        for times in (1, 2):
            await report(loop, watch, telemetry, 48)
            await sample(loop, watch, telemetry)
            assert loop.world.devices[GPU].condition is Condition.FAULTY
            called = [it for it in caplog.records if it.name.endswith("alerts") and "Xid 48" in it.message]
            assert len([it for it in called if it.levelname == "WARNING"]) == times
            await say_well(loop)

    story(tell, tmp_path)


def test_what_is_lost_is_looked_for_every_few_seconds(tmp_path: Path) -> None:
    """It comes back with its first clean reading once it is listed, and nobody waits a minute for that."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        await loop.handle(SeeDevices(pool="local", devices=()))
        assert loop.world.devices[GPU].condition is Condition.LOST
        looked = []
        telemetry.inventory_is = devices(1)
        inventory = telemetry.inventory

        async def counted() -> object:
            looked.append(1)
            return await inventory()

        telemetry.inventory = counted  # type: ignore[assignment, method-assign]
        for since, times in ((4, 0), (6, 1), (6, 2)):
            watch._looked_at = loop.now() - since
            watch.look_around()
            await settle(watch)
            assert len(looked) == times
        await say_well(loop)
        assert loop.world.devices[GPU].condition is Condition.LOST  # nobody wishes a card back
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is None
        watch._looked_at = loop.now() - 6
        watch.look_around()
        assert not watch._tasks

    story(tell, tmp_path)
