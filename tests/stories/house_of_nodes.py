"""A house with device nodes: a real broker on a board, with harmless devices in a folder that stands in for /dev."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpu.client import Client
from tests.engines.fences import ROOT
from tests.nvml.board import Board
from tests.nvml.library import NAME

from .scene import Broker

#: Devices that do nothing when they are opened, and that neither a shell nor Python needs.
HARMLESS = ("full", "zero", "random", "urandom", "fuse", "loop-control", "vga_arbiter", "userfaultfd")


class House:
    """Folders that all users reach: the device nodes, a place to work, and whatever a broker needs."""

    def __init__(self, root: Path) -> None:
        self.root, self.devices, self.work = root, root / "dev", root / "work"
        for folder in (self.work, self.devices, self.devices / "nvidia-caps", root / "config", root / "home"):
            folder.mkdir()
        self.work.chmod(0o777)
        self._harmless = iter(HARMLESS)

    def node(self, name: str) -> str:
        """Make one, as the driver's helper would; a skip where that cannot be."""
        path = self.devices / name
        for real in self._harmless:
            with contextlib.suppress(OSError):
                os.close(os.open(f"/dev/{real}", os.O_RDWR | os.O_NONBLOCK))
                os.mknod(path, stat.S_IFCHR | 0o666, Path(f"/dev/{real}").stat().st_rdev)
                path.chmod(0o666)
                os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
                return str(path)
        pytest.skip("this machine has not enough devices that do no harm, or lets none be made here")

    def result(self, job: str) -> list[str]:
        """What a job has found."""
        return (self.work / job).read_text().split("\n")[:-1]

    @contextlib.contextmanager
    def broker(
        self, board: Board, *, run: Callable[[list[str]], list[str]] = list, **traits: object
    ) -> Iterator[Broker]:
        """A real broker on this board, started by `run`, and stopped at the end; what it runs must be over by then."""
        traits |= {"devices_folder": str(self.devices), "lock_file": str(self.root / "lock"), "idle_seconds": 0}
        lines = [f"c.GpuBroker.{name} = {value!r}\n" for name, value in traits.items()]
        (self.root / "config" / "jupyter_gpu_config.py").write_text("".join(lines))
        library = self.root / "nvml"  # where any user may read it
        library.mkdir()
        seen = board.environment()
        shutil.copy(Path(seen["LD_LIBRARY_PATH"].partition(":")[0], NAME), library)
        environment = os.environ | seen | {"LD_LIBRARY_PATH": str(library)} | {
            "JUPYTER_GPU_RUNTIME_DIR": str(self.root / "run"), "JUPYTER_GPU_STATE_DIR": str(self.root / "state"),
            "JUPYTER_CONFIG_PATH": str(self.root / "config"), "HOME": str(self.root / "home"), "COLUMNS": "120",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }  # fmt: skip
        hear, tell = os.pipe()
        words = [sys.executable, "-m", "jupyter_gpu.broker.app", f"--ready-fd={tell}"]
        with (self.root / "broker.log").open("ab") as log, contextlib.ExitStack() as stack:
            process = subprocess.Popen(
                run(words), env=environment, cwd="/", stdout=log, stderr=log, pass_fds=(tell,), start_new_session=True
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            os.close(tell)
            with os.fdopen(hear, encoding="utf-8") as said:
                assert said.readline() == "ready\n", (self.root / "broker.log").read_text()
            yield Broker(stack.enter_context(Client(environ=environment, start=False)), environment)
