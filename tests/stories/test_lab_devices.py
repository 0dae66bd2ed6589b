"""Devices as they are, in JupyterLab: a split card, a shared one, a lost one, and one that is used without a lease.

The cards are a stand-in for the driver's own library; broker, kernel, strangers and browser are real.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import WebSocketRoute

from jupyter_gpu.model import State
from tests.nvml.board import GIB, MIB
from tests.nvml.library import needs_standin

from .board_in_lab import House
from .lab import CHROMIUM, NO_CHROMIUM, pictures_of
from .scene import until

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    needs_standin,
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Everything that is closed at the end, the last first."""
    with ExitStack() as found:
        yield found


def test_devices_are_shown_as_they_are(tmp_path: Path, stack: ExitStack) -> None:
    """Cards with their MIG devices, what is shared, what is lost, and who is there without a lease, in words."""
    house = House(tmp_path, stack)
    board, (split, shared, whole, lost, empty) = house.board, house.board.cards
    stranger = house.befall()

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
    lab.type(lab.part("reserve-devices"), "4")
    lab.page.get_by_text("one MIG device at a time").wait_for()
    lab.type(lab.part("reserve-devices"), "1")
    lab.type(lab.part("reserve-memory"), "35")
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


def test_a_notebook_above_its_part_is_told(tmp_path: Path, stack: ExitStack) -> None:
    """It reserved 4 GiB of the shared card and uses more: its owner reads so in a notice and beside the kernel."""
    house = House(tmp_path, stack)
    shared = house.board.cards[1]
    lab = house.open()
    lab.command("gpu:reserve", devices=1, duration_seconds=3600, memory_bytes=4 * GIB)
    lab.page.locator('[data-gpu="toolbar"][data-standing="pinned"]').wait_for()
    assert lab.execute("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").strip() == shared.uuid
    pid = int(lab.execute("print(os.getpid())"))
    shared.hold(pid, 6 * GIB)
    house.board.write()

    notice = lab.page.locator(".Toastify__toast").filter(has_text="4GiB")
    notice.wait_for()
    kernel = lab.part("kernel").filter(has_text="4GiB")
    kernel.wait_for()
    assert notice.count() == 1
    pictures_of(lab, "above-its-part")

    shared.release(pid)
    shared.hold(pid, 3 * GIB)
    house.board.write()
    notice.wait_for(state="detached")
    kernel.wait_for(state="detached")
    assert lab.faults == []
