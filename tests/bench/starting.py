"""From the submission of a job to its first breath, the queue empty, as a user meets it: over the socket."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.fences import IS_ROOT, need, open_folder
from tests.nvml import boards
from tests.stories.house_of_nodes import House
from tests.stories.scene import until

from .ground import a_noop, bench_broker, median, row, spread

ROUNDS = 60
WHAT, REACH = "submit to start of a no-op job, queue empty", "under 20 (median)"


def run() -> list[dict[str, Any]]:
    """The start is what the job itself says: it prints the clock."""
    with bench_broker(8) as (broker, root):
        ours = [_one(broker.client, root) * 1000 for _ in range(ROUNDS)]
    bare = [_bare(root_time) * 1000 for root_time in range(ROUNDS)]
    beside = f"fork and exec alone {median(bare):.2g} ms; {spread(ours)}"
    return [row(WHAT, median(ours), "ms", reach=REACH, beside=beside), *_kept_apart()]


def _kept_apart() -> list[dict[str, Any]]:
    """The same with eight cards whose nodes are withheld, in turns with a broker that withholds nothing."""
    rows = []
    for layer, choice in (("cgroup v2", "cgroup"), ("landlock", "landlock")):
        with contextlib.ExitStack() as stack:
            try:
                if not IS_ROOT:
                    pytest.skip("only root may make device nodes")
                need(layer)
                starts = [stack.enter_context(_starts(it, by)) for it, by in ((choice, layer), ("off", ""))]
            except pytest.skip.Exception:  # a machine that cannot have it has no figure of it
                continue
            kept, free = zip(*([one() * 1000 for one in starts] for _ in range(ROUNDS)), strict=True)
        beside = f"in turns without {median(free):.3g} ms, least {min(free):.3g}; {spread(kept)}"
        rows.append(row(f"{WHAT}, kept from 7 other GPUs by {layer}", median(kept), "ms", reach=REACH, beside=beside))
    return rows


@contextlib.contextmanager
def _starts(isolation: str, by: str) -> Iterator[Callable[[], float]]:
    """Give what starts one job on a machine of eight cards, and says how long that took."""
    # Landlock allows what lies beside the way to a node one by one: so as much as in /dev, and not as much as in /tmp.
    with open_folder("/var/tmp") as folder:
        house = House(folder)
        for number in range(8):
            house.node(f"nvidia{number}")
        for other in Path("/dev").iterdir():
            (house.devices / other.name).touch()
        with house.broker(boards.eight_h100(folder), system=True, isolation=isolation) as broker:

            def is_so() -> bool:
                it = broker.client.status().isolation
                return it is not None and (it.by, it.enforced) == (by, bool(by))

            until(is_so, f"jobs are kept apart by {by or 'nothing'}")
            yield lambda: _one(broker.client, house.work)


def _one(client: Any, root: Path) -> float:
    begun = time.time()
    job = client.submit(a_noop(root, ("/bin/date", "+%s.%N")))
    client.wait(job.id, until="ended", timeout_seconds=30)
    return float(client.log(job.id)) - begun


def _bare(_: int) -> float:
    begun = time.perf_counter()
    subprocess.run(["/bin/true"], check=True)
    return time.perf_counter() - begun
