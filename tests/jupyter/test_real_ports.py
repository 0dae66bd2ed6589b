"""Kernels whose ports change: a start on a taken port, and what is known of a kernel afterwards."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from jupyter_gpu.jupyter.standing import word_of
from jupyter_gpu.model import State

from .kernels_ground import a_lab, broker, play, until
from .test_kernels_end import pinned_at_start

__all__ = ["broker"]
pytestmark = pytest.mark.timeout(120)


async def die(lab, kernel):
    """The process of a kernel ends by itself, and all its threads with it."""
    process = lab.server.app.kernel_manager.get_kernel(kernel).provisioner.process
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: process.poll() is not None, "its end")


def take(port):
    """Somebody else listens where a kernel did."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", port))
    taken.listen()
    return taken


def test_a_kernel_that_comes_back_on_other_ports_is_seen_to_compute(broker, tmp_path):
    """Else its GPU would be given back under a silent cell (jupyter-server/jupyter_server#481).

    Jupyter starts one that died anew on the same ports, however often (jupyter/jupyter_client#882, #276).
    """

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            manager = lab.server.app.kernel_manager.get_kernel(kernel)
            before, process = manager.iopub_port, manager.provisioner.process
            await die(lab, kernel)
            with take(before):
                await until(lambda: manager.provisioner.process not in (None, process), "the automatic restart", 30)
                await lab.ready(kernel)
                assert manager.iopub_port != before
                assert (await lab.lease(held.id)).state is State.ACTIVE
                await lab.run(kernel, "import time; time.sleep(60)", wait=False)
                await until(lambda: lab.view(kernel).execution_state == "busy", "it is seen to compute")
                assert word_of(lab.kernels.kernels[kernel], manager) == {"busy": True}
                await lab.client.post(f"api/kernels/{kernel}/interrupt")
                await until(lambda: lab.view(kernel).execution_state == "idle", "it is seen to have ended")

    play(story)
