"""`jupyter gpu ...`: the group, its verbs and its one entry, `run`.

The verbs live in the modules of this folder and are imported when they are called, so that `--help` answers at once.
Commands never end the process: they return an exit code or raise, and `run` turns that into a number, for the terminal
as for the magics, which hand in their own client and consoles.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from ..errors import GpuError, InvalidAsk
from .base import INTERRUPTED, PIPE_CLOSED, Face, at_end_of_pipe, usage_error, wants_json

if TYPE_CHECKING:
    from rich.console import Console

    from ..client import Client
    from ..model import Holder

PROGRAM = "jupyter gpu"
COMPLETE_VARIABLE = "_JUPYTER_GPU_COMPLETE"

# Verb -> the module that has it and what `--help` says. Written here so that help imports none of them; a test
# compares both.
VERBS: dict[str, dict[str, tuple[str, str]]] = {
    "Ask": {
        "reserve": ("reserve", "Reserve GPUs for this shell, or for one command."),
        "submit": ("submit", "Queue a job; it runs when its GPUs are free."),
        "again": ("again", "Submit a job once more, as it was or with other values."),
        "recurring": ("recurring", "List, add or change jobs that come by a calendar."),
    },
    "See": {
        "status": ("see", "Show the GPUs, your work, your quota and the lines."),
        "queue": ("see", "List what runs and what waits, and why."),
        "show": ("show", "Show all that is known of one workload."),
        "log": ("log", "Show what a job printed."),
        "progress": ("progress", "Show how far a job is, and its curves."),
        "events": ("show", "Tell the story of one workload."),
        "export": ("export", "Write what runs a job elsewhere."),
        "checkpoints": ("checkpoints", "Show what trainings have saved, and remove what is old."),
        "quota": ("see", "Show what you hold, use and have left."),
        "devices": ("see", "List the GPUs with their UUIDs."),
        "report": ("report", "Show what was used, who waited, what was lost."),
        "simulate": ("simulate", "Replay a trace under other rules, or on other GPUs."),
    },
    "Change": {
        "wait": ("act", "Wait until workloads have ended or hold their GPUs."),
        "cancel": ("act", "End workloads, or give up their places in line."),
        "pause": ("act", "Keep queued jobs from starting; they keep their places."),
        "let-go": ("act", "Let paused jobs start."),
        "amend": ("amend", "Let queued jobs come after others."),
        "extend": ("act", "Ask for more time."),
        "keep": ("act", "Keep reservations that are idle."),
        "release": ("act", "Give reservations back."),
    },
    "Operate": {
        "cordon": ("operate", "Give no new leases on GPUs."),
        "uncordon": ("operate", "Give leases on GPUs again."),
        "drain": ("operate", "Cordon GPUs, and ask the work on them to yield."),
        "forget": ("operate", "List lost GPUs no more."),
        "hold": ("holds", "List, add or remove holds: for courses, for teams, for maintenance."),
        "policy": ("policy", "Show the rules in force, or what others would change."),
        "broker": ("operate", "Show, start or stop the broker."),
        "doctor": ("doctor", "Check what could be wrong, and say what helps."),
        "completion": ("operate", "Print what makes your shell complete these commands."),
    },
}
_HOME = {verb: entry for verbs in VERBS.values() for verb, entry in verbs.items()}

# What people of other queues type.
_MEANT = {
    "list": "queue", "ls": "queue", "ps": "queue", "top": "status", "logs": "log", "tail": "log", "kill": "cancel",
    "stop": "cancel", "rm": "cancel", "run": "submit", "start": "let-go", "resume": "let-go", "holds": "hold",
    "info": "show", "inspect": "show", "gpus": "devices", "free": "release", "cron": "recurring",
    "crontab": "recurring", "schedule": "recurring", "stats": "report", "usage": "report", "sreport": "report",
    "replay": "simulate", "whatif": "simulate",
}  # fmt: skip


class Verbs(click.Group):
    """The group, whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the verbs in the order of the help."""
        return [*_HOME, *(verb for verb, command in _own(ctx).items() if verb not in _HOME and not command.hidden)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb."""
        if cmd_name in _own(ctx):
            return _own(ctx)[cmd_name]
        if cmd_name not in _HOME:
            return None
        module = import_module(f".{_HOME[cmd_name][0]}", __package__)
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or say which was meant."""
        word = args[0]
        if word == "help":
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            return self.resolve_command(ctx, [args[1], "--help"])
        if word in _HOME or word in _own(ctx) or word.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = [_MEANT[word]] if word in _MEANT else difflib.get_close_matches(word, _HOME, n=2)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(f"There is no command {word!r}.{meant}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs by what they are for."""
        own = {verb: it.get_short_help_str(80) for verb, it in _own(ctx).items() if not it.hidden}
        for title, verbs in VERBS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{verb:<10}", own.pop(verb, text)) for verb, (_, text) in verbs.items()])
        if own:
            with formatter.section("Here"):
                formatter.write_dl([(f"{verb:<10}", text) for verb, text in own.items()])


def _own(ctx: click.Context | None) -> Mapping[str, click.Command]:
    # While completing, the group has made no Face.
    return getattr(getattr(ctx, "obj", None), "own", {})


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Lengths of time are written 45s, 90m or 1h30m, memory 500MB or 20GiB. "
    "Each command explains itself with --help.",
)
@click.option("--url", metavar="URL", help="A broker elsewhere; otherwise this machine's is found or started.")
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def gpu(ctx: click.Context, url: str | None) -> None:
    """Share the GPUs of a lab: reserve one, queue a training, see who holds what."""
    ctx.obj.url = url or ctx.obj.url
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(
    args: Sequence[str],
    *,
    client: Client | None = None,
    console: Console | None = None,
    errors: Console | None = None,
    holder: Holder | None = None,
    face: Face | None = None,
) -> int:
    """Run one command line and answer its exit code. Nothing in here ends the process.

    Tests and magics hand in a client and consoles; `errors` is where errors go, stderr if it is not given.
    """
    face = face or Face(client=client, console=console, errors=errors, holder=holder)
    face.as_json = wants_json(args)
    try:
        code = _call(face, list(args))
        face.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return usage_error(face, error)
    except GpuError as error:
        face.tell(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except UnicodeEncodeError:
        # Names and words travel as text. Commands, folders and variables do not: they may be any bytes.
        face.tell(InvalidAsk("A name or a word is no UTF-8.", hint="Only what a job runs may hold such bytes."))
        return InvalidAsk.exit_code
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return PIPE_CLOSED
        face.tell(GpuError(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")))
        return GpuError.exit_code
    finally:
        face.close()
    return code


def _call(face: Face, args: list[str]) -> int:
    # Not Group.main: that ends the process for a closed pipe, and Ctrl-C has its own sentences here.
    with gpu.make_context(face.program, args, obj=face) as ctx:
        answer: Any = gpu.invoke(ctx)
    return answer if isinstance(answer, int) else 0


def main() -> None:
    """Be the console program."""
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(gpu, {"obj": Face()}, "jupyter-gpu", COMPLETE_VARIABLE, instruction))
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown as its number, and never as a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:  # `run` has told it; Python would try once more at its end, and end with a number of its own
        at_end_of_pipe()
    sys.exit(code)
