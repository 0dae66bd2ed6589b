"""The page at the service's address: what its script is told, its files, and who reads neither."""

from __future__ import annotations

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_gpu import __version__
from jupyter_gpu.broker.hub import frame
from jupyter_gpu.broker.hub.bundle import SCRIPT, STYLE, built, read_bundle
from tests.conftest import Places

from .fake_hub import CONTRACTOR, OURS, RESEARCHER
from .ground import BUNDLE, Serving, play
from .test_cookies import a_browser


class Parsed(HTMLParser):
    """What a browser makes of a page: its elements, and the text in each kind of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self._in = [""]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self._in.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._in.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text[self._in[-1]] = self.text.get(self._in[-1], "") + data

    def told(self) -> dict[str, Any]:
        """What the script is told."""
        assert ("script", {"type": "application/json", "id": "jp-gpu-data"}) in self.tags
        found: dict[str, Any] = json.loads(self.text["script"])
        return found

    def files(self) -> dict[str, str]:
        """The addresses of the script and of the styles."""
        script = next(it["src"] for tag, it in self.tags if tag == "script" and "src" in it)
        style = next(it["href"] for tag, it in self.tags if tag == "link" and it["rel"] == "stylesheet")
        assert script
        assert style
        return {SCRIPT: script, STYLE: style}


async def fetch(it: Serving, path: str, **headers: str) -> httpx.Response:
    """Ask for a file as it was linked, without a cookie; answers stay packed."""
    return await it.client(it.root).get(path, headers={"Accept-Encoding": "identity", **headers})


# -- the page


@pytest.mark.parametrize("base", ["", "/j", "/a/b"])
def test_the_script_is_told_where_the_api_and_the_hub_are_and_who_looks(tmp_runtime: Places, base: str) -> None:
    """Below every prefix; what it is told is enough to ask the API."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER, base=base) as (it, browser):
            page = Parsed((await browser.open()).text)
            assert ("main", {"id": "jp-gpu-page"}) in page.tags
            told = page.told()
            assert told == {
                "api": f"{base}/services/jupyter-gpu/api/v1",
                "xsrf": browser.xsrf(),
                "caller": "ana",
                "scopes": sorted(RESEARCHER),
                "hub": f"{base}/hub/",
                "spawn": f"{base}/hub/spawn",
                "version": __version__,
            }
            answer = await browser.ask("GET", "/status", told["xsrf"])
            assert answer.json()["caller"] == "ana"
            for name, address in page.files().items():
                assert address.startswith(f"{base}/services/jupyter-gpu/static/")
                assert (await fetch(it, address)).content == BUNDLE[name].data

    play(story)


def test_a_hub_on_a_host_of_its_own_is_linked_there(tmp_runtime: Places) -> None:
    """Where services have a subdomain, a path alone would lead back to the service."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            await browser.open()
            it.service.hub.hub_host = "https://hub.example"
            told = Parsed((await browser.open()).text).told()
            assert (told["hub"], told["spawn"]) == ("https://hub.example/hub/", "https://hub.example/hub/spawn")

    play(story)


def test_nothing_runs_but_our_script(tmp_runtime: Places) -> None:
    """No other source, no frame around it, no opener that reaches in; and nobody keeps the page."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (_, browser):
            page = await browser.open()
            assert page.headers["Content-Security-Policy"] == (
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            )
            assert page.headers["Cross-Origin-Opener-Policy"] == "noopener-allow-popups"
            assert (page.headers["Cache-Control"], page.headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
            assert "ETag" not in page.headers
            assert "style=" not in page.text
            assert page.text.count("<script") == 2

    play(story)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "same-origin", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe", "Sec-Fetch-Site": "same-origin"},
    ],
    ids=str,
)
def test_no_script_of_another_page_reads_what_ours_is_told(tmp_runtime: Places, headers: dict[str, str]) -> None:
    """A page of another user's server has our origin and so our cookie; the value of _xsrf must not reach it."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (_, browser):
            await browser.open()
            answer = await browser.open(**headers)
            assert answer.status_code == 403
            assert browser.xsrf() not in answer.text
            assert "jp-gpu-data" not in answer.text

    play(story)


def test_a_name_ends_no_script() -> None:
    """Whatever somebody is called, it stays data."""
    name = "</script><!--<script>\u2028\u2029 & 'x' \"y\" ü"
    page = frame.live_page({"caller": name, "hub": '/"><b>/', "spawn": "/s"}, script="/a.js", style="/a.css")
    assert not set("<>&\u2028") & set(re.findall(r'id="jp-gpu-data">(.*?)</script>', page)[0])
    parsed = Parsed(page)
    assert parsed.told()["caller"] == name
    assert "b" not in {tag for tag, _ in parsed.tags}


def test_without_javascript_the_page_says_what_else_there_is(tmp_runtime: Places) -> None:
    """The command, and the two places of the hub."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER, base="/j") as (_, browser):
            text = (await browser.open()).text
            said = text[text.index("<noscript>") : text.index("</noscript>")]
            assert "needs JavaScript" in said
            assert "jupyter gpu status" in said
            assert re.findall('href="([^"]+)"', said) == ["/j/hub/spawn", "/j/hub/"]

    play(story)


def test_each_visitor_is_told_their_own_scopes(tmp_runtime: Places) -> None:
    """A contractor's page, and an operator's; a role that was gained meanwhile shows at the next look."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *CONTRACTOR) as (it, browser):
            assert Parsed((await browser.open()).text).told()["scopes"] == ["reserve", "submit"]
            it.hub.people["ana"].scopes = (f"{OURS}operate", f"{OURS}read")
            assert Parsed((await browser.open()).text).told()["scopes"] == ["operate", "read"]

    play(story)


def test_who_has_none_of_our_scopes_reads_why(tmp_runtime: Places, caplog: pytest.LogCaptureFixture) -> None:
    """With the way back; to the log it is one line and no accident."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir) as (_, browser):
            page = await browser.open()
            assert page.status_code == 403
            assert "has none of the scopes" in page.text
            assert "An admin gives them" in page.text
            assert '<a href="/hub/home">' in page.text
            assert "jp-gpu-data" not in page.text

    with caplog.at_level("INFO"):
        play(story)
    assert [it for it in caplog.records if it.exc_info] == []


def test_several_tabs_share_one_session(tmp_runtime: Places) -> None:
    """A second tab does not make the first one's word void."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (_, browser):
            tabs = [Parsed((await browser.open()).text).told()["xsrf"] for _ in range(3)]
            for xsrf in tabs:
                assert (await browser.ask("GET", "/status", xsrf)).status_code == 200

    play(story)


def test_a_page_of_who_was_here_before_shows_nothing_of_who_is_now(tmp_runtime: Places) -> None:
    """Ana logged out and Bo in, in the same browser, while a tab of Ana's stayed open: a reload makes it Bo's."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            hers = Parsed((await browser.open()).text).told()["xsrf"]
            assert (await browser.ask("POST", "/workloads", hers)).status_code == 201
            it.hub.add("bo", *CONTRACTOR)
            it.hub.tokens = {token: known for token, known in it.hub.tokens.items() if known[0] != "ana"}
            browser.person = "bo"
            for path in ("/status", "/stream", "/workloads"):
                gone = await browser.ask("GET", path, hers)
                assert (gone.status_code, "Reload the page" in gone.json()["hint"]) == (401, True)
            told = Parsed((await browser.open()).text).told()
            assert told["caller"] == "bo"
            for path in ("/status", "/stream", "/workloads"):
                stale = await browser.ask("GET", path, hers)
                assert (stale.status_code, "Reload the page" in stale.json()["hint"]) == (403, True)
                assert "ana" not in stale.text
            status = (await browser.ask("GET", "/status", told["xsrf"])).json()
            assert (status["caller"], status["workloads"]) == ("bo", [])

    play(story)


def test_a_new_secret_signs_in_anew_without_a_word(tmp_runtime: Places) -> None:
    """A hub that starts its service anew gives it another token, which signs other cookies: a reload is enough."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            before = Parsed((await browser.open()).text).told()["xsrf"]
            it.app.settings["cookie_secret"] = b"another" * 5
            ended = await browser.ask("GET", "/status", before)
            assert (ended.status_code, "Reload the page" in ended.json()["hint"]) == (401, True)
            after = Parsed((await browser.open()).text).told()["xsrf"]
            assert after != before
            assert (await browser.ask("GET", "/status", after)).json()["caller"] == "ana"

    play(story)


# -- its files


def test_files_are_read_without_a_login_and_kept_for_good(tmp_runtime: Places) -> None:
    """They hold nothing of anybody, and another build has another address."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            for name, address in Parsed((await browser.open()).text).files().items():
                found = await fetch(it, address)
                kind = {SCRIPT: "text/javascript", STYLE: "text/css"}[name]
                assert found.headers["Content-Type"] == f"{kind}; charset=utf-8"
                assert found.headers["Cache-Control"] == "public, max-age=31536000, immutable"
                assert found.headers["X-Content-Type-Options"] == "nosniff"
                assert "Set-Cookie" not in found.headers
                again = await fetch(it, address, **{"If-None-Match": found.headers["ETag"]})
                assert (again.status_code, again.content) == (304, b"")
                packed = it.client(it.root).stream("GET", address, headers={"Accept-Encoding": "gzip"})
                async with packed as answer:
                    raw = b"".join([part async for part in answer.aiter_raw()])
                assert (answer.headers["Content-Encoding"], answer.headers["Vary"]) == ("gzip", "Accept-Encoding")
                assert gzip.decompress(raw) == found.content == BUNDLE[name].data
                head = await it.client(it.root).head(address)
                assert (head.status_code, head.content) == (200, b"")

    play(story)


def test_a_page_from_before_an_upgrade_gets_files_of_now_and_keeps_none(tmp_runtime: Places) -> None:
    """Better than an empty page; its address was another's."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, _):
            found = await fetch(it, f"{it.prefix}/static/0123456789abcdef/{SCRIPT}")
            assert (found.content, found.headers["Cache-Control"]) == (BUNDLE[SCRIPT].data, "no-store")

    play(story)


@pytest.mark.parametrize(
    "path",
    [
        "0123456789abcdef/../page.js",
        "0123456789abcdef/..%2f..%2fpaths.py",
        "0123456789abcdef/%2e%2e/paths.py",
        "0123456789abcdef/paths.py",
        "0123456789abcdef/page.js.map",
        "0123456789abcdef/",
        "page.js",
        "..%2f..%2f..%2f..%2fetc%2fpasswd",
    ],
)
def test_no_path_leads_to_another_file(tmp_runtime: Places, path: str) -> None:
    """Only names that were built are there."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, _):
            found = await fetch(it, f"{it.prefix}/static/{path}")
            assert found.status_code in (401, 403, 404)
            assert "import" not in found.text
            assert "root:" not in found.text

    play(story)


# -- without a build


def test_a_page_that_was_not_built_says_how_to_get_it(tmp_runtime: Places, caplog: pytest.LogCaptureFixture) -> None:
    """Installed with the npm step skipped: plain words, the remedy, and no traceback anywhere."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER, bundle={}) as (it, browser):
            page = await browser.open()
            assert page.status_code == 503
            assert "was not built" in page.text
            assert "pip install --force-reinstall jupyter-gpu" in page.text
            assert "Traceback" not in page.text
            assert "stylesheet" not in page.text
            assert (await fetch(it, f"{it.prefix}/static/0123456789abcdef/{SCRIPT}")).status_code == 404

    with caplog.at_level("INFO"):
        play(story)
    assert [it for it in caplog.records if it.exc_info] == []


def test_a_bundle_is_whole_or_not_there(tmp_path: Path) -> None:
    """A script without its styles would be half a page."""
    assert read_bundle(tmp_path / "nowhere") == {}
    (tmp_path / SCRIPT).write_bytes(b"1;")
    assert read_bundle(tmp_path) == {}
    (tmp_path / STYLE).write_bytes(b"a{}")
    assert read_bundle(tmp_path) == {SCRIPT: built(b"1;"), STYLE: built(b"a{}")}


def test_another_build_has_another_address() -> None:
    """By what is in it."""
    assert built(b"1;").digest != built(b"2;").digest
