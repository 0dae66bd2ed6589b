"""`jupyter gpu checkpoints`: what trainings have saved, how much room it takes, and away with what is old."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ..errors import GpuError, InvalidAsk, NotAllowed, NotFound
from .base import Face, json_option, pass_face
from .words import Seconds, WorkloadId

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..model import WorkloadView
    from ..training_pruning import Found

#: Each job is asked for by itself, so of a long history only what is new.
_MOST_JOBS = 1000


class CheckpointDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint. `fault` says why it is not complete."""

    step: int
    path: str
    size_bytes: int
    saved_at: float
    is_newest: bool
    fault: str | None


class FolderDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One folder of checkpoints. `workload` is null where no job of yours is known to save there."""

    workload: int | None
    state: str | None
    folder: str
    checkpoints: tuple[CheckpointDocument, ...]


class FoldersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `checkpoints --json`: what there is, or with --clean what was removed."""

    items: tuple[FolderDocument, ...]


class Folder(msgspec.Struct):
    """One folder and the jobs that save there, newest first."""

    path: Path
    jobs: list[WorkloadView]
    found: list[Found]

    @property
    def is_over(self) -> bool:
        """Whether all its jobs are known to be over. Of a folder that no job is known of, nobody can say so."""
        return bool(self.jobs) and all(it.end is not None for it in self.jobs)


@click.command(short_help="Show what trainings have saved, and remove what is old.")
@click.argument("workloads", type=WorkloadId(), nargs=-1, metavar="[ID]...")
@click.option(
    "--older-than", type=Seconds("age"), metavar="AGE", help="Only what was saved longer ago, like 30d, and may go."
)
@click.option("--clean", is_flag=True, help="Remove what --older-than lists.")
@json_option
@pass_face
def checkpoints(face: Face, workloads: tuple[int, ...], older_than: int | None, clean: bool) -> None:
    """Show the checkpoints of your jobs: of those named, or of all, and of what lies in ./.jupyter-gpu.

    With --older-than only those that may go are listed, and nothing is removed before you say --clean. The newest
    complete one of a job that is not over is never among them, nor is that of a folder that no job is known of.
    """
    from .text import plural

    if clean and older_than is None:
        raise click.UsageError("--clean removes what --older-than lists, so say how old: --older-than 30d --clean.")
    folders = [_kept(it, face.now(), older_than) for it in _folders(face, workloads)]
    if not workloads:
        folders = [it for it in folders if it.found]
    left = _remove(folders) if clean else []
    if face.as_json:
        face.document(FoldersDocument(items=tuple(_document(it) for it in folders)))
    else:
        _show(face, folders, in_detail=bool(workloads), older_than=older_than, clean=clean)
    if left:
        raise NotAllowed(
            f"{plural(len(left), 'checkpoint')} could not be removed whole, the first of them {left[0]}.",
            hint="Is it yours to change? What is half removed is no checkpoint any more: no training resumes from it.",
        )


def _folders(face: Face, workloads: Iterable[int]) -> list[Folder]:
    from ..training_pruning import listed

    by_path: dict[Path, list[WorkloadView]] = {}
    for it in _jobs(face, tuple(dict.fromkeys(workloads))):
        if (path := _home(it)) is not None:
            by_path.setdefault(path, []).append(it)
        elif workloads:
            raise InvalidAsk(f"{it.id} is no job of yours that could save.", hint="`jupyter gpu queue` lists them.")
    if not workloads:
        here = Path.cwd() / ".jupyter-gpu"
        for path in sorted(here.iterdir()) if here.is_dir() else ():
            by_path.setdefault(_real(path), [])
    return [Folder(path, jobs, listed(path)) for path, jobs in by_path.items()]


def _jobs(face: Face, workloads: tuple[int, ...]) -> Iterator[WorkloadView]:
    if workloads:
        yield from (face.client.workload(number) for number in workloads)
        return
    try:
        mine = [it.id for it in itertools.islice(face.client.workloads(kind="job", mine=True, ended=True), _MOST_JOBS)]
    except GpuError as error:  # what lies here can be shown all the same
        face.tell(error)
        return
    for number in mine:
        try:
            yield face.client.workload(number)
        except NotFound:  # forgotten meanwhile
            continue


def _home(it: WorkloadView) -> Path | None:
    """Where a job saves."""
    from .text import unpacked

    if it.spec is None or not it.is_mine:
        return None
    asked = it.spec.checkpoint_dir
    beside = f".jupyter-gpu/job-{it.id}" if asked is None else unpacked(asked)
    return _real(Path(unpacked(it.spec.folder), beside))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _kept(it: Folder, now: float, older_than: int | None) -> Folder:
    """Leave what was asked for: all, or what is so old and may go."""
    if older_than is not None:
        it.found = [one for one in it.found if now - one.at > older_than and (it.is_over or not one.is_newest)]
    return it


def _remove(folders: Iterable[Folder]) -> list[Path]:
    """Remove what is listed; leave in the lists what is gone, and answer what is not."""
    from ..checkpoints import discard

    left: list[Path] = []
    for folder in folders:
        for it in folder.found:
            with contextlib.suppress(OSError):
                discard(it.path)
        left += [it.path for it in folder.found if it.path.exists()]
        folder.found = [it for it in folder.found if it.path not in left]
    return left


def _document(it: Folder) -> FolderDocument:
    from .text import state_word

    return FolderDocument(
        workload=it.jobs[0].id if it.jobs else None,
        state=state_word(it.jobs[0]) if it.jobs else None,
        folder=str(it.path),
        checkpoints=tuple(
            CheckpointDocument(
                step=one.step, path=str(one.path), size_bytes=one.size_bytes, saved_at=one.at,
                is_newest=one.is_newest, fault=one.fault,
            )
            for one in it.found
        ),
    )  # fmt: skip


def _show(face: Face, folders: list[Folder], *, in_detail: bool, older_than: int | None, clean: bool) -> None:
    from ..units import format_bytes
    from .text import plural

    found = [one for it in folders for one in it.found]
    if not found:
        face.say("Nothing so old that may go." if older_than is not None else "No checkpoints.")
        return
    for it in folders if in_detail else ():
        face.say(*_each(it, face.now()))
    if not in_detail:
        face.say(_together(folders, face.now()))
    total = f"{plural(len(found), 'checkpoint')}, {format_bytes(sum(it.size_bytes for it in found))}"
    if clean:
        face.say(f"Removed: {total}.")
    elif older_than is not None:
        face.say(f"{total} may go. Say --clean as well to remove them.")
    else:
        face.say(f"{total}.")


def _together(folders: Iterable[Folder], now: float) -> RenderableType:
    """One line for each folder."""
    from ..units import format_bytes
    from .tables import make_table
    from .text import moment, safe, state_word

    table = make_table(">job", "state", ">count", ">last step", ">size", "saved", last="folder")
    for it in folders:
        if not it.found:
            continue
        job = it.jobs[0] if it.jobs else None
        last = it.found[-1]
        table.add_row(
            str(job.id) if job else "", state_word(job) if job else "", str(len(it.found)), str(last.step),
            format_bytes(sum(one.size_bytes for one in it.found)), moment(last.at, now), safe(str(it.path)),
        )  # fmt: skip
    return table


def _each(it: Folder, now: float) -> Iterator[RenderableType]:
    """One line for each checkpoint."""
    from ..units import format_bytes
    from .tables import make_table
    from .text import moment, safe, shell_word

    yield shell_word(str(it.path))
    table = make_table(">step", ">size", "saved", last="")
    for one in it.found:
        note = safe(one.fault) if one.fault else "the newest: a training resumes from it" if one.is_newest else ""
        table.add_row(str(one.step), format_bytes(one.size_bytes), moment(one.at, now), note)
    yield table
