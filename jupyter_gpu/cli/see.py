"""`jupyter gpu status`, `queue`, `quota` and `devices`: what the lab looks like now."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..errors import GpuError
from .base import Face, json_option, pass_face

if TYPE_CHECKING:
    from ..model import DeviceView, Status, WorkloadView

#: What a person gets at once.
SHOWN = 200


@click.command(short_help="Show the GPUs, your work, your quota and the lines.")
@click.option("--watch", is_flag=True, help="Keep showing it as it changes, until Ctrl-C.")
@json_option
@pass_face
def status(face: Face, watch: bool) -> None:
    """Show the GPUs and who holds them, your work, your quota and how many wait."""
    if watch and face.as_json:
        raise click.UsageError("--watch shows a picture and --json one document: choose one.")
    if watch and not face.may_watch:
        raise click.UsageError("--watch would keep this kernel busy. `jupyter_gpu.GpuMonitor()` updates itself.")
    if watch and face.out.is_terminal:
        from .watch import watch_status

        watch_status(face)
        return
    found = face.client.status()
    if face.as_json:
        face.document(found)
    else:
        show_status(face, found)


def show_status(face: Face, found: Status) -> None:
    """Draw the document once."""
    from .picture import own_text, status_picture

    face.say(status_picture(found, fancy=is_fancy(face), width=face.out.width))
    own = face.own_isolation(found)
    if own is not None:
        face.say(own_text(own))


def is_fancy(face: Face) -> bool:
    """Whether the terminal can show blocks."""
    return face.out.encoding.lower().startswith("utf")


@click.command(short_help="List what runs and what waits, and why.")
@click.option("--all", is_flag=True, help="Those that have ended too.")
@click.option("--mine", is_flag=True, help="Only yours.")
@click.option("--unfold", is_flag=True, help="Each job of an array in a line of its own.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"At most so many; {SHOWN} if not given.")
@json_option
@pass_face
def queue(face: Face, all: bool, mine: bool, unfold: bool, limit: int | None) -> None:
    """List the workloads that run, then those that wait in the order of the line.

    That is by priority, then who has waited past the limit of their queue, then by rank: when it was submitted, and
    later for what is expected to take much and for those who used much lately.

    An array is one line, under the number of its first job.

    With --all those that have ended too, the newest last. With --json all of them, unless --limit is given.
    """
    from ..model import WorkloadPage
    from .picture import numbers, queue_table

    most = limit or (None if face.as_json else SHOWN)
    groups, more = _listed(face, most, all=all, mine=mine, folds=not (unfold or face.as_json))
    if face.as_json:
        items = [it for group in groups for it in group]
        # By what to ask for the older ones, where the newest were taken from a longer list.
        face.document(WorkloadPage(items=tuple(items), next=items[0].id if more and all else None))
    elif not groups:
        face.say("Nothing runs and nothing waits." if not all else "There are no workloads yet.")
    else:
        found = devices_of(face)
        if any(it.simulated for it in found):
            face.say("SIMULATED GPUs")
        face.say(queue_table(groups, numbers(found), face.now(), width=face.out.width, is_whole=not all))
        if more:
            face.aside(f"There are more; --limit {len(groups) * 10} shows more of them.")


def _listed(
    face: Face, most: int | None, *, all: bool, mine: bool, folds: bool
) -> tuple[Sequence[Sequence[WorkloadView]], bool]:
    """Give the rows in the order in which they are shown, and whether some were left out."""
    from .fold import fold

    found = face.client.workloads(mine=mine, ended=all)
    if not all:
        # Who runs, then the line, as the broker goes down it.
        ordered = sorted(found, key=_place)
        rows: Sequence[Sequence[WorkloadView]] = fold(ordered) if folds else [(it,) for it in ordered]
        return rows[:most], most is not None and len(rows) > most
    newest: Iterator[Sequence[WorkloadView]] = _together(found) if folds else ((it,) for it in found)
    taken = list(itertools.islice(newest, None if most is None else most + 1))
    return taken[:most][::-1], most is not None and len(taken) > most


def _together(newest_first: Iterator[WorkloadView]) -> Iterator[Sequence[WorkloadView]]:
    """Fold what is read page by page, as far as it is wanted: the numbers of an array follow one another."""
    for _, group in itertools.groupby(newest_first, lambda it: it.id if it.member is None else it.member.array):
        yield tuple(group)[::-1]


def _place(it: WorkloadView) -> tuple[bool, int, bool, int, int]:
    """The comparison of the line; what runs stands in none."""
    if it.state != "queued":
        return (False, 0, False, 0, it.id)
    return (True, -it.priority, not it.lifted, it.rank_ms, it.id)


def devices_of(face: Face) -> tuple[DeviceView, ...]:
    """Ask for the devices, to name them by number; without them a text shows UUIDs, so no failure is told."""
    try:
        return face.client.devices().items
    except GpuError:
        return ()


def held_by(face: Face, it: WorkloadView) -> str:
    """Name what a workload holds by number, "GPU 0, 2", and say where that is simulated."""
    from .picture import numbers
    from .text import held_text

    found = devices_of(face) if it.devices else ()
    simulated = any(device.simulated for device in found if device.uuid in it.devices)
    return held_text(it, numbers(found), simulated=simulated)


@click.command(short_help="Show what you hold, use and have left.")
@json_option
@pass_face
def quota(face: Face) -> None:
    """Show every bound that concerns you: what you hold or used of it, and what is left."""
    from .picture import quota_table

    page = face.client.quota()
    if face.as_json:
        face.document(page)
    elif not page.items:
        face.say("No quota concerns you: you may hold what is free.")
    else:
        face.say(quota_table(page.items, face.now()))


@click.command(short_help="List the GPUs with their UUIDs.")
@click.option("--uses", is_flag=True, help="Also every process on them: whose, and by what right.")
@json_option
@pass_face
def devices(face: Face, uses: bool) -> None:
    """List the GPUs: number, UUID, kind, pool, and how they are. MIG devices stand under their GPU.

    Who is on a GPU without a lease of it is listed below; with --uses everybody is.
    """
    from .gpus import list_devices

    if face.as_json:
        face.document(face.client.devices())
        return
    # Only the whole document has the GPUs that are split.
    found = face.client.status()
    if found.devices or found.cards:
        face.say(*list_devices(found.devices, found.cards, face.now(), all_uses=uses, width=face.out.width))
    else:
        face.say("No GPUs. `jupyter gpu doctor` says why.")
