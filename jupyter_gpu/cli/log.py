"""`jupyter gpu log`: what a job printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from .act import goes_on, how_it_stands
from .base import Face, json_option, pass_face
from .see import devices_of
from .text import end_text, safe, sentence
from .words import WorkloadId

if TYPE_CHECKING:
    from ..client.calls import LogPart
    from ..model import WorkloadView

_TAIL_BYTES = 1 << 16
#: What the broker gives at once; lines beyond it are not looked for.
_MOST_TAIL_BYTES = 1 << 22
_NEWLINE = 0x0A


class LogDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `log --json`. Bytes that are no UTF-8 stand as U+FFFD in the text; `--raw` has them."""

    workload: int
    attempt: int
    size_bytes: int
    text: str


@click.command(short_help="Show what a job printed.")
@click.argument("workload", type=WorkloadId(), metavar="ID")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of this attempt; the last if not given.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines, and what follows.")
@click.option("--follow", "-f", "follows", is_flag=True, help="Go on as it prints, until it has ended.")
@click.option("--raw", is_flag=True, help="The bytes as they came, with all that they may do to a terminal.")
@json_option
@pass_face
def log(face: Face, /, workload: int, attempt: int | None, tail: int | None, *, follows: bool, raw: bool) -> None:
    """Show what a job printed, on stdout and stderr alike.

    A progress bar is shown as it last stood, and nothing in the log can steer the terminal, unless --raw.
    With --follow its next attempts are shown too, unless one is named. It ends with 0 however the job ends;
    `wait` has that as its exit code.
    """
    if face.as_json and (raw or follows):
        raise click.UsageError("--json writes one document, so --raw and --follow do not fit.")
    start = 0
    if tail is not None:
        attempt_shown, start = _last_lines(face, workload, attempt, tail)
        attempt = attempt if follows else attempt_shown
    if follows:
        it = follow(face, workload, attempt, raw=raw, start=start)
        face.aside(how_it_stands(it, face.now()))
    elif face.as_json:
        _document(face, workload, attempt, start)
    else:
        _show(face, workload, attempt, raw=raw, start=start)


def _parts(face: Face, workload: int, attempt: int | None, offset: int = 0) -> Iterator[LogPart]:
    """Read what there is now, in parts, so that a large log needs little memory. All are of one attempt."""
    while True:
        part = face.client.log_part(workload, attempt, offset)
        yield part
        if not part.data:
            return
        attempt, offset = part.attempt, part.next_offset


def _last_lines(face: Face, workload: int, attempt: int | None, count: int) -> tuple[int, int]:
    """Find where the last lines begin, from the end and in growing steps: a log may be large."""
    size = _TAIL_BYTES
    while True:
        part = face.client.log_part(workload, attempt, -size, size)
        data, start = part.data, part.next_offset - len(part.data)
        # The end of the last line begins no further one.
        ends = [at for at, byte in enumerate(data[:-1]) if byte == _NEWLINE]
        if count == 0:
            return part.attempt, part.next_offset
        if len(ends) >= count:
            return part.attempt, start + ends[-count] + 1
        if start == 0 or size >= _MOST_TAIL_BYTES:
            return part.attempt, start
        attempt, size = part.attempt, size * 4


def _document(face: Face, workload: int, attempt: int | None, start: int) -> None:
    parts = list(_parts(face, workload, attempt, start))
    data = b"".join(part.data for part in parts)
    text = data.decode("utf-8", "replace")
    face.document(LogDocument(workload=workload, attempt=parts[0].attempt, size_bytes=len(data), text=text))


def _show(face: Face, workload: int, attempt: int | None, *, raw: bool, start: int) -> None:
    from .logtext import LogText

    text, last, shown_attempt = LogText(colours=_has_colours(face)), "", attempt or 1
    for part in _parts(face, workload, attempt, start):
        if part.data and not (raw or last):
            _say_where(face, workload, part.attempt)
        shown_attempt = part.attempt
        if raw:
            face.write_bytes(part.data)
        elif shown := text.feed(part.data, final=not part.data):
            face.write(shown)
            last = shown[-1]
    if raw:
        return
    if last not in ("", "\n"):
        face.write("\n")
    if not last and not start:
        _say_of_nothing(face, workload, shown_attempt)
    elif face.out.is_terminal and shown_attempt > 1 and attempt is None:
        face.aside(f"This is attempt {shown_attempt}. {_before(workload, shown_attempt)}")


def _say_where(face: Face, workload: int, attempt: int | None) -> None:
    """Say to who reads along which GPU a job means by its device 0 (justanhduc/task-spooler#73).

    Beside the log and not in it, so that what is piped is what the job printed.
    """
    uuids = _devices_of_attempt(face, workload, attempt or 1) if face.is_attended else ()
    known = {device.uuid: device for device in devices_of(face)} if uuids else {}
    for place, uuid in enumerate(uuids):
        device = known.get(uuid)
        named = safe(uuid) if device is None else f"GPU {device.number} ({safe(device.name)}, {safe(uuid)})"
        face.aside(f"device {place} in this job = {named}")


def _devices_of_attempt(face: Face, workload: int, attempt: int) -> tuple[str, ...]:
    """What an attempt held, or holds: the devices granted last before it started. Its log may be there before that."""
    granted: tuple[str, ...] = ()
    before = "0"
    for event in face.client.events(workload):
        if event.event == "granted":
            granted = event.devices
        elif event.event == "started":
            if event.note == str(attempt):
                return granted
            before = event.note
    return granted if before == str(attempt - 1) else ()


def _say_of_nothing(face: Face, workload: int, attempt: int) -> None:
    """Say why there is nothing to see, and where there may be more."""
    it = face.client.workload(workload)
    if it.attempt == 0:
        said = f"Job {workload} has not started" + ("." if it.end is None else f"; it ended: {end_text(it)}.")
    elif it.end is not None or attempt < it.attempt or it.state == "queued":
        said = f"Attempt {attempt} of job {workload} printed nothing."
    else:
        said = f"Job {workload} has printed nothing yet."
    face.aside(said + (f" {_before(workload, attempt)}" if attempt > 1 else ""))


def _before(workload: int, attempt: int) -> str:
    return f"The one before: `jupyter gpu log {workload} --attempt {attempt - 1}`."


def follow(face: Face, workload: int, attempt: int | None, *, raw: bool = False, start: int = 0) -> WorkloadView:
    """Show a log as it grows, through all attempts unless one is named, and give the job as it then stands."""
    with face.going_on(lambda: goes_on(face, workload)):
        # Where there is no attempt yet, none is named, and the broker waits for the first.
        shown = attempt or face.client.workload(workload).attempt or None
        while True:
            _follow_one(face, workload, shown, raw=raw, start=start)
            it = face.client.workload(workload)
            if attempt is not None or it.end is not None:
                return it
            face.aside(f"Attempt {shown or 1} is over; the next one follows. {sentence(it.reason)}")
            shown, start = (shown or 1) + 1, 0


def _follow_one(face: Face, workload: int, attempt: int | None, *, raw: bool, start: int) -> None:
    """Show one attempt until it has ended."""
    from .logtext import LogText

    text = LogText(colours=_has_colours(face))
    # Where it can be drawn over, the unfinished line is shown, as the job itself would.
    over = "" if raw else face.draws_over
    ends_with = pending = ""
    is_begun = False
    for data in face.client.follow_log(workload, attempt, start):
        if not (raw or is_begun):
            _say_where(face, workload, attempt)
        is_begun = True
        if raw:
            face.write_bytes(data)
            continue
        shown = text.feed(data)
        if over:
            begin = over if pending or face.out.is_terminal else ""
            pending = _clipped(text.unfinished, face.out.width)
            face.write(f"{begin}{shown}{pending}")
        elif shown:
            face.write(shown)
        ends_with = shown[-1:] or ends_with
    if not raw:
        rest = text.feed(b"", final=True)
        end = "\n" if rest or ends_with not in ("", "\n") else ""
        face.write((over if pending or face.out.is_terminal else "") + rest + end)


def _clipped(text: str, width: int) -> str:
    from rich.text import Text

    shown = Text.from_ansi(text).plain if "\x1b" in text else text
    cut = Text(shown)
    cut.truncate(max(width - 1, 1))
    return cut.plain


def _has_colours(face: Face) -> bool:
    return face.out.color_system is not None and not face.out.no_color
