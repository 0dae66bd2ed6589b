"""The trace of tests/sim/traces (see NOTICE there), and the scenario that its table is about."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path

import msgspec

from jupyter_gpu.core.simulation.trace import Trace, TraceJob, read_trace

FOLDER = Path(__file__).parent / "traces"
#: One pool that all teams share.
NODES = (8,) * 72

#: policy -> mean time in system, mean wait, median, 90 %, 99.9 %, longest, worst stretch, Jain.
TABLE = {
    "fifo": (104_672, 93_191, 42_040, 288_030, 376_612, 381_899, 40.7, 0.650),
    "easy": (21_766, 10_285, 1_051, 24_120, 273_231, 337_438, 3.19, 0.905),
    "sjf": (15_324, 3_844, 2, 7_059, 439_452, 1_182_083, 1.72, 0.982),
}


def about() -> dict:
    """The cluster, the window, the licence."""
    return json.loads((FOLDER / "philly.json").read_text(encoding="utf-8"))


@functools.cache
def whole() -> Trace:
    """All of it."""
    with gzip.open(FOLDER / "philly.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        return read_trace(lines, name="philly.csv.gz")


def pool_jobs() -> tuple[TraceJob, ...]:
    """October and November, of the teams whose nodes are known: 68,503 jobs."""
    known = about()
    begin, until = known["window_oct_nov_s"]
    return tuple(
        job for job in whole().jobs if begin <= job.submit_s < until and job.team in known["cluster"]["vc_nodes"]
    )


def hundred_thousand() -> tuple[TraceJob, ...]:
    """All jobs, and its first part once more after them: 100,000."""
    jobs = whole().jobs
    shift = jobs[-1].submit_s + 1
    again = (
        msgspec.structs.replace(job, job_id=f"{job.job_id}-again", submit_s=job.submit_s + shift)
        for job in jobs[: 100_000 - len(jobs)]
    )
    return (*jobs, *again)
