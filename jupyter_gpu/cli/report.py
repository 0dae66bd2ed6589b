"""`jupyter gpu report`: what some time was spent on, who waited, what failed, and what was done twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from .base import Face, json_option, pass_face
from .words import Seconds

if TYPE_CHECKING:
    from rich.table import Table

    from ..model import ReportView

_HOUR = 3600
_LITTLE_PERCENT = 10


@click.command(short_help="Show what was used, who waited, what was lost.")
@click.option("--since", type=Seconds("time"), default="7d", metavar="LENGTH", help="So far back; 7d if not given.")
@click.option("--by", type=click.Choice(["user", "team", "queue", "end"]), help="A line for each of these, too.")
@click.option("--all", "whose", flag_value="all", help="Of all work, as far as you may see it; operators' usual.")
@click.option("--mine", "whose", flag_value="own", help="Of your own work; the usual of all others.")
@json_option
@pass_face
def report(face: Face, since: int, by: str | None, whose: str | None) -> None:
    """Show what the GPUs were leased for, how long work waited, how it ended, and how much was done twice.

    Waits are from the moment nothing of its own kept the work (a start that was asked for, others that it comes after,
    a pause) to its first GPU.
    """
    found = face.client.report(since_seconds=since, by=by, of=whose)
    if face.as_json:
        face.document(found)
        return
    face.say(*_parts(found, face.now()))
    for note in found.notes:
        face.aside(note)


def _parts(found: ReportView, now: float) -> Iterator[str | Table]:
    """The head, then the lines of the queues, then those that were asked for."""
    yield _head(found, now)
    if found.waits:
        yield ""
        yield _waits(found)
    if found.by is not None:
        yield ""
        yield _rows(found) if found.rows else "There was no work."


def _head(found: ReportView, now: float) -> str:
    from ..units import format_seconds, format_when

    whose = "All work" if found.of == "all" else "Your work"
    length = format_seconds(found.end_at - found.begin_at, parts=2)
    end = "now" if now - found.end_at < _HOUR else format_when(found.end_at, now)
    lines = [f"{whose} from {format_when(found.begin_at, now)} to {end} ({length})"]
    facts = dict(_facts(found, now))
    widest = max(map(len, facts))
    return "\n".join([*lines, *(f"{name:<{widest}}  {said}" for name, said in facts.items())])


def _facts(found: ReportView, now: float) -> Iterator[tuple[str, str]]:
    from .text import named, plural

    time, spent = found.device_time, found.spent
    ill = f"; {_hours(time.unusable_seconds)} of them cordoned or unwell" if time.unusable_seconds else ""
    leased = named(f"{_hours(time.leased_seconds)} of {_hours(time.there_seconds)}", "GPU-hour") + " leased"
    yield "GPUs", f"{time.devices}: {leased}{_percent(time.leased_share)}{ill}"
    yield "jobs", _ends(spent.jobs, found.job_ends, found.jobs_unfinished)
    yield "reservations", _ends(spent.reservations, found.reservation_ends, found.reservations_unfinished)
    if found.idle_given_back:
        freed = f"{named(_hours(found.idle_given_back_device_seconds), 'GPU-hour')} of what they had bought"
        yield "idle", f"{plural(found.idle_given_back, 'reservation')} given back, with {freed}"
    if found.failures:
        rate = spent.failures_per_device_hour
        often = "" if rate is None else f", {rate:.2g} in a GPU-hour of work"
        yield "failures", f"{plural(spent.failures, 'attempt')} ({_counted(found.failures)}){often}"
    yield "preemptions", str(spent.preemptions)
    yield "done again", _again(found, now)


def _again(found: ReportView, now: float) -> str:
    from .text import moment, named, plural, safe, took

    spent, loss = found.spent, found.longest_loss
    unknown = f"; of {plural(found.losses_not_known, 'attempt')} it is not known" if found.losses_not_known else ""
    if not spent.repeated_seconds:
        return f"nothing{unknown}"
    worked = named(f"{_hours(spent.repeated_device_seconds)} of {_hours(spent.worked_device_seconds)}", "GPU-hour")
    said = f"{took(spent.repeated_seconds)}: {worked} of work{_percent(spent.repeated_share)}"
    if loss is None:
        return said + unknown
    whose = "" if loss.workload is None else f", of job {loss.workload}"
    whose += "" if loss.owner is None or found.of == "own" else f" of {safe(loss.owner)}"
    return f"{said}; at once at most {took(loss.seconds)}{whose} ({moment(loss.at, now)}){unknown}"


def _ends(count: int, ends: Mapping[str, int], unfinished: int) -> str:
    if not count:
        return "none"
    counted = _counted({**ends, "not over": unfinished} if unfinished else ends)
    return f"{count}: {counted}"


def _counted(them: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in them.items())


def _hours(seconds: float) -> str:
    """Hours: to a tenth, and of few to a hundredth."""
    from ..units import format_hours

    return format_hours(round(seconds * 1000), decimals=1 if seconds >= 10 * _HOUR else 2)


def _percent(share: float | None) -> str:
    """In brackets; of little to a tenth."""
    if share is None:
        return ""
    percent = 100 * share
    return f" ({percent:.{1 if 0 < percent < _LITTLE_PERCENT else 0}f} %)"


def _waits(found: ReportView) -> Table:
    from ..units import MISSING, format_seconds
    from .tables import make_table
    from .text import safe

    table = make_table("queue", ">got GPUs", ">median wait", ">9 of 10 within", ">longest", last="waits still")
    for it in found.waits:
        lengths = (it.median_seconds, it.p90_seconds, it.longest_seconds)
        said = [MISSING if seconds is None else format_seconds(seconds, parts=2) for seconds in lengths]
        still = "" if not it.waiting else f"{it.waiting}, up to {format_seconds(it.waiting_longest_seconds, parts=2)}"
        kept = f"{it.left_out} of arrays not counted" if it.left_out else ""
        table.add_row(safe(it.queue), str(it.granted), *said, "; ".join(filter(None, (still, kept))) or "0")
    return table


def _rows(found: ReportView) -> Table:
    from .tables import clip, make_table

    table = make_table(
        ">jobs", ">reservations", ">GPU-hours", ">done again", ">preempted", ">failures", last=str(found.by)
    )
    for row in found.rows:
        again = _hours(row.repeated_device_seconds) + (_percent(row.repeated_share) if row.repeated_seconds else "")
        counts = (row.jobs, row.reservations, _hours(row.leased_device_seconds), again, row.preemptions, row.failures)
        table.add_row(*map(str, counts), clip(row.name, 40) if row.name else "others")
    return table
