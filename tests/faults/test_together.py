"""What is queued as many, or by a calendar, meets what breaks around it: a socket, a sleep, a disk, a home."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import files, procs
from jupyter_gpu.client import Client
from jupyter_gpu.model import AddRecurring, Dependency, EndReason
from tests.faults.house import House, job, until
from tests.faults.test_disk import full, small_disk  # noqa: F401 - a fixture

APPEND = ("sh", "-c", "echo {seed}.$JUPYTER_GPU_ATTEMPT >> out")
UNTIL_GO = ("sh", "-c", "echo {seed}.$JUPYTER_GPU_ATTEMPT >> out; while [ ! -e go ]; do sleep 0.02; done")
NIGHT = ("sh", "-c", "echo night.$JUPYTER_GPU_ATTEMPT >> out")
SEEDS = ({"seed": "1"}, {"seed": "2"}, {"seed": "3"})
TRAINED = ["1.1", "2.1", "3.1"]


def add_night(house: House, *, due_in: float) -> int:
    """A calendar that is due so soon, and then not for a year."""
    submit = job(house, NIGHT, key="night")
    add = AddRecurring(cron="0 0 1 1 *", timezone="UTC", submit=submit, next_at=time.time() + due_in)
    (id_,) = house.submit(add)
    return id_


def times(house: House) -> int:
    """How often it has come."""
    (it,) = house.world()["recurring"]
    return int(it.get("times", 0))


@contextmanager
def suspended(house: House) -> Iterator[None]:
    """The broker stands still while this lasts, as when the machine sleeps."""
    os.kill(house.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(house.pid, signal.SIGCONT)


def test_a_socket_that_is_removed_costs_no_array_and_no_calendar_anything(house: House) -> None:
    """What runs goes on, what is due comes, and the socket is there again for whoever asks."""
    house.start()
    place = house.root / "run" / "broker.sock"
    (first,) = house.submit(job(house, UNTIL_GO, array=SEEDS, at_most=1))
    house.wait_line("1.1")
    add_night(house, due_in=-1)
    place.unlink()
    (house.work / "go").touch()
    until(place.is_socket, "the socket is set anew")
    with Client(str(place), start=False) as client:
        assert client.workload(first).member is not None
    ended = house.wait("ended", first, first + 1, first + 2)

    assert {it.end for it in ended} == {EndReason.SUCCEEDED}
    until(lambda: "night.1" in house.lines(), "it comes at its time")
    assert sorted(house.lines()) == [*TRAINED, "night.1"]


def test_a_broker_that_slept_over_an_instant_and_an_end_makes_up_for_both_once(house: House) -> None:
    """One of the array ends while nobody looks, and the calendar is due: then the next begins, and one night comes."""
    house.start()
    (first,) = house.submit(job(house, UNTIL_GO, array=SEEDS, at_most=1))
    house.wait_line("1.1")
    due_at = time.time() + 1
    add_night(house, due_in=1)
    with suspended(house):
        (house.work / "go").touch()
        until(lambda: (files.read(f"{house.attempt(first)}/outcome.json") or {}).get("gone"), "the first has ended")
        until(lambda: time.time() > due_at, "the instant is over")
        assert house.lines() == ["1.1"]
    until(lambda: times(house) == 1, "it comes late")
    ended = house.wait("ended", first, first + 1, first + 2)

    assert {(it.end, it.attempt) for it in ended} == {(EndReason.SUCCEEDED, 1)}
    until(lambda: "night.1" in house.lines(), "its job has run")
    assert sorted(house.lines()) == [*TRAINED, "night.1"]
    house.kill()
    assert next(iter(house.stored().recurring.values())).times == 1


def test_on_a_full_disk_no_part_of_an_array_is_queued_and_a_night_waits_for_room(small_disk: House) -> None:  # noqa: F811
    """The submission is refused as a whole, in words; what is due comes once, when it can be written down."""
    house = small_disk
    house.start()
    add_night(house, due_in=2)
    with full(house.state):
        (refused,) = house.commands(job(house, APPEND, array=SEEDS, key="sweep"))
        assert refused["error"] == "store-unavailable"
        assert "full" in refused["message"]
        due_at = house.world()["recurring"][0]["next_at"]
        until(lambda: time.time() > due_at, "the instant is over")
        assert house.world()["workloads"] == []
        assert any("full" in warning for warning in house.world()["warnings"])
    until(lambda: "night.1" in house.lines(), "it comes once there is room")
    (first,) = house.submit(job(house, APPEND, array=SEEDS, key="sweep"))
    house.wait("ended", first, first + 1, first + 2)

    assert sorted(house.lines()) == [*TRAINED, "night.1"]
    house.kill()
    assert next(iter(house.stored().recurring.values())).times == 1


def test_after_a_reboot_an_array_goes_on_one_by_one_and_what_comes_after_it_waits_on(
    make_house: Callable[..., House],
) -> None:
    """Who has the number of its process now is a stranger; one is begun anew, and nothing of the others is."""
    house = make_house(devices=2)
    house.start()
    (first,) = house.submit(job(house, UNTIL_GO, array=SEEDS, at_most=1))
    after = (Dependency(workload=first, ok=True),)
    (report,) = house.submit(job(house, ("sh", "-c", "echo report >> out"), after=after))
    house.wait_line("1.1")
    stranger = house.mark(first)["pid"]
    house.kill()
    place = str(house.attempt(first) / files.MARK)
    files.write_whole(place, {**house.mark(first), "boot_id": "00000000-0000-0000-0000-000000000000"})
    house.start()
    house.wait("second", first)
    assert procs.find(stranger) is not None
    house.wait_line("1.2")
    (house.work / "go").touch()
    ended = house.wait("ended", first, first + 1, first + 2, report)

    assert [(it.end, it.losses) for it in ended] == [(EndReason.SUCCEEDED, int(it.id == first)) for it in ended]
    assert house.lines() == ["1.1", "1.2", "2.1", "3.1", "report"]


NOTEBOOK = """\
{"cells": [{"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": null,
 "source": ["print(1 + 1)"]}], "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3",
 "language": "python"}}, "nbformat": 4, "nbformat_minor": 5}
"""


@pytest.fixture
def read_only(house: House) -> Iterator[Path]:
    """A folder with a notebook that nobody may write to any more."""
    pytest.importorskip("papermill")
    place = house.work / "home"
    place.mkdir()
    (place / "digits.ipynb").write_text(NOTEBOOK)
    commands = ["mount", "--bind", place, place], ["mount", "-o", "remount,bind,ro", place]
    if any(subprocess.run(command, check=False, capture_output=True).returncode for command in commands):
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        pytest.skip("a folder cannot be made read-only here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_notebook_in_a_home_that_is_read_only_says_which_file_it_could_not_write(
    house: House, read_only: Path
) -> None:
    """By the name that its owner gave, and what to do about it; it is not tried again, and the GPU is free."""
    house.start()
    argv = (sys.executable, "-P", "-m", "jupyter_gpu.notebook_job", "--", "digits.ipynb", "digits-out.ipynb")
    environment = {"PATH": os.environ["PATH"], "HOME": str(house.work), "IPYTHONDIR": str(house.work / "ipython")}
    (id_,) = house.submit(job(house, argv, folder=str(read_only), spec={"environment": environment}))
    it = house.wait("ended", id_)[0]
    log = (house.attempt(id_) / files.LOG).read_text()

    assert (it.end, it.attempt) == (EndReason.FAILED, 1), log
    assert log.endswith("Read-only file system: 'digits-out.ipynb'\n")
    assert "a disk that it writes to is read-only" in it.detail
    assert house.world()["leases"] == {}
