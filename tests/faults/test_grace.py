"""In the middle of a grace: one notice for each process, whatever becomes of the broker, and the end comes on time."""

from __future__ import annotations

import time

import pytest

from jupyter_gpu.broker.engines import files
from jupyter_gpu.model import Cancel, EndReason
from tests.faults.house import PYTHON, QUICK, House, job, reservation, until

#: Two trainings under one shell. Each counts its SIGTERMs, and leaves when `go` is there.
TWO = """
import os, signal, sys, time
me = sys.argv[1]
out = os.open("out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
signal.signal(signal.SIGTERM, lambda *_: os.write(out, f"notice {me} {os.environ['JUPYTER_GPU_ATTEMPT']}\\n".encode()))
os.write(out, f"start {me} {os.environ['JUPYTER_GPU_ATTEMPT']}\\n".encode())
while not os.path.exists("go"):
    time.sleep(0.01)
"""
UNDER_A_SHELL = ("sh", "-c", '"$@" a & "$@" b & wait', "sh", *PYTHON, TWO)
DEAF = (*PYTHON, "import signal, time; signal.signal(15, signal.SIG_IGN); open('out', 'a').write('x'); time.sleep(600)")

PLACES = ["after-commit:5", "before-commit:6", "after-order:1", "after-order:2"]


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_each_process_hears_one_notice(house: House, place: str, lives: int) -> None:
    """However often the broker dies and comes back during the grace, nobody is told twice and nobody is missed."""
    house.start(place)
    (training,) = house.submit(job(house, UNDER_A_SHELL, key="training"))
    house.wait_line("start a 1")
    house.wait_line("start b 1")
    (reserved,) = house.submit(reservation(key="reservation"))
    house.wait("yielding", training)
    house.wait_line("notice a 1")
    house.wait_line("notice b 1")
    notice = house.attempt(training) / files.NOTICE
    told_at = notice.stat().st_mtime_ns
    for _ in range(lives):
        house.kill()
        house.start()
        until(lambda: house.ask("engine")["inventory"][str(training)].get("order"), "the order is known again")
    (house.work / "go").touch()
    house.wait("active", reserved)
    assert notice.stat().st_mtime_ns == told_at
    house.release(reserved)
    it = house.wait("ended", training)[0]
    assert (it.end, it.attempt) == (EndReason.SUCCEEDED, 2)
    assert sorted(house.lines()) == [
        "notice a 1", "notice b 1", "start a 1", "start a 2", "start b 1", "start b 2",
    ]  # fmt: skip
    assert house.story_of(training).count("evicted") == 1


def test_a_grace_ends_on_time_without_any_broker(house: House) -> None:
    """The supervisor runs notice, grace and kill from the order file, and the next broker reads what came of it."""
    queues = [{**it, "grace_seconds": 1} if it["name"] == "training" else it for it in QUICK["queues"]]
    house.traits["policy"] = {**QUICK, "queues": queues}
    house.start("after-order:1")
    (training,) = house.submit(job(house, DEAF, key="training"))
    house.wait_line("x")
    mark = house.mark(training)
    began = time.monotonic()
    house.ask("commands", commands=[])
    try:
        house.submit(reservation(key="reservation"))
    finally:
        house.kill()
    outcome = house.attempt(training) / files.OUTCOME
    until(lambda: (files.read(str(outcome)) or {}).get("gone"), "the tree is gone without a broker")
    assert 1.5 < time.monotonic() - began < 6
    assert mark["pid"]
    house.start()
    (reserved,) = house.submit(reservation(key="reservation"))
    house.wait("active", reserved)
    requeued = next(event for event in house.events(training) if event.__struct_config__.tag == "requeued")
    assert requeued.cause == "preempted"
    assert "ended by force: python" in requeued.detail
    assert requeued.detail.endswith("; the next time it gets 2s")


def test_a_cancel_during_the_grace_survives_a_kill(house: House) -> None:
    """The stronger word stays: a job that was cancelled while it yielded never comes back."""
    house.start()
    (training,) = house.submit(job(house, UNDER_A_SHELL, key="training"))
    house.wait_line("start a 1")
    house.wait_line("start b 1")
    house.submit(reservation(key="reservation"))
    house.wait("yielding", training)
    house.commands(Cancel(workload=training, by="ada"))
    house.kill()
    house.start()
    (house.work / "go").touch()
    assert house.wait("ended", training)[0].end is EndReason.CANCELLED
    assert sorted(house.lines()) == ["notice a 1", "notice b 1", "start a 1", "start b 1"]
