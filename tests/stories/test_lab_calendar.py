"""What is promised for later in JupyterLab: what is coming, and one's own among one's work."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import expect

from jupyter_gpu.model import Ask, HoldBody, Kind, SubmitBody

from .lab import CHROMIUM, NO_CHROMIUM, a_browser, a_lab_server
from .scene import a_broker

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
]
HOUR = 3600


def test_the_panel_shows_what_is_promised_for_later(tmp_path: Path) -> None:
    """A hold appears under what is coming when it is put, and is gone when it is removed; one's own is one's work."""
    with ExitStack() as stack:
        broker = stack.enter_context(a_broker(tmp_path / "b", devices=2, policy={}))
        server = stack.enter_context(a_lab_server(broker, tmp_path))
        lab = stack.enter_context(a_browser(server, broker.client))
        lab.command("gpu:open-panel")
        lab.part("device").first.wait_for()
        expect(lab.part("coming")).to_have_count(0)

        begin = time.time() + 2 * HOUR
        body = HoldBody(name="ml101", teams=("ml101",), count=1, from_at=begin, until_at=begin + HOUR)
        hold = broker.client.add_hold(body)
        expect(lab.part("coming-row")).to_contain_text("ml101, for ml101")
        ask = Ask(devices=1, duration_seconds=HOUR)
        mine = broker.client.submit(SubmitBody(kind=Kind.RESERVATION, ask=ask, not_before=begin))
        work = lab.part("workload").filter(has_text="It is promised from")
        expect(work).to_have_count(1)

        broker.client.remove_hold(hold.id or 0)
        expect(lab.part("coming")).to_have_count(0)
        broker.client.cancel(mine.id)
        expect(work).to_have_count(0)
