"""`jupyter gpu log`: what a job printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from .base import Face, WorkloadId, json_option, pass_face

if TYPE_CHECKING:
    from ..client.calls import LogPart


class LogDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `log --json`. Bytes that are no UTF-8 stand as U+FFFD in the text; `--raw` has them."""

    workload: int
    attempt: int
    size_bytes: int
    text: str


@click.command(short_help="Show what a job printed.")
@click.argument("workload", type=WorkloadId(), metavar="ID")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of this attempt; the last if not given.")
@click.option("--follow", "-f", "follows", is_flag=True, help="Go on as it prints, until it has ended.")
@click.option("--raw", is_flag=True, help="The bytes as they came, with all that they may do to a terminal.")
@json_option
@pass_face
def log(face: Face, workload: int, attempt: int | None, follows: bool, raw: bool) -> None:
    """Show what a job printed, on stdout and stderr alike.

    A progress bar is shown as it last stood, and nothing in the log can steer the terminal, unless --raw.
    """
    if face.as_json and (raw or follows):
        raise click.UsageError("--json writes one document, so --raw and --follow do not fit.")
    if follows:
        follow(face, workload, attempt, raw=raw)
    elif face.as_json:
        _document(face, workload, attempt)
    else:
        _show(face, workload, attempt, raw=raw)


def _parts(face: Face, workload: int, attempt: int | None) -> Iterator[LogPart]:
    """Read what there is now, in parts, so that a large log needs little memory. All are of one attempt."""
    offset = 0
    while True:
        part = face.client.log_part(workload, attempt, offset)
        yield part
        if not part.data:
            return
        attempt, offset = part.attempt, part.next_offset


def _document(face: Face, workload: int, attempt: int | None) -> None:
    parts = list(_parts(face, workload, attempt))
    data = b"".join(part.data for part in parts)
    text = data.decode("utf-8", "replace")
    face.document(LogDocument(workload=workload, attempt=parts[0].attempt, size_bytes=len(data), text=text))


def _show(face: Face, workload: int, attempt: int | None, *, raw: bool) -> None:
    from .logtext import LogText

    text, last = LogText(colours=_has_colours(face)), ""
    for part in _parts(face, workload, attempt):
        if raw:
            face.write_bytes(part.data)
        elif shown := text.feed(part.data, final=not part.data):
            face.write(shown)
            last = shown[-1]
    if raw:
        return
    if last not in ("", "\n"):
        face.write("\n")
    if not last:
        face.aside(f"Job {workload} has printed nothing yet.")


def follow(face: Face, workload: int, attempt: int | None, *, raw: bool = False) -> None:
    """Show a log as it grows, until its attempt has ended."""
    from .logtext import LogText

    text = LogText(colours=_has_colours(face))
    # On a terminal the unfinished line is shown and drawn over, as the job itself would.
    live = face.out.is_terminal and not raw
    ends_with = ""
    with face.going_on(f"Job {workload} goes on; see more with `jupyter gpu log {workload} --follow`."):
        for data in face.client.follow_log(workload, attempt):
            if raw:
                face.write_bytes(data)
                continue
            shown = text.feed(data)
            if live:
                face.write(f"\r\x1b[K{shown}{_clipped(text.unfinished, face.out.width)}")
            elif shown:
                face.write(shown)
            ends_with = shown[-1:] or ends_with
    if not raw:
        rest = text.feed(b"", final=True)
        end = "\n" if rest or ends_with not in ("", "\n") else ""
        face.write(("\r\x1b[K" if live else "") + rest + end)


def _clipped(text: str, width: int) -> str:
    from rich.text import Text

    shown = Text.from_ansi(text).plain if "\x1b" in text else text
    cut = Text(shown)
    cut.truncate(max(width - 1, 1))
    return cut.plain


def _has_colours(face: Face) -> bool:
    return face.out.color_system is not None and not face.out.no_color
