"""Devices as they are, in JupyterLab: a split card, a shared one, a lost one, and one that is used without a lease.

The cards are a stand-in for the driver's own library; broker, kernel, strangers and browser are real.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import WebSocketRoute

from jupyter_gpu.holding import process_holder
from jupyter_gpu.model import Ask, Condition, Kind, State, SubmitBody, WorkloadView
from tests.nvml.board import GIB, MIB, Board, data_centre_card, mig_device
from tests.nvml.library import needs_standin

from .lab import CHROMIUM, NO_CHROMIUM, Lab, a_browser, a_lab_server, pictures_of
from .scene import Broker, a_broker, until

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    needs_standin,
]

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

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.board = a_board(root)
        self.broker: Broker = stack.enter_context(a_broker(root / "b", devices=None, policy=POLICY, board=self.board))
        notebook = root / "a.ipynb"
        about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(metadata=about), notebook)
        self._server = stack.enter_context(a_lab_server(self.broker, root, notebooks={"a.ipynb": notebook}))

    def open(self) -> Lab:
        """Open the notebook, with the panel beside it."""
        lab: Lab = self._stack.enter_context(a_browser(self._server, self.broker.client, notebook="a.ipynb"))
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

    def condition(self, uuid: str) -> Condition | None:
        """What the broker says of a device."""
        return next(it.condition for it in self.broker.client.devices().items if it.uuid == uuid)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Everything that is closed at the end, the last first."""
    with ExitStack() as found:
        yield found


def test_devices_are_shown_as_they_are(tmp_path: Path, stack: ExitStack) -> None:
    """Cards with their MIG devices, what is shared, what is lost, and who is there without a lease, in words."""
    house = House(tmp_path, stack)
    board, (split, shared, whole, lost, empty) = house.board, house.board.cards
    stranger = house.a_process()
    held = house.hold(memory_bytes=10 * GIB)
    assert held.devices == (shared.uuid,)
    split["memory_used"] = 300 * MIB
    whole.hold(stranger, 7 * GIB)
    lost.lose()
    board.write()
    until(lambda: house.condition(whole.uuid) is Condition.FOREIGN, "the stranger is seen")
    until(lambda: house.condition(lost.uuid) is Condition.LOST, "the card is lost")

    lab = house.open()

    def row(uuid: str, kind: str = "device") -> str:
        return lab.page.locator(f'[data-gpu="{kind}"][data-uuid="{uuid}"]').inner_text()

    assert lab.page.locator(f'[data-gpu="card"][data-uuid="{split.uuid}"] [data-gpu="device"]').count() == 3
    card = row(split.uuid, "card")
    assert "GPU 0:1" in card
    assert "GPU 0:3" in card
    assert "31 °C" in card
    assert "n/a" in card
    assert "has no MIG devices" in row(empty.uuid, "card")
    assert "10 of 40 GiB leased" in row(shared.uuid)
    assert "used without a lease" in row(whole.uuid)
    assert "lost" in row(lost.uuid)
    assert "free" not in row(lost.uuid)
    assert "31 °C" not in row(lost.uuid)

    uses = lab.page.locator(f'[data-uuid="{whole.uuid}"] [data-gpu="uses"]')
    uses.locator("summary").focus()
    lab.page.keyboard.press("Enter")
    listed = uses.locator(f'[data-pid="{stranger}"]')
    listed.wait_for()
    assert "7 GiB" in listed.inner_text()
    assert "no lease" in listed.inner_text()
    pictures_of(lab, "devices")

    told = lab.part("alert").filter(has_text="GPU 3 is lost")
    told.locator('[data-gpu="alert-dismiss"]').click()
    told.wait_for(state="detached")
    lab.part("reserve-devices").fill("4")
    lab.page.get_by_text("one MIG device at a time").wait_for()
    lab.part("reserve-devices").fill("1")
    lab.part("reserve-memory").fill("35")
    lab.page.get_by_text("No GPU is free now").wait_for()

    whole.release(stranger)
    board.write()
    lab.page.locator(f'[data-gpu="device"][data-uuid="{whole.uuid}"]').get_by_text("free", exact=True).wait_for()
    assert lab.faults == []


def _ten_minutes_later(page: WebSocketRoute) -> None:
    server = page.connect_to_server()

    def hand_on(message: str | bytes) -> None:
        frame = json.loads(message)
        for kernel in frame.get("kernels", ()):
            kernel["last_activity"] -= 600
        page.send(json.dumps(frame))

    server.on_message(hand_on)


def test_an_idle_kernel_that_holds_memory_is_restarted_in_one_click(tmp_path: Path, stack: ExitStack) -> None:
    """Its own memory, not that of the whole card, while the card does nothing (hammerlab/flowdec#13)."""
    house = House(tmp_path, stack)
    lab = house.open()
    lab.command("gpu:reserve", devices=1, duration_seconds=3600, device_class="a100-40gb")
    lab.page.locator('[data-gpu="toolbar"][data-standing="pinned"]').wait_for()
    pid = int(lab.execute("import os; print(os.getpid())"))
    mine = next(it for it in house.broker.client.workloads(mine=True) if it.state is State.ACTIVE)
    assert mine.devices
    card = next(it for it in house.board.cards if it.uuid == mine.devices[0])
    card.hold(pid, 7786 * MIB)
    house.board.write()
    lab.page.get_by_text("7.6 GiB in use").wait_for()
    assert lab.part("kernel-idle").count() == 0

    # Nobody waits five minutes for this: the page hears that the kernel has done nothing for ten.
    lab.page.route_web_socket(re.compile("/jupyter-gpu/stream"), _ten_minutes_later)
    lab.page.reload()
    lab.page.wait_for_function("() => window.jupyterapp?.restored")
    lab.wait_for_kernel()
    lab.command("gpu:open-panel")
    lab.part("kernel-idle").wait_for()
    assert "Idle kernel holds 7.6 GiB" in lab.part("kernel-idle").inner_text()
    pictures_of(lab, "idle-kernel")
    lab.part("kernel-free").click()
    lab.page.get_by_role("button", name="Restart", exact=True).last.click()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the kernel's process has ended")
    card.release(pid)
    house.board.write()
    lab.part("kernel-idle").wait_for(state="detached")
    assert house.broker.client.workload(mine.id).state is State.ACTIVE
    assert lab.faults == []
