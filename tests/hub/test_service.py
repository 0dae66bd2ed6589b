"""The service as the process that a hub starts: where it listens, how it ends, and that work goes on without it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Places
from tests.ports import free_port

from .fake_hub import RESEARCHER, FakeHub, a_hub
from .ground import play

PREFIX = "/services/jupyter-gpu"
#: A hub: it leads its service into a session of its own, and may be killed.
HUB = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def words(places: Places, *more: str) -> list[str]:
    """The command line of the service."""
    return [
        *(sys.executable, "-m", "jupyter_gpu.broker.app", "--hub", "--simulated=1"),
        f"--GpuBroker.runtime_dir={places.runtime_dir}",
        f"--GpuBroker.state_dir={places.runtime_dir / 'state'}",
        *more,
    ]


@contextlib.contextmanager
def started(argv: list[str], environ: dict[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone afterwards."""
    with log.open("ab") as file:
        process = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def answers(url: str, token: str, *, within_seconds: float = 30.0) -> dict[str, Any]:
    """The status, once the service answers."""
    import asyncio

    deadline = time.monotonic() + within_seconds
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = await client.get(url, headers={"Authorization": f"token {token}"})
                return answer.json()
            assert time.monotonic() < deadline, "the service does not answer"
            await asyncio.sleep(0.05)


def is_there(pid: int) -> bool:
    """Whether a process lives."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def until(is_so: Callable[[], bool], *, within_seconds: float = 15.0) -> None:
    """Wait for something that only another process shows."""
    deadline = time.monotonic() + within_seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def environ_of(hub: FakeHub, port: int) -> dict[str, str]:
    """What a hub's child sees."""
    return {**os.environ, **hub.environ(port)}


def test_it_listens_where_the_hub_wants_it_and_ends_clean(tmp_runtime: Places, tmp_path: Path) -> None:
    """At JUPYTERHUB_SERVICE_URL; SIGINT, which a hub sends first, is no accident."""

    async def story() -> None:
        async with a_hub() as hub:
            ana, port = hub.add("ana", *RESEARCHER), free_port()
            for number in (signal.SIGINT, signal.SIGTERM):
                with started(words(tmp_runtime), environ_of(hub, port), tmp_path / "log") as service:
                    status = await answers(f"http://127.0.0.1:{port}{PREFIX}/api/v1/status", ana)
                    assert status["caller"] == "ana"
                    service.send_signal(number)
                    assert service.wait(15) == 0
            assert "Traceback" not in (tmp_path / "log").read_text()

    play(story)


def test_it_ends_with_its_hub_and_the_next_one_takes_over(tmp_runtime: Places, tmp_path: Path) -> None:
    """A hub that was killed leaves its service behind, which would keep the port from the next hub's.

    jupyterhub/jupyterhub#5107: what runs goes on, and is the next service's.
    """

    async def story() -> None:
        async with a_hub() as hub:
            port, environ = free_port(), environ_of(hub, free_port())
            environ["JUPYTERHUB_SERVICE_URL"] = f"http://127.0.0.1:{port}"
            ana = hub.add("ana", *RESEARCHER)
            url = f"http://127.0.0.1:{port}{PREFIX}/api/v1"
            mine = words(tmp_runtime, f"--GpuBroker.account_of_user={{'ana': '{_me()}'}}")
            argv = [sys.executable, "-c", HUB, *mine]
            with started(argv, environ, tmp_path / "log") as first:
                assert first.stdout is not None
                service = int(first.stdout.readline())
                await answers(f"{url}/status", ana)
                job = {"kind": "job", "spec": {"argv": ["sleep", "600"], "folder": "/tmp"}}
                async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"token {ana}"}) as client:
                    asked = await client.post(f"{url}/workloads", json=job)
                    assert asked.status_code == 201, asked.text
                    number = asked.json()["id"]
                first.kill()
                first.wait()
                # The hub is started again at once: its service waits for the one before to see what happened.
                with started(argv, environ, tmp_path / "log") as second:
                    until(lambda: not is_there(service))
                    status = await answers(f"{url}/status", ana)
                    found = {it["id"]: it for it in status["workloads"]}
                    assert (found[number]["state"], found[number]["owner"]) == ("active", "ana")
                    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"token {ana}"}) as client:
                        assert (await client.post(f"{url}/workloads/{number}/cancel")).status_code == 200
                        ended = await client.get(f"{url}/workloads/{number}/wait?until=ended&timeout=30")
                        assert ended.json()["state"] == "ended"
                    assert second.stdout is not None
                    os.kill(int(second.stdout.readline()), signal.SIGTERM)
                    second.wait(15)

    play(story)


def _me() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def test_a_port_that_is_taken_names_who_has_it(tmp_runtime: Places, tmp_path: Path) -> None:
    """Who has it, and the setting that names another."""

    async def story() -> None:
        async with a_hub() as hub:
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                port = taken.getsockname()[1]
                with started(words(tmp_runtime), environ_of(hub, port), tmp_path / "log") as service:
                    assert service.wait(30) == 1
            said = (tmp_path / "log").read_text()
            assert f"cannot listen at 127.0.0.1:{port}: the process {os.getpid()} of {_me()}" in said
            assert "Name another port: setup_hub(..., port=...)." in said

    play(story)


@pytest.mark.parametrize("name", ["JUPYTERHUB_API_TOKEN", "JUPYTERHUB_API_URL", "JUPYTERHUB_SERVICE_URL"])
def test_what_the_hub_did_not_say_is_named(tmp_runtime: Places, tmp_path: Path, name: str) -> None:
    """A service that was started by hand says which variable it lacks."""
    environ = {**os.environ, **FakeHub(url="http://127.0.0.1:1").environ(1)}
    del environ[name]
    with started(words(tmp_runtime), environ, tmp_path / "log") as service:
        assert service.wait(30) == 1
    assert f"{name} is not" in (tmp_path / "log").read_text()


def test_without_jupyterhub_it_says_what_to_install(tmp_runtime: Places, tmp_path: Path) -> None:
    """The package jupyterhub is needed only here, so it may be missing."""
    (tmp_path / "jupyterhub.py").write_text("raise ModuleNotFoundError(name='jupyterhub')\n")
    environ = {**os.environ, **FakeHub(url="http://127.0.0.1:1").environ(1), "PYTHONPATH": str(tmp_path)}
    with started(words(tmp_runtime), environ, tmp_path / "log") as service:
        assert service.wait(30) == 1
    assert "pip install 'jupyter-gpu[hub]'" in (tmp_path / "log").read_text()
