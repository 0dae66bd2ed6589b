"""JupyterLab on a board that nobody here has: a card in parts, a shared one, two whole ones, and one without any.

The cards are a stand-in for the driver's own library; broker, kernel, strangers and browser are real.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import nbformat

from jupyter_gpu.holding import process_holder
from jupyter_gpu.model import Ask, Condition, Kind, SubmitBody, WorkloadView
from tests.nvml.board import GIB, MIB, Board, data_centre_card, mig_device

from .lab import Lab, a_browser, a_lab_server
from .scene import Broker, a_broker, until

A100 = "NVIDIA A100-SXM4-40GB"
IDLES = "import sys; sys.stdin.read()"


def a_board(folder: Path) -> Board:
    """GPU 0 is in parts, GPU 1 is shared, GPU 2 and 3 are whole, and GPU 4 is in MIG mode without MIG devices."""
    cards = [data_centre_card(number, A100 if number != 1 else "NVIDIA L40S", 40 * GIB) for number in range(5)]
    for slot, gpu_instance in ((0, 7), (1, 8), (3, 9)):
        mig_device(cards[0], slot, "1g.5gb", memory_bytes=4864 * MIB, gpu_instance=gpu_instance)
    cards[4]["mig_mode"] = 1
    del cards[4]["utilisation"]
    return Board(folder, *cards)


POLICY: dict[str, object] = {
    "sharing": [{"device_class": "l40s-40gb"}],
    "quotas": [{"user": "*", "devices": 4}],
}


class House:
    """A board, a broker that reads it, and JupyterLab with one notebook."""

    def __init__(self, root: Path, stack: ExitStack, *cells: str) -> None:
        self._stack = stack
        self.board = a_board(root)
        self.broker: Broker = stack.enter_context(a_broker(root / "b", devices=None, policy=POLICY, board=self.board))
        notebook = root / "a.ipynb"
        about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        code = [nbformat.v4.new_code_cell(text) for text in cells]
        nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=about), notebook)
        self._server = stack.enter_context(a_lab_server(self.broker, root, notebooks={"a.ipynb": notebook}))

    def open(self, *, dark: bool = False) -> Lab:
        """Open the notebook, with the panel beside it."""
        browser = a_browser(self._server, self.broker.client, notebook="a.ipynb", dark=dark)
        lab: Lab = self._stack.enter_context(browser)
        lab.wait_for_kernel()
        lab.command("gpu:open-panel")
        lab.part("device").first.wait_for()
        return lab

    def hold(self, **ask: object) -> WorkloadView:
        """Some process holds something."""
        client, holder = self.broker.client, process_holder("command", "story", self.a_process())
        body = SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=7200, **ask), holder=holder)  # type: ignore[arg-type]
        return client.wait(client.submit(body).id, until="active", timeout_seconds=30)

    def a_process(self) -> int:
        """A process of this account that nobody has given a GPU."""
        process = self._stack.enter_context(subprocess.Popen([sys.executable, "-c", IDLES], stdin=subprocess.PIPE))
        self._stack.callback(process.kill)
        return process.pid

    def befall(self) -> int:
        """Let somebody hold a part of the shared card, a stranger use a whole one, and the last whole one be lost."""
        split, shared, whole, lost, _ = self.board.cards
        held, stranger = self.hold(memory_bytes=10 * GIB), self.a_process()
        assert held.devices == (shared.uuid,)
        split["memory_used"] = 300 * MIB
        whole.hold(stranger, 7 * GIB)
        lost.lose()
        self.board.write()
        until(lambda: self.condition(whole.uuid) is Condition.FOREIGN, "the stranger is seen")
        until(lambda: self.condition(lost.uuid) is Condition.LOST, "the card is lost")
        return stranger

    def condition(self, uuid: str) -> Condition | None:
        """What the broker says of a device."""
        return next(it.condition for it in self.broker.client.devices().items if it.uuid == uuid)
