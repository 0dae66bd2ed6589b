"""The report: what a stretch of time was spent on, who waited, what failed, what was done twice.

The same rules hold as in `documents`. Device-seconds count devices: two of them held for a minute are 120, a part of a
shared one counts as that part of it. What the store does not know (how busy a device was, what it cost) is not here.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ReportOf(StrEnum):
    """Whose work a report is about."""

    OWN = "own"
    ALL = "all"


class ReportBy(StrEnum):
    """What the rows of a report are."""

    USER = "user"
    TEAM = "team"
    QUEUE = "queue"
    END = "end"


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """How much device time there was, and how much of it was leased."""

    #: Known at the end of the window, those that are lost not among them.
    devices: int
    #: All that there was: a device counts while it is listed and not lost.
    there_seconds: float
    #: Of that, what was cordoned or had a condition; what was leased all the same is among it.
    unusable_seconds: float
    #: Of that, what the report's work held, from the grant until it was clear again.
    leased_seconds: float
    #: leased_seconds / there_seconds; None where there was no device.
    leased_share: float | None


class WaitsView(msgspec.Struct, frozen=True, kw_only=True):
    """How long work of one queue waited for its first grant, of what was granted within the window."""

    queue: str
    granted: int
    median_seconds: float | None
    p90_seconds: float | None
    longest_seconds: float | None
    #: What waited still at the end of the window, and the longest of these waits so far.
    waiting: int
    waiting_longest_seconds: float | None
    #: Granted members of arrays that run only so many at once: these kept one another, and are in none of the numbers.
    left_out: int


class LossView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that was lost at once: what one attempt had done since its last checkpoint."""

    seconds: float
    at: float
    #: Whose it was; None where that is not the reader's to know.
    workload: int | None = None
    owner: str | None = None


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What some work came to."""

    #: Jobs and reservations that were there at some time of the window.
    jobs: int
    reservations: int
    leased_device_seconds: float
    #: What attempts of jobs ran.
    worked_device_seconds: float
    #: Work that was done and had to be done again, as `repeated_seconds` of the jobs, and times their devices.
    repeated_seconds: float
    repeated_device_seconds: float
    #: repeated_device_seconds / worked_device_seconds; None where nothing ran.
    repeated_share: float | None
    preemptions: int
    #: Attempts that failed, also of jobs that succeeded in the end.
    failures: int
    #: Per hour of one device that worked; None where nothing ran.
    failures_per_device_hour: float | None


class SpentRow(Spent, frozen=True, kw_only=True):
    """The same of one user, team, queue or end; the empty name is all whose names are not the reader's to know."""

    name: str


class ReportView(msgspec.Struct, frozen=True, kw_only=True):
    """A report of the work of one caller, or of all."""

    of: ReportOf
    #: The window that it is about; it begins later than asked where less is known.
    begin_at: float
    end_at: float
    device_time: DeviceTime
    spent: Spent
    #: Of jobs and of reservations that ended within the window, how.
    job_ends: dict[str, int]
    reservation_ends: dict[str, int]
    #: Of those that were there, what was not over at its end.
    jobs_unfinished: int
    reservations_unfinished: int
    #: Attempts that failed, by how.
    failures: dict[str, int]
    longest_loss: LossView | None
    #: Attempts that others followed and of which nobody knows what they had not saved: they count as nothing lost.
    losses_not_known: int
    #: Reservations that the broker gave back because they stood idle, and the device time until what would have been
    #: their end: what others got of it.
    idle_given_back: int
    idle_given_back_device_seconds: float
    waits: tuple[WaitsView, ...]
    by: ReportBy | None
    #: The largest first, by leased time.
    rows: tuple[SpentRow, ...]
    #: What is not in these numbers, in sentences.
    notes: tuple[str, ...]
