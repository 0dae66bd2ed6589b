"""Keras as people use it: a notice in the middle of an epoch, with time to end it and without."""

import json

import pytest

from .examples import Example, needs

pytestmark = [needs("torch", "keras"), pytest.mark.slow, pytest.mark.timeout(180)]


def place(it):
    """Give where the newest checkpoint stands."""
    return json.loads((it.home / f"step-{it.saved()[-1]:012d}" / "training.json").read_text())


def test_with_time_left_the_epoch_is_ended_first(tmp_path):
    """Epochs of 16 batches: notice in the fifth, saved and left at its end."""
    it = Example(tmp_path / "job", "keras")
    assert it.run(step_70="notice") == 75, it.output
    assert it.saved()[-1] == it.ran()[-1] == 80
    assert (place(it)["epoch"], place(it)["batch"]) == (5, 0)
    assert "begun again" not in it.output


def test_without_time_left_what_was_learnt_is_saved_and_the_epoch_begun_again(tmp_path):
    """SIGTERM alone says nothing of the time, so it leaves at once; the next start says what it does."""
    it = Example(tmp_path / "job", "keras")
    assert it.run(step_70="SIGTERM") == 75, it.output
    assert it.saved()[-1] == it.ran()[-1] == 70
    assert (place(it)["epoch"], place(it)["batch"]) == (4, 6)
    assert it.run() == 0, it.output
    assert "epoch 5 is begun again with what the model had learnt by its batch 6" in it.output
    assert it.ran()[70:] == list(range(65, 193))
    assert it.saved()[-1] == 192 + 6


def test_a_model_without_weights_is_refused_with_the_way_out(tmp_path):
    """Keras would begin with new weights and say nothing."""
    it = Example(tmp_path / "job", "keras")
    assert it.run(step_70="SIGTERM") == 75, it.output
    it.code = it.code.replace("keras.Input((8,)), ", "")
    assert it.run() == 1
    assert "Give it an Input" in it.output


def test_within_an_epoch_it_saves_by_time_where_that_is_asked_for(tmp_path):
    """every_seconds so small that each batch is saved; None leaves the ends of epochs."""
    often = Example(tmp_path / "often", "keras")
    often.code = often.code.replace("Resumable()", "Resumable(every_seconds=1e-9, keep=None)")
    assert often.run(step_20="SIGTERM") == 75, often.output
    assert often.saved() == list(range(1, 21))
    ends = Example(tmp_path / "ends", "keras")
    ends.code = ends.code.replace("Resumable()", "Resumable(every_seconds=None, keep=None)")
    assert ends.run(step_40="SIGKILL") == -9, ends.output
    assert ends.saved() == [16, 32]


def test_what_keras_logs_is_reported(tmp_path):
    """Step, of how many, and the loss."""
    it = Example(tmp_path / "job", "keras")
    assert it.run(step_70="SIGTERM") == 75, it.output
    line = json.loads((it.home / "progress.1.jsonl").read_text().splitlines()[-1])
    assert line["of"] == 192
    assert "loss" in line["numbers"]
