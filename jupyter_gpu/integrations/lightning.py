"""A Lightning training that yields and resumes.

    trainer = Trainer(max_epochs=10, callbacks=[Resumable()])
    trainer.fit(model, loader, ckpt_path=latest())
    training.finished()

Works for `lightning` and for `pytorch_lightning`, whichever the training has imported.
"""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any

import torch

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

from .. import training
from .pace import Pace
from .randomness import random_state, set_random_state

__all__ = ["Resumable", "latest"]

_FILE = "lightning.ckpt"
_KEY = "jupyter_gpu"


def latest() -> str | None:
    """The newest complete checkpoint as `trainer.fit(..., ckpt_path=latest())` wants it; None for none."""
    found = training.latest()
    return None if found is None else str(found / _FILE)


class Resumable(Callback):
    """Saves at the notice and leaves, saves in between, and reports what the module logs.

    What Lightning saves is in it, and in a training of one process the random states too. The rules of keeping are
    those of `training.checkpoint`.
    """

    def __init__(
        self,
        *,
        every_steps: int | None = None,
        every_seconds: float | None = 600,
        keep: int | None = 2,
        keep_every: int | None = None,
        max_age_seconds: float | None = None,
    ) -> None:
        self._pace = Pace(every_steps, every_seconds)
        self._rules = {"keep": keep, "keep_every": keep_every, "max_age_seconds": max_age_seconds}
        self._random: dict[str, Any] | None = None
        self._step = 0
        self._of: int | None = None

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Add the random states; of several processes only one writes, and the others' would be lost."""
        if trainer.world_size == 1:
            checkpoint[_KEY] = {"random": random_state()}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Take the random states, for the moment when the training begins."""
        if trainer.world_size == 1:
            self._random = checkpoint.get(_KEY, {}).get("random")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Begin to count, and go on with the random numbers where they were."""
        self._step = trainer.global_step
        self._pace.saved(self._step)
        self._of = _last_step(trainer)
        if self._random is not None:
            set_random_state(self._random)
            self._random = None

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Report, save if it is time, and leave if asked to."""
        step = trainer.global_step
        if step == self._step:  # gradients are still being gathered, and they are in no checkpoint
            return
        self._step = step
        if trainer.is_global_zero:
            training.report(step, of=self._of, **_numbers(trainer.callback_metrics))
        wish = 2 if training.should_stop() else 1 if self._pace.is_due(step) else 0
        device = trainer.strategy.root_device
        wish = int(trainer.strategy.reduce(torch.tensor(wish, device=device), reduce_op="max"))
        if not wish and step != self._of:
            return
        self._save(trainer, step)
        if wish > 1 and step != self._of:
            # Not by trainer.should_stop: that would still validate, and go on until min_epochs.
            training.yield_now()

    def _save(self, trainer: Any, step: int) -> None:
        """All processes take part, since some strategies write from each; the first one begins and completes it."""
        with contextlib.ExitStack() as stack:
            folder = None
            if trainer.is_global_zero:
                folder = stack.enter_context(training.checkpoint(step, **self._rules))  # type: ignore[arg-type]
            folder = trainer.strategy.broadcast(folder)
            trainer.save_checkpoint(folder / _FILE)
        self._pace.saved(step)


def _last_step(trainer: Any) -> int | None:
    try:
        last = trainer.estimated_stepping_batches
    except Exception:  # noqa: BLE001 - it cannot be said beforehand, as where gradients gather by a schedule
        return None
    return int(last) if math.isfinite(last) and last > 0 else None


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name not in ("step", "of") and value.numel() == 1}
