"""When a job may start, as people write it: "22:00", "+2h", "2026-12-24 18:00"."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ..errors import InvalidAsk
from ..units import MAX_SECONDS, format_when
from .words import read_length

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_HINT = "Write 22:00 (the next one), +2h, or a date and time such as 2026-12-24T18:00."


def parse_instant(text: str, now: float) -> float:
    """Read an instant as Unix seconds. A time without a zone is of the clock on the caller's wall."""
    text = text.strip()
    if text.startswith("+"):
        return now + read_length(text[1:], what="wait")
    if found := _CLOCK.fullmatch(text):
        return _next(int(found[1]), int(found[2]), now)
    try:
        when = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidAsk(f"The start {text!r} cannot be read as a time.", hint=_HINT) from None
    if when < now:
        raise InvalidAsk(f"The start {text!r} is past: it was {format_when(when, now)}.", hint=_HINT)
    if when - now > MAX_SECONDS:
        raise InvalidAsk(f"The start {text!r} is more than 10 years away, so it is taken for a slip.", hint=_HINT)
    return when


def _next(hour: int, minute: int, now: float) -> float:
    """Find the next instant at which clocks on the wall show this; a day may have 23 or 25 hours."""
    today = datetime.fromtimestamp(now)  # noqa: DTZ006 - the wall's own clock is meant
    for days in (0, 1):
        then = today.replace(hour=hour, minute=minute, second=0, microsecond=0) + timedelta(days=days)
        if then.timestamp() > now:
            break
    return then.timestamp()
