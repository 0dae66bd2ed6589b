"""1,000 jobs that do nothing on 8 devices, beside task-spooler, simple-gpu-scheduler and the floor, xargs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.model import WorkloadView

from .ground import a_noop, bench_broker, row

JOBS = 1000
SLOTS = 8


def run() -> list[dict[str, Any]]:
    """Ours first, then the peers that this machine has."""
    ours, submitted = _ours()
    spooler, scheduler, floor = _task_spooler(), _simple_gpu_scheduler(), _xargs()
    beside = ", ".join(
        f"{name} {JOBS / seconds:.0f}/s" if seconds else f"{name} not installed"
        for name, seconds in (("task-spooler", spooler), ("simple-gpu-scheduler", scheduler), ("xargs -P8", floor))
    )
    rows = [
        row(f"{JOBS:,} no-op jobs on {SLOTS} devices", JOBS / ours, "jobs/s", reach="100 or more", beside=beside),
        row("submission of those", JOBS / submitted, "jobs/s", beside="in two requests over one socket"),
    ]
    if spooler:
        rows.append(row("wall time over task-spooler's", ours / spooler, "times", reach="4 or less"))
    return rows


def _ours() -> tuple[float, float]:
    with bench_broker(SLOTS) as (broker, root):
        return asyncio.run(_submit_and_wait(broker.environment, root))


async def _submit_and_wait(environment: dict[str, str], root: Path) -> tuple[float, float]:
    async with AsyncClient(environ=environment) as client:
        begun = time.perf_counter()
        bodies = [a_noop(root, ("/bin/touch", f"{root}/done-{number}")) for number in range(JOBS)]
        accepted = await client.submit_many(bodies)
        assert all(isinstance(it, WorkloadView) for it in accepted), accepted
        submitted = time.perf_counter() - begun
        await asyncio.to_thread(_wait_for_files, root)
        return time.perf_counter() - begun, submitted


def _task_spooler() -> float | None:
    program = shutil.which("tsp")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"TS_SOCKET": f"{scratch}/s", "TMPDIR": scratch, "TS_SLOTS": str(SLOTS)}
        subprocess.run([program, "-S", str(SLOTS)], env=environment, check=True, capture_output=True)
        begun = time.perf_counter()
        for number in range(JOBS):
            argv = [program, "/bin/touch", f"{scratch}/done-{number}"]
            subprocess.run(argv, env=environment, check=True, capture_output=True)
        _wait_for_files(Path(scratch))
        taken = time.perf_counter() - begun
        subprocess.run([program, "-K"], env=environment, check=False, capture_output=True)
    return taken


def _simple_gpu_scheduler() -> float | None:
    program = Path(sys.executable).with_name("simple_gpu_scheduler")
    if not program.exists():
        return None
    with tempfile.TemporaryDirectory() as scratch:
        lines = "".join(f"/bin/touch {scratch}/done-{number}\n" for number in range(JOBS))
        argv = [str(program), "--gpus", *map(str, range(SLOTS))]
        begun = time.perf_counter()
        subprocess.run(argv, input=lines.encode(), check=True, capture_output=True)
        _wait_for_files(Path(scratch))
        return time.perf_counter() - begun


def _xargs() -> float:
    with tempfile.TemporaryDirectory() as scratch:
        lines = "".join(f"{scratch}/done-{number}\n" for number in range(JOBS))
        begun = time.perf_counter()
        subprocess.run(["xargs", f"-P{SLOTS}", "-n1", "touch"], input=lines.encode(), check=True)
        return time.perf_counter() - begun


def _wait_for_files(folder: Path) -> None:
    """All are done when each has left its file: one rule for everybody."""
    while sum(path.name.startswith("done-") for path in folder.iterdir()) < JOBS:
        time.sleep(0.01)
