"""What submissions may take of the disk: each owner so much at a time, and nobody what the ends of work are written on.

The log of events keeps each submission whole, also of work that is cancelled at once. So one person who submits and
cancels large commands in a loop could fill the disk, and then nothing could be recorded any more for anybody.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ...errors import LimitExceeded, StoreUnavailable
from ...units import format_at, format_bytes

#: An owner may submit so much at once, as the characters of commands and variables; thousands of jobs stay far below.
MOST_BYTES = 64 << 20
#: So much of it comes back in a second: all of it in an hour.
BYTES_PER_SECOND = MOST_BYTES / 3600
#: So little may be free where the store is: what ends, is released or cancelled is still recorded then.
RESERVE_BYTES = 256 << 20
#: A disk of so few reserves is small, as in some containers, and not almost full.
_SMALL = 4
_LOOK_SECONDS = 1.0


class Room:
    """What each owner has submitted lately, and how full the disk is."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        #: Owner -> what they had submitted at which instant, of which some has come back since.
        self._used: dict[str, tuple[float, float]] = {}
        self._looked_at = float("-inf")
        self._free_bytes: int | None = None

    def take(self, owner: str, weight: int) -> None:
        """Count a submission; refuse it where its owner has submitted too much lately, or the disk is almost full."""
        self._keep_the_reserve()
        now = self._clock()
        used = self._used_by(owner, now)
        if used + weight > MOST_BYTES:
            again = now + (used + weight - MOST_BYTES) / BYTES_PER_SECOND
            raise LimitExceeded(
                f"{owner} has submitted {format_bytes(int(used))} of commands and variables within the last hour, and "
                f"with this it would be more than {format_bytes(MOST_BYTES)}.",
                hint=f"Put long texts into files that the job reads, or submit it again {format_at(again, now)}.",
            )
        self._used[owner] = (used + weight, now)

    def _used_by(self, owner: str, now: float) -> float:
        used, at = self._used.get(owner, (0.0, now))
        self._forget(now)
        # A clock that was set back gives nothing back, and takes nothing either.
        return max(0.0, used - max(0.0, now - at) * BYTES_PER_SECOND)

    def _forget(self, now: float) -> None:
        """Whoever has all of it again needs no entry."""
        back = [name for name, (used, at) in self._used.items() if used <= (now - at) * BYTES_PER_SECOND]
        for name in back:
            del self._used[name]

    def _keep_the_reserve(self) -> None:
        moment = time.monotonic()
        if moment >= self._looked_at + _LOOK_SECONDS:
            self._looked_at, self._free_bytes = moment, _free_bytes(self._folder)
        if self._free_bytes is not None and self._free_bytes < RESERVE_BYTES:
            raise StoreUnavailable(
                f"The disk of {self._folder} has only {format_bytes(self._free_bytes)} left, which is kept for "
                "recording how the work that is there goes on and ends.",
            )


def _free_bytes(folder: Path) -> int | None:
    """What is free there for this account; None where the disk does not say."""
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return None
    return found.free if found.total > _SMALL * RESERVE_BYTES else None
