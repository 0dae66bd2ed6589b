"""The widgets in a real kernel, heard as a page hears them: comm messages. The broker's GPUs are simulated."""

import json
import time
from pathlib import Path

import nbclient
import nbformat
import pytest
from nbconvert import HTMLExporter

from jupyter_gpu.spawn import start_broker
from tests.jupyter.notebook_ground import a_lab, a_notebook

pytestmark = pytest.mark.timeout(120)

THREADS = "import threading; print([t.name for t in threading.enumerate()].count('jupyter-gpu-widgets'))"
VIEW = "application/vnd.jupyter.widget-view+json"
#: A job that is on its GPU and says so.
TRAINING = """%%gpu submit --name digits --env JUPYTER_GPU_SIMULATED_BYTES=8000000000
import pathlib, time
print("step 1", flush=True)
while not pathlib.Path("stop").exists(): time.sleep(0.05)
"""


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
        made.run("import jupyter_gpu")
        yield made


def pictures(comms):
    """Give the HTML that came, in its order."""
    states = [it.get("data", {}).get("state", {}) for it in comms]
    return [state["html"] for state in states if "html" in state]


def page(notebook, model, **content):
    """Say what a page says."""
    data = {"method": "custom", "content": content}
    message = notebook.client.session.msg("comm_msg", {"comm_id": model, "data": data})
    notebook.client.shell_channel.send(message)


def model_of(cell):
    """Give the id by which a page knows the widget of a cell."""
    return next(it[VIEW]["model_id"] for it in cell.shown if VIEW in it)


def until(notebook, condition, *, seconds=20):
    """Wait until an expression holds in the kernel."""
    deadline = time.monotonic() + seconds
    while notebook.run(f"print(bool({condition}))").stdout != "True\n":
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


def count(notebook):
    """Count the threads that feed widgets."""
    return int(notebook.run(THREADS).stdout)


def test_it_updates_while_a_cell_is_busy_and_never_prints(lab, notebook):
    """Updates travel by themselves: cell 2's output is exactly `x` (jupyter-widgets/ipywidgets#2358)."""
    # A notebook that logs everything to its cells would show what our thread's libraries say.
    notebook.run("import logging; logging.basicConfig(level=logging.DEBUG, force=True)")
    shown = notebook.run("jupyter_gpu.GpuMonitor()")
    notebook.run(TRAINING)

    sent = notebook.send("import pathlib, time\nwhile not pathlib.Path('seen').exists(): time.sleep(0.02)\nprint('x')")
    busy = notebook.collect(sent, until=lambda cell: any("7.5/16GiB" in html for html in pictures(cell.comms)))
    (lab[1] / "seen").touch()
    cell = notebook.collect(sent)
    for name in ("seen", "stop"):
        notebook.run(f"import pathlib; pathlib.Path({name!r}).{'unlink' if name == 'seen' else 'touch'}()")

    assert shown.stderr == ""
    assert busy.outputs == []
    assert [(it["name"], it["text"]) for it in cell.outputs] == [("stdout", "x\n")]
    notebook.run("import pathlib, time; time.sleep(0.2); pathlib.Path('stop').unlink()")


def test_one_thread_feeds_all_and_running_again_adds_none(notebook):
    """Re-running a cell replaces: the page says that the old view is gone, and there is one thread throughout."""
    assert count(notebook) == 0
    old = None
    for _ in range(3):
        cell = notebook.run("from ipywidgets import VBox\njupyter_gpu.GpuMonitor()")
        page(notebook, model_of(cell), says="shown", view="v")
        if old is not None:
            page(notebook, old, says="gone", view="v")
        old = model_of(cell)
        notebook.run("w = jupyter_gpu.QuotaBar(); w")
        assert count(notebook) == 1

    fed = "len(__import__('jupyter_gpu.jupyter.feed', fromlist=['feed']).feed().members())"
    until(notebook, f"{fed} == 4")


def test_it_stops_with_its_display_and_begins_again(notebook):
    """A cleared output ends the feeding, a later display begins it anew, close() ends it for good."""
    cell = notebook.run("w = jupyter_gpu.GpuMonitor()\nw")
    page(notebook, model_of(cell), says="shown", view="v")
    assert count(notebook) == 1

    page(notebook, model_of(cell), says="gone", view="v")
    until(notebook, "'jupyter-gpu-widgets' not in [t.name for t in __import__('threading').enumerate()]")

    page(notebook, model_of(cell), says="shown", view="v2")
    until(notebook, "'jupyter-gpu-widgets' in [t.name for t in __import__('threading').enumerate()]")

    notebook.run("w.close()")
    until(notebook, "'jupyter-gpu-widgets' not in [t.name for t in __import__('threading').enumerate()]")


def test_a_page_that_was_closed_is_forgotten(notebook):
    """A tab that is closed says nothing; after some looks of an idle kernel its views are gone, and the thread too."""
    notebook.run("import jupyter_gpu.jupyter.widgets as g; g._LOOK_SECONDS = 0.05")

    page(notebook, model_of(notebook.run("w = jupyter_gpu.GpuMonitor(); w")), says="shown", view="v")

    until(notebook, "'jupyter-gpu-widgets' not in [t.name for t in __import__('threading').enumerate()]")


def test_a_broker_that_goes_away_is_said_and_comes_back():
    """The last picture stays, marked, and goes on by itself when the broker is there again; no widget starts one."""
    with a_lab(devices=2) as (broker, folder), a_notebook(broker, folder) as notebook:
        notebook.run("import jupyter_gpu; w = jupyter_gpu.GpuMonitor(); w")
        broker.client.stop_broker()
        until(notebook, "'no answer, trying again' in w.html.lower() and '2 GPUs' in w.html")

        start_broker(environ=broker.environment)

        until(notebook, "'no answer' not in w.html.lower()", seconds=30)
        notebook.run("w.close()")


def test_a_job_is_followed_and_cancelled(lab, notebook):
    """State, the end of the log, and a button that also works where a page has no server: by a message."""
    broker, _ = lab
    notebook.run(TRAINING)
    cell = notebook.run("v = jupyter_gpu.JobView(_); v")
    until(notebook, "'step 1' in v.html and 'active' in v.html and v.cancels")

    page(notebook, model_of(cell), says="cancel", view="v")

    until(notebook, "'cancelled' in v.html and not v.cancels")
    number = int(notebook.run("print(v.jobs[0])").stdout)
    assert broker.client.wait(number, timeout_seconds=60).end == "cancelled"
    assert any("digits" in it.get("text/html", "") for it in cell.shown), "the saved picture knows the job"


def test_a_job_that_is_none_is_told(notebook):
    """A number that nobody gave, and what is no number at all."""
    notebook.run("v = jupyter_gpu.JobView(99999); v")
    until(notebook, "'no workload 99999' in v.html")

    assert "is no job" in notebook.run("jupyter_gpu.JobView('x')").error["evalue"]


def test_a_saved_notebook_shows_the_picture(lab, monkeypatch):
    """Executed, saved and made HTML, the picture is in the page itself: no kernel, no network, no script."""
    broker, folder = lab
    for name in ("JUPYTER_GPU_RUNTIME_DIR", "JUPYTER_GPU_STATE_DIR"):
        monkeypatch.setenv(name, broker.environment[name])
    cells = ["import jupyter_gpu\njupyter_gpu.GpuMonitor()", "jupyter_gpu.QuotaBar()", "%load_ext jupyter_gpu\n%gpu"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])

    nbclient.NotebookClient(book, resources={"metadata": {"path": str(folder)}}, kernel_name="python3").execute()
    html, _ = HTMLExporter().from_notebook_node(nbformat.reads(json.dumps(book), 4))

    without_scripts = "".join(part.partition("</script>")[2] for part in html.split("<script"))
    assert without_scripts.count("data-jupyter-gpu-still") == 2
    assert "2 GPUs, 2 free" in without_scripts
    assert without_scripts.count("<svg") >= 4
    assert "you may hold what is free" in without_scripts
    assert "This kernel holds no GPU" in without_scripts


def test_the_files_of_the_page_are_there():
    """What the page runs lies beside the module, so a wheel has it."""
    from jupyter_gpu.jupyter import widgets

    for name in ("picture.js", "picture.css"):
        assert (Path(widgets.__file__).parent / "static" / name).stat().st_size > 500
