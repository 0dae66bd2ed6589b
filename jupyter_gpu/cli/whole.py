"""What is done to all of an array at once: its jobs one by one, since each has a life of its own, told in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from ..errors import Conflict
from .base import Face, for_each
from .text import ids_of, plural, safe

if TYPE_CHECKING:
    from ..model import WorkloadView

array_option = click.option("--array", is_flag=True, help="All of the array that a job is of.")

#: The broker writes each change down before it answers, so that of more than these somebody waits.
_MANY = 500

#: What is done to one, and what became of it in a word or two: "cancelled".
Act = Callable[[int], "WorkloadView"]
Word = Callable[["WorkloadView"], str]


def arrays_of(face: Face, named: Iterable[int]) -> tuple[list[WorkloadView], list[int]]:
    """Part what is named into arrays, each by one of its jobs, and what is of none."""
    arrays: dict[int, WorkloadView] = {}
    alone: list[int] = []
    for number in named:
        it = face.client.workload(number)
        if it.member is None:
            alone.append(number)
        else:
            arrays.setdefault(it.member.array, it)
    return list(arrays.values()), alone


def change_array(
    face: Face, of: WorkloadView, act: Act, word: Word, *, only_waiting: bool = False
) -> tuple[list[WorkloadView], int]:
    """Change those of an array that are not over, first those that wait; say how many became what."""
    ids = ids_of(of)
    alive = [it for it in face.client.workloads() if it.id in ids and not (only_waiting and it.state != "queued")]
    if not alive:
        array = of.member.array if of.member is not None else of.id
        what = "waits: it runs or has ended" if only_waiting else "has ended already"
        raise Conflict(f"{'none' if only_waiting else 'all'} of array {array} {what}")
    # Those that wait are first, or they would get the GPUs of those that run.
    ordered = sorted(alive, key=lambda it: (it.state != "queued", it.id))
    if len(ordered) > _MANY and face.is_attended:
        face.aside(f"{plural(len(ordered), 'job')}, one by one: this may take a minute.")
    with face.going_on("What has been changed stays so; the same command again changes the rest."):
        done, code = for_each(face, [it.id for it in ordered], act)
    if done and not face.as_json:
        face.say(_told(of, done, word))
    return done, code


def _told(of: WorkloadView, done: Sequence[WorkloadView], word: Word) -> str:
    array = of.member.array if of.member is not None else of.id
    said = ", ".join(filter(None, (safe(of.name or ""), plural(len(ids_of(of)), "job"))))
    counts = Counter(word(it) for it in done)
    return f"Array {array} ({said}): {', '.join(f'{count} {became}' for became, count in counts.items())}."


def remark_on_array(face: Face, done: Iterable[WorkloadView]) -> None:
    """Say to who named the first of an array alone how all of it is meant."""
    for it in done:
        if it.member is not None and it.member.array == it.id:
            face.aside(f"Only this one of array {it.id}: `--array` is for all of it.")
