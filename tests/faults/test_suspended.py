"""A broker that stands still, as when the machine sleeps: what happened meanwhile is seen, and nothing twice."""

from __future__ import annotations

import os
import signal

from jupyter_gpu.broker.engines import files
from jupyter_gpu.model import EndReason, State
from tests.faults.house import House, job, until

UNTIL_GO = ("sh", "-c", "echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out; while [ ! -e go ]; do sleep 0.02; done")
#: Reports when it may, with nobody there to look.
REPORTS = "echo begun >> out; while [ ! -e go ]; do sleep 0.02; done; echo '{\"step\":7}' > $JUPYTER_GPU_PROGRESS_FILE"


def test_what_ended_while_the_broker_was_suspended_is_seen_when_it_wakes(house: House) -> None:
    """The outcome is read, the next in line begins, and nothing has run twice."""
    house.start()
    first, second = house.submit(job(house, UNTIL_GO), job(house, UNTIL_GO))
    house.wait("started", first)
    os.kill(house.pid, signal.SIGSTOP)
    try:
        (house.work / "go").touch()
        until(lambda: (files.read(f"{house.attempt(first)}/outcome.json") or {}).get("gone"), "the job ends by itself")
    finally:
        os.kill(house.pid, signal.SIGCONT)
    ended = house.wait("ended", first, second)
    assert [(it.state, it.end, it.attempt) for it in ended] == [(State.ENDED, EndReason.SUCCEEDED, 1)] * 2
    assert house.lines() == [f"{first}.1", f"{second}.1"]


def test_what_was_reported_without_a_broker_is_kept(house: House) -> None:
    """The supervisor takes it, broker or none; and a broker that was killed reads it again."""
    house.start()
    (id_,) = house.submit(job(house, ("sh", "-c", REPORTS)))
    house.wait_line("begun")
    house.kill()
    (house.work / "go").touch()
    until(lambda: (files.read(f"{house.attempt(id_)}/outcome.json") or {}).get("gone"), "the job ends by itself")
    kept = files.read(f"{house.attempt(id_)}/{files.PROGRESS}")
    assert kept is not None
    assert kept["step"] == 7
    house.start()
    assert house.wait("ended", id_)[0].end is EndReason.SUCCEEDED
