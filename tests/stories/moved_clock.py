"""A broker whose clock a story moves: what is read from a file is added to the machine's own.

The broker is a process of its own, started by whoever needs it. So it is told by a `sitecustomize` on its path, which
changes nothing in any other program.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

_SITE = """
import sys
if "jupyter_gpu.broker.app" in sys.orig_argv:
    import time
    from jupyter_gpu.broker.loop import Loop

    def clock():
        with open({path!r}) as file:
            return time.time() + float(file.read())

    Loop.__init__.__kwdefaults__["clock"] = clock
"""


class MovedClock:
    """The clock of every broker that is started from now on in this test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        site = folder / "site"
        site.mkdir(parents=True)
        self._path = site / "ahead_seconds"
        (site / "sitecustomize.py").write_text(_SITE.format(path=str(self._path)))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(Path(__file__).parents[2])]))
        self.show(time.time())

    def show(self, now: float) -> None:
        """It shows this now, and goes on from there."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(repr(now - time.time()))
        fresh.rename(self._path)  # a reader finds the one or the other
