"""A server of a real hub whose GPUs are idle: warned, kept, warned again, given back, ended; its owner is told why."""

import re
import tempfile
from pathlib import Path

import httpx
import pytest

from tests.nvml.board import GIB, Board, data_centre_card
from tests.nvml.library import needs_standin

from .hub import POLICY, a_hub, until
from .test_real_hub import live, reserve

pytestmark = [pytest.mark.story, pytest.mark.timeout(180), needs_standin]

IDLE = {"renew_seconds": 2, "lapse_seconds": 6, "idle_warn_seconds": 3, "idle_release_seconds": 8,
        "reservation_grace_seconds": 3}  # fmt: skip


@pytest.fixture
def hub():
    """One GPU at rest."""
    with tempfile.TemporaryDirectory(prefix="jgi-", ignore_cleanup_errors=True) as folder:
        board = Board(Path(folder), data_centre_card(0, "NVIDIA A100-SXM4-80GB", 80 * GIB))
        with a_hub(Path(folder) / "hub", board=board, policy=POLICY | IDLE) as hub:
            yield hub


def warnings(page):
    """What their Lab shows of idleness: each warning by its key."""
    alerts = page.get("/jupyter-gpu/api/v1/status").json().get("alerts", ())
    return {it["key"]: it["text"] for it in alerts if it["key"].startswith("idle:")}


def test_idle_gpus_of_a_server_go_back_after_a_warning_that_its_owner_can_answer(hub):
    """A click keeps them until they are idle again; then the server is ended, who waits gets them, and it is told."""
    hub.spawn("ana", gpu_profile="one").raise_for_status()
    (held,) = live(hub, "ana")
    page = hub.at("ana")
    assert hub.kernel("ana").run("print(7)") == "7"
    until(lambda: warnings(page), "the warning")
    (first,) = warnings(page)

    kept = page.post(f"/jupyter-gpu/api/v1/workloads/{held.id}/keep")

    assert kept.status_code == httpx.codes.OK, kept.text
    assert first not in warnings(page)
    until(lambda: warnings(page), "idle again, it is told again")
    assert hub.server("ana")["ready"]
    waits = hub.as_("ben").submit(reserve())
    until(lambda: not hub.server("ana").get("ready"), "the server is ended", seconds=60)
    assert hub.as_("ben").wait(waits.id, until="active", timeout_seconds=60).devices == held.devices
    form = hub.browser("ana").get("hub/spawn").text
    assert re.search(r"Your last server with GPUs was ended at \d\d:\d\d: idle since \d\d:\d\d", form)
