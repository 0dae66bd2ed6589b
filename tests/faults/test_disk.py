"""A disk that is full, read-only or gone costs nobody their work: clear words, no burning processor, and on it goes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpu.model import EndReason, LetGo, Tick, WaitingReason
from tests.faults.house import QUICK, House, cpu_seconds, job, until

APPEND = ("sh", "-c", "echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out")
#: Ends when the file `go` appears; looks often, waits in no call that a signal must interrupt.
UNTIL_GO = ("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out")


def _mount(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "none", folder]
    return not subprocess.run(command, check=False, capture_output=True).returncode


def _remounts(folder: Path, mode: str) -> bool:
    command = ["mount", "-o", f"remount,{mode},size=4m", folder]
    return not subprocess.run(command, check=False, capture_output=True).returncode


@pytest.fixture
def small_disk(make_house: Callable[..., House]) -> Iterator[House]:
    """A house whose state lies on a disk of its own, of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    house = make_house(devices=6)
    house.state.mkdir()
    if not _mount(house.state, "size=4m"):
        pytest.skip("a small disk cannot be mounted here")
    yield house
    house.kill()
    house.forget_jobs()
    subprocess.run(["umount", "-l", house.state], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Not a byte is left while this lasts."""
    stuffing = folder / "stuffing"
    with stuffing.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    try:
        yield
    finally:
        stuffing.unlink()


def test_a_full_disk_refuses_what_is_new_and_loses_nothing_old(small_disk: House) -> None:
    """While the disk is full a submission says so, what runs goes on, and its end is told once there is room."""
    small_disk.start()
    running, over = small_disk.submit(job(small_disk, UNTIL_GO), job(small_disk, UNTIL_GO))
    small_disk.wait("started", running, over)
    with full(small_disk.state):
        (refused,) = small_disk.commands(job(small_disk, APPEND))
        assert refused["error"] == "store-unavailable"
        assert "full" in refused["message"]
        (small_disk.work / "go").touch()
        until(lambda: len(small_disk.lines()) == 2, "both jobs come to their end")
        assert any("full" in warning for warning in small_disk.world()["warnings"])
    ended = small_disk.wait("ended", running, over)
    assert [it.end for it in ended] == [EndReason.SUCCEEDED] * 2
    (later,) = small_disk.submit(job(small_disk, APPEND))
    assert small_disk.wait("ended", later)[0].end is EndReason.SUCCEEDED
    assert small_disk.world()["warnings"] == []
    small_disk.kill()
    small_disk.stored()


def test_a_full_disk_burns_no_processor(small_disk: House) -> None:
    """What cannot be recorded is tried again at a human pace, not as fast as the machine can: ROCm/spur#520."""
    small_disk.start()
    running = small_disk.submit(*(job(small_disk, UNTIL_GO) for _ in range(6)))
    small_disk.wait("started", *running)
    with full(small_disk.state):
        (small_disk.work / "go").touch()
        until(lambda: len(small_disk.lines()) == 6, "all come to their end")
        assert cpu_seconds(small_disk.pid, over=2.0) < 0.5
    assert [it.end for it in small_disk.wait("ended", *running)] == [EndReason.SUCCEEDED] * 6


def test_a_broker_killed_on_a_full_disk_is_followed_by_one_that_knows_it_all(small_disk: House) -> None:
    """Neither the kill nor the full disk loses the end of a job."""
    small_disk.start()
    (running,) = small_disk.submit(job(small_disk, UNTIL_GO))
    small_disk.wait("started", running)
    with full(small_disk.state):
        (small_disk.work / "go").touch()
        until(small_disk.lines, "the job comes to its end")
        small_disk.kill()
        said = small_disk.start()
        assert said.startswith(("store-unavailable\t", "ready"))
    small_disk.kill()
    assert small_disk.start() == "ready"
    assert small_disk.wait("ended", running)[0].end is EndReason.SUCCEEDED
    assert small_disk.lines() == [f"{running}.1"]


def test_a_disk_that_becomes_read_only_refuses_and_recovers(small_disk: House) -> None:
    """The same for a disk that the kernel has made read-only."""
    small_disk.start()
    (first,) = small_disk.submit(job(small_disk, APPEND))
    small_disk.wait("ended", first)
    small_disk.kill()
    until(lambda: _remounts(small_disk.state, "ro"), "nobody writes there any more")
    said = small_disk.start()
    assert said.startswith("store-unavailable\t"), small_disk.log()
    assert "read-only" in said
    assert _remounts(small_disk.state, "rw")
    assert small_disk.start() == "ready"
    (second,) = small_disk.submit(job(small_disk, APPEND))
    assert small_disk.wait("ended", second)[0].end is EndReason.SUCCEEDED


# -- a start that fails


def test_a_job_folder_that_cannot_be_made_is_a_growing_pause_and_at_last_paused(
    make_house: Callable[..., House],
) -> None:
    """Engine faults cost no retries: growing pauses, errno in the text, at last paused and let go: ROCm/spur#520."""
    house = make_house(policy={**QUICK, "back_off_seconds": 1, "launch_failures": 2})
    house.start()
    in_the_way = house.state / "attempts" / "1.1"
    in_the_way.touch()
    (id_,) = house.submit(job(house, APPEND, spec={"retries": 1}))
    it = house.wait("paused", id_)[0]
    assert (it.launch_failures, it.failures, it.attempt) == (2, 0, 0)
    assert it.waiting is WaitingReason.PAUSED
    assert "Not a directory" in it.detail
    assert "Errno 20" in it.detail
    waits = [
        event.back_off_until - event.at for event in house.events(id_) if event.__struct_config__.tag == "requeued"
    ]
    assert waits == [1.0, 2.0]
    in_the_way.unlink()
    house.commands(LetGo(workload=id_, by="ada"))
    it = house.wait("ended", id_)[0]
    assert (it.end, it.attempt) == (EndReason.SUCCEEDED, 1)
    assert house.lines() == [f"{id_}.1"]


def test_a_start_that_fails_is_tried_once_for_each_lease(make_house: Callable[..., House]) -> None:
    """While the first failure is being closed nothing is handed over again: it could start, and be told as failed."""
    house = make_house(policy={**QUICK, "back_off_seconds": 1})
    house.start("after-start:2")
    (house.state / "attempts" / "1.1").touch()
    (id_,) = house.submit(job(house, APPEND))
    for _ in range(300):
        house.commands(Tick())
        if house.starts > 1 or house.look(id_).launch_failures:
            break
    assert house.starts == 1, "handed over more often than granted"
    assert house.look(id_).launch_failures == 1
