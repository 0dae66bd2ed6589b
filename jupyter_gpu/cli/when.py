"""When something begins, as people write it: "22:00", "+2h", "tomorrow 9:00", "tue 10:00", "2026-12-24 18:00"."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ..errors import InvalidAsk
from ..units import MAX_SECONDS, format_when
from .words import read_length

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DAY = re.compile(r"(today|tomorrow|[a-z]{3,9})\s+([01]?\d|2[0-3]):([0-5]\d)")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHORTEST = 3
_HINT = "Write 22:00 (the next one), +2h, tomorrow 9:00, tue 10:00, or a date and time such as 2026-12-24T18:00."


def parse_instant(text: str, now: float) -> float:
    """Read an instant as Unix seconds. A time without a zone is of the clock on the caller's wall."""
    text = text.strip()
    if text.startswith("+"):
        return now + read_length(text[1:], what="wait")
    if found := _CLOCK.fullmatch(text):
        return _next(int(found[1]), int(found[2]), now)
    if found := _DAY.fullmatch(text.lower()):
        when = _on_day(found[1], int(found[2]), int(found[3]), now)
    else:
        try:
            when = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            when = None
    if when is None:
        raise InvalidAsk(f"The start {text!r} cannot be read as a time.", hint=_HINT)
    if when < now:
        raise InvalidAsk(f"The start {text!r} is past: it was {format_when(when, now)}.", hint=_HINT)
    if when - now > MAX_SECONDS:
        raise InvalidAsk(f"The start {text!r} is more than 10 years away, so it is taken for a slip.", hint=_HINT)
    return when


def _on_day(day: str, hour: int, minute: int, now: float) -> float | None:
    """Find a time of today, of tomorrow, or of the next day of that name; None where there is no such day."""
    today = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)  # noqa: DTZ006
    if day in ("today", "tomorrow"):
        return (today + timedelta(days=day == "tomorrow")).timestamp()
    named = [place for place, name in enumerate(_DAYS) if name.startswith(day) and len(day) >= _SHORTEST]
    if not named:
        return None
    then = today + timedelta(days=(named[0] - today.weekday()) % 7)
    return then.timestamp() if then.timestamp() > now else (then + timedelta(days=7)).timestamp()


def _next(hour: int, minute: int, now: float) -> float:
    """Find the next instant at which clocks on the wall show this; a day may have 23 or 25 hours."""
    today = datetime.fromtimestamp(now)  # noqa: DTZ006 - the wall's own clock is meant
    for days in (0, 1):
        then = today.replace(hour=hour, minute=minute, second=0, microsecond=0) + timedelta(days=days)
        if then.timestamp() > now:
            break
    return then.timestamp()
