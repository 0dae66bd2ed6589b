"""What is promised for later in JupyterLab: what is coming, and the dialog that reserves for then."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from jupyter_gpu.model import Ask, HoldBody, Kind, SubmitBody

from .lab import CHROMIUM, NO_CHROMIUM, a_browser, a_lab_server, pictures_of
from .scene import a_broker

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
]
HOUR = 3600


def test_the_panel_shows_what_is_promised_for_later(tmp_path: Path) -> None:
    """A hold appears under what is coming when it is put, and is gone when it is removed; so is a reservation."""
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
        own = lab.part("coming-row").filter(has_text="for you")
        expect(own).to_have_count(1)
        expect(lab.part("workload")).to_have_count(0)

        broker.client.remove_hold(hold.id or 0)
        expect(lab.part("coming-row")).to_have_count(1)
        broker.client.cancel(mine.id)
        expect(lab.part("coming")).to_have_count(0)


def test_somebody_reserves_for_later_in_the_panel(tmp_path: Path) -> None:
    """What cannot be kept is refused in the dialog, with what was typed and what could be had; and it is given up."""
    tomorrow = (datetime.now() + timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)  # noqa: DTZ005
    begin = tomorrow.timestamp()
    with ExitStack() as stack:
        broker = stack.enter_context(a_broker(tmp_path / "b", devices=2, policy={}))
        hold = HoldBody(name="ml101", teams=("ml101",), count=1, from_at=begin, until_at=begin + HOUR)
        broker.client.add_hold(hold)
        server = stack.enter_context(a_lab_server(broker, tmp_path))
        lab = stack.enter_context(a_browser(server, broker.client))
        lab.command("gpu:open-panel")
        lab.part("reserve-later").click()
        lab.type(lab.part("later-devices"), "2")
        lab.type(lab.part("later-hours"), "1.5")
        lab.type(lab.part("later-from"), f"{tomorrow:%Y-%m-%dT%H:%M}")
        lab.page.get_by_role("button", name="Reserve", exact=True).last.click()

        expect(lab.part("later-flaw")).to_contain_text("2 GPUs cannot be promised from tomorrow 09:00")
        expect(lab.part("later-flaw")).to_contain_text("1 GPU at the time that you named")
        expect(lab.part("later-hours")).to_have_value("1.5")
        pictures_of(lab, "later")
        lab.type(lab.part("later-devices"), "1")
        expect(lab.part("later-flaw")).to_be_empty()
        lab.page.get_by_role("button", name="Reserve", exact=True).last.click()

        own = lab.part("coming-row").filter(has_text="for you")
        expect(own).to_contain_text("1 GPU · tomorrow 09:00 to 10:30")
        (mine,) = broker.client.status().workloads
        assert (mine.ask.devices, mine.ask.duration_seconds, mine.not_before) == (1, 1.5 * HOUR, begin)
        pictures_of(lab, "coming")
        own.locator('[data-gpu="cancel"]').click()
        lab.page.get_by_role("button", name="Cancel it").click()
        expect(own).to_have_count(0)
        refused = "Failed to load resource: the server responded with a status of 409 (Conflict)"
        assert lab.faults == [refused]
