"""The broker's memory with 10,000 workloads kept, beside an empty one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.model import Ask, SubmitBody

from .ground import a_noop, bench_broker, row

KEPT = 10_000


def run() -> list[dict[str, Any]]:
    """Queued, paused, of a hundred names: as they wait for a long night."""
    with bench_broker(8) as (broker, root):
        empty = _resident(broker.pid)
        asyncio.run(_fill(broker.environment, root))
        full = _resident(broker.pid)
    return [
        row(
            f"broker memory with {KEPT:,} workloads kept",
            full,
            "MiB",
            reach="under 200",
            beside=f"empty: {empty:.0f} MiB",
        )
    ]


async def _fill(environment: dict[str, str], root: Path) -> None:
    slots = asyncio.Semaphore(16)
    async with AsyncClient(environ=environment) as client:

        async def submit(number: int) -> None:
            body = a_noop(root)
            async with slots:
                await client.submit(
                    SubmitBody(kind=body.kind, ask=Ask(), spec=body.spec, name=f"job-{number % 100}", paused=True)
                )

        await asyncio.gather(*(submit(number) for number in range(KEPT)))


def _resident(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 2**20
