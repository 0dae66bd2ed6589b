"""The hours of weekly holds: what days and times on the wall of a time zone mean as instants. The core is told them.

Where clocks are changed, a window has all of the hours that are named: what begins in the hour that comes twice begins
the first time, what ends in it ends the second time. Where an hour is left out, what would begin or end in it does so
at the instant of the change; a window of which nothing is left does not come on that day (taichino/croniter#48).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING

from ..errors import GpuError, InvalidAsk
from ..model import KNOWN_SECONDS, TOLD_SECONDS, Hold, KnowWindows, Span, World
from .recurring import zone

if TYPE_CHECKING:
    from .loop import Loop

log = logging.getLogger(__name__)

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: Of a day at least so many letters are written.
_LETTERS = 3
LOOK_SECONDS = 60.0
LONGEST_HOURS = 100
_HINT = 'Write days and hours: "tue 10:00-12:00", "mon-fri 09:00-17:00", "mon,wed 22:00-06:00", "daily 12:00-13:00".'
_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*(24:00|(?:[01]?\d|2[0-3]):[0-5]\d)")
_DAY_SECONDS = 86_400


class Weekly:
    """Days of the week and hours of the day in a time zone. Refuses what cannot be meant."""

    def __init__(self, every: str, timezone: str) -> None:
        days, _, hours = every[:LONGEST_HOURS].strip().lower().partition(" ")
        found = _HOURS.fullmatch(hours.strip())
        if found is None:
            raise InvalidAsk(f"the hours {every[:60]!a} cannot be meant", hint=_HINT)
        self.days = frozenset(_days(days, every))
        self.begin = time(int(found[1]), int(found[2]))
        self.end = time() if found[3] == "24:00" else _time(found[3])
        self.timezone, self._zone = timezone, zone(timezone)
        end = "24:00" if found[3] == "24:00" else f"{self.end:%H:%M}"
        self.text = f"{days} {self.begin:%H:%M}-{end}"

    def spans(self, since: float, until: float) -> Iterator[Span]:
        """The windows that are not over at one instant and begin before another."""
        day = datetime.fromtimestamp(since, self._zone).date() - timedelta(days=2)
        last: Span | None = None
        while True:
            day += timedelta(days=1)
            begin = _instant(day, self.begin, self._zone, last=False)
            if begin >= until:
                break
            if day.weekday() in self.days:
                if last is not None and last.until_at > since:
                    yield _cut(last, begin)
                last = self._span(day, begin)
        if last is not None and last.until_at > since:
            yield last

    def _span(self, day: date, begin: float) -> Span | None:
        ends_on = day + timedelta(days=1) if self.end <= self.begin else day
        end = _instant(ends_on, self.end, self._zone, last=True)
        return Span(from_at=begin, until_at=end) if begin < end else None


def _cut(span: Span, at: float) -> Span:
    """Without what reaches into the next one, where an hour came twice."""
    return span if span.until_at <= at else Span(from_at=span.from_at, until_at=at)


def _days(text: str, every: str) -> Iterator[int]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if part == "daily":
            yield from range(7)
        elif _is_day(first) and (not dash or _is_day(last)):
            begin, end = DAYS.index(first[:3]), DAYS.index(last[:3] if dash else first[:3])
            yield from (day % 7 for day in range(begin, end + 1 + (7 if end < begin else 0)))
        else:
            raise InvalidAsk(f"there is no day {part[:20]!a} in {every[:60]!a}", hint=_HINT)


def _is_day(word: str) -> bool:
    """Like "tue" or "tuesday", and nothing that only begins so."""
    return len(word) >= _LETTERS and any(name.startswith(word) for name in _NAMES)


def _time(text: str) -> time:
    hour, _, minute = text.partition(":")
    return time(int(hour), int(minute))


def _instant(day: date, at: time, where: tzinfo, *, last: bool) -> float:
    """When clocks on the wall show this: the first or the last time; where they never do, the instant of the change."""
    local = datetime.combine(day, at)
    one, two = (local.replace(tzinfo=where, fold=fold).timestamp() for fold in (0, 1))
    if one <= two:  # the same, or the hour comes twice
        return two if last else one
    # It is left out: clocks change between the two.
    low, high, offset = two, one, datetime.fromtimestamp(one, where).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, where).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high


class Hours:
    """Tells the core of windows in time. What cannot be read is told to operators, and the windows known stay."""

    def __init__(self) -> None:
        self._unread: dict[int, str] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the calendars of holds, for operators."""
        return tuple(sorted(set(self._unread.values())))

    def due(self, world: World, now: float, *, anew: bool) -> list[KnowWindows]:
        """What is to be told now; `anew`, after a start, also where a zone's rules have changed since."""
        found = []
        for it in world.holds.values():
            if not it.every or it.known_until is None:
                continue
            try:
                word = _told(it, now, anew=anew)
            except GpuError as error:
                said = f"The hours of {it.title} cannot be read: {error.message.rstrip('.')}."
                if self._unread.get(it.id) != said:
                    log.warning("%s", said)
                self._unread[it.id] = said
                continue
            self._unread.pop(it.id, None)
            if word is not None:
                found.append(word)
        for id_ in self._unread.keys() - world.holds.keys():
            del self._unread[id_]
        return found


def _told(it: Hold, now: float, *, anew: bool) -> KnowWindows | None:
    weekly = Weekly(it.every, it.timezone)
    is_due = (it.known_until or 0.0) < now + KNOWN_SECONDS
    windows, known_until = windows_of(weekly, it.until, now if is_due else None, it.known_until, since=now)
    coming = tuple(span for span in it.windows if span.from_at > now)
    is_other = anew and tuple(span for span in windows if span.from_at > now) != coming
    if not is_due and not is_other:
        return None
    return KnowWindows(hold=it.id, windows=windows, known_until=known_until)


def windows_of(
    weekly: Weekly, until: float | None, told_at: float | None, known_until: float | None, *, since: float
) -> tuple[tuple[Span, ...], float | None]:
    """The windows from now on, some weeks ahead or as far as was known, and until when they are all known then."""
    ahead = (known_until or since) if told_at is None else told_at + TOLD_SECONDS
    is_all = until is not None and until <= ahead
    last = until if is_all and until is not None else ahead
    return tuple(weekly.spans(since, last)), None if is_all else ahead


async def tell_hours_for_ever(loop: Loop) -> None:
    """Once a minute, and at the start, tell of the windows that come into sight."""
    is_new = True
    while True:
        try:
            words = loop.hours.due(loop.world, loop.now(), anew=is_new)
            is_new = False
            await asyncio.gather(*map(loop.handle, words), return_exceptions=True)
        except Exception:  # a fault of ours must not end it
            log.exception("cannot look at the hours of holds")
        await asyncio.sleep(LOOK_SECONDS)
