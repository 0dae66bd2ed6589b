"""What the broker sees for itself: strangers on devices, devices that cannot be read, holders that are gone."""

import asyncio
import os
import pwd
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_gpu.broker.engines import holders, procs
from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.broker.publish import Published
from jupyter_gpu.broker.telemetry.sampler import STARTING
from jupyter_gpu.broker.watch import Watch
from jupyter_gpu.model import (
    Caller,
    Cancel,
    Card,
    CardEvent,
    Condition,
    Device,
    EndReason,
    EvictionReason,
    Forget,
    Holder,
    Move,
    Outcome,
    Policy,
    Reading,
    Release,
    Sample,
    Scope,
    SeeDevices,
    SeeExited,
    SharingRule,
    State,
    Uncordon,
    UseKind,
    Vitals,
    WaitingReason,
    World,
)

from .ground import FakeTelemetry, a_job, a_loop, a_reservation, devices

GPU = "GPU-0"
OPER = Caller(name="oper", account="oper", scopes=frozenset({Scope.OPERATE}))
ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))


def story(
    tell: Callable[[Loop, Watch, FakeTelemetry], Awaitable[None]], folder: Path, policy: Policy | None = None
) -> None:
    """Play an asynchronous story with a watch over one device."""

    async def run() -> None:
        async with a_loop(folder, policy=policy) as (loop, _):
            telemetry = FakeTelemetry(inventory_is=devices(1))
            watch = Watch(loop, telemetry)  # type: ignore[arg-type]
            await watch.start()
            await tell(loop, watch, telemetry)
            await watch.close()

    asyncio.run(run())


async def sample(loop: Loop, watch: Watch, telemetry: FakeTelemetry, times: int = 1) -> None:
    """Let so many samples arrive, and what they bring be decided."""
    for _ in range(times):
        watch.on_sample(Sample(at=time.time(), readings=(telemetry.reading(GPU),)))
        await settle(watch)


async def settle(watch: Watch) -> None:
    """Let what was seen be decided."""
    while watch._tasks:
        await asyncio.sleep(0)


def test_a_stranger_on_a_free_device_makes_it_not_free(tmp_path: Path) -> None:
    """Two readings in a row with a process nobody leased to: no lease, the reason names it; clear again, free again."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.used[GPU] = ((4711, 3 << 30),)
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is None  # one reading may be older than the end of a lease
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is Condition.FOREIGN
        assert "4711" in loop.world.devices[GPU].condition_detail
        job = (await loop.handle(a_job())).workload or 0
        assert loop.world.workloads[job].waiting is WaitingReason.DEVICES
        telemetry.used.clear()
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is None
        assert loop.world.workloads[job].state is State.ACTIVE

    story(tell, tmp_path)


def test_what_runs_on_a_leased_device_is_no_stranger(tmp_path: Path) -> None:
    """The holder's own processes change nothing."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        await loop.handle(a_job())
        telemetry.used[GPU] = ((4711, 3 << 30),)
        await sample(loop, watch, telemetry, times=3)
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path)


def test_a_device_that_cannot_be_read_gets_no_lease_and_ends_none(tmp_path: Path) -> None:
    """Unknown is not gone: what holds it goes on, nothing new is placed there, and it is well at the next reading."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        held = (await loop.handle(a_job())).workload or 0
        telemetry.unreadable = True
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is Condition.UNREADABLE
        assert loop.world.workloads[held].state is State.ACTIVE
        telemetry.unreadable = False
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path)


def test_a_sample_is_encoded_once_and_carries_no_revision(tmp_path: Path) -> None:
    """All listeners get the same line."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        first, second = loop.subscribe(), loop.subscribe()
        await sample(loop, watch, telemetry)
        lines = [await anext(first), await anext(second)]
        assert lines[0] is lines[1]
        content = msgspec.json.decode(lines[0])
        assert list(content) == ["samples", "cards"]
        assert content["samples"][0]["uuid"] == GPU

    story(tell, tmp_path)


def a_holder(process: subprocess.Popen[bytes], kind: str) -> Holder:
    """A real process as a holder."""
    found = procs.find(process.pid)
    assert found is not None
    return Holder(kind=kind, name="sleeper", pid=process.pid, start_ticks=found.start_ticks, boot_id=procs.boot_id())


def kept_by(holder: Holder, keeper: subprocess.Popen[bytes]) -> Holder:
    """The holder with a process that looks after it."""
    found = procs.find(keeper.pid)
    assert found is not None
    return msgspec.structs.replace(holder, keeper_pid=keeper.pid, keeper_start_ticks=found.start_ticks)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and see to it that it is gone."""
    process.kill()
    process.wait()


def a_sleeper() -> subprocess.Popen[bytes]:
    """A process that waits to be ended."""
    return subprocess.Popen(["sleep", "600"])


async def look_until(loop: Loop, watch: Watch, workload: int, state: State) -> None:
    """Look around until a workload is in a state."""
    for _ in range(100):
        watch.look_around()
        it = await loop.wait_until(workload, lambda it: it.state is state, 0.05)
        if it.state is state:
            return
    raise AssertionError(loop.world.workloads[workload])


def test_a_reservation_whose_holder_is_gone_is_given_back(tmp_path: Path) -> None:
    """A killed kernel or closed shell leaks nothing, with no renewal to wait for; a live one keeps its lease."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        sleeper = a_sleeper()
        held = (await loop.handle(a_reservation(holder=a_holder(sleeper, "shell")))).workload or 0
        watch.look_around()
        await asyncio.sleep(0)
        assert loop.world.workloads[held].state is State.ACTIVE
        sleeper.kill()
        sleeper.wait()
        await look_until(loop, watch, held, State.YIELDING)
        outcome = loop.world.workloads[held].outcome
        assert outcome is not None
        assert outcome.detail == "its shell sleeper has ended"

    story(tell, tmp_path)


def test_a_waiting_ask_whose_holder_is_gone_is_abandoned(tmp_path: Path) -> None:
    """A tab closed while waiting is granted nothing."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        await loop.handle(a_reservation())
        sleeper = a_sleeper()
        waiting = (await loop.handle(a_reservation("ada", holder=a_holder(sleeper, "kernel")))).workload or 0
        sleeper.kill()
        sleeper.wait()
        await look_until(loop, watch, waiting, State.ENDED)
        assert loop.world.workloads[waiting].end is EndReason.ABANDONED

    story(tell, tmp_path)


def test_another_process_with_the_same_number_is_no_holder(tmp_path: Path) -> None:
    """A pid that names a later process, or one of another boot, proves the holder gone, and nobody is signalled.

    jhuckaby/Cronicle#789
    """

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        for change in ({"start_ticks": 1}, {"boot_id": "another"}):
            sleeper = a_sleeper()
            stale = msgspec.structs.replace(a_holder(sleeper, "command"), **change)
            held = (await loop.handle(a_reservation(holder=stale, devices=1))).workload or 0
            await look_until(loop, watch, held, State.YIELDING if loop.world.workloads[held].is_live else State.ENDED)
            watch.look_around()
            assert sleeper.poll() is None
            sleeper.kill()
            sleeper.wait()

    story(tell, tmp_path)


def test_a_command_that_does_not_leave_is_ended_and_a_shell_never_is(tmp_path: Path) -> None:
    """After the release the broker ends the command it knows by pid and start time; a login shell is left alone."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        sleeper = a_sleeper()
        asked = a_reservation(holder=a_holder(sleeper, "command"))
        mine = msgspec.structs.replace(asked, account=pwd.getpwuid(os.geteuid()).pw_name)
        held = (await loop.handle(mine)).workload or 0
        await loop.handle(Release(workload=held, by="grace"))
        watch.look_around()
        assert await asyncio.to_thread(sleeper.wait, 10) == -15
        me = procs.find(os.getpid())
        assert me is not None
        shell = Holder(kind="shell", name="bash", pid=me.pid, start_ticks=me.start_ticks, boot_id=procs.boot_id())
        waiting = (await loop.handle(a_reservation("ada", holder=shell))).workload or 0
        await loop.handle(Release(workload=waiting, by="ada"))
        watch.look_around()  # would end this very process

    story(tell, tmp_path)


def test_a_holder_that_cannot_be_looked_at_keeps_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not known is not gone, and who has a process need not renew; afterwards all is seen as it is."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        sleeper = a_sleeper()
        held = (await loop.handle(a_reservation(holder=a_holder(sleeper, "kernel")))).workload or 0
        monkeypatch.setattr(holders, "is_alive", lambda _: None)
        monkeypatch.setattr(loop, "has_lapsed", lambda _: True)
        watch.look_around()
        assert not watch._tasks
        assert loop.world.workloads[held].state is State.ACTIVE
        sleeper.kill()
        sleeper.wait()
        monkeypatch.undo()
        await look_until(loop, watch, held, State.YIELDING)

    story(tell, tmp_path)


def test_a_holder_that_has_become_somebody_elses_is_not_ended(tmp_path: Path) -> None:
    """The broker ends for a user only what is the user's: with an account that is not the process's, it is left alone.

    The device is not free before it has left by itself.
    """
    if os.geteuid() != 0:
        pytest.skip("only root may signal what is not its own: run the tests as root")

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        sleeper = a_sleeper()
        asked = a_reservation(holder=a_holder(sleeper, "command"))
        other = msgspec.structs.replace(asked, account=pwd.getpwuid(65534).pw_name)
        held = (await loop.handle(other)).workload or 0
        await loop.handle(Release(workload=held, by="grace"))
        watch.look_around()
        while watch._tasks:
            await asyncio.sleep(0.01)
        assert watch._asked_to_leave
        assert sleeper.poll() is None
        sleeper.kill()
        sleeper.wait()

    story(tell, tmp_path)


def test_devices_of_another_making_are_not_waited_for(tmp_path: Path) -> None:
    """A broker that does not simulate can never read simulated devices: what was left on them is over, not stuck."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        made_up = msgspec.structs.replace(devices(1)[0], uuid="GPU-made-up", index=7, simulated=True)
        await loop.handle(SeeDevices(pool="local", devices=(*devices(1), made_up)))
        await watch._give_up_the_others()
        assert loop.world.devices["GPU-made-up"].condition is Condition.LOST
        said = loop.world.devices["GPU-made-up"].condition_detail
        assert "does not serve simulated GPUs" in said
        assert "`jupyter gpu broker start --simulated 1`" in said
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path)


def test_a_stranger_does_not_hide_behind_the_name_of_a_display(tmp_path: Path) -> None:
    """A shared broker ignores by its name only what is the system's own."""
    if os.geteuid() != 0:
        pytest.skip("only root has a shared broker: run the tests as root")

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.name_of = lambda _: "Xorg"  # type: ignore[method-assign]
        for user, condition in ((0, None), (65534, Condition.FOREIGN)):
            process = subprocess.Popen(["sleep", "600"], user=user)  # noqa: ASYNC220 - it takes no time
            telemetry.used[GPU] = ((process.pid, 1),)
            await sample(loop, watch, telemetry, times=2)
            assert loop.world.devices[GPU].condition is condition
            process.kill()
            process.wait()

    story(tell, tmp_path)


@pytest.mark.parametrize("ends", ["kernel first", "both"])
def test_a_kernel_that_is_gone_may_be_a_restart_while_its_keeper_lives(tmp_path: Path, ends: str) -> None:
    """A restart and a crash keep the lease; a killed Jupyter server leaks nothing."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        kernel, server = a_sleeper(), a_sleeper()
        holder = kept_by(a_holder(kernel, "kernel"), server)
        held = (await loop.handle(a_reservation(holder=holder))).workload or 0
        end(kernel)
        if ends == "kernel first":
            watch.look_around()
            assert not watch._tasks
            assert loop.world.workloads[held].state is State.ACTIVE
        end(server)
        await look_until(loop, watch, held, State.YIELDING)

    story(tell, tmp_path)


def test_a_kernel_that_stays_away_longer_than_the_lapse_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keeper has time to start it anew, and no more than that; one that came back has all of it again."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        kernel, server = a_sleeper(), a_sleeper()
        held = (await loop.handle(a_reservation(holder=kept_by(a_holder(kernel, "kernel"), server)))).workload or 0
        end(kernel)
        watch._looked_at = float("inf")  # the devices are no matter here
        began, lapse = loop.now(), loop.world.policy.lapse_seconds
        watch.look_around()
        again = a_sleeper()
        await loop.handle(Move(workload=held, by="grace", holder=kept_by(a_holder(again, "kernel"), server)))
        monkeypatch.setattr(loop, "_clock", lambda: began + lapse + 1)
        watch.look_around()
        assert str(watch._dead_since) == "{}"
        end(again)
        watch.look_around()
        assert not watch._tasks
        assert loop.world.workloads[held].state is State.ACTIVE
        monkeypatch.setattr(loop, "_clock", lambda: began + 2 * lapse + 2)
        await look_until(loop, watch, held, State.YIELDING)
        end(server)

    story(tell, tmp_path)


def test_an_ask_before_its_kernel_runs_lives_with_its_keeper(tmp_path: Path) -> None:
    """Papermill waits for a GPU before it starts a kernel: when it is killed meanwhile, nobody is granted anything."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        await loop.handle(a_reservation())
        server = a_sleeper()
        nobody = Holder(kind="kernel", name="k", boot_id=procs.boot_id())
        waiting = (await loop.handle(a_reservation("ada", holder=kept_by(nobody, server)))).workload or 0
        watch.look_around()
        assert not watch._tasks
        end(server)
        await look_until(loop, watch, waiting, State.ENDED)
        assert loop.world.workloads[waiting].end is EndReason.ABANDONED

    story(tell, tmp_path)


def test_a_released_kernel_is_ended_only_where_it_keeps_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may live on without its GPU; where that is not clear after `kill_after_seconds`, it is ended."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        kernel = a_sleeper()
        asked = a_reservation(holder=a_holder(kernel, "kernel"))
        mine = msgspec.structs.replace(asked, account=pwd.getpwuid(os.geteuid()).pw_name)
        held = (await loop.handle(mine)).workload or 0
        await loop.handle(Release(workload=held, by="grace"))
        watch.look_around()
        assert not watch._tasks
        later = loop.now() + loop.world.policy.kill_after_seconds
        monkeypatch.setattr(loop, "_clock", lambda: later)
        watch.look_around()
        assert await asyncio.to_thread(kernel.wait, 10) == -15

    story(tell, tmp_path)


# -- devices as they are


HOT = Policy(hot_celsius=80, hot_seconds=0, suspect_seconds=0)


def vitals(**words: object) -> dict[str, object]:
    """What a reading shows besides."""
    return {"vitals": Vitals(**words)}  # type: ignore[arg-type]


def test_what_a_reading_shows_takes_a_device_out_of_use_and_brings_it_back(tmp_path: Path) -> None:
    """Hot, prohibited, slowed, waiting for a reset: no new work, and what runs there goes on."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        held = (await loop.handle(a_job())).workload or 0
        for shows, condition in (
            ({"temperature_celsius": 90}, Condition.HOT),
            (vitals(compute_mode="prohibited"), Condition.PROHIBITED),
            (vitals(repair_pending=True), Condition.RESET_NEEDED),
        ):
            telemetry.shows = shows
            await sample(loop, watch, telemetry)
            assert loop.world.devices[GPU].condition is condition
            assert loop.world.workloads[held].state is State.ACTIVE
        telemetry.shows = vitals(repair_pending=False)
        await sample(loop, watch, telemetry, times=2)
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path, policy=HOT)


def test_a_card_that_shows_load_without_owner_gets_no_work(tmp_path: Path) -> None:
    """100 % with nothing on it; the same on a leased device is its holder's work: Datura-ai/lium-io#1140."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.shows = {"utilisation_percent": 100}
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is Condition.SUSPECT
        telemetry.shows = {"utilisation_percent": 0}
        await sample(loop, watch, telemetry)
        await loop.handle(a_job())
        telemetry.shows = {"utilisation_percent": 100}
        await sample(loop, watch, telemetry, times=3)
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path, policy=HOT)


def test_a_grave_report_moves_jobs_off_and_tells_who_reserved(tmp_path: Path) -> None:
    """An uncorrectable memory error: the job goes elsewhere, the next ask waits, an operator may bring it back."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        held = (await loop.handle(a_job())).workload or 0
        event = CardEvent(uuid=GPU, xid=48, at=time.time())
        watch.on_sample(Sample(at=time.time(), readings=(telemetry.reading(GPU),), events=(event,)))
        await settle(watch)
        assert loop.world.devices[GPU].condition is Condition.FAULTY
        assert loop.world.workloads[held].eviction is EvictionReason.DRAINED
        await sample(loop, watch, telemetry, times=5)
        assert loop.world.devices[GPU].condition is Condition.FAULTY
        assert [view.key for view in loop.alerts.views(OPER)] == [f"device:{GPU}:faulty"]
        assert [view.key for view in loop.alerts.views(ADA)] == [f"holder:{held}:{GPU}"]
        await loop.handle(Uncordon(device=GPU, by="oper"))
        await sample(loop, watch, telemetry, times=5)
        assert loop.world.devices[GPU].condition is None
        assert loop.alerts.views(OPER) == ()

    story(tell, tmp_path)


def test_a_driver_that_opens_slowly_keeps_nobody_waiting_at_the_doors(tmp_path: Path) -> None:
    """The first look goes on; whoever asks for devices waits for it (NVIDIA/nvidia-container-toolkit#1053)."""

    async def run() -> None:
        async with a_loop(tmp_path, count=0) as (loop, _):
            telemetry, is_open = FakeTelemetry(), asyncio.Event()

            async def inventory() -> tuple[Device, ...] | None:
                await is_open.wait()
                return telemetry.inventory_is

            telemetry.inventory = inventory  # type: ignore[method-assign]
            telemetry.inventory_is, telemetry.fault = None, STARTING
            watch = Watch(loop, telemetry)  # type: ignore[arg-type]
            async with asyncio.timeout(2):
                await watch.start()
            assert not watch.has_looked
            asked = asyncio.ensure_future(watch.knows_devices())
            await asyncio.sleep(0)
            assert not asked.done()
            is_open.set()
            assert await asked is False  # the deadline is over, and the driver still not open
            assert watch.has_looked
            telemetry.inventory_is, telemetry.fault = devices(1), None
            watch.on_sample(Sample(at=time.time(), fault=STARTING))
            watch.on_sample(Sample(at=time.time()))
            await settle(watch)
            assert await watch.knows_devices()
            assert list(loop.world.devices) == [GPU]
            await watch.close()

    asyncio.run(run())


@pytest.mark.parametrize("fault", [None, "There is no driver."])
def test_a_machine_without_devices_is_known_to_have_none(tmp_path: Path, fault: str | None) -> None:
    """Only a driver that is still being opened may have some."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.inventory_is, telemetry.fault = (), fault
        await watch.look_for_devices()
        await loop.handle(Forget(device=GPU, by="oper"))
        assert loop.world.devices == {}
        assert await watch.knows_devices()

    story(tell, tmp_path)


def test_mig_devices_of_before_are_looked_for_once_more_soon_and_then_forgotten(tmp_path: Path) -> None:
    """With what was remembered of them."""
    card = Card(uuid="GPU-9", index=9, name="A100")
    part = msgspec.structs.replace(devices(1)[0], uuid="MIG-9", index=1000, card=card, slot=0)

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.inventory_is, telemetry.cards = (*devices(1), part), (card,)
        await watch.look_for_devices()
        watch.on_sample(Sample(at=time.time(), readings=(telemetry.reading("MIG-9"),)))
        await settle(watch)
        telemetry.inventory_is = devices(1)
        await watch.look_for_devices()
        assert loop.world.devices["MIG-9"].condition is Condition.LOST
        watch._looked_at = loop.now() - 6
        watch.look_around()
        await settle(watch)
        assert list(loop.world.devices) == [GPU]
        await sample(loop, watch, telemetry)
        assert "MIG-9" not in loop.world.readings
        assert "MIG-9" not in watch._conditions.health._cards
        watch._looked_at = loop.now() - 6
        watch.look_around()
        assert not watch._tasks  # nothing is missed any more

    story(tell, tmp_path)


def test_a_lost_card_lets_the_inventory_be_read_at_once_and_not_again_and_again(tmp_path: Path) -> None:
    """Perhaps others are gone with it; what stays lost is looked for every few seconds."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        asked: list[float] = []
        inventory = telemetry.inventory

        async def counted() -> object:
            asked.append(1)
            return await inventory()

        telemetry.inventory = counted  # type: ignore[assignment, method-assign]
        telemetry.shows = {"fault": "The GPU is lost: it has fallen off the bus."}
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is Condition.LOST
        watch._looked_at = loop.now() - 6
        for _ in range(3):
            watch.look_around()
            await settle(watch)
            await sample(loop, watch, telemetry)
        assert len(asked) == 1
        telemetry.shows = {}
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path)


def test_memory_of_who_has_ended_is_not_clear_and_says_what_helps(tmp_path: Path) -> None:
    """Nobody is left who could be asked or ended; it is free again once the driver gives it back."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.has_local_pids = True
        process = a_sleeper()
        end(process)
        telemetry.ended.add(process.pid)
        telemetry.used[GPU] = ((process.pid, 3 << 30),)
        await sample(loop, watch, telemetry, times=2)
        device = loop.world.devices[GPU]
        assert device.condition is Condition.NOT_CLEAR
        assert "3GiB" in device.condition_detail
        assert "--gpu-reset" in device.condition_detail
        telemetry.used.clear()
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path)


def test_each_process_is_attributed_and_a_change_of_who_is_there_is_told(tmp_path: Path) -> None:
    """Not its bytes, which come with the samples; and without a commit."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.has_local_pids = True
        listener = loop.subscribe()
        sleeper = a_sleeper()
        for used in (1 << 30, 2 << 30):
            telemetry.used[GPU] = ((sleeper.pid, used),)
            await sample(loop, watch, telemetry)
        await watch._people.settled()
        await sample(loop, watch, telemetry)
        (use,) = loop.world.uses[GPU]
        assert (use.kind, use.user, use.memory_bytes) == (UseKind.USER, pwd.getpwuid(os.geteuid()).pw_name, 2 << 30)
        end(sleeper)
        await asyncio.sleep(0)
        looks = [item for item in listener._waiting if isinstance(item, Published) and item.is_look]
        assert [set(item.devices) for item in looks] == [{GPU}]

    story(tell, tmp_path)


def test_whoever_stays_above_their_part_is_told_and_then_evicted(tmp_path: Path) -> None:
    """By the rule of the policy that shares the device; the answer to a renewal says it from the first."""
    policy = Policy(sharing=(SharingRule(slack_bytes=0, evict_after_seconds=0),))

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.has_local_pids = True
        sleeper = a_sleeper()
        asked = a_reservation(holder=a_holder(sleeper, "kernel"), memory_bytes=2 << 30)
        mine = msgspec.structs.replace(asked, account=pwd.getpwuid(os.geteuid()).pw_name)
        held = (await loop.handle(mine)).workload or 0
        telemetry.used[GPU] = ((sleeper.pid, 1 << 30),)
        await sample(loop, watch, telemetry)
        await watch._people.settled()
        await sample(loop, watch, telemetry, times=3)
        assert loop.renew(held, 1).told == ""
        telemetry.used[GPU] = ((sleeper.pid, 3 << 30),)
        await sample(loop, watch, telemetry)
        assert "--memory 3GiB" in loop.renew(held, 1).told
        assert loop.world.workloads[held].eviction is None
        await sample(loop, watch, telemetry)
        assert loop.world.workloads[held].eviction is EvictionReason.ABOVE_SHARE
        end(sleeper)

    story(tell, tmp_path, policy=policy)


def test_job_after_job_that_dies_of_one_card_takes_it_out_of_use(tmp_path: Path) -> None:
    """Three in a row, each told once however often it is seen: MFlowCode/MFC#1748."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        died = Outcome(end=EndReason.DEVICE_LOST, detail="uncorrectable ECC error encountered")
        for number in range(3):
            held = (await loop.handle(a_job())).workload or 0
            it = loop.world.workloads[held]
            for _ in range(5):
                watch.hear_of_end(it, 1, died)
            await sample(loop, watch, telemetry)
            assert loop.world.devices[GPU].condition is (Condition.FAULTY if number == 2 else None)
            await loop.handle(Cancel(workload=held, by="ada"))
            await loop.handle(SeeExited(workload=held, attempt=1, outcome=died, clear=True))
        assert "(1, 2, 3)" in loop.world.devices[GPU].condition_detail

    story(tell, tmp_path)


def test_what_was_evicted_counts_against_no_card(tmp_path: Path) -> None:
    """Who is cancelled may say anything in the end."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        died = Outcome(end=EndReason.DEVICE_LOST, detail="uncorrectable ECC error encountered")
        held = (await loop.handle(a_job())).workload or 0
        it = msgspec.structs.replace(loop.world.workloads[held], eviction=EvictionReason.CANCELLED)
        for attempt in range(1, 6):
            watch.hear_of_end(it, attempt, died)
        await sample(loop, watch, telemetry)
        assert loop.world.devices[GPU].condition is None

    story(tell, tmp_path)


def test_a_driver_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    """To operators, as one thing; it ends with the first answer."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.fault = "The driver does not answer."
        telemetry.unreadable = True
        await sample(loop, watch, telemetry, times=3)
        assert [view.key for view in loop.alerts.views(OPER)] == ["driver:fault"]
        telemetry.fault, telemetry.unreadable = None, False
        await sample(loop, watch, telemetry, times=2)
        assert loop.alerts.views(OPER) == ()

    story(tell, tmp_path)


def test_what_goes_wrong_with_one_device_is_that_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each sample of all devices was lost to what one process had written about itself; it is logged once."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.inventory_is = devices(2)
        await watch.look_for_devices()
        attribute, look = watch._attribution.attribute, watch._conditions.look

        def breaks(world: World, reading: Reading, *more: Any) -> Any:
            return attribute(world, reading, *more) if reading.uuid != GPU else 1 // 0

        def breaks_too(device: Device, reading: Reading) -> Any:
            return look(device, reading) if reading.uuid != GPU else {}["missing"]

        monkeypatch.setattr(watch._attribution, "attribute", breaks)
        monkeypatch.setattr(watch._conditions, "look", breaks_too)
        telemetry.used = dict.fromkeys((GPU, "GPU-1"), ((4711, 3 << 30),))
        for _ in range(3):
            readings = tuple(telemetry.reading(uuid) for uuid in (GPU, "GPU-1"))
            watch.on_sample(Sample(at=time.time(), readings=readings))
            await settle(watch)
        assert loop.world.devices["GPU-1"].condition is Condition.FOREIGN
        assert [view.key for view in loop.alerts.views(OPER)] == ["foreign:GPU-1"]
        errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert [it.partition(" cannot")[0] for it in errors] == ["who is on GPU 0", "GPU 0"]

    story(tell, tmp_path)


def test_a_rule_for_gpus_that_are_not_there_is_a_warning(tmp_path: Path) -> None:
    """Unless nothing can be read, which is said instead."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        (said,) = watch.warnings
        assert "names the class h100" in said
        telemetry.fault = "There is no driver."
        assert watch.warnings == ("There is no driver.",)

    story(tell, tmp_path, policy=Policy(sharing=(SharingRule(device_class="h100"),)))


def test_what_is_not_read_accuses_nobody(tmp_path: Path) -> None:
    """Who was on a card before it was lost, or could not be read, may long have gone."""

    async def tell(loop: Loop, watch: Watch, telemetry: FakeTelemetry) -> None:
        telemetry.used[GPU] = ((4711, 1 << 30),)
        await sample(loop, watch, telemetry, times=2)
        assert [use.pid for use in loop.world.uses[GPU]] == [4711]
        assert [view.key for view in loop.alerts.views(OPER)] == [f"foreign:{GPU}"]
        watch.on_sample(Sample(at=time.time()))
        await settle(watch)
        assert loop.world.uses == {}
        assert loop.alerts.views(OPER) == ()
        await sample(loop, watch, telemetry)
        telemetry.shows = {"processes": None}
        await sample(loop, watch, telemetry)
        assert loop.world.uses == {}

    story(tell, tmp_path)
