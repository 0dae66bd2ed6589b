"""A Keras training that yields and resumes.

    model.compile(...)
    resumable = Resumable()
    model.fit(x, y, epochs=20, initial_epoch=resumable.restore(model), callbacks=[resumable])
    training.finished()

Keras can begin an epoch, but not go on in the middle of one. So it saves at the end of each epoch, and from there a
training goes on exactly. Asked to leave it ends the epoch first, where the time left is twice what that takes. Where
it is not it saves what the model has learnt, and that epoch is begun again with it.
"""

from __future__ import annotations

import json
import time
from typing import Any

from keras.callbacks import Callback

from .. import training
from ..checkpoints import warn
from .pace import Pace
from .randomness import random_state, set_random_state

__all__ = ["Resumable"]

_WEIGHTS = "model.weights.h5"
_PLACE = "training.json"


class Resumable(Callback):
    """Saves the weights, the optimizer's state and the random states; reports what Keras logs.

    `every_seconds` says how often it saves within an epoch; None for only at its end. The rules of keeping are those
    of `training.checkpoint`. Put it last of the callbacks: it may leave.
    """

    def __init__(
        self,
        *,
        every_seconds: float | None = 600,
        keep: int | None = 2,
        keep_every: int | None = None,
        max_age_seconds: float | None = None,
    ) -> None:
        super().__init__()
        self._pace = Pace(None, every_seconds)
        self._rules = {"keep": keep, "keep_every": keep_every, "max_age_seconds": max_age_seconds}
        self._random: dict[str, Any] | None = None
        self._epoch = 0
        self._epoch_began = 0.0
        # Of all batches, and of those in this epoch, how many are done.
        self._done = self._in_epoch = 0

    def restore(self, model: Any) -> int:
        """Load the newest complete checkpoint, if there is one, and give the epoch to begin with.

        The model must be built and compiled.
        """
        found = training.latest()
        if found is None:
            return 0
        if not model.built:
            raise ValueError(
                "The model has no weights yet into which those of the checkpoint could be loaded. Give it an Input, "
                "or call model.build(...), before restore(model)."
            )
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(found / _WEIGHTS)
        place = json.loads((found / _PLACE).read_text())
        self._done, self._random = training.step_of(found), place["random"]
        if place["batch"]:
            warn(
                f"epoch {place['epoch'] + 1} is begun again with what the model had learnt by its batch "
                f"{place['batch']}: Keras cannot go on in the middle of an epoch"
            )
        return int(place["epoch"])

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Go on with the random numbers where they were."""
        self._pace.saved(self._done)
        if self._random is not None:
            set_random_state(self._random)
            self._random = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Note when it began."""
        self._epoch, self._in_epoch, self._epoch_began = epoch, 0, time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report, save if it is time, and leave if asked to and the epoch cannot be waited for."""
        self._done += batch + 1 - self._in_epoch
        self._in_epoch = batch + 1
        self._report(logs)
        is_leaving = training.should_stop() and not self._fits()
        if is_leaving or self._pace.is_due(self._done):
            self._save(self._epoch, self._in_epoch)
        if is_leaving:
            training.yield_now()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save, and leave if asked to."""
        self._report(logs)
        self._save(epoch + 1, 0)
        if training.should_stop() and epoch + 1 < self.params["epochs"]:
            training.yield_now()

    def _fits(self) -> bool:
        """Whether there is time to end this epoch: nobody knows how long its validation takes, so twice the time."""
        steps, left = self.params.get("steps"), training.time_left()
        if steps is None or left is None:
            return False
        a_batch = (time.monotonic() - self._epoch_began) / self._in_epoch
        return bool(2 * a_batch * (steps - self._in_epoch) < left)

    def _save(self, epoch: int, batch: int) -> None:
        with training.checkpoint(self._done, **self._rules) as folder:  # type: ignore[arg-type]
            self.model.save_weights(folder / _WEIGHTS)
            place = {"epoch": epoch, "batch": batch, "random": random_state()}
            (folder / _PLACE).write_text(json.dumps(place))
        self._pace.saved(self._done)

    def _report(self, logs: dict[str, Any] | None) -> None:
        steps, epochs = self.params.get("steps"), self.params["epochs"]
        numbers = {name: value for name, value in (logs or {}).items() if name not in ("step", "of")}
        done = self._done if steps is None else self._epoch * steps + self._in_epoch
        training.report(done, of=None if steps is None else epochs * steps, **numbers)
