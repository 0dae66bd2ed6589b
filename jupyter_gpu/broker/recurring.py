"""The calendars of recurring jobs: what five fields of cron in a time zone mean as instants, and which of them are due.

As Debian's cron has it at a clock change, by cronsim (docs/recurring.md, docs/decisions/0013-recurring-jobs.md): what
is to run at a fixed hour and minute runs once on each local day; what begins with `*` there goes by real time.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import logging
import os
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, takewhile
from pathlib import Path
from typing import TypeVar

from cronsim import CronSim, CronSimError

from ..errors import GpuError, InvalidAsk
from ..model import MOST_MISSED, Fire, PauseRecurring, Recurring, Submit, World

T = TypeVar("T")

log = logging.getLogger(__name__)

LONGEST_CRON = 200
#: The longest name of the database has 32.
LONGEST_ZONE = 100
FIELDS = 5
DAY_SECONDS = 86_400
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_HINT = (
    'Write minute, hour, day of the month, month and day of the week: "30 2 * * *" is each night at 02:30, '
    '"0 9 * * MON-FRI" each working day at 09:00.'
)
_LOCALTIME = Path("/etc/localtime")
_TIMEZONE = Path("/etc/timezone")
#: Below these the database has zones in a form that is not for us, such as with leap seconds.
_NOT_OURS = ("right/", "posix/")


class Calendar:
    """The instants of one line of cron in one time zone. Refuses what cannot be meant."""

    def __init__(self, cron: str, timezone: str) -> None:
        self.cron, self.timezone = plain_cron(cron), timezone
        self._zone = zone(timezone)
        try:
            self._from(0.0)
        except CronSimError as error:
            raise InvalidAsk(f"the calendar {cron!r} cannot be meant: {_said(error)}", hint=_HINT) from None

    def after(self, at: float) -> Iterator[float]:
        """The instants after this one, as Unix seconds."""
        try:
            for it in self._from(at):
                # At the end of summer time it counts in local time, which comes twice: what lies behind is not meant.
                if (then := it.timestamp()) > at:
                    yield then
        except OverflowError:  # there is no year 10000
            return

    def next_after(self, at: float) -> float | None:
        """The first instant after this one; None where there is none within fifty years."""
        return next(self.after(at), None)

    def missed(self, due_at: float, now: float) -> int:
        """How many instants came after one that was due until now; no more than anybody wants to count."""
        return sum(1 for _ in islice(takewhile(lambda then: then <= now, self.after(due_at)), MOST_MISSED))

    def _from(self, at: float) -> CronSim:
        return CronSim(self.cron, datetime.fromtimestamp(at, self._zone))


def plain_cron(text: str) -> str:
    """Five fields with one blank between them; `@daily` and its like are written out."""
    if len(text) > LONGEST_CRON:
        raise InvalidAsk(
            f"the calendar has {len(text)} characters; {LONGEST_CRON} are the most", hint="Use two recurring jobs."
        )
    words = text.split()
    if len(words) == 1 and words[0].startswith("@"):
        if words[0].lower() not in _SHORT:
            hint = f"Write one of {', '.join(_SHORT)}, or five fields. {_HINT}"
            raise InvalidAsk(f"there is no calendar {words[0][:40]!a}", hint=hint)
        return _SHORT[words[0].lower()]
    if len(words) != FIELDS:
        count = f"{len(words)} field{'' if len(words) == 1 else 's'}"
        raise InvalidAsk(f"the calendar {text[:60]!a} has {count}, and cron has {FIELDS}", hint=_HINT)
    return " ".join(words)


def _said(error: CronSimError) -> str:
    """Like "its day of the week is none"."""
    field = str(error).removeprefix("Bad ").replace("day-of-", "day of the ")
    return f"its {field} is none that comes"


def zone(name: str) -> tzinfo:
    """The time zone of an IANA name. Refuses what is none, and says where the machine knows none at all."""
    if name == "UTC":  # is known without a database
        return UTC
    if len(name) > LONGEST_ZONE:
        raise InvalidAsk(
            f"there is no time zone of {len(name)} characters", hint="Write a name such as Europe/Amsterdam, or UTC."
        )
    try:
        if not name.startswith(_NOT_OURS):
            return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):  # no such file, a folder, no name at all
        pass
    known = zoneinfo.available_timezones()
    if not known:
        raise InvalidAsk(
            f"the time zone {name[:60]!a} cannot be looked up: this machine has no database of time zones",
            hint="Its admin installs tzdata (`apt install tzdata`, or `pip install tzdata`). UTC works without.",
        )
    by_lower = {it.lower(): it for it in known}
    asked = name.strip().lower().replace(" ", "_")
    near = difflib.get_close_matches(asked, [*by_lower, *(it.rpartition("/")[2] for it in by_lower)], n=1)
    meant = [it for lower, it in by_lower.items() if near and near[0] in (lower, lower.rpartition("/")[2])]
    raise InvalidAsk(
        f"there is no time zone {name[:60]!a}",
        hint=f"Did you mean {min(meant)}?" if meant else "Write a name such as Europe/Amsterdam, or UTC.",
    )


def own_timezone(environ: dict[str, str] | None = None) -> str:
    """What the zone of this machine is called: by TZ, else by what /etc/localtime leads to, else by /etc/timezone."""
    told = (os.environ if environ is None else environ).get("TZ", "").removeprefix(":")
    for name in filter(None, (told.rpartition("zoneinfo/")[2], *_names_of_machine())):
        try:
            zone(name)
        except InvalidAsk:
            continue
        return name
    if not told and not _LOCALTIME.exists():  # so the C library takes it
        return "UTC"
    raise InvalidAsk(
        "the broker's machine does not say what its time zone is called",
        hint="Name one: --zone Europe/Amsterdam, or UTC.",
    )


def _names_of_machine() -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield str(_LOCALTIME.readlink()).rpartition("zoneinfo/")[2]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        yield _TIMEZONE.read_text(encoding="ascii").strip()


class Clockwork:
    """Finds what is due. What cannot come now waits until it can, and is told."""

    def __init__(self) -> None:
        #: Set by the API: counts what a submission takes of the disk, or refuses it.
        self.take: Callable[[Submit], None] = lambda _: None
        #: Recurring job -> why it cannot come now: its calendar cannot be read, or there is no room for it.
        self._unread: dict[int, str] = {}
        self._refused: dict[int, str] = {}

    @property
    def held(self) -> dict[int, str]:
        """Why those cannot come that are due and do not, for their owners."""
        return self._refused | self._unread

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with this machine, for operators. It names nobody: whoever asks for the broker reads it."""
        return tuple(sorted({f"Recurring jobs cannot come: {text}." for text in self._unread.values()}))

    def look(self, world: World, now: float, *, anew: bool) -> list[Fire | PauseRecurring]:
        """What is due; `anew`, after a start or a change of the clock, also what awaits a wrong instant."""
        due = self.due(world, now)
        return [*due, *self.astray(world, now)] if anew else [*due]

    def due(self, world: World, now: float) -> list[Fire]:
        """The instants that have come, each with the next one after now and what was missed in between."""
        found = []
        for it in world.recurring.values():
            if it.paused or it.next_at is None or it.next_at > now:
                continue
            if (fire := self._read(it, functools.partial(_fire, it, it.next_at, now))) is not None:
                found.append(fire)
        return found

    def astray(self, world: World, now: float) -> list[PauseRecurring]:
        """The recurring jobs that await another instant than their calendar has, with the one that it has.

        The clock was set back far, or the rules of a zone have changed since. Within a day no instant comes twice.
        """
        found = []
        for it in world.recurring.values():
            if it.paused or (it.next_at is not None and it.next_at <= now):
                continue
            if (awaited := self._read(it, functools.partial(_await, it, now))) and awaited.next_at != it.next_at:
                found.append(awaited)
        return found

    def may_come(self, world: World, command: Fire | PauseRecurring) -> bool:
        """Whether there is room on the disk for what a command leads to. Where there is none it stays due."""
        it = world.recurring.get(command.recurring)
        if it is None or isinstance(command, PauseRecurring):
            return it is not None
        try:
            self.take(it.submit)
        except GpuError as error:
            _hold(self._refused, it, error)
            return False
        self._refused.pop(it.id, None)
        return True

    def forget(self, world: World) -> None:
        """What is not there, or paused, is held back no more."""
        here = {it.id for it in world.recurring.values() if not it.paused}
        for reasons in (self._unread, self._refused):
            for id_ in reasons.keys() - here:
                reasons.pop(id_, None)

    def _read(self, it: Recurring, what: Callable[[Calendar], T]) -> T | None:
        """What is to be known of a calendar. One that cannot be read is told, and keeps no other from coming."""
        try:
            found = what(Calendar(it.cron, it.timezone))
        except Exception as error:  # noqa: BLE001 - a library reads it
            _hold(self._unread, it, error)
            return None
        self._unread.pop(it.id, None)
        return found


def _fire(it: Recurring, due_at: float, now: float, calendar: Calendar) -> Fire:
    next_at, missed = calendar.next_after(now), calendar.missed(due_at, now)
    return Fire(recurring=it.id, due_at=due_at, next_at=next_at, missed=missed)


def _await(it: Recurring, now: float, calendar: Calendar) -> PauseRecurring:
    last = it.last_at if it.last_at is not None and it.last_at <= now + DAY_SECONDS else now
    return PauseRecurring(recurring=it.id, by="", paused=False, next_at=calendar.next_after(max(now, last)))


def _hold(reasons: dict[int, str], it: Recurring, error: Exception) -> None:
    fault: Exception | None = error
    text = f"the calendar {it.cron!r} in {it.timezone} cannot be read"
    if isinstance(error, GpuError):
        text, fault = error.message.rstrip("."), None
    if reasons.get(it.id) != text:
        log.warning("recurring job %d of %r cannot come: %s", it.id, it.owner, text, exc_info=fault)
    reasons[it.id] = text
