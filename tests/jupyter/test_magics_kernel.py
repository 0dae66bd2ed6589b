"""%gpu in a real kernel, beside a real broker with simulated GPUs."""

import pytest

from jupyter_gpu.model import State
from tests.jupyter.notebook_ground import a_lab, a_notebook

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def lab():
    """Give a broker with two GPUs."""
    with a_lab(devices=2) as made:
        yield made


@pytest.fixture
def notebook(lab):
    """Give a kernel of its own to each test."""
    broker, folder = lab
    with a_notebook(broker, folder) as made:
        yield made


def shown_devices(notebook):
    """Give what the kernel's own processes would see."""
    return notebook.run("import os; print(os.environ.get('CUDA_VISIBLE_DEVICES', 'unset'))").stdout.strip()


def test_reserve_pins_at_once_and_release_unpins(lab, notebook):
    """A grant pins a kernel in which CUDA is not loaded: exactly the leased UUIDs, and a child sees them too."""
    broker, _ = lab
    before = shown_devices(notebook)

    cell = notebook.run("%gpu reserve 1 --for 2h --name exploring")

    mine = next(it for it in broker.client.status().workloads if it.is_mine)
    assert cell.error is None
    assert "This kernel is pinned" in cell.text
    assert (mine.name, mine.holder.kind, mine.state) == ("exploring", "kernel", State.ACTIVE)
    assert mine.holder.name in notebook.manager.connection_file
    assert shown_devices(notebook) == mine.devices[0]
    child = "import subprocess as s; print(s.check_output(['sh', '-c', 'echo $CUDA_VISIBLE_DEVICES'], text=True))"
    assert notebook.run(child).stdout.strip() == mine.devices[0]
    here = notebook.run("%gpu").text
    assert f"(reservation {mine.id}) and is pinned to it." in here
    assert "Your work" in here

    again = notebook.run("%gpu reserve 1")
    assert "a kernel has one at a time" in again.error["evalue"]

    assert "is kept: its idle time begins anew" in notebook.run("%gpu keep").text
    released = notebook.run("%gpu release")
    assert "This kernel is unpinned." in released.text
    assert shown_devices(notebook) == before
    assert broker.client.wait(mine.id, timeout_seconds=30).end == "released"
    assert notebook.run("print('alive')").stdout == "alive\n"


def test_a_wait_says_why_in_one_place_and_an_interrupt_leaves_the_line(lab, notebook):
    """The waiting line changes in place; Interrupt gives the place up, and the cells below do not run."""
    broker, folder = lab
    with a_notebook(broker, folder) as other:
        assert other.run("%gpu reserve 2 --for 1h").error is None
        sent = notebook.send("%gpu reserve 1 --for 1h")
        waiting = notebook.collect(sent, until=lambda cell: "No GPU is free" in cell.text)
        mine = max(it.id for it in broker.client.status().workloads if it.is_mine)

        notebook.manager.interrupt_kernel()
        cell = notebook.collect(sent)

        assert "first in queue interactive" in waiting.text
        assert cell.reply["status"] == "error"
        assert cell.error["ename"] == "KeyboardInterrupt"
        assert len(cell.error["traceback"]) == 1
        assert f"Reservation {mine} has left the line." in cell.text
        assert broker.client.workload(mine).end == "cancelled"


def test_a_wait_ends_with_the_grant(lab, notebook):
    """Who waits is pinned in the moment of the grant, and the waiting line is gone from the page."""
    broker, folder = lab
    with a_notebook(broker, folder) as other:
        assert other.run("%gpu reserve 2 --for 1h").error is None
        sent = notebook.send("%gpu reserve 1 --for 1h")
        notebook.collect(sent, until=lambda cell: "No GPU is free" in cell.text)
        assert other.run("%gpu release").error is None

        cell = notebook.collect(sent)

        assert "This kernel is pinned" in cell.text
        assert "No GPU is free" not in cell.text
        assert shown_devices(notebook).count("GPU-") == 1
        notebook.run("%gpu release")


def test_not_to_wait_and_to_pin_later(lab, notebook):
    """--no-wait gives the cell back; the grant comes to the kernel, and %gpu pin takes it up."""
    broker, folder = lab
    with a_notebook(broker, folder) as other:
        other.run("%gpu reserve 2 --for 1h")
        cell = notebook.run("%gpu reserve --no-wait")
        mine = max(it.id for it in broker.client.status().workloads if it.is_mine)
        early = notebook.run("%gpu pin")
        other.run("%gpu release")
        broker.client.wait(mine, "active", 30)

        told = notebook.run("%gpu")
        pinned = notebook.run("%gpu pin")

    assert cell.reply["status"] == "ok"
    assert "is not granted yet" in early.error["evalue"]
    assert "is not pinned: `%gpu pin`" in told.text
    assert "This kernel is pinned" in pinned.text


def test_a_kernel_with_cuda_says_what_a_restart_does(notebook):
    """Where the driver's library is loaded nothing is shown as done (pytorch/pytorch#80876), and nothing is lost."""
    notebook.run(
        "import mmap, pathlib\n"
        "path = pathlib.Path('libcuda.so.1'); path.write_bytes(b'0' * 4096)\n"
        "file = open(path, 'rb'); mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)"
    )
    before = shown_devices(notebook)

    cell = notebook.run("%gpu reserve --for 1h")
    refused = notebook.run("%gpu release")
    forced = notebook.run("%gpu release --force")

    assert "CUDA is loaded" in cell.text
    assert "is pinned" not in cell.text
    assert shown_devices(notebook) == before
    assert "CUDA is loaded" in refused.error["evalue"]
    assert "is given back" in forced.text
    assert "restart the kernel now" in forced.text


def test_a_cell_becomes_a_job_and_the_job_is_in_underscore(notebook):
    """The cell runs with this kernel's Python, in this folder, byte for byte; `_` waits, reads and cancels."""
    text = (
        "import os, sys\nx = {'é': \"“it's”\"}\nprint(sys.executable, os.getcwd(), x, sys.argv[1:])\n"
        "if __name__ == '__main__':\n    import multiprocessing as m\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.map(abs, [-3]))\n"
    )
    expected = notebook.run("import os, sys; print(sys.executable, os.getcwd())").stdout.strip()

    cell = notebook.run(f"%%gpu submit --gpus 0 --name cell -- --lr 0.1\n{text}")
    ended = notebook.run("job = _; print(job.wait(60).end)", seconds=90)
    log = notebook.run("print(job.log())").stdout
    again = notebook.run("job")

    assert cell.result.startswith("<Job ")
    assert ended.stdout == "succeeded\n"
    assert f"{expected} {{'é': \"“it's”\"}} ['--lr', '0.1']" in log
    assert "[3]" in log
    assert "succeeded" in again.result


def test_a_followed_job_is_read_live_and_outlives_an_interrupt(lab, notebook):
    """--follow shows the log as it comes; Interrupt ends the looking only."""
    broker, _ = lab
    sent = notebook.send(
        "%%gpu submit --follow --gpus 0\nimport time, pathlib\nprint('begun'); print('50%', end='\\r', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.05)\nprint('done')"
    )
    notebook.collect(sent, until=lambda cell: "begun\n" in cell.stdout and "50%" in cell.stdout)

    notebook.manager.interrupt_kernel()
    cell = notebook.collect(sent)
    job = notebook.run("import pathlib; pathlib.Path('go').touch()") and max(
        it.id for it in broker.client.workloads(mine=True)
    )

    assert cell.error["ename"] == "KeyboardInterrupt"
    assert f"Job {job} goes on" in cell.text
    assert broker.client.wait(job, timeout_seconds=60).end == "succeeded"
    notebook.run("pathlib.Path('go').unlink()")


def test_a_failed_job_stops_run_all_when_it_was_waited_for(notebook):
    """--wait ends as the job ends, so that cells that need its result do not run."""
    cell = notebook.run("%%gpu submit --wait --gpus 0\nraise SystemExit(3)")

    assert "failed (exit code 3)" in cell.text
    assert cell.reply["status"] == "error"
    assert len(cell.error["traceback"]) == 1


def test_it_works_in_a_cell_that_awaits(notebook):
    """A cell with await runs inside the kernel's own loop; the magics neither need nor disturb it."""
    cell = notebook.run("import asyncio\nawait asyncio.sleep(0)\n%gpu status\nawait asyncio.sleep(0)\nprint('after')")

    assert "2 GPUs" in cell.text
    assert cell.stdout == "after\n"


def test_nothing_touches_cuda_and_a_fork_is_fine(notebook):
    """After every kind of magic and widget neither CUDA nor NVML is loaded, and forking works."""
    notebook.run("%gpu\n%gpu reserve --for 1h\nimport jupyter_gpu\nw = jupyter_gpu.GpuMonitor(); w")
    cell = notebook.run(
        "import os, sys, multiprocessing as m\n"
        "maps = open('/proc/self/maps').read()\n"
        "print('libcuda' in maps, 'libnvidia' in maps, 'torch' in sys.modules, 'pynvml' in sys.modules)\n"
        "with m.get_context('fork').Pool(1) as pool: print(pool.map(abs, [-3]))"
    )
    notebook.run("w.close()\n%gpu release")

    assert cell.stdout == "False False False False\n[3]\n"


def test_the_tab_key_knows_verbs_options_queues_and_numbers(lab, notebook):
    """What a broker knows is asked of one that runs already."""
    broker, _ = lab
    notebook.run("%gpu submit --gpus 0 --paused -- sleep 60")
    job = max(it.id for it in broker.client.status().workloads)

    assert notebook.complete("%gpu re") == ["reserve", "recurring", "report", "release"]
    assert notebook.complete("x = 1\n%gpu submit --que") == ["--queue"]
    assert notebook.complete("%%gpu submit --queue d") == ["deferred"]
    assert str(job) in notebook.complete("%gpu cancel ")
    notebook.run(f"%gpu cancel {job}")


def test_the_tab_key_starts_no_broker(tmp_runtime, tmp_path, lab):
    """Where none runs nothing is offered and nothing begins."""
    broker, _ = lab
    aside = {"JUPYTER_GPU_RUNTIME_DIR": str(tmp_runtime.runtime_dir), "JUPYTER_GPU_STATE_DIR": str(tmp_path)}
    with a_notebook(broker, tmp_path, **aside) as notebook:
        notebook.complete("%gpu submit --queue ")

    assert list(tmp_runtime.runtime_dir.iterdir()) == []


def test_a_block_of_plain_python_holds_and_pins(lab, notebook):
    """`with jupyter_gpu.reserve()` in a cell: pinned inside the block; given back and unpinned after it."""
    broker, _ = lab
    before = shown_devices(notebook)

    cell = notebook.run(
        "import jupyter_gpu, os\nwith jupyter_gpu.reserve(devices=1, minutes=30) as held:\n"
        "    print(os.environ['CUDA_VISIBLE_DEVICES'] == held.devices[0], held.id)\n"
    )

    pinned, number = cell.stdout.split()
    assert pinned == "True"
    assert broker.client.wait(int(number), timeout_seconds=30).end == "released"
    assert shown_devices(notebook) == before
    assert notebook.run("print('alive')").stdout == "alive\n"
