"""What a stretch of time was spent on: of one's own work for everybody, of all work as far as one may see it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec

from ...core.past import Life
from ...core.report import Reckoning
from ...errors import InvalidAsk, LimitExceeded, NotAllowed
from ...model import Caller, ReportBy, ReportOf, ReportView
from ...units import MAX_SECONDS, format_when
from ..retention import DAY_SECONDS
from .base import Base, endpoint

if TYPE_CHECKING:
    from ...core.events import Event
    from ..loop import Loop

USUAL_SECONDS = 7 * DAY_SECONDS
#: A report of more would keep the others from theirs for too long.
MOST_LIVES = 500_000
_ROWS = 1_000

_NOT_IN_IT = "How busy the GPUs were is not kept, so leased is not the same as used. Cost is not in it."


class ReportQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of what time and of whose work. Without words: of the last seven days; of all work for operators, else own."""

    since: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] | None = None
    from_at: float | None = msgspec.field(default=None, name="from")
    to_at: float | None = msgspec.field(default=None, name="to")
    by: ReportBy | None = None
    of: ReportOf | None = None


class Report(Base):
    """/report."""

    @endpoint(ReportView, query=ReportQuery)
    async def get(self, query: ReportQuery) -> ReportView:
        """Utilisation, waits, ends, failures and repeated work of some time, as far as they are the caller's to see."""
        of = _of(query, self.caller)
        window = _window(query, self.loop.now())
        # One at a time, since each reads much of the store; nobody's many keep others from theirs, or from their lists.
        async with self.application.turn_of(self.caller, "report"), self.application.reporting:
            return await self.unless_gone(_made(self.loop, self.caller, query.by, of, window))


def _of(query: ReportQuery, caller: Caller) -> ReportOf:
    if query.of is ReportOf.ALL and not caller.sees_others:
        raise NotAllowed("A report of all work needs the scope read.", hint="`of=own` is a report of your own.")
    return query.of or (ReportOf.ALL if caller.is_operator else ReportOf.OWN)


def _window(query: ReportQuery, now: float) -> tuple[float, float]:
    if query.since is not None and not (query.from_at is None and query.to_at is None):
        raise InvalidAsk("A report takes `since`, or `from` and `to`: not both.", hint="Leave one of them out.")
    end = now if query.to_at is None else min(query.to_at, now)
    length = USUAL_SECONDS if query.since is None else query.since
    begin = end - length if query.from_at is None else query.from_at
    if not (math.isfinite(begin) and math.isfinite(end) and begin < end):
        raise InvalidAsk(
            "The time of the report does not begin before its end, or is not over yet.",
            hint="`from` and `to` are Unix seconds, and `from` is the earlier one.",
        )
    return begin, end


async def _made(
    loop: Loop, caller: Caller, by: ReportBy | None, of: ReportOf, window: tuple[float, float]
) -> ReportView:
    begin, end = window
    devices = await _of_devices(loop)
    known_from = loop.now() - loop.world.policy.keep_days * DAY_SECONDS
    if devices:
        known_from = max(known_from, devices[0].at)
    notes = [_NOT_IN_IT]
    if known_from > begin:
        notes.append(f"What was before {format_when(known_from, loop.now())} is not known, or not kept any more.")
        begin = min(known_from, end)
    reckoning = Reckoning(devices, begin, end, by=by, named=_named(loop, caller))
    await _take_all(loop, reckoning, caller.name if of is ReportOf.OWN else None)
    return await asyncio.to_thread(reckoning.view, of, notes)


def _named(loop: Loop, caller: Caller) -> Callable[[Life], bool]:
    """Of whose work the caller may know whose it is."""
    if caller.is_operator or (loop.world.policy.names_are_public and caller.sees_others):
        return lambda _: True
    return lambda life: life.owner == caller.name


async def _of_devices(loop: Loop) -> list[Event]:
    """All that ever happened to devices, a page at a time."""
    found: list[Event] = []
    after = 0
    while True:
        rows = await loop.read(lambda store, after=after: store.of_devices(after, _ROWS))  # type: ignore[misc]
        found += [row.event for row in rows]
        if len(rows) < _ROWS:
            return found
        after = rows[-1].number


async def _take_all(loop: Loop, reckoning: Reckoning, owner: str | None) -> None:
    """Read lives a page at a time, and add them up where they are read: on the store's thread, commits in between."""
    window = {"begin": reckoning.begin, "end": reckoning.end}
    after: int | None = 0
    while after is not None:
        after = await loop.read(
            lambda store, after=after: store.lives(after, reckoning.add, owner=owner, **window)  # type: ignore[misc]
        )
        if reckoning.lives > MOST_LIVES:
            raise LimitExceeded(
                f"More than {MOST_LIVES:,} jobs and reservations were there in that time.",
                hint="Ask for a shorter time, and add up what comes of several.",
            )
