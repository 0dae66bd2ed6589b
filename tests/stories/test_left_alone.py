"""Trainings that people leave alone: what is done again is measured, how far they are is seen, a hang is ended."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import jupyter_gpu
from jupyter_gpu.client import Client
from jupyter_gpu.model import Ask, EndReason, EvictionReason, JobSpec, Kind, State, SubmitBody
from tests.nvml import boards

from .preempt_and_resume import POLICY, named
from .scene import a_broker, steps_in, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

STEP_SECONDS = 0.02
#: It saves every 10 steps and knows nothing of notices, so SIGTERM costs it the steps since then. It waits for each.
SAVES_NOW_AND_THEN = """
import json, os, sys, time
from jupyter_gpu import training
found = training.latest()
for step in range(training.step_of(found) + 1, 61):
    time.sleep(0.02)
    with open("ran", "a") as file:
        line = {"attempt": int(os.environ["JUPYTER_GPU_ATTEMPT"]), "step": step, "at": time.time()}
        file.write(json.dumps(line) + "\\n")
    training.report(step, of=60)
    if step % 10 == 0:
        with training.checkpoint(step) as folder:
            (folder / "state").write_text(str(step))
    while (line["attempt"], step) in ((1, 14), (2, 33), (3, 60)) and not os.path.exists("go"):
        time.sleep(0.01)
"""
#: Once it has saved it says nothing more and does nothing; started anew from there it is done.
HANGS_ONCE = """
import os, sys, time
from jupyter_gpu import training
if training.latest():
    sys.exit(0)
with training.checkpoint(1) as folder:
    (folder / "state").write_text("1")
print("saved", flush=True)
time.sleep(600)
"""


def submit(client: Client, folder: Path, script: str, ask: Ask | None = None, **spec: int) -> int:
    """A training in a folder of its own."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(textwrap.dedent(script))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(jupyter_gpu.__file__).parent.parent)}
    words = JobSpec(argv=(sys.executable, "train.py"), folder=str(folder), environment=environment, **spec)  # type: ignore[arg-type]
    return client.submit(SubmitBody(kind=Kind.JOB, name="train", ask=ask or Ask(), spec=words)).id


def has_reached(folder: Path, reached: tuple[int, int]) -> bool:
    """Whether that attempt has made that step."""
    return reached in steps_in(folder / "ran")


def make_room(client: Client, job: int) -> None:
    """A person takes the GPU for a moment."""
    ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, duration_seconds=300), holder=this_process())
    held = client.submit(ask).id
    client.wait(held, until="active", timeout_seconds=60)
    assert client.workload(job).state is State.QUEUED
    client.release(held)
    client.wait(job, until="active", timeout_seconds=60)


def test_after_two_preemptions_the_job_says_how_much_work_was_done_again(tmp_path: Path) -> None:
    """What it measures agrees with the steps that really ran twice, and with when the checkpoints were complete."""
    folder = tmp_path / "training"
    with a_broker(tmp_path / "b", devices=1, policy=POLICY) as broker:
        client = broker.client
        job = submit(client, folder, SAVES_NOW_AND_THEN)
        for reached in ((1, 14), (2, 33)):
            until(partial(has_reached, folder, reached), "the training makes steps")
            make_room(client, job)
        until(lambda: steps_in(folder / "ran")[-1:] == [(3, 60)], "the training comes to its end")
        shown = client.workload(job)
        (folder / "go").touch()
        ended = client.wait(job, until="ended", timeout_seconds=60)
        attempts = client.attempts(job)
        curve = client.progress(job)
    rows = [json.loads(line) for line in (folder / "ran").read_text().splitlines()]
    first, second, last = (it.outcome for it in attempts)
    assert first is not None
    assert second is not None
    assert last is not None

    assert ended.end is EndReason.SUCCEEDED
    assert [it.eviction for it in attempts] == [EvictionReason.PREEMPTED, EvictionReason.PREEMPTED, None]
    assert [(it.from_step, it.to_step) for it in (first, second, last)] == [(None, 10), (10, 30), (30, 60)]
    assert Counter(row["step"] for row in rows if row["step"] <= 33) == Counter(
        [*range(1, 34), *range(11, 15), 31, 32, 33]
    )
    for number, outcome, steps in ((1, first, 4), (2, second, 3)):
        saving_at = next(row["at"] for row in rows if (row["attempt"], row["step"]) == (number, outcome.to_step))
        assert outcome.unsaved_seconds is not None
        assert outcome.ended_at is not None
        # So long those steps took at least; and it cannot be longer than since the one that was saved.
        assert steps * STEP_SECONDS <= outcome.unsaved_seconds <= outcome.ended_at - saving_at
    assert [it.repeated_seconds for it in attempts] == [None, first.unsaved_seconds, second.unsaved_seconds]
    assert ended.repeated_seconds == (first.unsaved_seconds or 0) + (second.unsaved_seconds or 0)
    assert "after the notice, of the 30s that it had" in shown.detail
    assert (curve.attempt, curve.items[-1].step, curve.items[-1].of) == (3, 60, 60)


def test_how_far_a_job_is_is_seen_while_it_runs(tmp_path: Path) -> None:
    """In the document that every face shows."""
    with a_broker(tmp_path / "b", devices=1, policy=POLICY) as broker:
        job = submit(broker.client, tmp_path / "training", SAVES_NOW_AND_THEN)

        def far() -> int:
            it = next(it for it in broker.client.status().workloads if it.id == job)
            return 0 if it.progress is None else it.progress.step

        until(lambda: far() >= 1, "the report arrives")
        (tmp_path / "training" / "go").touch()
        broker.client.wait(job, until="ended", timeout_seconds=60)


def test_a_job_that_hangs_is_told_of_and_started_anew_from_its_checkpoint(tmp_path: Path) -> None:
    """It has no devices, so what counts is the processor time of its tree."""
    with a_broker(tmp_path / "b", devices=1, policy=POLICY) as broker:
        client = broker.client
        job = submit(client, tmp_path / "training", HANGS_ONCE, hang_seconds=6, ask=Ask(devices=0))
        until(lambda: any(it.workload == job for it in client.status().alerts), "its owner is told")
        (alert,) = (it for it in client.status().alerts if it.workload == job)
        assert "it seems to hang: it has reported nothing, printed nothing and used no processor time" in alert.text
        ended = client.wait(job, until="ended", timeout_seconds=120)
        events = [named(it) for it in client.events(job)]
        assert (ended.end, ended.attempt, ended.failures) == (EndReason.SUCCEEDED, 2, 1)
        assert events[3:6] == ["evicted (hung)", "released", "requeued"]
        assert client.attempts(job)[0].eviction is EvictionReason.HUNG


def test_only_a_job_whose_gpu_is_read_and_idle_hangs(tmp_path: Path) -> None:
    """Of three that stand still alike, one computes and of one nothing can be read: only the third is started anew."""
    board = boards.four_alike(tmp_path)
    with a_broker(tmp_path / "b", devices=None, policy=POLICY, board=board) as broker:
        client = broker.client
        jobs = {
            what: submit(client, tmp_path / what, HANGS_ONCE, hang_seconds=6) for what in ("idle", "busy", "unread")
        }
        for what in ("busy", "unread"):
            held = client.wait(jobs[what], until="active", timeout_seconds=60).devices
            card = next(it for it in board.cards if it.uuid in held)
            if what == "busy":
                card["utilisation"] = 95
            else:
                del card["utilisation"]
        board.write()
        ended = client.wait(jobs["idle"], until="ended", timeout_seconds=120)
        assert (ended.end, ended.attempt) == (EndReason.SUCCEEDED, 2)
        assert "left its GPUs idle since" in next(it.detail for it in client.events(ended.id) if it.note == "hung")
        for what in ("busy", "unread"):
            it = client.workload(jobs[what])
            assert (it.state, it.attempt) == (State.ACTIVE, 1), what
        assert not {it.workload for it in client.status().alerts} & {jobs["busy"], jobs["unread"]}
