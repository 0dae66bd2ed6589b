"""The page's visitor: signed in at the hub, with a cookie that no other page can use."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from jupyter_gpu.broker.api.routes import make_application
from jupyter_gpu.broker.hub.secret import LASTS_SECONDS, NAME, cookie_secret
from jupyter_gpu.broker.hub.service import Service
from jupyter_gpu.broker.visits import Book
from tests.conftest import Places

from .fake_hub import CONTRACTOR, OURS, RESEARCHER
from .ground import Serving, a_service, play

#: What a browser says of a request of a page of ours.
FETCH = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
RESERVE = {"kind": "reservation"}


class Browser:
    """Keeps cookies, and goes where it is sent: to the hub and back, as the proxy would have it."""

    def __init__(self, it: Serving, person: str) -> None:
        self.it, self.person = it, person
        self.http = httpx.AsyncClient(trust_env=False)
        self.been: list[str] = []

    async def open(self, path: str = "/", **headers: str) -> httpx.Response:
        """Open a page, and sign in on the way where that is asked for."""
        url = f"{self.it.root}{self.it.prefix}{path}"
        for _ in range(6):
            self.been.append(url)
            answer = await self.http.get(
                url, headers={"Sec-Fetch-Mode": "navigate", "X-Person": self.person, **headers}
            )
            if not answer.is_redirect:
                return answer
            where = answer.headers["Location"]
            host = self.it.hub.url if "/hub/api/oauth2/" in where else self.it.root
            assert where.startswith("/"), "nobody is sent to another host"
            url = f"{host}{where}"
        raise AssertionError(f"it goes round and round: {self.been}")

    def xsrf(self) -> str:
        """What the page reads from its cookie."""
        return next(it.value or "" for it in self.http.cookies.jar if it.name == "_xsrf")

    async def ask(self, method: str, path: str, xsrf: str | None = None, **headers: str) -> httpx.Response:
        """Ask the API as the page does."""
        more = {} if xsrf is None else {"X-XSRFToken": xsrf}
        url = f"{self.it.root}{self.it.prefix}/api/v1{path}"
        body = RESERVE if method == "POST" and path == "/workloads" else None
        return await self.http.request(method, url, headers={**FETCH, **more, **headers}, json=body)


@contextlib.asynccontextmanager
async def a_browser(folder: Path, *scopes: str, **words: object) -> AsyncIterator[tuple[Serving, Browser]]:
    """Ana's browser, before she opens anything."""
    async with a_service(folder, **words) as it:  # type: ignore[arg-type]
        it.hub.add("ana", *scopes)
        browser = Browser(it, "ana")
        try:
            yield it, browser
        finally:
            await browser.http.aclose()


@pytest.mark.parametrize("base", ["", "/j", "/a/b"])
def test_a_visitor_signs_in_at_the_hub_and_comes_back(tmp_runtime: Places, base: str) -> None:
    """Below every prefix, to the page that was asked for, and once (jupyterhub/jupyterhub-deploy-docker#76)."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER, base=base) as (it, browser):
            page = await browser.open("/?view=all")
            assert page.status_code == 200, page.text
            assert browser.been[-1] == f"{it.root}{base}/services/jupyter-gpu/?view=all"
            assert len(browser.been) == 4
            assert (await browser.open("/")).status_code == 200
            assert len(browser.been) == 5
            answer = await browser.ask("GET", "/status", browser.xsrf())
            assert answer.json()["caller"] == "ana"

    play(story)


def test_no_slip_of_a_path_leads_elsewhere(tmp_runtime: Places) -> None:
    """Whoever opens a link with doubled slashes comes back to us, and to no host that the path seems to name."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            answer = await browser.http.get(f"{it.root}//services/jupyter-gpu//", headers={"X-Person": "ana"})
            state = answer.headers["Location"].partition("state=")[2]
            assert it.service.hub.get_next_url(state) == "/services/jupyter-gpu/"

    play(story)


def test_a_cookie_needs_what_only_our_page_can_read(tmp_runtime: Places) -> None:
    """jupyterhub/jupyterhub#4845: (a) a token alone, (b) cookie and header, (c) a cookie alone, which is refused."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            await browser.open()
            a_token = it.as_(it.hub.add("bob", *RESEARCHER), **FETCH)
            assert (await a_token.post("/workloads", json=RESERVE)).status_code == 201
            assert (await browser.ask("POST", "/workloads", browser.xsrf())).status_code == 202
            asks = (("POST", "/workloads"), ("GET", "/status"), ("GET", "/workloads"), ("GET", "/stream"))
            for xsrf in (None, "", "wrong", browser.xsrf()[:-1], browser.xsrf() + "="):
                for method, path in asks:
                    answer = await browser.ask(method, path, xsrf)
                    assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed"), (method, path, xsrf)
                    assert "X-XSRFToken" in answer.json()["message"]
            assert len(it.loop.world.workloads) == 2

    play(story)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Mode": "websocket", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Mode": "", "Sec-Fetch-Site": ""},
    ],
    ids=str,
)
def test_a_page_of_another_user_reads_nothing(tmp_runtime: Places, headers: dict[str, str]) -> None:
    """Their servers share our origin, so what a frame or a new window shows is theirs to read: it shows nothing."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (_, browser):
            page = await browser.open()
            assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
            for path in ("/status", "/stream", "/workloads"):
                answer = await browser.ask("GET", path, **headers)
                assert answer.status_code == 403
                assert "ana" not in answer.text

    play(story)


def test_a_session_that_ended_is_told_from_what_is_not_allowed(tmp_runtime: Places) -> None:
    """401 asks for a reload, which signs in again without a word; 403 stays as it is (jupyterhub/jupyterhub#4744)."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            nobody = await browser.ask("GET", "/status")
            assert (nobody.status_code, nobody.json()["hint"].startswith("Reload the page")) == (401, True)
            await browser.open()
            xsrf = browser.xsrf()
            it.hub.tokens.clear()  # signed out at the hub, or too long ago
            ended = await browser.ask("GET", "/status", xsrf)
            assert (ended.status_code, ended.json()["hint"]) == (401, "Reload the page.")
            assert (await browser.open()).status_code == 200
            assert (await browser.ask("GET", "/status", browser.xsrf())).json()["caller"] == "ana"
            it.hub.people["ana"].scopes = ()
            assert (await browser.ask("GET", "/status", browser.xsrf())).status_code == 403
            page = await browser.open()
            assert (page.status_code, "custom:jupyter-gpu" in page.text) == (403, True)

    play(story)


@contextlib.asynccontextmanager
async def started_anew(it: Serving) -> AsyncIterator[None]:
    """The service as a hub that was restarted would start it: with another token, at another port of the same host."""
    sockets = bind_sockets(0, "127.0.0.1")
    port, root = sockets[0].getsockname()[1], it.root
    environ = it.hub.environ(port, JUPYTERHUB_API_TOKEN="another-token")
    app = SimpleNamespace(hub_cache_seconds=0, account_of_user="", system=False, tokens=None, hub_socket_scopes=())
    service = Service(app, Book(), environ, bundle=it.service.bundle)  # type: ignore[arg-type]
    service.join(it.loop)
    server = HTTPServer(make_application(it.loop, service.gate, **service.words))
    server.add_sockets(sockets)
    it.root = f"http://127.0.0.1:{port}"
    try:
        yield
    finally:
        it.root = root
        server.stop()
        await server.close_all_connections()
        await service.close()


def test_a_restart_of_hub_and_service_signs_nobody_out(tmp_runtime: Places) -> None:
    """A page that was open goes on; and who was signed out meanwhile stays so."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            await browser.open()
            xsrf = browser.xsrf()
            async with started_anew(it):
                assert (await browser.ask("GET", "/status", xsrf)).json()["caller"] == "ana"
                assert (await browser.ask("POST", "/workloads", xsrf)).status_code == 201
                assert (await browser.ask("GET", "/status", "wrong")).status_code == 403
                it.hub.tokens.clear()
                assert (await browser.ask("GET", "/status", xsrf)).status_code == 401

    play(story)


def test_without_what_was_kept_all_sign_in_again(tmp_runtime: Places) -> None:
    """Whoever fears that it was stolen removes it."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            await browser.open()
            xsrf = browser.xsrf()
            (tmp_runtime.runtime_dir / "state" / NAME).unlink()
            async with started_anew(it):
                assert (await browser.ask("GET", "/status", xsrf)).status_code == 401

    play(story)


def test_what_signs_cookies_is_random_and_our_accounts_alone(tmp_path: Path) -> None:
    """Made once, for one service; anew where somebody else could know it, or it is as old as no cookie is."""
    now = time.time()
    first = cookie_secret(tmp_path, "service-one")
    assert first is not None
    assert len(first) == 32
    kept = tmp_path / NAME
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_bytes() not in first
    assert cookie_secret(tmp_path, "service-one", now=now + 60) == first
    assert cookie_secret(tmp_path, "service-two", now=now + 60) != first

    seen = [first]
    for spoil in (
        lambda: kept.chmod(0o640),
        lambda: kept.write_bytes(b"short"),
        lambda: (kept.rename(tmp_path / "elsewhere"), kept.symlink_to(tmp_path / "elsewhere")),
        lambda: os.utime(kept, (now - LASTS_SECONDS - 60,) * 2),
        kept.unlink,
    ):
        spoil()
        seen.append(cookie_secret(tmp_path, "service-one", now=now + 60))
        assert stat.S_IMODE(kept.stat(follow_symlinks=False).st_mode) == 0o600
    assert len(set(seen)) == len(seen)


def test_where_nothing_can_be_kept_the_service_starts_all_the_same(tmp_path: Path) -> None:
    """Cookies are then as lasting as the hub's token for the service."""
    assert cookie_secret(tmp_path / "not there", "service-one") is None


def test_a_cookie_gives_the_scopes_of_its_token(tmp_runtime: Places) -> None:
    """The hub gives the page's token what its user has; a contractor's page shows a contractor's things."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *CONTRACTOR) as (it, browser):
            await browser.open()
            xsrf = browser.xsrf()
            assert (await browser.ask("POST", "/workloads", xsrf)).status_code == 201
            assert (await browser.ask("POST", "/devices/0/cordon", xsrf)).status_code == 403
            it.hub.people["ana"].scopes = (f"{OURS}operate",)
            assert (await browser.ask("POST", "/devices/0/cordon", xsrf)).status_code == 200

    play(story)


def test_a_cookie_speaks_for_nobody_else(tmp_runtime: Places) -> None:
    """Nor does it count where a token is shown as well."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (_, browser):
            await browser.open()
            forged = {"X-Jupyter-Gpu-For": "grace"}
            assert (await browser.ask("GET", "/status", browser.xsrf(), **forged)).status_code == 403
            wrong = {"Authorization": "token wrong"}
            assert (await browser.ask("GET", "/status", browser.xsrf(), **wrong)).status_code == 403

    play(story)


def test_a_hub_that_is_away_is_said_on_the_page(tmp_runtime: Places) -> None:
    """503 in words, for people."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            await browser.open()
            it.hub.trouble = 500
            page = await browser.open()
            assert (page.status_code, "JupyterHub cannot be asked" in page.text) == (503, True)
            assert page.headers["Content-Type"].startswith("text/html")

    play(story)


def test_nothing_is_changed_by_looking(tmp_runtime: Places) -> None:
    """No GET changes anything, on the pages and in the API; pages take nothing else."""

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            await browser.open()
            for verb in ("cancel", "release", "extend", "pause", "let-go", "move", "renew"):
                assert (await browser.ask("GET", f"/workloads/1/{verb}", browser.xsrf())).status_code == 405
            page = f"{it.root}{it.prefix}/"
            for method in ("POST", "PUT", "DELETE"):
                assert (await browser.http.request(method, page)).status_code in (403, 405)

    play(story)
