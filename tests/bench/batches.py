"""A long line: 10,000 submissions, what the broker costs with them waiting and 8 running, and what an attempt costs."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.model import SubmitBody, WorkloadView

from .ground import a_noop, bench_broker, row

QUEUED = 10_000
RUNNING = 8
#: What the broker costs is watched for so long.
WATCHED_SECONDS = 20.0
ATTEMPTS = 200


def run() -> list[dict[str, Any]]:
    """The long line first, then attempts one after the other on one device."""
    return [*_long_line(), _attempts()]


def _long_line() -> list[dict[str, Any]]:
    with bench_broker(RUNNING) as (broker, root):
        process = psutil.Process(broker.pid)
        asyncio.run(_run_all(broker.environment, root))
        few_percent, few_mib = _cost(process)
        seconds = asyncio.run(_fill(broker.environment, root))
        many_percent, many_mib = _cost(process)
    beside = f"{RUNNING} running and nothing queued"
    return [
        row(f"submission of {QUEUED:,} jobs", QUEUED / seconds, "jobs/s", beside=f"each committed; {RUNNING} run"),
        row(
            f"broker with {QUEUED:,} queued, {RUNNING} running", many_percent, "% of a core",
            beside=f"{beside}: {few_percent:.2f}",
        ),
        row("and its memory", many_mib, "MiB", reach="under 200", beside=f"{beside}: {few_mib:.0f} MiB"),
    ]  # fmt: skip


async def _run_all(environment: dict[str, str], root: Path) -> None:
    """As many as there are devices, for as long as we look."""
    async with AsyncClient(environ=environment) as client:
        for _ in range(RUNNING):
            it = await client.submit(a_noop(root, ("/bin/sleep", "100000")))
            await client.wait(it.id, until="active")


async def _fill(environment: dict[str, str], root: Path) -> float:
    """They wait for devices, of a hundred names, as of a sweep on a full machine."""
    body = a_noop(root)
    bodies: list[SubmitBody] = [msgspec.structs.replace(body, name=f"job-{n % 100}") for n in range(QUEUED)]
    async with AsyncClient(environ=environment) as client:
        begun = time.perf_counter()
        accepted = await client.submit_many(bodies)
        taken = time.perf_counter() - begun
    assert all(isinstance(it, WorkloadView) for it in accepted), accepted[:3]
    return taken


def _cost(process: psutil.Process) -> tuple[float, float]:
    """Percent of a core, and resident MiB."""
    process.cpu_percent()
    time.sleep(WATCHED_SECONDS)
    return process.cpu_percent(), float(process.memory_info().rss) / 2**20


def _attempts() -> dict[str, Any]:
    """From the end of one attempt to the end of the next, on one device: what each costs beside its own work."""
    with bench_broker(1) as (broker, root):
        ours = asyncio.run(_one_after_the_other(broker.environment, root))
    begun = time.perf_counter()
    for _ in range(ATTEMPTS):
        subprocess.run(["/bin/true"], check=True)
    bare = (time.perf_counter() - begun) / ATTEMPTS
    return row("an attempt, one after the other", ours * 1000, "ms", beside=f"bare processes {bare * 1000:.1f} ms each")


async def _one_after_the_other(environment: dict[str, str], root: Path) -> float:
    async with AsyncClient(environ=environment) as client:
        begun = time.perf_counter()
        accepted = await client.submit_many([a_noop(root)] * ATTEMPTS)
        last = accepted[-1]
        assert isinstance(last, WorkloadView), last
        await client.wait(last.id)
        return (time.perf_counter() - begun) / ATTEMPTS
