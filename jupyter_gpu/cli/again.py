"""`jupyter gpu again`: submit a job once more, from what was kept of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from ..errors import GpuError, InvalidAsk
from .base import Face, json_option, pass_face
from .sections import InSections, in_section
from .submit import ASK, PLACE
from .words import Count, Seconds, WorkloadId

if TYPE_CHECKING:
    from pathlib import Path

    from ..model import Ask, JobSpec, Script, SubmitBody, WorkloadView
    from ..recording import Recorded

_EXAMPLES = """\b
Examples:
  jupyter gpu again 12
  jupyter gpu again 12 --lr 0.01
  jupyter gpu again --gpus 2 --queue deferred 12 --epochs 20
  jupyter gpu again 12 -p lr=0.01
  jupyter gpu again 12 -- --name resnet
"""


class _Again(InSections):
    """What is none of our options is one of the command's; after -- all is."""


@click.command(
    cls=_Again,
    short_help="Submit a job once more, as it was or with other values.",
    epilog=_EXAMPLES,
    context_settings={"ignore_unknown_options": True},
)
@in_section(
    "GPUs",
    click.option("--gpus", type=Count(0), help="How many; 0 sees none."),
    click.option("--time", "seconds", type=Seconds("time limit"), help="The time limit, such as 8h."),
    *ASK,
)
@in_section(
    "Its place in line",
    *PLACE,
    click.option("--not-before", metavar="WHEN", help="The earliest start: 22:00, +2h, or a date and time."),
    click.option("--paused", is_flag=True, help="Keep it from starting until `let-go`."),
    click.option("--key", metavar="KEY", help="The same key for the same job is one job, and no new one."),
)
@in_section(
    "What it runs",
    click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="Another variable, or another value of one."),
    click.option("--param", "-p", multiple=True, metavar="NAME=VALUE", help="A parameter, of a notebook say."),
    click.option("--retries", type=click.IntRange(min=0), help="How many failed attempts are repeated."),
    click.option("--grace", type=Seconds("grace"), help="From the notice to yield until it is ended."),
    click.option(
        "--checkpoint-dir", metavar="DIR", help="Where its checkpoints lie; a folder of its own if not given."
    ),
)
@click.option("--array", is_flag=True, help="All of the array that job ID is one of, each with its values.")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint of job ID, instead of from the start.")
@click.option("--dry-run", is_flag=True, help="Say what would become of it, and queue nothing.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit 0 only if it succeeded.")
@json_option
@click.argument("workload", type=WorkloadId(), metavar="ID")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[[--] --NAME VALUE...]")
@pass_face
def again(face: Face, /, workload: int, **words: Any) -> int:
    """Submit job ID once more: its script as it was then, its command, its variables, and what it asked for.

    What else lies in its folder is as it is now. Other values of the command's options are given as the command has
    them: `--lr 0.01` takes the place of `--lr 0.1`. It begins anew, with checkpoints of its own.
    """
    from .act import wait_for_end
    from .script import Command
    from .sent import foretell, tell_sent
    from .submit import newest_of, send
    from .text import ids_of, sentence

    before = face.client.workload(workload)
    body, keep, notes = _body(face, before, words)
    if body.spec is None:  # for the types: `_body` refuses what runs nothing
        return 0
    command = Command(body.spec, None, tuple(notes), keep)
    for note in notes:
        face.aside(sentence(note))
    if words["dry_run"]:
        foretell(face, face.client.dry_run(body), command)
        return 0
    newest = newest_of(face) if words["key"] else 0
    with _going_on(before, body.spec, is_so=words["resume"]):
        it = send(face, body, key=words["key"], keep=keep)
    if not (face.as_json and words["wait"]):
        tell_sent(face, it, command, is_known=it.id <= newest)
    return wait_for_end(face, ids_of(it)) if words["wait"] else 0


def _body(face: Face, before: WorkloadView, words: Mapping[str, Any]) -> tuple[SubmitBody, tuple[str, ...], list[str]]:
    """Make the ask of an earlier one; with the variables that pass by name, and what to tell."""
    from ..environment import stays_out
    from ..model import Kind, SubmitBody
    from .text import title
    from .when import parse_instant

    # An operator sees everybody's, and nothing of another's is run or touched: neither its programs nor its folder.
    if before.kind is not Kind.JOB or before.spec is None or not before.is_mine:
        raise InvalidAsk(f"{title(before)} is no job of yours.", hint="`jupyter gpu queue --all --mine` lists yours.")
    spec, notes = _changed(face, before.spec, words)
    array: tuple[Mapping[str, str], ...] = ()
    if words["array"]:
        spec, array = _whole(face, before, spec, words)
    if words["resume"]:
        spec, notes = _resumed(before, spec, words), [*notes, "it goes on from the newest checkpoint"]
    spec, record, more = _recorded(face, before, spec)
    ask, told = _ask(face, before, words)
    queue, name, team = words["queue"] or before.queue, words["name"] or before.name or "", words["team"] or before.team
    for what, old, new in (
        ("queue", before.queue, queue),
        ("name", before.name or "", name),
        ("team", before.team, team),
    ):
        if old != new:
            told.append(f"{what} {new} instead of {old or 'none'}")
    if before.after:
        others = " and ".join(f"job {it.workload}" for it in before.after)
        told.append(f"it comes after nothing, and job {before.id} came after {others}")
    differs = [*notes, *told]
    other = f"array {before.member.array}" if array and before.member is not None else f"job {before.id}"
    heading = f"It differs from {other}: {'; '.join(differs)}" if differs else f"It is as {other} was"
    body = SubmitBody(
        kind=Kind.JOB,
        ask=ask,
        queue=queue,
        team=team,
        name=name,
        spec=spec,
        not_before=None if words["not_before"] is None else parse_instant(words["not_before"], face.now()),
        paused=words["paused"],
        record=record,
        again=before.id,
        array=tuple(map(dict, array)),
        at_most=before.member.at_most if array and before.member is not None else None,
    )
    keep = tuple(sorted(name for name, value in spec.environment.items() if stays_out(name, value)))
    return body, keep, [heading, *more]


def _whole(
    face: Face, before: WorkloadView, spec: JobSpec, words: Mapping[str, Any]
) -> tuple[JobSpec, tuple[Mapping[str, str], ...]]:
    """What an array was submitted as, with the values of each of it."""
    import msgspec

    from ..notebooks import INDEX, RUNNER
    from .export import MOST_JOBS

    member = before.member
    if member is None or before.spec is None:
        raise InvalidAsk(f"Job {before.id} is of no array.", hint="Leave --array out.")
    if words["resume"]:
        raise click.UsageError("--resume is for one job: its checkpoints are one folder.")
    if member.of > MOST_JOBS:
        raise InvalidAsk(f"The array has {member.of} jobs; {MOST_JOBS} are the most.", hint="Submit it anew.")
    changed = [name for name in member.parameters if spec.parameters.get(name) != before.spec.parameters.get(name)]
    if changed:
        raise InvalidAsk(
            f"Each of the array has its own {changed[0]}, so one value of it is none of all.",
            hint="Submit another array, or leave --array out.",
        )
    had = spec.unfilled
    argv = list(spec.argv if had is None else had.argv)
    if RUNNER in argv:
        stem, dot, suffix = argv[-1].rpartition(".")
        argv[-1] = f"{stem}-{INDEX}{dot}{suffix}"
    others = (face.client.workload(number).member for number in member.ids)
    return msgspec.structs.replace(
        spec,
        argv=tuple(argv),
        environment=spec.environment | ({} if had is None else had.environment),
        parameters={name: value for name, value in spec.parameters.items() if name not in member.parameters},
        unfilled=None,
    ), tuple(it.parameters for it in others if it is not None)


def _ask(face: Face, it: WorkloadView, words: Mapping[str, Any]) -> tuple[Ask, list[str]]:
    import msgspec

    from ..client.naming import uuids_of
    from .text import ask_text

    on = uuids_of(words["on"], face.client.devices().items) if words["on"] else ()
    given = {
        "devices": words["gpus"] if words["gpus"] is not None else len(on) or None,
        "duration_seconds": words["seconds"],
        "device_class": words["device_class"],
        "memory_bytes": words["memory"],
        "min_free_bytes": words["min_free"],
        "pool": words["pool"],
        "on": on or None,
    }
    ask = msgspec.structs.replace(it.ask, **{name: value for name, value in given.items() if value is not None})
    if ask == it.ask:
        return ask, []
    return ask, [f"{ask_text(ask)} instead of {ask_text(it.ask)}"]


def _changed(face: Face, spec: JobSpec, words: Mapping[str, Any]) -> tuple[JobSpec, list[str]]:
    """What it runs, with what was given in the place of what was."""
    import msgspec

    from ..environment import select
    from ..model import Unfilled, filler
    from ..notebooks import with_new_results
    from .beside import read_parameters
    from .changes import change, read_changes, set_parameter
    from .script import pack
    from .text import unpacked

    unfilled = spec.unfilled or Unfilled(argv=spec.argv)
    found = change(
        [unpacked(word) for word in unfilled.argv],
        spec.parameters,
        read_changes(words["changes"]),
        first=(spec.script_index or 0) + 1,
        texts=unfilled.texts,
    )
    read_parameters((), words["param"])  # refused where it gives no value
    differs = found.differs + [
        set_parameter(found.parameters, found.texts, *pair.split("=", 1)) for pair in words["param"]
    ]
    variables, _ = select(_environ(face), words["env"])
    asked = {pack(text.partition("=")[0]) for text in words["env"]}
    given = {name: value for name, value in variables.items() if name in asked}
    differs += [f"variable {unpacked(name)}" for name, value in given.items() if spec.environment.get(name) != value]
    if spec.checkpoint_dir is not None and words["checkpoint_dir"] is None and not words["resume"]:
        differs.append(f"its checkpoints go into a folder of its own, and not into {unpacked(spec.checkpoint_dir)}")
    wished = {"retries": words["retries"], "grace_seconds": words["grace"]}
    differs += [f"{name.partition('_')[0]} {value}" for name, value in wished.items() if value is not None]
    argv = tuple(map(pack, with_new_results(found.argv, unpacked(spec.folder), key=words["key"])))
    theirs = {name: text for name, text in unfilled.environment.items() if name not in given}
    filled = filler(found.texts) if found.texts else str
    new = msgspec.structs.replace(
        spec,
        argv=tuple(map(filled, argv)),
        parameters=found.parameters,
        environment=spec.environment | {name: filled(text) for name, text in theirs.items()} | given,
        unfilled=Unfilled(argv=argv, environment=theirs, texts=found.texts) if found.texts else None,
        checkpoint_dir=None if words["checkpoint_dir"] is None else pack(words["checkpoint_dir"]),
        script_copy=None,
        kept={},
        **{name: value for name, value in wished.items() if value is not None},
    )
    return new, differs


def _resumed(before: WorkloadView, spec: JobSpec, words: Mapping[str, Any]) -> JobSpec:
    """It looks for its checkpoints in a folder of its own, into which the newest one of the other is brought."""
    import msgspec

    from .resume import name_for, newest_of
    from .script import pack

    if words["checkpoint_dir"] is not None:
        raise click.UsageError("--resume makes a folder for the checkpoints: leave --checkpoint-dir out.")
    newest_of(_home(before), before.id)  # refused where there is none
    return msgspec.structs.replace(spec, checkpoint_dir=pack(name_for(before.id, words["key"])))


def _going_on(before: WorkloadView, spec: JobSpec, *, is_so: bool) -> AbstractContextManager[None]:
    """The newest checkpoint of the other job lies where this one looks for its own, from before it is sent."""
    from .resume import taken_over
    from .text import unpacked

    if not is_so:
        return nullcontext()
    return taken_over(_home(before), unpacked(spec.folder), unpacked(spec.checkpoint_dir or ""), before.id)


def _home(before: WorkloadView) -> Path:
    from .resume import checkpoints_of
    from .text import unpacked

    named = None if before.spec is None else before.spec.checkpoint_dir
    folder = "" if before.spec is None else unpacked(before.spec.folder)
    return checkpoints_of(folder, None if named is None else unpacked(named), before.id)


def _environ(face: Face) -> Mapping[str, str]:
    return os.environ if face.environ is None else face.environ


def _recorded(face: Face, before: WorkloadView, spec: JobSpec) -> tuple[JobSpec, tuple[Script, ...], list[str]]:
    """What its folder and its Python are now, where they can be seen from here, and what has changed of them since."""
    import msgspec

    from ..recording import record
    from .text import unpacked

    own = {name: spec.recorded[name] for name in ("program",) if name in spec.recorded} | {"again": str(before.id)}
    if "output_notebook" in spec.recorded:
        own["output_notebook"] = spec.argv[-1]
    folder = unpacked(spec.folder)
    if not os.path.isdir(folder):  # noqa: PTH112 - another machine's: what was recorded of it still holds
        return msgspec.structs.replace(spec, recorded=spec.recorded | own), (), []
    environ = {unpacked(name): unpacked(value) for name, value in spec.environment.items()}
    environ.setdefault("HOME", _environ(face).get("HOME", "/"))
    found = record(folder, [unpacked(word) for word in spec.argv], environ, own=_environ(face))
    notes = list(_notes(face, before, found, folder))
    return msgspec.structs.replace(spec, recorded=found.words | own), found.record, notes


def _notes(face: Face, before: WorkloadView, found: Recorded, folder: str) -> Iterator[str]:
    """Tell what is not as it was then, though it belongs to what runs."""
    from .changes import differing_files
    from .script import read_file
    from .text import safe, unpacked

    spec = before.spec
    if spec is None:
        return
    then, now = spec.recorded.get("git_commit", ""), found.words.get("git_commit", "")
    if then != now:
        yield f"its folder is at commit {now[:12] or 'none'} now, and was at {then[:12] or 'none'} then"
    contents = {it.name: it.content for it in found.record}
    if then == now and (diff := _kept(face, before, "diff")) not in (None, contents.get("diff", b"")):
        files = ", ".join(map(safe, differing_files(diff or b"", contents.get("diff", b""))))
        yield f"what is not committed in its folder is not the same as then{files and f': {files}'}"
    if _kept(face, before, "packages") not in (None, contents.get("packages", b"")):
        yield "the packages of its Python are not the same as then"
    if spec.script_index is not None:
        word = unpacked(spec.argv[spec.script_index])
        try:
            is_same = _kept(face, before, "script") in (None, read_file(os.path.join(folder, word), 16 << 20))  # noqa: PTH118
        except (OSError, ValueError):
            return
        if not is_same:
            yield f"the file {word} has changed since: the copy of job {before.id} runs"


def _kept(face: Face, before: WorkloadView, name: str) -> bytes | None:
    """What was kept; empty where nothing was to be, and None where it cannot be had any more."""
    if before.spec is None or (name != "script" and name not in before.spec.kept):
        return b""
    try:
        return face.client.record(before.id, name)
    except GpuError:
        return None
