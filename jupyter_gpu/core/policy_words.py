"""What another policy changes, in sentences: the same for the log of a reload, its alert and the command line."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import BoundChange, PolicyCheckView
from ..units import format_bytes

NOBODY = "Nobody is affected."


def said(view: PolicyCheckView) -> Iterator[str]:
    """All of it, a sentence each: bounds, other settings, whom it affects, what is odd about it."""
    if view.digest == view.digest_now:
        yield "It is the policy in force: nothing changes."
    yield from (bound_text(it) for it in view.bounds)
    yield from (f"{it}." for it in view.changes)
    yield from affected_text(view)
    yield from view.warnings


def affected_text(view: PolicyCheckView) -> Iterator[str]:
    """Whom it affects, or that it is nobody."""
    for it in view.affected:
        yield f"{it.title[:1].upper()}{it.title[1:]} of {it.owner} {it.text.removesuffix('.')}."
    if view.more:
        yield f"And {view.more} more."
    if not view.affected:
        yield NOBODY


def bound_text(it: BoundChange) -> str:
    """Like "Each user: GPUs at once 4, then 2 (less); concerns ada, grace."."""
    before, after = _amount(it, it.before), _amount(it, it.after)
    who = f"; concerns {', '.join(it.users)}" if it.users else "; concerns nobody now"
    return f"{it.whose[:1].upper()}{it.whose[1:]}: {it.what} {before}, then {after} ({_way(it)}){who}."


def _way(it: BoundChange) -> str:
    return "less" if it.shrinks else "more"


def _amount(it: BoundChange, amount: int | None) -> str:
    if amount is None:
        return "none" if "own" in it.what else "unbounded"
    return format_bytes(amount) if it.what.startswith("memory") else str(amount)
