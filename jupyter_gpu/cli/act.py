"""`jupyter gpu wait`, `cancel`, `pause`, `let-go`, `extend`, `keep` and `release`: what changes work that is there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from .. import pins
from ..errors import Conflict, GpuError
from ..units import format_when
from .base import Face, for_each, json_option, pass_face
from .text import end_text, ids_of, moment, sentence, state_word, title, why
from .whole import Act, ActOnAll, Word, array_option, arrays_of, change_array, remark_on_array, tell_sums
from .words import Seconds, WorkloadId

if TYPE_CHECKING:
    from ..model import WorkloadView

ids_argument = click.argument("workloads", type=WorkloadId(), nargs=-1, required=True, metavar="ID...")

_SUCCESSES = ("succeeded", "released")


def change(
    face: Face,
    workloads: tuple[int, ...],
    act: Act,
    said: Word,
    *,
    array: ActOnAll | None = None,
    word: Word = state_word,
    in_order: Callable[[Sequence[int]], Sequence[int]] | None = None,
) -> int:
    """Change several: each is told, a failure stops none, and the first failure gives the exit code.

    With `array`, which changes all of one, each array is told in one line, by a `word` for each of it.
    """
    from ..model import WorkloadPage

    # The same one twice is one, or the second would be told as a conflict.
    wanted = tuple(dict.fromkeys(workloads))
    arrays, alone = arrays_of(face, wanted) if array is not None else ([], list(wanted))
    done, code = for_each(face, alone if in_order is None else in_order(alone), lambda it: _told(face, act(it), said))
    if array is None:
        remark_on_array(face, done)
        done.sort(key=lambda it: wanted.index(it.id))
    if array is not None:
        found, failed = for_each(face, arrays, lambda it: change_array(face, it, array, word))
        done += [it for changed in found for it in changed]
        code = code or failed
    if face.as_json and done:
        face.document(WorkloadPage(items=tuple(done)))
    return code


def _told(face: Face, it: WorkloadView, said: Callable[[WorkloadView], str]) -> WorkloadView:
    if not face.as_json:
        face.say(said(it))
    return it


@click.command(short_help="Wait until workloads have ended or hold their GPUs.")
@ids_argument
@click.option(
    "--until",
    type=click.Choice(["active", "ended"]),
    help="What to wait for. If not given: ended, and active for a reservation that is taken.",
)
@array_option
@click.option("--timeout", type=Seconds("timeout", allow_zero=True), help="Wait at most so long, then exit 7.")
@click.option("--export", is_flag=True, help="Of one reservation that is taken: only the line to hand to eval.")
@json_option
@pass_face
def wait(
    face: Face, /, workloads: tuple[int, ...], *, until: str | None, array: bool, timeout: int | None, export: bool
) -> int:
    """Wait for workloads. Exit 0 if all succeeded (or hold their GPUs), 1 if one did not, 7 after --timeout.

    A reservation of yours that nobody holds, as `reserve --no-wait` leaves it, is taken for this shell as soon as
    it is granted. Ctrl-C ends the waiting only.
    """
    from ..model import WorkloadPage

    if export and (len(set(workloads)) > 1 or face.as_json):
        raise click.UsageError("--export is the line of one reservation, and no document.")
    if array:
        arrays, alone = arrays_of(face, dict.fromkeys(workloads))
        workloads = (*alone, *(number for it in arrays for number in ids_of(it)))
    deadline = None if timeout is None else face.now() + timeout
    codes: list[int] = []

    def until_then(workload: int) -> WorkloadView:
        it = face.client.workload(workload)
        takes = until != "ended" and _is_for_us(face, it)
        then = "active" if takes else until or "ended"
        _say_what_for(face, it, then)
        left = None if deadline is None else max(0.0, deadline - face.now())
        it = face.wait_for(workload, then, left)
        codes.append(exit_code_of(it, then))
        return _taken(face, it, only_export=export) if takes and it.end is None else _told(face, it, _stands_at(face))

    with face.going_on("Only the waiting has ended; the work goes on."):
        done, code = for_each(face, dict.fromkeys(workloads), until_then)
    if face.as_json and done:
        face.document(WorkloadPage(items=tuple(done)))
    elif not face.as_json:
        tell_sums(face, done)
    return code or max(codes, default=0)


def _is_for_us(face: Face, it: WorkloadView) -> bool:
    """Whether it is a reservation of the caller that nobody holds yet, or this shell."""
    from .reserve import shell_of

    if not (it.is_mine and it.kind == "reservation" and it.state in ("queued", "active")):
        return False
    if it.holder is None:
        return True
    us = shell_of(face)
    return us.pid is not None and (it.holder.pid, it.holder.start_ticks) == (us.pid, us.start_ticks)


def _taken(face: Face, it: WorkloadView, *, only_export: bool) -> WorkloadView:
    """Hold it with this shell, and say how to use it."""
    from .reserve import refuse_useless, shell_of, tell_held

    refuse_useless(face, it)
    if it.state == "active" and it.holder is None:
        it = face.client.move(it.id, shell_of(face))
    if not face.as_json:
        tell_held(face, it, only_export=only_export)
    return it


def _say_what_for(face: Face, it: WorkloadView, until: str) -> None:
    """Say to who sits at a terminal what is waited for; a script knows."""
    if it.end is not None or (until == "active" and it.state != "queued") or not face.is_attended:
        return
    what = "end" if until == "ended" else "hold its GPUs" if it.ask.devices != 1 else "hold its GPU"
    face.aside(f"Waiting for {title(it)[0].lower()}{title(it)[1:]} to {what}. {why(it)}")


def _stands_at(face: Face) -> Callable[[WorkloadView], str]:
    return lambda it: how_it_stands(it, face.now())


def wait_for_end(face: Face, ids: Sequence[int]) -> int:
    """Wait for a job, or for all of an array: 0 if all succeeded, 1 otherwise. Each is told as it is waited for."""
    from ..model import WorkloadPage

    done: list[WorkloadView] = []
    with face.going_on(lambda: goes_on(face, ids[len(done)])):
        for workload in ids:
            done.append(face.wait_for(workload, "ended", None))
            if not face.as_json:
                face.say(how_it_stands(done[-1], face.now()))
    if face.as_json:
        face.document(done[0] if len(done) == 1 else WorkloadPage(items=tuple(done)))
    else:
        tell_sums(face, done)
    return max(exit_code_of(it, "ended") for it in done)


def exit_code_of(it: WorkloadView, until: str) -> int:
    """Give 0 for what went as wished: it holds its GPUs, or it succeeded."""
    if it.end is None:
        return 0
    # Who waited for the GPUs of a short job may find it done already, which is as good.
    return 0 if it.end in _SUCCESSES else 1 if until == "ended" else int(not it.attempt)


def how_it_stands(it: WorkloadView, now: float) -> str:
    """Say in one sentence how it ended, or how it stands."""
    if it.end is not None:
        return f"{title(it)} ended {format_when(it.ended_at, now)}: {end_text(it)}."
    return f"{title(it)}: {sentence(it.reason) or str(it.state)}"


def goes_on(face: Face, workload: int) -> str:
    """Say after Ctrl-C what becomes of a job that was looked at."""
    queued = False
    with contextlib.suppress(GpuError):
        queued = face.client.workload(workload).state == "queued"
    stands = "stays in line" if queued else "goes on"
    return (
        f"Job {workload} {stands}. `jupyter gpu log {workload} --follow` shows what it prints, "
        f"`jupyter gpu cancel {workload}` ends it."
    )


@click.command(short_help="End workloads, or give up their places in line.")
@ids_argument
@array_option
@click.option("--reason", default="", metavar="TEXT", help="Told, with your name, to whose work it is.")
@json_option
@pass_face
def cancel(face: Face, workloads: tuple[int, ...], array: bool, reason: str) -> int:
    """End workloads that run, with their grace, and give up the places of those that wait.

    Of several those that wait are first, or they would get the GPUs of those that run.
    """
    return change(
        face,
        workloads,
        lambda number: face.client.cancel(number, reason),
        lambda it: f"{title(it)} {_is_over(it, face.now())}.",
        array=(lambda number: face.client.cancel_array(number, reason)) if array else None,
        word=lambda it: str(it.end or "being cancelled"),
        in_order=lambda wanted: _waiting_first(face, wanted),
    )


def _waiting_first(face: Face, wanted: Sequence[int]) -> Sequence[int]:
    if len(wanted) == 1:
        return wanted
    waiting = [it.id for it in face.client.workloads(state="queued") if it.id in wanted]
    return [*sorted(waiting, key=wanted.index), *(it for it in wanted if it not in waiting)]


def _is_over(it: WorkloadView, now: float) -> str:
    if it.end is not None:
        return f"is {it.end}"
    if it.kind == "reservation":
        return "is given back"
    if it.notice is None:
        return "is ending already"
    if it.started_at is None:
        return "is being cancelled before it has begun"
    return f"is being cancelled: it may save until {moment(it.notice.yield_by, now)}, then it is ended by force"


@click.command(short_help="Keep queued jobs from starting; they keep their places.")
@ids_argument
@array_option
@json_option
@pass_face
def pause(face: Face, workloads: tuple[int, ...], array: bool) -> int:
    """Keep queued jobs from starting. They keep their places until `let-go`."""
    return change(
        face,
        workloads,
        face.client.pause,
        lambda it: f"{title(it)} is {state_word(it)} and keeps its place.",
        array=face.client.pause_array if array else None,
    )


@click.command("let-go", short_help="Let paused jobs start.")
@ids_argument
@array_option
@json_option
@pass_face
def let_go(face: Face, workloads: tuple[int, ...], array: bool) -> int:
    """Let paused jobs start when it is their turn."""
    return change(
        face,
        workloads,
        face.client.let_go,
        lambda it: " ".join(filter(None, (f"{title(it)} may start.", sentence(it.reason)))),
        array=face.client.let_go_array if array else None,
        word=lambda _: "let go",
    )


class _WithTime(click.Command):
    """A command whose argument may be -1h by a slip, which is then told as a time and not as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = next((at for at, word in enumerate(args) if re.match(r"-\d", word)), None)
        return super().parse_args(ctx, args if at is None or "--" in args else [*args[:at], "--", *args[at:]])


@click.command(cls=_WithTime, short_help="Ask for more time.")
@click.argument("workload", type=WorkloadId(), metavar="ID")
@click.argument("seconds", type=Seconds("time"), metavar="TIME")
@json_option
@pass_face
def extend(face: Face, workload: int, seconds: int) -> None:
    """Ask for TIME more, such as 1h. It is granted as far as quota, limit and what is promised to others allow."""
    try:
        it = face.client.extend(workload, seconds)
    except Conflict:
        it = face.client.workload(workload)
        if it.state == "active" and it.ends_at is None:
            raise Conflict(f"{title(it)} has no time limit, so there is nothing to extend") from None
        raise
    if face.as_json:
        face.document(it)
    else:
        face.say(f"{title(it)} now ends {format_when(it.ends_at, face.now())}.")


@click.command(short_help="Keep reservations that are idle.")
@ids_argument
@json_option
@pass_face
def keep(face: Face, workloads: tuple[int, ...]) -> int:
    """Keep reservations that are idle: the time after which they are given back begins anew."""
    return change(face, workloads, face.client.keep, lambda it: f"{title(it)} is kept: its idle time begins anew.")


@click.command(short_help="Give reservations back.")
@ids_argument
@json_option
@pass_face
def release(face: Face, workloads: tuple[int, ...]) -> int:
    """Give reservations back before their time is over. Others get the GPUs once they are clear."""
    pinned = False

    def give_back(workload: int) -> WorkloadView:
        nonlocal pinned
        # The broker takes the word twice, for clients that could not hear its answer; a person is told of a slip.
        it = face.client.workload(workload)
        if it.end is not None:
            raise Conflict(f"{title(it)} has ended already ({it.end})")
        released = face.client.release(workload)
        pinned = pinned or (bool(it.devices) and _pin_of(face) == ",".join(it.devices))
        return released

    code = change(face, workloads, give_back, lambda it: f"{title(it)} {_is_given_back(it)}.")
    if pinned and not face.as_json:
        names = f"{pins.VISIBLE} {pins.CONTAINERS} {pins.RESERVATION}"
        face.say(f"Unset {pins.VISIBLE} in this shell: `unset {names}`.")
    return code


def _pin_of(face: Face) -> str | None:
    """What our caller's shell shows to what it starts; a kernel undoes its pin by itself."""
    if face.holder is not None:
        return None
    return (os.environ if face.environ is None else face.environ).get(pins.VISIBLE)


def _is_given_back(it: WorkloadView) -> str:
    return "has left the line" if it.end == "cancelled" else "is given back"
