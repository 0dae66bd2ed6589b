"""The widgets in a real JupyterLab, in Chromium: what needs a page to be seen."""

import json
import tempfile
from pathlib import Path

import nbformat
import pytest

from tests.stories.lab import CHROMIUM, NO_CHROMIUM, a_browser, a_lab_server
from tests.stories.scene import a_broker, until

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
]

JOB = """%%gpu submit --name digits --env JUPYTER_GPU_SIMULATED_BYTES=8000000000
import time
print('step 1', flush=True)
while True: time.sleep(0.1)
"""
CELLS = ["import jupyter_gpu\njupyter_gpu.GpuMonitor()", JOB, "jupyter_gpu.JobView(_)"]
ABOUT = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
MONITOR = ".jupyter-gpu [aria-label=GPUs]"


@pytest.fixture
def place():
    """Give a folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="jg-") as root:
        yield Path(root)


def saved_state(file):
    """Give the widgets that a notebook on the disk keeps."""
    try:
        found = json.loads(file.read_text())["metadata"].get("widgets", {})
    except ValueError:  # it is just being written
        return {}
    return found.get("application/vnd.jupyter.widget-state+json", {}).get("state", {})


def test_widgets_live_act_and_are_kept(place):
    """Figures move, the button cancels while a cell computes, and a notebook without its kernel shows the last."""
    book = place / "widgets.ipynb"
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=ABOUT), book)
    with (
        a_broker(place / "broker", devices=2, policy={}) as broker,
        a_lab_server(broker, place, notebooks={"widgets.ipynb": book}) as server,
    ):
        with a_browser(server, broker.client, notebook="widgets.ipynb") as lab:
            lab.wait_for_kernel()
            lab.run_all()
            page, monitor = lab.page, lab.page.locator(MONITOR)
            monitor.get_by_text("7.5/16GiB").wait_for()
            assert monitor.count() == 1
            assert page.locator("[data-jupyter-gpu-still]:visible").count() == 0
            page.locator(".jupyter-gpu pre").get_by_text("step 1").wait_for()

            page.evaluate(
                "() => void jupyterapp.shell.currentWidget.sessionContext.session.kernel"
                ".requestExecute({code: 'import time; time.sleep(600)'})"
            )
            lab.part("job-cancel").click()
            lab.part("job-cancel-yes").click()

            page.locator(".jupyter-gpu").get_by_text("Cancelled by").wait_for()
            job = next(iter(broker.client.workloads(mine=True, ended=True)))
            assert job.end == "cancelled"
            # What counts is what is on the disk; the promise of a save waits for a question that nobody would answer.
            page.evaluate("() => void jupyterapp.commands.execute('docmanager:save')")
            until(lambda: saved_state(server.root / "widgets.ipynb"), "the notebook keeps the state of our widgets")
            page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")

        with a_browser(server, broker.client, notebook="widgets.ipynb") as lab:
            lab.page.locator(MONITOR).get_by_text("2 GPUs").wait_for()
            lab.page.locator(".jupyter-gpu").get_by_text("Cancelled by").wait_for()
            assert lab.page.get_by_text("model not found").count() == 0
            assert lab.page.locator("[data-jupyter-gpu-still]:visible").count() == 0
