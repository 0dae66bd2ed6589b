"""Which old checkpoints go, and what lies in a checkpoint folder. Standard library only.

Three rules, in this order: the last `keep` stay, and each whose step is a multiple of `keep_every`; of these,
what was saved longer ago than `max_age_seconds` goes. The newest complete one stays whatever they say.

Only who saves or cleans up imports this: the engine, which keeps `checkpoints.py` beside every job, does not.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from . import checkpoints


class Rules(NamedTuple):
    """How many stay, and for how long."""

    keep: int | None = 2
    keep_every: int | None = None
    max_age_seconds: float | None = None

    def check(self) -> None:
        """Refuse what cannot be meant."""
        for name, value, least in zip(self._fields, self, ("1 or more", "1 or more", "more than 0"), strict=True):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be {least}, or None for no such rule; not {value}")


class Found(NamedTuple):
    """One checkpoint folder."""

    path: Path
    step: int
    size_bytes: int
    at: float
    is_newest: bool
    fault: str | None


def prune(home: Path, saved: int, rules: Rules) -> None:
    """Remove what the rules do not cover, after `saved` was written."""
    steps = [step for step, _ in _steps(home)]
    complete = [step for step in steps if checkpoints.fault(_folder(home, step)) is None]
    newest = max(complete, default=saved)
    if newest > saved:
        checkpoints.warn(
            f"saved step {saved}, but {home} holds step {newest}, and a training resumes from the "
            "highest step. To start over, use an empty folder."
        )
    kept = _covered(home, complete, rules) | {saved, newest}
    for step in steps:
        # A damaged one goes once it is older than all that are kept; until then it may be looked at.
        if step not in kept and (step in complete or (rules.keep is not None and step < min(kept))):
            checkpoints.discard(_folder(home, step))  # half removed, its sizes no longer match: no checkpoint any more


def listed(home: Path) -> list[Found]:
    """All that lies in a checkpoint folder, by step."""
    newest = checkpoints.newest_name(home)[0]
    return [
        Found(path, step, _size(path), saved_at(path), path.name == newest, checkpoints.fault(path))
        for step, path in _steps(home)
    ]


def saved_at(path: Path) -> float:
    """When a checkpoint was saved; where its marker does not say so, when its folder was last changed."""
    with contextlib.suppress(OSError, *checkpoints.DAMAGED):
        at = checkpoints.load(str(path / checkpoints.MARKER))["at"]
        if isinstance(at, int | float):
            return float(at)
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def _covered(home: Path, complete: list[int], rules: Rules) -> set[int]:
    last = complete if rules.keep is None else complete[-rules.keep :]
    covered = {*last, *(step for step in complete if rules.keep_every and step % rules.keep_every == 0)}
    if rules.max_age_seconds is None:
        return covered
    since = time.time() - rules.max_age_seconds
    return {step for step in covered if saved_at(_folder(home, step)) >= since}


def _folder(home: Path, step: int) -> Path:
    return home / f"step-{step:012d}"


def _steps(home: Path) -> list[tuple[int, Path]]:
    names = [name for name in checkpoints.names_in(home) if name.startswith("step-")]
    found = []
    for name in names:
        with contextlib.suppress(ValueError):
            found.append((checkpoints.step_in(name), home / name))
    return found


def _size(path: Path) -> int:
    """The bytes of its files; what vanishes meanwhile counts nothing."""
    total = 0
    for root, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(root, name))  # noqa: PTH118
                total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total
