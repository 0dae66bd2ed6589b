"""Reading a trace of jobs: CSV with a header, or the Standard Workload Format. Lines in, jobs out; nothing is opened.

What cannot be meant is refused with the number of its line: a figure that rests on a row read wrongly is worse than
none. What is no work for a GPU (no devices, a run time that nobody knows) is left out, and said.
"""

from __future__ import annotations

import csv
import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite

import msgspec

from ...errors import InvalidAsk
from ...units import MAX_SECONDS

#: More devices in one ask, or an instant so far away (the year 5138), is a slip and no job.
MOST_DEVICES = 1_000_000
MOST_INSTANT_S = 10**11
#: More jobs than this fill the memory of a laptop.
MOST_JOBS = 5_000_000

#: What a column may be called, the usual name first.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "job_id": ("job_id", "id"),
    "user": ("user",),
    "team": ("team_or_vc", "team", "vc"),
    "submit_s": ("submit_s",),
    "gpus": ("gpus",),
    "duration_s": ("duration_s",),
    "limit_s": ("limit_s",),
    "queue": ("queue",),
    "status": ("status",),
}
_REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
_FORMATS = "docs/simulate.md describes both formats."
_SWF_FIELDS = 18
_NO_DEVICES = "without a GPU"
_NEVER_RAN = "that never ran, or of which nobody knows how long"


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a trace, in whole seconds from an origin that the trace chose."""

    job_id: str
    #: Who submitted it; where the trace names nobody, its team stands in.
    user: str
    team: str
    submit_s: int
    gpus: int
    #: How long it ran once it had started, all its attempts together.
    duration_s: int
    limit_s: int | None = None
    queue: str | None = None
    status: str = ""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs by submission (those of one second as the file has them), and what of it they are not."""

    jobs: tuple[TraceJob, ...]
    #: How many rows were left out, by why, as in "3 jobs without a GPU".
    left_out: dict[str, int] = {}
    #: Whether it names users; else their teams stand in for them.
    has_users: bool = True


def read_trace(lines: Iterable[str], *, name: str = "the trace") -> Trace:
    """Read either format: what begins with `;`, or has numbers and blanks only, is a Standard Workload Format file."""
    walk = iter(lines)
    first = next((line for line in walk if line.removeprefix("\ufeff").strip()), None)
    if first is None:
        raise InvalidAsk(f"{name} is empty.", hint=_FORMATS)
    # Of what was blank before the first line no line is counted; nobody writes blank lines there on purpose.
    whole = _put_back(first, walk)
    begin = first.removeprefix("\ufeff").lstrip()
    is_swf = begin.startswith(";") or len(begin.split()) == _SWF_FIELDS
    return read_swf(whole, name=name) if is_swf else read_csv(whole, name=name)


def _put_back(first: str, rest: Iterable[str]) -> Iterator[str]:
    yield first
    yield from rest


def read_csv(lines: Iterable[str], *, name: str = "the trace") -> Trace:
    """Read a CSV whose header names the columns, in any order; columns that mean nothing here are passed over."""
    rows = csv.reader(lines, strict=True)
    places: dict[str, int] = {}
    jobs: list[TraceJob] = []
    left_out = Counter[str]()
    has_users = False
    try:
        places = _places(next(rows, []), name)
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            job = _of_row(row, places, f"{name}, line {rows.line_num}")
            has_users |= bool(_cell(row, places, "user"))
            _take(job, jobs, left_out)
    except csv.Error as error:
        raise InvalidAsk(f"{name}, line {rows.line_num}: {error}.", hint=_FORMATS) from None
    return _made(jobs, left_out, name, has_users=has_users)


def _places(header: Sequence[str], name: str) -> dict[str, int]:
    """Which column is which."""
    titles = [title.strip().removeprefix("\ufeff").lower() for title in header]
    places = {
        column: titles.index(word) for column, words in _COLUMNS.items() for word in reversed(words) if word in titles
    }
    missing = [column for column in _REQUIRED if column not in places]
    if not missing and "user" not in places and "team" not in places:
        missing = ["user"]
    if missing:
        raise InvalidAsk(f"{name} has no column {missing[0]!r}{_meant(missing[0], titles)}.", hint=_FORMATS)
    twice = sorted(title for title, count in Counter(titles).items() if count > 1 and title)
    if twice:
        raise InvalidAsk(f"{name} has two columns {twice[0]!r}.", hint="Leave one of them.")
    return places


def _meant(column: str, titles: Sequence[str]) -> str:
    near = difflib.get_close_matches(column, titles, n=1)
    if near:
        return f"; it has {near[0]!r}"
    return "; its first line names none of the columns" if not {*titles} & {*_COLUMNS} else ""


def _cell(row: Sequence[str], places: Mapping[str, int], column: str) -> str:
    at = places.get(column)
    return "" if at is None or at >= len(row) else row[at].strip()


def _of_row(row: Sequence[str], places: Mapping[str, int], where: str) -> TraceJob:
    if len(row) <= max(places[column] for column in _REQUIRED):
        raise InvalidAsk(f"{where} has {len(row)} cells, which is fewer than its columns.", hint=_FORMATS)
    job_id = _cell(row, places, "job_id")
    user, team = _cell(row, places, "user"), _cell(row, places, "team")
    if not job_id:
        raise InvalidAsk(f"{where}: the job has no job_id.", hint="Number the rows.")
    if not (user or team):
        raise InvalidAsk(f"{where}: job {job_id!r} has neither a user nor a team.", hint="Name one of them.")
    limit = _cell(row, places, "limit_s")
    return TraceJob(
        job_id=job_id,
        user=user or team,
        team=team or user,
        submit_s=_number(_cell(row, places, "submit_s"), "submit_s", where, MOST_INSTANT_S),
        gpus=_number(_cell(row, places, "gpus"), "gpus", where, MOST_DEVICES),
        duration_s=_number(_cell(row, places, "duration_s"), "duration_s", where, MAX_SECONDS),
        limit_s=_number(limit, "limit_s", where, MAX_SECONDS) or None if limit else None,
        queue=_cell(row, places, "queue") or None,
        status=_cell(row, places, "status"),
    )


def _number(text: str, column: str, where: str, most: int) -> int:
    """A whole number, also where it was written with a point; a part of a second is rounded, a part of a GPU is not."""
    value = _as_number(text)
    if value is None or not isfinite(value):
        raise InvalidAsk(f"{where}: {column} is {text[:40]!r}, which is no number.", hint="Write seconds as 5400.")
    if value < 0:
        raise InvalidAsk(f"{where}: {column} is {text[:40]}, and cannot be below 0.", hint=_FORMATS)
    if value > most:
        raise InvalidAsk(f"{where}: {column} is {text[:40]}; the most that can be meant is {most}.", hint=_FORMATS)
    if column == "gpus" and value != int(value):
        raise InvalidAsk(f"{where}: gpus is {text[:40]}; only whole GPUs can be replayed.", hint="Round it up.")
    return round(value)


#: Longer than any number that can be meant; Python takes seconds to read one with a million digits.
_LONGEST_NUMBER = 40


def _as_number(text: str) -> float | None:
    if not text.isascii() or len(text) > _LONGEST_NUMBER or "_" in text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _take(job: TraceJob, jobs: list[TraceJob], left_out: Counter[str]) -> None:
    if job.gpus:
        jobs.append(job)
    else:
        left_out[_NO_DEVICES] += 1


def _made(jobs: list[TraceJob], left_out: Counter[str], name: str, *, has_users: bool) -> Trace:
    if len(jobs) > MOST_JOBS:
        raise InvalidAsk(
            f"{name} has {len(jobs):,} jobs; {MOST_JOBS:,} are the most.", hint="Cut it, and replay a part of it."
        )
    twice = next((id_ for id_, count in Counter(job.job_id for job in jobs).items() if count > 1), None)
    if twice is not None:
        raise InvalidAsk(
            f"{name} has the job {twice!r} more than once.", hint="Number its rows, or keep one row of each job."
        )
    if not jobs:
        raise InvalidAsk(f"{name} has no job that ran on a GPU.", hint=_FORMATS)
    return Trace(jobs=tuple(sorted(jobs, key=lambda job: job.submit_s)), left_out=dict(left_out), has_users=has_users)


# -- Standard Workload Format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html

#: Field -> its place. -1 is unknown everywhere.
_ID, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _STATUS, _USER, _GROUP, _QUEUE = 0, 1, 3, 4, 7, 8, 10, 11, 12, 14
_SWF_STATUS = {0: "failed", 1: "completed", 5: "cancelled"}


def read_swf(lines: Iterable[str], *, name: str = "the trace") -> Trace:
    """Read a Standard Workload Format file: processors are taken for GPUs, the requested time for the limit."""
    jobs: list[TraceJob] = []
    left_out = Counter[str]()
    has_users = False
    for number, line in enumerate(lines, 1):
        text = line.removeprefix("\ufeff").partition(";")[0].strip()
        if not text:
            continue
        fields = _swf_fields(text, f"{name}, line {number}")
        job = _of_fields(fields)
        has_users |= fields[_USER] >= 0
        if job is None:
            left_out[_NEVER_RAN] += 1
        else:
            _take(job, jobs, left_out)
    return _made(jobs, left_out, name, has_users=has_users)


def _swf_fields(text: str, where: str) -> list[int]:
    words = text.split()
    if len(words) != _SWF_FIELDS:
        raise InvalidAsk(
            f"{where} has {len(words)} fields, and a line of the Standard Workload Format has {_SWF_FIELDS}.",
            hint=_FORMATS,
        )
    found = []
    for place, word in enumerate(words):
        value = _as_number(word)
        most = {_ALLOCATED: MOST_DEVICES, _REQUESTED: MOST_DEVICES, _RUN: MAX_SECONDS}.get(place, MOST_INSTANT_S)
        if value is None or not isfinite(value) or value < -1 or value > most:
            raise InvalidAsk(
                f"{where}: field {place + 1} is {word[:40]!r}; a number from -1 (not known) to {most} was expected.",
                hint=_FORMATS,
            )
        found.append(round(value))
    return found


def _of_fields(fields: Sequence[int]) -> TraceJob | None:
    """The job, or None where it never ran or nobody knows for how long."""
    submit, ran = fields[_SUBMIT], fields[_RUN]
    devices = fields[_ALLOCATED] if fields[_ALLOCATED] > 0 else fields[_REQUESTED]
    if submit < 0 or ran < 0 or devices < 0:
        return None
    group = f"group {fields[_GROUP]}" if fields[_GROUP] >= 0 else ""
    user = f"user {fields[_USER]}" if fields[_USER] >= 0 else group or "somebody"
    limit = min(fields[_LIMIT], MAX_SECONDS)
    return TraceJob(
        job_id=str(fields[_ID]),
        user=user,
        team=group or user,
        submit_s=submit,
        gpus=devices,
        duration_s=ran,
        limit_s=limit if limit > 0 else None,
        queue=str(fields[_QUEUE]) if fields[_QUEUE] >= 0 else None,
        status=_SWF_STATUS.get(fields[_STATUS], ""),
    )
