"""Holds that operators put by a word, and the windows in which capacity is withheld.

A hold that comes each week is a calendar, and calendars are read at the rim: the core knows the instants that it was
told, some weeks ahead, and never asks what day it is.
"""

from __future__ import annotations

import msgspec

from .commands import Command
from .nouns import Ask
from .queues import HoldPolicy

#: So far ahead the windows of a weekly hold are known, at the least, and at the most once they were told anew.
KNOWN_SECONDS = 35 * 86_400
TOLD_SECONDS = 42 * 86_400
#: A reservation for later is over within this time; so all windows that it may meet are known.
MOST_AHEAD_SECONDS = 28 * 86_400


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """From one instant to another, which is no part of it any more."""

    from_at: float
    until_at: float


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Capacity withheld over windows of time for users, for teams, or for nobody (maintenance); never a lease.

    Its id is one of workloads' own, so no two mean the same.
    """

    id: int
    name: str
    by: str
    added_at: float
    #: Device UUIDs; empty withholds `count` devices of the class, chosen late.
    devices: tuple[str, ...] = ()
    count: int = 0
    device_class: str | None = None
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    #: A window is given back when none of the entitled came within this time of its beginning.
    no_show_seconds: int | None = None
    #: Of one that comes each week: its days and hours as they were said, "tue 10:00-12:00", in this time zone.
    every: str = ""
    timezone: str = ""
    #: No window begins at this instant or later; None is for ever.
    until: float | None = None
    #: The windows that are known and not over, in order; those of one hold do not overlap.
    windows: tuple[Span, ...] = ()
    #: Windows that begin before this instant are all known; None where none can come any more.
    known_until: float | None = None
    #: The beginnings of the last window that the entitled came to, and of the last that was given back.
    attended: float | None = None
    given_back: float | None = None
    idempotency_key: str | None = None

    @property
    def is_maintenance(self) -> bool:
        """Whether nobody is entitled."""
        return not (self.users or self.teams)

    @property
    def title(self) -> str:
        """How texts name it: "hold 15 (ml101)"."""
        return f"hold {self.id} ({self.name})"


class Window(HoldPolicy, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One promise as the planner keeps it: a window of a hold, or the time of a reservation for later."""

    #: Which of the two it belongs to; neither for a hold of the policy.
    hold: int | None = None
    workload: int | None = None
    #: Of a reservation for later: what its devices must be, and whose it is.
    ask: Ask | None = None
    owner: str = ""
    team: str = ""

    @property
    def is_named(self) -> bool:
        """Whether there is no choice of devices."""
        return bool(self.devices)


class AddHold(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An operator withholds capacity. The windows are told with it; `known_until` as in Hold."""

    name: str
    by: str
    devices: tuple[str, ...] = ()
    count: int = 0
    device_class: str | None = None
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    no_show_seconds: int | None = None
    every: str = ""
    timezone: str = ""
    until: float | None = None
    windows: tuple[Span, ...] = ()
    known_until: float | None = None
    idempotency_key: str | None = None


class RemoveHold(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """It is no more, and its devices go to the line."""

    hold: int
    by: str


class KnowWindows(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The windows of a weekly hold from now on, as its calendar has them; later ones are known than before.

    What is under way stays as it began, whatever a zone's rules have become meanwhile.
    """

    hold: int
    windows: tuple[Span, ...]
    known_until: float | None
