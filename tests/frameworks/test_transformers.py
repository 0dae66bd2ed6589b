"""The Hugging Face Trainer as people use it: a kill while it writes, epochs, the best model."""

import json

import pytest

from .examples import Example, example, needs

pytestmark = [needs("torch", "transformers", "accelerate"), pytest.mark.slow, pytest.mark.timeout(180)]


def job(folder, prefix="", **changes):
    """Give the example of the docs with other arguments."""
    code = example("transformers")
    for old, new in changes.values():
        assert old in code
        code = code.replace(old, new)
    it = Example(folder, "transformers")
    it.code = it.code.replace(example("transformers"), prefix + code)
    return it


# The process dies when the Trainer has written the model of step 100, and not yet its own state.
DIES_AT_100 = """
import os, transformers
_save = transformers.Trainer._save_rng_state
def _die(self, folder):
    if self.state.global_step == 100:
        os._exit(9)
    _save(self, folder)
transformers.Trainer._save_rng_state = _die
"""


@pytest.mark.faults
def test_what_the_trainer_had_half_written_is_never_resumed_from(tmp_path):
    """It goes on from step 50, clears half of step 100 away, and ends with the same weights."""
    whole = job(tmp_path / "whole")
    assert whole.run() == 0, whole.output
    killed = job(tmp_path / "killed", DIES_AT_100)
    assert killed.run() == 9, killed.output
    half = killed.home / "transformers" / "checkpoint-100"
    assert list(half.glob("*.safetensors"))
    assert killed.saved() == [50]
    killed.code = killed.code.replace(DIES_AT_100, "")
    assert killed.run(step_60="notice") == 75, killed.output
    assert killed.saved() == [50, 60]
    assert not half.exists()
    assert killed.run() == 0, killed.output
    assert killed.learnt() == whole.learnt()
    assert not list((killed.home / "transformers").glob("checkpoint-*"))


def test_asked_to_leave_it_neither_evaluates_nor_saves_twice(tmp_path):
    """At the end of an epoch the Trainer would do both; in the middle of one it is no end."""
    counted = """
import transformers
_evaluate, _save = transformers.Trainer.evaluate, transformers.Trainer._save_checkpoint
def _counted(name, call):
    def do(self, *args, **words):
        with open(name, "a") as file:
            print(self.state.global_step, file=file)
        return call(self, *args, **words)
    return do
transformers.Trainer.evaluate = _counted("evaluated", _evaluate)
transformers.Trainer._save_checkpoint = _counted("written", _save)
"""
    by_epochs = {
        "arguments": ("save_steps=50", 'save_strategy="epoch", eval_strategy="epoch"'),
        "data": ("train_dataset=data", "train_dataset=data, eval_dataset=data[:32]"),
    }
    it = job(tmp_path / "job", counted, **by_epochs)
    assert it.run(step_70="notice") == 75, it.output
    assert (it.folder / "written").read_text().split() == ["64", "70"]
    assert (it.folder / "evaluated").read_text().split() == ["64"]
    assert it.run() == 0, it.output
    assert (it.folder / "written").read_text().split() == ["64", "70", "128", "192"]
    assert it.ran()[: it.ran().index(192) + 1] == list(range(1, 193))


def test_the_best_model_is_loaded_at_the_end_from_the_trainers_own_copies(tmp_path):
    """They stay where it wrote them, and ours beside them."""
    best = {
        "arguments": (
            "save_steps=50",
            'save_steps=50, eval_strategy="steps", eval_steps=50, load_best_model_at_end=True',
        ),
        "data": ("train_dataset=data", "train_dataset=data, eval_dataset=data[:32]"),
        "told": ("training.finished()", "print('best', trainer.state.best_model_checkpoint)\ntraining.finished()"),
    }
    it = job(tmp_path / "job", **best)
    assert it.run(step_70="notice") == 75, it.output
    assert it.run() == 0, it.output
    assert f"best {it.home}/transformers/checkpoint-" in it.output
    assert it.saved() == [150, 192]
    state = json.loads((it.home / "step-000000000150" / "trainer_state.json").read_text())
    assert state["global_step"] == 150


def test_what_the_trainer_logs_is_reported_with_every_step(tmp_path):
    """The loss of the last log stands beside the step that is done."""
    it = job(tmp_path / "job")
    assert it.run(step_71="notice") == 75, it.output
    lines = [json.loads(text) for text in (it.home / "progress.1.jsonl").read_text().splitlines()]
    assert lines[-1]["of"] == 192
    assert {"loss", "learning_rate"} <= lines[-1]["numbers"].keys()
