"""What many users cost the hub and the service: how often is asked, and how often the same is made."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu import pins
from jupyter_gpu.broker.hub import auth
from jupyter_gpu.errors import LeaseLost
from jupyter_gpu.jupyter import server_word
from jupyter_gpu.model import Holder, Renewal
from tests.conftest import Places

from .fake_hub import RESEARCHER
from .ground import Serving, a_service, play

RESERVE = {"kind": "reservation", "ask": {"devices": 1}, "holder": {"kind": "server", "name": "ana/"}}


async def reserved(it: Serving, token: str) -> str:
    """Where a reservation of hers is renewed."""
    answer = await it.as_(token).post("/workloads", json=RESERVE)
    assert answer.status_code == 201
    return f"/workloads/{answer.json()['id']}/renew"


async def renews(it: Serving, token: str, path: str) -> int:
    """The status of one renewal."""
    return (await it.as_(token).post(path, json={"holder_number": 1})).status_code


# -- who says that they live


def test_to_renew_asks_the_hub_nothing(tmp_runtime: Places) -> None:
    """Two hundred servers renew three times a minute; the hub's word on their owners is good enough for a while."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, cache_seconds=0.0) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            path = await reserved(it, ana)
            asked = len(it.hub.asked)
            for _ in range(5):
                assert await renews(it, ana, path) == 200
            assert len(it.hub.asked) == asked
            await it.as_(ana).get("/status")
            assert len(it.hub.asked) == asked + 1, "all else is asked as ever"

    play(story)


def test_a_token_that_was_revoked_does_nothing_but_renew(tmp_runtime: Places) -> None:
    """And that for a while only: what its owner holds is kept, and nothing is shown, started or ended."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, cache_seconds=0.0) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            path = await reserved(it, ana)
            del it.hub.tokens[ana]
            assert await renews(it, ana, path) == 200
            for verb, other in (("GET", ""), ("POST", "/release"), ("POST", "/keep"), ("POST", "/cancel")):
                answer = await it.as_(ana).request(verb, path.removesuffix("/renew") + other)
                assert answer.status_code == 403, other
            # Since it was refused elsewhere it is known to be nobody's.
            assert await renews(it, ana, path) == 403

    play(story)


def test_the_hubs_word_is_not_good_for_ever(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only ever renews is asked about again."""

    async def story() -> None:
        monkeypatch.setattr(auth, "KEEPS_SECONDS", 0.0)
        async with a_service(tmp_runtime.runtime_dir, cache_seconds=0.0) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            path = await reserved(it, ana)
            del it.hub.tokens[ana]
            assert await renews(it, ana, path) == 403

    play(story)


def test_a_hub_that_is_away_keeps_nobody_from_renewing(tmp_runtime: Places) -> None:
    """A hub that is restarted is back long before its word is too old."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, cache_seconds=0.0) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            path = await reserved(it, ana)
            await it.hub.close()
            assert await renews(it, ana, path) == 200

    play(story)


class Told:
    """A broker that is told of one server, which it names anew once."""

    def __init__(self, *answers: str) -> None:
        self.asked: list[str] = []
        self.number = 1
        self._answers = list(answers)

    async def workload(self, id_: int) -> Any:
        self.asked.append(f"look at {id_}")
        return SimpleNamespace(
            id=id_,
            end=None if self._answers else "released",
            outcome=None,
            holder=Holder(kind="server", name="ana/", number=self.number),
        )

    async def renew(self, id_: int, number: int, **_word: Any) -> Renewal:
        self.asked.append(f"renew {id_} as {number}")
        if self._answers.pop(0) == "moved":
            self.number += 1
            raise LeaseLost("it has moved")
        return Renewal(renew_by=time.time(), ends_at=None, notice=None)


def test_a_server_looks_at_its_reservation_once_and_then_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the requests, and none of them shows anything; it looks again only where it was refused."""
    monkeypatch.setenv(pins.RESERVATION, "7")
    monkeypatch.setattr(server_word, "RENEW_SECONDS", 0.01)
    told = Told("yes", "yes", "moved", "yes", "moved")
    manager = SimpleNamespace(list_kernel_ids=list)
    serverapp = SimpleNamespace(
        web_app=SimpleNamespace(settings={}), kernel_manager=manager, log=SimpleNamespace(debug=lambda *_: None)
    )

    async def story() -> None:
        await server_word.say_for_ever(serverapp, SimpleNamespace(kernels={}), lambda: told)  # type: ignore[arg-type, return-value]

    play(story)
    assert told.asked == [
        "look at 7", "renew 7 as 1", "renew 7 as 1", "renew 7 as 1",
        "look at 7", "renew 7 as 2", "renew 7 as 2",
        "look at 7",
    ]  # fmt: skip
