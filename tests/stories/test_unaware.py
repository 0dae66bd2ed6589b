"""Trainings that know nothing of us and save nothing: preempted all the same, begun anew, and told what that cost."""

import os
import sys
from pathlib import Path

import pytest

from jupyter_gpu.model import Ask, JobSpec, Kind, SubmitBody

from .preempt_and_resume import EVENTS, POLICY, named
from .scene import a_broker, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

#: It ignores the notice where it is told to, and has no idea of a checkpoint.
PROGRAM = """
import signal, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(120):
    with open("ran", "a") as file:
        print(step, file=file)
    time.sleep(0.05)
"""


@pytest.mark.parametrize("manner", ["stubborn", "plain"])
def test_what_saves_nothing_begins_anew_and_the_work_done_twice_is_counted(tmp_path: Path, manner: str) -> None:
    """Ignoring SIGTERM or dying of it, it frees the GPU in time, runs once more, and `show` tells the price."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    ran = folder / "ran"
    spec = JobSpec(
        argv=(sys.executable, "train.py", manner),
        folder=str(folder),
        environment={"PATH": os.environ["PATH"]},
        grace_seconds=1,
    )
    with a_broker(tmp_path / "b", devices=1, policy=POLICY | {"kill_after_seconds": 1}) as broker:
        job = broker.client.submit(SubmitBody(kind=Kind.JOB, name="unaware", spec=spec))
        until(lambda: ran.exists() and len(ran.read_text().split()) > 5, "it makes steps")
        ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, duration_seconds=300), holder=this_process())
        person = broker.client.submit(ask)
        broker.client.wait(person.id, until="active", timeout_seconds=60)
        broker.client.release(person.id)
        ended = broker.client.wait(job.id, until="ended", timeout_seconds=120)
        history = list(broker.client.events(job.id))
        shown = broker.cli("show", str(job.id))

    steps = [int(text) for text in ran.read_text().split()]
    first = steps[: steps.index(0, 1)]
    assert steps == [*range(len(first)), *range(120)]
    assert (ended.end, ended.attempt, ended.preemptions) == ("succeeded", 2, 1)
    # Nothing was saved, so all that the first attempt did is counted.
    assert ended.repeated_seconds >= 0.05 * (len(first) - 1)
    assert "of work done again" in shown
    requeued = next(event for event in history if event.event == "requeued")
    assert ("ended by force: python" in requeued.detail) == (manner == "stubborn")
    assert [named(event) for event in history if event.event != "overdue"] == EVENTS
