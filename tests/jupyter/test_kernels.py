"""A kernel and its reservation, from the ask to the end: real kernels, a real Jupyter server, a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu import pins
from jupyter_gpu.jupyter.documents import KernelView
from jupyter_gpu.model import State

from .kernels_ground import NOTHING, a_lab, broker, hold, is_alive, play, until

__all__ = ["broker"]
pytestmark = pytest.mark.timeout(120)


def test_a_kernel_without_a_reservation_sees_no_gpu_whatever_its_language(broker, tmp_path, monkeypatch):
    """Explicitly none: a variable that is not set would show all of them (flux-framework/flux-core#3154)."""
    monkeypatch.setenv(pins.VISIBLE, "0,1")  # what the server sees is not what a kernel may take

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            for name in ("python3", "shell"):
                _, kernel = await lab.start(name, f"{name}.ipynb")
                environment = lab.started_with(kernel)
                assert {n: environment.get(n) for n in pins.NAMES} == pins.variables(())
                assert environment[pins.KERNEL] == kernel
                assert "JUPYTER_DEFAULT_PROVISIONER_NAME" not in environment
                assert lab.view(kernel).devices == ()

    play(story)


def test_reserve_pin_restart_shut_down(broker, tmp_path):
    """At once by the ask where CUDA is not loaded, exactly the leased UUIDs; a restart keeps it; shutdown releases."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, kernel = await lab.start()
            assert await lab.sees(kernel) == NOTHING
            held = await lab.reserve(kernel, devices=2, duration_seconds=3600)
            assert (held.name, len(held.devices)) == ("one.ipynb", 2)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            assert await lab.sees(kernel) == ",".join(held.devices)
            first = lab.pid(kernel)
            assert (await lab.lease(held.id)).holder.pid == first
            await lab.restart(kernel)
            await lab.ready(kernel)
            assert lab.pid(kernel) != first
            environment = lab.started_with(kernel)
            assert {name: environment.get(name) for name in pins.NAMES} == pins.variables(held.devices)
            assert (await lab.lease(held.id)).holder.pid == lab.pid(kernel)
            view = lab.view(kernel)
            assert (view.workload, view.pinned, view.devices) == (held.id, True, held.devices)
            assert (view.notebook, view.restart_needed, view.reason) == ("one.ipynb", None, "")
            await lab.shut_down(session)
            assert (await lab.ended(held.id)).end == "released"

    play(story)


def test_nothing_of_ours_touches_cuda_in_a_kernel(broker, tmp_path):
    """Magics and a live pin import no framework and load no driver (huggingface/accelerate#1293)."""
    look = (
        "import sys; print(sorted({'torch', 'tensorflow', 'cupy', 'jax', 'pynvml', 'numba'} & set(sys.modules)),"
        " any(name in open('/proc/self/maps').read() for name in ('libcuda', 'libnvidia-ml')),"
        " '_jupyter_gpu_live' in dir(), 'gpu' in get_ipython().magics_manager.magics['line'])"
    )

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            assert await lab.run(kernel, look) == "[] False False True"
            assert "change(" not in await lab.run(kernel, "print(In)")  # no trace in the history

    play(story)


def test_what_is_given_back_is_not_seen_any_more_and_the_kernel_lives_on(broker, tmp_path):
    """Pinned live it is unpinned live, with all it has computed; pinned at its start it is restarted."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            await lab.run(kernel, "x = 7")
            manager = lab.server.app.kernel_manager.get_kernel(kernel)
            await until(lambda: manager.execution_state == "idle", "its server knows too that the cell has ended")
            await lab.give_back(kernel)
            assert await lab.sees(kernel) == NOTHING
            assert await lab.run(kernel, "print(x)") == "7"
            assert (await lab.ended(held.id)).end == "released"

            held = await lab.reserve(kernel)
            await lab.restart(kernel)
            await lab.ready(kernel)
            assert await lab.sees(kernel) == ",".join(held.devices)
            before = lab.pid(kernel)
            await lab.give_back(kernel)
            assert lab.pid(kernel) != before
            assert lab.started_with(kernel)[pins.VISIBLE] == NOTHING
            assert (await lab.ended(held.id)).end == "released"
            assert is_alive(lab.pid(kernel))

    play(story)


def test_a_page_may_make_the_restart_that_gives_back(broker, tmp_path):
    """The answer comes before; the restart starts it without, and then the GPU is given back."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            held = await lab.reserve(kernel)
            await lab.restart(kernel)
            await lab.ready(kernel)
            answer = await lab.give_back(kernel, by_page=True)
            assert answer.state is State.ACTIVE
            await lab.restart(kernel)
            assert lab.started_with(kernel)[pins.VISIBLE] == NOTHING
            assert (await lab.ended(held.id)).end == "released"
            await until(lambda: lab.view(kernel).workload is None, "nothing of it is left")

    play(story)


def test_a_kernel_that_waits_starts_without_and_is_pinned_at_the_grant(broker, tmp_path):
    """The place with its reason, a restart meanwhile that costs no place, the grant, and the way out of the line."""

    async def story():
        other = hold(broker, 2)
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            waiting = await lab.reserve(kernel)
            assert (waiting.state, waiting.ahead) == (State.QUEUED, 0)
            assert "No GPU is free" in waiting.reason
            answer = await lab.pin(kernel)
            assert (answer.state, answer.reason) == ("waiting", (await lab.lease(waiting.id)).reason)
            await lab.restart(kernel)
            await lab.ready(kernel)
            assert lab.started_with(kernel)[pins.VISIBLE] == NOTHING
            await until(lambda: _holder_is(lab, waiting.id, lab.pid(kernel)), "the new process waits")
            _, second = await lab.start("python3", "two.ipynb")
            leaves = await lab.reserve(second)
            assert (await lab.give_back(second)).end == "cancelled"
            assert (await lab.lease(leaves.id)).state is State.ENDED
            broker.client.release(other.id)
            await until(lambda: lab.view(kernel).pinned, "the pin at the grant")
            assert await lab.sees(kernel) == ",".join((await lab.lease(waiting.id)).devices)

    play(story)


async def _holder_is(lab, workload, pid):
    return (await lab.lease(workload)).holder.pid == pid


def test_where_cuda_is_loaded_nothing_is_pretended(broker, tmp_path, monkeypatch):
    """It says that a restart is needed, and is not shown as done until the restart (pytorch/pytorch#80876)."""
    library = tmp_path / "libcuda.so.1"
    library.write_bytes(b"\0" * 4096)
    load = f"import mmap, os; m = mmap.mmap(os.open({str(library)!r}, os.O_RDONLY), 0, prot=mmap.PROT_READ)"

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            await lab.run(kernel, load)
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).restart_needed, "the reason")
            view = lab.view(kernel)
            assert (view.pinned, view.devices) == (False, ())
            assert "CUDA is loaded" in view.restart_needed
            answer = await lab.pin(kernel)
            assert (answer.state, answer.devices) == ("restart-needed", held.devices)
            assert await lab.sees(kernel) == NOTHING
            assert (await lab.pin(kernel, restart=True)).state == "pinned"
            assert await lab.sees(kernel) == ",".join(held.devices)
            assert lab.view(kernel).restart_needed is None

    play(story)


def test_a_kernel_of_another_language_is_pinned_by_a_restart(broker, tmp_path):
    """There is no way to tell it while it runs."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, kernel = await lab.start("shell")
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).restart_needed, "the reason")
            await lab.server.app.kernel_manager.get_kernel(kernel).restart_kernel()
            assert lab.started_with(kernel)[pins.VISIBLE] == ",".join(held.devices)
            assert lab.view(kernel).pinned
            await lab.shut_down(session)
            assert (await lab.ended(held.id)).end == "released"

    play(story)


def test_an_open_page_is_told_of_the_servers_gpus_as_soon_as_a_notebook_shows_them(broker, tmp_path, monkeypatch):
    """A server that was started with GPUs: no page has to be loaded anew, also after a rename and a new kernel."""
    for name, value in pins.under(8, ["GPU-of-server"]).items():
        monkeypatch.setenv(name, value)

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            page = await lab.server.listen()
            assert await page.kernels() == ()

            session, kernel_id = await lab.start()
            shown = await told_of(page, kernel_id)
            assert (shown.pinned, shown.devices, shown.notebook) == (True, ("GPU-of-server",), "one.ipynb")

            await lab.client.patch(f"api/sessions/{session}", json={"path": "two.ipynb"})
            await page.until(lambda it: any(one.notebook == "two.ipynb" for one in getattr(it, "kernels", ())))

            other = await lab.change(session, "python-other")
            assert (await told_of(page, other)).devices == ("GPU-of-server",)

    play(story)


async def told_of(page: Any, kernel_id: str) -> KernelView:
    """What a page hears of a kernel when it first hears of it."""
    frame = await page.until(lambda it: any(one.kernel_id == kernel_id for one in getattr(it, "kernels", ())))
    return next(one for one in frame.kernels if one.kernel_id == kernel_id)
