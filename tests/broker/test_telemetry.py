"""One sampler thread for everybody: fresh probes, a deadline, and a hang that hurts nobody else."""

import asyncio
import functools
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import jupyter_gpu
from jupyter_gpu.broker.telemetry.sampler import STARTING, Telemetry
from jupyter_gpu.model import Card, CardEvent, Device, DriverView, Reading

A, B = "GPU-a", "GPU-b"
LONG = 3600.0  # an interval or a deadline that no test reaches


class FakeSource:
    """Two devices. Each read is numbered, and the number is what the readings show as used memory."""

    def __init__(self):
        self.fault = None
        self.busy_with = None
        self.has_local_pids = True
        self.driver = None
        self.notes = ()
        self.split = ()
        self.reported = []
        self.found = (
            Device(uuid=A, index=0, name="A", device_class="a"),
            Device(uuid=B, index=1, name="B", device_class="b"),
        )
        self.reads = []
        self.threads = set()
        self.error = None
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def devices(self):
        """What the test put there."""
        self.threads.add(threading.current_thread())
        return self.found

    def cards(self):
        """What the test put there."""
        return self.split

    def events(self):
        """What the test put there, once."""
        reported, self.reported = tuple(self.reported), []
        return reported

    def read(self, uuids):
        """Readings that carry their number, once the gate is open."""
        self.threads.add(threading.current_thread())
        self.reads.append(tuple(uuids))
        number = len(self.reads)
        self.begun.set()
        self.gate.wait(30)
        if self.error:
            raise self.error
        return tuple(Reading(uuid=uuid, at=time.time(), memory_used_bytes=number) for uuid in uuids)


class Samples:
    """What on_sample was told, to be awaited."""

    def __init__(self):
        self.all = []
        self.given = 0
        self.threads = set()
        self.came = asyncio.Event()

    def __call__(self, sample):
        """Take a sample, on whatever thread."""
        self.all.append(sample)
        self.threads.add(threading.current_thread())
        self.came.set()

    async def next(self, such=lambda _: True):
        """Wait for the first sample such as this, of those that nobody has been given yet."""
        while True:
            while self.given < len(self.all):
                self.given += 1
                if such(self.all[self.given - 1]):
                    return self.all[self.given - 1]
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), 30)


def with_telemetry(**options):
    """Run an async test with a started Telemetry over a FakeSource; its first sample has come."""

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            async def body():
                source, samples = FakeSource(), Samples()
                telemetry = Telemetry(source, **{"interval_seconds": LONG, "deadline_seconds": LONG} | options)
                telemetry.start(asyncio.get_running_loop(), samples)
                await samples.next()
                source.begun.clear()
                try:
                    await test(telemetry, source, samples, *args, **kwargs)
                finally:
                    source.gate.set()
                    telemetry.close()

            asyncio.run(body())

        # Not the wrapped signature: pytest would take its arguments for fixtures.
        del run.__wrapped__
        return run

    return decorate


async def asked(telemetry, count=1):
    """Let tasks run up to where their question is in the sampler's queue."""
    while telemetry._asks.qsize() < count:
        await asyncio.sleep(0)


async def begun(source):
    """Wait until the source is in a read."""
    await asyncio.to_thread(source.begun.wait, 30)


@with_telemetry()
async def test_a_probe_is_read_after_it_was_asked(telemetry, source, samples):
    """A read that was under way when the probe was asked does not count: it may have looked before the release."""
    source.gate.clear()
    earlier = asyncio.create_task(telemetry.probe([A]))
    await begun(source)
    probe = asyncio.create_task(telemetry.probe([A]))
    await asked(telemetry)

    source.gate.set()

    assert (await earlier)[0].memory_used_bytes == 2
    assert (await probe)[0].memory_used_bytes == 3


@with_telemetry()
async def test_probes_that_wait_are_answered_by_one_read(telemetry, source, samples):
    """However many releases there are at once, the source is read once, and only of what was asked."""
    source.gate.clear()
    first = asyncio.create_task(telemetry.probe([A]))
    await begun(source)
    probes = [asyncio.create_task(telemetry.probe(uuids)) for uuids in ([A], [B, A], [A], [])]
    await asked(telemetry, len(probes))

    source.gate.set()
    answers = await asyncio.gather(first, *probes)

    assert source.reads == [(A, B), (A,), (A, B)]
    assert [[it.uuid for it in answer] for answer in answers] == [[A], [A], [B, A], [A], []]


@with_telemetry(interval_seconds=0.01)
async def test_samples_come_on_the_loop_and_are_kept(telemetry, source, samples):
    """The source is called in one other thread only, on_sample on the loop; `latest` is what came last."""
    sample = await samples.next()

    assert [reading.uuid for reading in sample.readings] == [A, B]
    assert sample.fault is None
    assert telemetry.latest[B].memory_used_bytes == len(samples.all)
    assert samples.threads == {threading.current_thread()}
    (sampler,) = source.threads
    assert sampler is not threading.current_thread()
    assert sampler.daemon


@with_telemetry()
async def test_a_probe_freshens_what_is_known(telemetry, source, samples):
    """What a probe saw is newer than the last sample; strangers are not taken in."""
    await telemetry.probe([B, "GPU-stranger"])

    assert (telemetry.latest[A].memory_used_bytes, telemetry.latest[B].memory_used_bytes) == (1, 2)
    assert set(telemetry.latest) == {A, B}


@with_telemetry(interval_seconds=0.02, deadline_seconds=0.05)
async def test_a_hang_is_a_fault_and_ends_by_itself(telemetry, source, samples):
    """A sick GPU can block every call: the loop lives, everybody is told why, and readings resume without help."""
    source.busy_with = B
    source.gate.clear()

    told = await samples.next(lambda sample: sample.fault)

    assert "has not answered" in told.fault
    assert B in told.fault
    assert [reading.fault for reading in told.readings] == [told.fault] * 2
    assert telemetry.latest[A].memory_used_bytes is None
    assert telemetry.fault == told.fault
    assert time.time() - 30 < telemetry.stalled_since < time.time()
    assert "has not answered" in (await telemetry.probe([A]))[0].fault
    assert await telemetry.inventory() is None

    source.gate.set()
    await samples.next(lambda sample: sample.fault is None)

    assert telemetry.stalled_since is None
    assert telemetry.fault is None
    assert (await telemetry.probe([A]))[0].fault is None
    assert len(source.threads) == 1


@with_telemetry(deadline_seconds=0.05)
async def test_a_probe_keeps_the_deadline(telemetry, source, samples):
    """Who asks just as the source begins to hang has an answer within the deadline, not a wait without end."""
    source.gate.clear()

    (reading,) = await telemetry.probe([A])

    assert "has not answered" in reading.fault
    assert (reading.uuid, reading.memory_used_bytes) == (A, None)


@with_telemetry()
async def test_a_sampler_that_has_nothing_to_do_does_not_hang(telemetry, source, samples):
    """Only the time inside a call counts, however long it is until the next one."""
    await telemetry.probe([A])

    telemetry._deadline_seconds = 0.0

    assert telemetry.stalled_since is None
    assert telemetry.fault is None


@with_telemetry()
async def test_an_inventory_that_cannot_be_read_is_not_an_empty_one(telemetry, source, samples):
    """None is unknown, and nothing may end because of it; () is a driver that runs and lists nothing."""
    assert await telemetry.inventory() == source.found

    source.found, source.fault = None, "The NVIDIA driver is not loaded."
    assert await telemetry.inventory() is None
    assert telemetry.fault == "The NVIDIA driver is not loaded."

    source.found, source.fault = (), None
    assert await telemetry.inventory() == ()
    assert telemetry.fault is None


def test_devices_that_come_later_are_sampled():
    """A driver that is loaded after the broker is noticed without anybody asking; until then samples say why."""

    async def body():
        source, samples = FakeSource(), Samples()
        found, source.found, source.fault = source.found, None, "The NVIDIA driver is not loaded."
        telemetry = Telemetry(source, interval_seconds=0.01)
        telemetry.start(asyncio.get_running_loop(), samples)
        sample = await samples.next()
        assert (sample.readings, sample.fault) == ((), source.fault)

        source.found, source.fault = found, None

        assert [it.uuid for it in (await samples.next(lambda sample: sample.readings)).readings] == [A, B]
        telemetry.close()

    asyncio.run(body())


@with_telemetry(interval_seconds=0.01)
async def test_an_inventory_that_failed_is_read_again_with_the_next_sample(telemetry, source, samples):
    """Its fault would stand until somebody asks again, which may be a minute; meanwhile what was known is read."""
    found, source.found, source.fault = source.found, None, "NVML cannot be used."
    assert await telemetry.inventory() is None
    readings = (await samples.next(lambda sample: sample.fault)).readings
    assert [it.uuid for it in readings] == [A, B]

    c = Device(uuid="GPU-c", index=2, name="C", device_class="c")
    source.found, source.fault = (*found, c), None

    assert [it.uuid for it in (await samples.next(lambda it: len(it.readings) > 2)).readings] == [A, B, "GPU-c"]


@with_telemetry(interval_seconds=0.01)
async def test_a_source_that_raises_does_not_end_the_sampler(telemetry, source, samples):
    """A slip in a source is a fault in the readings, in words, until it is over."""
    source.error = ValueError("not foreseen")
    told = await samples.next(lambda sample: sample.fault)
    assert "not foreseen" in told.fault
    assert [reading.fault for reading in told.readings] == [told.fault] * 2
    assert "not foreseen" in (await telemetry.probe([A]))[0].fault

    source.error = None

    assert (await samples.next(lambda sample: sample.fault is None)).readings[0].fault is None


def test_a_fault_is_logged_once(caplog):
    """One line when it begins and one when it is over, not one a second (gpuopenanalytics/pynvml#43)."""
    caplog.set_level(logging.INFO, logger="jupyter_gpu.broker.telemetry.sampler")

    @with_telemetry()
    async def body(telemetry, source, samples):
        source.fault = "The NVIDIA driver is not loaded."
        for _ in range(3):
            await telemetry.probe([A])
        source.fault = None
        for _ in range(3):
            await telemetry.probe([A])

    body()

    assert [record.message for record in caplog.records] == [
        "The NVIDIA driver is not loaded.",
        "The GPUs can be read again.",
    ]


def test_a_driver_that_is_slow_to_start_is_no_fault_of_it():
    """Its first answer may take half a minute: asks are answered meanwhile, and say so.

    NVIDIA/nvidia-container-toolkit#1053: 24 seconds in nvmlInit.
    """

    async def body():
        source, samples = FakeSource(), Samples()
        telemetry = Telemetry(source, interval_seconds=0.01, deadline_seconds=0.05)
        assert telemetry.fault is None  # nobody has asked yet
        source.gate.clear()
        telemetry.start(asyncio.get_running_loop(), samples)

        assert telemetry.fault == STARTING
        assert (await telemetry.probe([A]))[0].fault == STARTING
        assert (await samples.next()).fault == STARTING

        source.gate.set()
        assert [it.fault for it in (await samples.next(lambda sample: sample.fault is None)).readings] == [None, None]
        assert telemetry.fault is None
        telemetry.close()

    asyncio.run(body())


@with_telemetry(deadline_seconds=0.05)
async def test_a_start_that_does_not_end_is_a_silent_driver(telemetry, source, samples):
    """After a minute nothing is starting any more."""
    source.gate.clear()
    telemetry._has_answered = False
    await telemetry.probe([A])
    while telemetry.stalled_since is None:
        await asyncio.sleep(0)
    assert telemetry.fault == STARTING

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jupyter_gpu.broker.telemetry.sampler.STARTING_SECONDS", 0.0)
        assert "has not answered" in telemetry.fault


@with_telemetry()
async def test_a_probe_swallows_no_event(telemetry, source, samples):
    """It is left for the next sample, which everybody hears."""
    source.reported = [CardEvent(uuid=A, xid=79, at=1.0)]

    await telemetry.probe([A])

    assert source.reported


@with_telemetry(interval_seconds=0.01)
async def test_a_sample_carries_all_that_the_driver_reported(telemetry, source, samples):
    """Each event once."""
    reported = [CardEvent(uuid=A, xid=79, at=1.0), CardEvent(uuid=B, xid=48, at=1.0)]
    source.reported = reported

    await samples.next(lambda sample: sample.events)
    await samples.next()

    assert [event for sample in samples.all for event in sample.events] == reported


@with_telemetry(interval_seconds=0.01)
async def test_events_are_kept_over_a_read_that_fails(telemetry, source, samples):
    """What came just before a fault says more than the fault."""
    source.error = ValueError("not foreseen")
    source.reported = [CardEvent(uuid=A, xid=79, at=1.0)]

    sample = await samples.next(lambda sample: sample.events)

    assert "not foreseen" in sample.fault


@with_telemetry(interval_seconds=0.01)
async def test_cards_are_read_with_their_devices(telemetry, source, samples):
    """A GPU in MIG mode is no device, and shows its memory, power and health all the same (XuehaiPan/nvitop#5)."""
    card = Card(uuid="GPU-card", index=2, name="A100")
    source.split, source.driver = (card,), DriverView(driver="570.86")
    await telemetry.inventory()

    sample = await samples.next(lambda sample: len(sample.readings) > 2)

    assert [it.uuid for it in sample.readings] == [A, B, "GPU-card"]
    assert "GPU-card" in telemetry.latest
    assert (telemetry.cards, telemetry.driver) == ((card,), DriverView(driver="570.86"))


def test_a_note_is_logged_once_per_start(caplog):
    """It may come and go: that is no news (gpuopenanalytics/pynvml#43)."""
    caplog.set_level(logging.INFO, logger="jupyter_gpu.broker.telemetry.sampler")

    @with_telemetry()
    async def body(telemetry, source, samples):
        for notes in (("Processes cannot be listed.",), (), ("Processes cannot be listed.", "GPU 0 has no parts.")):
            source.notes = notes
            await telemetry.probe([A])
            assert telemetry.notes == notes

    body()

    assert [record.message for record in caplog.records] == ["Processes cannot be listed.", "GPU 0 has no parts."]


@with_telemetry()
async def test_close_waits_for_nothing_and_ends_the_thread(telemetry, source, samples):
    """Closing is immediate even while a call hangs; the thread goes when the call does."""
    source.gate.clear()
    probe = asyncio.create_task(telemetry.probe([A]))
    await begun(source)

    telemetry.close()
    source.gate.set()

    assert (await probe)[0].memory_used_bytes == 2
    (sampler,) = source.threads
    await asyncio.to_thread(sampler.join, 30)
    assert not sampler.is_alive()


@with_telemetry()
async def test_names_are_looked_up_only_where_pids_are_ours(telemetry, source, samples):
    """In a container NVML names pids of the machine outside: here they are others (wookayin/gpustat#117)."""
    assert telemetry.name_of(os.getpid())

    source.has_local_pids = False

    assert telemetry.name_of(os.getpid()) is None


def test_nobody_is_asked_before_the_start():
    """A question that nobody will answer is a slip in our code and says so."""
    with pytest.raises(RuntimeError, match="before it was started"):
        asyncio.run(Telemetry(FakeSource()).probe([A]))


HANGING = """
import asyncio, threading
from jupyter_gpu.broker.telemetry.sampler import STARTING, Telemetry

class Hanging:
    fault = busy_with = driver = None
    has_local_pids = True
    notes = ()
    def devices(self):
        threading.Event().wait()

async def main():
    telemetry = Telemetry(Hanging(), interval_seconds=0.01, deadline_seconds=0.02)
    telemetry.start(asyncio.get_running_loop(), lambda sample: None)
    print(await telemetry.inventory(), telemetry.stalled_since is not None)
    telemetry.close()

asyncio.run(main())
"""


def test_a_hung_call_does_not_keep_the_process_from_ending():
    """The thread is a daemon: a driver that never answers cannot hold the broker back at its end."""
    root = Path(jupyter_gpu.__file__).parents[1]

    done = subprocess.run(
        [sys.executable, "-c", HANGING], cwd=root, capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.split() == ["None", "True"]
