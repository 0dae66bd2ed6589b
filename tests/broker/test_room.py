"""What submissions may take of the disk: so much of each owner at a time, and nothing of the last that is free."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_gpu.broker.api import room
from jupyter_gpu.broker.api.room import BYTES_PER_SECOND, MOST_BYTES, RESERVE_BYTES, Room
from jupyter_gpu.errors import LimitExceeded, StoreUnavailable
from tests.conftest import Places

from .api_ground import an_api, job, play


class Clock:
    """An instant that a test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def test_who_submits_and_cancels_in_a_loop_is_stopped_and_nobody_else(tmp_path: Path) -> None:
    """Each is told when there is room again, and has it then."""
    clock = Clock()
    it = Room(tmp_path, clock=clock)
    large = MOST_BYTES // 4
    for _ in range(4):
        it.take("mallory", large)
    with pytest.raises(LimitExceeded, match="64MiB") as refused:
        it.take("mallory", large)
    assert "submit it again" in (refused.value.hint or "")
    it.take("ana", large)

    clock.now += large / BYTES_PER_SECOND - 1
    with pytest.raises(LimitExceeded):
        it.take("mallory", large)
    clock.now += 2
    it.take("mallory", large)


def test_thousands_of_jobs_of_usual_size_are_far_below(tmp_path: Path) -> None:
    """A sweep of ten thousand commands with an environment of two kilobytes each."""
    it = Room(tmp_path, clock=Clock())
    for _ in range(10_000):
        it.take("ana", 2_500)


def test_a_clock_that_is_set_back_gives_nothing_back(tmp_path: Path) -> None:
    """Nor does it shut anybody out for longer."""
    clock = Clock()
    it = Room(tmp_path, clock=clock)
    it.take("ana", MOST_BYTES)
    clock.now -= 3600
    with pytest.raises(LimitExceeded):
        it.take("ana", 1000)
    clock.now += 3601
    it.take("ana", 1000)


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

    play(story)


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
