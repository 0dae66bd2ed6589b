"""A device is free when a reading says so: left-overs delay the next start, strangers bar it, nothing burns time."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from jupyter_gpu.core.events import DeviceMarked
from jupyter_gpu.model import Condition, EndReason, State
from tests.faults.house import PYTHON, QUICK, House, cpu_seconds, job, until

APPEND = ("sh", "-c", "date +%s.%N >> next; echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out")
UNTIL_GO = ("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done")
#: Leaves a child in a session of its own that heeds no SIGTERM and stays on the device for so many seconds.
LEAVING = """
import os, signal, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("left", "w").close()
        time.sleep(float(sys.argv[1]))
        open("gone", "w").write(str(time.time()))
    os._exit(0)
while not os.path.exists("left"):
    time.sleep(0.01)
"""


@contextmanager
def stranger_on(uuid: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody leased the device to."""
    process = subprocess.Popen(["sleep", "600"], env={"CUDA_VISIBLE_DEVICES": uuid, "PATH": os.environ["PATH"]})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def device(house: House, index: int = 0) -> dict[str, str]:
    """One device as the broker sees it."""
    return dict(house.world()["devices"][index])


def test_grandchildren_that_keep_memory_delay_the_next_start_until_the_clear_reading(house: House) -> None:
    """Five seconds in a session of their own: the next start comes after the last of them, and within two seconds."""
    house.start()
    first, second = house.submit(job(house, [*PYTHON, LEAVING, "5"], spec={"leftover_seconds": 60}), job(house, APPEND))
    it = house.wait("released", first)[0]
    assert it.outcome is not None
    assert it.outcome.end is EndReason.SUCCEEDED
    assert it.state is State.YIELDING
    assert [it.end for it in house.wait("ended", first, second)] == [EndReason.SUCCEEDED] * 2
    gone, started = (float((house.work / name).read_text()) for name in ("gone", "next"))
    assert 0 <= started - gone < 2
    assert device(house).get("condition") is None


def test_grandchildren_that_do_not_leave_are_ended_by_force_and_named(house: House) -> None:
    """What outlives the main process gets SIGTERM, and SIGKILL later; the outcome names it, the next starts."""
    house.start()
    first, second = house.submit(
        job(house, [*PYTHON, LEAVING, "600"], spec={"leftover_seconds": 1}), job(house, APPEND)
    )
    assert [it.end for it in house.wait("ended", first, second)] == [EndReason.SUCCEEDED] * 2
    assert not (house.work / "gone").exists()


@pytest.mark.parametrize("restart", [False, True])
def test_what_cannot_be_ended_bars_the_device_until_it_is_gone(make_house: Callable[..., House], restart: bool) -> None:
    """Quarantined as not clear, never leased meanwhile, no storm of events or readings, free again by itself."""
    house = make_house(policy={**QUICK, "clear_seconds": 1})
    house.start()
    first, second = house.submit(job(house, UNTIL_GO), job(house, APPEND))
    house.wait("started", first)
    with stranger_on(device(house)["uuid"]) as stranger:
        (house.work / "go").touch()
        assert house.wait("released", first)[0].outcome is not None
        assert house.wait("ended", first)[0].end is EndReason.SUCCEEDED
        assert device(house)["condition"] == Condition.NOT_CLEAR
        assert str(stranger.pid) in device(house)["condition_detail"]
        if restart:
            house.kill()
            house.start()
        before = house.world()["revision"]
        assert cpu_seconds(house.pid, over=2.0) < 0.4
        assert house.world()["revision"] == before
        assert house.look(second).state is State.QUEUED
        assert house.world()["leases"] == {}
    gone_at = time.time()
    assert house.wait("ended", second)[0].end is EndReason.SUCCEEDED
    assert float((house.work / "next").read_text()) - gone_at < 3
    assert device(house).get("condition") is None


def test_while_a_device_is_not_clear_the_broker_rests(make_house: Callable[..., House]) -> None:
    """Reading again and again costs next to nothing, and writes nothing."""
    house = make_house(devices=4, policy={**QUICK, "clear_seconds": 600})
    house.start()
    ids = house.submit(*(job(house, UNTIL_GO) for _ in range(4)))
    house.wait("started", *ids)
    with stranger_on(",".join(it["uuid"] for it in house.world()["devices"])):
        (house.work / "go").touch()
        house.wait("released", *ids)
        before = house.world()["revision"]
        assert cpu_seconds(house.pid, over=2.0) < 0.6
        assert house.world()["revision"] == before
    assert [it.end for it in house.wait("ended", *ids)] == [EndReason.SUCCEEDED] * 4


def test_a_stranger_on_a_free_device_is_seen_and_gets_no_company(make_house: Callable[..., House]) -> None:
    """Work goes to the other device; told once; free again by itself."""
    house = make_house(devices=2)
    house.start()
    with stranger_on(device(house)["uuid"]):
        until(lambda: device(house).get("condition") == Condition.FOREIGN, "the stranger is seen")
        (id_,) = house.submit(job(house, APPEND))
        it = house.wait("ended", id_)[0]
        assert it.previous_devices == (device(house, 1)["uuid"],)
    until(lambda: device(house).get("condition") is None, "the device is free again")
    assert sum(isinstance(event, DeviceMarked) for event in house.events()) == 2


def test_short_jobs_in_a_row_are_no_strangers(make_house: Callable[..., House]) -> None:
    """A reading that is older than the end of the lease says nothing about a stranger, however many come in a row."""
    house = make_house(devices=2)
    house.start()
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        ids = house.submit(*(job(house, ("sleep", "0.03")) for _ in range(40)))
        house.wait("ended", *ids)
    assert [event for event in house.events() if isinstance(event, DeviceMarked)] == []


def test_a_killed_job_frees_its_device_within_seconds(house: House) -> None:
    """From provably gone to the next start no lease has to time out: russellb/canhazgpu#30."""
    house.start()
    first, second = house.submit(job(house, ("sh", "-c", "echo $$ > pid; sleep 600")), job(house, APPEND))
    pid = int(until(lambda: (house.work / "pid").exists() and (house.work / "pid").read_text(), "it runs"))
    os.kill(pid, 9)
    killed_at = time.time()
    house.wait("ended", first, second)
    assert float((house.work / "next").read_text()) - killed_at < 10
