"""`jupyter gpu progress`: how far a job is, and what it reports as curves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from .base import Face, json_option, pass_face
from .words import WorkloadId

if TYPE_CHECKING:
    from ..model import ProgressPage, WorkloadView

#: So often who follows is shown what is new. A curve is read by eye, and the broker is asked by many.
LOOK_SECONDS = 2.0


@click.command(short_help="Show how far a job is, and its curves.")
@click.argument("workload", type=WorkloadId(), metavar="ID")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of this attempt; the last if not given.")
@click.option("--follow", "-f", "follows", is_flag=True, help="Go on as it reports, until it has ended.")
@json_option
@pass_face
def progress(face: Face, workload: int, attempt: int | None, follows: bool) -> None:
    """Show how far a job is, what is left of it at its pace, and a curve of each number that it reports.

    It reports by `jupyter_gpu.training.report`, or by a line of JSON into $JUPYTER_GPU_PROGRESS_FILE.
    """
    if follows:
        if face.as_json:
            raise click.UsageError("--follow shows a picture and --json one document: choose one.")
        _follow(face, workload, attempt)
        return
    page = face.client.progress(workload, attempt)
    if face.as_json:
        face.document(page)
        return
    it = face.client.workload(workload)
    if page.items:
        face.say(_drawn(face, it, page))
    elif it.attempt == 0:
        face.aside(f"Job {workload} has not started.")
    else:
        _say_of_nothing(face, workload, page.attempt)


def _say_of_nothing(face: Face, workload: int, attempt: int) -> None:
    face.aside(
        f"Attempt {attempt} of job {workload} has reported nothing. `jupyter_gpu.training.report(step, of, loss=...)` "
        'does, or a line such as {"step": 5, "of": 10} into $JUPYTER_GPU_PROGRESS_FILE.'
    )


def _drawn(face: Face, it: WorkloadView, page: ProgressPage) -> str:
    from .see import is_fancy

    return picture(it, page, face.now(), fancy=is_fancy(face), width=face.out.width)


def _follow(face: Face, workload: int, attempt: int | None) -> None:
    """Show the curve anew as long as it changes; without an attempt the next ones too."""
    from .act import how_it_stands

    shown: object = None
    with face.going_on("Only the looking has ended; the work goes on."), _showing(face) as show:
        while True:
            it = face.wait_for(workload, "ended", LOOK_SECONDS, raise_on_timeout=False)
            page = face.client.progress(workload, attempt)
            if page.items and (page.attempt, page.items[-1]) != shown:
                shown = (page.attempt, page.items[-1])
                show(_drawn(face, it, page))
            if it.end is not None or (attempt is not None and attempt < it.attempt):
                break
    face.aside(how_it_stands(it, face.now()))


@contextlib.contextmanager
def _showing(face: Face) -> Iterator[Callable[[str], None]]:
    """Give what shows a picture: over the one before at a terminal, elsewhere its first line alone."""
    if not face.out.is_terminal:
        yield lambda drawn: face.say(drawn.partition("\n")[0])
        return
    from rich.live import Live

    with Live(console=face.out, auto_refresh=False) as live:
        yield lambda drawn: live.update(drawn, refresh=True)


def picture(it: WorkloadView, page: ProgressPage, now: float, *, fancy: bool = True, width: int = 80) -> str:
    """Write where an attempt is, then a line for each number: its curve, its last value, the lowest and the highest."""
    from ..model import State
    from .curve import sparkline
    from .text import roughly, safe, step_text, title

    first, last = page.items[0], page.items[-1]
    parts = [step_text(last)]
    steps, seconds = last.step - first.step, last.at - first.at
    runs = it.state is State.ACTIVE and page.attempt == it.attempt
    if runs and last.of and 0 < last.step < last.of and steps > 0 and seconds > 0:
        left = seconds * (last.of - last.step) / steps - max(0.0, now - last.at)
        parts.append(f"about {roughly(left)} left")
    lines = [f"{title(it)}, attempt {page.attempt}: {', '.join(parts)}."]
    names = list(dict.fromkeys(name for point in page.items for name in point.numbers))
    widest = max(map(len, map(safe, names)), default=0)
    for name in names:
        values = [point.numbers.get(name) for point in page.items]
        known = [value for value in values if value is not None]
        if known:
            said = f"{known[-1]:.3g} ({min(known):.3g} to {max(known):.3g})"
            drawn = sparkline(values, fancy=fancy, cells=max(8, min(60, width - widest - len(said) - 4)))
            lines.append(f"{safe(name):<{widest}}  {drawn}  {said}")
    return "\n".join(lines)
