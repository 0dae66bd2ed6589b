"""The spawn page in Chromium: by keyboard alone, without JavaScript, and with what is free renewed under a choice."""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.jupyter import spawn_page
from jupyter_gpu.model import QuotaView
from tests.stories.lab import _FLAGS, CHROMIUM, NO_CHROMIUM

from .spawn_ground import NONE, ONE, TWO
from .test_spawn_page import HOUR, NOON, a_device, a_page, a_status, held

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM), pytest.mark.timeout(120)]

_STYLE = Path(sys.prefix) / "share/jupyterhub/static/css/style.min.css"

#: Where somebody wants a picture; the tests' own environment is clean.
_PICTURES = os.environ.get("JUPYTER_GPU_PICTURES")


@dataclass
class Spawning:
    """The hub's page around our form; a test changes what is shown."""

    status: Any = None
    asked: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    url: str = ""

    def page(self) -> str:
        """As the hub's template has it."""
        form = spawn_page.form(a_page(ONE, TWO, NONE, status=self.status))
        style = _STYLE.read_text() if _STYLE.exists() else ""
        return (
            f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Spawn</title>'
            f'<style>{style}</style></head><body><div class="container"><form method="post">{form}'
            '<button type="submit">Start</button></form></div></body></html>'
        )


@pytest.fixture
def spawning(monkeypatch) -> Iterator[Spawning]:
    """A page at an address."""
    monkeypatch.setattr(spawn_page, "REFRESH_SECONDS", 0.5)
    it = Spawning()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            it.asked.append(self.path)
            self._answer(it.page())

        def do_POST(self) -> None:
            it.sent.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._answer("<!DOCTYPE html><title>Sent</title>")

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    it.url = f"http://127.0.0.1:{server.server_address[1]}/hub/spawn"
    yield it
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def browse() -> Iterator[Any]:
    """Open a page, with or without JavaScript; nothing may be wrong on its console."""
    from playwright.sync_api import sync_playwright

    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="jg-chromium-") as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=_FLAGS, env={**os.environ, "HOME": home}
        )

        def opened(url: str, **words: Any) -> Any:
            page = browser.new_context(viewport={"width": 1000, "height": 900}, **words).new_page()
            page.set_default_timeout(30_000)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.goto(url)
            return page

        yield opened
        browser.close()
    assert faults == []


QUOTAS = (QuotaView(rule="each user", devices_held=1, devices_allowed=2),)


def test_what_is_free_is_renewed_and_what_was_chosen_stays(spawning, browse):
    """The page's own address is asked, without its query, which could start a server."""
    spawning.status = a_status(held(0), held(1, 4), quotas=QUOTAS, teams=("vision",), teams_at=NOON)
    page = browse(f"{spawning.url}?next=%2Fuser%2Fana", timezone_id="UTC")
    page.get_by_label("Two GPUs").check()
    free = page.locator("#jupyter-gpu-0-free")
    assert free.inner_text().startswith("0 of 2 free now; free at about")
    if _PICTURES:
        page.screenshot(path=f"{_PICTURES}/spawn-page.png")

    spawning.status = a_status(a_device(0), held(1, 4), quotas=QUOTAS)
    page.wait_for_function("() => document.querySelector('#jupyter-gpu-0-free').textContent === '1 of 2 free now.'")

    assert page.get_by_label("Two GPUs").is_checked()
    assert set(spawning.asked) - {"/favicon.ico"} == {"/hub/spawn?next=%2Fuser%2Fana", "/hub/spawn"}


def test_without_javascript_it_is_a_form(spawning, browse):
    """Choose, send: what is free is as it was when the page was made."""
    spawning.status = a_status(a_device(0), held(1))
    page = browse(spawning.url, java_script_enabled=False)
    assert page.locator("#jupyter-gpu-0-free").inner_text() == "1 of 2 free now."
    page.get_by_label("No GPU").check()
    page.get_by_role("button", name="Start").click()

    assert spawning.sent == ["gpu_profile=none"]


def test_the_keyboard_alone_chooses_waits_and_starts(spawning, browse):
    """Tab to the choices, arrows among them, space for the box, Enter to start."""
    spawning.status = a_status(held(0), held(1))
    page = browse(spawning.url)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.title === 'Sent'")

    assert spawning.sent == ["gpu_profile=two&gpu_wait=yes"]


def test_a_screen_reader_hears_each_choice_with_what_is_free(spawning, browse):
    """Names and descriptions as the browser tells them to assistive technology."""
    spawning.status = a_status(a_device(0), held(1, 4 * HOUR))
    page = browse(spawning.url)

    heard = page.locator("#jupyter-gpu").aria_snapshot()
    assert 'group "GPUs of your server"' in heard
    assert 'radio "One GPU" [checked]' in heard
    assert 'checkbox "Wait in line if none is free"' in heard
    assert (
        page.get_by_role("radio", name="One GPU")
        .evaluate("it => document.getElementById(it.getAttribute('aria-describedby')).textContent")
        .endswith("1 of 2 free now.")
    )
    assert page.get_by_role("status").count() == 1
