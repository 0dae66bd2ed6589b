"""What one sample of 8 devices costs, beside the bound: 1 % of a core at one a second."""

from __future__ import annotations

import time
from typing import Any

from jupyter_gpu.broker.telemetry.simulated import SimulatedSource

from .ground import row

SAMPLES = 200


def run() -> list[dict[str, Any]]:
    """CPU time of the sampler alone; a real driver's own calls come on top and are measured by `make test-gpu`."""
    source = SimulatedSource(8)
    uuids = source.uuids
    source.read(uuids)
    begun = time.process_time()
    for _ in range(SAMPLES):
        source.read(uuids)
    each = (time.process_time() - begun) / SAMPLES
    return [
        row(
            "sampling 8 simulated GPUs once a second",
            each * 100,
            "% of a core",
            reach="under 1",
            beside="a scan of /proc",
        )
    ]
