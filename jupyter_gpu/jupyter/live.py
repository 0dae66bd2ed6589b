"""Pin this process while it lives: possible as long as CUDA is not loaded, since CUDA reads its devices once.

It looks, and touches nothing: neither CUDA nor a framework is imported or asked (huggingface/accelerate#1293). The
text of this module is also sent to kernels whose environment lacks this package, so it needs nothing but the standard
library and none of its neighbours.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

NO_DEVICES = "none"
_PIN = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")
#: What the variables were before the first live pin; one for all copies of this module in a process.
_before: dict[str, str | None] = sys.__dict__.setdefault("_jupyter_gpu_before", {})


def cuda_is_loaded(pid: int | None = None) -> bool:
    """Whether the driver's library is in a process: it reads CUDA_VISIBLE_DEVICES once, when it is first used.

    torch counts the devices through the driver's other library, and keeps the number (pytorch/pytorch#80876).
    """
    try:
        maps = Path(f"/proc/{'self' if pid is None else pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "libcuda.so" in maps or ("libnvidia-ml.so" in maps and pid is None and "torch" in sys.modules)


def pin(devices: Sequence[str]) -> None:
    """Let what is loaded from now on see exactly these devices; none of them is none at all."""
    if not _before:
        _before.update({name: os.environ.get(name) for name in _PIN})
    named = ",".join(devices) or NO_DEVICES
    os.environ.update(zip(_PIN, (named, "PCI_BUS_ID", named), strict=True))


def unpin() -> None:
    """Let what is loaded from now on see what it saw before `pin`; no device where the process began pinned."""
    before = _before or dict(zip(_PIN, (NO_DEVICES, "PCI_BUS_ID", NO_DEVICES), strict=True))
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()


def change(devices: Sequence[str] | None, until: float) -> str:
    """Pin to these devices, or unpin for None, on behalf of who asked before `until` (Unix seconds).

    Says what became of it: "done"; "loaded" where it is too late for this process; "late" where a busy kernel came to
    it only after who asked had given up, so that by now the devices may be somebody else's.
    """
    if time.time() > until:
        return "late"
    if cuda_is_loaded():
        return "loaded"
    if devices is None:
        unpin()
    else:
        pin(devices)
    return "done"
