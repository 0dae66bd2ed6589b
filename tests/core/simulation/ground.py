"""Small traces, as short as a test can state them."""

from __future__ import annotations

from hypothesis import strategies as st

from jupyter_gpu.core.simulation.runs import Runs
from jupyter_gpu.core.simulation.trace import TraceJob


def jobs(*rows: tuple, **words) -> list[TraceJob]:
    """Jobs of (submit_s, gpus, duration_s) and perhaps a team; a job's id is its place."""
    return [
        TraceJob(
            job_id=str(place),
            user=row[3] if len(row) > 3 else "ada",
            team=row[3] if len(row) > 3 else "ada",
            submit_s=row[0],
            gpus=row[1],
            duration_s=row[2],
            **words,
        )
        for place, row in enumerate(rows)
    ]


def when(runs: Runs) -> list[tuple[int, int, int]]:
    """Who ran from when until when, by the order of the trace and then of time."""
    return sorted(runs.spans)


def some_jobs(most_gpus: int = 5, most: int = 25):
    """Any small trace, by submission."""
    row = st.tuples(st.integers(0, 60), st.integers(1, most_gpus), st.integers(0, 40), st.sampled_from("abc"))
    return st.lists(row, min_size=1, max_size=most).map(lambda rows: jobs(*sorted(rows, key=lambda it: it[0])))
