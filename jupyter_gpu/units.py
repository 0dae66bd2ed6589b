"""Lengths of time and amounts of memory as people write them: "1h30m" and "20GiB" <-> seconds and bytes.

Every face reads and shows quantities through here, so that a magic, a command and a form mean the same.
What cannot be meant is refused with a sentence: what was read, why not, what to write instead.
"""

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from functools import partial
from typing import NamedTuple

import pytimeparse2

from .errors import InvalidAsk

MAX_SECONDS = 3650 * 86_400
"""Ten years. Nobody means more; who types it has added a digit."""

MAX_BYTES = 2**60
"""One EiB, well inside the 64-bit integers of SQLite and JSON readers."""

MISSING = "n/a"
"""How a quantity reads that nobody could measure. Never 0: that would be a measurement."""

_TIME_STEPS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SIZE_STEPS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

# As the standard has it: GB counts in thousands, GiB in 1024s. A bare G is decimal, which is what it says,
# and errs on the side that still fits the card.
_SIZE_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    letter + suffix: base**power
    for power, letter in enumerate("kmgtpe", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
_SIZE = re.compile(r"([+-]?)\s*(\d{1,20}(?:\.\d{0,20})?)\s*([a-z]*)", re.IGNORECASE)

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ROOM = 40  # characters of what was typed, in a sentence that should fit a line


class _Measure(NamedTuple):
    """What the refusals about one quantity have to say."""

    kind: str
    unit: str
    most: int
    most_in_words: str
    hint: str


_SECONDS = _Measure(
    "a length of time", "second", MAX_SECONDS, "10 years", "Write a length such as 45s, 90m, 2h, 1h30m or 1d."
)
_BYTES = _Measure(
    "an amount of memory",
    "byte",
    MAX_BYTES,
    "1 EiB",
    "Write an amount such as 500MB, 20GB or 20GiB: GB counts in thousands, GiB in 1024s.",
)


def parse_seconds(text: str | float, *, what: str = "duration", allow_zero: bool = False) -> int:
    """Read "2h", "1h30m", "1.5h", "7 days" or a plain number of seconds; `what` names it in the refusal."""
    seconds = _read_seconds(text) if isinstance(text, str) else _plain(text)
    return _accept(text, seconds, what, _SECONDS, allow_zero=allow_zero)


def parse_bytes(text: str | float, *, what: str = "size", allow_zero: bool = False) -> int:
    """Read "20GiB", "500MB", "1.5 TiB" or a plain number of bytes; `what` names it in the refusal."""
    size = _read_bytes(text) if isinstance(text, str) else _plain(text)
    return _accept(text, size, what, _BYTES, allow_zero=allow_zero)


def format_seconds(seconds: float | None, *, parts: int = len(_TIME_STEPS)) -> str:
    """Write a length as parse_seconds reads it; `parts=2` keeps the two largest units, enough for a table."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    rest = abs(round(seconds))
    words: list[tuple[int, str]] = []
    for unit, length in _TIME_STEPS:
        count, rest = divmod(rest, length)
        # Parts are counted from the first that is not empty, so that 1d0h5m in two parts is 1d.
        if count or words:
            words.append((count, unit))
    shown = "".join(f"{count}{unit}" for count, unit in words[:parts] if count)
    return ("-" if seconds < 0 and shown else "") + (shown or "0s")


def format_bytes(size: float | None) -> str:
    """Write an amount in its largest binary unit, to one decimal, as parse_bytes reads it: "71.3GiB"."""
    if size is None or not math.isfinite(size):
        return MISSING
    count = abs(round(size))
    for power, unit in enumerate(_SIZE_STEPS):
        # Integers all the way: tenths of the unit, rounded half up, decide whether the next unit is due.
        tenths = (count * 20 // 1024**power + 1) // 2
        if tenths < 10 * 1024 or unit == _SIZE_STEPS[-1]:
            break
    whole, tenth = divmod(tenths, 10)
    sign = "-" if size < 0 and tenths else ""
    return f"{sign}{whole}.{tenth}{unit}" if tenth else f"{sign}{whole}{unit}"


def bytes_apart(size: int, *others: int) -> tuple[str, ...]:
    """Write amounts that a sentence compares: each other one that differs from the first reads otherwise, too.

    "20GiB" and "19.999GiB": with as many decimals as it takes, else in a smaller unit.
    """
    return _apart(size, others, [format_bytes, *(partial(_in_unit, *it) for it in _FINER)])


def hours_apart(milliseconds: int, *others: int) -> tuple[str, ...]:
    """As `bytes_apart`, of hours of use."""
    return _apart(milliseconds, others, [partial(format_hours, decimals=it) for it in range(1, 8)])


def _apart(one: int, others: Sequence[int], ways: Sequence[Callable[[int], str]]) -> tuple[str, ...]:
    for write in ways:
        first, rest = write(one), [write(it) for it in others]
        if all((text == first) == (it == one) for text, it in zip(rest, others, strict=True)):
            break
    return (first, *rest)


def _in_unit(power: int, decimals: int, size: int) -> str:
    """In this unit, or in the largest one that the amount fills where that is smaller."""
    while power and abs(size) < 1024**power:
        power -= 1
    number = f"{Decimal(size) / 1024**power:.{decimals}f}"
    return (number.rstrip("0").rstrip(".") if decimals else number) + _SIZE_STEPS[power]


#: Which unit and how many decimals, ever finer; the last says each byte.
_FINER = ((6, 2), (6, 3), (2, 1), (2, 3), (1, 3), (0, 0))


def format_hours(milliseconds: int, *, decimals: int = 1) -> str:
    """Hours of use, to one decimal if nothing else is said, like "1.5"; the unit is said beside them."""
    parts = 10**decimals
    count = round(milliseconds * parts / 3_600_000)
    return f"{count // parts}" if count % parts == 0 else f"{count / parts:.{decimals}f}".rstrip("0")


def format_when(when: float | None, now: float, *, tz: tzinfo | None = None) -> str:
    """Write an instant as people say it at `now`: "14:05", "tomorrow 14:05", "Thu 14:05", "2026-12-24 14:05".

    Both are Unix seconds; without `tz` the clock on the reader's wall counts.
    """
    if when is None:
        return MISSING
    then = datetime.fromtimestamp(when, tz)
    days = (then.date() - datetime.fromtimestamp(now, tz).date()) // timedelta(days=1)
    clock = f"{then:%H:%M}"
    if days == 0:
        return clock
    if days in (-1, 1):
        return f"{'tomorrow' if days == 1 else 'yesterday'} {clock}"
    # A bare weekday always means the coming one, and the one a week from now would be today's name.
    if 1 < days < len(_WEEKDAYS):
        return f"{_WEEKDAYS[then.weekday()]} {clock}"
    return f"{then:%Y-%m-%d} {clock}"


def format_at(when: float, now: float, *, about: bool = False, tz: tzinfo | None = None) -> str:
    """Write an instant as it stands in a sentence: "at 14:05", "tomorrow at 14:05", "on Thu at about 14:05"."""
    day, _, clock = format_when(when, now, tz=tz).rpartition(" ")
    at = f"at about {clock}" if about else f"at {clock}"
    if day in ("", "yesterday", "tomorrow"):
        return f"{day} {at}".lstrip()
    return f"on {day} {at}"


def format_between(since: float, until: float, now: float, *, tz: tzinfo | None = None) -> str:
    """Write a range as it stands in a sentence: "between 14:05 and 16:30"; of one minute "at about 14:05"."""
    first, last = format_when(since, now, tz=tz), format_when(until, now, tz=tz)
    return format_at(since, now, about=True, tz=tz) if first == last else f"between {first} and {_rest_of(last, first)}"


def format_span(since: float | None, until: float | None, now: float, *, tz: tzinfo | None = None) -> str:
    """Write a range where there is little room: "14:05 to 16:30", and "from 14:05" where it is open."""
    if since is None or until is None:
        return MISSING if since is None else f"from {format_when(since, now, tz=tz)}"
    first, last = format_when(since, now, tz=tz), format_when(until, now, tz=tz)
    return f"about {first}" if first == last else f"{first} to {_rest_of(last, first)}"


def _rest_of(last: str, first: str) -> str:
    """The clock alone where the day was just said."""
    day, _, clock = last.rpartition(" ")
    return clock if day and day == first.rpartition(" ")[0] else last


def ordinal(number: int) -> str:
    """Write a place: "first", "2nd", "11th"."""
    if number == 1:
        return "first"
    tens = number % 100
    return f"{number}{'th' if 10 < tens < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"  # noqa: PLR2004


def _read_seconds(text: str) -> float | None:
    # 1:30 is ninety seconds to some programs and ninety minutes to people, so we do not guess; and 1_000 is
    # a number to Python alone.
    if ":" in text or "_" in text:
        return None
    try:
        return _plain(pytimeparse2.parse(text, raise_exception=True))
    except OverflowError:
        return math.inf
    except (ValueError, AttributeError):  # the latter where the text has lines
        return None


def _read_bytes(text: str) -> Decimal | None:
    found = _SIZE.fullmatch(text.strip())
    unit = _SIZE_UNITS.get(found[3].lower()) if found else None
    if found is None or unit is None:
        return None
    return Decimal(found[1] + found[2]) * unit


def _plain(number: object) -> float | None:
    # True is a number to Python and a slip to everybody else; NaN is no number to anybody.
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number:  # noqa: PLR0124
        return None
    return number


def _accept(text: object, amount: float | Decimal | None, what: str, measure: _Measure, *, allow_zero: bool) -> int:
    """Round to whole units, or refuse with the reason."""
    if amount is None:
        why = f"cannot be read as {measure.kind}"
    elif amount < 0:
        why = "is negative"
    elif amount > measure.most:
        why = f"is more than {measure.most_in_words}, so it is taken for a slip"
    elif amount == 0 and not allow_zero:
        why = "is zero, which asks for nothing"
    elif amount > 0 and round(amount) == 0:
        why = f"is less than one {measure.unit}"
    else:
        return round(amount)
    shown = repr(text)
    if len(shown) > _ROOM:
        shown = f"{shown[: _ROOM - 4]}...{shown[-1]}"
    raise InvalidAsk(f"The {what} {shown} {why}.", hint=measure.hint)
