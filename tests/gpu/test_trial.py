"""What `jupyter gpu doctor --trial` runs, on a real card: the copies of the driver alone, and what is installed."""

import importlib.util
import json
import os
import subprocess
import sys

import pynvml
import pytest

from jupyter_gpu import pins
from jupyter_gpu.cli import trial_program


def first_free() -> str:
    """The UUID of a whole card that nobody computes on."""
    pynvml.nvmlInit()
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            if not pynvml.nvmlDeviceGetComputeRunningProcesses(card):
                uuid = pynvml.nvmlDeviceGetUUID(card)
                return uuid.decode() if isinstance(uuid, bytes) else uuid
    finally:
        pynvml.nvmlShutdown()
    pytest.skip("needs a card that nobody computes on")


@pytest.mark.parametrize("engine", ["cuda", "torch", "jax", "cupy"])
@pytest.mark.timeout(300)
def test_a_sound_card_computes_rightly(engine):
    """Every value is right, and the card is the one that it was pinned to by UUID."""
    if engine != "cuda" and importlib.util.find_spec(engine) is None:
        pytest.skip(f"needs {engine}, built for CUDA: pip install {engine}")
    environ = os.environ | pins.variables([first_free()]) | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-P", trial_program.__file__, engine, "2"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, check=False)

    answer = json.loads(done.stdout.splitlines()[-1])

    assert "error" not in answer, done.stderr
    assert answer["wrong"] == 0
    assert answer["checked"] > 0
    assert answer["speed"] > 0
    assert answer["card"]
