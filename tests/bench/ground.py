"""What the measurements share: a broker on simulated devices, and how to name a figure."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jupyter_gpu.model import Ask, JobSpec, Kind, SubmitBody
from tests.stories.scene import Broker, a_broker


@contextlib.contextmanager
def bench_broker(devices: int = 8) -> Iterator[tuple[Broker, Path]]:
    """A broker aside with simulated devices, and a scratch folder."""
    with tempfile.TemporaryDirectory(prefix="jg-bench-") as scratch:
        root = Path(scratch)
        with a_broker(root / "b", devices=devices, policy={}) as broker:
            yield broker, root


def a_noop(folder: Path, argv: tuple[str, ...] = ("/bin/true",)) -> SubmitBody:
    """A job of one device that does next to nothing."""
    spec = JobSpec(argv=argv, folder=str(folder), environment={"PATH": os.environ["PATH"]})
    return SubmitBody(kind=Kind.JOB, ask=Ask(devices=1), spec=spec)


def row(what: str, value: float, unit: str, *, reach: str = "", beside: str = "") -> dict[str, Any]:
    """One line of the table."""
    return {"what": what, "value": value, "unit": unit, "reach": reach, "beside": beside}


def spread(values: Sequence[float]) -> str:
    """Least, 90 % and greatest, to stand beside a median."""
    ordered = sorted(values)
    return f"least {ordered[0]:.3g}, 90 % {ordered[int(len(ordered) * 0.9)]:.3g}, most {ordered[-1]:.3g}"


median = statistics.median
