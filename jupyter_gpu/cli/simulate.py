"""`jupyter gpu simulate`: what another rule, or another number of GPUs, would have made of a trace of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..errors import InvalidAsk, NotAllowed, NotFound
from .base import Face, json_option, pass_face
from .words import Seconds, read_length

if TYPE_CHECKING:
    from rich.table import Table

    from ..core.simulation.trace import Trace, TraceJob
    from ..model import Policy, SimulationRun, SimulationView
    from ..simulated import Job

HISTORY = "history"
_MOST_POOLS = 20
_MOST_DIGITS = 12

_EXAMPLES = """\b
Examples:
  jupyter gpu simulate history --devices 8,12,16
  jupyter gpu simulate history --policy new_config.py --picture waits.svg
  jupyter gpu simulate philly.csv.gz --nodes 72x8 --policies fifo,easy,ours
"""


@click.command(short_help="Replay a trace under other rules, or on other GPUs.", epilog=_EXAMPLES)
@click.argument("trace", metavar="TRACE")
@click.option("--policies", metavar="NAME[,NAME]", help="Some of fifo, easy, sjf, srtf and ours; all if not given.")
@click.option(
    "--policy", "files", multiple=True, metavar="FILE", help="A jupyter_gpu_config.py, or its policy as JSON."
)
@click.option("--nodes", metavar="NxM", help="The GPUs: 4x8 is four nodes of eight. Of history, what the lab has now.")
@click.option("--devices", metavar="N[,N]", help="Ask of so many GPUs, and so many: a line for each.")
@click.option(
    "--per-node", type=click.IntRange(1, 1024), default=8, metavar="N", help="With --devices: how many a node has; 8."
)
@click.option(
    "--from", "begin", metavar="TIME", help="Jobs from here on: seconds of the trace, or 10d after its first."
)
@click.option("--until", metavar="TIME", help="Jobs before this, likewise.")
@click.option("--teams", metavar="TEAM[,TEAM]", help="Jobs of these teams only.")
@click.option(
    "--checkpoint-every",
    type=Seconds("time", allow_zero=True),
    default="10m",
    metavar="LENGTH",
    help="How often a job saves; 10m. 0s never does.",
)
@click.option(
    "--restart-cost",
    type=Seconds("time", allow_zero=True),
    default="60s",
    metavar="LENGTH",
    help="What each start after a preemption costs; 60s.",
)
@click.option("--picture", metavar="FILE", help="Draw queue length, utilisation and waits: .svg, .png or .pdf.")
@click.option("--save", metavar="FILE", help="Keep the trace as CSV.")
@json_option
@pass_face
def simulate(face: Face, /, trace: str, **words: object) -> None:
    """Replay the jobs of TRACE on a virtual clock, and show what each policy would have made of them.

    TRACE is a CSV file with a header (job_id, user, team_or_vc, submit_s, gpus, duration_s, and if you like limit_s
    and queue), a file in the Standard Workload Format, either of them gzipped or not, or `history`: the lab's own past,
    of all work for operators and else of your own.

    `ours` decides by the broker's own code: of `history` by the rules in force, where you may read them (operators
    may), else by those that ship; the head of the table says which. --policy tries rules of yours. fifo, easy, sjf and
    srtf are textbook policies; the last three know each run time before, which nobody can.
    """
    from .. import simulated, simulated_picture

    picture, save = words["picture"], words["save"]
    if picture is not None:
        simulated_picture.refuse_unfit(str(picture))
    found = _history(face) if trace == HISTORY else simulated.open_trace(trace)
    if save is not None:
        simulated.save_trace(found, str(save))
        face.aside(f"Kept in {save}: {simulated.counted(len(found.jobs), 'job')}.")
    jobs = _cut(found, words)
    view = _replay_all(face, trace, found, jobs, words)
    if picture is not None:
        simulated_picture.draw(view, str(picture))
    _show(face, view, picture, by_pool=words["devices"] is not None)


def _history(face: Face) -> Trace:
    from ..simulated import trace_of_history

    found = trace_of_history(face.client.past())
    if not found.jobs:
        raise InvalidAsk(
            "The lab has no past yet: nothing has ended that held a GPU.", hint="Simulate a trace of others meanwhile."
        )
    return found


def _cut(found: Trace, words: dict[str, object]) -> tuple[TraceJob, ...]:
    from ..simulated import cut

    first = found.jobs[0].submit_s
    begin, until = (None if words[name] is None else _instant(str(words[name]), first) for name in ("begin", "until"))
    return cut(found, begin, until, _listed(words["teams"]))


def _instant(text: str, first: int) -> int:
    """Seconds as the trace counts them, or a length after its first submission."""
    return (
        int(text)
        if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
        else first + read_length(text, what="time")
    )


def _listed(words: object) -> list[str]:
    return [word.strip() for word in str(words).split(",") if word.strip()] if words is not None else []


def _replay_all(
    face: Face, name: str, found: Trace, jobs: Sequence[TraceJob], words: dict[str, object]
) -> SimulationView:
    from ..core.simulation.replay import Assumed
    from ..model import SimulationView
    from ..simulated import OURS, notes_of, replay

    assumed = Assumed(
        checkpoint_seconds=int(str(words["checkpoint_every"])), restart_seconds=int(str(words["restart_cost"]))
    )
    runs: list[SimulationRun] = []
    policy, rules = _rules(face, name)
    asked = list(_asked(face, name, found, words, policy))  # what cannot be meant is said before the first is replayed
    with _bar(face) as begin:
        runs += [replay(jobs, it, assumed, begin(it)) for it in asked]
    return SimulationView(
        trace=name.rpartition("/")[2],
        jobs=len(jobs),
        teams=len({job.team for job in jobs}),
        first_submit_at=float(jobs[0].submit_s),
        last_submit_at=float(jobs[-1].submit_s),
        gpu_hours=sum(job.gpus * job.duration_s for job in jobs) / 3600,
        runs=tuple(runs),
        rules=rules if any(it.name == OURS for it in asked) else "",
        notes=tuple(notes_of(found, runs)),
    )


def _rules(face: Face, name: str) -> tuple[Policy, str]:
    """By which policy `ours` decides, and which that is: a lab's own past is best compared with its own rules."""
    from ..model import Policy

    if name != HISTORY:
        return Policy(), "the rules that ship"
    try:
        found = face.client.policy()
    except NotAllowed:
        return Policy(), "the rules that ship, since those in force are for operators to read"
    except NotFound:  # a broker from before it told them
        return Policy(), "the rules that ship, since this broker does not tell those in force"
    return found.policy, f"the policy in force ({found.digest})"


def _asked(face: Face, name: str, found: Trace, words: dict[str, object], ours: Policy) -> Iterator[Job]:
    """Each policy on each pool."""
    from ..policy_files import policy_of_file
    from ..simulated import OURS, POLICIES, Job, for_traces

    files = [str(file) for file in words["files"]]  # type: ignore[attr-defined]
    usual = [OURS] if files or words["devices"] is not None else POLICIES
    names = _listed(words["policies"]) or usual
    for policy in names:
        if policy not in POLICIES:
            raise InvalidAsk(f"There is no policy {policy!r}.", hint=f"Some of {', '.join(POLICIES)}.")
    rules = {policy: for_traces(ours, found) if policy == OURS else None for policy in names}
    rules |= {file.rpartition("/")[2]: for_traces(policy_of_file(file), found) for file in files}
    for nodes in _pools(face, name, words):
        for policy, rule in rules.items():
            yield Job(name=policy, nodes=nodes, policy=rule)


def _pools(face: Face, name: str, words: dict[str, object]) -> list[tuple[int, ...]]:
    from ..simulated import MOST_DEVICES, nodes_of, read_nodes

    if words["nodes"] is not None and words["devices"] is not None:
        raise click.UsageError("--nodes and --devices both say which GPUs there are; leave one of them out.")
    if words["nodes"] is not None:
        return [read_nodes(str(words["nodes"]))]
    if words["devices"] is None:
        return [_present(face, name, int(str(words["per_node"])))]
    counts = _listed(words["devices"])
    for count in counts:
        if not (count.isascii() and count.isdigit() and len(count) <= _MOST_DIGITS and 0 < int(count) <= MOST_DEVICES):
            raise InvalidAsk(f"{count!r} is no number of GPUs.", hint="Write them as 8,12,16.")
    if len(counts) > _MOST_POOLS:
        raise InvalidAsk(f"{len(counts)} numbers of GPUs are too many at once.", hint=f"Ask of {_MOST_POOLS} at most.")
    return [nodes_of(int(count), int(str(words["per_node"]))) for count in counts]


def _present(face: Face, name: str, per_node: int) -> tuple[int, ...]:
    """What the lab has now, for its own past; a file does not say where it ran."""
    from ..simulated import nodes_of

    if name != HISTORY:
        raise click.UsageError("Say on which GPUs: --nodes 4x8, or --devices 8,12,16 for several numbers of them.")
    count = len(face.client.status().devices)
    if not count:
        raise InvalidAsk("The broker knows no GPU.", hint="Say on which GPUs: --nodes 1x8.")
    return nodes_of(count, per_node)


# -- shown


@contextmanager
def _bar(face: Face) -> Iterator[Callable[[Job], Callable[[int, int], None]]]:
    """How far it is, on stderr, where somebody looks on; each replay has a line of its own."""
    if not face.is_attended or face.as_json:
        yield lambda _it: lambda _done, _of: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from ..simulated import counted

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=face.err, transient=True) as bar:

        def begin(it: Job) -> Callable[[int, int], None]:
            task = bar.add_task(f"{it.name} on {counted(sum(it.nodes), 'GPU')}", total=None)
            return lambda done, of: bar.update(task, completed=done, total=of)

        yield begin


def _show(face: Face, view: SimulationView, picture: object, *, by_pool: bool) -> None:
    from .text import safe

    if face.as_json:
        face.document(view)
        return
    face.say(_head(view), "", _pools_table(view) if by_pool else _policies_table(view))
    for note in view.notes:
        face.aside(safe(note))
    if picture is not None:
        face.aside(f"Drawn in {safe(str(picture))}.")


def _head(view: SimulationView) -> str:
    from ..simulated import counted
    from ..units import format_seconds
    from .text import safe

    length = format_seconds(view.last_submit_at - view.first_submit_at, parts=2)
    jobs, teams, work = counted(view.jobs, "job"), counted(view.teams, "team"), counted(view.gpu_hours, "GPU-hour")
    rules = f"\n`ours` decides by {view.rules}." if view.rules else ""
    return f"{safe(view.trace)}: {jobs} of {teams}, {work}, submitted within {length}{rules}"


_LINES: tuple[tuple[str, Callable[[SimulationRun], str]], ...] = (
    ("jobs run", lambda run: f"{run.jobs:,}"),
    ("mean time in system", lambda run: _long(run.mean_time_in_system_seconds)),
    ("mean wait", lambda run: _long(run.mean_wait_seconds)),
    ("half within", lambda run: _long(run.median_wait_seconds)),
    ("9 of 10 within", lambda run: _long(run.p90_wait_seconds)),
    ("999 of 1,000 within", lambda run: _long(run.p999_wait_seconds)),
    ("longest wait", lambda run: _long(run.longest_wait_seconds)),
    ("worst team's stretch", lambda run: _number(run.worst_stretch)),
    ("fairness (Jain)", lambda run: _number(run.jain, 3)),
    ("GPUs held", lambda run: _share(run.utilisation)),
    ("while some waited", lambda run: _share(run.utilisation_while_queued)),
    ("preemptions", lambda run: f"{run.preemptions:,}"),
    ("GPU-hours lost", lambda run: f"{run.lost_gpu_hours:,.0f}"),
)


def _policies_table(view: SimulationView) -> Table:
    """A column for each policy."""
    from .tables import make_table
    from .text import safe

    names = [safe(run.policy) for run in view.runs]
    table = make_table("", *(f">{name}" for name in names), last="")
    for title, said in _LINES:
        table.add_row(title, *(said(run) for run in view.runs), "")
    return table


def _pools_table(view: SimulationView) -> Table:
    """A line for each number of GPUs."""
    from .tables import make_table
    from .text import safe

    table = make_table(">GPUs", ">mean wait", ">9 of 10 within", ">longest", ">held", ">jobs run", last="policy")
    for run in view.runs:
        waits = (run.mean_wait_seconds, run.p90_wait_seconds, run.longest_wait_seconds)
        held = _share(run.utilisation)
        table.add_row(str(run.devices), *map(_long, waits), held, f"{run.jobs:,}", safe(run.policy))
    return table


def _long(seconds: float | None) -> str:
    from ..units import format_seconds

    return format_seconds(seconds, parts=2)


def _number(value: float | None, decimals: int = 2) -> str:
    from ..units import MISSING

    return MISSING if value is None else f"{value:.{decimals}f}"


def _share(value: float | None) -> str:
    from ..units import MISSING

    return MISSING if value is None else f"{100 * value:.0f} %"
