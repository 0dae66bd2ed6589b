"""A notebook without a page: a real kernel, spoken to as a frontend does, with a real broker beside it."""

from __future__ import annotations

import contextlib
import queue
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from jupyter_client import BlockingKernelClient, KernelManager

from tests.stories.scene import Broker, a_broker

LOAD = "%load_ext jupyter_gpu"


@dataclass
class Cell:
    """What one cell gave."""

    outputs: list[dict[str, Any]] = field(default_factory=list)
    comms: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)

    @property
    def stdout(self) -> str:
        """What it printed."""
        return "".join(it["text"] for it in self.outputs if it["type"] == "stream" and it["name"] == "stdout")

    @property
    def stderr(self) -> str:
        """What it complained."""
        return "".join(it["text"] for it in self.outputs if it["type"] == "stream" and it["name"] == "stderr")

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The displays, as they stand in the end: updates replace."""
        found: dict[Any, dict[str, Any]] = {}
        for number, it in enumerate(self.outputs):
            if it["type"] in ("display_data", "update_display_data"):
                found[it.get("transient", {}).get("display_id", number)] = it["data"]
        return list(found.values())

    @property
    def text(self) -> str:
        """The displays as text."""
        return "\n".join(it.get("text/plain", "") for it in self.shown)

    @property
    def result(self) -> str | None:
        """What stands behind Out[n]."""
        return next((it["data"]["text/plain"] for it in self.outputs if it["type"] == "execute_result"), None)

    @property
    def error(self) -> dict[str, Any] | None:
        """The error output."""
        return next((it for it in self.outputs if it["type"] == "error"), None)


class Notebook:
    """A running kernel."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    def send(self, code: str) -> str:
        """Run a cell and do not wait for it."""
        return self.client.execute(code, allow_stdin=False, stop_on_error=False)

    def collect(self, sent: str, *, seconds: float = 30, until: Any = None) -> Cell:
        """Everything that a cell gives until it is done, or until `until(cell)` holds."""
        cell, deadline = Cell(), time.monotonic() + seconds
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell is not done within {seconds} s: {cell}") from None
            kind, content = message["msg_type"], message["content"]
            if kind.startswith("comm_"):
                cell.comms.append({"type": kind, **content})
            elif message["parent_header"].get("msg_id") == sent:
                if kind == "status" and content["execution_state"] == "idle":
                    cell.reply = self._reply(sent, seconds)
                    return cell
                if kind in ("stream", "display_data", "update_display_data", "execute_result", "error", "clear_output"):
                    cell.outputs.append({"type": kind, **content})
            if until is not None and until(cell):
                return cell

    def _reply(self, sent: str, seconds: float) -> dict[str, Any]:
        while True:  # a slow start leaves answers to questions that were asked again
            message = self.client.get_shell_msg(timeout=seconds)
            if message["parent_header"].get("msg_id") == sent:
                return dict(message["content"])

    def run(self, code: str, *, seconds: float = 30) -> Cell:
        """Run a cell and wait for it."""
        return self.collect(self.send(code), seconds=seconds)

    def complete(self, line: str) -> list[str]:
        """What the Tab key offers at the end of a line."""
        return self.client.complete(line, reply=True, timeout=30)["content"]["matches"]


@contextlib.contextmanager
def a_notebook(broker: Broker, folder: Path, *, load: bool = True, **environment: str) -> Iterator[Notebook]:
    """Start a kernel that finds the broker; with the magics, as our provisioner loads them."""
    # Named as a Jupyter server names it.
    manager = KernelManager(kernel_name="python3", connection_file=str(folder / f"kernel-{uuid4()}.json"))
    manager.start_kernel(cwd=str(folder), env=broker.environment | {"IPYTHONDIR": str(folder)} | environment)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        notebook = Notebook(manager, client)
        if load:
            assert notebook.run(LOAD).reply["status"] == "ok"
        yield notebook
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        manager.context.destroy(linger=0)


@contextlib.contextmanager
def a_lab(*, devices: int = 2, policy: dict[str, object] | None = None) -> Iterator[tuple[Broker, Path]]:
    """Start a broker with simulated devices, and make a folder for notebooks."""
    root = Path(tempfile.mkdtemp(prefix="jg-"))
    try:
        with a_broker(root, devices=devices, policy=policy or {}) as broker:
            folder = root / "notebooks"
            folder.mkdir()
            yield broker, folder
    finally:
        shutil.rmtree(root, ignore_errors=True)
