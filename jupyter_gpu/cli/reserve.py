"""`jupyter gpu reserve`: GPUs for this shell, or for one command in the foreground."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..errors import GpuError, InvalidAsk, LeaseLost, WaitTimeout
from .base import INTERRUPTED, Face, Seconds, WithCommand, json_option
from .submit import ask_options, make_ask, send

if TYPE_CHECKING:
    from ..model import Holder, WorkloadView

_EXAMPLES = """\b
Examples:
  jupyter gpu reserve --for 2h
  eval "$(jupyter gpu reserve --for 2h --export)"
  jupyter gpu reserve 2 --class a100-80gb -- python train.py
"""


@click.command(cls=WithCommand, short_help="Reserve GPUs for this shell, or for one command.", epilog=_EXAMPLES)
@click.argument("count", type=click.IntRange(min=1), default=1, metavar="[N]")
@click.option("--for", "seconds", type=Seconds("duration"), help="For how long, such as 2h.")
@ask_options
@click.option("--wait/--no-wait", "may_wait", default=True, help="Wait in line where nothing is free, or not.")
@click.option("--timeout", type=Seconds("timeout"), help="Wait at most so long.")
@click.option("--export", is_flag=True, help="Print nothing but the line to hand to eval.")
@json_option
@click.pass_context
def reserve(ctx: click.Context, /, **words: Any) -> int:
    """Reserve N GPUs. They are yours until the time is over or this shell ends.

    With a COMMAND after -- it runs in the foreground and sees only these GPUs; they are given back when it
    ends. Ctrl-C while waiting gives the place in line up; after that it goes to the command.
    """
    face = ctx.find_object(Face) or Face()
    command = ctx.meta.get("jupyter_gpu.command")
    _refuse_mixtures(face, command, words)
    it = _get(face, words, _holder(face, command))
    if command is not None:
        return _become(face, it, command)
    _tell(face, it, words["export"])
    return 0 if it.devices else WaitTimeout.exit_code


def _refuse_mixtures(face: Face, command: tuple[str, ...] | None, words: dict[str, Any]) -> None:
    if command is None:
        return
    if face.as_json or words["export"]:
        raise click.UsageError("With a command stdout is the command's, so --json and --export do not fit.")
    if face.holder is not None:
        raise click.UsageError("A command cannot take this program's place here; run it in a terminal.")
    if not command:
        raise InvalidAsk("There is no command after --.", hint="Leave -- out to reserve for this shell.")
    if shutil.which(command[0]) is None:
        raise InvalidAsk(f"There is no command {command[0]!r} on your PATH.", hint="Check the spelling.")


def _holder(face: Face, command: tuple[str, ...] | None) -> Holder:
    from .holder import process_holder, shell_holder

    if face.holder is not None:
        return face.holder
    # The command takes our place and keeps our pid, so the lease ends when it does.
    return shell_holder() if command is None else process_holder("command")


def _get(face: Face, words: dict[str, Any], holder: Holder) -> WorkloadView:
    """Ask, and wait for the grant as long as it was wished."""
    from ..model import Kind, SubmitBody

    body = SubmitBody(
        kind=Kind.RESERVATION,
        ask=make_ask(words["count"], words["seconds"], words),
        queue=words["queue"],
        team=words["team"],
        name=words["name"],
        holder=holder,
    )
    it = send(face, body)
    for_command = holder.kind == "command"
    if not it.devices and words["may_wait"]:
        it = _wait(face, it, words["timeout"], gives_up=for_command)
    if it.end is not None:
        raise LeaseLost(f"Reservation {it.id} ended before it was granted: {it.detail or it.end}.")
    if not it.devices and for_command:
        _give_up(face, it.id)
        raise WaitTimeout(f"Nothing is free now: {it.reason}" if it.reason else "Nothing is free now.", hint=_NO_PLACE)
    return it


_NO_PLACE = "The command was not run, and its place in line is given up. Without --no-wait it waits."


def _wait(face: Face, it: WorkloadView, timeout: int | None, *, gives_up: bool) -> WorkloadView:
    from .text import sentence

    face.aside(f"Reservation {it.id} waits. {sentence(it.reason)} Ctrl-C gives its place up.")
    try:
        return face.client.wait(it.id, "active", timeout)
    except WaitTimeout as error:
        if gives_up:
            _give_up(face, it.id)
            raise WaitTimeout(
                error.message, hint="The command was not run, and its place in line is given up."
            ) from None
        raise
    except KeyboardInterrupt:
        _give_up(face, it.id)
        face.err.print()
        face.aside(f"Reservation {it.id} has left the line.")
        raise click.exceptions.Exit(INTERRUPTED) from None


def _give_up(face: Face, workload: int) -> None:
    # It may have been granted or ended meanwhile; a second Ctrl-C leaves the rest to the broker, which sees us end.
    with contextlib.suppress(GpuError, KeyboardInterrupt):
        face.client.cancel(workload)


def variables(uuids: Iterable[str]) -> dict[str, str]:
    """What pins a process to its GPUs."""
    named = ",".join(uuids)
    return {
        "CUDA_VISIBLE_DEVICES": named,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": named,
    }


def export_line(uuids: Iterable[str]) -> str:
    """Write the line that pins a shell."""
    from .text import shell_word

    return "export " + " ".join(f"{name}={shell_word(value)}" for name, value in variables(uuids).items())


def _tell(face: Face, it: WorkloadView, only_export: bool) -> None:
    from ..units import format_when
    from .text import sentence

    if face.as_json:
        face.document(it)
        return
    if not it.devices:
        said = (
            f"Reservation {it.id} waits. {sentence(it.reason)} `jupyter gpu wait {it.id} --until active` waits for it."
        )
        face.aside(said) if only_export else face.say(said)
        return
    if only_export:
        face.write(export_line(it.devices) + "\n")
        return
    until = f" until {format_when(it.ends_at, face.now())}" if it.ends_at is not None else ""
    if face.holder is not None:  # who handed the holder in pins it as well
        face.say(f"Reservation {it.id} holds {_named(face, it)}{until}. It ends with this {face.holder.kind}.")
        return
    face.say(f"Reservation {it.id} holds {_named(face, it)}{until}. Pin this shell with:")
    face.say("", export_line(it.devices), "")
    face.say(f"It ends with this shell; give it back sooner with `jupyter gpu release {it.id}`.")


def _named(face: Face, it: WorkloadView) -> str:
    from .see import numbers_of
    from .text import gpus_text

    return gpus_text(it.devices, numbers_of(face))


def _become(face: Face, it: WorkloadView, command: tuple[str, ...]) -> NoReturn:
    """Turn into the command; the pid stays, and with it the lease."""
    from .. import spawn
    from ..units import format_when

    until = f" until {format_when(it.ends_at, face.now())}" if it.ends_at is not None else ""
    face.aside(
        f"Reservation {it.id} holds {_named(face, it)}{until}. Ctrl-C goes to the command now; its end gives back."
    )
    face.flush()
    environ = dict(os.environ if face.environ is None else face.environ) | variables(it.devices)
    try:
        spawn.become(command, environ)
    except OSError as error:
        _give_up(face, it.id)
        raise InvalidAsk(
            f"{command[0]!r} cannot be run: {error.strerror}.", hint="The reservation is given back."
        ) from None
