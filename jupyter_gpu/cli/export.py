"""`jupyter gpu export`: write a job of the record for another system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from ..errors import Conflict, GpuError, InvalidAsk
from .base import Face, json_option, pass_face
from .words import WorkloadId

if TYPE_CHECKING:
    from ..model import WorkloadView

#: Each job of an array is asked for by itself.
MOST_JOBS = 1000


class ExportDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `export --json` writes."""

    workload: int
    to: str
    text: str
    #: Where it was written, if it was.
    file: str | None = None


_EXAMPLES = """\b
Examples:
  jupyter gpu export 12 --to slurm | sbatch
  jupyter gpu export 12 --to kubernetes | kubectl apply -f -
  jupyter gpu export 12 --to dockerfile -o Dockerfile
"""


@click.command(short_help="Write what runs a job elsewhere.", epilog=_EXAMPLES)
@click.argument("workload", type=WorkloadId(), metavar="ID")
@click.option("--to", required=True, type=click.Choice(["slurm", "kubernetes", "dockerfile"]), help="For which system.")
@click.option("--output", "-o", metavar="FILE", help="Where to; a file that is there already is not written over.")
@click.option("--array", is_flag=True, help="All jobs of the array that it is one of.")
@click.option("--packages", is_flag=True, help="Let a Dockerfile install every package that its Python had.")
@json_option
@pass_face
def export(face: Face, /, workload: int, to: str, output: str | None, **flags: bool) -> None:
    """Write what runs job ID on another system: its command byte for byte, what it asked for, and its variables.

    Variables that look like secrets, or say where something lies on this machine alone, are named and not written.
    """
    if flags["packages"] and to != "dockerfile":
        raise click.UsageError("--packages is for a Dockerfile: elsewhere it runs with the Python of its folder.")
    from ..export import TARGETS, work_of
    from .text import safe

    views = _jobs(face, workload, array=flags["array"])
    text = TARGETS[to](work_of(views, _packages(face, views[0]) if flags["packages"] else b""))
    if output is not None:
        _write(output, text)
    if face.as_json:
        face.document(ExportDocument(workload=workload, to=to, text=text, file=output))
    elif output is None:
        face.write(text)
    else:
        face.aside(f"Written to {safe(output)}.")


def _write(output: str, text: str) -> None:
    try:
        with open(output, "x", encoding="utf-8") as file:  # noqa: PTH123 - a word of the command line
            file.write(text)
    except FileExistsError:
        raise Conflict(f"There is a file {output!r} already.", hint="Name another, or remove it.") from None


def _jobs(face: Face, workload: int, *, array: bool) -> list[WorkloadView]:
    it = face.client.workload(workload)
    if not array:
        return [it]
    if it.member is None:
        raise InvalidAsk(f"Job {it.id} is of no array.", hint="Leave --array out.")
    if it.member.of > MOST_JOBS:
        raise InvalidAsk(f"The array has {it.member.of} jobs; {MOST_JOBS} are the most.", hint="Export one of them.")
    return [it if number == it.id else face.client.workload(number) for number in it.member.ids]


def _packages(face: Face, it: WorkloadView) -> bytes:
    """The list that was kept; none where it was not, or is no more."""
    if it.spec is None or "packages" not in it.spec.kept:
        return b""
    try:
        return face.client.record(it.id, "packages")
    except GpuError as error:
        face.aside(f"Its list of packages is missing: {error.message}")
        return b""
