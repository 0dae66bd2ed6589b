"""A CuPy whose GPU is the processor: numpy, and what is asked of its driver. It can compute wrongly, or fail."""

import os
import types

import numpy as np
from numpy import arange, float32, int32  # noqa: F401 - what a cupy has

__version__ = "13.0"
_count = [0]


def matmul(left, right):
    """Multiply; from the second time on wrongly where a test wants that."""
    _count[0] += 1
    fails = os.environ.get("FAKE_CUPY_FAILS")
    if fails:
        raise RuntimeError(fails)
    product = np.matmul(left, right)
    if "FAKE_CUPY_SPOILS" in os.environ and _count[0] > 1:
        product[5, 6] += 1
    return product


cuda = types.SimpleNamespace(
    Device=lambda: types.SimpleNamespace(synchronize=lambda: None),
    runtime=types.SimpleNamespace(
        getDeviceCount=lambda: 1,
        memGetInfo=lambda: (1 << 20, 1 << 30),
        getDeviceProperties=lambda _: {"name": b"a processor"},
    ),
)
