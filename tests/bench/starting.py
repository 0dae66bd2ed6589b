"""From the submission of a job to its first breath, the queue empty, as a user meets it: over the socket."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from .ground import a_noop, bench_broker, median, row, spread

ROUNDS = 60


def run() -> list[dict[str, Any]]:
    """The start is what the job itself says: it prints the clock."""
    with bench_broker(8) as (broker, root):
        ours = [_one(broker.client, root) * 1000 for _ in range(ROUNDS)]
    bare = [_bare(root_time) * 1000 for root_time in range(ROUNDS)]
    beside = f"fork and exec alone {median(bare):.2g} ms; {spread(ours)}"
    return [
        row("submit to start of a no-op job, queue empty", median(ours), "ms", reach="under 20 (median)", beside=beside)
    ]


def _one(client: Any, root: Path) -> float:
    begun = time.time()
    job = client.submit(a_noop(root, ("/bin/date", "+%s.%N")))
    client.wait(job.id, until="ended", timeout_seconds=30)
    return float(client.log(job.id)) - begun


def _bare(_: int) -> float:
    begun = time.perf_counter()
    subprocess.run(["/bin/true"], check=True)
    return time.perf_counter() - begun
