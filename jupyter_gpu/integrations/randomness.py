"""The random states of a process, as plain numbers: Python's, and NumPy's and PyTorch's where they are loaded.

Neither imports a library nor initialises CUDA: a GPU that this process has not touched has no state to save.
"""

import random
import sys
from typing import Any


def random_state() -> dict[str, Any]:
    """Take down where every generator stands."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(numbers), gauss]}
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [name, keys.tolist(), int(position), int(has_gauss), float(cached)]
    if (torch := sys.modules.get("torch")) is not None:
        state["torch"] = torch.get_rng_state().tolist()
        if torch.cuda.is_initialized():
            state["cuda"] = [torch.cuda.get_rng_state(i).tolist() for i in range(torch.cuda.device_count())]
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Go on from there. What was not taken down, or is not loaded here, stays as it is."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in state:
        name, keys, *rest = state["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    if torch is not None and "torch" in state:
        torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))
        # Of a GPU it is set when this process first uses that GPU. There may be fewer than before.
        for i, one in enumerate(state.get("cuda", ())[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.tensor(one, dtype=torch.uint8), i)
