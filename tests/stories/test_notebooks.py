"""Notebooks that people leave alone: submitted with parameters, killed, preempted, and done in the morning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from jupyter_gpu.client import Client
from jupyter_gpu.model import Ask, Kind, SubmitBody, WorkloadView, unpack_bytes
from jupyter_gpu.spawn import start_broker
from tests.notebooks.ground import a_cell, write_notebook

from .preempt_and_resume import EVENTS, POLICY, named
from .scene import Broker, a_broker, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]

#: Its first attempt waits to be killed; the next one goes on.
IS_KILLED_ONCE = """
import os, time
print("attempt", os.environ["JUPYTER_GPU_ATTEMPT"], flush=True)
if os.environ["JUPYTER_GPU_ATTEMPT"] == "1":
    open("pid", "w").write(str(os.getpid()))
    time.sleep(10**6)
"""
#: It saves when it is told to leave, and goes on from there.
TRAINS = """
import os, time
from jupyter_gpu import training
found = training.latest()
for step in range(training.step_of(found) + 1, 41):
    time.sleep(0.05)
    with open("ran", "a") as file: print(os.environ["JUPYTER_GPU_ATTEMPT"], step, file=file)
    if training.should_stop():
        with training.checkpoint(step) as folder: (folder / "state").write_text(str(step))
        training.yield_now()
"""


def submit(broker: Broker, folder: Path, *words: str) -> tuple[WorkloadView, str]:
    """The job that `jupyter gpu submit` makes of a notebook, and what was told beside it."""
    argv = [sys.executable, "-m", "jupyter_gpu.cli", "submit", "--no-record", *words]
    done = subprocess.run(
        argv, cwd=folder, env=broker.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    newest = max(it.id for it in broker.client.workloads(mine=True))
    return broker.client.workload(newest), done.stderr


def results_of(it: WorkloadView, folder: Path) -> nbformat.NotebookNode:
    """The notebook with its results."""
    assert it.spec is not None
    return nbformat.read(folder / os.fsdecode(unpack_bytes(it.spec.recorded["output_notebook"])), as_version=4)


def printed(results: nbformat.NotebookNode) -> list[str]:
    """What its cells of code have printed; of who leaves by sys.exit IPython remarks upon it beside that."""
    cells = [cell for cell in results.cells if cell.cell_type == "code"]
    return ["".join(out.text for out in cell.outputs if out.get("name") == "stdout") for cell in cells]


def test_a_killed_kernel_costs_an_attempt_and_no_result(tmp_path: Path) -> None:
    """Submitted with parameters, the kernel killed, tried again by itself as was asked, and the results are there."""
    folder = tmp_path / "my “work” é"
    folder.mkdir()
    cells = [a_cell("lr = 1\nname = None", "parameters"), "print(repr(lr), repr(name))", IS_KILLED_ONCE, "print('end')"]
    write_notebook(folder / 'Untitled "x" 😀.ipynb', *cells)
    (folder / "more.yaml").write_text("name: 'é “q”'\nlrr: [1, null]\n", encoding="utf-8")
    with a_broker(tmp_path / "b", devices=1, policy={}) as broker:
        client = broker.client
        words = ("--gpus", "1", "--retries", "2", "--params", "more.yaml", "-p", "lr=0.1", 'Untitled "x" 😀.ipynb')
        it, told = submit(broker, folder, *words)
        until((folder / "pid").exists, "the third cell runs")
        until(lambda: printed(results_of(it, folder))[:4] == ["", "", "0.1 'é “q”'\n", ""], "it is saved")

        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
        ended = client.wait(it.id, until="ended", timeout_seconds=120)

        first, second = client.attempts(it.id)
        curve = client.progress(it.id, 2).items
        log = client.log(it.id, attempt=1).decode()

    assert "uses lrr" in told
    assert (ended.end, ended.attempt) == ("succeeded", 2)
    assert first.outcome is not None
    assert second.outcome is not None
    assert first.outcome.exit_code == 128 + signal.SIGKILL
    assert "The kernel died (signal 9) in cell 4 of 5" in first.outcome.detail
    assert "[cell 4 of 5]" in log
    assert printed(results_of(it, folder)) == ["", "", "0.1 'é “q”'\n", "attempt 2\n", "end\n"]
    assert (curve[-1].step, curve[-1].of) == (5, 5)


def test_a_notebook_makes_room_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """It begins anew, and its training does not: each step once, and the results are those of the whole."""
    folder = tmp_path / "work"
    folder.mkdir()
    write_notebook(folder / "train.ipynb", "print('begun')", TRAINS, "print('end')")
    with a_broker(tmp_path / "b", devices=1, policy=POLICY) as broker:
        client = broker.client
        it, _ = submit(broker, folder, "--gpus", "1", "train.ipynb")
        until(lambda: (folder / "ran").exists() and len((folder / "ran").read_text().splitlines()) > 3, "it trains")

        ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, duration_seconds=300), holder=this_process())
        person = client.submit(ask)
        client.wait(person.id, until="active", timeout_seconds=60)
        partial = printed(results_of(it, folder))
        client.release(person.id)
        ended = client.wait(it.id, until="ended", timeout_seconds=120)

        events = [named(event) for event in client.events(it.id)]
        log = client.log(it.id, attempt=1).decode()

    assert events == EVENTS
    assert (ended.end, ended.attempt) == ("succeeded", 2)
    assert partial == ["begun\n", "", ""]
    assert "Told to yield in cell 2 of 3" in log
    ran = [line.split() for line in (folder / "ran").read_text().splitlines()]
    assert [int(step) for _, step in ran] == list(range(1, 41))
    assert {attempt for attempt, _ in ran} == {"1", "2"}
    assert printed(results_of(it, folder)) == ["begun\n", "", "end\n"]


def test_nothing_that_it_prints_is_lost_while_nobody_looks(tmp_path: Path) -> None:
    """jupyterlab/jupyterlab#2833, #4237, #6545, jupyter/jupyter#83: the laptop is closed in the middle of a cell."""
    folder = tmp_path / "work"
    folder.mkdir()
    cell = "import os, time\nfor n in range(400):\n    print('line', n, flush=True); time.sleep(0.005)\n"
    waits = "    while n == 200 and not os.path.exists('reopened'): time.sleep(0.01)\n"
    write_notebook(folder / "train.ipynb", "print('begun')", cell + waits)
    with a_broker(tmp_path / "b", devices=1, policy={}) as broker:
        it, _ = submit(broker, folder, "--gpus", "0", "train.ipynb")
        seen = b""
        with Client(environ=broker.environment) as page:
            for part in page.follow_log(it.id):
                seen += part
                if b"line 20\n" in seen:
                    break
        until(lambda: b"line 200\n" in broker.client.log(it.id), "it printed more while nobody looked")
        (folder / "reopened").touch()
        with Client(environ=broker.environment) as page:
            seen += b"".join(page.follow_log(it.id, offset=len(seen)))
        whole = broker.client.log(it.id)
        broker.client.wait(it.id, until="ended", timeout_seconds=60)

    lines = "".join(f"line {n}\n" for n in range(400))
    assert seen == whole
    assert lines in whole.decode()
    assert printed(results_of(it, folder)) == ["begun\n", lines]


def test_a_broker_that_is_killed_costs_a_notebook_nothing(tmp_path: Path) -> None:
    """Each cell runs once, and the next broker knows how it ended and how far it came."""
    folder = tmp_path / "work"
    folder.mkdir()
    waits = "import os, time\nopen('ran', 'a').write('x')\nwhile not os.path.exists('go'): time.sleep(0.01)"
    write_notebook(folder / "train.ipynb", "print('begun')", waits, "print('end')")
    with a_broker(tmp_path / "b", devices=1, policy={}) as broker:
        it, _ = submit(broker, folder, "--gpus", "1", "train.ipynb")
        until((folder / "ran").exists, "the second cell runs")

        os.kill(broker.pid, signal.SIGKILL)
        (folder / "go").touch()
        until(lambda: printed(results_of(it, folder))[2] == "end\n", "it ends while there is no broker")
        start_broker([], environ=broker.environment)
        with Client(environ=broker.environment) as client:
            ended = client.wait(it.id, until="ended", timeout_seconds=60)
            progress = client.progress(it.id).items[-1]

    assert (ended.end, ended.attempt) == ("succeeded", 1)
    assert (progress.step, progress.of) == (3, 3)
    assert (folder / "ran").read_text() == "x"
    assert printed(results_of(it, folder)) == ["begun\n", "", "end\n"]
