"""`jupyter gpu reserve`: GPUs for this shell, or for one command in the foreground."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..errors import GpuError, InvalidAsk, LeaseLost, WaitTimeout
from .base import INTERRUPTED, Face, WithCommand, json_option
from .submit import ask_options, make_ask, send
from .when import parse_instant
from .words import Count, Seconds, read_length

if TYPE_CHECKING:
    from ..model import Holder, WorkloadView

_EXAMPLES = """\b
Examples:
  jupyter gpu reserve --for 2h
  eval "$(jupyter gpu reserve --for 2h --export)"
  jupyter gpu reserve --no-wait
  jupyter gpu reserve 2 --at "tomorrow 9:00" --for 2h
  jupyter gpu reserve 2 --class a100-80gb -- python train.py
"""


class _Reserve(WithCommand):
    """It takes a number and what stands after `--`. A command without `--` before it is a slip that many make."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, and tell a forgotten `--` as such."""
        # A copy: reading the words takes them away.
        mine = args[: args.index("--")] if "--" in args else list(args)
        for before, word in zip(["", *mine], mine, strict=False):
            if re.fullmatch(r"-\d+", word) and not before.startswith("--"):
                raise click.UsageError(f"{word!r} is no number of GPUs.", ctx)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            # A plain word that is neither a number nor the value of an option before it.
            pairs = enumerate(zip(["", *mine], mine, strict=False))
            at = next((at for at, (before, word) in pairs if not _is_read(before, word)), None)
            if at is None:
                raise
            raise _no_dashes(ctx, mine[at:]) from None


#: As the shell's, so the kernel's.
at_option = click.option(
    "--at", metavar="WHEN", help='For later, from then on: 14:00, "tomorrow 9:00", "tue 10:00", a date and time.'
)


def _is_read(before: str, word: str) -> bool:
    return word.startswith("-") or word.isdigit() or before.startswith("-")


def _is_length(word: str) -> bool:
    try:
        return read_length(word, what="duration") > 0
    except GpuError:
        return False


def _no_dashes(ctx: click.Context, words: Sequence[str]) -> click.UsageError:
    from .text import command_line

    meant = f"To run a command, write `jupyter gpu reserve -- {command_line(words)}`."
    if _is_length(words[0]):
        meant = f"To reserve for so long, write `jupyter gpu reserve --for {command_line(words[:1])}`."
    return click.UsageError(f"{words[0]!r} is no number of GPUs. {meant}", ctx)


def read_count(ctx: click.Context, words: tuple[str, ...]) -> int | None:
    """Read N, if it is there. What follows it, or stands in its place, was meant as a command."""
    count, rest = None, words
    if words and words[0].isdigit():
        count, rest = Count(1).convert(words[0], None, ctx), words[1:]
    if rest:
        raise _no_dashes(ctx, rest)
    return count


@click.command(cls=_Reserve, short_help="Reserve GPUs for this shell, or for one command.", epilog=_EXAMPLES)
@click.argument("numbers", nargs=-1, type=click.UNPROCESSED, metavar="[N]")
@click.option("--for", "seconds", type=Seconds("duration"), help="For how long, such as 2h.")
@at_option
@ask_options
@click.option(
    "--wait/--no-wait", "may_wait", default=True, help="Wait in line where nothing is free; or only take a place in it."
)
@click.option("--timeout", type=Seconds("timeout"), help="Wait at most so long; the place in line stays.")
@click.option("--export", is_flag=True, help="Print nothing but the line to hand to eval.")
@json_option
@click.pass_context
def reserve(ctx: click.Context, /, **words: Any) -> int:
    """Reserve N GPUs (one, or as many as --on names). They are yours until the time is over or this shell ends.

    With a COMMAND after -- it runs in the foreground and sees only these GPUs; they are given back when it
    ends. Ctrl-C while waiting gives the place in line up; after that it goes to the command.

    Where nothing is free, --no-wait and --timeout end with 7 and leave the reservation in line: after --timeout this
    shell holds it when it is granted; after --no-wait nobody does, and `jupyter gpu wait ID` must take it within
    5 minutes, or it is given back. With a COMMAND the place is given up.

    With --at it is for later: accepted only if the GPUs can be promised for that time, and then they are there.
    """
    face = ctx.find_object(Face) or Face()
    command = ctx.meta.get("jupyter_gpu.command")
    words["count"] = read_count(ctx, words["numbers"])
    if words["at"] is not None:
        return reserve_for_later(ctx, face, words, command)
    _refuse_mixtures(face, command, words)
    if command is not None:
        return _become(face, _for_command(face, words), command)
    holder = shell_of(face)
    # Nobody would know of a grant that comes after --no-wait has answered. So it gets a no-show time and no holder.
    waits_alone = not words["may_wait"] and face.holder is None
    it = send_reservation(face, words, None if waits_alone else holder)
    if it.devices and waits_alone:
        it = face.client.move(it.id, holder)
    elif not it.devices and words["may_wait"]:
        it = _wait(face, it, words["timeout"])
    refuse_useless(face, it)
    if it.devices:
        tell_held(face, it, only_export=words["export"])
        return 0
    _tell_waiting(face, it, holder, words)
    return WaitTimeout.exit_code


def reserve_for_later(ctx: click.Context, face: Face, words: dict[str, Any], command: object = None) -> int:
    """Have GPUs promised for a later time. Nobody holds them yet: whoever takes them then does."""
    if command is not None or words.get("export") or words["timeout"] is not None:
        raise click.UsageError("What begins later has no command, no --export and no --timeout now.", ctx)
    if not words["may_wait"]:
        raise click.UsageError("With --at nothing waits here, so --no-wait does not fit.", ctx)
    it = send_reservation(face, words, None)
    if face.as_json:
        face.document(it)
    elif it.devices or it.not_before is None:  # its time had come
        face.say(f"Reservation {it.id} has begun. Take it now: `{take(face, it.id)}`.")
    else:
        tell_promised(face, it)
    return 0


def tell_promised(face: Face, it: WorkloadView) -> None:
    """Say what is promised, and what is to be done then."""
    from ..model import Policy
    from ..units import format_seconds
    from .coming import span
    from .text import ask_text

    begin = it.not_before or face.now()
    when = span(begin, begin + (it.ask.duration_seconds or 0), face.now())
    face.say(f"Reservation {it.id} is promised: {ask_text(it.ask)}, {when}.")
    time = format_seconds(Policy().attach_seconds)
    face.say(f"Take it then, within {time} of its beginning: `{take(face, it.id)}`; else it is given back.")
    face.say(f"If you do not need it: `{face.program} cancel {it.id}`.")


def take(face: Face, number: int) -> str:
    """Write the command that takes a reservation which nobody holds."""
    return f"{face.program} wait {number}"


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


def shell_of(face: Face) -> Holder:
    """Give who holds what this program asks for: a kernel that was handed in, else the calling shell."""
    from .holder import shell_holder

    return shell_holder() if face.holder is None else face.holder


def send_reservation(face: Face, words: dict[str, Any], holder: Holder | None) -> WorkloadView:
    """Ask for what the words say."""
    from ..model import Kind, SubmitBody
    from ..out_of_reach import refuse_in_vain

    refuse_in_vain(face.client, environ_of(face))
    body = SubmitBody(
        kind=Kind.RESERVATION,
        ask=make_ask(face, words["count"], words["seconds"], words),
        queue=words["queue"],
        team=words["team"],
        name=words["name"],
        holder=holder,
        not_before=None if words.get("at") is None else parse_instant(words["at"], face.now()),
    )
    return send(face, body)


def refuse_useless(face: Face, it: WorkloadView) -> None:
    """Raise what keeps it from being used here: it is over, or this server cannot open what was granted."""
    from ..out_of_reach import refuse_granted
    from .text import end_text

    if it.end is not None:
        raise LeaseLost(f"Reservation {it.id} ended before it was granted: {end_text(it)}.")
    refuse_granted(face.client, it, environ_of(face))


def environ_of(face: Face) -> Mapping[str, str]:
    """Give the environment that this program runs in."""
    return os.environ if face.environ is None else face.environ


def _for_command(face: Face, words: dict[str, Any]) -> WorkloadView:
    """Get what the command needs; nobody would run it later, so without a grant the place in line is given up."""
    from ..units import format_seconds
    from .holder import process_holder
    from .text import short_of

    # The command takes our place and keeps our pid, so the lease ends when it does.
    it = send_reservation(face, words, process_holder("command"))
    if not it.devices and words["may_wait"]:
        it = _wait(face, it, words["timeout"])
    refuse_useless(face, it)
    if it.devices:
        return it
    _give_up(face, it.id)
    why = short_of(it) or "it still waits"
    if words["may_wait"]:
        said, hint = f"after {format_seconds(words['timeout'])} {why}", "A longer --timeout, or none, waits on."
    else:
        said, hint = f"{why} now", "Without --no-wait it waits."
    raise WaitTimeout(f"The command was not run: {said}.", hint=f"Its place in line is given up. {hint}")


def _wait(face: Face, it: WorkloadView, timeout: int | None) -> WorkloadView:
    from .text import why

    face.aside(f"Reservation {it.id} waits. {why(it)} Ctrl-C gives its place up.")
    try:
        return face.wait_for(it.id, "active", timeout, raise_on_timeout=False)
    except KeyboardInterrupt:
        _give_up(face, it.id)
        face.after_ctrl_c()
        face.aside(f"Reservation {it.id} has left the line.")
        raise click.exceptions.Exit(INTERRUPTED) from None


def _give_up(face: Face, workload: int) -> None:
    # It may have been granted or ended meanwhile; a second Ctrl-C leaves the rest to the broker, which sees us end.
    with contextlib.suppress(GpuError, KeyboardInterrupt):
        face.client.cancel(workload)


def export_line(it: WorkloadView) -> str:
    """Write the line that pins a shell."""
    from .. import pins
    from .text import shell_word

    return "export " + " ".join(f"{name}={shell_word(value)}" for name, value in pins.under(it.id, it.devices).items())


def tell_held(face: Face, it: WorkloadView, *, only_export: bool = False) -> None:
    """Say what is held until when, and the line that pins the shell."""
    from ..units import format_when
    from .see import held_by

    if face.as_json:
        face.document(it)
        return
    if only_export:
        face.write(export_line(it) + "\n")
        return
    until = f" until {format_when(it.ends_at, face.now())}" if it.ends_at is not None else ""
    if face.holder is not None:  # who handed the holder in pins it as well
        face.held(it, f"Reservation {it.id} holds {held_by(face, it)}{until}.")
        return
    face.say(f"Reservation {it.id} holds {held_by(face, it)}{until}. Pin this shell with:", "")
    face.line(export_line(it))
    face.say("", f"It ends with this shell; give it back sooner with `jupyter gpu release {it.id}`.")


def _tell_waiting(face: Face, it: WorkloadView, holder: Holder, words: dict[str, Any]) -> None:
    """Say that it stays in line, who has it when it is granted, and both ways on."""
    from ..model import Policy
    from ..units import format_seconds
    from .text import why

    if face.as_json:
        face.document(it)
        return
    say = face.aside if words["export"] else face.say
    if it.holder is None and face.holder is None and not words["may_wait"]:
        say(f"Reservation {it.id} stays in line. {why(it)}")
        # What this broker gives is known at the grant only; what ships is what most have.
        time = format_seconds(Policy().attach_seconds)
        say(f"When it is granted you have {time} to take it: `jupyter gpu wait {it.id}`.")
    else:
        say(f"Reservation {it.id} stays in line for this {holder.kind}. {why(it)}")
        say(f"This {holder.kind} holds it when it is granted: `jupyter gpu wait {it.id}` waits for that.")
    say(f"Leave the line: `jupyter gpu cancel {it.id}`.")


def _become(face: Face, it: WorkloadView, command: tuple[str, ...]) -> NoReturn:
    """Turn into the command; the pid stays, and with it the lease."""
    from .. import pins, spawn
    from ..units import format_when
    from .see import held_by

    until = f" until {format_when(it.ends_at, face.now())}" if it.ends_at is not None else ""
    face.aside(
        f"Reservation {it.id} holds {held_by(face, it)}{until}. Ctrl-C goes to the command now; its end gives back."
    )
    face.flush()
    environ = dict(environ_of(face)) | pins.under(it.id, it.devices)
    try:
        spawn.become(command, environ)
    except OSError as error:
        _give_up(face, it.id)
        raise InvalidAsk(
            f"{command[0]!r} cannot be run: {error.strerror}.", hint="The reservation is given back."
        ) from None
