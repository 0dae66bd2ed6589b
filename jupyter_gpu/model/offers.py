"""What somebody may ask for by name, and what that would come to."""

from __future__ import annotations

import msgspec

from .documents import ProfileView
from .states import WaitingReason


class OfferView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A profile that the caller may use, and what asking by it would come to now. Nothing is asked by looking."""

    profile: ProfileView
    starts_now: bool
    #: Why it would wait, by its kind and in a sentence; how many of its queue would be before it; and until when.
    waiting: WaitingReason | None = None
    why: str = ""
    ahead: int | None = None
    expected_start_at: float | None = None
    #: So many workloads would be told to make room for it.
    yielding: int = 0
    #: It is more than a quota allows at once: to wait would be in vain.
    never: bool = False
    #: Why it would be refused, and what then; empty where it would not.
    refused: str = ""
    hint: str = ""
    #: Of so many devices that could serve it, so many are free; None where it wants none.
    free: int | None = None
    kin: int | None = None


class OfferPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that the caller may ask for by name, counted for one team of theirs."""

    items: tuple[OfferView, ...]
    #: The teams that it may count for, the usual one first, and whether the rules treat them differently.
    teams: tuple[str, ...]
    teams_differ: bool = False
    #: Whether it was tried what would come of each; else the offers say only what may be asked for.
    tried: bool = True
