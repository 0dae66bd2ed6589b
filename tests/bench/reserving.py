"""From the ask for a reservation to the answer with its lease, a device being free."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from jupyter_gpu.model import Ask, Kind, SubmitBody
from tests.stories.scene import this_process

from .ground import bench_broker, median, row, spread

ROUNDS = 60


def run() -> list[dict[str, Any]]:
    """Each reservation is given back before the next is asked for."""
    answers = []
    with bench_broker(8) as (broker, _):
        for _ in range(ROUNDS):
            ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1), holder=this_process())
            begun = time.perf_counter()
            held = broker.client.submit(ask)
            answers.append((time.perf_counter() - begun) * 1000)
            assert held.devices, "a free device is granted in the answer"
            broker.client.release(held.id)
            broker.client.wait(held.id, until="ended", timeout_seconds=30)
    synced = [_fsync() * 1000 for _ in range(ROUNDS)]
    beside = f"one write and fsync alone {median(synced):.2g} ms; {spread(answers)}"
    return [
        row("reserve to lease answer, a device free", median(answers), "ms", reach="under 15 (median)", beside=beside)
    ]


def _fsync() -> float:
    with tempfile.NamedTemporaryFile() as file:
        begun = time.perf_counter()
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
        assert Path(file.name).exists()
        return time.perf_counter() - begun
