"""The start of a kernel through our provisioner, beside Jupyter's own: from the ask to the first answer."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from .ground import bench_broker, median, row, spread

ROUNDS = 20


def run() -> list[dict[str, Any]]:
    """In turn, so that both meet the same machine; without magics, which are IPython's work, and with them."""
    with bench_broker(8) as (broker, _):
        os.environ["JUPYTER_GPU_RUNTIME_DIR"] = broker.environment["JUPYTER_GPU_RUNTIME_DIR"]
        try:
            times = asyncio.run(_all())
        finally:
            del os.environ["JUPYTER_GPU_RUNTIME_DIR"]
    plain, ours, loaded = (median(times[name]) for name in ("plain", "ours", "ours with magics"))
    more = 100 * (ours - plain) / plain
    beside = f"plain {plain:.0f} ms, ours {ours:.0f} ms, with %gpu loaded {loaded:.0f} ms; ours {spread(times['ours'])}"
    return [
        row("kernel start through the provisioner, more than a plain one", more, "%", reach="under 5", beside=beside)
    ]


async def _all() -> dict[str, list[float]]:
    kinds = {
        "plain": ("local-provisioner", False),
        "ours": ("jupyter-gpu", False),
        "ours with magics": ("jupyter-gpu", True),
    }
    await _one("jupyter-gpu", magics=True)  # what is imported once for all kernels of a server
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind, (name, magics) in kinds.items():
            times[kind].append(await _one(name, magics=magics) * 1000)
    return times


async def _one(provisioner: str, *, magics: bool) -> float:
    KernelProvisionerFactory.instance().default_provisioner_name = provisioner
    manager = AsyncKernelManager(kernel_name="python3")
    manager.config.GpuProvisioner.load_magics = magics
    begun = time.perf_counter()
    await manager.start_kernel()
    client = manager.client()
    client.start_channels(stdin=False, control=False)
    try:
        await client.wait_for_ready(timeout=60)
        return time.perf_counter() - begun
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)
