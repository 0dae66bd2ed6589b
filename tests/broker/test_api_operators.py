"""What an operator works with: everybody's work page by page, and words for those whom a cordon or an end concerns."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from jupyter_gpu.broker.api.changes import change_for
from jupyter_gpu.broker.api.views import whole_status
from jupyter_gpu.model import Caller, Policy, Scope, Status
from tests.conftest import Places

from .api_ground import an_api, job, play
from .ground import a_job, a_reservation

SECRET = Policy(names_are_public=False)
OLGA = Caller(name="olga", account="olga", scopes=frozenset({Scope.READ, Scope.OPERATE}))
READER = Caller(name="ron", account="ron", scopes=frozenset({Scope.READ}))


async def ids(client: httpx.AsyncClient, **wanted: Any) -> list[int]:
    """The numbers of all the workloads that are listed, page by page."""
    found: list[int] = []
    after: int | None = 0
    while after is not None:
        answer = await client.get("/workloads", params={**wanted, "after": after, "limit": 2})
        assert answer.status_code == 200, answer.text
        found += [it["id"] for it in answer.json()["items"]]
        after = answer.json()["next"]
    return found


def test_all_that_lives_is_found_by_owner_queue_state_and_kind(tmp_runtime: Places) -> None:
    """Each alone and together, with paging; what ended is there when it is asked for."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada, grace, oper = (broker.as_(name) for name in ("ada", "grace", "oper"))
            for number, client in enumerate((ada, grace, ada, grace, ada, ada)):
                kind = job() if number % 2 == 0 else {"kind": "reservation"}
                assert (await client.post("/workloads", json=kind)).status_code in (201, 202)
            await grace.post("/workloads/4/cancel")
            live = {"ended": "false"}
            assert await ids(oper, **live) == [6, 5, 3, 2, 1]
            assert await ids(oper, owner="ada", **live) == [6, 5, 3, 1]
            assert await ids(oper, owner="ada", kind="job", **live) == [5, 3, 1]
            assert await ids(oper, owner="ada", kind="job", state="queued", **live) == [5, 3]
            assert await ids(oper, owner="grace", queue="interactive", **live) == [2]
            assert await ids(oper, owner="grace", queue="interactive") == [4, 2]
            assert await ids(oper, owner="nobody") == await ids(oper, owner="ad", **live) == []

    play(story)


@pytest.mark.parametrize("ended", ["true", "false"])
def test_to_ask_for_an_owner_tells_nobody_whose_a_work_is(tmp_runtime: Places, ended: str) -> None:
    """Where names are secret, that a GPU is held is no secret, and by whom is one."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, policy=SECRET) as broker:
            await broker.loop.handle(a_reservation("ada"))
            assert await ids(broker.as_("grace"), ended=ended) == [1]
            assert await ids(broker.as_("grace"), ended=ended, owner="ada") == []
            assert await ids(broker.as_("ada"), ended=ended, owner="ada") == [1]
            assert await ids(broker.as_("oper"), ended=ended, owner="ada") == [1]

    play(story)


def test_the_reason_of_a_drain_reaches_the_holder_and_stays_with_the_device(tmp_runtime: Places) -> None:
    """As the end of a sentence, whatever sign it was written with; until the device is cordoned no more."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada, oper = broker.as_("ada"), broker.as_("oper")
            await ada.post("/workloads", json=job())
            drained = (await oper.post("/devices/0/drain", json={"reason": " node maintenance. "})).json()
            assert (drained["cordoned"], drained["cordon_reason"]) == (True, "node maintenance")
            assert drained["cordoned_by"] == "oper"
            mine = (await ada.get("/workloads/1")).json()
            assert mine["notice"]["detail"] == "drained by oper: node maintenance"
            assert "drained by oper: node maintenance." in mine["reason"]
            told = (await ada.get("/workloads/1/events")).json()["items"][-1]
            assert (told["event"], told["detail"]) == ("evicted", "drained by oper: node maintenance")
            seen = msgspec.json.decode((await ada.get("/status")).content, type=Status).devices[0]
            assert (seen.cordon_reason, seen.cordoned_by) == ("node maintenance", "oper")
            assert "cordon_reason" not in (await oper.post("/devices/0/uncordon")).json()

    play(story)


def test_an_operator_says_why_others_work_is_cancelled(tmp_runtime: Places) -> None:
    """To its owner, and to nobody else who sees that it ended."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            ada, oper = broker.as_("ada"), broker.as_("oper")
            for _ in range(2):
                await ada.post("/workloads", json=job())
            answer = await oper.post("/workloads/2/cancel", json={"reason": "it fills the disk"})
            assert answer.json()["detail"] == "cancelled by oper: it fills the disk"
            assert "cancelled by oper: it fills the disk" in (await ada.get("/workloads/2")).json()["reason"]
            assert "disk" not in (await broker.as_("grace").get("/workloads/2")).text
            assert (await oper.post("/workloads/1/cancel")).json()["detail"] == "cancelled by oper"
            theirs = (await broker.as_("grace").get("/workloads/1")).json()
            assert (theirs["notice"]["reason"], "oper" in str(theirs)) == ("cancelled", False)

    play(story)


@pytest.mark.parametrize("path", ["/workloads/1/cancel", "/devices/0/cordon", "/devices/0/drain"])
@pytest.mark.parametrize("reason", ["x" * 201, "two\nlines", "a \x1b[31m colour", "\u202eturned", 7, None])
def test_a_reason_is_one_line_of_words(tmp_runtime: Places, path: str, reason: object) -> None:
    """It is shown in tables and terminals of others; what is no such line is refused, and nothing done."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=job())
            answer = await broker.as_("oper").post(path, json={"reason": reason})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid-ask")
            assert broker.loop.world.workloads[1].eviction is None
            assert not broker.loop.world.devices["GPU-0"].cordoned

    play(story)


@pytest.mark.parametrize("caller", [OLGA, READER], ids=lambda it: it.name)
def test_ten_thousand_that_wait_are_in_no_document(tmp_runtime: Places, caller: Caller) -> None:
    """The document and each change have what holds devices and what is one's own; the rest is a number, and pages."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            many = [await broker.loop.handle(a_job("ada")) for _ in range(300)]
            status = whole_status(broker.loop, caller)
            assert [it.id for it in status.workloads] == [1]
            assert status.waiting["training"] == 299
            touched = [it.workload for it in many if it.workload is not None]
            change = change_for(broker.loop, caller, status.revision, touched, ())
            assert [it.id for it in change.changes] == [1]
            assert change.waiting == status.waiting

    play(story)
