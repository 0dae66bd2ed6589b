"""`jupyter gpu submit`: queue a job."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidAsk
from .base import Face, json_option, pass_face
from .batch import AXIS
from .sections import SpreadsWords, in_section
from .words import Count, DeviceName, QueueName, Seconds, Size, WorkloadIds

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
  jupyter gpu submit --array lr=0.1,0.01 seed=1..5 -- ./train.py {lr} {seed}
  jupyter gpu submit --after-ok 12 -- python summary.py
  jupyter gpu submit -p lr=0.1 train.ipynb
  jupyter gpu submit --cron "30 2 * * *" -- python nightly.py
  jupyter gpu submit --shell "python a.py && python b.py"
"""


#: What submit, reserve and again say alike of the GPUs that are wanted, and of the place in line.
ASK = (
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
)
PLACE = (
    click.option("--queue", type=QueueName(), metavar="QUEUE", help="The line to stand in."),
    click.option("--team", metavar="TEAM", help="The team that it counts for."),
    click.option("--name", default="", metavar="NAME", help="What lists call it."),
)


def ask_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what submit and reserve say alike of the GPUs that are wanted."""
    for option in reversed((*ASK, *PLACE)):
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


_AFTER = "Start after these jobs have ended: 12, or 12,13. The first number of an array means all of it."


class _Submit(SpreadsWords):
    """What follows the first word that is no option belongs to the command, whatever it looks like."""

    spreads = MappingProxyType({"--array": AXIS.fullmatch})


@click.command(
    cls=_Submit,
    short_help="Queue a job; it runs when its GPUs are free.",
    epilog=_EXAMPLES,
    context_settings={"allow_interspersed_args": False},
)
@in_section(
    "GPUs",
    click.option("--gpus", type=Count(0), help="How many; 0 sees none. If not given: 1, or as many as --on names."),
    click.option("--time", "seconds", type=Seconds("time limit"), help="The time limit, such as 8h."),
    *ASK,
)
@in_section(
    "Its place in line",
    *PLACE,
    click.option("--not-before", metavar="WHEN", help="The earliest start: 22:00, +2h, or a date and time."),
    click.option("--after", type=WorkloadIds(), multiple=True, metavar="ID[,ID]", help=_AFTER),
    click.option(
        "--after-ok",
        type=WorkloadIds(),
        multiple=True,
        metavar="ID[,ID]",
        help="Likewise, and only if they succeeded.",
    ),
    click.option("--paused", is_flag=True, help="Keep it from starting until `let-go`."),
    click.option("--key", metavar="KEY", help="The same key with the same command is the same job, and no new one."),
)
@in_section(
    "Many, and again and again",
    click.option(
        "--array",
        multiple=True,
        metavar="NAME=VALUES...",
        help="A job for each value, and of several names for each with each: lr=0.1,0.01 seed=1..5. "
        'In the command {lr} is the value, {index} the place from 1. FIRST..LAST..STEP has steps, "a,b" is one value.',
    ),
    click.option("--at-most", type=click.IntRange(min=1), metavar="K", help="So many jobs of the array run at once."),
    click.option("--cron", metavar="CALENDAR", help='A job at each of these times, such as "30 2 * * *".'),
    click.option("--zone", metavar="ZONE", help="The time zone of --cron, such as Europe/Amsterdam."),
    click.option(
        "--overlap",
        type=click.Choice(["skip", "queue"]),
        help="With --cron, when the last one is not over: skip this time, as it does if not given, or queue it.",
    ),
)
@in_section(
    "What it runs, and where",
    click.option("--shell", "shell_line", metavar="LINE", help="A line for a shell, instead of a command without."),
    click.option("--folder", metavar="DIR", help="Where it runs; the current folder if not given."),
    click.option(
        "--env", multiple=True, metavar="NAME[=VALUE]", help="Pass a variable on, or set it; may be repeated."
    ),
    click.option(
        "--param",
        "-p",
        multiple=True,
        metavar="NAME=VALUE",
        help="A notebook's parameter; others find it in JUPYTER_GPU_PARAMETERS. May be repeated.",
    ),
    click.option("--params", multiple=True, metavar="FILE", help="Parameters out of a YAML or JSON file."),
    click.option("--kernel", metavar="KERNEL", help="The kernel of a notebook, if not the one that it names."),
    click.option("--image", metavar="IMAGE", help="Run it in a container of this image."),
    click.option(
        "--mount", multiple=True, metavar="SOURCE:TARGET[:ro]", help="What the container sees; may be repeated."
    ),
    click.option(
        "--container-engine",
        type=click.Choice(["docker", "podman", "apptainer"]),
        metavar="ENGINE",
        help="What runs the container: docker, podman or apptainer.",
    ),
    click.option("--no-record", is_flag=True, help="Write no git commit, diff and packages down with it."),
)
@in_section(
    "While it runs",
    click.option("--retries", type=click.IntRange(min=0), help="How many failed attempts are repeated."),
    click.option("--grace", type=Seconds("grace"), help="From the notice to yield until it is ended."),
    click.option("--checkpoint-dir", metavar="DIR", help="Where its checkpoints lie, seen from the folder."),
    click.option("--hang", type=Seconds("hang"), help="Without a sign of life for so long it is started anew."),
    click.option(
        "--notify",
        multiple=True,
        metavar="TARGET",
        help="Tell a URL, a command or a name of your notify.toml of it; may be repeated.",
    ),
    click.option("--notify-on", multiple=True, metavar="WHAT[,WHAT]", help="Only of this: ended, failed, preempted..."),
    click.option("--no-notify", is_flag=True, help="Tell nobody, whatever your notify.toml says."),
)
@in_section(
    "This command",
    click.option("--dry-run", is_flag=True, help="Say what would become of it, and queue nothing."),
    click.option("--wait", is_flag=True, help="Wait until it has ended; exit 0 only if it succeeded."),
    click.option("--follow", is_flag=True, help="Show what it prints until it has ended, then as --wait."),
    json_option,
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@pass_face
def submit(face: Face, /, gpus: int | None, seconds: int | None, **words: Any) -> int:
    """Queue COMMAND as a job. It runs as it stands here, without a shell, in this folder.

    It goes on when this terminal is closed. A script that is named in the command is copied now, so that
    an edit does not change the queued job. A notebook (train.ipynb) is copied too; its results go into a new one
    beside it, or into the one that is named behind it.
    """
    from .sent import foretell, tell_sent
    from .text import safe, sentence, unpacked

    _refuse_what_does_not_fit(face, words)
    body, command = _body(face, gpus, seconds, words)
    for note in (*command.notes, *_notes_of_options([unpacked(word) for word in command.spec.argv])):
        # A notebook's name stays as it is spelt.
        face.aside(sentence(note, name="" if command.script is None else safe(unpacked(command.script.name))))
    if words["dry_run"]:
        foretell(face, face.client.dry_run(body, words["cron"], words["zone"]), command)
        return 0
    if words["cron"] is not None:
        _add_recurring(face, body, command, words)
        return 0
    newest = newest_of(face) if words["key"] else 0
    it = send(face, body, key=words["key"], keep=command.given)
    if not (face.as_json and words["wait"]):
        tell_sent(face, it, command, is_known=it.id <= newest)
    return _then(face, it, words)


def _refuse_what_does_not_fit(face: Face, words: Mapping[str, Any]) -> None:
    waits = words["wait"] or words["follow"]
    many = words["array"] or words["cron"] is not None
    refusals = (
        (words["follow"] and face.as_json, "--follow shows a log and --json one document: choose one."),
        (words["follow"] and many, "--follow shows one log, and these are several: `jupyter gpu log ID --follow`."),
        (words["dry_run"] and waits, "--dry-run queues nothing that could be waited for."),
        (words["at_most"] is not None and not words["array"], "--at-most is for the jobs of an --array."),
        (words["cron"] is None and words["zone"] is not None, "--zone is for --cron."),
        (words["cron"] is None and words["overlap"] is not None, "--overlap is for --cron."),
        (words["cron"] is not None and waits, "A --cron has no end that could be waited for."),
        (words["cron"] is not None and words["not_before"] is not None, "--cron says when: leave --not-before out."),
    )
    for is_so, said in refusals:
        if is_so:
            raise click.UsageError(said)


def _body(face: Face, gpus: int | None, seconds: int | None, words: dict[str, Any]) -> tuple[SubmitBody, Command]:
    from ..model import Kind, SubmitBody
    from .batch import dependencies, read_array
    from .beside import with_record, with_wishes
    from .when import parse_instant

    environ = os.environ if face.environ is None else face.environ
    array = read_array(words["array"])
    command = _command(face, words, environ, array)
    spec = with_wishes(command.spec, words, environ)
    spec, record = (spec, ()) if words["no_record"] else with_record(spec, environ)
    body = SubmitBody(
        kind=Kind.JOB,
        ask=make_ask(face, gpus, seconds, words),
        queue=words["queue"],
        team=words["team"],
        name=words["name"] or _name_of(command),
        spec=spec,
        script=command.script,
        not_before=None if words["not_before"] is None else parse_instant(words["not_before"], face.now()),
        paused=words["paused"],
        after=dependencies(words["after"], words["after_ok"]),
        array=array,
        at_most=words["at_most"],
        record=record,
    )
    return body, command._replace(spec=spec)


def _command(
    face: Face, words: Mapping[str, Any], environ: Mapping[str, str], array: Sequence[Mapping[str, str]]
) -> Command:
    """Find what runs: a command, a line for a shell, the cell that is sent, or a notebook."""
    from ..notebooks import is_notebook, make_notebook_command, refuse_no_notebook
    from .batch import notes_of_array
    from .beside import read_parameters
    from .script import make_command, shell_argv
    from .text import unpacked

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
    argv = argv if line is None else shell_argv(line)
    parameters = read_parameters(words["params"], words["param"])
    alike: dict[str, Any] = {
        "folder": words["folder"],
        "environ": environ,
        "wanted": words["env"],
        "checkpoint_dir": words["checkpoint_dir"],
        "retries": words["retries"],
        "grace_seconds": words["grace"],
        "parameters": parameters,
        "in_image": words["image"] is not None,
    }
    if face.cell is None and is_notebook(argv):
        names = tuple(array[0]) if array else ()
        output = argv[1] if len(argv) > 1 else None
        recurs = words["cron"] is not None
        return make_notebook_command(
            argv[0], array=names, kernel=words["kernel"], output=output, key=words["key"], recurs=recurs, **alike
        )
    if face.cell is None:
        refuse_no_notebook(argv)
    if words["kernel"] is not None:
        raise click.UsageError("--kernel is for a notebook.")
    command = make_command(argv, text=face.cell, **alike)
    notes = list(command.notes)
    if parameters:
        notes.append(f"the job finds {', '.join(parameters)} in JUPYTER_GPU_PARAMETERS, which is JSON")
    if array:
        notes += notes_of_array(array[0], argv, command.spec.environment)
    return command._replace(notes=tuple(notes))


def _name_of(command: Command) -> str:
    """Call a notebook as its file is called, where it is called nothing else: it runs by a long line of ours."""
    from .text import safe, unpacked

    if command.script is None or "output_notebook" not in command.spec.recorded:
        return ""
    return safe(unpacked(command.script.name))[:_LONGEST_NAME]


_LONGEST_NAME = 200


def _add_recurring(face: Face, body: SubmitBody, command: Command, words: Mapping[str, Any]) -> None:
    from ..model import Overlap, RecurringBody
    from .sent import tell_recurring

    overlap = Overlap.SKIP if words["overlap"] is None else Overlap(words["overlap"])
    asked = RecurringBody(cron=words["cron"], timezone=words["zone"], overlap=overlap, job=body)
    with face.going_on("It may have been accepted already; `jupyter gpu recurring` shows it."):
        it = face.client.add_recurring(asked, words["key"] or uuid.uuid4().hex, keep=command.given)
    tell_recurring(face, it, command)


def newest_of(face: Face) -> int:
    """Give the caller's newest workload: what a key is answered with is new only if its number is higher."""
    return next((it.id for it in face.client.workloads(mine=True, ended=True)), 0)


def _then(face: Face, it: WorkloadView, words: Mapping[str, Any]) -> int:
    """Look on, where that was asked for; give the exit code."""
    from .act import wait_for_end
    from .text import ids_of

    if words["follow"]:
        from .log import follow

        follow(face, it.id, None)
    if words["wait"] or words["follow"]:
        return wait_for_end(face, ids_of(it))
    return 0


def _notes_of_options(argv: Sequence[str]) -> list[str]:
    """Tell of words that look like ours and stand where they are the command's."""
    from .text import command_line

    found = []
    for word, value in pairwise([*argv[1:], ""]):
        if word.partition("=")[0] in _OURS:
            shown = [word] if "=" in word or not value or value.startswith("-") else [word, value]
            found.append(f"{command_line(shown)} goes to the command; options of submit stand before it")
    return found
