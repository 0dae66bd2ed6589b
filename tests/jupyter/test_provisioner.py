"""What a kernel sees, wherever it is started: pins in their order, runners of notebooks, and what a start may cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_gpu import pins
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.jupyter import keeper, provisioner
from jupyter_gpu.jupyter.keeper import Keeper, Kept
from jupyter_gpu.jupyter.waiting import wait_for_devices
from jupyter_gpu.model import Ask, Kind, State
from jupyter_gpu.spawn import run

from .kernels_ground import (
    NOTHING,
    QUICK,
    SPEAKS_NOTHING,
    broker,
    environment_of,
    hold,
    is_alive,
    kernelspec,
    play,
    until,
)

__all__ = ["broker"]
pytestmark = pytest.mark.timeout(120)
LOOK = "import os; print([os.environ.get(n) for n in ('CUDA_VISIBLE_DEVICES', 'JUPYTER_GPU_KERNEL')])"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with kernels: two of Python, and one of another language."""
    python = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernelspec(tmp_path, "python3", python, "python")
    kernelspec(tmp_path, "greedy", python, "python", env={pins.VISIBLE: "0,1,2,3"})
    kernelspec(tmp_path, "shell", ["bash", "-c", SPEAKS_NOTHING], "bash")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv(provisioner.PROVISIONER, "jupyter-gpu")
    KernelProvisionerFactory.clear_instance()
    yield tmp_path
    KernelProvisionerFactory.clear_instance()


async def environment_of_a_kernel(name="shell", **words):
    """Start one, and look at what it was started with."""
    manager = AsyncKernelManager(kernel_name=name)
    await manager.start_kernel(**words)
    try:
        return environment_of(manager.provisioner.pid)
    finally:
        await manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)


def pin_of(environment):
    """The pin in an environment."""
    return {name: environment[name] for name in pins.NAMES if name in environment}


ATTEMPT = {pins.ATTEMPT: "1", "JUPYTER_GPU_JOB": "7", pins.VISIBLE: "GPU-of-job", pins.ORDER: "PCI_BUS_ID"}
SERVER = {pins.RESERVATION: "8", pins.VISIBLE: "GPU-of-server", pins.CONTAINERS: "GPU-of-server"}


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, pins.variables(())),
        ({pins.VISIBLE: "0"}, pins.variables(())),
        (ATTEMPT, {pins.VISIBLE: "GPU-of-job", pins.ORDER: "PCI_BUS_ID"}),
        (SERVER, {pins.VISIBLE: "GPU-of-server", pins.CONTAINERS: "GPU-of-server"}),
        (SERVER | ATTEMPT, {**pin_of(SERVER), **pin_of(ATTEMPT)}),
        ({pins.ATTEMPT: "1"}, pins.variables(())),
    ],
)
@pytest.mark.parametrize("name", ["shell", "greedy"])
def test_pins_in_their_order_and_over_what_the_kernelspec_says(place, monkeypatch, given, seen, name):
    """The attempt, the server's lease, nothing; a kernel's own comes between (test_kernels.py)."""
    for word, value in given.items():
        monkeypatch.setenv(word, value)

    environment = asyncio.run(environment_of_a_kernel(name, env=dict(os.environ) | {pins.VISIBLE: "9"}))

    assert pin_of(environment) == seen


def test_an_admin_may_let_kernels_see_what_is_there(place):
    """`GpuProvisioner.hide_gpus`, in a kernelspec or the configuration."""
    spec = json.loads((place / "kernels/shell/kernel.json").read_text())
    metadata = {"kernel_provisioner": {"provisioner_name": "jupyter-gpu", "config": {"hide_gpus": False}}}
    (place / "kernels/shell/kernel.json").write_text(json.dumps(spec | {"metadata": metadata}))

    environment = asyncio.run(environment_of_a_kernel())

    assert pins.VISIBLE not in environment
    assert environment[pins.KERNEL]


@pytest.mark.parametrize(
    ("language", "cmd", "loads"),
    [
        ("python", [sys.executable, "-m", "ipykernel_launcher", "-f", "x"], True),
        ("python", [sys.executable, "-m", "ipykernel", "-f", "x"], True),
        ("Python", [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "x"], True),
        ("python", [sys.executable, "-m", "xpython", "-f", "x"], False),
        ("python", ["/usr/bin/env", "-m", "ipykernel_launcher"], False),
        ("python", ["bash", "-c", "python -m ipykernel -f x"], False),
        ("R", ["R", "--slave", "-e", "IRkernel::main()"], False),
    ],
)
def test_magics_are_loaded_where_they_can_be(language, cmd, loads):
    """IPython tells of an extension that is missing with a long traceback, so the interpreter is looked at first."""
    spec = SimpleNamespace(language=language)

    assert (provisioner._is_ipykernel(spec, cmd) and provisioner._has_package(cmd)) is loads


def test_another_environment_is_asked_by_its_files(tmp_path):
    """A virtual environment's link is not followed: it stands for the environment."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert not provisioner._has_package([str(python)])
    (tmp_path / "lib/python3.11/site-packages/jupyter_gpu-0.1.0.dist-info").mkdir(parents=True)
    assert provisioner._has_package([str(python)])


def test_magics_can_be_turned_off(place):
    """By configuration, as every trait."""

    async def story():
        for value, there in ((True, True), (False, False)):
            manager = AsyncKernelManager(kernel_name="python3")
            manager.config.GpuProvisioner.load_magics = value
            await manager.start_kernel()
            words = Path(f"/proc/{manager.provisioner.pid}/cmdline").read_text().split("\0")
            assert ("--ext=jupyter_gpu" in words) is there
            await manager.shutdown_kernel(now=True)
            manager.context.destroy(linger=0)

    play(story)


# -- the broker is no condition


@pytest.fixture
def deaf_broker(tmp_runtime):
    """Who listens at the broker's place and never says a word."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_runtime.runtime_dir / "broker.sock"))
        listening.listen(16)
        yield listening


def test_a_broker_that_does_not_answer_delays_no_kernel_for_long(place, deaf_broker, monkeypatch):
    """The kernel restarts within its deadlines, with what it was last known to hold as long as that is not over."""

    async def story():
        manager = AsyncKernelManager(kernel_name="shell")
        await manager.start_kernel()
        kept = manager.provisioner._kept
        kept.lease = a_lease(ends_at=time.time() + 60)
        began = time.monotonic()
        await manager.restart_kernel(now=True)
        assert time.monotonic() - began < 12
        assert environment_of(manager.provisioner.pid)[pins.VISIBLE] == "GPU-x"
        monkeypatch.setattr(keeper, "DEADLINE_SECONDS", 0.1)  # how long they are has been seen
        kept.lease = a_lease(ends_at=time.time() - 1)
        await manager.restart_kernel(now=True)
        assert environment_of(manager.provisioner.pid)[pins.VISIBLE] == NOTHING
        await manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)

    play(story)


def a_lease(**words):
    """A held reservation as the broker tells of it."""
    from jupyter_gpu.model import WorkloadView

    return WorkloadView(
        id=7, kind=Kind.RESERVATION, state=State.ACTIVE, owner="ada", team="everyone", queue="interactive", name="n",
        ask=Ask(), submitted_at=0.0, priority=100, devices=("GPU-x",), is_mine=True, **words,
    )  # fmt: skip


def test_no_broker_is_started_and_none_is_missed(place, tmp_runtime):
    """Kernels are started, restarted and shut down where there is none."""

    async def story():
        manager = AsyncKernelManager(kernel_name="shell")
        await manager.start_kernel()
        await manager.restart_kernel(now=True)
        assert environment_of(manager.provisioner.pid)[pins.VISIBLE] == NOTHING
        await manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)
        assert not (tmp_runtime.runtime_dir / "broker.sock").exists()

    play(story)


# -- runners of notebooks


def a_notebook(folder, *cells):
    """A notebook on the disk."""
    cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    kernel = {"name": "python3", "language": "python", "display_name": "python3"}
    path = folder / "in.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


PAPERMILL = [sys.executable, "-m", "papermill", "--no-progress-bar"]
NBCLIENT = [
    sys.executable,
    "-c",
    """import nbformat, nbclient, sys
nb = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(nb).execute()
nbformat.write(nb, sys.argv[2])""",
]
# What jupyter-scheduler's own process does with a job, the job's row in its database aside.
SCHEDULER = [
    sys.executable,
    "-c",
    """import sys
from types import SimpleNamespace
from jupyter_scheduler.executors import DefaultExecutionManager
it = DefaultExecutionManager.__new__(DefaultExecutionManager)
it.staging_paths, it.root_dir, it.job_id = {"input": sys.argv[1], "ipynb": sys.argv[2]}, "/", "j"
it._model = SimpleNamespace(parameters=None, output_formats=["ipynb"], package_input_folder=False)
it.add_side_effects_files = lambda folder: None
it.execute()""",
]


def outputs_of(path):
    """What a notebook's cells printed."""
    cells = nbformat.read(path, as_version=4).cells
    return ["".join(it.get("text", "") for it in cell.outputs).strip() for cell in cells]


@pytest.mark.parametrize("runner", [PAPERMILL, NBCLIENT, SCHEDULER], ids=["papermill", "nbclient", "scheduler"])
def test_a_runner_of_notebooks_waits_for_a_gpu_where_its_environment_says_so(broker, place, runner):
    """Bounded, in line like everybody; pinned then, and given back at its end. Without the words: nothing is seen."""
    notebook, out = a_notebook(place, LOOK), place / "out.ipynb"
    plain = run([*runner, str(notebook), str(out)], 60)
    assert plain.exit_code == 0, plain.errors
    assert NOTHING in outputs_of(out)[0]

    asks = os.environ | {"JUPYTER_GPU_KERNEL_DEVICES": "1", "JUPYTER_GPU_KERNEL_WAIT": "1m"}
    done = run([*runner, str(notebook), str(out)], 60, environ=asks)
    assert done.exit_code == 0, done.errors
    (mine,) = broker.client.workloads(mine=True, ended=True)
    assert broker.client.wait(mine.id, "ended", 20).end == "released"
    assert mine.name == "python3"
    assert "GPU-5111" in outputs_of(out)[0]


def test_a_long_wait_is_no_reason_to_lose_the_place(broker, place):
    """There is no process yet that the broker could see: who will start it says that it waits."""
    other = hold(broker, 2)
    notebook, out = a_notebook(place, LOOK), place / "out.ipynb"
    asks = os.environ | {"JUPYTER_GPU_KERNEL_DEVICES": "1", "JUPYTER_GPU_KERNEL_WAIT": "1m"}
    runner = subprocess.Popen([*PAPERMILL, str(notebook), str(out)], env=asks)

    async def story():
        await until(lambda: _waiting(broker), "it waits", 40)
        (waiting,) = _waiting(broker)
        began = time.monotonic()
        await until(lambda: time.monotonic() > began + QUICK["lapse_seconds"] + 3, "longer than the lapse")
        assert broker.client.workload(waiting.id).state is State.QUEUED
        broker.client.release(other.id)
        ended = await asyncio.to_thread(broker.client.wait, waiting.id, "ended", 60)
        assert ended.end == "released"

    try:
        play(story)
        assert runner.wait(30) == 0
    finally:
        runner.kill()
        runner.wait()
    assert "GPU-5111" in outputs_of(out)[0]


def _waiting(broker):
    return [it for it in broker.client.workloads(mine=True) if it.state is State.QUEUED]


def test_who_waits_in_vain_is_told_why_and_leaves_the_line(broker, place):
    """The runner fails with the reason, and nothing is granted to it later."""
    hold(broker, 2)
    notebook = a_notebook(place, LOOK)
    asks = os.environ | {"JUPYTER_GPU_KERNEL_DEVICES": "1", "JUPYTER_GPU_KERNEL_WAIT": "1s"}

    done = run([*PAPERMILL, str(notebook), str(place / "out.ipynb")], 60, environ=asks)

    assert done.exit_code != 0
    assert "No GPU within 1s for this notebook: No GPU is free" in done.errors
    mine = [it for it in broker.client.workloads(mine=True, ended=True) if it.name == "python3"]
    assert [it.end for it in mine] == ["cancelled"]


def test_a_number_that_is_none_is_said(monkeypatch):
    """Before anybody is asked."""
    with pytest.raises(InvalidAsk, match="JUPYTER_GPU_KERNEL_DEVICES='two' is no number"):
        asyncio.run(wait_for_devices(Keeper(), Kept("k"), {"JUPYTER_GPU_KERNEL_DEVICES": "two"}))


@pytest.mark.parametrize("killed", ["kernel", "runner"])
def test_a_killed_kernel_or_runner_gives_its_gpu_back_within_seconds(broker, place, killed):
    """The runner ends with "kernel died" and does not wait for ever (nteract/papermill#125)."""
    notebook = a_notebook(place, LOOK, "import time; time.sleep(10**6)")
    asks = os.environ | {"JUPYTER_GPU_KERNEL_DEVICES": "1"}
    began = time.monotonic()
    runner = subprocess.Popen(
        [*PAPERMILL, str(notebook), str(place / "out.ipynb")], env=asks, stderr=subprocess.PIPE, text=True
    )

    async def story():
        await until(lambda: broker.client.status().workloads, "it is granted", 40)
        (held,) = broker.client.status().workloads
        await until(lambda: broker.client.workload(held.id).holder.pid, "its kernel runs", 40)
        kernel = broker.client.workload(held.id).holder.pid
        await until(lambda: "GPU-5111" in "".join(_so_far(place / "out.ipynb")), "the first cell is done", 40)
        os.kill(kernel if killed == "kernel" else runner.pid, signal.SIGKILL)
        ended = await asyncio.to_thread(broker.client.wait, held.id, "ended", 20)
        assert ended.end == "released"
        await until(lambda: not is_alive(kernel), "the kernel has ended")

    try:
        play(story)
        _, errors = runner.communicate(timeout=20)
    finally:
        runner.kill()
        runner.wait()
    if killed == "kernel":
        assert "Kernel died" in errors
    assert time.monotonic() - began < 100


def _so_far(path):
    try:
        return outputs_of(path)
    except (OSError, ValueError, nbformat.reader.NotJSONError):
        return []


def test_a_notebook_in_a_job_sees_what_its_job_sees(broker, place):
    """The attempt's pin goes before everything, and nothing is asked for a second time."""
    notebook, out = a_notebook(place, LOOK), place / "out.ipynb"
    words = ["JUPYTER_DEFAULT_PROVISIONER_NAME", f"JUPYTER_PATH={place}", "JUPYTER_GPU_KERNEL_DEVICES=1"]
    import jupyter_gpu

    job = jupyter_gpu.submit([*PAPERMILL, str(notebook), str(out)], env=words, client=broker.client)
    ended = broker.client.wait(job.id, "ended", 60)

    assert ended.end == "succeeded", broker.client.log(job.id)
    pin = next(it for it in broker.client.events(job.id) if it.event == "granted").detail
    assert "GPU-5111" in outputs_of(out)[0], pin
    assert [it.kind for it in broker.client.workloads(mine=True, ended=True)] == [Kind.JOB]


# -- the server is killed


def test_a_killed_jupyter_server_leaks_nothing(broker, place):
    """Nobody tells the broker anything: it sees that kernel and keeper are gone; a waiting ask leaves the line."""
    (place / "work").mkdir()
    argv = [
        sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", "--ServerApp.port=0",
        "--IdentityProvider.token=t", f"--ServerApp.root_dir={place / 'work'}",
        "--ServerApp.jpserver_extensions={'jupyter_gpu':True}",
    ]  # fmt: skip
    environ = {name: value for name, value in os.environ.items() if name != provisioner.PROVISIONER}
    server = subprocess.Popen(argv, env=environ, cwd=place, stderr=subprocess.DEVNULL)

    async def story():
        import httpx

        await until(lambda: _address(place / "runtime"), "the server", 40)
        headers = {"Authorization": "token t"}
        async with httpx.AsyncClient(base_url=_address(place / "runtime"), headers=headers, timeout=30) as http:
            kernels = [(await http.post("/api/kernels", json={"name": "python3"})).json()["id"] for _ in range(2)]
            answers = [
                (await http.post(f"/jupyter-gpu/kernels/{kernel}/reservation", json={"devices": 2})).json()
                for kernel in kernels
            ]
            held, waiting = answers
            assert len(held["devices"]) == 2
            assert waiting["state"] == "queued"
            server.send_signal(signal.SIGKILL)
        ends = [await asyncio.to_thread(broker.client.wait, it["id"], "ended", 30) for it in answers]
        # The second kernel may outlive the first by a moment, in which it is its turn; then it gives back, too.
        kinds = [it.event for it in await asyncio.to_thread(lambda: list(broker.client.events(waiting["id"])))]
        assert [it.end for it in ends] == ["released", "released" if "granted" in kinds else "abandoned"]

    try:
        play(story)
    finally:
        server.kill()
        server.wait()


def _address(runtime):
    """Where the server listens; it says so once it does."""
    for file in runtime.glob("jpserver-*.json"):
        with contextlib.suppress(ValueError):  # it is just being written
            return json.loads(file.read_text())["url"]
    return None


def test_a_lease_of_the_servers_own_is_inherited_by_its_kernels(broker, place):
    """`jupyter gpu reserve -- jupyter lab`: kernels keep the pin, whose reservation it is stands beside it."""
    code = (
        "import asyncio, json, sys\n"
        "from tests.jupyter.test_provisioner import environment_of_a_kernel\n"
        "print(json.dumps(asyncio.run(environment_of_a_kernel())))"
    )
    words = ["-m", "jupyter_gpu.cli", "reserve", "--", sys.executable, "-c", code]
    root = Path(__file__).parents[2]

    done = run([sys.executable, *words], 60, cwd=str(root), environ=os.environ | {"PYTHONPATH": str(root)})

    assert done.exit_code == 0, done.errors
    environment = json.loads(done.output)
    (held,) = broker.client.workloads(mine=True, ended=True)
    assert environment[pins.RESERVATION] == str(held.id)
    assert environment[pins.VISIBLE].startswith("GPU-5111")
