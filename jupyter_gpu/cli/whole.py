"""What is done to all of an array at once, told in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from .base import Face
from .text import ids_of, plural, safe, state_word

if TYPE_CHECKING:
    from ..model import WorkloadView

array_option = click.option("--array", is_flag=True, help="All of the array that a job is of.")

#: What is done to one, and what became of it in a word or two: "cancelled".
Act = Callable[[int], "WorkloadView"]
Word = Callable[["WorkloadView"], str]
#: What is done to all of an array that one is of.
ActOnAll = Callable[[int], Sequence["WorkloadView"]]


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


def change_array(face: Face, of: WorkloadView, act: ActOnAll, word: Word) -> Sequence[WorkloadView]:
    """Change all of an array that it can concern; say how many became what."""
    done = act(of.id)
    if not face.as_json:
        face.say(_told(of, done, word))
    return done


def _told(of: WorkloadView, done: Sequence[WorkloadView], word: Word) -> str:
    array = of.member.array if of.member is not None else of.id
    said = ", ".join(filter(None, (safe(of.name or ""), plural(len(ids_of(of)), "job"))))
    counts = Counter(word(it) for it in done)
    return f"Array {array} ({said}): {', '.join(f'{count} {became}' for became, count in counts.items())}."


def tell_sums(face: Face, done: Iterable[WorkloadView]) -> None:
    """Say of each array that was waited for how many of it ended how."""
    arrays: dict[int, list[WorkloadView]] = {}
    for it in done:
        if it.member is not None:
            arrays.setdefault(it.member.array, []).append(it)
    for its in arrays.values():
        if len(its) > 1:
            face.say(_told(its[0], its, state_word))


def remark_on_array(face: Face, done: Iterable[WorkloadView]) -> None:
    """Say to who named the first of an array alone how all of it is meant."""
    for it in done:
        if it.member is not None and it.member.array == it.id:
            face.aside(f"Only this one of array {it.id}: `--array` is for all of it.")
