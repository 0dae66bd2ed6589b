"""What the tests of kernels share: real kernels of a real Jupyter server, a real broker with simulated devices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_gpu import pins
from jupyter_gpu.client import Client
from jupyter_gpu.jupyter.documents import KernelAsk, KernelView
from jupyter_gpu.jupyter.kernels import Kernels
from jupyter_gpu.jupyter.silent import client_of
from jupyter_gpu.model import Ask, DeviceView, Kind, SubmitBody, WorkloadView
from tests.stories.scene import Broker, a_broker, this_process

from .server_ground import Server, a_server

#: Everything that a broker waits for comes soon.
QUICK = {
    "renew_seconds": 1, "lapse_seconds": 6, "reservation_grace_seconds": 4, "kill_after_seconds": 2, "clear_seconds": 4,
}  # fmt: skip
#: A kernel of another language: it says nothing, and leaves when it is asked to.
SPEAKS_NOTHING = "trap 'exit 0' INT TERM; while :; do sleep 0.1; done"
NOTHING = "none"


@contextlib.contextmanager
def a_lab_broker(monkeypatch: pytest.MonkeyPatch, *, devices: int = 2, **policy: Any) -> Iterator[Broker]:
    """Run a broker that everything here finds, in a folder with a short name."""
    root = Path(tempfile.mkdtemp(prefix="jg-"))
    try:
        with a_broker(root / "b", devices=devices, policy=QUICK | policy) as broker:
            for name in ("JUPYTER_GPU_RUNTIME_DIR", "JUPYTER_GPU_STATE_DIR"):
                monkeypatch.setenv(name, broker.environment[name])
            yield broker
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Two devices."""
    with a_lab_broker(monkeypatch) as running:
        yield running


def kernelspec(root: Path, name: str, argv: list[str], language: str, **more: Any) -> None:
    """Install a kernelspec that Jupyter finds below JUPYTER_PATH=root."""
    folder = root / "kernels" / name
    folder.mkdir(parents=True)
    spec = {"argv": argv, "display_name": name, "language": language} | more
    (folder / "kernel.json").write_text(json.dumps(spec))


@dataclass
class Lab:
    """A Jupyter server with our extension, its kernels, and the broker beside it."""

    server: Server
    client: httpx.AsyncClient
    broker: Client

    @property
    def kernels(self) -> Kernels:
        """What looks after the kernels."""
        return self.server.extension.kernels

    async def start(self, kernel: str = "python3", path: str = "one.ipynb") -> tuple[str, str]:
        """Open a notebook: its session and its kernel."""
        body = {"path": path, "name": Path(path).name, "type": "notebook", "kernel": {"name": kernel}}
        answer = await self.client.post("api/sessions", json=body)
        assert answer.status_code == 201, answer.text
        session = answer.json()
        kernel_id = session["kernel"]["id"]
        if kernel.startswith("python"):
            await self.ready(kernel_id)
        return session["id"], kernel_id

    async def ready(self, kernel_id: str) -> None:
        """Wait until a kernel answers."""
        client = client_of(self.server.app.kernel_manager.get_kernel(kernel_id))
        client.start_channels(stdin=False, control=False)
        try:
            await client.wait_for_ready(timeout=30)
        finally:
            client.stop_channels()

    async def run(self, kernel_id: str, code: str, *, wait: bool = True) -> str:
        """Run code in a kernel; what it printed. Without waiting for its end it has begun, and more is not known."""
        client = client_of(self.server.app.kernel_manager.get_kernel(kernel_id))
        client.start_channels(stdin=False, control=False, hb=False)
        printed: list[str] = []
        try:
            await client.wait_for_ready(timeout=30)
            if not wait:
                asked = client.execute(code)
                while (await client.get_iopub_msg(timeout=30))["parent_header"].get("msg_id") != asked:
                    pass  # what others run
                return ""
            await asyncio.wait_for(
                client.execute_interactive(
                    code, output_hook=lambda it: printed.append(it["content"].get("text", "")), timeout=30
                ),
                30,
            )
        finally:
            client.stop_channels()
        return "".join(printed).strip()

    async def sees(self, kernel_id: str) -> str:
        """What a Python kernel sees from now on."""
        return await self.run(kernel_id, f"import os; print(os.environ.get({pins.VISIBLE!r}))")

    def started_with(self, kernel_id: str) -> dict[str, str]:
        """The environment that a kernel's process was started with."""
        return environment_of(self.pid(kernel_id))

    def pid(self, kernel_id: str) -> int:
        """Its process."""
        return self.server.app.kernel_manager.get_kernel(kernel_id).provisioner.pid

    def view(self, kernel_id: str) -> KernelView:
        """How a kernel stands."""
        return next(it for it in self.kernels.views() if it.kernel_id == kernel_id)

    async def reserve(self, kernel_id: str, **ask: Any) -> WorkloadView:
        """Ask for a device."""
        return await self.kernels.reserve(kernel_id, KernelAsk(**ask), self.server.extension.clients.of())

    async def give_back(self, kernel_id: str, **words: Any) -> WorkloadView:
        """Give it back."""
        return await self.kernels.give_back(kernel_id, self.server.extension.clients.of(), **words)

    async def pin(self, kernel_id: str, *, restart: bool = False) -> Any:
        """Have it pinned."""
        return await self.kernels.pin(kernel_id, self.server.extension.clients.of(), restart=restart)

    async def restart(self, kernel_id: str) -> None:
        """Restart as the menu does."""
        answer = await self.client.post(f"api/kernels/{kernel_id}/restart")
        assert answer.status_code == 200, answer.text

    async def shut_down(self, session: str) -> None:
        """Shut the notebook's kernel down."""
        assert (await self.client.delete(f"api/sessions/{session}")).status_code == 204

    async def change(self, session: str, kernel: str) -> str:
        """Change the notebook's kernel; the new one."""
        answer = await self.client.patch(f"api/sessions/{session}", json={"kernel": {"name": kernel}})
        assert answer.status_code == 200, answer.text
        return answer.json()["kernel"]["id"]

    async def lease(self, workload: int) -> WorkloadView:
        """How a reservation stands."""
        return await asyncio.to_thread(self.broker.workload, workload)

    async def mine(self) -> list[WorkloadView]:
        """What of this account is not over."""
        return await asyncio.to_thread(lambda: list(self.broker.workloads(mine=True)))

    async def ended(self, workload: int, seconds: float = 20) -> WorkloadView:
        """Wait until it has ended."""
        return await asyncio.to_thread(self.broker.wait, workload, "ended", seconds)

    async def devices(self) -> tuple[DeviceView, ...]:
        """The devices."""
        return (await asyncio.to_thread(self.broker.devices)).items


def silent_until(go: Path) -> str:
    """A cell that says nothing until a file is there, and then when it ended."""
    return f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\nprint(time.time())"


def environment_of(pid: int) -> dict[str, str]:
    """What a process was started with."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pairs = (os.fsdecode(word).partition("=") for word in words if word)
    return {name: value for name, _, value in pairs}


def is_alive(pid: int) -> bool:
    """Whether a process is there, and is more than what waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], object], what: str, seconds: float = 45) -> None:
    """Wait for what only shows itself."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def a_lab(broker: Broker, root: Path, **words: Any) -> AsyncIterator[Lab]:
    """Run a Jupyter server with kernels of three kinds."""
    notebooks = root / "notebooks"
    notebooks.mkdir(exist_ok=True)
    python = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    if not (root / "kernels").exists():
        kernelspec(root, "python3", python, "python")
        kernelspec(root, "python-other", python, "python")
        kernelspec(root, "shell", ["bash", "-c", SPEAKS_NOTHING], "bash")
        kernelspec(root, "missing", ["/no/such/program"], "none")
    os.environ["JUPYTER_PATH"] = str(root)
    os.environ["IPYTHONDIR"] = str(root / "ipython")
    async with a_server(notebooks, **words) as server:
        yield Lab(server, server.program(), broker.client)


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run one asynchronous story."""
    asyncio.run(story())  # type: ignore[arg-type]


def hold(broker: Broker, devices: int) -> WorkloadView:
    """Somebody holds devices."""
    ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=devices, duration_seconds=3600), holder=this_process())
    return broker.client.submit(ask)
