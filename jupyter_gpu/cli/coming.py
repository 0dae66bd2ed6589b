"""What is withheld and what others have reserved for later, as lines of a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from ..model import HoldView, Status, WorkloadView
from ..units import format_when
from .tables import clip, make_table
from .text import ask_text, plural, safe

#: Of what comes so much is shown at once.
MOST_SHOWN = 8


class Coming(NamedTuple):
    """One line: from when to when, what, and whose."""

    from_at: float
    when: str
    what: str
    whose: str


def what_comes(status: Status) -> Iterator[Coming]:
    """The next of it, in the order of time; what is the caller's own stands among their work."""
    held = (_of_hold(it, status.at) for it in status.holds if it.from_at is not None and not it.given_back)
    reserved = (_of_reservation(it, status.at) for it in status.coming)
    found = sorted([*held, *reserved], key=lambda it: it.from_at)
    yield from found[:MOST_SHOWN]


def coming_table(rows: Iterable[Coming]) -> Table:
    """One line for each."""
    table = make_table("when", "what", last="whose")
    for it in rows:
        table.add_row(Text(it.when), Text(it.what), Text(it.whose))
    return table


def _of_hold(it: HoldView, now: float) -> Coming:
    return Coming(it.from_at or now, span(it.from_at, it.until_at, now), held_what(it), whose(it))


def _of_reservation(it: WorkloadView, now: float) -> Coming:
    begin = it.not_before or now
    who = f"reservation {it.id}" + (f", {safe(it.owner)}" if it.owner else "")
    return Coming(begin, span(begin, begin + (it.ask.duration_seconds or 0), now), ask_text(it.ask), who)


def span(begin: float | None, end: float | None, now: float) -> str:
    """Write a time: "Tue 10:00 to 12:00", "until 12:00" where it has begun."""
    if begin is None or end is None:
        return "-"
    day, _, clock = format_when(end, now).rpartition(" ")
    until = clock if format_when(begin, now).rpartition(" ")[0] == day else format_when(end, now)
    return f"until {format_when(end, now)}" if begin <= now else f"{format_when(begin, now)} to {until}"


def held_what(it: HoldView) -> str:
    """Say what is withheld: "4 GPUs", "2 GPUs of class l4"."""
    count = len(it.devices) if it.named else it.count
    return plural(count, "GPU") + (f" of class {safe(it.device_class)}" if it.device_class else "")


def whose(it: HoldView) -> str:
    """Say for whom: "ml101, for you", "maintenance"."""
    if it.maintenance:
        return f"{clip(it.name, 24)}, maintenance"
    names: Sequence[str] = (*it.teams, *(it.users or ()))
    who = "for you" if it.is_mine else f"for {', '.join(map(safe, names))}" if names else "for others"
    return f"{clip(it.name, 24)}, {who}"
