"""The hub's list of servers: what is on it lives, what is missing for a minute ends, and silence ends nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.broker.hub import servers as module
from jupyter_gpu.broker.hub.servers import GONE_SECONDS, Servers, server_of
from jupyter_gpu.model import Caller, Holder, Policy, Reading, Scope, State
from tests.broker.ground import Clock, a_job, a_reservation
from tests.conftest import Places

from .ground import Serving, a_service, play

OPERATOR = Caller(name="oper", account="", scopes=frozenset({Scope.OPERATE}))


class Play:
    """A service whose clock only the test moves, and what it has seen."""

    def __init__(self, it: Serving, clock: Clock) -> None:
        self.it, self.clock = it, clock
        self.servers = Servers(it.loop, it.service.hub)

    async def reserve(self, name: str, owner: str = "", kind: str = "server", **ask: Any) -> int:
        """A reservation as the spawner makes it: `name` is USER/SERVER."""
        holder = Holder(kind=kind, name=name)
        command = a_reservation(owner or name.partition("/")[0], holder, **ask)
        answer = await self.it.loop.handle(command)
        assert answer.workload is not None
        return answer.workload

    async def look(self, after_seconds: float = 0.0) -> None:
        """Look at the list, later."""
        self.clock.now += after_seconds
        await self.servers.look()

    def has(self, number: int) -> bool:
        """Whether a reservation is neither given back nor over."""
        it = self.it.loop.world.workloads[number]
        return it.state is not State.ENDED and it.outcome is None

    def alerts(self) -> list[str]:
        """What operators are told."""
        return [alert.text for alert in self.it.loop.alerts.views(OPERATOR)]


@contextlib.asynccontextmanager
async def a_play(folder: Path, **words: Any) -> AsyncIterator[Play]:
    """Ana has a default server and a named one, grace has one."""
    clock = Clock()
    async with a_service(folder, clock=clock, **{"count": 4, **words}) as it:
        for name, servers in (("ana", ("", "train")), ("grace", ("",)), ("ana.b@uni.example", ("",))):
            it.hub.add(name, "reserve")
            it.hub.people[name].servers = dict.fromkeys(servers)
        yield Play(it, clock)


def test_a_server_that_ended_while_the_hub_was_down_gives_back(tmp_runtime: Places) -> None:
    """No hook tells of it (jupyterhub/jupyterhub#4519): its absence from the list does, after a minute."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir) as play_:
            mine, named = await play_.reserve("ana/"), await play_.reserve("ana/train")
            other = await play_.reserve("ana.b@uni.example/")
            await play_.look()
            del play_.it.hub.people["ana"].servers["train"]
            play_.it.hub.people["ana.b@uni.example"].servers.clear()
            await play_.look()
            await play_.look(GONE_SECONDS - 1)
            assert [play_.has(it) for it in (mine, named, other)] == [True, True, True]
            await play_.look(1)
            assert [play_.has(it) for it in (mine, named, other)] == [True, False, False]
            detail = play_.it.loop.world.workloads[named].outcome
            assert detail is not None
            assert "the hub lists the server ana/train no more" in detail.detail

    play(story)


@pytest.mark.parametrize("pending", ["spawn", "stop", "check", "rename"])
def test_a_server_that_starts_or_stops_is_there(tmp_runtime: Places, pending: str) -> None:
    """Whatever is about to happen to it: its reservation came before it, and waits with it."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir, count=1) as play_:
            first = await play_.reserve("ana/")
            waits = await play_.reserve("grace/")
            assert play_.it.loop.world.workloads[waits].state is State.QUEUED
            for name in ("ana", "grace"):
                play_.it.hub.people[name].servers[""] = pending
            await play_.look()
            await play_.look(10 * GONE_SECONDS)
            assert play_.has(first)
            assert play_.has(waits)
            # A start that was given up leaves no ask behind.
            play_.it.hub.people["grace"].servers.clear()
            await play_.look()
            await play_.look(GONE_SECONDS)
            assert not play_.has(waits)

    play(story)


def test_one_missing_look_ends_nothing(tmp_runtime: Places) -> None:
    """A list may miss one whose page moved under it: what is there again begins anew."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir) as play_:
            mine = await play_.reserve("ana/")
            for _ in range(4):
                play_.it.hub.people["ana"].servers.pop("", None)
                await play_.look(GONE_SECONDS / 2)
                play_.it.hub.people["ana"].servers[""] = None
                await play_.look(GONE_SECONDS / 2)
            assert play_.has(mine)

    play(story)


@pytest.mark.parametrize("how", ["gone", "trouble", "may not list", "shows no servers"])
def test_a_hub_that_cannot_be_asked_ends_nothing(tmp_runtime: Places, how: str) -> None:
    """However long; operators are told, with what to do; and the minute begins anew when it answers."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir) as play_:
            hub, mine = play_.it.hub, await play_.reserve("ana/")
            hub.people["ana"].servers.clear()
            await play_.look()
            play_.it.loop._renewals._by[mine] = 0.0
            scopes = set(hub.service_scopes)
            if how == "gone":
                await hub.close()
            hub.trouble = 503 if how == "trouble" else None
            lacks = {"may not list": {"list:users"}, "shows no servers": {"read:servers"}}.get(how, set())
            hub.service_scopes -= lacks
            for _ in range(5):
                await play_.look(GONE_SECONDS)
                assert play_.has(mine)
                # A container's kernel could not renew with a hub that does not say who it is.
                assert mine not in play_.it.loop._renewals._by
            (told,) = play_.alerts()
            assert ("list:users and read:servers" if lacks else "JupyterHub cannot be asked") in told
            hub.trouble, hub.service_scopes = None, scopes
            if how == "gone":
                hub.open()
            await asyncio.sleep(1.1)  # who was away is not asked again at once
            await play_.look(GONE_SECONDS)
            assert play_.has(mine)
            assert play_.alerts() == []
            await play_.look(GONE_SECONDS)
            assert not play_.has(mine)

    play(story)


def test_the_list_renews_what_has_no_process_here(tmp_runtime: Places) -> None:
    """A server in a container renews nothing itself, and lives for as long as the hub says so."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir) as play_:
            mine = await play_.reserve("ana/")
            lapse = play_.it.loop.world.policy.lapse_seconds
            for _ in range(10):
                await play_.look(lapse - 1)
                assert not play_.it.loop.has_lapsed(play_.it.loop.world.workloads[mine])

    play(story)


def test_of_two_starts_of_one_server_the_later_counts(tmp_runtime: Places) -> None:
    """A start whose end nobody told of does not hold devices in the name of the next one."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir) as play_:
            first, second = await play_.reserve("ana/"), await play_.reserve("ana/")
            await play_.look()
            await play_.look(GONE_SECONDS)
            assert [play_.has(first), play_.has(second)] == [False, True]

    play(story)


def test_only_servers_are_the_hubs_to_end(tmp_runtime: Places) -> None:
    """Kernels, shells and commands live by their own signs; so does what merely calls itself somebody's server."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir, count=6) as play_:
            play_.it.hub.people["ana"].servers.clear()
            numbers = [
                await play_.reserve("ana/", kind="kernel"),
                await play_.reserve("k", owner="ana", kind="kernel"),
                await play_.reserve("server", owner="ana"),
                await play_.reserve("grace/", owner="ana"),
            ]
            await play_.look()
            await play_.look(GONE_SECONDS)
            assert all(play_.has(it) for it in numbers)
            assert {server_of(play_.it.loop.world.workloads[it]) for it in numbers} == {None}

    play(story)


def test_a_list_of_several_pages_is_read_to_its_end(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub gives no more than so many users at once, whatever it is asked for."""

    async def story() -> None:
        monkeypatch.setattr(module, "PAGE_USERS", 2)
        async with a_play(tmp_runtime.runtime_dir) as play_:
            for number in range(5):
                play_.it.hub.add(f"more{number}", "reserve")
                play_.it.hub.people[f"more{number}"].servers = {"": None}
            last = await play_.reserve("more4/")
            await play_.look()
            await play_.look(GONE_SECONDS)
            assert play_.has(last)
            assert play_.it.hub.asked.count("GET /hub/api/users") == 2 * 4

    play(story)


# -- activity


def test_a_server_whose_owner_uses_a_device_is_in_use(tmp_runtime: Places) -> None:
    """So the culler leaves it: by its own reservation or one of its owner's kernel; not by a job, which outlives it."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir) as play_:
            await play_.reserve("ana/train")
            await play_.reserve("k", owner="ana.b@uni.example", kind="kernel")
            await play_.it.loop.handle(a_job("grace"))
            await play_.look(module.ACTIVITY_SECONDS)
            heard = {user: set(servers) for user, servers in play_.it.hub.activity}
            assert heard == {"ana": {"train"}, "ana.b@uni.example": {""}}
            # Once a minute is enough.
            await play_.look(1)
            assert len(play_.it.hub.activity) == 2
            await play_.look(module.ACTIVITY_SECONDS)
            assert len(play_.it.hub.activity) == 4

    play(story)


def test_a_device_that_does_nothing_for_long_is_no_use(tmp_runtime: Places) -> None:
    """As long as the policy bears it; what is not read counts as used, and where nothing is ever idle so does all."""

    async def story(bears: int | None, percent: int | None, is_told: bool) -> None:
        policy = Policy(idle_warn_seconds=bears)
        async with a_play(tmp_runtime.runtime_dir, policy=policy) as play_:
            mine = await play_.reserve("ana/")
            lease = play_.it.loop.world.workloads[mine].lease
            assert lease is not None
            uuid = lease.devices[0]
            play_.it.loop.world.readings[uuid] = Reading(uuid=uuid, at=0.0, utilisation_percent=percent)
            await play_.look()
            play_.it.hub.activity.clear()
            await play_.look(601)
            assert bool(play_.it.hub.activity) is is_told

    cases = ((600, 0, False), (600, 2, False), (600, 50, True), (600, None, True), (None, 0, True))
    for case in cases:
        asyncio.run(story(*case))
        (tmp_runtime.runtime_dir / "s").unlink()
        for file in sorted((tmp_runtime.runtime_dir / "state").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()


def test_what_the_hub_does_not_take_stops_nothing(tmp_runtime: Places) -> None:
    """Without the scope users:activity, or for a server that is just gone: the list is acted on all the same."""

    async def story() -> None:
        async with a_play(tmp_runtime.runtime_dir) as play_:
            await play_.reserve("ana/")
            gone = await play_.reserve("grace/")
            play_.it.hub.people["grace"].servers.clear()
            play_.it.hub.service_scopes.discard("users:activity")
            await play_.look()
            await play_.look(GONE_SECONDS)
            assert not play_.has(gone)
            assert play_.it.hub.activity == []

    play(story)
