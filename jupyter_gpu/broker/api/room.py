"""What submissions may take of the disk: each owner so much at a time, and nobody what the ends of work are written on.

The log of events keeps each submission whole, also of work that is cancelled at once. So one person who submits and
cancels in a loop could fill the disk, and then nothing could be recorded any more for anybody. What is refused for
another reason counts too: it was read and checked.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...core.arrays import grown_bytes, unfilled_bytes
from ...errors import LimitExceeded, StoreUnavailable
from ...model import Submit, SubmitBody
from ...units import format_bytes, format_seconds
from ..alerts import Alert, Alerts
from .bounds import MOST_QUEUED_BYTES

#: An owner may submit so much at once: as much as may wait, ten thousand jobs with a large environment each.
MOST_BYTES = MOST_QUEUED_BYTES
#: So much of it comes back in a second.
BYTES_PER_SECOND = (64 << 20) / 3600
#: What the smallest workload's life takes in the log, so that many small ones are bounded as few large ones are.
EACH_BYTES = 2 << 10
#: So little may be free where the store is: what ends, is released or cancelled is still recorded then.
RESERVE_BYTES = 256 << 20
#: A disk of so few reserves is small, as in some containers, and not almost full.
_SMALL = 4
_LOOK_SECONDS = 1.0


class TooMuchLately(LimitExceeded):
    """One owner has submitted too much for now; later it is taken."""

    answered = 429


#: What a word about one that is there takes: that it is paused, or comes after something else.
EACH_WORD_BYTES = 256
EACH_LINK_BYTES = 32


def size_of(body: SubmitBody | Submit, *, is_dry: bool = False) -> int:
    """What a submission takes in the log; the copy of its script is bounded where it is kept.

    Each of an array is written down whole, and counts as the longest of them. What is only tried counts as one: it
    takes no room, but nobody tries for ever.
    """
    if body.spec is None:
        return EACH_BYTES
    more = grown_bytes(body.spec, body.array) + unfilled_bytes(body.spec, body.array)
    return (EACH_BYTES + len(msgspec.json.encode(body.spec)) + more) * (1 if is_dry else max(1, len(body.array)))


class Room:
    """What each owner has submitted lately, and how full the disk is."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        #: Owner -> what they had submitted at which instant, of which some has come back since.
        self._used: dict[str, tuple[float, float]] = {}
        self._looked_at = float("-inf")
        self._free_bytes: int | None = None

    def take(self, owner: str, size: int) -> None:
        """Count a submission; refuse it where its owner has submitted too much lately, or the disk is almost full."""
        self._look()
        if self._is_short:
            raise StoreUnavailable(
                f"The disk of {self._folder} has only {format_bytes(self._free_bytes)} left, which is kept for "
                "recording how the work that is there goes on and ends.",
            )
        now = self._clock()
        used, at = self._used.get(owner, (0.0, now))
        used = max(0.0, used - (now - at) * BYTES_PER_SECOND)
        if (beyond := used + size - MOST_BYTES) > 0:
            wait = format_seconds(beyond / BYTES_PER_SECOND + 1, parts=2)
            raise TooMuchLately(
                f"{owner} has submitted {format_bytes(used)} of commands and variables lately; with this it would be "
                f"more than {format_bytes(MOST_BYTES)}: all of it is kept on the broker's disk.",
                hint=f"Put long texts into files that the job reads, or submit it again in {wait}.",
            )
        self._used[owner] = (used + size, now)

    def tell(self, alerts: Alerts) -> None:
        """Let operators know for as long as new work is refused for want of space."""
        self._look()
        text = (
            f"The disk of {self._folder} has less than {format_bytes(RESERVE_BYTES)} left: new work is refused, what "
            "is there goes on and its end is recorded. Free space there; nothing needs to be restarted."
        )
        alerts.settle("disk", {"disk:short": Alert(text=text)} if self._is_short else {})

    @property
    def _is_short(self) -> bool:
        return self._free_bytes is not None and self._free_bytes < RESERVE_BYTES

    def _look(self) -> None:
        """See how full the disk is, and forget whoever has all of their room again; now and then, however many ask."""
        moment = time.monotonic()
        if moment < self._looked_at + _LOOK_SECONDS:
            return
        self._looked_at, self._free_bytes = moment, _free_bytes(self._folder)
        now = self._clock()
        self._used = {name: it for name, it in self._used.items() if it[0] > (now - it[1]) * BYTES_PER_SECOND}


def _free_bytes(folder: Path) -> int | None:
    """What is free there for this account; None where the disk does not say."""
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return None
    return found.free if found.total > _SMALL * RESERVE_BYTES else None
