"""The API: what each route answers, to whom, and that nothing odd gets past the door."""

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from jupyter_gpu import __version__
from jupyter_gpu.broker.api import routes as api
from jupyter_gpu.broker.api.openapi import described
from jupyter_gpu.broker.api.routes import ROUTES
from jupyter_gpu.model import (
    Change,
    EndReason,
    Holder,
    Outcome,
    Policy,
    Profile,
    SeeExited,
    SeeProbe,
    SeeStarted,
    State,
)
from tests.conftest import Places

from .api_ground import DESCRIPTION, an_api, hold_to, job, play

RESERVATION = {"kind": "reservation"}


def test_every_route_is_described() -> None:
    """docs/openapi.json has each route of the table with its verbs, and no two operations of one name."""
    found = {(path, verb) for path, verbs in DESCRIPTION["paths"].items() for verb in verbs if verb != "parameters"}
    names = [
        it["operationId"] for verbs in DESCRIPTION["paths"].values() for v, it in verbs.items() if v != "parameters"
    ]

    assert found == {(route.path, verb) for route in described(ROUTES) for verb in route.verbs()}
    assert all(route.verbs() for route in described(ROUTES))
    assert len(names) == len(set(names))


def test_a_reservation_is_granted_at_once_or_waits(tmp_runtime: Places) -> None:
    """201 says that the devices are held, 202 that it waits, with its reason; to wait is no error."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            first = await broker.as_("ada").post("/workloads", json=RESERVATION)
            second = await broker.as_("grace").post("/workloads", json=RESERVATION)

            assert (first.status_code, first.json()["state"], first.headers["Location"]) == (
                201,
                "active",
                "/api/v1/workloads/1",
            )
            assert (second.status_code, second.json()["waiting"]) == (202, "devices")
            assert "reserved by ada" in second.json()["reason"]

    play(story)


def test_the_same_key_is_the_same_workload(tmp_runtime: Places) -> None:
    """A repeated ask with its Idempotency-Key makes nothing new; the same key of another owner is another workload."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ids = [
                (await broker.as_(who).post("/workloads", json=job(), headers={"Idempotency-Key": "k"})).json()["id"]
                for who in ("ada", "ada", "grace")
            ]

            assert ids == [1, 1, 2]

    play(story)


def test_only_owners_and_operators_act(tmp_runtime: Places) -> None:
    """Another user's word changes nothing, a reader's neither; an operator's does."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=RESERVATION)
            verbs = {"release": None, "cancel": None, "extend": {"seconds": 60}, "renew": {"holder_number": 1}}
            for who in ("grace", "reader"):
                for verb, body in verbs.items():
                    refused = await broker.as_(who).post(f"/workloads/1/{verb}", json=body or {})
                    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed"), (who, verb)
            assert broker.loop.world.workloads[1].state is State.ACTIVE

            assert (await broker.as_("oper").post("/workloads/1/release")).status_code == 200
            assert broker.loop.world.workloads[1].state is not State.ACTIVE

    play(story)


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("GET", "/status", None),
        ("GET", "/stream", None),
        ("GET", "/workloads/1", None),
        ("POST", "/workloads", RESERVATION),
        ("POST", "/workloads", job()),
        ("POST", "/devices/0/cordon", {}),
        ("POST", "/broker/stop", {}),
    ],
)
def test_each_scope_is_needed(tmp_runtime: Places, verb: str, path: str, body: object) -> None:
    """Who may do nothing gets 403 for everything, with a sentence that names what is lacking."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await broker.as_("nothing").request(verb, path, json=body)
            assert answer.status_code in (403, 404)

    play(story)


def test_what_you_may_not_see_is_not_there(tmp_runtime: Places) -> None:
    """Where names are hidden, another's waiting job answers word for word as one that does not exist."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, policy=Policy(names_are_public=False)) as broker:
            for _ in range(2):
                await broker.as_("ada").post("/workloads", json=job())
            hidden, held = await broker.as_("grace").get("/workloads/2"), await broker.as_("grace").get("/workloads/1")
            missing = await broker.as_("grace").get("/workloads/9")

            assert hidden.status_code == missing.status_code == 404
            assert hidden.text.replace("2", "9") == missing.text
            assert (held.json()["owner"], held.json().get("spec")) == (None, None)
            for verb in ("cancel", "pause", "events", "log", "wait"):
                asked = await broker.as_("grace").request(
                    "GET" if verb in ("events", "log", "wait") else "POST", f"/workloads/2/{verb}"
                )
                assert asked.status_code == 404
            listed = (await broker.as_("grace").get("/workloads")).json()["items"]
            assert [it["id"] for it in listed] == [1]

    play(story)


def test_lists_are_paged(tmp_runtime: Places) -> None:
    """Pages follow each other by `next`, newest first, without a gap or a repeat, with and without what has ended."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            for _ in range(5):
                await ada.post("/workloads", json=job())
            await ada.post("/workloads/3/cancel")
            for ended, expected in ("true", [5, 4, 3, 2, 1]), ("false", [5, 4, 2, 1]):
                found, after = [], 0
                while after is not None:
                    page = (await ada.get("/workloads", params={"limit": 2, "after": after, "ended": ended})).json()
                    assert len(page["items"]) <= 2
                    found += [it["id"] for it in page["items"]]
                    after = page["next"]
                assert found == expected
            by_state = (await ada.get("/workloads", params={"state": "ended"})).json()
            assert [it["id"] for it in by_state["items"]] == [3]
            assert (await broker.as_("grace").get("/workloads", params={"mine": "true"})).json()["items"] == []

    play(story)


def test_a_life_is_told(tmp_runtime: Places) -> None:
    """The events of one workload, and nothing of others; of another's life the words about it are left out."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=RESERVATION)
            await broker.as_("grace").post("/workloads", json=RESERVATION)
            await broker.as_("ada").post("/workloads/1/release")
            mine = (await broker.as_("ada").get("/workloads/1/events")).json()["items"]
            theirs = (await broker.as_("grace").get("/workloads/1/events")).json()["items"]

            assert [it["event"] for it in mine] == ["submitted", "granted", "released"]
            assert [it["event"] for it in theirs] == ["submitted", "granted", "released"]
            assert (mine[-1]["by"], theirs[-1].get("by", "")) == ("ada", "")
            part = (await broker.as_("ada").get("/workloads/1/events", params={"limit": 1})).json()
            rest = (await broker.as_("ada").get("/workloads/1/events", params={"after": part["next"]})).json()
            assert part["items"] + rest["items"] == mine

    play(story)


def test_a_wait_ends_with_the_change_or_with_its_time(tmp_runtime: Places) -> None:
    """The answer comes when the workload is so far, or after the timeout, with how it stands then."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            for who in ("ada", "grace"):
                await broker.as_(who).post("/workloads", json=RESERVATION)
            short = await broker.as_("grace").get("/workloads/2/wait", params={"timeout": 0.05})
            assert short.json()["state"] == "queued"
            long = asyncio.ensure_future(broker.as_("grace").get("/workloads/2/wait", params={"timeout": 30}))
            await broker.as_("grace").post("/workloads/2/cancel")
            assert (await long).json()["end"] == "cancelled"
            assert (await broker.as_("ada").get("/workloads/1/wait", params={"timeout": 301})).status_code == 422

    play(story)


def test_a_wait_is_given_up_with_its_connection(tmp_runtime: Places) -> None:
    """Who hangs up leaves nothing waiting behind."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=RESERVATION)
            with pytest.raises(httpx.ReadTimeout):
                await broker.as_("ada").get("/workloads/1/wait", params={"until": "ended", "timeout": 60}, timeout=0.2)
            async with asyncio.timeout(5):
                while any("wait_until" in repr(task.get_coro()) for task in asyncio.all_tasks()):
                    await asyncio.sleep(0.01)

    play(story)


def test_devices_are_cordoned_by_operators(tmp_runtime: Places) -> None:
    """By UUID or index; users may not; a device that is not there is 404, whatever its name looks like."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            assert (await broker.as_("ada").post("/devices/0/cordon")).status_code == 403
            assert (await broker.as_("oper").post("/devices/GPU-0/cordon")).json()["cordoned"] is True
            assert (await broker.as_("oper").post("/devices/1/drain")).json()["cordoned"] is True
            assert (await broker.as_("oper").post("/devices/0/uncordon")).json()["cordoned"] is False
            for name in ("9", "-1", "..%2F..%2Fetc", "GPU-0%00", "%ff", "x" * 5000, "0%2f1"):
                answer = await broker.as_("oper").post(f"/devices/{name}/cordon")
                assert answer.status_code in (404, 422), name

    play(story)


def test_a_holder_is_moved_and_renewed(tmp_runtime: Places) -> None:
    """The answer to a move has the new number; a renewal with the old one says that the lease has moved: 410."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            await ada.post("/workloads", json=RESERVATION)
            for number in (1, 2):
                moved = await ada.post("/workloads/1/move", json={"holder": {"kind": "kernel", "name": f"k{number}"}})
                assert moved.json()["holder"].get("number", 1) == number
            assert (await ada.post("/workloads/1/renew", json={"holder_number": 2})).status_code == 200
            stale = await ada.post("/workloads/1/renew", json={"holder_number": 1})
            assert (stale.status_code, stale.json()["code"]) == (410, "lease-lost")

    play(story)


def test_nobody_holds_with_the_process_of_another(tmp_runtime: Places) -> None:
    """The broker ends a holder's process in the end, so only a process of the caller's own user is believed."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=4) as broker:
            ada = broker.as_("ada")
            child = await asyncio.create_subprocess_exec("sleep", "60")
            foreign = await asyncio.create_subprocess_exec("sleep", "60", user=65534) if os.geteuid() == 0 else None
            try:
                for pid, ticks, believed in (
                    (child.pid, None, True),
                    (child.pid, 1, False),
                    (2**22 + 1, None, False),
                    (os.getpid(), None, False),
                    *([(foreign.pid, None, False)] if foreign else []),
                ):
                    holder = {"kind": "command", "name": "x", "pid": pid, "start_ticks": ticks}
                    await ada.post("/workloads", json=RESERVATION | {"holder": holder})
                    it = broker.loop.world.workloads[broker.loop.world.last_id]
                    assert it.holder is not None
                    assert (it.holder.pid == pid) is believed, (pid, ticks)
                    assert not believed or it.holder.start_ticks
                odd = await ada.post("/workloads", json=RESERVATION | {"holder": {"kind": "attempt", "name": "1.1"}})
                assert odd.status_code == 422
                # Who keeps a kernel alive by being alive is looked at as closely.
                for kind, keeper, believed in (
                    ("kernel", child, True),
                    ("command", child, False),
                    *([("kernel", foreign, False)] if foreign else []),
                ):
                    holder = {"kind": kind, "name": "x", "keeper_pid": keeper.pid}
                    await ada.post("/workloads", json=RESERVATION | {"holder": holder})
                    it = broker.loop.world.workloads[broker.loop.world.last_id]
                    assert it.holder is not None
                    assert (it.holder.keeper_start_ticks is not None) is believed
            finally:
                for process in (child, foreign):
                    if process is not None:
                        process.kill()
                        await process.wait()

    play(story)


def test_a_profile_fills_in_what_was_not_said(tmp_runtime: Places) -> None:
    """A named ask gives its devices and time; what the caller says wins; an unknown one names those there are."""

    async def story() -> None:
        profile = Profile(name="pair", devices=2, duration_seconds=600)
        async with an_api(tmp_runtime.runtime_dir, count=2, policy=Policy(profiles=(profile,))) as broker:
            ada = broker.as_("ada")
            got = await ada.post("/workloads", json=RESERVATION | {"profile": "pair", "ask": {"duration_seconds": 60}})
            assert got.json()["ask"] == {"devices": 2, "duration_seconds": 60}
            wrong = await ada.post("/workloads", json=RESERVATION | {"profile": "trio"})
            assert (wrong.status_code, "pair" in wrong.json()["hint"]) == (422, True)

    play(story)


def test_what_ended_long_ago_is_still_told(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The world forgets, the store does not: it is shown, and acting on it says that it is over."""

    async def story() -> None:
        monkeypatch.setattr("jupyter_gpu.model.world.KEPT_ENDED", 1)
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            for id_ in (1, 2, 3):
                await ada.post("/workloads", json=RESERVATION)
                await ada.post(f"/workloads/{id_}/cancel")
                if id_ == 1:  # the first held the device, which is being made clear
                    await broker.loop.handle(SeeProbe(workload=1))
            assert 1 not in broker.loop.world.workloads
            assert (await ada.get("/workloads/1")).json()["state"] == "ended"
            assert (await ada.get("/workloads/1/events")).json()["items"][-1]["event"] == "ended"
            assert (await ada.get("/workloads/1/wait")).json()["state"] == "ended"
            assert (await ada.post("/workloads/1/cancel")).status_code == 409
            assert (await ada.post("/workloads/1/renew", json={"holder_number": 1})).status_code == 410

    play(story)


# -- logs


def test_a_log_is_served_byte_for_byte(tmp_runtime: Places) -> None:
    """Any part from any offset, with where to go on; bytes that are no text pass as they are."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            await ada.post("/workloads", json=job())
            content = bytes(range(256)) * 8 + b"\xe2\x96"
            (tmp_runtime.runtime_dir / "1.1.log").write_bytes(content)
            parts, offset = [], 0
            while part := await ada.get("/workloads/1/log", params={"offset": offset, "limit": 1000}):
                parts.append(part.content)
                offset = int(part.headers["X-Next-Offset"])
                if not part.content:
                    break
            assert b"".join(parts) == content
            assert part.headers["X-Log-Complete"] == "false"
            tail = await ada.get("/workloads/1/log", params={"offset": -2})
            assert (tail.content, tail.headers["X-Next-Offset"]) == (content[-2:], str(len(content)))
            assert (await ada.get("/workloads/1/log", params={"offset": 2**53})).content == b""
            for wrong in ({"attempt": 0}, {"attempt": -1}, {"limit": 0}, {"offset": 2**70}, {"offset": "x"}):
                assert (await ada.get("/workloads/1/log", params=wrong)).status_code == 422
            assert (await ada.get("/workloads/1/log", params={"attempt": 7})).status_code == 404

    play(story)


def test_a_log_is_its_owners(tmp_runtime: Places) -> None:
    """Others need the scope `logs`; a reservation has none."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            await broker.as_("ada").post("/workloads", json=job())
            await broker.as_("ada").post("/workloads", json=RESERVATION)
            got = {
                who: (await broker.as_(who).get("/workloads/1/log")).status_code
                for who in ("ada", "grace", "logreader", "oper")
            }
            assert got == {"ada": 200, "grace": 403, "logreader": 200, "oper": 200}
            assert (await broker.as_("ada").get("/workloads/2/log")).status_code == 404

    play(story)


def test_a_log_that_is_a_link_is_not_followed(tmp_runtime: Places) -> None:
    """What lies in an attempt's folder may be its user's: a link or a pipe gives nothing, and hangs nobody."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=job())
            path = tmp_runtime.runtime_dir / "1.1.log"
            path.symlink_to("/etc/passwd")
            assert (await broker.as_("ada").get("/workloads/1/log")).content == b""
            path.unlink()
            os.mkfifo(path)
            assert (await broker.as_("ada").get("/workloads/1/log")).content == b""

    play(story)


def test_a_followed_log_ends_with_its_attempt(tmp_runtime: Places) -> None:
    """It begins before the attempt has started, brings every byte, and ends by itself."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada, path = broker.as_("ada"), tmp_runtime.runtime_dir / "1.1.log"
            await ada.post("/workloads", json=job())
            followed = asyncio.ensure_future(ada.get("/workloads/1/log", params={"follow": "true"}))
            await broker.loop.handle(SeeStarted(workload=1, attempt=1, holder=Holder(kind="attempt", name="1.1")))
            path.write_bytes(b"one ")
            outcome = Outcome(end=EndReason.SUCCEEDED, exit_code=0)
            with path.open("ab") as file:  # before its end is told, as the supervisor does
                file.write(b"two")
            await broker.loop.handle(SeeExited(workload=1, attempt=1, outcome=outcome, clear=True))
            async with asyncio.timeout(10):
                answer = await followed
            assert answer.content == b"one two"
            assert answer.headers["X-Attempt"] == "1"

    play(story)


# -- the stream


def test_the_stream_begins_with_the_whole_and_goes_on_with_changes(tmp_runtime: Places) -> None:
    """First a status, then changes as the caller may see them, and sample lines as they are sent to everybody."""

    async def story() -> None:
        async with (
            an_api(tmp_runtime.runtime_dir, policy=Policy(names_are_public=False)) as broker,
            broker.as_("grace").stream("GET", "/stream") as answer,
        ):
            lines = answer.aiter_lines()

            async def next_change() -> Change:
                text = await anext(lines)
                hold_to({"$ref": "#/components/schemas/Change"}, json.loads(text))
                return msgspec.json.decode(text, type=Change)

            async with asyncio.timeout(10):
                first = await next_change()
                assert first.status is not None
                assert first.status.caller == "grace"
                broker.loop.publisher.send(b'{"samples":[]}\n')
                assert await next_change() == Change()
                await broker.as_("ada").post("/workloads", json=job(name="secret"))
                change = await next_change()
                assert [(it.id, it.owner, it.name) for it in change.changes] == [(1, None, None)]
                assert [it.workloads for it in change.devices] == [(1,)]
                assert change.revision == broker.loop.world.revision

    play(story)


def test_changes_of_one_second_come_in_one_line(tmp_runtime: Places) -> None:
    """A burst is told at once and then once a second, not once for each commit."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, broker.as_("ada").stream("GET", "/stream") as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            began = time.monotonic()
            for _ in range(5):
                await broker.as_("ada").post("/workloads", json=job())
            seen: set[int] = set()
            count = 0
            async with asyncio.timeout(10):
                while seen != {1, 2, 3, 4, 5}:
                    seen |= {it.id for it in msgspec.json.decode(await anext(lines), type=Change).changes}
                    count += 1
            # One at once, one for each second since, however long a slow machine takes for five.
            assert count <= 2 + int(time.monotonic() - began)

    play(story)


def test_who_reads_slowly_gets_a_whole_status_again(tmp_runtime: Places) -> None:
    """A listener that stops reading costs nothing; when it reads again, a status brings it up to date."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker, broker.here().stream("GET", "/stream") as answer:
            lines = answer.aiter_lines()
            assert msgspec.json.decode(await anext(lines), type=Change).status is not None
            line = b'{"samples":[]' + b" " * 100_000 + b"}\n"
            for _ in range(50):  # far more than a socket holds
                broker.loop.publisher.send(line)
                await asyncio.sleep(0)
            await broker.as_("ada").post("/workloads", json=RESERVATION)
            async with asyncio.timeout(20):
                while True:
                    broker.loop.publisher.send(b'{"samples":[]}\n')
                    status = msgspec.json.decode(await anext(lines), type=Change).status
                    if status is not None:
                        break
            assert [it.id for it in status.workloads] == [1]

    play(story)


def test_the_stream_ends_with_the_broker(tmp_runtime: Places) -> None:
    """When the broker stops, so does the stream, in good order; and the last listener takes the subscription along."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            async with broker.as_("ada").stream("GET", "/stream") as answer:
                assert broker.loop.publisher.listeners == 0 or await anext(answer.aiter_lines())
            async with asyncio.timeout(5):
                while broker.loop.publisher.listeners:
                    await asyncio.sleep(0.01)
            async with broker.as_("ada").stream("GET", "/stream") as answer:
                lines = answer.aiter_lines()
                await anext(lines)
                broker.loop.publisher.close()
                assert [line async for line in lines] == []

    play(story)


# -- what must not get past the door


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"kind": "resrvation"}',
        b'{"kind": "reservation", "gpus": 1}',
        b'{"kind": "reservation", "ask": {"devices": -1}}',
        b'{"kind": "reservation", "ask": {"devices": 1e999}}',
        b'{"kind": "reservation", "ask": {"devices": 99999999999999999999999999}}',
        b'{"kind": "reservation", "ask": {"devices": 1.5}}',
        b'{"kind": "reservation", "ask": {"duration_seconds": 99999999999}}',
        b'{"kind": "reservation", "not_before": 1e300}',
        b'{"kind": "reservation", "not_before": -1}',
        b'{"kind": "reservation", "name": "\\u001b[2J"}',
        b'{"kind": "reservation", "name": "' + b"x" * 201 + b'"}',
        b'{"kind": "reservation", "name": "\\ud800"}',
        b'{"kind": "reservation", "spec": {"argv": ["true"], "folder": "/tmp"}}',
        b'{"kind": "job"}',
        b'{"kind": "job", "spec": {"argv": [], "folder": "/tmp"}}',
        b'{"kind": "job", "spec": {"argv": [""], "folder": "/tmp"}}',
        b'{"kind": "job", "spec": {"argv": ["a\\u0000b"], "folder": "/tmp"}}',
        b'{"kind": "job", "spec": {"argv": ["base64:!!!"], "folder": "/tmp"}}',
        b'{"kind": "job", "spec": {"argv": ["true"], "folder": "tmp"}}',
        b'{"kind": "job", "spec": {"argv": ["true"], "folder": "/tmp/\\u0000"}}',
        b'{"kind": "job", "spec": {"argv": ["true"], "folder": "/tmp", "retries": -1}}',
        b'{"kind": "job", "script": {"name": "x", "content": "%"}}',
        json.dumps(job(spec={"script_index": 5}, script={"name": "x", "content": ""})).encode(),
        b'{"kind": "job", "spec": {"argv": ["true"], "folder": "/tmp"}, "script": {"name": "x", "content": ""}}',
        b"[" * 100_000,
    ],
    ids=lambda body: body[:60].decode("latin-1"),
)
def test_a_body_that_cannot_be_meant_is_refused(tmp_runtime: Places, body: bytes) -> None:
    """422 with a sentence; never 500, and nothing is submitted."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await broker.as_("ada").post("/workloads", content=body)
            assert answer.status_code == (413 if len(body) > api.SUBMIT_BYTES else 422)
            assert answer.json()["message"]
            assert not broker.loop.world.workloads

    play(story)


@pytest.mark.parametrize(
    "text", ["0", "-1", "x", "1.0", "٣", "9" * 400, "2147483648", "9223372036854775808", "%00", "1%2F2"]
)
def test_an_id_that_is_none_is_not_found(tmp_runtime: Places, text: str) -> None:
    """Whatever stands where a number should: 404, never 500."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            for path in (f"/workloads/{text}", f"/workloads/{text}/events", f"/workloads/{text}/log"):
                answer = await broker.as_("oper").get(path)
                assert answer.status_code == 404, path

    play(story)


def test_an_unknown_route_and_a_wrong_verb_are_said_as_all_errors(tmp_runtime: Places) -> None:
    """404 and 405 carry our body, a slip in a query is named."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            assert (await ada.get("/nope")).json()["code"] == "not-found"
            assert (await ada.delete("/status")).status_code == 405
            assert (await ada.post("/status")).status_code == 405
            slip = await ada.get("/workloads", params={"limt": 3})
            assert (slip.status_code, "limt" in slip.json()["message"]) == (422, True)
            assert (await ada.get("/workloads?state=%ff")).status_code == 422
            assert (await ada.get("/workloads", params={"after": -1})).status_code == 422

    play(story)


def test_too_large_a_body_is_refused(tmp_runtime: Places) -> None:
    """413, and small routes take only small bodies; what has no end is cut off; nothing of it is kept."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            for path, size in (("/workloads", api.SUBMIT_BYTES + 1), ("/workloads/1/extend", 70_000)):
                answer = await ada.post(path, content=b" " * size)
                assert answer.status_code == 413

            async def endless() -> AsyncIterator[bytes]:
                for _ in range(200):
                    yield b" " * 1_000_000

            with pytest.raises(httpx.HTTPError):
                (await ada.post("/workloads", content=endless())).raise_for_status()
            assert (await ada.get("/status")).status_code == 200

    play(story)


def test_a_fault_of_ours_says_so_and_tells_nothing(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    """500 with our body; the traceback is in the log alone. A refusal is one line of it."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            caplog.set_level("INFO")
            await broker.as_("ada").get("/nope")
            assert [record.levelname for record in caplog.records if "api" in record.name] == ["INFO"]
            monkeypatch.setattr(broker.loop, "broker_view", lambda: 1 / 0)
            answer = await broker.as_("ada").get("/broker")
            assert (answer.status_code, answer.json()["code"]) == (500, "error")
            assert "ZeroDivision" not in answer.text
            assert "ZeroDivisionError" in caplog.text

    play(story)


def test_a_client_of_another_age_is_refused_before_it_acts(tmp_runtime: Places) -> None:
    """More than one minor version apart is a conflict; the answers say which version the broker is."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            for version, status in ((__version__, 201), ("0.2.9", 202), ("0.9.0", 409), ("9.0", 409), ("?", 409)):
                answer = await broker.as_("ada").post(
                    "/workloads", json=RESERVATION, headers={"X-Jupyter-GPU-Version": version}
                )
                assert answer.status_code == status
                assert answer.headers["X-Jupyter-GPU-Version"] == __version__

    play(story)


def test_the_broker_is_stopped_by_admins(tmp_runtime: Places) -> None:
    """202 and a call of the app's own stop; users may not."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            stopped: list[int] = []
            broker.loop.on_stop = lambda: stopped.append(1)
            assert (await broker.as_("ada").post("/broker/stop")).status_code == 403
            assert (await broker.as_("oper").post("/broker/stop")).status_code == 202
            assert stopped == [1]

    play(story)


def test_no_line_of_the_log_is_a_callers(tmp_runtime: Places, caplog: pytest.LogCaptureFixture) -> None:
    """What stands in a path, a query or a header is quoted and cut, in the log as in the answer."""
    forged = "1%0A2026-01-01%20INFO%20broker:%20all%20is%20well%1B%5B2J%E2%80%AE"

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada = broker.as_("ada")
            for path in (
                f"/workloads/{forged}",
                f"/nothing/{forged}",
                f"/workloads?{forged}=1",
                f"/workloads?limit={forged}",
                f"/workloads/{'9' * 2000}",
            ):
                answer = await ada.get(path)
                assert answer.is_client_error
            message = (await ada.get(f"/workloads/{forged}")).json()["message"]
            assert message.isascii()
            assert message.isprintable()
            assert len((await ada.get(f"/workloads/{'9' * 2000}")).json()["message"]) < 100

    with caplog.at_level(logging.DEBUG):
        play(story)
    said = [it.getMessage() for it in caplog.records if it.name.startswith("jupyter_gpu.broker.api")]
    assert len(said) >= 7
    assert all(it.isprintable() and it.isascii() and len(it) < 600 for it in said), said
