"""A PyTorch loop of your own that yields and resumes.

    state = Resumable(model=model, optimizer=optimizer, scheduler=scheduler)
    start = state.restore()
    loader = DataLoader(data, batch_sampler=Batches(len(data), 64, start=start))
    for step, (x, y) in zip(state.steps(10_000), loader):
        ...train one step...
        state.report(loss=loss)
    training.finished()

One process or many (torchrun, one node): all stop at the same step, and rank 0 writes.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Sampler

from .. import training
from .pace import Pace
from .randomness import random_state, set_random_state

__all__ = ["Batches", "Resumable", "agreed"]

_OWN = "resumable"


class Resumable:
    """What a training is made of, and the step it is at.

    `parts` are model, optimizer, scheduler, scaler and whatever else has `state_dict` and `load_state_dict`, by any
    names. `values` is a dict of your own that is saved along: the best loss so far, say. The random states of Python,
    NumPy and PyTorch, of each process, are saved too. The rules of keeping are those of `training.checkpoint`.
    """

    def __init__(
        self,
        *,
        every_steps: int | None = None,
        every_seconds: float | None = 600,
        keep: int | None = 2,
        keep_every: int | None = None,
        max_age_seconds: float | None = None,
        **parts: Any,
    ) -> None:
        for name, part in parts.items():
            if name == _OWN or not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise TypeError(
                    f"{name} is a {type(part).__name__}, which has no state_dict and load_state_dict. "
                    f"Put plain values into .values instead: state.values[{name!r}] = ..."
                )
        self.parts = parts
        self.values: dict[str, Any] = {}
        #: How many steps are done.
        self.step = 0
        self._pace = Pace(every_steps, every_seconds)
        self._rules = {"keep": keep, "keep_every": keep_every, "max_age_seconds": max_age_seconds}
        self._random: list[dict[str, Any]] = []
        self._numbers: dict[str, Any] = {}
        self._is_restored = self._is_tried = False
        self._group: Any = None

    def restore(self) -> int:
        """Load the newest complete checkpoint, if there is one, and give the number of steps done.

        Call it when the parts are on their devices, and before the loop: `steps` does it otherwise.
        """
        self._is_restored = True
        found = training.latest()
        if found is None:
            return self.step
        for name, part in self.parts.items():
            _bare(part).load_state_dict(_load(found, name))
        own = _load(found, _OWN)
        self.values, self._random = own["values"], own["random"]
        self.step = training.step_of(found)
        return self.step

    def steps(self, total: int) -> Iterator[int]:
        """Give the number of each step that is still to be done, counted from 0; save and leave between them."""
        if not self._is_restored:
            self.restore()
        rank, ranks = _rank()
        if len(self._random) == ranks:
            # Now and not in restore(): what was done since then, as starting a data loader, may have used some.
            set_random_state(self._random[rank])
        if ranks > 1 and self._group is None:
            self._group = dist.new_group(backend="gloo")  # on the CPU, so that no step waits for the GPU
        self._pace.saved(self.step)
        while self.step < total:
            yield self.step
            self.step += 1
            if rank == 0:
                training.report(self.step, of=total, **self._numbers)
            stop, due = agreed(training.should_stop(), self._pace.is_due(self.step), group=self._group)
            if stop or due or self.step == total:
                self.save()
            if stop and self.step < total:
                training.yield_now()

    def report(self, **numbers: Any) -> None:
        """Tell of this step: `state.report(loss=loss)`. A tensor is read at most once a second."""
        self._numbers = numbers

    def save(self) -> None:
        """Save now. Of several processes all must call it; each waits until it is done."""
        rank, ranks = _rank()
        states = [random_state()]
        if ranks > 1:
            states = [{} for _ in range(ranks)]
            dist.all_gather_object(states, random_state(), group=self._group)
        if rank == 0:
            with training.checkpoint(self.step, **self._rules) as folder:  # type: ignore[arg-type]
                for name, part in self.parts.items():
                    self._write(folder, name, _bare(part).state_dict())
                self._write(folder, _OWN, {"values": self.values, "random": states})
            self._is_tried = True
        if ranks > 1:
            dist.barrier(group=self._group)
        self._pace.saved(self.step)

    def _write(self, folder: Path, name: str, content: Any) -> None:
        path = folder / f"{name}.pt"
        torch.save(content, path)
        if self._is_tried:
            return
        try:  # better now than when it is needed
            torch.load(path, map_location="meta", weights_only=True)
        except pickle.UnpicklingError as error:
            raise TypeError(
                f"What was to be saved of {'.values' if name == _OWN else name} could not be loaded again: it holds "
                "more than tensors, numbers, texts, lists and dicts, and loading anything else may run code."
            ) from error


class Batches(Sampler[list[int]]):
    """Which samples each step takes, from step `start` on and without end: DataLoader(batch_sampler=Batches(...)).

    The order depends on `seed` and the number of the epoch alone, so a resumed training sees what it would have seen.
    In each epoch every sample comes once, save what fills no batch at its end. Of several processes each gets its own
    part of each step.
    """

    def __init__(self, size: int, batch_size: int, *, start: int = 0, seed: int = 0) -> None:
        self._rank, ranks = _rank()
        self._size, self._batch, self._start, self._seed = size, batch_size, start, seed
        #: Steps in an epoch.
        self.per_epoch = size // (batch_size * ranks)
        if self.per_epoch < 1:
            raise ValueError(f"{size} samples do not fill one step of {ranks} x {batch_size}: use a smaller batch_size")

    def __iter__(self) -> Iterator[list[int]]:
        order: list[int] = []
        for step in itertools.count(self._start):
            epoch, at = divmod(step, self.per_epoch)
            if at == 0 or not order:
                generator = torch.Generator().manual_seed(self._seed + epoch)
                order = torch.randperm(self._size, generator=generator).tolist()
            begin = (self._rank * self.per_epoch + at) * self._batch
            yield order[begin : begin + self._batch]


def agreed(*flags: bool, group: Any = None) -> list[bool]:
    """Give each flag that is set in any process, so that all do the same; `group` is one that talks over the CPU."""
    if _rank()[1] == 1:
        return list(flags)
    told = torch.tensor([int(flag) for flag in flags])
    dist.all_reduce(told, op=dist.ReduceOp.MAX, group=group)
    return [bool(flag) for flag in told.tolist()]


def _rank() -> tuple[int, int]:
    """The number of this process, and of how many."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _bare(part: Any) -> Any:
    """The model itself, so that one process may go on with what several have saved."""
    return part.module if isinstance(part, DistributedDataParallel) else part


def _load(found: Path, name: str) -> Any:
    path = found / f"{name}.pt"
    if not path.exists():
        there = ", ".join(sorted(other.stem for other in found.glob("*.pt"))) or "nothing of this kind"
        raise ValueError(
            f"The checkpoint {found} has no {name}: it was saved by a training of other parts ({there}). "
            "Give the parts the names that they had, or start over in an empty folder."
        )
    return torch.load(path, map_location="cpu", weights_only=True)
