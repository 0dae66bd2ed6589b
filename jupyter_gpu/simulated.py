"""What `jupyter gpu simulate` does between its words and its tables: open a trace, cut it, replay it.

Beside the core, since files are opened here; the replays themselves are pure.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from .core.simulation import baselines, easy, srtf
from .core.simulation.figures import figures
from .core.simulation.replay import Assumed, ours
from .core.simulation.runs import Runs
from .core.simulation.trace import Trace, TraceJob, read_trace
from .errors import Conflict, InvalidAsk, NotFound
from .model import PastJob, Policy, SimulationRun

Progress = Callable[[int, int], None]
Nodes = tuple[int, ...]

#: Textbook policies; all but the first know what no scheduler knows.
BASELINES: dict[str, Callable[[Sequence[TraceJob], Sequence[int], Progress], Runs]] = {
    "fifo": baselines.fifo,
    "easy": easy.easy,
    "sjf": baselines.sjf,
    "srtf": srtf.srtf,
}
OURS = "ours"
POLICIES = (*BASELINES, OURS)

_POOL = re.compile(r"(?:(\d{1,6})x)?(\d{1,6})")
#: More nodes or GPUs are a slip.
MOST_DEVICES = 100_000
USUAL_PER_NODE = 8

_COLUMNS = ("job_id", "user", "team_or_vc", "submit_s", "gpus", "duration_s", "limit_s", "queue", "status")


def open_trace(name: str) -> Trace:
    """Read a file, unpacked where it is packed."""
    path = Path(name)
    if not path.is_file():
        raise NotFound(
            f"There is no file {name!r}.", hint="Give a CSV or SWF file, or `history` for the lab's own past."
        )
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        opening = gzip.open if is_packed else open
        with opening(path, "rt", encoding="utf-8", newline="") as lines:
            return read_trace(lines, name=repr(path.name))
    except UnicodeDecodeError:
        raise InvalidAsk(f"{name!r} is no text in UTF-8.", hint="Save it as CSV in UTF-8.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidAsk(f"{name!r} cannot be unpacked: {error}.", hint="Copy it again.") from None


def trace_of_history(past: Iterable[PastJob]) -> Trace:
    """The lab's own past as a trace."""
    jobs = [
        TraceJob(
            job_id=str(it.id),
            user=it.user,
            team=it.team,
            submit_s=round(it.submitted_at),
            gpus=it.gpus,
            duration_s=round(it.duration_seconds),
            limit_s=None if it.limit_seconds is None else max(1, round(it.limit_seconds)),
            queue=it.queue or None,
            status=it.end,
        )
        for it in past
    ]
    return Trace(jobs=tuple(sorted(jobs, key=lambda job: job.submit_s)))


def save_trace(trace: Trace, name: str) -> None:
    """Write a CSV that `open_trace` reads; a file that is there stays as it is."""
    try:
        with Path(name).open("x", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(_COLUMNS)
            for job in trace.jobs:
                rows.writerow(
                    (
                        *(job.job_id, job.user, job.team, job.submit_s, job.gpus, job.duration_s),
                        *("" if job.limit_s is None else job.limit_s, job.queue or "", job.status),
                    )
                )
    except FileExistsError:
        raise Conflict(f"There is a file {name!r} already.", hint="Name another, or remove it.") from None


def cut(trace: Trace, begin_s: int | None, until_s: int | None, teams: Sequence[str] = ()) -> tuple[TraceJob, ...]:
    """The jobs that were submitted in [begin, until), of these teams; of all where none is named."""
    known = {job.team for job in trace.jobs}
    for team in teams:
        if team not in known:
            few = ", ".join(sorted(known)[:10])
            raise InvalidAsk(f"The trace has no team {team!r}.", hint=f"It has {few}.")
    found = tuple(
        job
        for job in trace.jobs
        if (begin_s is None or job.submit_s >= begin_s)
        and (until_s is None or job.submit_s < until_s)
        and (not teams or job.team in teams)
    )
    if not found:
        raise InvalidAsk("Nothing of the trace is left to replay.", hint="Look at --from, --until and --teams.")
    return found


def read_nodes(text: str) -> Nodes:
    """Read "72x8", "4" or "4x8,2x4": how many GPUs each node has."""
    nodes: list[int] = []
    for word in text.split(","):
        found = _POOL.fullmatch(word.strip())
        size, count = (int(found[2]), int(found[1] or 1)) if found else (0, 0)
        if not size or not count or sum(nodes) + size * count > MOST_DEVICES:
            raise InvalidAsk(
                f"{text!r} is no number of nodes that can be meant.", hint="Write 4x8 for four nodes of eight GPUs."
            )
        nodes += [size] * count
    return tuple(nodes)


def nodes_of(devices: int, per_node: int) -> Nodes:
    """So many GPUs on nodes that hold so many; what is left over is a smaller node."""
    whole, rest = divmod(devices, per_node)
    return (per_node,) * whole + ((rest,) if rest else ())


def counted(count: float, thing: str) -> str:
    """Count things, with thousands set apart: "1 GPU", "1,200 GPU-hours"."""
    said = f"{count:,.0f}"
    return f"{said} {thing}{'' if said == '1' else 's'}"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One replay that was asked for."""

    #: How it is called in tables.
    name: str
    nodes: Nodes
    #: None for a baseline.
    policy: Policy | None = None


def replay(jobs: Sequence[TraceJob], it: Job, assumed: Assumed, progress: Progress) -> SimulationRun:
    """Replay it, and add it up."""
    if it.policy is None:
        runs = BASELINES[it.name](jobs, it.nodes, progress)
    else:
        runs = ours(jobs, it.nodes, it.policy, assumed=assumed, progress=progress)
    return msgspec.structs.replace(figures(runs), policy=it.name)


def for_traces(policy: Policy, trace: Trace) -> Policy:
    """The policy as a replay needs it: the teams are the trace's, and a team that stands in for its users is no user.

    What one user may have queued is no rule about a whole team.
    """
    changes: dict[str, object] = {"team_groups": None}
    if not trace.has_users:
        changes["most_queued"] = max(policy.most_queued, len(trace.jobs))
    return msgspec.structs.replace(policy, **changes)


def notes_of(trace: Trace, runs: Iterable[SimulationRun]) -> Iterator[str]:
    """What is not in the numbers."""
    for why, count in sorted(trace.left_out.items()):
        yield f"{counted(count, 'job')} {why} {'is' if count == 1 else 'are'} left out."
    if not trace.has_users:
        yield "The trace names no users, so each team stands in for one."
    told = set[str]()
    for run in runs:
        for why, count in run.not_run.items():
            said = f"{run.policy} on {counted(run.devices, 'GPU')}: {counted(count, 'job')} never ran ({why})."
            if said not in told:
                told.add(said)
                yield said
