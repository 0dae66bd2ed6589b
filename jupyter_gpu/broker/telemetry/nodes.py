"""The device nodes that only a device's holder needs: /dev/nvidiaN, and of a MIG device its two capabilities beside it.

A folder stands in for /dev and /proc in tests. Nodes are named whether they exist or not: the driver's helper makes
them when they are first asked for.
"""

from __future__ import annotations

import re
from pathlib import Path

_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)", re.MULTILINE)


class Nodes:
    """Where the driver's nodes and capabilities are."""

    def __init__(self, *, dev: Path = Path("/dev"), proc: Path = Path("/proc")) -> None:
        self._dev, self._proc = dev, proc

    def of_card(self, minor: int | None) -> tuple[str, ...]:
        """The node of a GPU; none where its minor number is not known."""
        return () if minor is None else (str(self._dev / f"nvidia{minor}"),)

    def of_part(self, minor: int | None, instance: int | None, compute: int | None) -> tuple[str, ...]:
        """The nodes of a MIG device: its GPU's, and those that admit to its GPU instance and compute instance."""
        if minor is None or instance is None:
            return self.of_card(minor)
        part = self._proc / f"driver/nvidia/capabilities/gpu{minor}/mig/gi{instance}"
        places = [part / "access"] if compute is None else [part / "access", part / f"ci{compute}/access"]
        admits = [self._dev / f"nvidia-caps/nvidia-cap{it}" for it in map(_minor_of, places) if it is not None]
        return (*self.of_card(minor), *map(str, admits))


def _minor_of(access: Path) -> int | None:
    try:
        found = _MINOR.search(access.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return int(found[1]) if found else None
