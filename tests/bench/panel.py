"""What the panel costs in the browser: Chromium's CPU time with the panel in sight, beside the same page without it.

Eight simulated devices at one sample a second, with a job on each, so that something is drawn all the time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil

from jupyter_gpu.model import JobSpec, Kind, SubmitBody
from tests.stories.lab import CHROMIUM, Lab, a_browser, a_lab_server
from tests.stories.scene import Broker, a_broker

from .ground import row

DEVICES = 8
SECONDS = 20.0
SETTLE_SECONDS = 10.0


def run() -> list[dict[str, Any]]:
    """One row, where there is a browser."""
    if CHROMIUM is None:
        return []
    with tempfile.TemporaryDirectory(prefix="jg-bench-") as scratch:
        root = Path(scratch)
        notebook = root / "a.ipynb"
        about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(metadata=about), notebook)
        with (
            a_broker(root / "b", devices=DEVICES, policy={}) as broker,
            a_lab_server(broker, root, notebooks={"a.ipynb": notebook}) as server,
            a_browser(server, broker.client, notebook="a.ipynb") as lab,
        ):
            _keep_busy(broker, root)
            lab.wait_for_kernel()
            without = _share_of_a_core(lab)
            lab.command("gpu:open-panel")
            lab.part("device").first.wait_for()
            seen = _share_of_a_core(lab)
    return [
        row(
            "a page with the panel in sight, in the browser",
            100 * seen,
            "% of a core",
            beside=f"with the file browser in its place {100 * without:.1f}",
        )
    ]


def _keep_busy(broker: Broker, root: Path) -> None:
    spec = JobSpec(argv=("/bin/sleep", "600"), folder=str(root), environment={"PATH": "/usr/bin:/bin"})
    for _ in range(DEVICES):
        broker.client.submit(SubmitBody(kind=Kind.JOB, spec=spec))


def _share_of_a_core(lab: Lab) -> float:
    lab.page.wait_for_timeout(SETTLE_SECONDS * 1000)
    browser = _browser()
    before, begun = _cpu_seconds(browser), time.monotonic()
    lab.page.wait_for_timeout(SECONDS * 1000)
    return (_cpu_seconds(browser) - before) / (time.monotonic() - begun)


def _browser() -> list[psutil.Process]:
    """The processes of the browser that this process has started."""
    found = [it for it in psutil.Process().children(recursive=True) if "chrom" in it.name()]
    assert found, f"no browser below {sys.argv[0]}"
    return found


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(it.cpu_times().user + it.cpu_times().system for it in processes if it.is_running())
