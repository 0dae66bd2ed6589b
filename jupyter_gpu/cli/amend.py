"""`jupyter gpu amend`: what queued jobs come after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .act import change, ids_argument
from .base import Face, json_option, pass_face
from .text import sentence, title
from .whole import array_option
from .words import WorkloadIds

if TYPE_CHECKING:
    from ..model import WorkloadView


@click.command(short_help="Let queued jobs come after others.")
@ids_argument
@click.option(
    "--after",
    type=WorkloadIds(),
    multiple=True,
    metavar="ID[,ID]",
    help="After these have ended, and after nothing else.",
)
@click.option(
    "--after-ok", type=WorkloadIds(), multiple=True, metavar="ID[,ID]", help="Likewise, and only if they succeeded."
)
@click.option("--no-after", is_flag=True, help="After nothing any more.")
@array_option
@json_option
@pass_face
def amend(
    face: Face,
    /,
    workloads: tuple[int, ...],
    *,
    after: tuple[str, ...],
    after_ok: tuple[str, ...],
    no_after: bool,
    array: bool,
) -> int:
    """Let queued jobs come after others, in the place of what was said before. They keep their places.

    The first number of an array means all of it. Who waits for nothing that is still to end may start.
    """
    from .batch import dependencies

    if no_after == bool(after or after_ok):
        raise click.UsageError("Say what they come after: --after, --after-ok, or --no-after.")
    wanted = dependencies(after, after_ok)
    return change(
        face,
        workloads,
        lambda number: face.client.chain(number, wanted),
        _told,
        array=(lambda number: face.client.chain_array(number, wanted)) if array else None,
        word=lambda _: "amended",
    )


def _told(it: WorkloadView) -> str:
    done = [str(dependency.workload) for dependency in it.after if dependency.ok]
    ended = [str(dependency.workload) for dependency in it.after if not dependency.ok]
    parts = [*([_listed(ended)] if ended else []), *([f"the success of {_listed(done)}"] if done else [])]
    said = f"{title(it)} comes after {' and '.join(parts) or 'nothing'}."
    return " ".join(filter(None, (said, sentence(it.reason))))


def _listed(numbers: list[str]) -> str:
    *others, last = numbers
    return f"{', '.join(others)} and {last}" if others else last
