"""A hub with 200 users for the measurements: real users and spawners, and the service as a process of its own.

The hub's own pages and proxy are left out, and so is what a server costs: each "server" is an address at which one
small program answers for all. What a spawn costs beside that is the hub's own work for it, with the hook or without.
The hub's API is the stand-in of our tests, which counts what it is asked; a real hub answers the same and takes longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupyterhub
import psutil
from jupyterhub.spawner import Spawner
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from traitlets import Unicode

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.errors import GpuError
from jupyter_gpu.jupyter.spawner import with_gpus
from tests.hub.fake_hub import RESEARCHER, FakeHub, a_hub
from tests.hub.ground import DIGEST
from tests.hub.spawn_ground import Hall
from tests.ports import free_port

USERS, TEAMS, DEVICES = 200, 8, 64
NAMES = tuple(f"user-{number:03}" for number in range(USERS))
OPERATOR = "olga"
#: A part of a simulated GPU, so that all of them hold something at a time.
FIFTH = {"name": "fifth", "title": "A fifth", "devices": 1, "memory_bytes": 16 << 30, "duration_seconds": 8 * 3600}
POLICY: dict[str, Any] = {
    "profiles": [FIFTH, {"name": "one", "title": "One GPU", "devices": 1}, {"name": "none", "devices": 0}],
    "sharing": [{}],
    "quotas": [
        {"user": "*", "devices": 2},
        {"user": "*", "gpu_hours": 100},
        *({"team": f"team-{n}", "devices": 32} for n in range(TEAMS)),
    ],
}
START_SECONDS = 30.0


def team_of(number: int) -> str:
    """Everybody is in one team."""
    return f"team-{number % TEAMS}"


class Instant(Spawner):
    """Starts nothing: the server is there already."""

    address = Unicode(config=True)
    _is_up = False

    async def start(self) -> str:
        """At once."""
        self._is_up = True
        return str(self.address)

    async def poll(self) -> int | None:
        """Whether it was started."""
        return None if self._is_up else 0

    async def stop(self, now: bool = False) -> None:
        """At once."""
        del now
        self._is_up = False


class _Answer(RequestHandler):
    def get(self) -> None:
        self.set_header("X-JupyterHub-Version", jupyterhub.__version__)


@contextlib.contextmanager
def _servers() -> Iterator[str]:
    """What answers for all servers, and where."""
    server = HTTPServer(Application([(".*", _Answer)], log_function=lambda _: None))
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    try:
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    finally:
        server.stop()


@dataclass
class Lab:
    """The hub of 200 users, twice: with the hook around its spawner, and without; and their one service."""

    hub: FakeHub
    hall: Hall
    bare: Hall
    #: Where servers reach the service.
    url: str
    process: psutil.Process
    tokens: dict[str, str]

    def cpu_seconds(self) -> float:
        """What the service's process has used."""
        used = self.process.cpu_times()
        return used.user + used.system

    def resident(self) -> float:
        """Its memory in MiB."""
        return float(self.process.memory_info().rss) / 2**20

    def client(self, name: str) -> AsyncClient:
        """The service, for who shows a token of the hub."""
        return AsyncClient(self.url, token=self.tokens[name], start=False, environ={})


@contextlib.asynccontextmanager
async def a_lab(folder: Path) -> AsyncIterator[Lab]:
    """Start it, without any server."""
    async with a_hub() as hub:
        tokens = {name: hub.add(name, *RESEARCHER, groups=(team_of(n),)) for n, name in enumerate(NAMES)}
        tokens[OPERATOR] = hub.add(OPERATOR, *RESEARCHER, "operate")
        port = free_port()
        url = f"http://127.0.0.1:{port}/services/jupyter-gpu"
        with _servers() as address, _service(folder, hub, port) as process:
            lab = Lab(
                hub, _hall(folder / "with", with_gpus(Instant), url, address),
                _hall(folder / "without", Instant, url, address), url, psutil.Process(process.pid), tokens,
            )  # fmt: skip
            await _answers(lab, process)
            yield lab


def _hall(folder: Path, spawner_class: type, url: str, address: str) -> Hall:
    hall = Hall(folder, spawner_class, url, gpu_profiles=POLICY["profiles"], gpu_patience_seconds=5.0)
    hall.config.Instant.address = address
    for number, name in enumerate(NAMES):
        hall.user(name, team_of(number))
    return hall


@contextlib.contextmanager
def _service(folder: Path, hub: FakeHub, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """As a hub starts it."""
    settings = {
        "hub": True,
        "system": False,
        "policy": POLICY,
        "simulated_devices": DEVICES,
        "simulated_memory": "80GiB",
    }
    environ = {
        **os.environ,
        **hub.environ(port, JUPYTER_GPU_SPAWNER_DIGEST=DIGEST),
        "JUPYTER_GPU_SETTINGS": json.dumps(settings),
        "JUPYTER_GPU_RUNTIME_DIR": str(folder / "run"),
        "JUPYTER_GPU_STATE_DIR": str(folder / "state"),
    }
    with (folder / "log").open("ab") as log:
        argv = [sys.executable, "-m", "jupyter_gpu.broker.app"]
        process = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def _answers(lab: Lab, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(START_SECONDS), lab.client(OPERATOR) as client:
        while process.poll() is None:
            with contextlib.suppress(GpuError):
                await client.broker()
                return
            await asyncio.sleep(0.05)
    raise RuntimeError("the service has ended at once")
