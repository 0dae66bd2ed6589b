"""What somebody with one account at the hub tries against the others: to take, see, cancel or starve their work.

Each test is an attack that worked once, or one that would tell most if it did.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.broker.api import routes
from jupyter_gpu.broker.api.routes import ROUTES
from jupyter_gpu.model import Caller
from tests.conftest import Places

from .fake_hub import CONTRACTOR, RESEARCHER
from .ground import Serving, a_service, play
from .test_cookies import a_browser
from .test_page import Parsed, fetch


def test_no_frame_shows_a_script_what_our_page_alone_is_told(tmp_runtime: Places) -> None:
    """A page of Mallory's server has our origin: in a frame of any answer of ours it could read our cookies of there.

    With the value of `_xsrf` it would be Ana, or the operator, to everything here.
    """

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            page = Parsed((await browser.open()).text)
            cookies = {cookie.name: cookie for cookie in browser.http.cookies.jar}
            assert page.told()["xsrf"] == cookies["_xsrf"].value
            for name in ("_xsrf", "service-jupyter-gpu"):
                assert cookies[name].has_nonstandard_attr("HttpOnly"), name
            answers = [await browser.ask("GET", path) for path in ("/status", "/nothing", "/workloads/1/log")]
            for answer in (*answers, *[await fetch(it, address) for address in page.files().values()]):
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]

    play(story)


#: What each act says, where it needs to say anything.
BODIES: dict[str, dict[str, Any]] = {
    "release": {"holder_number": 1},
    "extend": {"seconds": 3600},
    "move": {"holder": {"kind": "kernel", "name": "mallory's"}},
    "renew": {"holder_number": 1, "busy": True},
    "reprioritise": {"priority": 1000},
    "chain": {"after": []},
    "servers": {"name": "", "pid": 1},
    "cordon": {"reason": "mine"},
    "drain": {"reason": "mine"},
}
JOB = {"kind": "job", "spec": {"argv": ["true", "secret words"], "folder": "/tmp"}}


async def work_of_ana(it: Serving, folder: Path) -> list[int]:
    """Ana's reservation, which holds a GPU, her job, which waits with words of hers, and one that is over."""
    ana = it.as_(it.hub.add("ana", *RESEARCHER))
    bodies: list[dict[str, Any]] = [{"kind": "reservation"}, JOB, JOB]
    ids = [(await ana.post("/workloads", json=body)).json()["id"] for body in bodies]
    assert (await ana.post(f"/workloads/{ids[2]}/cancel", json={})).is_success
    for id_ in ids:
        (folder / f"{id_}.1.log").write_text("secret words")
    return ids


@pytest.mark.parametrize("scopes", [RESEARCHER, CONTRACTOR], ids=["researcher", "contractor"])
def test_no_route_does_anything_with_what_is_anothers(tmp_runtime: Places, scopes: tuple[str, ...]) -> None:
    """Every route that there is, with every id of Ana's; nothing is told but that there is none, or whose it is not."""

    async def story() -> None:
        folder = tmp_runtime.runtime_dir
        async with a_service(folder, accounts={"*": getpass.getuser()}) as it:
            ids = await work_of_ana(it, folder)
            mallory = it.as_(it.hub.add("mallory", *scopes))
            before, tried = it.loop.world.revision, 0
            for path, method, target in asks_about(ids):
                act = path.rpartition("/")[2]
                url = re.sub(r"\(\[\^/\]\+\)", target, path)
                words = {"json": BODIES.get(act, {})} if method == "post" else {}
                answer = await mallory.request(method, url + "?timeout=0" * (act == "wait"), **words)
                tried += 1
                assert "secret" not in answer.text, (method, url)
                if method != "get":
                    assert answer.status_code in (403, 404), (method, url, answer.text)
                elif scopes is CONTRACTOR:
                    nothing = await mallory.get(url.replace(f"/{target}", "/999"))
                    assert answer.status_code == nothing.status_code == 404, url
                    assert answer.text == nothing.text.replace("999", target)
            assert tried > 40
            assert it.loop.world.revision == before

    play(story)


def asks_about(ids: list[int]) -> Iterator[tuple[str, str, str]]:
    """Every route and verb that names somebody's work, a device, a server or the broker, with each of its names."""
    for path, handler in ROUTES:
        for method in ("get", "post", "delete"):
            if not hasattr(getattr(handler, method), "operation"):
                continue
            if path.startswith("/workloads/"):
                yield from ((path, method, str(id_)) for id_ in ids)
            elif path.startswith(("/devices/", "/servers", "/broker/")):
                yield path, method, "GPU-0"


@pytest.mark.parametrize("name", ["mal\x1b[2Jlory", "mal\nlory", "\u202eana", "ana\u2066"])
def test_nobody_is_called_what_a_terminal_would_obey(tmp_runtime: Places, name: str) -> None:
    """Many hubs let people choose their names, which others read in tables, logs and messages."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            mallory = it.as_(it.hub.add(name, *RESEARCHER))
            for answer in (
                await mallory.get("/status"),
                await mallory.post("/workloads", json={"kind": "reservation"}),
            ):
                assert (answer.status_code, "control characters" in answer.json()["message"]) == (403, True)
                assert not set(answer.json()["message"]) & set("\x1b\n\u202e\u2066")
            assert not it.loop.world.workloads

    play(story)


def test_the_description_is_made_once(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as twenty other answers; a hundred requests for it at a time kept everybody waiting."""
    made: list[int] = []
    monkeypatch.setattr(routes, "document", lambda table: made.append(len(table)) or "{}")
    monkeypatch.setattr(routes, "_description", functools.cache(routes._description.__wrapped__))

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            mallory = it.as_(it.hub.add("mallory", *RESEARCHER))
            answers = await asyncio.gather(*(mallory.get("/openapi.json") for _ in range(20)))
            assert {answer.text for answer in answers} == {"{}"}

    play(story)
    assert made == [len(ROUTES)]


def test_however_much_one_asks_at_once_others_are_answered_in_between(tmp_runtime: Places) -> None:
    """Of one caller one document is made at a time; the others of theirs wait, and nobody else does."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            mallory, ana = it.as_(it.hub.add("mallory", *RESEARCHER)), it.as_(it.hub.add("ana", *RESEARCHER))
            paths = ("/status", "/devices", "/quota", "/offers", "/workloads?queue=none")
            turn = it.app.turn_of(Caller(name="mallory", account=""))
            async with turn:
                waiting = [asyncio.ensure_future(mallory.get(path)) for path in paths * 2]
                for path in paths:
                    assert (await ana.get(path)).status_code == 200
                assert not any(one.done() for one in waiting)
                assert (await mallory.get("/broker")).status_code == 200
            assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}

    play(story)
