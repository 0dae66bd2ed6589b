"""These tests ask a real card. Without one they skip and say why; nothing here pretends."""

from functools import cache
from pathlib import Path

import pynvml
import pytest

HERE = Path(__file__).parent


@cache
def why_not() -> str | None:
    """Say why no card can be asked on this machine, or None where one can."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"needs an NVIDIA GPU and its driver: {error}"
    try:
        return None if pynvml.nvmlDeviceGetCount() else "needs an NVIDIA GPU: the driver runs but lists none"
    finally:
        pynvml.nvmlShutdown()


def pytest_collection_modifyitems(items):
    """Mark every test of this folder, so that `-m gpu` and `-m 'not gpu'` mean what they say."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if why_not():
                item.add_marker(pytest.mark.skip(reason=f"{why_not()}; then run `make test-gpu`"))
