"""`jupyter gpu wait`, `cancel`, `pause`, `let-go`, `extend` and `release`: what changes work that is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..units import format_when
from .base import Face, Seconds, WorkloadId, for_each, json_option, pass_face
from .text import safe, sentence, state_word

if TYPE_CHECKING:
    from ..model import WorkloadView

ids_argument = click.argument("workloads", type=WorkloadId(), nargs=-1, required=True, metavar="ID...")

_SUCCESSES = ("succeeded", "released")


def _title(it: WorkloadView) -> str:
    return f"{str(it.kind).capitalize()} {it.id}" + (f" ({safe(it.name)})" if it.name else "")


def _change(
    face: Face, workloads: tuple[int, ...], act: Callable[[int], WorkloadView], said: Callable[[WorkloadView], str]
) -> int:
    """Change several: each is told, a failure stops none, and the first failure gives the exit code."""
    from ..model import WorkloadPage

    # The same one twice is one, or the second would be told as a conflict.
    done, code = for_each(face, dict.fromkeys(workloads), lambda it: _told(face, act(it), said))
    if face.as_json:
        face.document(WorkloadPage(items=tuple(done)))
    return code


def _told(face: Face, it: WorkloadView, said: Callable[[WorkloadView], str]) -> WorkloadView:
    if not face.as_json:
        face.say(said(it))
    return it


@click.command(short_help="Wait until workloads have ended or hold their GPUs.")
@ids_argument
@click.option(
    "--until", type=click.Choice(["active", "ended"]), default="ended", show_default=True, help="What to wait for."
)
@click.option("--timeout", type=Seconds("timeout", allow_zero=True), help="Wait at most so long, then exit 7.")
@json_option
@pass_face
def wait(face: Face, workloads: tuple[int, ...], until: str, timeout: int | None) -> int:
    """Wait for workloads. Exit 0 if all succeeded (or hold their GPUs), 1 if one did not, 7 after --timeout.

    Ctrl-C ends the waiting only.
    """
    from ..model import WorkloadPage

    deadline = None if timeout is None else face.now() + timeout

    def until_then(workload: int) -> WorkloadView:
        left = None if deadline is None else max(0.0, deadline - face.now())
        return _told(face, face.client.wait(workload, until, left), lambda it: _how_it_stands(it, face.now()))

    with face.going_on("Only the waiting has ended; the work goes on."):
        done, code = for_each(face, dict.fromkeys(workloads), until_then)
    if face.as_json:
        face.document(WorkloadPage(items=tuple(done)))
    return code or max((exit_code_of(it, until) for it in done), default=0)


def wait_for_end(face: Face, workload: int) -> int:
    """Wait for one job and end as it ended: 0 if it succeeded, 1 otherwise."""
    with face.going_on(f"Job {workload} goes on; `jupyter gpu wait {workload}` waits for it, `cancel` ends it."):
        it = face.client.wait(workload, "ended", None)
    if face.as_json:
        face.document(it)
    else:
        face.say(_how_it_stands(it, face.now()))
    return exit_code_of(it, "ended")


def exit_code_of(it: WorkloadView, until: str) -> int:
    """Give 0 for what went as wished: it holds its GPUs, or it succeeded."""
    if it.end is None:
        return 0
    # Who waited for the GPUs of a short job may find it done already, which is as good.
    return 0 if it.end in _SUCCESSES else 1 if until == "ended" else int(not it.attempt)


def _how_it_stands(it: WorkloadView, now: float) -> str:
    if it.end is not None:
        detail = f" {sentence(it.detail)}" if it.detail else ""
        return f"{_title(it)} ended {format_when(it.ended_at, now)}: {it.end}.{detail}"
    return f"{_title(it)}: {sentence(it.reason) or str(it.state)}"


@click.command(short_help="End workloads, or give up their places in line.")
@ids_argument
@json_option
@pass_face
def cancel(face: Face, workloads: tuple[int, ...]) -> int:
    """End workloads that run, with their grace, and give up the places of those that wait."""
    return _change(face, workloads, face.client.cancel, lambda it: f"{_title(it)} is {_is_over(it)}.")


def _is_over(it: WorkloadView) -> str:
    if it.end is not None:
        return str(it.end)
    return "cancelled; it has its grace to save" if it.notice is not None else "being cancelled"


@click.command(short_help="Keep queued jobs from starting; they keep their places.")
@ids_argument
@json_option
@pass_face
def pause(face: Face, workloads: tuple[int, ...]) -> int:
    """Keep queued jobs from starting. They keep their places until `let-go`."""
    return _change(
        face, workloads, face.client.pause, lambda it: f"{_title(it)} is {state_word(it)} and keeps its place."
    )


@click.command("let-go", short_help="Let paused jobs start.")
@ids_argument
@json_option
@pass_face
def let_go(face: Face, workloads: tuple[int, ...]) -> int:
    """Let paused jobs start when it is their turn."""
    return _change(
        face,
        workloads,
        face.client.let_go,
        lambda it: " ".join(filter(None, (f"{_title(it)} may start.", sentence(it.reason)))),
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
    it = face.client.extend(workload, seconds)
    if face.as_json:
        face.document(it)
    else:
        face.say(f"{_title(it)} now ends {format_when(it.ends_at, face.now())}.")


@click.command(short_help="Give reservations back.")
@ids_argument
@json_option
@pass_face
def release(face: Face, workloads: tuple[int, ...]) -> int:
    """Give reservations back before their time is over. Others get the GPUs once they are clear."""
    return _change(face, workloads, face.client.release, lambda it: f"{_title(it)} is given back.")
