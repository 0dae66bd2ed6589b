"""`jupyter gpu submit`: queue a job."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidAsk
from .base import Face, json_option, pass_face
from .words import Count, DeviceName, QueueName, Seconds, Size

if TYPE_CHECKING:
    from ..model import Ask, SubmitBody, WorkloadView
    from .script import Command

#: Our options that are easily put after the command.
_OURS = ("--gpus", "--time", "--name", "--queue")

_EXAMPLES = """\b
Examples:
  jupyter gpu submit -- python train.py --lr 0.1
  jupyter gpu submit --gpus 2 --time 8h --name digits -- torchrun train.py
  jupyter gpu submit --not-before 22:00 --queue deferred -- ./sweep.sh
  jupyter gpu submit --shell "python a.py && python b.py"
"""


def ask_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what submit and reserve say alike of the GPUs that are wanted."""
    for option in reversed(
        [
            click.option("--class", "device_class", metavar="CLASS", help="The kind of GPU, as `devices` names it."),
            click.option("--memory", type=Size("memory"), help="A part of a GPU that is shared, such as 20GiB of it."),
            click.option("--min-free", type=Size("free memory"), help="Only GPUs with so much memory free."),
            click.option("--pool", metavar="POOL", help="The pool to take GPUs from."),
            click.option(
                "--on",
                type=DeviceName(),
                multiple=True,
                metavar="GPU",
                help="Only this one; repeat it for several. Without a number all that are named are asked for, with "
                "one so many of them.",
            ),
            click.option("--queue", type=QueueName(), metavar="QUEUE", help="The line to stand in."),
            click.option("--team", metavar="TEAM", help="The team that it counts for."),
            click.option("--name", default="", metavar="NAME", help="What lists call it."),
        ]
    ):
        command = option(command)
    return command


def send(face: Face, body: SubmitBody, *, key: str | None = None, keep: tuple[str, ...] = ()) -> WorkloadView:
    """Ask. With a key of its own each command is one workload, however often it had to be sent."""
    with face.going_on("It may have been accepted already; `jupyter gpu queue --mine` shows it."):
        face.sent = face.client.submit(body, idempotency_key=key or uuid.uuid4().hex, keep=keep)
    return face.sent


def make_ask(face: Face, devices: int | None, seconds: int | None, words: dict[str, Any]) -> Ask:
    """Put the common options together. Who names GPUs and no number wants all that they name."""
    from ..client.naming import uuids_of
    from ..model import Ask

    # An ask names devices by UUID: a number may be another card's after a reboot.
    on = uuids_of(words["on"], face.client.devices().items) if words["on"] else ()
    return Ask(
        devices=max(1, len(on)) if devices is None else devices,
        device_class=words["device_class"],
        memory_bytes=words["memory"],
        min_free_bytes=words["min_free"],
        duration_seconds=seconds,
        pool=words["pool"],
        on=on,
    )


@click.command(
    short_help="Queue a job; it runs when its GPUs are free.",
    epilog=_EXAMPLES,
    # What follows the first word that is no option belongs to the command, whatever it looks like.
    context_settings={"allow_interspersed_args": False},
)
@click.option("--gpus", type=Count(0), help="How many; 0 sees none. If not given: 1, or as many as --on names.")
@click.option("--time", "seconds", type=Seconds("time limit"), help="The time limit, such as 8h.")
@ask_options
@click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="Pass a variable on, or set it; may be repeated.")
@click.option("--folder", metavar="DIR", help="Where it runs; the current folder if not given.")
@click.option("--retries", type=click.IntRange(min=0), help="How many failed attempts are repeated.")
@click.option("--grace", type=Seconds("grace"), help="From the notice to yield until it is ended.")
@click.option("--checkpoint-dir", metavar="DIR", help="Where its checkpoints lie, seen from the folder.")
@click.option("--not-before", metavar="WHEN", help="The earliest start: 22:00, +2h, or a date and time.")
@click.option("--paused", is_flag=True, help="Keep it from starting until `let-go`.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit 0 only if it succeeded.")
@click.option("--follow", is_flag=True, help="Show what it prints until it has ended, then as --wait.")
@click.option("--shell", "shell_line", metavar="LINE", help="Run a line with a shell, instead of a command without.")
@click.option("--key", metavar="KEY", help="The same key with the same command is the same job: nothing new is queued.")
@json_option
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@pass_face
def submit(face: Face, /, gpus: int | None, seconds: int | None, **words: Any) -> int:
    """Queue COMMAND as a job. It runs as it stands here, without a shell, in this folder.

    It goes on when this terminal is closed. A script that is named in the command is copied now, so that
    an edit does not change the queued job.
    """
    if words["follow"] and face.as_json:
        raise click.UsageError("--follow shows a log and --json one document: choose one.")
    body, command = _body(face, gpus, seconds, words)
    newest = _newest(face) if words["key"] else 0
    it = send(face, body, key=words["key"], keep=command.given)
    if not (face.as_json and words["wait"]):
        _tell(face, it, command, is_known=it.id <= newest)
    if words["follow"]:
        from .log import follow

        follow(face, it.id, None)
    if words["wait"] or words["follow"]:
        from .act import wait_for_end

        return wait_for_end(face, it.id)
    return 0


def _body(face: Face, gpus: int | None, seconds: int | None, words: dict[str, Any]) -> tuple[SubmitBody, Command]:
    from ..model import Kind, SubmitBody
    from .script import make_command, shell_argv
    from .text import unpacked
    from .when import parse_instant

    argv, line = words["argv"], words["shell_line"]
    if line is not None and (argv or face.cell is not None):
        raise click.UsageError("Give a command, or a line for a shell with --shell, not both.")
    if face.cell is not None:
        # The cell runs with this interpreter; what follows the options are its arguments.
        argv = (sys.executable, unpacked(face.cell.name), *argv)
    if line is None and not argv:
        raise InvalidAsk(
            "There is no command to run.", hint="Write it after --, as in `jupyter gpu submit -- python train.py`."
        )
    command = make_command(
        argv if line is None else shell_argv(line),
        text=face.cell,
        folder=words["folder"],
        environ=os.environ if face.environ is None else face.environ,
        wanted=words["env"],
        checkpoint_dir=words["checkpoint_dir"],
        retries=words["retries"],
        grace_seconds=words["grace"],
    )
    body = SubmitBody(
        kind=Kind.JOB,
        ask=make_ask(face, gpus, seconds, words),
        queue=words["queue"],
        team=words["team"],
        name=words["name"],
        spec=command.spec,
        script=command.script,
        not_before=None if words["not_before"] is None else parse_instant(words["not_before"], face.now()),
        paused=words["paused"],
    )
    return body, command


def _newest(face: Face) -> int:
    """Give the caller's newest workload: what a key is answered with is new only if its number is higher."""
    return next((it.id for it in face.client.workloads(mine=True, ended=True)), 0)


def _tell(face: Face, it: WorkloadView, command: Command, *, is_known: bool) -> None:
    from .text import command_line, safe, sentence, title, unpacked

    if face.as_json:
        face.document(it)
        return
    if is_known:
        face.say(f"{title(it)} is there already (same key).")
    else:
        name = f" ({safe(it.name)})" if it.name else ""
        face.say(f"Submitted job {it.id}{name} to queue {safe(it.queue)}.")
        face.line(f"It runs: {command_line(map(unpacked, command.spec.argv))}")
    if it.reason:
        face.say(sentence(it.reason))
    for note in (*command.notes, *_notes_of_options([unpacked(word) for word in command.spec.argv])):
        face.aside(sentence(note))


def _notes_of_options(argv: Sequence[str]) -> list[str]:
    """Tell of words that look like ours and stand where they are the command's."""
    from .text import command_line

    found = []
    for word, value in pairwise([*argv[1:], ""]):
        if word.partition("=")[0] in _OURS:
            shown = [word] if "=" in word or not value or value.startswith("-") else [word, value]
            found.append(f"{command_line(shown)} goes to the command; options of submit stand before it")
    return found
