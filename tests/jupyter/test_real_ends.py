"""How people lose sight of a kernel, kill one, or end a server: with real kernels, their children and real signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from jupyter_gpu.jupyter.standing import word_of
from jupyter_gpu.model import State
from tests.ports import free_port

from .kernels_ground import a_lab, a_lab_broker, broker, environment_of, is_alive, kernelspec, play, until
from .test_kernels_end import ask_for_both, pinned_at_start

__all__ = ["broker"]
pytestmark = pytest.mark.timeout(120)


def test_a_kernel_whose_tab_was_closed_is_found_again_and_ends_with_its_time(monkeypatch, tmp_path):
    """Lab on another computer shows notebook, GPU, memory and activity; a notice, then the GPU goes on to who waits.

    jupyter/notebook#5421, microsoft/vscode-jupyter#11177
    """

    async def story(broker):
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab, "mine.ipynb")
            began = time.time()
            await lab.run(kernel, "kept = bytearray(200 << 20)")
            # The tab is closed: nobody is connected to the kernel any more, and another page comes.
            await until(lambda: _is_idle(lab), "the cell is over for the server too")
            (found,) = (await lab.client.get("jupyter-gpu/kernels")).json()["items"]
            assert (found["notebook"], found["workload"], found["devices"]) == (
                "mine.ipynb", held.id, list(held.devices),
            )  # fmt: skip
            assert found["last_activity"] >= began
            await until(lambda: _memory_of(lab, held.devices[0], 200 << 20), "its memory is shown")

            waiting = await asyncio.to_thread(broker.client.submit, ask_for_both())
            await until(lambda: lab.kernels.kernels[kernel].notice is not None, "the notice")
            assert (await lab.ended(held.id, 40)).end in ("released", "expired")
            granted = await asyncio.to_thread(broker.client.wait, waiting.id, "active", 40)
            assert held.devices[0] in granted.devices
            assert (await lab.client.delete(f"api/kernels/{kernel}")).status_code == 204

    with a_lab_broker(monkeypatch, reservation_seconds=20) as running:
        play(lambda: story(running))


async def _is_idle(lab):
    (found,) = (await lab.client.get("jupyter-gpu/kernels")).json()["items"]
    return found["execution_state"] == "idle"


async def _memory_of(lab, uuid, at_least):
    return any(it.uuid == uuid and (it.memory_used_bytes or 0) >= at_least for it in await lab.devices())


@pytest.mark.parametrize("way", ["restart", "shutdown", "killed"])
def test_what_a_cell_has_started_does_not_keep_a_gpu_that_somebody_else_gets(broker, tmp_path, way):
    """Its child ends with it, or the GPU stays its own until that has ended (jupyter/jupyter_client#104)."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, kernel, held = await pinned_at_start(lab)
            child = int(
                await lab.run(kernel, "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid)")
            )
            waiting = await asyncio.to_thread(broker.client.submit, ask_for_both())
            before = lab.pid(kernel)
            if way == "killed":
                os.kill(before, signal.SIGKILL)
                await until(lambda: lab.pid(kernel) not in (None, before), "the automatic restart")
                await lab.ready(kernel)  # Jupyter cannot shut down one that is about to restart
            elif way == "restart":
                await lab.restart(kernel)
            if way != "shutdown":
                assert (await lab.lease(held.id)).state is State.ACTIVE
                assert (await lab.lease(waiting.id)).state is State.QUEUED
            await lab.shut_down(session)
            await asyncio.to_thread(broker.client.wait, waiting.id, "active", 40)
            assert not is_alive(child)

    play(story)


def test_idle_time_of_a_kernel_that_crashed_in_a_cell_begins_at_its_restart(broker, tmp_path):
    """Nobody listens, so nothing of the new process tells: not busy for ever (jupyter-server/jupyter_server#1395)."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            await lab.run(kernel, "while True: pass", wait=False)
            await until(lambda: lab.view(kernel).execution_state == "busy", "it computes")
            before, killed_at = lab.pid(kernel), time.time()
            os.kill(before, signal.SIGKILL)
            await until(lambda: lab.pid(kernel) not in (None, before), "the automatic restart")
            (shown,) = (await lab.client.get("jupyter-gpu/kernels")).json()["items"]
            assert shown["execution_state"] == "idle"
            assert shown["reason"] == "restarted after a crash (killed by signal 9)"
            assert shown["last_activity"] >= killed_at
            kept = lab.kernels.kernels[kernel]
            assert word_of(kept, kept.manager) == {"busy": False, "idle_since": shown["last_activity"]}
            assert (await lab.lease(held.id)).state is State.ACTIVE
            await lab.ready(kernel)  # Jupyter cannot shut down one that is about to restart

    play(story)


def test_a_server_that_is_interrupted_starts_no_kernel_again(broker, tmp_path):
    """Ctrl-C twice: no process and no lease comes after it, and each GPU goes back once (jupyter/notebook#5991)."""
    python = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernelspec(tmp_path, "python3", python, "python")
    port = free_port("127.0.0.1")
    words = [f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=t", "--allow-root"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *words, f"--ServerApp.root_dir={tmp_path}"],
            env=os.environ | broker.environment | {"JUPYTER_PATH": str(tmp_path)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stderr=log,
        )

    async def story():
        headers = {"Authorization": "token t"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False) as client:
            await until(lambda: _answers(client), "the server answers", 40)
            numbers = [await _one_that_holds(client, f"{name}.ipynb") for name in ("one", "two")]
            kernels = _kernels()
            assert len(kernels) == 2
            await _press(server)
            server.send_signal(signal.SIGINT)
            await asyncio.to_thread(server.wait, 40)
            for number in numbers:
                assert (await asyncio.to_thread(broker.client.wait, number, "ended", 40)).end == "released"
            assert _kernels() == []

    async def _press(server):
        """Ctrl-C until it is heard: where it meets a callback of some library it is swallowed there."""
        for _ in range(4):
            server.send_signal(signal.SIGINT)
            with contextlib.suppress(AssertionError):
                return await until(lambda: b"Interrupted" in (tmp_path / "log").read_bytes(), "it is heard", 10)
        raise AssertionError((tmp_path / "log").read_text())

    def _kernels():
        return [it.name for it in Path("/proc").iterdir() if it.name.isdecimal() and _is_ours(int(it.name), tmp_path)]

    try:
        play(story)
    finally:
        server.kill()
        server.wait()
    for it in broker.client.workloads(mine=True, ended=True):
        assert [event.event for event in broker.client.events(it.id)].count("released") == 1
    assert len(list(broker.client.workloads(mine=True, ended=True))) == 2


def _is_ours(pid, root):
    try:
        return environment_of(pid).get("JUPYTER_PATH") == str(root) and "JUPYTER_GPU_KERNEL" in environment_of(pid)
    except OSError:
        return False


async def _answers(client):
    try:
        return (await client.get("/api/status")).is_success
    except httpx.TransportError:
        return False


async def _one_that_holds(client, path):
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    kernel = (await client.post("/api/sessions", json=body)).json()["kernel"]["id"]
    answer = await client.post(f"/jupyter-gpu/kernels/{kernel}/reservation", content=json.dumps({"devices": 1}))
    answer.raise_for_status()
    return answer.json()["id"]
