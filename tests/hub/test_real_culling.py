"""The idle culler of JupyterHub beside ours: it ends who does nothing, and nobody whose cell or GPU works."""

import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from jupyter_gpu.model import State
from tests.nvml.board import GIB, Board, data_centre_card
from tests.nvml.library import needs_standin

from .hub import POLICY, START_SECONDS, a_hub, until
from .test_real_hub import job, live, reserve

pytestmark = [pytest.mark.story, pytest.mark.timeout(180), needs_standin]

_LOG = os.environ.get("JUPYTER_GPU_HUB_LOG")
#: A server that did nothing for so long is culled, and says each second when it did something last.
TIMEOUT_SECONDS = 8
CULLER = f"""
c.Spawner.environment["JUPYTERHUB_ACTIVITY_INTERVAL"] = "1"
c.JupyterHub.activity_resolution = 0
c.JupyterHub.services.append({{
    "name": "culler",
    "command": [{sys.executable!r}, "-m", "jupyterhub_idle_culler", "--timeout={TIMEOUT_SECONDS}", "--cull-every=1"],
}})
c.JupyterHub.load_roles.append({{
    "name": "culler", "services": ["culler"],
    "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
}})
"""
#: GPUs that do nothing for two seconds are idle; they are not given back, so that whoever ends is culled.
IDLE = {"renew_seconds": 2, "lapse_seconds": 6, "idle_warn_seconds": 2, "idle_release_seconds": 3600}
SILENT = "import pathlib, time\nwhile not pathlib.Path({!r}).exists():\n    time.sleep(0.05)\nprint('through')"


@pytest.fixture
def hub():
    """Two GPUs at rest, and a culler that is quick."""
    with tempfile.TemporaryDirectory(prefix="jgc-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        board = Board(root, *(data_centre_card(number, "NVIDIA A100-SXM4-80GB", 80 * GIB) for number in range(2)))
        with a_hub(root / "hub", board=board, policy=POLICY | IDLE, more=CULLER) as hub:
            yield hub
            if _LOG:
                Path(_LOG).write_bytes(hub.log.read_bytes())


def is_there(hub, user):
    """Whether their server runs."""
    return bool(hub.server(user).get("ready"))


async def look_on(hub, user):
    """A page of theirs that is open, reloads and asks how everything stands, for as long as their server answers."""
    url = f"{hub.url}user/{user}/jupyter-gpu".replace("http", "ws", 1)
    headers = {"Authorization": f"token {hub.token_of(user)}"}
    loop, seen = asyncio.get_running_loop(), 0
    with hub.at(user) as page, contextlib.suppress(HTTPClientError):  # nobody answers at the stream any more
        while True:
            stream = await websocket_connect(HTTPRequest(f"{url}/stream", headers=headers))
            assert await stream.read_message() is not None
            for path in ("hello", "kernels", "api/v1/status"):
                answer = await loop.run_in_executor(None, page.get, f"/jupyter-gpu/{path}")
                seen += answer.is_success
            stream.close()
            while await stream.read_message() is not None:  # until the other end has said good-bye
                pass
    return seen


def test_only_who_computes_outlives_the_culler(hub, tmp_path):
    """A cell in silence is work; an open page, a GPU that is only held and a job of the queue keep no server.

    jupyterhub/jupyterhub#1498, jupyter/notebook#3932
    """
    go = tmp_path / "go"
    hub.spawn("ana", gpu_profile="one").raise_for_status()
    hub.kernel("ana").begin(SILENT.format(str(go)))
    hub.spawn("dov", gpu_profile="none").raise_for_status()
    ran = hub.as_("dov").submit(job(tmp_path, SILENT.format(str(go)), devices=0))
    hub.spawn("ben", gpu_profile="one").raise_for_status()
    assert hub.kernel("ben").run("print(1)") == "1"
    (held,) = live(hub, "ben")
    waits = hub.as_("cho").submit(reserve())
    assert waits.state is State.QUEUED

    assert asyncio.run(asyncio.wait_for(look_on(hub, "ben"), START_SECONDS)) > 0

    until(lambda: not is_there(hub, "ben") and not is_there(hub, "dov"), "who does nothing is culled")
    assert is_there(hub, "ana")
    assert [it.state for it in live(hub, "ana")] == [State.ACTIVE]
    assert hub.as_("cho").wait(waits.id, until="active", timeout_seconds=60).devices == held.devices
    assert hub.as_("dov").workload(ran.id).state is State.ACTIVE

    go.touch()

    until(lambda: not is_there(hub, "ana"), "its cell has ended, and nothing is left to do")
    until(lambda: not live(hub, "ana"), "what it held is free")
    assert hub.as_("dov").wait(ran.id, until="ended", timeout_seconds=60).end == "succeeded"
