"""Processes on devices without a lease, in words: whose they are, since when, how much they have, what becomes of them.

Operators read all that is known. Who holds the device, and everybody else whom it concerns, reads no more than they may
know; who such a process is certainly of reads of their own, with its server and notebook.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from ..core.told import GIB
from ..model import Treatment, Use, UseKind, Workload
from ..units import format_at, format_bytes, format_when

#: Others named in one sentence; the rest is counted.
MOST_NAMED = 3


class Stranger(msgspec.Struct, kw_only=True):
    """One such process, for as long as it is there."""

    use: Use
    since: float
    readings: int = 0
    #: When it was looked at last, to end it.
    looked_at: float = 0.0
    asked_at: float | None = None
    is_killed: bool = False


class Fate(NamedTuple):
    """What becomes of one: when it is ended, or why it is spared; neither where it is only told."""

    treatment: Treatment
    ends_at: float | None = None
    spared: str = ""


def whose_key(use: Use) -> str | None:
    """Who is told of it, and for how long: their owner, else the account."""
    return use.owner or use.user


def largest(uses: Collection[Use]) -> Use:
    """The one that is named."""
    return max(uses, key=lambda use: (use.memory_bytes or 0, -use.pid))


def who(uses: Collection[Use], lender: str = "", *, with_names: bool, with_places: bool = False) -> str:
    """Like "process 4711 (python) of ana, server 'big', notebook train.ipynb, and 2 more", the largest first.

    `lender` is who may give their processes the number of its user.
    """
    first = largest(uses)
    name = f" ({first.name})" if first.name and with_names else ""
    whose = _whose(first, lender) if with_names else ""
    places = _places(first) if with_places else ""
    unknown = (
        ", whose number cannot be looked up here (let the broker share the host's pids)"
        if first.kind is UseKind.UNKNOWN and not first.name
        else ""
    )
    dead = ", which has ended" if first.kind is UseKind.DEAD else ""
    comma = "," if places else ""
    more = f"{comma} and {len(uses) - 1} more" if len(uses) > 1 else ""
    return f"process {first.pid}{name}{whose}{places}{unknown}{dead}{more}"


def _whose(use: Use, lender: str) -> str:
    if use.owner is not None:
        where = f" in {use.where}" if use.kind is UseKind.CONTAINER else ""
        return f" of {use.owner}{where}"
    if use.user is not None:
        # Without a hub an account is an owner; here it may be that of many.
        return f" of the account {use.user}"
    where = f" in {use.where}" if use.where else ""
    return where + (f" of a user number that /etc/subuid lends to {lender}" if lender else "")


def _places(use: Use) -> str:
    parts = []
    if use.server is not None:
        parts.append(f"server '{use.server}'" if use.server else "in their usual server")
    parts += [f"notebook {use.notebook}"] if use.notebook else []
    parts += [f"by its own word of {use.claim}"] if use.claim else []
    return "".join(f", {part}" for part in parts)


def since_and_size(strangers: Sequence[Stranger], now: float) -> str:
    """Like ", since 14:05, 6GiB": in whole GiB, so that the sentence stays the same while they compute."""
    used = sum(one.use.memory_bytes or 0 for one in strangers)
    size = f", {format_bytes(used // GIB * GIB)}" if used >= GIB else ""
    return f", since {format_when(min(one.since for one in strangers), now)}{size}"


def own_words(strangers: Sequence[Stranger], where: str, fates: Sequence[Fate], until: str, now: float) -> str:
    """For the owner of these: "Your process 4711 (python), server 'big', is on GPU 1 without a lease, since ..."."""
    first = largest([one.use for one in strangers])
    name = f" ({first.name})" if first.name else ""
    more = f" and {len(strangers) - 1} more of yours are" if len(strangers) > 1 else " is"
    comma = "," if _places(first) else ""
    places = _places(first).replace("in their usual server", "in your usual server")
    is_there = f"{comma}{more} on {where} without a lease{since_and_size(strangers, now)}."
    return f"Your process {first.pid}{name}{places}{is_there}{until} {what_then(fates, now)}"


def what_then(fates: Sequence[Fate], now: float) -> str:
    """What becomes of them."""
    ending = [fate for fate in fates if fate.ends_at is not None]
    reasons = sorted({fate.spared for fate in fates} - {""})
    if not ending:
        return f"It is left alone: {reasons[0]}." if reasons else "Let its user end it, or reserve a GPU first."
    first = min(ending, key=lambda fate: fate.ends_at or 0.0)
    ends_at = max(first.ends_at or 0.0, now)
    by = f", by {first.treatment.rule}" if first.treatment.is_of_a_team else ""
    when = f"ended {format_at(ends_at, now)}" if ends_at > now else "being ended"
    if len(ending) == len(fates):
        return f"It is {when}{by}."
    some = "One of them is" if len(ending) == 1 else f"{len(ending)} of them are"
    return f"{some} {when}{by}; the others are left alone{f': {reasons[0]}' if reasons else ''}."


def holders_text(workloads: tuple[Workload, ...]) -> str:
    """Like "reservation 12 of ada and 1 more hold"."""
    shown = ", ".join(f"{it.title} of {it.owner}" for it in workloads[:MOST_NAMED])
    more = len(workloads) - MOST_NAMED
    return f"{shown}{f' and {more} more' if more > 0 else ''} hold{'s' if len(workloads) == 1 else ''}"
