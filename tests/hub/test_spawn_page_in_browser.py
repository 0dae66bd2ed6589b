"""The spawn page in Chromium: by keyboard alone, without JavaScript, and with what is free renewed under a choice."""

import os
import re
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
from jupyter_gpu.jupyter.offers import Offered, Seen
from jupyter_gpu.model import QuotaView
from tests.stories.lab import _FLAGS, CHROMIUM, NO_CHROMIUM

from .spawn_ground import NONE, ONE, TWO
from .test_spawn_page import HOUR, NOON, Page, a_page, an_away_page, an_offer, seen, waits

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM), pytest.mark.timeout(120)]

_STYLE = Path(sys.prefix) / "share/jupyterhub/static/css/style.min.css"

#: Where somebody wants a picture; the tests' own environment is clean.
_PICTURES = os.environ.get("JUPYTER_GPU_PICTURES")


@dataclass
class Spawning:
    """The hub's page around our form; a test changes what is shown."""

    page: Page = field(default_factory=a_page)
    #: The hub's own words above the form, and its theme.
    refusal: str = ""
    theme: str = "light"
    asked: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    url: str = ""

    def html(self) -> str:
        """As the hub's template has it."""
        style = _STYLE.read_text() if _STYLE.exists() else ""
        error = f'<p class="spawn-error-msg alert alert-danger">Error: {self.refusal}</p>' if self.refusal else ""
        return (
            f'<!DOCTYPE html><html lang="en" data-bs-theme="{self.theme}"><head><meta charset="utf-8">'
            f'<title>Spawn</title><style>{style}</style></head><body><div class="container">{error}'
            f'<form method="post">{spawn_page.form(self.page)}'
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
            self._answer(it.html())

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


QUOTAS = (QuotaView(rule="you", devices_held=1, devices_allowed=2),)
FULL = {"one": waits(expected_start_at=NOON + 2 * HOUR), "two": waits(TWO, expected_start_at=NOON + 4 * HOUR)}
ONE_FREE = {"one": an_offer(ONE, free=1), "two": waits(TWO, free=1, expected_start_at=NOON + 4 * HOUR)}


def shown(**words: Any) -> Page:
    """The page for somebody who may choose among three."""
    return a_page(seen(ONE, TWO, NONE, **words))


def test_what_is_free_is_renewed_and_what_was_chosen_stays(spawning, browse):
    """The page's own address is asked, without its query, which could start a server."""
    spawning.page = shown(offers=FULL, quotas=QUOTAS, teams=("vision",), teams_at=NOON)
    page = browse(f"{spawning.url}?next=%2Fuser%2Fana", timezone_id="UTC")
    page.get_by_label("Two GPUs").check()
    free = page.locator("#jupyter-gpu-0-free")
    assert re.match("0 of 2 free now; expected (tomorrow )?at about", free.inner_text())
    if _PICTURES:
        page.screenshot(path=f"{_PICTURES}/spawn-page.png")

    spawning.page = shown(offers=ONE_FREE, quotas=QUOTAS)
    page.wait_for_function("() => document.querySelector('#jupyter-gpu-0-free').textContent === '1 of 2 free now.'")

    assert page.get_by_label("Two GPUs").is_checked()
    assert set(spawning.asked) - {"/favicon.ico"} == {"/hub/spawn?next=%2Fuser%2Fana", "/hub/spawn"}


def test_without_javascript_it_is_a_form(spawning, browse):
    """Choose, send: what is free is as it was when the page was made."""
    spawning.page = shown(offers=ONE_FREE)
    page = browse(spawning.url, java_script_enabled=False)
    assert page.locator("#jupyter-gpu-0-free").inner_text() == "1 of 2 free now."
    page.get_by_label("No GPU").check()
    page.get_by_role("button", name="Start").click()

    assert spawning.sent == ["gpu_profile=none"]


def test_the_keyboard_alone_chooses_waits_and_starts(spawning, browse):
    """Tab to the choices, arrows among them, space for the box, Enter to start."""
    spawning.page = shown(offers=FULL)
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
    spawning.page = shown(offers=ONE_FREE)
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


def test_a_refusal_is_where_the_reader_begins(spawning, browse):
    """The hub writes it above the form: it takes the focus, and is told as an alert."""
    spawning.page, spawning.refusal = shown(offers=FULL), "“One GPU” is not free now, so your server was not started."
    page = browse(spawning.url)

    alert = page.get_by_role("alert")
    assert alert.inner_text().startswith("Error: “One GPU” is not free now")
    assert alert.evaluate("it => it === document.activeElement")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "one"


def test_what_is_greyed_while_the_broker_is_away_may_be_chosen_when_it_is_back(spawning, browse):
    """And says so; what was chosen meanwhile stays."""
    spawning.page = an_away_page(ONE, TWO, NONE)
    page = browse(spawning.url)
    assert page.get_by_label("One GPU").is_disabled()
    assert page.get_by_label("No GPU").is_checked()
    if _PICTURES:
        page.screenshot(path=f"{_PICTURES}/spawn-page-away.png")

    spawning.page = shown(offers=ONE_FREE)
    page.wait_for_function("() => !document.querySelector('#jupyter-gpu-0').disabled")

    assert page.get_by_label("No GPU").is_checked()
    assert page.get_by_role("status").inner_text() == "Free for you now: One GPU."


def test_a_team_is_chosen_where_it_matters(spawning, browse):
    """By its label, and sent."""
    by_team = {"speech": waits(why="Your team speech holds all."), "vision": an_offer(ONE)}
    spawning.page = a_page(Seen((Offered(ONE, by_team), Offered(NONE, {})), tuple(by_team), teams_differ=True))
    page = browse(spawning.url, timezone_id="UTC")
    if _PICTURES:
        page.screenshot(path=f"{_PICTURES}/spawn-page-team.png")
    page.get_by_label("Team that it counts for").select_option("vision")
    page.get_by_role("button", name="Start").click()
    page.wait_for_function("() => document.title === 'Sent'")

    assert spawning.sent == ["gpu_profile=one&gpu_team=vision"]


#: The least contrast of a text with what is behind it, by WCAG 2.2 (1.4.3) for text of usual size.
CONTRAST = 4.5
#: Of all texts in the form: the words, and how much they differ from what is behind them.
_CONTRASTS = """() => {
  const part = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const read = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const over = ([r, g, b, a], back) => [r, g, b].map((c, i) => c * a + back[i] * (1 - a));
  const behind = it => {
    if (it === null) { return [255, 255, 255]; }
    const colour = read(getComputedStyle(it).backgroundColor);
    return colour[3] === 1 ? colour : over(colour, behind(it.parentElement));
  };
  return [...document.querySelectorAll('.jupyter-gpu, .jupyter-gpu *')]
    .filter(it => [...it.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
    .filter(it => !['STYLE', 'SCRIPT', 'OPTION'].includes(it.tagName))
    .map(it => {
      const back = behind(it);
      const [one, other] = [over(read(getComputedStyle(it).color), back), back].map(light);
      return [it.textContent, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)];
    });
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_in_both_of_the_hubs_themes(spawning, browse, theme):
    """Also what is greyed."""
    spawning.theme = theme
    spawning.page = an_away_page(ONE, TWO, NONE)
    page = browse(spawning.url)
    found = page.evaluate(_CONTRASTS)
    if _PICTURES:
        page.screenshot(path=f"{_PICTURES}/spawn-page-{theme}.png")

    assert len(found) > 10
    assert [(text, contrast) for text, contrast in found if contrast < CONTRAST] == []
