"""The faces in JupyterLab, as a person meets them: a real server, a real kernel, a real browser."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import nbformat
import pytest

from jupyter_gpu.broker.engines import procs
from jupyter_gpu.model import Ask, Holder, JobSpec, Kind, State, SubmitBody, WorkloadView

from .lab import CHROMIUM, NO_CHROMIUM, Lab, a_browser, a_lab_server
from .scene import Broker, a_broker, this_process, until

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
]

SEEN = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
#: A process with the driver's library, as far as anybody can tell from outside: what a framework does at first use.
LOAD_CUDA = """
import ctypes, pathlib, shutil
stand_in = pathlib.Path("libcuda.so.1")
shutil.copyfile(next(line.split()[-1] for line in open("/proc/self/maps") if "libc.so" in line), stand_in)
loaded = ctypes.CDLL(str(stand_in.absolute()))
"""
POLICY: dict[str, object] = {
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {"name": "training", "priority": 50, "kinds": ["job"], "preemptible": True},
    ],
    "reservation_grace_seconds": 5,
    "kill_after_seconds": 5,
}


class House:
    """A broker, a JupyterLab and a browser for one test."""

    def __init__(self, root: Path, stack: ExitStack, *words: str, devices: int = 2, **policy: object) -> None:
        self._stack = stack
        self.broker: Broker = stack.enter_context(a_broker(root / "b", devices=devices, policy=POLICY | policy))
        notebook = root / "a.ipynb"
        about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(metadata=about), notebook)
        self.server = stack.enter_context(
            a_lab_server(self.broker, root, notebooks={"a.ipynb": notebook}, arguments=words)
        )

    def open(self) -> Lab:
        """Open the notebook in a browser, with the panel beside it."""
        lab: Lab = self._stack.enter_context(a_browser(self.server, self.broker.client, notebook="a.ipynb"))
        lab.wait_for_kernel()
        lab.command("gpu:open-panel")
        lab.part("device").first.wait_for()
        return lab

    def fill(self, seconds: int = 600) -> list[WorkloadView]:
        """Have somebody else hold every GPU."""
        client = self.broker.client
        ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=seconds), holder=this_process())
        held = [client.submit(ask) for _ in client.devices().items]
        return [client.wait(it.id, until="active", timeout_seconds=30) for it in held]

    def of_kernel(self, kernel: str) -> WorkloadView | None:
        """The reservation that a kernel holds or waits for."""
        mine = self.broker.client.workloads(mine=True)
        return next((it for it in mine if isinstance(it.holder, Holder) and it.holder.name == kernel), None)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What a test opens is closed, the last first."""
    with ExitStack() as stack:
        yield stack


def seen(lab: Lab) -> str:
    """Which GPUs the notebook's kernel sees."""
    return lab.execute(SEEN).strip()


def test_a_notebook_reserves_keeps_moves_and_gives_back(tmp_path: Path, stack: ExitStack) -> None:
    """Nothing is seen without a reservation; then exactly the leased GPU, over restart and change of kernel."""
    house = House(tmp_path, stack)
    lab = house.open()
    kernel = lab.wait_for_kernel()
    assert not seen(lab).startswith("GPU-")

    lab.part("toolbar").click()
    lab.page.get_by_role("menuitem", name="Reserve 1 GPU for 1 h").click()
    lab.page.locator('[data-gpu="toolbar"][data-standing="pinned"]').wait_for()
    it = house.of_kernel(kernel)
    assert it is not None
    # The toolbar says so once it is granted, and the kernel is told a moment later.
    until(lambda: seen(lab) == ",".join(it.devices), "the kernel is pinned")

    lab.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    assert lab.wait_for_kernel() == kernel
    assert seen(lab) == ",".join(it.devices)

    lab.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.changeKernel({name: 'python3'})")
    until(lambda: (now := house.of_kernel(lab.wait_for_kernel())) and now.id == it.id, "the lease has moved")
    assert lab.wait_for_kernel() != kernel
    until(lambda: seen(lab) == ",".join(it.devices), "the new kernel is pinned")

    lab.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    assert house.broker.client.wait(it.id, timeout_seconds=60).end == "released"
    assert lab.faults == []


def test_a_notebook_waits_in_line_and_is_offered_the_restart(tmp_path: Path, stack: ExitStack) -> None:
    """Place and reason while it waits; where CUDA is loaded nothing is shown as done before the restart."""
    house = House(tmp_path, stack, devices=1)
    (held,) = house.fill()
    lab = house.open()
    kernel = lab.wait_for_kernel()
    lab.execute(LOAD_CUDA)

    lab.type(lab.part("reserve-hours"), "1")
    lab.part("reserve-submit").click()
    lab.page.locator('[data-gpu="toolbar"][data-standing="waiting"]').wait_for()
    row = lab.page.locator(f'[data-gpu="workload"][data-id="{held.id + 1}"]')
    assert "No GPU is free" in row.inner_text()
    assert lab.execute("print(1)").strip() == "1", "a kernel that waits goes on working"

    house.broker.client.release(held.id)
    lab.page.locator('[data-gpu="toolbar"][data-standing="restart"]').wait_for()
    assert not seen(lab).startswith("GPU-")
    it = house.of_kernel(kernel)
    assert it is not None
    assert it.state is State.ACTIVE

    lab.page.get_by_role("button", name="Restart now").click()
    lab.page.locator('[data-gpu="toolbar"][data-standing="pinned"]').wait_for()
    assert seen(lab) == ",".join(it.devices)

    lab.command("gpu:release", kernel=kernel, sure=True)
    assert house.broker.client.wait(it.id, timeout_seconds=60).end == "released"
    lab.wait_for_kernel()
    until(lambda: not seen(lab).startswith("GPU-"), "the kernel goes on without it")
    assert lab.faults == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # httpcore forgets a socket whose connect is refused
def test_all_faces_show_the_same_and_live(tmp_path: Path, stack: ExitStack) -> None:
    """The figure follows the device without a reload, in every tab, through the end of the broker and back."""
    house = House(tmp_path, stack, "--GpuExtension.start_broker=False")
    lab = house.open()
    first = lab.page.locator('[data-gpu="device"]').first
    memory = first.locator('[data-gpu="device-memory"]')
    before = memory.inner_text()
    assert "2" in lab.part("statusbar").inner_text()

    argv = (sys.executable, "-c", "import time; held = bytearray(700 << 20); time.sleep(600)")
    spec = JobSpec(argv=argv, folder=str(tmp_path), environment={"PATH": "/usr/bin:/bin"})
    job = house.broker.client.submit(SubmitBody(kind=Kind.JOB, name="sleeper", spec=spec))
    job = house.broker.client.wait(job.id, until="active", timeout_seconds=30)
    used = lab.page.locator(f'[data-gpu="device"][data-uuid="{job.devices[0]}"] [data-gpu="device-memory"]')
    lab.page.wait_for_function("([it, before]) => it.textContent !== before", arg=[used.element_handle(), before])
    row = lab.page.locator(f'[data-gpu="workload"][data-id="{job.id}"]')
    assert "sleeper" in row.inner_text()

    second = lab.page.context.new_page()
    second.goto(f"{house.server.url}lab/workspaces/second")
    second.wait_for_function("() => window.jupyterapp?.restored")
    second.evaluate("() => void jupyterapp.commands.execute('gpu:open-panel')")
    second.locator(f'[data-gpu="workload"][data-id="{job.id}"]').wait_for()

    status = house.broker.client.status()
    assert "sleeper" in house.broker.cli("status")
    assert "sleeper" in lab.execute("%gpu queue")
    assert lab.part("device").count() == len(status.devices)

    pid = house.broker.pid
    house.broker.client.stop_broker()
    lab.part("trouble").wait_for()
    until(lambda: (it := procs.find(pid)) is None or it.zombie, "the broker has gone, and answers nobody any more")
    assert house.broker.client.status().workloads, "what runs goes on, and the next broker takes it up"
    lab.part("trouble").wait_for(state="detached")
    row.wait_for()
    second.locator('[data-gpu="trouble"]').wait_for(state="detached")
    house.broker.client.cancel(job.id)
    for page in (lab.page, second):
        state = page.locator(f'[data-gpu="workload"][data-id="{job.id}"] [data-gpu="workload-state"]')
        state.get_by_text("cancelled").wait_for()


def test_a_script_goes_to_the_queue_and_its_log_is_followed(tmp_path: Path, stack: ExitStack) -> None:
    """From the file browser, with a name that shells and addresses trip over; the log is live; cancel ends it."""
    house = House(tmp_path, stack)
    name = "a b#50%.py"
    (house.server.root / name).write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    lab = house.open()
    lab.command("gpu:submit-file", path=name)
    lab.page.get_by_role("button", name="Send to queue").click()
    row = lab.part("workload").first
    row.wait_for()
    job = int(row.get_attribute("data-id") or 0)

    lab.command("gpu:show-log", workload=job)
    lab.part("log").get_by_text("begun").wait_for()
    lab.command("gpu:cancel", workload=job, sure=True)
    assert house.broker.client.wait(job, timeout_seconds=60).end == "cancelled"
    assert lab.faults == []


def test_when_the_time_is_over_the_kernel_goes_on_without(tmp_path: Path, stack: ExitStack) -> None:
    """Nobody waits: it keeps the GPU. Somebody does: notice, grace, and a restart without it; nothing is killed."""
    house = House(tmp_path, stack, devices=1)
    lab = house.open()
    kernel = lab.wait_for_kernel()
    lab.execute("%gpu reserve 1 --for 5s")
    it = house.of_kernel(kernel)
    assert it is not None
    ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=60), holder=this_process())
    other = house.broker.client.submit(ask)
    other = house.broker.client.wait(other.id, until="active", timeout_seconds=90)
    assert other.devices == it.devices
    assert lab.wait_for_kernel() == kernel
    until(lambda: not seen(lab).startswith("GPU-"), "the kernel goes on without it")
    assert house.broker.client.workload(it.id).state is State.ENDED


def test_an_idle_reservation_is_kept_by_a_click(tmp_path: Path, stack: ExitStack) -> None:
    """The warning has a button; with it the warning is gone, and its time without use begins anew."""
    house = House(tmp_path, stack, idle_warn_seconds=5, idle_release_seconds=3600)
    lab = house.open()
    lab.command("gpu:reserve", devices=1, duration_seconds=3600)
    warning = lab.page.locator('[data-gpu="alert"][data-key^="idle:"]')
    warning.wait_for()
    key = warning.get_attribute("data-key")
    (first,) = house.broker.client.status().alerts
    assert first.key == key

    warning.get_by_role("button", name=re.compile("^Keep")).click()

    lab.page.locator(f'[data-key="{key}"]').wait_for(state="detached")
    until(lambda: house.broker.client.status().alerts, "idle again, it is told again")
    (again,) = house.broker.client.status().alerts
    assert again.since >= first.since + 5
    assert again.workload == first.workload
    lab.page.locator(f'[data-key="{again.key}"]').wait_for()
    assert lab.faults == []


@pytest.mark.parametrize("prefix", ["/j", "/a/b/user/ana@uni.example/"])
def test_the_panel_works_below_any_prefix(tmp_path: Path, stack: ExitStack, prefix: str) -> None:
    """As behind a hub or a proxy (jupyterhub/jupyterhub-deploy-docker#76): panel, stream, reserving, log."""
    house = House(tmp_path, stack, f"--ServerApp.base_url={prefix}")
    lab = house.open()
    kernel = lab.wait_for_kernel()
    lab.command("gpu:reserve", devices=1, duration_seconds=3600)
    lab.page.locator('[data-gpu="toolbar"][data-standing="pinned"]').wait_for()
    assert house.of_kernel(kernel) is not None
    # From now on by the cookie alone, as a page that was reloaded without its token.
    lab.page.goto(f"{house.server.url}lab/tree/a.ipynb")
    lab.page.wait_for_function("() => window.jupyterapp?.restored")
    lab.wait_for_kernel()
    lab.page.locator('[data-gpu="toolbar"][data-standing="pinned"]').wait_for()
    assert lab.faults == []
