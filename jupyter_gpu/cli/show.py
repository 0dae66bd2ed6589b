"""`jupyter gpu show` and `events`: all that is known of one workload, and its story."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from .base import Face, json_option, pass_face
from .words import WorkloadId

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..model import EventView, JobSpec, SoonerView, WorkloadView


@click.command(short_help="Show all that is known of one workload.")
@click.argument("workload", type=WorkloadId(), metavar="ID")
@click.option("--script", "part", flag_value="script", help="Write the script as it was submitted, and nothing else.")
@click.option("--diff", "part", flag_value="diff", help="Write what differed from the commit, for `git apply`.")
@click.option("--packages", "part", flag_value="packages", help="Write which packages its Python had.")
@json_option
@pass_face
def show(face: Face, workload: int, part: str | None) -> None:
    """Show all that is known of a workload: how it stands and why, what it asked for, and how to go on.

    Of a job also what was recorded when it was submitted, such as the git commit, and what its attempts came to.
    """
    from .see import held_by

    if part is not None:
        if face.as_json:
            raise click.UsageError(f"--{part} writes a text and --json one document: choose one.")
        face.write_bytes(face.client.record(workload, part))
        return
    it = face.client.workload(workload)
    if face.as_json:
        face.document(it)
        return
    _show(face, it, held_by(face, it))


def _show(face: Face, it: WorkloadView, held: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from . import recorded
    from .text import safe, sentence

    now = face.now()
    face.say(Text(f"{str(it.kind).capitalize()} {it.id}" + (f": {safe(it.name)}" if it.name else ""), style="bold"))
    if it.reason:
        face.say(Padding(Text(sentence(it.reason)), (0, 0, 0, 2)))
    face.say("")
    rows = [
        *_standing(it, held, now),
        *_asked(it, now),
        *recorded.place(face, it),
        *spec_rows(it.spec),
        *_grace(it),
        *([("not told", f"{safe(it.untold)}, the last time")] if it.untold else []),
        *recorded.results(it),
        *recorded.record(it),
    ]
    tell_rows(face, rows)
    if attempts := list(recorded.attempts(face, it)):
        face.say("", Text("Attempts", style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in attempts))
    face.say("", Text("What you can do", style="bold"))
    for line, meant in _how_to_go_on(it):
        # A line that is meant to be copied is never broken; what it means stands behind it where there is room.
        has_room = meant and face.out.width >= _MEANT_CELLS
        face.line(f"  {line:<{_LINE_CELLS}}  {meant}" if has_room else f"  {line}", style="dim")


def tell_rows(face: Face, rows: Sequence[tuple[str, str]]) -> None:
    """Write what is known of something, a line for each; a command in one that can be pasted."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        if name == _PASTED:
            face.line(f"  {name:<{width}}  {value}")
        else:
            face.say(_row(name, value, width))


_PASTED = "command"
_LINE_CELLS = 30
_MEANT_CELLS = 60


def _row(name: str, value: str, width: int) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=width)
    table.add_column(overflow="fold")
    table.add_row(Text(name), Text(value))
    return Padding(table, (0, 0, 0, 2))


def _standing(it: WorkloadView, held: str, now: float) -> Iterator[tuple[str, str]]:
    from ..model import State
    from ..units import format_when
    from .text import plural, safe, short_of, state_word, took

    attempt = f", attempt {it.attempt}" if it.attempt else ""
    yield "state", f"{state_word(it)}{attempt}"
    if it.state is State.QUEUED and it.waiting is not None and not it.reason:
        ahead = "" if it.ahead is None else ", first in line" if it.ahead == 0 else f", {it.ahead} ahead"
        yield "waits for", f"{short_of(it)}{ahead}"
    if it.devices:
        yield "holds", held
        yield "UUIDs", "\n".join(map(safe, it.devices))
    if it.notice is not None:
        yield "must yield", f"by {format_when(it.notice.yield_by, now)} ({safe(it.notice.detail or it.notice.reason)})"
    yield from _instants(it, now)
    if it.outcome is not None:
        yield "outcome" if it.end is not None else "last attempt", _outcome(it)
    if it.holder is not None:
        pid = f", pid {it.holder.pid}" if it.holder.pid is not None else ""
        yield "holder", f"{safe(it.holder.kind)} {safe(it.holder.name)}{pid}"
    if it.preemptions or it.failures or it.repeated_seconds:
        again = f", {took(it.repeated_seconds)} of work done again" if it.repeated_seconds else ""
        yield "so far", f"{plural(it.preemptions, 'preemption')}, {plural(it.failures, 'failure')}{again}"


def _instants(it: WorkloadView, now: float) -> Iterator[tuple[str, str]]:
    """When what happened and is to happen; of work that is over within a minute the seconds are what one looks for."""
    from ..units import format_when
    from .text import expected_text, moment, took

    ended = it.ended_at is not None
    if not ended and (expected := expected_text(it, now)):
        yield "expected", expected
    if not ended and it.sooner:
        yield "sooner", "\n".join(_sooner(other, now) for other in it.sooner)
    if it.not_before is not None and not ended:
        yield "not before", format_when(it.not_before, now)
    for name, when in (("granted", it.granted_at), ("started", it.started_at)):
        if when is not None:
            yield name, moment(when, now)
    for name, when in (("ends", it.ends_at), ("attach by", it.attach_by)):
        if when is not None and not ended:
            yield name, format_when(when, now) if name == "ends" else moment(when, now)
    if it.ended_at is not None:
        yield "ended", moment(it.ended_at, now)
    if it.started_at is not None and it.state != "queued":
        of_attempt = f" (attempt {it.attempt})" if it.attempt > 1 else ""
        until = now if it.ended_at is None else it.ended_at
        yield "took" if ended else "runs for", f"{took(max(0.0, until - it.started_at))}{of_attempt}"


def _sooner(it: SoonerView, now: float) -> str:
    """Another ask and when it would start: "with 2 GPUs, 14:05 to 14:30", "in queue deferred, at once"."""
    from ..units import format_seconds, format_span
    from .text import plural, safe

    parts = (
        "" if it.devices is None else f"with {plural(it.devices, 'GPU')}",
        "" if it.device_class is None else f"of class {safe(it.device_class)}" if it.device_class else "of any class",
        "" if it.queue is None else f"in queue {safe(it.queue)}",
        "" if it.duration_seconds is None else f"for {format_seconds(it.duration_seconds)} at most",
    )
    is_now = it.expected_start_until <= now
    when = "at once" if is_now else format_span(it.expected_start_from, it.expected_start_until, now)
    return f"{' '.join(filter(None, parts))}, {when}"


def _outcome(it: WorkloadView) -> str:
    from ..model import EndReason
    from .text import safe

    if it.outcome is None:
        return ""
    # Who was told to leave has not failed: its words say how it left.
    has_yielded = it.outcome.noticed and not it.outcome.finished and it.outcome.detail
    is_plain = it.outcome.end in {EndReason.FAILED, EndReason.SUCCEEDED}
    parts = [] if has_yielded and is_plain else [str(it.outcome.end)]
    # The sentence about the outcome has the numbers in it.
    if it.outcome.detail:
        parts.append(safe(it.outcome.detail))
    elif it.outcome.exit_code is not None:
        parts.append(f"exit code {it.outcome.exit_code}")
    elif it.outcome.signal is not None:
        parts.append(f"signal {it.outcome.signal}")
    return ", ".join(parts)


def _asked(it: WorkloadView, now: float) -> Iterator[tuple[str, str]]:
    from .text import ask_text, moment, safe

    if it.owner is not None:
        yield "owner", "you" if it.is_mine else safe(it.owner)
    if it.team is not None:
        yield "team", safe(it.team)
    yield "queue", f"{safe(it.queue)}, priority {it.priority}" + (", waited past its limit" if it.lifted else "")
    yield "asked for", ask_text(it.ask)
    yield "submitted", moment(it.submitted_at, now)


def spec_rows(spec: JobSpec | None) -> Iterator[tuple[str, str]]:
    """What a job runs, where, and with what beside it."""
    from ..units import format_seconds
    from .recorded import surroundings
    from .text import command_line, shell_word, unpacked

    if spec is None:
        return
    argv = [unpacked(word) for word in spec.argv]
    yield "command", command_line(argv)
    yield "folder", shell_word(unpacked(spec.folder))
    if spec.script_index is not None:
        yield "script", f"{shell_word(argv[spec.script_index])}, as it was when it was submitted"
    if spec.checkpoint_dir is not None:
        yield "checkpoints", shell_word(unpacked(spec.checkpoint_dir))
    if spec.retries is not None:
        yield "retries", str(spec.retries)
    if spec.grace_seconds is not None:
        yield "grace", f"{format_seconds(spec.grace_seconds)}, as stated"
    yield from surroundings(spec)


def _grace(it: WorkloadView) -> Iterator[tuple[str, str]]:
    """How long it has from a notice on where it states nothing, and where that comes from."""
    from ..units import format_seconds

    if it.grace_seconds is None or it.spec is None or it.spec.grace_seconds is not None:
        return
    known, has = it.learnt_grace, format_seconds(it.grace_seconds)
    if known is None or 0 < known.seconds < it.grace_seconds:
        yield "grace", f"{has}, as usual in its queue"
    elif known.seconds == 0:
        yield "grace", f"{has}, as usual in its queue: even the longest was not enough for attempt {known.attempt}"
    else:
        needed = None if known.needed_seconds is None else format_seconds(known.needed_seconds)
        why = "was ended by force" if needed is None else f"needed {needed}"
        most = ", the longest that there is" if known.seconds > it.grace_seconds else ""
        yield "grace", f"{has}{most}, learnt: attempt {known.attempt} {why}"


def _how_to_go_on(it: WorkloadView) -> Iterator[tuple[str, str]]:
    """The commands that make sense now, and what each is for."""
    from ..model import Kind, State
    from .reserve import export_line

    if it.kind is Kind.JOB and it.attempt:
        follows = it.state is not State.ENDED
        yield f"jupyter gpu log {it.id}" + (" --follow" if follows else ""), "what it prints" if follows else "its log"
    if it.is_mine and it.kind is Kind.JOB and it.state is State.ENDED:
        yield f"jupyter gpu again {it.id}", "submit it once more"
    if it.is_mine and it.kind is Kind.RESERVATION and it.state is State.ACTIVE:
        if it.holder is None:
            yield f"jupyter gpu wait {it.id}", "take it for this shell"
        else:
            yield export_line(it), ""
        yield f"jupyter gpu extend {it.id} 1h", "more time"
        yield f"jupyter gpu release {it.id}", "give it back"
    elif it.is_mine and it.state is not State.ENDED:
        if it.kind is Kind.JOB and it.state is State.QUEUED:
            verb, meant = ("let-go", "let it start") if it.paused else ("pause", "keep it from starting")
            yield f"jupyter gpu {verb} {it.id}", meant
        if it.kind is Kind.RESERVATION and it.state is State.QUEUED:
            yield f"jupyter gpu wait {it.id}", "wait for it here"
        yield f"jupyter gpu cancel {it.id}", "leave the line" if it.state is State.QUEUED else "end it"
    yield f"jupyter gpu events {it.id}", "its story"


@click.command(short_help="Tell the story of one workload.")
@click.argument("workload", type=WorkloadId(), metavar="ID")
@json_option
@pass_face
def events(face: Face, workload: int) -> None:
    """Tell what happened to a workload, one line each: when, what, and why."""
    from ..model import EventPage

    found = tuple(face.client.events(workload))
    if face.as_json:
        face.document(EventPage(items=found, next=None))
        return
    said = ""
    for event in found:
        # An end mostly repeats in its words what the release before it has said.
        face.say(event_line(event, face.now(), with_detail=event.detail not in (said, event.note)))
        said = event.detail


def event_line(event: EventView, now: float, *, with_detail: bool = True) -> str:
    """Write one event: "14:05:31  evicted (preempted)  for reservation 13"."""
    from datetime import datetime

    from .text import safe

    then = datetime.fromtimestamp(event.at)  # noqa: DTZ006 - the clock on the reader's wall
    # The day only where it is another one, so that a short story stays short.
    day = "" if then.date() == datetime.fromtimestamp(now).date() else f"{then:%Y-%m-%d} "  # noqa: DTZ006
    note = f" ({safe(event.note)})" if event.note else ""
    detail = f"  {safe(event.detail)}" if event.detail and with_detail else ""
    return f"{day}{then:%H:%M:%S}  {safe(event.event)}{note}{detail}"
