"""Who calls, by the word of a hub: tokens, scopes, groups; what a hub that is away means; and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from jupyter_gpu.broker.hub import asking
from jupyter_gpu.model import Caller, Policy, Scope
from tests.broker.ground import a_reservation
from tests.conftest import Places

from .fake_hub import CONTRACTOR, OURS, RESEARCHER
from .ground import SPAWNER_TOKEN, Serving, a_service, play

ME = getpass.getuser()
#: As people are called on hubs with single sign-on: jupyterhub/jupyterhub#345, jupyterhub/jupyterhub#2128,
#: jupyterhub/jupyterhub#1717.
NAMES = (
    *("ana.b@uni.example", "LAB\\ana", "ana~1", "ana b", "ana+gpu@uni.example", "анна", "user (test)"),
    *("..", "ana%2e", "ana%2E", "Ana", "ana", "é", "e\u0301"),
)
RESERVE = {"kind": "reservation"}
#: What a client says of an answer that ends before it is whole.
CUT = r"incomplete|closed|disconnected"


def job(*argv: str) -> dict[str, Any]:
    """A job that could run here."""
    return {"kind": "job", "spec": {"argv": list(argv) or ["true"], "folder": "/tmp"}}


async def caller(it: Serving, token: str) -> dict[str, Any]:
    """Who the service takes the bearer for."""
    answer = await it.as_(token).get("/status")
    assert answer.status_code == 200, answer.text
    return answer.json()["caller"]


# -- tokens


def test_a_token_of_the_hub_says_who_calls(tmp_runtime: Places) -> None:
    """In both spellings, below the prefix and without it, and over the socket too."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            for scheme in ("token", "Bearer"):
                for base_ in (f"{it.root}{it.prefix}/api/v1", f"{it.root}/api/v1"):
                    client = it.client(base_, headers={"Authorization": f"{scheme} {ana}"})
                    assert (await client.get("/status")).json()["caller"] == "ana"
            over_socket = await it.here().get("/status", headers={"Authorization": f"token {ana}"})
            assert over_socket.json()["caller"] == "ana"

    play(story)


@pytest.mark.parametrize(
    "token", ["wrong", "token-0 token-0", "ä", "x" * 5000, "../user", "token-0%00", "Bearer token-0"]
)
def test_what_is_no_token_of_anybody_is_refused(tmp_runtime: Places, token: str) -> None:
    """403 with what to do; what cannot be a token is not even asked about."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            it.hub.add("ana", *RESEARCHER)
            answer = await it.client().get("/status", headers=[(b"Authorization", f"token {token}".encode())])
            assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed")
            assert "expired" in answer.json()["hint"]
            could_be = token.isascii() and token.isprintable() and " " not in token and len(token) < 5000
            assert it.hub.asked == (["GET /hub/api/user"] if could_be else [])

    play(story)


def test_huge_headers_take_nothing_from_others(tmp_runtime: Places) -> None:
    """A header beyond what is read ends its own connection."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            for name in ("Authorization", "Cookie", "X-Jupyter-Gpu-For"):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(it.root.rpartition(":")[2]))
                writer.write(f"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n{name}: {'x' * (1 << 20)}\r\n\r\n".encode())
                with contextlib.suppress(ConnectionError):
                    said = await reader.read()
                    assert said == b"" or said.startswith(b"HTTP/1.1 4")
                writer.close()
            assert await caller(it, ana) == "ana"
            assert it.hub.asked == ["GET /hub/api/user"]

    play(story)


def test_a_token_that_expires_is_refused_soon(tmp_runtime: Places) -> None:
    """Asked again once the hub's word is older than `hub_cache_seconds`, and not before."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, cache_seconds=0.5) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            for _ in range(3):
                assert await caller(it, ana) == "ana"
            assert len(it.hub.asked) == 1
            del it.hub.tokens[ana]
            await asyncio.sleep(0.6)
            answer = await it.as_(ana).get("/status")
            assert answer.status_code == 403

    play(story)


def test_who_is_taken_out_of_a_group_is_out_of_it_soon(tmp_runtime: Places) -> None:
    """No new login is needed, in either direction (2i2c-org/infrastructure#8154); and it is known since when."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, cache_seconds=0.5) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            gate = it.service.gate

            async def groups() -> tuple[tuple[str, ...], float]:
                known = await it.service.hub.whois(ana)
                assert known is not None
                found: Caller = await gate.caller_of(known)
                assert found.groups_at is not None
                return found.groups, found.groups_at

            for now in ((), ("course-a", "vision"), ("vision",)):
                it.hub.people["ana"].groups = now
                before = time.time()
                assert await groups() == (now, pytest.approx(before, abs=5))
                assert (await groups())[1] >= before
                await asyncio.sleep(0.6)

    play(story)


def test_submitted_work_carries_the_groups_of_its_owner(tmp_runtime: Places) -> None:
    """The groups that the hub says, not the ones that the body would like."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            ana = it.hub.add("ana", *RESEARCHER, groups=("vision",))
            seen: list[Any] = []
            handle = it.loop.handle

            async def heard(command: Any) -> Any:
                seen.append(command)
                return await handle(command)

            it.loop.handle = heard  # type: ignore[method-assign]
            answer = await it.as_(ana).post("/workloads", json=RESERVE)
            assert answer.status_code == 201
            assert [(command.owner, command.groups) for command in seen] == [("ana", ("vision",))]
            forged = await it.as_(ana).post("/workloads", json=RESERVE | {"groups": ["root"]})
            assert forged.status_code == 422

    play(story)


def test_many_requests_at_once_ask_the_hub_once(tmp_runtime: Places) -> None:
    """A page that opens, or a hundred of them, is no load on the hub."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, cache_seconds=5) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            assert set(await asyncio.gather(*(caller(it, ana) for _ in range(30)))) == {"ana"}
            assert len(it.hub.asked) == 1

    play(story)


def test_no_flood_of_tokens_fills_the_memory(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is bounded, known or not, and nobody's answer is another's."""

    async def story() -> None:
        monkeypatch.setattr(asking, "MOST_KEPT", 8)
        async with a_service(tmp_runtime.runtime_dir, cache_seconds=60) as it:
            ana, grace = it.hub.add("ana", *RESEARCHER), it.hub.add("grace", *RESEARCHER)
            for number in range(40):
                assert await it.service.hub.whois(f"made-up-{number}") is None
            assert len(it.service.hub._known) == 8
            assert [await caller(it, ana), await caller(it, grace)] == ["ana", "grace"]

    play(story)


# -- a hub that is away


@pytest.mark.parametrize("how", ["gone", "trouble", "silent", "elsewhere"])
def test_a_hub_that_is_away_refuses_nobody(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """503 with words, never `not allowed`; nothing ends; and all is well when it answers again."""

    async def story() -> None:
        monkeypatch.setattr(asking, "ANSWERS_WITHIN_SECONDS", 0.3)
        monkeypatch.setattr(asking, "AWAY_SECONDS", 0.0)
        async with a_service(tmp_runtime.runtime_dir) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            mine = (await it.as_(ana).post("/workloads", json=RESERVE)).json()["id"]
            it.loop._renewals._by[mine] = it.loop.now() + 1
            it.hub.trouble = {"trouble": 502, "silent": 0, "elsewhere": 404}.get(how)
            if how == "gone":
                await it.hub.close()
            answer = await it.as_(ana).get("/status")
            assert (answer.status_code, answer.json()["code"]) == (503, "broker-unavailable")
            assert "JupyterHub cannot be asked" in answer.json()["message"]
            assert "goes on" in answer.json()["hint"]
            # Nobody could renew: the time in which they must begins anew.
            assert mine not in it.loop._renewals._by
            assert mine in it.loop.world.live
            it.hub.trouble = None
            if how == "gone":
                it.hub.open()
            assert await caller(it, ana) == "ana"

    play(story)


def test_a_hub_that_is_away_is_not_asked_by_everybody(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """One finds out; the others are told the same for a moment, so that a hub in trouble can get out of it."""

    async def story() -> None:
        monkeypatch.setattr(asking, "AWAY_SECONDS", 60.0)
        async with a_service(tmp_runtime.runtime_dir) as it:
            it.hub.trouble = 500
            tokens = [it.hub.add(f"user{number}", *RESEARCHER) for number in range(20)]
            for token in tokens:
                assert (await it.as_(token).get("/status")).status_code == 503
            assert len(it.hub.asked) == 1

    play(story)


# -- scopes


def test_without_a_scope_of_ours_there_is_nothing(tmp_runtime: Places) -> None:
    """Also for an admin of the hub; the refusal names what an admin gives."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            bob = it.hub.add("bob")
            for scopes in (
                (),
                ("admin:users", "access:services!service=jupyter-gpu", "custom:gpu:admin"),
                ("custom:jupyter-gpu:everything", "custom:jupyter-gpu:", "custom:jupyter-gpu"),
                (f"{OURS}read!user=ana", f"{OURS}admin!group=staff", f"{OURS}submit!server=bob/"),
                (f"{OURS}admin!user=bob", f"{OURS}read!user=bob", f"{OURS}operate!user=bob", f"{OURS}logs!user=bob"),
            ):
                it.hub.people["bob"].scopes = scopes
                answer = await it.as_(bob).get("/status")
                assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed"), scopes
                assert "user bob has none of the scopes that this broker goes by" in answer.json()["message"]
                assert "setup_hub(c, researchers=...), or by a role with the scopes custom:" in answer.json()["hint"]
            # One that is bound to its bearer is for what is their own.
            it.hub.people["bob"].scopes = (f"{OURS}reserve!user=bob",)
            assert await caller(it, bob) == "bob"

    play(story)


def test_a_token_may_no_more_than_it_was_made_for(tmp_runtime: Places) -> None:
    """Of its owner's scopes only those that the token has; and each verb needs its own."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, count=2, accounts={"ana": ME, "oli": ME}) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            it.hub.tokens["reads"] = ("ana", (f"{OURS}read",))
            it.hub.tokens["reserves"] = ("ana", (f"{OURS}reserve",))
            oli = it.hub.add("oli", "read", "operate")
            looks, holds, whole, operates = (it.as_(token) for token in ("reads", "reserves", ana, oli))
            assert (await looks.post("/workloads", json=RESERVE)).status_code == 403
            assert (await holds.post("/workloads", json=job())).status_code == 403
            mine = (await whole.post("/workloads", json=RESERVE)).json()["id"]
            for verb in ("cancel", "release", "extend", "pause", "move"):
                body = {"extend": {"seconds": 60}, "move": {"holder": {"kind": "kernel", "name": "k"}}}.get(verb)
                answer = await looks.post(f"/workloads/{mine}/{verb}", json=body)
                assert answer.status_code == 403, verb
            for client in (looks, holds, whole):
                assert (await client.post("/devices/0/cordon")).status_code == 403
                assert (await client.post("/broker/stop")).status_code == 403
            assert (await operates.post("/devices/1/cordon")).status_code == 200
            assert (await operates.post("/broker/stop")).status_code == 403
            assert (await operates.post(f"/workloads/{mine}/cancel")).status_code == 200

    play(story)


def test_logs_of_others_need_their_own_scope(tmp_runtime: Places) -> None:
    """Neither to read nor to operate shows them; one's own are one's own."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, accounts={"ana": ME}) as it:
            ana = it.hub.add("ana", *CONTRACTOR)
            mine = (await it.as_(ana).post("/workloads", json=job())).json()["id"]
            (tmp_runtime.runtime_dir / f"{mine}.1.log").write_text("a secret\n")
            answers = {}
            for name, scopes in {
                "ana": CONTRACTOR,
                "reader": ("read",),
                "operator": ("read", "operate"),
                "logreader": ("read", "logs"),
                "admin": ("admin",),
                "contractor": CONTRACTOR,
                "blind": ("logs",),
            }.items():
                token = ana if name == "ana" else it.hub.add(name, *scopes)
                answer = await it.as_(token).get(f"/workloads/{mine}/log")
                answers[name] = answer.status_code
                assert ("secret" in answer.text) == (answer.status_code == 200)
            assert answers == {
                "ana": 200,
                "reader": 403,
                "operator": 403,
                "logreader": 200,
                "admin": 200,
                "contractor": 404,
                "blind": 404,
            }

    play(story)


def test_a_service_of_the_hub_may_what_its_scopes_say(tmp_runtime: Places) -> None:
    """Like one that draws metrics: it is no user of the same name, and no work runs as it."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, accounts={"grafana": ME}, tokens=None) as it:
            service = it.hub.add("grafana", "read", "metrics", "submit", "reserve", kind="service")
            assert await caller(it, service) == "services/grafana"
            answer = await it.as_(service).post("/workloads", json=job())
            assert (answer.status_code, "no account" in answer.json()["message"]) == (403, True)
            mine = (await it.as_(service).post("/workloads", json=RESERVE)).json()["id"]
            del it.hub.people["grafana"]
            user = it.hub.add("grafana", *CONTRACTOR)
            assert (await it.as_(user).get(f"/workloads/{mine}")).status_code == 404

    play(story)


# -- names


def test_names_are_as_typed_and_nobody_is_taken_for_another(tmp_runtime: Places) -> None:
    """Each reserves, is shown by their name, is found by an operator, and sees just their own."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, count=len(NAMES)) as it:
            oper = it.as_(it.hub.add("oper", "read", "operate"))
            clients = {name: it.as_(it.hub.add(name, *CONTRACTOR)) for name in NAMES}
            ids = {}
            for name, client in clients.items():
                answer = await client.post("/workloads", json=RESERVE)
                assert answer.status_code == 201, answer.text
                ids[name] = answer.json()["id"]
            assert len(set(ids.values())) == len(NAMES)
            for name, client in clients.items():
                status = (await client.get("/status")).json()
                assert status["caller"] == name
                assert [(found["id"], found["owner"]) for found in status["workloads"]] == [(ids[name], name)]
            for name, id_ in ids.items():
                assert (await oper.get(f"/workloads/{id_}")).json()["owner"] == name
                assert (await oper.post(f"/workloads/{id_}/cancel")).status_code == 200
            assert not [file for file in tmp_runtime.runtime_dir.rglob("*") if "ana" in file.name.lower()]

    play(story)


def test_a_name_that_is_taken_by_a_token_is_no_users(tmp_runtime: Places) -> None:
    """People choose their names on many hubs: one would be called as the token whose work they want."""

    async def story() -> None:
        digest = hashlib.sha256(b"static").hexdigest()
        tokens = {digest: {"name": "trainer", "account": ME, "scopes": ["submit", "reserve"]}}
        async with a_service(tmp_runtime.runtime_dir, tokens=tokens) as it:
            mine = (await it.as_("static").post("/workloads", json=RESERVE)).json()["id"]
            for client in (it.as_(it.hub.add("trainer", *RESEARCHER)), it.spawner("trainer")):
                answer = await client.get(f"/workloads/{mine}")
                assert (answer.status_code, "name" in answer.json()["message"]) == (403, True)
            assert (await it.spawner("services/prometheus").get("/status")).status_code == 403
            assert (await it.as_("static").get(f"/workloads/{mine}")).json()["owner"] == "trainer"

    play(story)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose work it is about; run the tests as root")
def test_who_is_called_root_at_the_hub_is_not_root(tmp_runtime: Places) -> None:
    """What root reserves over the socket is nobody else's."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, system=True) as it:
            mine = (await it.here().post("/workloads", json=RESERVE)).json()
            assert mine["owner"] == "local/root"
            root = it.as_(it.hub.add("root", *CONTRACTOR))
            assert (await root.get(f"/workloads/{mine['id']}")).status_code == 404
            assert (await root.post(f"/workloads/{mine['id']}/cancel")).status_code == 404

    play(story)


# -- for others


def test_the_spawner_reserves_for_whom_it_names(tmp_runtime: Places) -> None:
    """With their name and groups as they are, however they are written; it is them who own it."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, count=len(NAMES)) as it:
            for name in NAMES:
                client = it.spawner(name, "a,b", "größe", "x%2C")
                answer = await client.post("/workloads", json=RESERVE)
                assert (answer.status_code, answer.json()["is_mine"]) == (201, True)
                it_ = it.loop.world.workloads[answer.json()["id"]]
                assert it_.owner == name
                theirs = it.as_(it.hub.add(name, *CONTRACTOR))
                assert (await theirs.post(f"/workloads/{it_.id}/release", json={})).status_code == 200
            caller_ = await it.service.gate.user("ana", frozenset(), ("x",))
            assert caller_.groups == ("x",)

    play(story)


def test_the_spawner_starts_no_jobs_and_operates_nothing(tmp_runtime: Places) -> None:
    """It sees and reserves, for one person at a time, and for itself it is nobody."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, accounts={"ana": ME}) as it:
            client = it.spawner("ana")
            assert (await client.get("/status")).json()["caller"] == "ana"
            assert (await client.post("/workloads", json=job())).status_code == 403
            assert (await client.post("/devices/0/cordon")).status_code == 403
            assert (await client.post("/broker/stop")).status_code == 403
            for headers in (
                [],
                [("X-Jupyter-Gpu-For", "")],
                [("X-Jupyter-Gpu-For", "ana"), ("X-Jupyter-Gpu-For", "grace")],
                [("X-Jupyter-Gpu-For", "%ff")],
                [("X-Jupyter-Gpu-For", "a%00")],
                [("X-Jupyter-Gpu-For", "a%0Ab")],
                [("X-Jupyter-Gpu-For", "a" * 300)],
            ):
                sent = [("Authorization", f"token {SPAWNER_TOKEN}"), *headers]
                assert (await it.client().get("/status", headers=sent)).status_code == 422, headers

    play(story)


def test_nobody_else_speaks_for_others(tmp_runtime: Places) -> None:
    """Neither users, admins, services, static tokens nor processes on the socket; it is refused, not left out."""

    async def story() -> None:
        digest = hashlib.sha256(b"static").hexdigest()
        tokens = {digest: {"name": "static", "scopes": ["admin"]}}
        async with a_service(tmp_runtime.runtime_dir, tokens=tokens) as it:
            bearers = [
                it.hub.add("ana", *RESEARCHER),
                it.hub.add("root", "admin"),
                it.hub.add("other", "admin", kind="service"),
                "static",
            ]
            for forged in ({"X-Jupyter-Gpu-For": "grace"}, {"X-Jupyter-Gpu-Groups": "staff"}):
                for bearer in bearers:
                    answer = await it.as_(bearer, **forged).get("/status")
                    assert answer.status_code == 403
                    assert "Only the hub's spawner" in answer.json()["message"]
                assert (await it.here().get("/status", headers=forged)).status_code == 403
                assert (await it.client().get("/status", headers=forged)).status_code == 403

    play(story)


# -- what a contractor sees


def test_a_contractor_sees_only_their_own(tmp_runtime: Places) -> None:
    """Of the devices only that they are taken; of others' work nothing, however it is asked for."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, count=2) as it:
            await it.loop.handle(a_reservation("grace"))
            await it.loop.handle(a_reservation("heidi"))
            await it.loop.handle(a_reservation("grace"))  # waits
            carl = it.as_(it.hub.add("carl", *CONTRACTOR))
            mine = (await carl.post("/workloads", json=RESERVE | {"name": "mine"})).json()
            assert mine["state"] == "queued"
            texts = [(await carl.get("/status")).text, (await carl.get("/devices")).text]
            paths = ("/workloads", "/workloads?ended=false", "/workloads?state=active", f"/workloads/{mine['id']}")
            texts += [(await carl.get(path)).text for path in paths]
            async with carl.stream("GET", "/stream") as stream:
                lines = stream.aiter_lines()
                texts.append(await anext(lines))
                await it.loop.handle(a_reservation("heidi"))
                await it.loop.handle(a_reservation("carl"))
                texts.append(await anext(lines))
            resumed = f"/stream?since=1&store={it.loop.store_id}"
            async with carl.stream("GET", resumed) as stream:
                texts.append(await anext(stream.aiter_lines()))
            for text in texts:
                assert "grace" not in text
                assert "heidi" not in text
            for other in (1, 2, 3):
                for path in ("", "/events", "/log", "/wait?timeout=0"):
                    assert (await carl.get(f"/workloads/{other}{path}")).status_code == 404
                assert (await carl.post(f"/workloads/{other}/cancel")).status_code == 404
            listed = (await carl.get("/workloads")).json()["items"]
            assert {found["owner"] for found in listed} == {"carl"}
            status = (await carl.get("/status")).json()
            assert {found["owner"] for found in status["workloads"]} == {"carl"}
            # That a device is taken is seen, and nothing of by whom or what for.
            taken = [set(device) & {"holders", "uses", "workloads", "free_at"} for device in status["devices"]]
            assert taken == [{"workloads", "free_at"}] * 2
            assert status["waiting"]["interactive"] == 2

    play(story)


# -- who stays


def test_a_stream_ends_with_the_token_that_opened_it(tmp_runtime: Places) -> None:
    """A listener may stay for days, so they are looked at anew; a hub that is away sends nobody away."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            it.service.gate.again_seconds = 0.1
            ana = it.hub.add("ana", *RESEARCHER)
            async with it.as_(ana).stream("GET", "/stream") as stream:
                lines = stream.aiter_lines()
                await anext(lines)
                asked = len(it.hub.asked)
                it.hub.trouble = 500
                while len(it.hub.asked) < asked + 2:
                    await asyncio.sleep(0.05)
                it.hub.trouble = None
                await it.loop.handle(a_reservation("grace"))
                assert "grace" in await anext(lines)
                del it.hub.tokens[ana]
                with pytest.raises(Exception, match=CUT):
                    async for _ in lines:
                        pass

    play(story)


def test_a_stream_shows_less_to_who_may_see_less(tmp_runtime: Places) -> None:
    """A role that was taken away is gone from an open page soon, without a reload."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            it.service.gate.again_seconds = 0.1
            ana = it.hub.add("ana", *RESEARCHER)
            await it.loop.handle(a_reservation("grace"))
            async with it.as_(ana).stream("GET", "/stream") as stream:
                lines = stream.aiter_lines()
                assert "grace" in await anext(lines)
                it.hub.people["ana"].scopes = (f"{OURS}reserve",)
                assert "grace" not in await anext(lines)

    play(story)


def test_a_log_that_is_followed_ends_with_the_token(tmp_runtime: Places) -> None:
    """What is cut off does not look whole."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, accounts={"ana": ME}) as it:
            it.service.gate.again_seconds = 0.1
            ana = it.hub.add("ana", *RESEARCHER)
            mine = (await it.as_(ana).post("/workloads", json=job())).json()["id"]
            (tmp_runtime.runtime_dir / f"{mine}.1.log").write_text("first\n")
            async with it.as_(ana).stream("GET", f"/workloads/{mine}/log?follow=true&attempt=1") as stream:
                parts = stream.aiter_text()
                assert await anext(parts) == "first\n"
                del it.hub.tokens[ana]
                with pytest.raises(Exception, match=CUT):
                    await anext(parts)

    play(story)


def test_a_log_that_is_followed_ends_with_the_right_to_it(tmp_runtime: Places) -> None:
    """Who may still look, but not into others' logs any more."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, accounts={"ana": ME}) as it:
            it.service.gate.again_seconds = 0.1
            mine = (await it.as_(it.hub.add("ana", *CONTRACTOR)).post("/workloads", json=job())).json()["id"]
            (tmp_runtime.runtime_dir / f"{mine}.1.log").write_text("first\n")
            oli = it.hub.add("oli", "read", "logs")
            async with it.as_(oli).stream("GET", f"/workloads/{mine}/log?follow=true&attempt=1") as stream:
                parts = stream.aiter_text()
                assert await anext(parts) == "first\n"
                it.hub.people["oli"].scopes = (f"{OURS}read",)
                with pytest.raises(Exception, match=CUT):
                    await anext(parts)

    play(story)


# -- processes as holders


def test_where_all_are_one_account_a_holder_is_of_its_users_server(tmp_runtime: Places) -> None:
    """The broker ends a holder's process when its time is over, so nobody names the hub's, or somebody else's."""

    async def story() -> None:
        policy = Policy()
        async with a_service(tmp_runtime.runtime_dir, count=4, accounts={"*": ME}, policy=policy) as it:
            ana = it.as_(it.hub.add("ana", *CONTRACTOR))
            for environ, is_taken in (
                ({"JUPYTERHUB_USER": "ana"}, True),
                ({"JUPYTERHUB_USER": "grace"}, False),
                ({}, False),
            ):
                with subprocess.Popen(  # noqa: ASYNC220 - it says one word at once
                    [sys.executable, "-S", "-c", "print(flush=True); input()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environ,
                ) as process:
                    assert process.stdout is not None
                    process.stdout.readline()
                    holder = {"kind": "kernel", "name": "k", "pid": process.pid}
                    answer = await ana.post("/workloads", json=RESERVE | {"holder": holder})
                    assert answer.status_code == 201
                    assert answer.json()["holder"].get("pid") == (process.pid if is_taken else None)
                    process.communicate(b"\n")

    play(story)


# -- the proxy's names


def test_the_proxys_name_is_as_good_as_any(tmp_runtime: Places) -> None:
    """Callers come under names that are not known here; what a browser says comes from another site is refused."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            ana = it.hub.add("ana", *RESEARCHER)
            for headers in ({"Host": "hub.uni.example"}, {"Origin": "https://hub.uni.example"}):
                assert (await it.as_(ana, **headers).get("/status")).status_code == 200
                # To merely come, under whatever name, opens nothing: not to a rebound page either.
                assert (await it.client().get("/status", headers=headers)).status_code == 401
            assert (await it.client().get("/status", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 403

    play(story)


@pytest.mark.parametrize("base_url", ["", "/j", "/a/b/user/ana@uni.example", "/größe x"])
def test_it_answers_below_every_prefix(tmp_runtime: Places, base_url: str) -> None:
    """With slashes doubled, encoded or not, and where a proxy took the prefix away (jupyterhub/jupyterhub#1716)."""

    async def story() -> None:
        from urllib.parse import quote

        async with a_service(tmp_runtime.runtime_dir, base=base_url) as it:
            headers = {"Authorization": f"token {it.hub.add('ana', *RESEARCHER)}"}
            prefix = quote(f"{base_url}/services/jupyter-gpu")
            client = it.client(it.root, headers=headers)
            for path in (
                f"{prefix}/api/v1/status",
                f"{prefix}//api/v1//status",
                f"/{prefix}/api/v1/status",
                f"{prefix.replace('@', '%40')}/api/v1/status",
                "/api/v1/status",
            ):
                # httpx would tidy the path.
                answer = await raw(it, path, headers)
                assert answer.startswith("HTTP/1.1 200"), path
            made = await client.post(f"{prefix}/api/v1/workloads", json=RESERVE)
            assert made.status_code == 201
            where = made.headers["Location"]
            assert where == f"{base_url}/services/jupyter-gpu/api/v1/workloads/{made.json()['id']}"
            made = await client.post("/api/v1/workloads", json=RESERVE)
            assert made.headers["Location"] == f"/api/v1/workloads/{made.json()['id']}"
            for path in (f"{prefix}-other/api/v1/status", "/services/other/api/v1/status", f"{prefix}/api/v2/status"):
                assert (await client.get(path)).status_code == 404

    play(story)


async def raw(it: Serving, path: str, headers: dict[str, str]) -> str:
    """Ask for a path just as it is written."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(it.root.rpartition(":")[2]))
    lines = [f"GET {path} HTTP/1.1", "Host: x", "Connection: close", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


# -- on the socket


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user; run the tests as root")
def test_on_the_socket_an_account_is_only_ever_its_own_user(tmp_runtime: Places) -> None:
    """A hub's user and an account of the same name may be two people: then the account is nobody."""

    async def story(accounts: Any, expected: str | None, scopes: tuple[str, ...] = ("reserve",)) -> None:
        tmp_runtime.runtime_dir.parent.chmod(0o755)
        tmp_runtime.runtime_dir.chmod(0o755)
        async with a_service(tmp_runtime.runtime_dir, system=True, accounts=accounts, socket_scopes=scopes) as it:
            code = (
                "import os, socket, sys\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
                "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                "s.sendall(b'GET /api/v1/status HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n"
                "print(b''.join(iter(lambda: s.recv(65536), b'')).decode())"
            )
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", code, str(it.uds)), stdout=subprocess.PIPE
            )
            said = (await child.communicate())[0].decode()
            if expected is None:
                assert said.startswith("HTTP/1.1 403"), said
                assert "does not say which user of the hub asks" in said or "so its users bring a token" in said
            else:
                assert f'"caller":"{expected}"' in said

    for accounts, expected in (
        # Not a person's.
        ("same", None),
        ({"ana": "nobody"}, "ana"),
        ({"ana": "nobody", "grace": "nobody"}, None),
        ({"nobody": "somebody"}, None),
        ({"*": "nobody"}, None),
        ({"ana": "nobody", "*": "nobody"}, None),
        ("service", None),
    ):
        asyncio.run(story(accounts, expected))
        (tmp_runtime.runtime_dir / "s").unlink()
    # Else a contractor of the hub, or who has no role in it at all, would find everything open beside it.
    asyncio.run(story("same", None, ()))


def test_nobody_is_an_operator_by_sharing_the_brokers_account(tmp_runtime: Places) -> None:
    """Where all servers run as the service, each of them could open its socket: there only root is known by it."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, accounts="service") as it:
            gate = it.service.gate
            gate._uid, gate.accounts._uid = 1234, 1234
            from jupyter_gpu.broker.visits import Peer
            from jupyter_gpu.errors import NotAllowed

            gate._names[1234] = (time.monotonic() + 60, "jupyterhub")
            with pytest.raises(NotAllowed, match="which user of the hub"):
                await gate._account(Peer(pid=os.getpid(), uid=1234), ())
            assert Scope.ADMIN in (await gate._account(Peer(pid=os.getpid(), uid=0), ())).scopes

    play(story)
