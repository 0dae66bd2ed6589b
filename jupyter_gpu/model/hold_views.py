"""Holds as faces send and show them."""

from __future__ import annotations

import msgspec


class HoldBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """POST /holds: either `every` with its zone, for windows that come each week, or one from `from_at` to `until_at`.

    For users, for teams, or for neither: that is maintenance, against which nobody is placed.
    """

    name: str
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    maintenance: bool = False
    #: How many, of a class; or which, by number or UUID.
    count: int = 0
    device_class: str | None = None
    devices: tuple[str, ...] = ()
    from_at: float | None = None
    until_at: float | None = None
    #: Days and hours on the wall: "tue 10:00-12:00", "mon-fri 09:00-17:00", "daily 22:00-06:00".
    every: str | None = None
    #: An IANA name; None is the broker's own.
    timezone: str | None = None
    #: No window begins at this instant or later.
    until: float | None = None
    #: A window is given back when none of the entitled came so long after its beginning.
    no_show_seconds: int | None = None


class HoldView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A hold with the window that is under way or comes next."""

    #: None where it stands in the admin's policy, which alone can change it.
    id: int | None
    name: str
    from_at: float | None = None
    until_at: float | None = None
    every: str = ""
    timezone: str = ""
    until: float | None = None
    count: int = 0
    device_class: str | None = None
    #: Where certain devices were named; else those that would be taken now, which may still change.
    named: bool = False
    devices: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    #: None where the caller may not see names.
    users: tuple[str, ...] | None = ()
    maintenance: bool = False
    no_show_seconds: int | None = None
    #: The window under way was given back.
    given_back: bool = False
    #: Whether the caller is entitled.
    is_mine: bool = False
    by: str = ""
    #: Sentences: who is in the way of the next window, and until when.
    warnings: tuple[str, ...] = ()


class HoldPage(msgspec.Struct, frozen=True, kw_only=True):
    """All holds; there are never so many that they are paged."""

    items: tuple[HoldView, ...]
