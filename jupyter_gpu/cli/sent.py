"""What a person is told of what they submitted, or would submit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .base import Face
from .batch import numbers_text
from .recorded import surroundings, told_text
from .text import command_line, end_text, expected_text, ids_of, plural, safe, sentence, shell_word, unpacked, why

if TYPE_CHECKING:
    from ..model import DryRunView, RecurringView, WorkloadView
    from .script import Command


def tell_sent(face: Face, it: WorkloadView, command: Command, *, is_known: bool) -> None:
    """Say its number, what runs, and why it waits."""
    if face.as_json:
        face.document(it)
        return
    if is_known:
        what = _what(it)
        face.say(f"{what[0].upper()}{what[1:]} is there already (same key).")
    else:
        face.say(f"Submitted {_what(it)} to queue {safe(it.queue)}{_numbers(it)}.")
        face.line(f"{'Each' if it.member is not None else 'It'} runs: {_runs(command)}")
    if it.reason:
        # What one holds the others do not; why one waits the others mostly do too.
        is_of_all = it.member is None or it.state == "queued"
        face.say(sentence(it.reason) if is_of_all else f"Its first, job {it.id}: {sentence(it.reason)}")


def _what(it: WorkloadView) -> str:
    name = f" ({safe(it.name)})" if it.name else ""
    return f"job {it.id}{name}" if it.member is None else f"array {it.member.array}{name}"


def _numbers(it: WorkloadView) -> str:
    ids = ids_of(it)
    return "" if it.member is None else f": {plural(len(ids), 'job')}, {numbers_text(ids)}"


def _runs(command: Command) -> str:
    """What runs, in a line that can be pasted; of a notebook which, since a long line of ours runs it."""
    spec = command.spec
    if "output_notebook" in spec.recorded and command.script is not None:
        results = shell_word(unpacked(spec.recorded["output_notebook"]))
        return f"{shell_word(unpacked(command.script.name))}, its results go into {results}"
    return command_line(map(unpacked, spec.argv))


def foretell(face: Face, found: DryRunView, command: Command) -> None:
    """Say what would become of it: where it would stand, when it would start, what it takes, who would make room."""
    from ..units import format_when
    from .picture import quota_table

    if face.as_json:
        face.document(found)
        return
    it = found.workload
    name = f" ({safe(it.name)})" if it.name else ""
    often = " each time" if found.times else ""
    face.say(f"Nothing is queued. It would be {plural(found.jobs, 'job')}{name} in queue {safe(it.queue)}{often}.")
    _foretell_what_runs(face, found, command)
    if found.times:
        when = ", ".join(format_when(at, face.now()) for at in found.times)
        face.say(
            f"The first times by the clock here: {when}. The calendar is in the time of {safe(found.timezone or '')}."
        )
    elif found.starts_now == found.jobs:
        face.say("It would start now." if found.jobs == 1 else "All would start now.")
    elif found.starts_now:
        face.say(f"{found.starts_now} of them would start now. {sentence(found.others_wait)}".rstrip())
    if it.end is not None:
        face.say(f"It would end at once: {end_text(it)}.")
    elif it.state == "queued" and not found.times:
        face.say(why(it))
        if when := expected_text(it, face.now()):
            face.say(f"Expected start: {when}.")
    if found.evicts:
        face.say(f"To make room, {_listed(sorted(found.evicts))} would have to yield.")
    if command.spec.notify:
        face.say(f"Told would be: {told_text(command.spec)}.")
    if found.quotas:
        face.say("", "It would count for", quota_table(found.quotas, face.now()))


def _foretell_what_runs(face: Face, found: DryRunView, command: Command) -> None:
    """Say the command with what belongs to it; of an array also what its first would be, values and all."""
    face.line(f"{'Each' if found.jobs > 1 else 'It'} would run: {_runs(command)}")
    first = found.workload.spec
    if found.jobs > 1 and first is not None and first.argv != command.spec.argv:
        face.line(f"The first of them: {command_line(map(unpacked, first.argv))}")
    for name, value in surroundings(command.spec):
        if name in ("parameters", "image"):
            face.say(f"{'Its parameters' if name == 'parameters' else 'In the image'}: {value}.")


def _listed(ids: Sequence[int]) -> str:
    *others, last = map(str, ids)
    return f"{'workloads' if others else 'workload'} {' and '.join(filter(None, [', '.join(others), last]))}"


def tell_recurring(face: Face, it: RecurringView, command: Command) -> None:
    """Say its number, what runs, and when for the first time."""
    from ..units import format_when

    if face.as_json:
        face.document(it)
        return
    name = f" ({safe(it.name)})" if it.name else ""
    face.say(
        f"Recurring job {it.id}{name} is queued by the calendar {safe(it.cron)}, in the time of {safe(it.timezone)}."
    )
    face.line(f"Each time it runs: {_runs(command)}")
    first = "never" if it.next_at is None else format_when(it.next_at, face.now())
    face.say(f"The first time: {first}. `jupyter gpu recurring` lists what is queued so.")
