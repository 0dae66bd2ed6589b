"""A training by the Hugging Face Trainer that yields and resumes.

    arguments = TrainingArguments(output_dir=output_dir(), save_steps=500)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Resumable()])
    trainer.train(resume_from_checkpoint=latest())
    training.finished()

The Trainer writes a checkpoint file by file into `output_dir`. Once it is whole, it is moved below our marker, so
that one cut short is never resumed from. How often it saves is for `TrainingArguments` to say.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback

from .. import training
from .torch import agreed

__all__ = ["Resumable", "latest", "output_dir"]


def output_dir() -> str:
    """Where the Trainer writes: beside our checkpoints, so that moving one there costs nothing."""
    return str(training.checkpoint_dir() / "transformers")


def latest() -> str | None:
    """The newest complete checkpoint as `trainer.train(resume_from_checkpoint=latest())` wants it; None for none."""
    found = training.latest()
    return None if found is None else str(found)


class Resumable(TrainerCallback):
    """Saves at the notice and leaves, completes each checkpoint, and reports what the Trainer logs.

    The rules of keeping are those of `training.checkpoint`. With `metric_for_best_model` the Trainer's own copies
    stay where it wrote them, since it comes back to the best of them; `save_total_limit` bounds those.
    """

    def __init__(
        self, *, keep: int | None = 2, keep_every: int | None = None, max_age_seconds: float | None = None
    ) -> None:
        self._rules = {"keep": keep, "keep_every": keep_every, "max_age_seconds": max_age_seconds}
        self._numbers: dict[str, float] = {}
        self._is_leaving = False
        self._saved = -1
        self._group: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Clear away what an earlier attempt left half written."""
        if _ranks() > 1 and self._group is None:
            self._group = dist.new_group(backend="gloo")  # on the CPU, so that no step waits for the GPU
        if state.is_world_process_zero and not _keeps_best(args) and args.output_dir == output_dir():
            for path in Path(args.output_dir).glob("checkpoint-*"):
                shutil.rmtree(path, ignore_errors=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Report, and if asked to leave have it save and stop."""
        if state.is_world_process_zero:
            training.report(state.global_step, of=state.max_steps, **self._numbers)
        if state.global_step < state.max_steps and agreed(training.should_stop(), group=self._group)[0]:
            self._is_leaving = True
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False  # the time left is for saving

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Do not save the same step twice, nor do at the end of an epoch what is not its end."""
        if self._is_leaving:
            control.should_evaluate = False
        if self._is_leaving or self._saved == state.global_step:
            control.should_save = False

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:  # noqa: ARG002
        """Take the numbers to report."""
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        self._numbers |= {name: value for name, value in numbers.items() if name not in ("step", "of")}
        if state.is_world_process_zero:
            training.report(state.global_step, of=state.max_steps, **self._numbers)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Complete what the Trainer has just written."""
        if _ranks() > 1:
            dist.barrier(group=self._group)  # each process writes its random states there
        step = state.global_step
        written = Path(args.output_dir) / f"checkpoint-{step}"
        if state.is_world_process_zero and written.is_dir():
            with training.checkpoint(step, **self._rules) as folder:  # type: ignore[arg-type]
                if _keeps_best(args):
                    shutil.copytree(written, folder, dirs_exist_ok=True)
                else:
                    for path in written.iterdir():
                        shutil.move(path, folder)
                    written.rmdir()
        self._saved = step
        if _ranks() > 1:
            dist.barrier(group=self._group)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Leave, and ask to be requeued: what comes after train() is for a model that has learnt."""
        if self._is_leaving:
            training.yield_now()


def _keeps_best(args: Any) -> bool:
    return args.metric_for_best_model is not None  # load_best_model_at_end sets it too


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
