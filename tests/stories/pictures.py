"""`make pictures`: every screen, light and dark, as docs/pictures shows them. Look at them after a change."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import nbformat
from playwright.sync_api import Page

from jupyter_gpu.model import Ask, JobSpec, Kind, SubmitBody
from tests.hub.pictures import take as take_the_hub
from tests.nvml.library import why_not

from .board_in_lab import House
from .lab import CHROMIUM, NO_CHROMIUM, Lab, a_browser, a_lab_server
from .scene import SCRIPTS, Broker, a_broker

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
CELLS = [
    "%gpu reserve 1 --for 2h",
    "from jupyter_gpu import GpuMonitor, QuotaBar, JobView\n\nGpuMonitor()",
    "QuotaBar()",
    "job = %gpu submit --name digits -- python train_digits.py --step-seconds 0.5 --steps 400\nJobView(job)",
    "%gpu queue",
]
#: The jobs that run while the pictures are taken, and the MiB that they hold.
RUN_AT_ONCE = {"resnet50": 2600, "tokenizer": 900}
#: A script that holds memory, so that there is something to see.
_BUSY = "import time; held = bytearray({mib} << 20); print('epoch 1', flush=True); time.sleep(3600)"
POLICY: dict[str, object] = {
    "quotas": [{"user": "*", "devices": 4}, {"user": "*", "gpu_hours": 40}],
}


def main() -> int:
    """Take them all."""
    if CHROMIUM is None:
        sys.exit(f"The pictures: {NO_CHROMIUM}")
    PICTURES.mkdir(exist_ok=True)
    for is_dark in (False, True):
        for take in (_take, _take_the_board, _take_the_hub):
            with tempfile.TemporaryDirectory(prefix="jg-pictures-") as scratch, ExitStack() as stack:
                take(Path(scratch), stack, is_dark=is_dark)
    return 0


def _take(root: Path, stack: ExitStack, *, is_dark: bool) -> None:
    broker = stack.enter_context(a_broker(root / "b", devices=4, policy=POLICY))
    notebook = root / "digits.ipynb"
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=about), notebook)
    beside = {notebook.name: notebook, "train_digits.py": SCRIPTS / "train_digits.py"}
    server = stack.enter_context(
        a_lab_server(broker, root, notebooks=beside, arguments=("--GpuExtension.start_broker=False",))
    )
    for name, mib in RUN_AT_ONCE.items():
        _submit(broker, root, name, _BUSY.format(mib=mib))
    lab: Lab = stack.enter_context(a_browser(server, broker.client, notebook=notebook.name, dark=is_dark))
    lab.wait_for_kernel()
    lab.command("gpu:open-panel")
    lab.run_all()
    _submit(broker, root, "sweep-1", _BUSY.format(mib=10))
    lab.part("workload").nth(3).wait_for()

    def take(name: str) -> None:
        _save(lab.page, name, is_dark=is_dark)

    lab.page.evaluate("() => { jupyterapp.shell.currentWidget.content.activeCellIndex = 0; }")
    take("panel")
    lab.part("toolbar").click()
    take("toolbar")
    lab.page.keyboard.press("Escape")
    lab.command("gpu:submit-file", path="train_digits.py")
    lab.page.get_by_role("button", name="Send to queue").wait_for()
    take("run-as-job")
    lab.page.keyboard.press("Escape")
    lab.command("gpu:show-log", workload=1)
    lab.part("log").get_by_text("epoch 1").wait_for()
    take("log")
    lab.part("quota").first.scroll_into_view_if_needed()
    take("quota")
    lab.page.get_by_role("button", name="Extend 1 h").first.click()
    for number in (1, 5):
        broker.client.cancel(number)
    _submit(broker, root, "evaluate", "print('accuracy 0.957')")
    lab.page.get_by_role("button", name="Show log").wait_for()
    take("notices")
    broker.client.stop_broker()
    lab.part("trouble").wait_for()
    take("away")


def _take_the_board(root: Path, stack: ExitStack, *, is_dark: bool) -> None:
    """Devices as they are; the cards are a stand-in for the driver's library, which takes a C compiler."""
    if why_not() is not None:
        sys.exit(f"The picture of devices as they are {why_not()}")
    house = House(root, stack, CELLS[1].replace(", QuotaBar, JobView", ""))
    house.befall()
    lab = house.open(dark=is_dark)
    lab.run_all()
    lab.page.set_viewport_size({"width": 1400, "height": 1200})
    for uses in lab.part("uses").all():
        uses.locator("summary").click()
    _save(lab.page, "devices", is_dark=is_dark)


def _take_the_hub(root: Path, stack: ExitStack, *, is_dark: bool) -> None:
    take_the_hub(root, stack, lambda page, name: _save(page, name, is_dark=is_dark), is_dark=is_dark)


def _save(page: Page, name: str, *, is_dark: bool) -> None:
    page.wait_for_timeout(1500)  # what moves has come to rest
    page.screenshot(path=PICTURES / f"{name}-{'dark' if is_dark else 'light'}.png")


def _submit(broker: Broker, root: Path, name: str, code: str) -> None:
    spec = JobSpec(argv=(sys.executable, "-c", code), folder=str(root), environment={"PATH": "/usr/bin:/bin"})
    ask = Ask(devices=1, duration_seconds=4 * 3600)
    it = broker.client.submit(SubmitBody(kind=Kind.JOB, name=name, ask=ask, spec=spec))
    if name in RUN_AT_ONCE:
        broker.client.wait(it.id, until="active", timeout_seconds=30)


if __name__ == "__main__":
    sys.exit(main())
