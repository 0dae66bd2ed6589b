"""What would come of a start, in the words of the spawn page, of its refusals and of the page that waits.

For people who want a GPU and know nothing of queues: what, why, and what to do now, each once. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from ..model import OfferView, Profile, WaitingReason, WorkloadView
from ..units import format_at, format_seconds
from .offers import Choice, Seen, title_of, what_of

#: So near that a clock would say less than a number of minutes.
_SOON_SECONDS = 600
#: Alternatives in one refusal.
_MOST_NAMED = 3

WAIT_LABEL = "Wait in line if none is free"
NO_ANSWER = "The GPU service does not answer now."
_NEEDS_ADMIN = "An admin has to look at it."

Say = Callable[[str], str]
When = Callable[[float], str]


def availability(
    profile: Profile, it: OfferView | None, now: float, *, say: Say = str, when: When | None = None
) -> str:
    """Whether it would start, else why not and when, like "0 of 2 free now; expected at about 14:05".

    For a page `say` makes words its own, and `when` an instant, like "at about 14:05".
    """
    if profile.devices == 0:
        later = " Each notebook can reserve a GPU when it needs one." if profile.for_kernels else ""
        return say(f"Starts at once.{later}")
    if it is None:
        return say("It needs the GPU service, which does not answer now.")
    if it.refused:
        return say(sentence(it.refused))
    if not it.kin:
        return say("There is no such GPU at the moment.")
    free = say(f"{it.free} of {it.kin} free now")
    if it.starts_now:
        return f"{free}."
    if it.waiting in (WaitingReason.QUOTA, WaitingReason.BUDGET):
        return f"{free}. {say(it.why)}" + (say(" So it would never start.") if it.never else "")
    if it.waiting in (WaitingReason.DRIVER, WaitingReason.ENGINE):
        return say(f"None can be used now. {_NEEDS_ADMIN}")
    return f"{free}; {_then(it, now, say, when)}."


def _then(it: OfferView, now: float, say: Say, when: When | None) -> str:
    """How it goes on with what is not free, like "a running job makes room within about 3 min"."""
    at = "" if it.expected_start_at is None else f" {_about(it.expected_start_at, now, say, when)}"
    if it.waiting is WaitingReason.CLEARING:
        jobs = "a running job makes" if it.yielding == 1 else f"{it.yielding} running jobs make"
        return say(f"{jobs} room" if it.yielding else "one is being made ready") + at
    if it.waiting is WaitingReason.HOLD:
        return say("they are held for others for now")
    before = say(f"{_before(it.ahead)}, and ") if it.ahead else ""
    return before + (say("expected") + at if at else say("when it would start is not known"))


def _about(at: float, now: float, say: Say, when: When | None) -> str:
    if at - now <= _SOON_SECONDS:
        return say(f"within about {max(1, ceil((at - now) / 60))} min")
    return say(format_at(at, now, about=True)) if when is None else when(at)


def _before(ahead: int) -> str:
    return "1 is before you in line" if ahead == 1 else f"{ahead} are before you in line"


def sentence(words: str) -> str:
    """Words of ours or of an admin's, who may have ended them already."""
    return f"{words[:1].upper()}{words[1:]}" + ("" if words.endswith((".", "!", "?")) else ".")


# -- refusals


def not_now(choice: Choice, seen: Seen | None, now: float, waited_seconds: int | None) -> tuple[str, tuple[str, ...]]:
    """Why a start was refused, and what can be done instead; `waited_seconds` where it has waited in vain."""
    title = f"“{title_of(choice.profile)}”"
    it = None if seen is None else seen.offer(choice)
    head = _head(title, it, waited_seconds)
    if seen is None or it is None:
        return head, ("try again in a minute",)
    if it.starts_now:
        return f"{head} It is free again.", ("start again",)
    ways = (*_of_the_same(it, waited_seconds), *instead(choice, seen))
    return " ".join(filter(None, (head, sentence(it.why or it.refused), _when_then(it, now)))), ways


def _head(title: str, it: OfferView | None, waited_seconds: int | None) -> str:
    so = "so your server was not started."
    if waited_seconds is not None:
        return f"{title} was not free within {format_seconds(waited_seconds, parts=2)} of waiting in line, {so}"
    if it is not None and it.waiting in (WaitingReason.QUOTA, WaitingReason.BUDGET):
        return f"{title} is more than you may have now, {so}"
    return f"{title} is not free now, {so}"


def _when_then(it: OfferView, now: float) -> str:
    if it.waiting in (WaitingReason.QUOTA, WaitingReason.BUDGET):
        return "" if not it.never else "To wait would be in vain."
    if it.refused or (it.expected_start_at is None and not it.ahead):
        return ""
    return sentence(_then(it, now, str, None))


def _of_the_same(it: OfferView, waited_seconds: int | None) -> list[str]:
    """What helps whoever wants just this."""
    if it.never or it.refused:
        return []
    if waited_seconds is not None:
        return ["start again to wait on"]
    if it.waiting in (WaitingReason.QUOTA, WaitingReason.BUDGET):
        return ["give something back: stop a server of yours, or release a GPU"]
    return [f"tick “{WAIT_LABEL}” and start again: your server then starts by itself"]


def instead(choice: Choice, seen: Seen) -> tuple[str, ...]:
    """Only what would really start now."""
    others = [it for it in seen.offers if it.profile.name != choice.profile.name]
    free = [it.profile for it in others if (of := it.to(choice.team)) is not None and of.starts_now]
    with_gpus = [it for it in free if it.devices][:_MOST_NAMED]
    without = [it for it in free if not it.devices][:1]
    named = [f"“{title_of(it)}” ({what_of(it)})" for it in with_gpus] + [f"“{title_of(it)}”" for it in without]
    return tuple(f"choose {it}, which starts at once" for it in named)


# -- while it waits


def waiting(it: WorkloadView, profile: Profile, now: float) -> str:
    """Where somebody stands in line, for the page that they wait on."""
    place = "You are first in line." if not it.ahead else sentence(_before(it.ahead))
    at = it.expected_start_at
    then = "" if at is None else f"Expected to start {_about(at, now, str, None)}."
    parts = (f"Waiting in line for “{title_of(profile)}”.", place, then, it.why, "To leave the line, stop the server.")
    return " ".join(filter(None, parts))
