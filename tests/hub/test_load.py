"""What many users cost the hub and the service: how often is asked, and how often the same is made."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.spawner import SpawnException

from jupyter_gpu import pins
from jupyter_gpu.broker.api import views
from jupyter_gpu.broker.hub import auth
from jupyter_gpu.broker.hub.servers import Servers
from jupyter_gpu.core import offers as core_offers
from jupyter_gpu.core.dry_run import would_be
from jupyter_gpu.errors import BrokerUnavailable, LeaseLost, NotAllowed
from jupyter_gpu.jupyter import server_word
from jupyter_gpu.model import Holder, Renewal
from tests.broker.ground import Clock, a_reservation
from tests.conftest import Places

from .fake_hub import RESEARCHER
from .ground import Serving, a_service, play
from .spawn_ground import NONE, ONE, TWO, a_hall

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


# -- what the service asks by itself


async def computing(it: Serving, count: int) -> Servers:
    """So many users, each of whose servers holds a GPU and computes."""
    for number in range(count):
        name = f"user-{number}"
        it.hub.add(name, *RESEARCHER)
        it.hub.people[name].servers = {"": None}
        await it.loop.handle(a_reservation(name, Holder(kind="server", name=f"{name}/")))
    return Servers(it.loop, it.service.hub)


def test_a_look_at_two_hundred_servers_is_one_question(tmp_runtime: Places) -> None:
    """And a hub has no other way to hear that they are in use than one word for each, once a minute."""

    async def story() -> None:
        clock = Clock()
        async with a_service(tmp_runtime.runtime_dir, clock=clock, count=4) as it:
            for number in range(196):
                it.hub.add(f"at-rest-{number}")
                it.hub.people[f"at-rest-{number}"].servers = {"": None}
            servers = await computing(it, 4)
            it.hub.page_users = 1000
            it.hub.asked.clear()
            await servers.look()
            asked = Counter(text.rpartition("/")[2] for text in it.hub.asked)
            assert asked == {"users": 1, "activity": 4}
            clock.now += 30
            await servers.look()
            assert len(it.hub.asked) == 6

    play(story)


def test_a_hub_that_hears_nothing_is_not_told_of_all_others_too(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each word to it would wait for seconds, and the list of servers with them; a refusal of one keeps none back."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, count=4) as it:
            servers = await computing(it, 4)
            told: list[str] = []
            request, error = it.service.hub.request, BrokerUnavailable("it did not answer")

            async def hears_nothing(method: str, path: str, *rest: Any, **words: Any) -> Any:
                if method != "POST":
                    return await request(method, path, *rest, **words)
                told.append(path)
                raise error

            monkeypatch.setattr(it.service.hub, "request", hears_nothing)
            await servers.look()
            assert len(told) == 1
            error = NotAllowed("it may not be told")  # type: ignore[assignment]
            await Servers(it.loop, it.service.hub).look()
            assert len(told) == 5

    play(story)


def test_a_page_of_choices_asks_for_no_whole_document(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred people open it at nine, and each document would tell of all that two hundred hold."""

    async def story() -> None:
        async with a_hall(tmp_runtime.runtime_dir) as (hall, _serving):
            asked: list[str] = []
            monkeypatch.setattr(views, "whole_status", lambda *_: asked.append("whole"))
            form = await hall.spawner("ana").get_options_form()
            assert "2 of 2 free now" in form
            assert not asked

    play(story)


def test_a_start_tries_nothing_but_what_was_chosen(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred start at nine: what is theirs is only read, and none at all is tried of a start without GPUs.

    Who is refused is told what else there is, and only for them all of it is tried.
    """

    async def story() -> None:
        async with a_hall(tmp_runtime.runtime_dir, gpu_profiles=[TWO, NONE, ONE]) as (hall, _serving):
            tried: list[str] = []

            def counted(world: Any, command: Any, now: float) -> Any:
                tried.append(command.profile)
                return would_be(world, command, now)

            monkeypatch.setattr(core_offers, "would_be", counted)
            for number in range(2):
                await hall.user(f"user-{number}").spawn("", options={"gpu_profile": "one"})
            assert tried == ["one", "one"]
            tried.clear()
            await hall.user("cho").spawn("", options={"gpu_profile": "none"})
            assert tried == []
            with pytest.raises(SpawnException, match="is not free now"):
                await hall.user("dan").spawn("", options={"gpu_profile": "one"})
            assert Counter(tried)["one"] <= 2
            assert {"one", "two"} <= set(tried)

    play(story)


# -- what a server asks


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
