"""Who may come in at the server extension, and what is passed on to the broker: Jupyter's own rules, and no tricks."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import httpx
import pytest

from jupyter_gpu.jupyter.handlers import ROUTES
from jupyter_gpu.model import Ask, JobSpec, Kind, RecurringBody, SubmitBody, unpack_bytes
from tests.broker.api_ground import job
from tests.broker.ground import a_job
from tests.jupyter.server_ground import DenyAll, DenyFiles, DenyWrites, a_broker, a_server, body, error_of, play
from tests.jupyter.test_jobs import ODD_NAMES
from tests.notebooks.ground import a_cell, write_notebook

KERNEL = "jupyter-gpu/kernels/00000000-0000-0000-0000-000000000000"
#: Every route and every verb that it has.
DOORS = [
    ("GET", "jupyter-gpu/hello"),
    ("GET", "jupyter-gpu/kernels"),
    ("POST", f"{KERNEL}/reservation"),
    ("DELETE", f"{KERNEL}/reservation"),
    ("POST", f"{KERNEL}/pin"),
    ("POST", f"{KERNEL}/claim"),
    ("POST", "jupyter-gpu/jobs"),
    ("GET", "jupyter-gpu/notebook"),
    ("GET", "jupyter-gpu/api/v1/status"),
    ("POST", "jupyter-gpu/api/v1/workloads"),
    ("DELETE", "jupyter-gpu/api/v1/recurring/1"),
    ("GET", "jupyter-gpu/nothing"),
    ("POST", "jupyter-gpu/nothing"),
]
WRITES = [door for door in DOORS if door[0] != "GET"]
A_RESERVATION = body(SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=600)))


async def refusal(opening) -> int:
    """The status that a stream is refused with."""
    from tornado.httpclient import HTTPClientError

    with pytest.raises(HTTPClientError) as found:
        await opening
    return found.value.code


def test_every_route_is_tried():
    """A new route is a new door: it must stand in the list above."""
    known = {path.replace("jupyter-gpu", "", 1).split("/")[-1] for _, path in DOORS}

    for pattern, _ in ROUTES:
        last = pattern.rpartition("/")[2]
        assert last in known | {"stream", "(.+)"} or pattern == "jupyter-gpu/?.*", pattern


def test_nobody_comes_in_without_a_login(tmp_path, tmp_runtime):
    """Every route, every verb and the stream: 403 with what to do, never a redirect, also with a wrong token."""

    async def story():
        async with a_server(tmp_path) as server:
            for headers in ({}, {"Authorization": "token wrong"}):
                for verb, path in DOORS:
                    answer = await server.nobody(headers=headers).request(verb, path)
                    assert answer.status_code == 403, (verb, path)
                    assert error_of(answer)["hint"]
                assert await refusal(server.listen(headers=headers)) == 403

    play(story)


def test_a_token_needs_no_xsrf(tmp_path, tmp_runtime):
    """jupyterhub/jupyterhub#4845 (a): who shows the token, in a header or in the URL, may ask and act."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir), a_server(tmp_path) as server:
            path = "jupyter-gpu/api/v1/workloads"
            assert (await server.program().post(path, content=A_RESERVATION)).status_code == 201
            assert (await (await server.listen(headers={}, query="?token=token-of-the-server")).status()).devices

    play(story)


def test_a_cookie_needs_its_xsrf_token(tmp_path, tmp_runtime):
    """jupyterhub/jupyterhub#4845 (b), (c): with X-XSRFToken it may act, without it gets 403 and is told to reload."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            page = await server.page()
            path = "jupyter-gpu/api/v1/workloads"
            assert (await page.get("jupyter-gpu/api/v1/status")).status_code == 200

            for verb, door in WRITES:
                answer = await page.request(verb, door, content=A_RESERVATION)
                assert answer.status_code == 403, (verb, door)
                assert "Reload" in error_of(answer)["hint"]
            assert not broker.loop.world.workloads

            headers = {"X-XSRFToken": page.cookies["_xsrf"]}
            assert (await page.post(path, content=A_RESERVATION, headers=headers)).status_code == 201
            cookies = "; ".join(f"{name}={value}" for name, value in page.cookies.items())
            assert (await (await server.listen(headers={"Cookie": cookies})).status()).workloads

    play(story)


def test_a_foreign_page_gets_nothing(tmp_path, tmp_runtime):
    """A page of another site rides on the visitor's cookie: refused, the stream too. Who shows the token is no page."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir), a_server(tmp_path) as server:
            page = await server.page()
            foreign = {"Origin": "https://evil.example"}
            assert (await page.get("jupyter-gpu/hello", headers=foreign)).status_code == 404
            write = foreign | {"X-XSRFToken": page.cookies["_xsrf"]}
            answer = await page.post("jupyter-gpu/api/v1/workloads", content=A_RESERVATION, headers=write)
            assert answer.status_code in (403, 404)
            cookies = "; ".join(f"{name}={value}" for name, value in page.cookies.items())
            assert await refusal(server.listen(headers=foreign | {"Cookie": cookies})) == 403
            token = {"Authorization": "token token-of-the-server"}
            assert (await (await server.listen(headers=foreign | token)).status()).devices

    play(story)


def test_who_may_only_look(tmp_path, tmp_runtime):
    """An authorizer decides: reading passes, with the stream, and every write is refused before it is looked at."""

    async def story():
        words = {"authorizer_class": DenyWrites}
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path, **words) as server:
            assert (await server.program().get("jupyter-gpu/api/v1/status")).status_code == 200
            assert (await (await server.listen()).status()).devices
            for verb, door in WRITES:
                answer = await server.program().request(verb, door, content=A_RESERVATION)
                assert (answer.status_code, error_of(answer)["code"]) == (403, "not-allowed")
            assert not broker.loop.world.workloads

    play(story)


def test_who_may_not_even_look(tmp_path, tmp_runtime):
    """Nothing of ours, and all else of Jupyter."""

    async def story():
        async with a_server(tmp_path, authorizer_class=DenyAll) as server:
            for verb, door in DOORS:
                assert (await server.program().request(verb, door)).status_code == 403
            assert await refusal(server.listen()) == 403
            assert (await server.program().get("api/kernels")).status_code == 200

    play(story)


def test_what_the_broker_says_comes_back_as_it_is(tmp_path, tmp_runtime):
    """Status, body, query, key and place; an error too."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir, count=2) as broker, a_server(tmp_path, base_url="/j/") as server:
            program, path = server.program(), "jupyter-gpu/api/v1/workloads"
            key = {"Idempotency-Key": "k1"}
            made = await program.post(path, content=A_RESERVATION, headers=key)
            again = await program.post(path, content=A_RESERVATION, headers=key)
            assert (made.status_code, made.json()["id"]) == (201, again.json()["id"])
            assert len(broker.loop.world.workloads) == 1
            assert made.headers["Location"] == f"/j/jupyter-gpu/api/v1/workloads/{made.json()['id']}"
            assert (await program.get(made.headers["Location"][3:])).json()["id"] == made.json()["id"]

            assert (await program.get(f"{path}?kind=job")).json()["items"] == []
            assert len((await program.get(f"{path}?kind=reservation&mine=true")).json()["items"]) == 1
            for bad, status, code in (
                ("workloads/999", 404, "not-found"),
                ("workloads?limit=none", 422, "invalid-ask"),
            ):
                answer = await program.get(f"jupyter-gpu/api/v1/{bad}")
                assert (answer.status_code, error_of(answer)["code"]) == (status, code)
            answer = await program.post(path, content=b"{")
            assert (answer.status_code, error_of(answer)["code"]) == (422, "invalid-ask")

    play(story)


def test_to_look_is_no_activity(tmp_path, tmp_runtime):
    """A page that was left open keeps no idle server from being culled; who acts is there."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir), a_server(tmp_path) as server:
            settings = server.app.web_app.settings
            answer = await server.program().get(
                "jupyter-gpu/api/v1/workloads?no_track_activity=1&mine=true&1796050390626"
            )
            assert answer.json() == {"items": [], "next": None}
            assert "api_last_activity" not in settings
            await server.program().post("jupyter-gpu/api/v1/workloads", content=A_RESERVATION)
            assert "api_last_activity" in settings

    play(story)


def test_a_log_comes_byte_for_byte(tmp_path, tmp_runtime):
    """Raw bytes and the headers that say where to go on; nothing guesses at what they are."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            made = (await broker.as_("oper").post("/workloads", json=job("true"))).json()
            raw = bytes(range(256)) * 3
            broker.loop.log_path(made["id"], 1).write_bytes(raw)
            path = f"jupyter-gpu/api/v1/workloads/{made['id']}/log"
            answer = await server.program().get(f"{path}?offset=-512&limit=256")

            assert answer.content == raw[256:512]
            assert (answer.headers["X-Next-Offset"], answer.headers["X-Attempt"]) == ("512", "1")
            assert answer.headers["X-Log-Complete"] == "false"
            assert answer.headers["Content-Type"] == "application/octet-stream"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]

    play(story)


@pytest.mark.parametrize(
    "path",
    [
        "stream", "openapi.json", "broker/stop", "broker/./stop", "broker//stop", "broker/stop/", "x/../broker/stop",
        "%2e%2e/v1/broker/stop", "broker%2Fstop", "broker/%73top", "workloads/1%2f..%2f..%2fbroker%2fstop", "./stream",
        "..", "a\\b", "workloads/1;x", "status%00", "workloads/%0d%0aX: y", "s" * 300,
    ],
)  # fmt: skip
def test_what_is_not_passed_on(tmp_path, tmp_runtime, path):
    """The stream and the stop, by whatever spelling: a path is never decoded here and read again there."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            asked = []
            broker.loop.stop = lambda: asked.append(path)
            for verb in ("GET", "POST"):
                raw = httpx.URL(server.url()).copy_with(raw_path=f"/jupyter-gpu/api/v1/{path}".encode())
                answer = await server.program().request(verb, raw)
                assert answer.status_code in (400, 403, 404), (verb, answer.status_code)
            assert asked == []

    play(story)


def test_a_recurring_job_is_listed_paused_and_removed(tmp_path, tmp_runtime):
    """A page deletes calendars, and nothing else of what the broker deletes."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir, count=1) as broker, a_server(tmp_path) as server:
            spec = JobSpec(argv=("true",), folder=str(tmp_path))
            asked = RecurringBody(cron="30 2 * * *", timezone="UTC", job=SubmitBody(kind=Kind.JOB, spec=spec))
            program, path = server.program(), "jupyter-gpu/api/v1/recurring"
            made = (await program.post(path, content=body(asked))).json()
            assert [it["id"] for it in (await program.get(path)).json()["items"]] == [made["id"]]
            assert (await program.post(f"{path}/{made['id']}/pause")).json()["paused"] is True
            assert (await program.post(f"{path}/{made['id']}/fire")).json()["recurring"] == made["id"]

            (device,) = broker.loop.world.devices
            for other in (f"devices/{device}", "recurring", f"recurring/{made['id']}/pause", "recurring/x"):
                answer = await program.delete(f"jupyter-gpu/api/v1/{other}")
                assert (answer.status_code, error_of(answer)["code"]) == (404, "not-found"), other
            assert (device,) == tuple(broker.loop.world.devices)

            assert (await program.delete(f"{path}/{made['id']}")).json()["id"] == made["id"]
            assert (await program.get(path)).json()["items"] == []

    play(story)


def test_the_curve_and_the_attempts_of_a_job(tmp_path, tmp_runtime):
    """As the broker gives them to who asks it directly: its refusals too."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir, count=1), a_server(tmp_path) as server:
            program, path = server.program(), "jupyter-gpu/api/v1/workloads"
            made = (await program.post(path, content=body(job("true")))).json()["id"]
            other = (await program.post(path, content=A_RESERVATION)).json()["id"]
            for what in ("progress", "attempts"):
                assert (await program.get(f"{path}/{made}/{what}")).json()["items"] == []
                answer = await program.get(f"{path}/{other}/{what}")
                assert (answer.status_code, error_of(answer)["code"]) == (404, "not-found")

    play(story)


def test_a_log_is_not_followed(tmp_path, tmp_runtime):
    """It would stay open; part by part it does as well."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir), a_server(tmp_path) as server:
            answer = await server.program().get("jupyter-gpu/api/v1/workloads/1/log?follow=true")
            assert (answer.status_code, error_of(answer)["code"]) == (422, "invalid-ask")

    play(story)


def test_a_get_changes_nothing(tmp_path, tmp_runtime):
    """jupyterhub/jupyterhub#4845: what acts is no GET, neither here nor at the broker."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            made = (await server.program().post("jupyter-gpu/api/v1/workloads", content=A_RESERVATION)).json()
            before = broker.loop.world.revision
            for verb in ("cancel", "release", "extend", "move", "renew"):
                path = f"jupyter-gpu/api/v1/workloads/{made['id']}/{verb}"
                assert (await server.program().get(path)).status_code == 405
            for path in (f"{KERNEL}/reservation", f"{KERNEL}/pin", f"{KERNEL}/claim", "jupyter-gpu/jobs"):
                assert (await server.program().get(path)).status_code == 405
            assert broker.loop.world.revision == before

    play(story)


def test_a_body_is_bounded(tmp_path, tmp_runtime):
    """More than anybody means is refused with a number."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir), a_server(tmp_path) as server:
            for path, size in (("api/v1/workloads", 27 << 20), ("jobs", 70_000)):
                answer = await server.program().post(f"jupyter-gpu/{path}", content=b" " * size)
                assert (answer.status_code, error_of(answer)["code"]) == (413, "limit-exceeded")

    play(story)


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b'{"path": 1}', b'{"path": "a", "more": 1}', b'{"devices": -1, "path": "a"}', b"\xff"]
)
def test_a_bad_body_is_told(tmp_path, tmp_runtime, raw):
    """What cannot be meant is a 422 that says what is wrong with it."""

    async def story():
        async with a_server(tmp_path) as server:
            answer = await server.program().post("jupyter-gpu/jobs", content=raw)
            assert (answer.status_code, error_of(answer)["code"]) == (422, "invalid-ask")

    play(story)


def test_who_goes_away_waits_no_more(tmp_path, tmp_runtime):
    """A page that is closed while it waits: the broker's wait ends too, instead of piling up."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir, count=1) as broker, a_server(tmp_path) as server:
            await broker.loop.handle(a_job(devices=1))
            await broker.loop.handle(a_job(devices=1))
            gone = asyncio.Event()
            wait_until = broker.loop.wait_until

            async def watched(*args):
                try:
                    return await wait_until(*args)
                finally:
                    gone.set()

            broker.loop.wait_until = watched
            path = f"jupyter-gpu/api/v1/workloads/{max(broker.loop.world.workloads)}/wait?timeout=200"
            with pytest.raises(httpx.ReadTimeout):
                await server.program().get(path, timeout=0.5)
            await asyncio.wait_for(gone.wait(), 10)

    play(story)


def test_no_broker_is_said_with_what_helps(tmp_path, tmp_runtime):
    """Where none may be started: 503, in the words of the house."""

    async def story():
        async with a_server(tmp_path, extension={"start_broker": False}) as server:
            for path in ("api/v1/status",):
                answer = await server.program().get(f"jupyter-gpu/{path}")
                assert (answer.status_code, error_of(answer)["code"]) == (503, "broker-unavailable")
                assert error_of(answer)["hint"]
            assert (await server.program().get("jupyter-gpu/hello")).json()["start_broker"] is False

    play(story)


def test_a_file_is_submitted(tmp_path, tmp_runtime):
    """The route: 202 with the workload; the same key again is the same job."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            (tmp_path / "train.sh").write_text("true")
            sent = body({"path": "train.sh", "name": "mine"})
            for _ in range(2):
                answer = await server.program().post(
                    "jupyter-gpu/jobs", content=sent, headers={"Idempotency-Key": "one"}
                )
                assert answer.status_code == 202, answer.text
                assert answer.json()["name"] == "mine"
            assert len(broker.loop.world.workloads) == 1
            answer = await server.program().post("jupyter-gpu/jobs", content=body({"path": "../x.sh"}))
            assert (answer.status_code, error_of(answer)["code"]) == (404, "not-found")

    play(story)


@pytest.mark.parametrize("path", ["jobs", "api/v1/workloads"])
@pytest.mark.parametrize("key", ["é".encode(), b"\xff", b"a\tb", b"x" * 300, b""])
def test_a_key_that_is_no_word(tmp_path, tmp_runtime, path, key):
    """Said here: it could not even be passed on."""

    async def story():
        async with a_server(tmp_path) as server:
            (tmp_path / "train.sh").write_text("true")
            sent = body({"path": "train.sh"})
            answer = await server.program().post(
                f"jupyter-gpu/{path}", content=sent, headers=[(b"Idempotency-Key", key)]
            )
            assert (answer.status_code, error_of(answer)["code"]) == (422, "invalid-ask")
            assert "Idempotency-Key" in error_of(answer)["message"]

    play(story)


def test_a_notebook_is_submitted_once_for_a_key(tmp_path, tmp_runtime):
    """A page that sends it again, having heard no answer, gets the same job; another key is another job."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            (tmp_path / "a.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
            for key, count in (("one", 1), ("one", 1), ("two", 2)):
                answer = await server.program().post(
                    "jupyter-gpu/jobs", content=body({"path": "a.ipynb"}), headers={"Idempotency-Key": key}
                )
                assert answer.status_code == 202, answer.text
                assert len(broker.loop.world.workloads) == count

    play(story)


def test_a_form_for_a_notebook(tmp_path, tmp_runtime):
    """Its parameters by GET, which queues nothing; with them it is queued, and what is odd about them is told."""
    cells = [a_cell("lr = 1e-3  # how fast\nsteps: int = 10", "parameters"), "print(lr)"]
    write_notebook(tmp_path / "my 100% “a#b?.ipynb", *cells)
    path = {"path": "my 100% “a#b?.ipynb"}

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            found = await server.program().get("jupyter-gpu/notebook", params=path)
            assert found.json() == path | {
                "kernel": "python3",
                "has_parameters_cell": True,
                "parameters": [
                    {"name": "lr", "default": "1e-3", "help": "how fast"},
                    {"name": "steps", "default": "10", "type": "int"},
                ],
            }
            assert not broker.loop.world.workloads
            for name, code in (("none.ipynb", "not-found"), ("../x.ipynb", "not-found")):
                answer = await server.program().get("jupyter-gpu/notebook", params={"path": name})
                assert error_of(answer)["code"] == code
            assert (await server.program().get("jupyter-gpu/notebook")).status_code == 400
            sent = body(path | {"parameters": {"lr": 0.1, "stepps": None}})
            answer = await server.program().post("jupyter-gpu/jobs", content=sent)
            assert (answer.status_code, answer.json()["notes"]) == (202, [f"no cell of {path['path']} uses stepps"])
            (it,) = broker.loop.world.workloads.values()
            assert it.spec.parameters == {"lr": 0.1, "stepps": None}
        async with a_server(tmp_path, authorizer_class=DenyFiles) as server:
            assert (await server.program().get("jupyter-gpu/notebook", params=path)).status_code == 403

    play(story)


def test_odd_names_through_the_server(tmp_path, tmp_runtime):
    """jupyter-server/jupyter-scheduler#353, #272: queued, and the results opened and downloaded, under each name."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            for name in ODD_NAMES:
                write_notebook(tmp_path / name, a_cell("lr = 1", "parameters"))
                found = await server.program().get("jupyter-gpu/notebook", params={"path": name})
                assert [it["name"] for it in found.json()["parameters"]] == ["lr"]
                answer = await server.program().post("jupyter-gpu/jobs", content=body({"path": name}))
                assert answer.status_code == 202, answer.text
                spec = broker.loop.world.workloads[answer.json()["id"]].spec
                assert unpack_bytes(spec.argv[-2]).decode() == name
                results = unpack_bytes(spec.recorded["output_notebook"]).decode()
                write_notebook(tmp_path / results, "'results'")
                for path in (name, results):
                    opened = await server.program().get(f"api/contents/{quote(path)}")
                    assert (opened.json()["name"], opened.json()["type"]) == (path, "notebook")
                    loaded = await server.program().get(f"files/{quote(path)}", params={"download": 1})
                    assert loaded.content == (tmp_path / path).read_bytes()

    play(story)


def test_errors_of_a_fault_tell_nothing(tmp_path, tmp_runtime, monkeypatch):
    """A fault of ours is a 500 in the same three words, without a traceback."""

    async def broken(*_args, **_words):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("jupyter_gpu.jupyter.server.GpuExtension.hello", broken)

    async def story():
        async with a_server(tmp_path) as server:
            answer = await server.program().get("jupyter-gpu/hello")
            assert answer.status_code == 500
            assert "secret" not in json.dumps(error_of(answer))

    play(story)
