"""What submissions may take of the disk: so much of each owner at a time, and nothing of the last that is free."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_gpu.broker.api import room
from jupyter_gpu.broker.api.room import BYTES_PER_SECOND, MOST_BYTES, RESERVE_BYTES, Room, size_of
from jupyter_gpu.errors import LimitExceeded, StoreUnavailable
from jupyter_gpu.model import Caller, JobSpec, Kind, Scope, SubmitBody
from tests.conftest import Places

from .api_ground import an_api, job, play


class Clock:
    """An instant that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_who_submits_and_cancels_in_a_loop_is_stopped_and_nobody_else(tmp_path: Path) -> None:
    """Each is told when there is room again, and has it then."""
    clock = Clock()
    it = Room(tmp_path, clock=clock)
    large = MOST_BYTES // 4
    for _ in range(4):
        it.take("mallory", large)
    with pytest.raises(LimitExceeded, match="256MiB") as refused:
        it.take("mallory", large)
    assert "submit it again in 1h" in (refused.value.hint or "")
    it.take("ana", large)

    clock.now += large / BYTES_PER_SECOND - 1
    with pytest.raises(LimitExceeded):
        it.take("mallory", large)
    clock.now += 2
    it.take("mallory", large)


def test_thousands_of_jobs_of_usual_size_are_far_below(tmp_path: Path) -> None:
    """A sweep of ten thousand commands with an environment of ten kilobytes each, as those of clusters are."""
    it = Room(tmp_path, clock=Clock())
    spec = JobSpec(argv=("train",), folder="/", environment={"MODULES": "m" * 10_000})
    size = size_of(SubmitBody(kind=Kind.JOB, spec=spec))
    assert size > 10_000
    for _ in range(10_000):
        it.take("ana", size)


def test_whoever_has_all_of_it_again_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody else: to ask for little in between gives nothing back."""
    monkeypatch.setattr(room, "_LOOK_SECONDS", 0.0)
    clock = Clock()
    it = Room(tmp_path, clock=clock)
    it.take("ana", 1000)
    it.take("mallory", MOST_BYTES)
    clock.now += 1
    it.take("mallory", 1000)
    assert set(it._used) == {"mallory"}
    with pytest.raises(LimitExceeded):
        it.take("mallory", int(BYTES_PER_SECOND))


def test_words_of_any_kind_and_no_words_count_too(tmp_path: Path) -> None:
    """What is written as six bytes counts as six, and what runs nothing takes its place in the log all the same."""
    plain, wide = (JobSpec(argv=(word * 1000,), folder="/") for word in ("x", "\x01"))
    sizes = [size_of(SubmitBody(kind=Kind.JOB, spec=it)) for it in (plain, wide)]
    assert sizes[1] - sizes[0] == 5000

    it = Room(tmp_path, clock=Clock())
    nothing = size_of(SubmitBody(kind=Kind.RESERVATION))
    for _ in range(MOST_BYTES // nothing):
        it.take("mallory", nothing)
    with pytest.raises(LimitExceeded):
        it.take("mallory", nothing)


def test_the_api_says_when_it_is_taken_again(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """To that owner, an operator too, by a status that says it is for now; of many each for itself."""
    monkeypatch.setattr(room, "MOST_BYTES", 10_000)

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            large = job(spec={"argv": ["true", "x" * 6000]})
            for name in ("ada", "oper"):
                assert (await broker.as_(name).post("/workloads", json=large)).is_success
                refused = await broker.as_(name).post("/workloads", json=large)
                assert (refused.status_code, refused.json()["code"]) == (429, "limit-exceeded")
                assert refused.json()["message"].startswith(name)
                assert "submit it again in" in refused.json()["hint"]
            items = (await broker.as_("grace").post("/submissions", json={"items": [large, large]})).json()["items"]
            assert [list(it) for it in items] == [["workload"], ["error"]]

    play(story)


def test_what_is_left_of_a_disk_is_kept_for_the_ends_of_work(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New work is refused with the reason; what is there is cancelled as ever."""
    total, free = 100 * RESERVE_BYTES, RESERVE_BYTES + 1
    monkeypatch.setattr(room, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=total, free=free))

    async def story() -> None:
        nonlocal free
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            made = await ada.post("/workloads", json=job(paused=True))
            assert made.is_success
            free = RESERVE_BYTES - 1
            refused = await ada.post("/workloads", json=job(paused=True))
            assert (refused.status_code, refused.json()["code"]) == (503, "store-unavailable")
            assert "255.9" in refused.json()["message"] or "256MiB" in refused.json()["message"]
            assert (await ada.post(f"/workloads/{made.json()['id']}/cancel")).is_success
            oper = Caller(name="oper", account="", scopes=frozenset(Scope))
            broker.application.room.tell(broker.loop.alerts)
            (told,) = broker.loop.alerts.views(oper)
            assert "new work is refused" in told.text
            free = RESERVE_BYTES
            broker.application.room.tell(broker.loop.alerts)
            assert broker.loop.alerts.views(oper) == ()
            assert (await ada.post("/workloads", json=job(paused=True))).is_success

    play(story)


def test_a_real_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it is what this account may still write; once there is room again nothing need be restarted."""
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "none", tmp_path], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("a small disk cannot be mounted here")
    try:
        monkeypatch.setattr(room, "RESERVE_BYTES", 512 << 10)
        monkeypatch.setattr(room, "_LOOK_SECONDS", 0.0)
        it = Room(tmp_path)
        it.take("ana", 1)
        stuffing = tmp_path / "stuffing"
        stuffing.write_bytes(b"x" * (3 << 20))
        it.take("ana", 1)
        with stuffing.open("ab") as file:
            file.write(b"x" * (800 << 10))
        with pytest.raises(StoreUnavailable, match="KiB left"):
            it.take("ana", 1)
        stuffing.unlink()
        it.take("ana", 1)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_small_disk_is_not_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that does not say is asked no further."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=RESERVE_BYTES, free=1))
    Room(tmp_path).take("ana", 1)

    def broken(_: Path) -> None:
        raise OSError

    monkeypatch.setattr(shutil, "disk_usage", broken)
    Room(tmp_path).take("ana", 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100 * RESERVE_BYTES, free=1))
    with pytest.raises(StoreUnavailable):
        Room(tmp_path).take("ana", 1)
