"""The picture of a simulation: queue length, utilisation, and waits by team; a colour for each policy.

Drawn by matplotlib, which only this needs: `pip install jupyter-gpu[pictures]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import GpuError, InvalidAsk
from .model import SimulationRun, SimulationView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DAY_SECONDS = 86_400
HOUR_SECONDS = 3600
#: So many teams have room beside each other; those with most jobs are shown.
MOST_TEAMS = 15
KINDS = (".svg", ".png", ".pdf")


def refuse_unfit(name: str) -> None:
    """Before anything long is done: the kind of file, and whether there is what draws."""
    if Path(name).suffix.lower() not in KINDS:
        raise InvalidAsk(f"A picture cannot be written as {name!r}.", hint=f"Name it {' or '.join(KINDS)}.")
    try:
        import matplotlib as _  # noqa: F401, ICN001, PLC0415 - only this command needs it
    except ImportError:
        raise GpuError(
            "Pictures are drawn by matplotlib, which is not installed here.",
            hint="Install it: pip install 'jupyter-gpu[pictures]'. Tables and --json need nothing more.",
        ) from None


def draw(view: SimulationView, name: str) -> None:
    """Write the picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    figure = Figure(figsize=(11, 10), layout="constrained")
    queue, use, teams = figure.subplots(3, 1)
    names = _names(view.runs)
    for run, label in zip(view.runs, names, strict=True):
        days = [(point.at - view.first_submit_at) / DAY_SECONDS for point in run.points]
        queue.step(days, [point.queued for point in run.points], where="post", label=label, linewidth=1)
        share = [100 * point.busy / run.devices for point in run.points]
        use.step(days, share, where="post", label=label, linewidth=1)
    queue.set(title=f"{view.trace}: {view.jobs:,} jobs", ylabel="jobs waiting", xlabel="days")
    queue.set_ylim(bottom=0)
    use.set(ylabel="GPUs held, %", xlabel="days", ylim=(0, 105))
    _draw_teams(teams, view.runs, names)
    queue.legend(loc="upper right", fontsize="small")
    # Without a date the same figures give the same file.
    metadata: dict[str, Any] = {"Date": None} if name.lower().endswith(".svg") else {}
    figure.savefig(name, metadata=metadata)


def _names(runs: Sequence[SimulationRun]) -> list[str]:
    """The policy, and where pools differ their size."""
    sizes = {run.devices for run in runs}
    return [run.policy if len(sizes) == 1 else f"{run.policy}, {run.devices} GPUs" for run in runs]


def _draw_teams(axes: Axes, runs: Sequence[SimulationRun], names: Sequence[str]) -> None:
    jobs = {team.team: team.jobs for run in runs for team in run.teams}
    shown = sorted(sorted(jobs, key=lambda team: (-jobs[team], team))[:MOST_TEAMS])
    width = 0.8 / max(1, len(runs))
    for at, (run, label) in enumerate(zip(runs, names, strict=True)):
        waits = {team.team: team.mean_wait_seconds / HOUR_SECONDS for team in run.teams}
        places = [place + (at - (len(runs) - 1) / 2) * width for place in range(len(shown))]
        axes.bar(places, [waits.get(team, 0.0) for team in shown], width=width, label=label)
    axes.set_xticks(range(len(shown)), [team[:20] for team in shown], rotation=30, ha="right")
    axes.set(ylabel="mean wait, hours")
    axes.set_ylim(bottom=0)
