"""The same examples in the house itself: a real broker preempts them for a person, and they lose nothing."""

import os
import sys

import pytest

from jupyter_gpu.model import Ask, JobSpec, Kind, SubmitBody
from tests.stories.preempt_and_resume import EVENTS, POLICY, named
from tests.stories.scene import a_broker, this_process, until

from .examples import ENVIRONMENT, EXAMPLES, Example, learnt, needs

pytestmark = [pytest.mark.story, pytest.mark.slow, pytest.mark.timeout(240)]
EACH = [pytest.param(name, marks=needs(*modules)) for name, (modules, _) in EXAMPLES.items()]


def submit(broker, folder, code):
    """Queue a training of this code."""
    folder.mkdir()
    (folder / "train.py").write_text(code)
    environment = {"PATH": os.environ["PATH"], **ENVIRONMENT, "TEST_STEP_SECONDS": "0.03"}
    del environment["CUDA_VISIBLE_DEVICES"]  # is the broker's to say
    spec = JobSpec(argv=(sys.executable, "train.py"), folder=str(folder), environment=environment)
    return broker.client.submit(SubmitBody(kind=Kind.JOB, name="training", spec=spec))


@pytest.mark.parametrize("framework", EACH)
def test_a_training_makes_room_for_a_person_and_ends_with_the_very_same_weights(framework, tmp_path):
    """Submitted, preempted in the middle, resumed by itself: what it learnt is what it learns undisturbed."""
    whole = Example(tmp_path / "whole", framework)
    assert whole.run() == 0, whole.output
    folder = tmp_path / "job"
    with a_broker(tmp_path / "b", devices=1, policy=POLICY) as broker:
        job = submit(broker, folder, whole.code)
        until(lambda: (folder / "ran").exists() and len((folder / "ran").read_text().split()) > 20, "it makes steps")
        ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, duration_seconds=300), holder=this_process())
        reservation = broker.client.submit(ask)
        broker.client.wait(reservation.id, until="active", timeout_seconds=60)
        broker.client.release(reservation.id)
        ended = broker.client.wait(job.id, until="ended", timeout_seconds=120)
        history = [named(event) for event in broker.client.events(job.id)]
        log = broker.cli("log", str(job.id))

    assert (ended.end, ended.preemptions) == ("succeeded", 1), log
    assert history == EVENTS
    assert [int(text) for text in (folder / "ran").read_text().split()] == whole.ran()
    assert learnt(folder / EXAMPLES[framework][1]) == whole.learnt()
