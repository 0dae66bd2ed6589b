"""Recurring jobs: submitted again and again by a calendar. The calendar itself is read at the rim, by a library.

The instants that a line of cron means in a time zone are data here: the core never asks what day it is.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .commands import Command, Submit

#: Missed instants are counted so far: the broker may have been away for a year, and a calendar say "each minute".
MOST_MISSED = 1000


class Overlap(StrEnum):
    """What happens at an instant at which the last time's job is not over."""

    SKIP = "skip"
    QUEUE = "queue"


class Recurring(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to be submitted at each instant of a calendar. Its id is one of workloads' own, so no two mean the same."""

    id: int
    #: Five fields of cron, read in `timezone` (an IANA name).
    cron: str
    timezone: str
    #: What is submitted each time; its owner and team are the recurring job's.
    submit: Submit
    overlap: Overlap = Overlap.SKIP
    paused: bool = False
    added_at: float
    #: The next instant; None where the calendar has none any more.
    next_at: float | None
    #: The last instant that came, the last job that one led to (of an array the first), and what is to be said of it:
    #: that it was late, or why it led to none.
    last_at: float | None = None
    last_workload: int | None = None
    last_detail: str = ""
    times: int = 0

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.submit.owner


class AddRecurring(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A person asks for a job at each instant of a calendar."""

    cron: str
    timezone: str
    submit: Submit
    overlap: Overlap = Overlap.SKIP
    next_at: float | None


class Fire(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An instant of a calendar came: `due_at` is the one that was awaited, `next_at` the next after now.

    What was missed in between (the broker was down, the machine slept) is `missed`, and leads to no job of its own. A
    late word, of an instant that is awaited no more, changes nothing.
    """

    recurring: int
    due_at: float
    next_at: float | None
    missed: int = 0


class FireNow(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Its owner wants it once more, now; the calendar goes on as it was."""

    recurring: int
    by: str


class PauseRecurring(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """No more times until it is let go, from `next_at` on then."""

    recurring: int
    by: str
    paused: bool
    next_at: float | None = None


class RemoveRecurring(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """It is no more; jobs that it led to stay."""

    recurring: int
    by: str
