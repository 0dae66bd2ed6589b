"""Progress: read from the attempts' folders, shown to whom it concerns, and what jobs have done so far."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.broker.engines import procs
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.broker.progress import ProgressReader, cpu_ticks, read_curve
from jupyter_gpu.model import (
    Cancel,
    Change,
    EndReason,
    EvictionReason,
    Holder,
    Outcome,
    Policy,
    Progress,
    Reading,
    SeeExited,
    SeeStarted,
    State,
)
from tests.conftest import Places

from .api_ground import Served, an_api, job, play
from .ground import Clock

RESERVATION = {"kind": "reservation"}


class Desk:
    """A broker, and the folders of its attempts."""

    def __init__(self, broker: Served, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        broker.engine.log_path = lambda workload, attempt: self.of(workload, attempt) / "log"  # type: ignore[method-assign]
        self.reader = ProgressReader(broker.loop)

    def of(self, workload: int, attempt: int = 1) -> Path:
        """The folder of an attempt."""
        path = self.folder / f"{workload}.{attempt}"
        path.mkdir(exist_ok=True)
        return path

    async def run(self, who: str = "ada", **spec: object) -> int:
        """A job that is seen to start."""
        answer = await self.broker.as_(who).post("/workloads", json=job(spec=spec))
        id_ = int(answer.json()["id"])
        (self.of(id_) / "log").touch()
        await self.start(id_, 1)
        return id_

    async def start(self, id_: int, attempt: int, pid: int | None = None) -> None:
        """The mark of an attempt is seen."""
        holder = Holder(kind="attempt", name=f"{id_}.{attempt}", number=attempt, pid=pid)
        await self.broker.loop.handle(SeeStarted(workload=id_, attempt=attempt, holder=holder))

    def report(self, id_: int, step: int, attempt: int = 1, at: float = 5.0) -> None:
        """What its supervisor writes."""
        content = {"at": at, "attempt": attempt, "step": step, "of": 10, "numbers": {"loss": 0.5, "acc": None}}
        draft = self.of(id_, attempt) / "draft"
        draft.write_text(json.dumps(content))
        draft.replace(self.of(id_, attempt) / "progress.json")


@contextlib.asynccontextmanager
async def a_desk(places: Places, count: int = 2, clock: Clock | None = None, **policy: object) -> AsyncIterator[Desk]:
    """Open doors, and a reader that looks when it is told to."""
    words = {} if clock is None else {"clock": clock}
    async with an_api(places.runtime_dir, count=count, policy=Policy(**policy), **words) as broker:
        yield Desk(broker, places.runtime_dir)


def test_what_a_job_reports_is_shown_to_its_owner_and_to_operators(tmp_runtime: Places) -> None:
    """In the document of the job; of others' jobs nobody learns it."""

    async def story() -> None:
        async with a_desk(tmp_runtime) as desk:
            id_ = await desk.run()
            desk.report(id_, 3)
            await desk.reader.look()
            for who, sees in (("ada", True), ("oper", True), ("grace", False)):
                seen = (await desk.broker.as_(who).get(f"/workloads/{id_}")).json().get("progress")
                assert (seen is not None) is sees, who
            assert seen is None
            seen = (await desk.broker.as_("ada").get(f"/workloads/{id_}")).json()["progress"]
            assert seen == {"at": 5.0, "attempt": 1, "step": 3, "of": 10, "numbers": {"loss": 0.5, "acc": None}}

    play(story)


def test_progress_is_told_to_those_who_may_see_it_and_to_nobody_else(tmp_runtime: Places) -> None:
    """Without a commit, once for all jobs that came further within a second."""

    async def story() -> None:
        async with a_desk(tmp_runtime) as desk, contextlib.AsyncExitStack() as stack:
            id_ = await desk.run()
            lines = {}
            for who in ("ada", "oper", "grace"):
                answer = await stack.enter_async_context(desk.broker.as_(who).stream("GET", "/stream"))
                lines[who] = answer.aiter_lines()
                assert json.loads(await anext(lines[who]))["status"]
            desk.report(id_, 3)
            await desk.reader.look()
            for who in ("ada", "oper"):
                change = msgspec.json.decode(await anext(lines[who]), type=Change)
                (it,) = (it for it in change.changes if it.id == id_)
                assert it.progress is not None
                assert it.progress.step == 3
            # What grace hears next is of the commit that follows, not of the look before it.
            revision = desk.broker.loop.world.revision
            await desk.broker.as_("grace").post("/workloads", json=RESERVATION)
            change = msgspec.json.decode(await anext(lines["grace"]), type=Change)
            assert change.revision > revision

    play(story)


def test_the_last_word_of_an_attempt_is_read_after_its_end(tmp_runtime: Places) -> None:
    """It is written just before; and it stays until the next attempt says something, or the job is forgotten."""

    async def story() -> None:
        async with a_desk(tmp_runtime) as desk:
            id_ = await desk.run()
            await desk.reader.look()
            desk.report(id_, 10)
            done = Outcome(end=EndReason.SUCCEEDED, exit_code=0)
            desk.broker.engine.see(id_, 1, Stage.GONE, done)
            await desk.broker.loop.handle(SeeExited(workload=id_, attempt=1, outcome=done, clear=True))
            await desk.reader.look()
            world = desk.broker.loop.world
            assert world.workloads[id_].state is State.ENDED
            assert world.progress[id_].step == 10
            desk.report(id_, 11, at=6.0)
            await desk.reader.look()
            assert world.progress[id_].step == 10
            world._forget(id_)
            await desk.reader.look()
            assert id_ not in world.progress

    play(story)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"step": 1}', '{"at": 1, "step": "x"}', "x" * (2 << 20)])
def test_a_file_that_is_damaged_or_not_ours_is_no_progress(tmp_runtime: Places, content: str) -> None:
    """A disk may lose half of it."""

    async def story() -> None:
        async with a_desk(tmp_runtime) as desk:
            id_ = await desk.run()
            (desk.of(id_) / "progress.json").write_text(content)
            (desk.of(id_) / "progress.curve.json").write_text(content)
            await desk.reader.look()
            assert desk.broker.loop.world.progress == {}
            page = (await desk.broker.as_("ada").get(f"/workloads/{id_}/progress")).json()
            assert page == {"attempt": 1, "items": []}

    play(story)


def test_the_curve_of_an_attempt_has_the_newest_report_in_it(tmp_runtime: Places) -> None:
    """The curve is written more rarely; each attempt has its own, and the newest is meant unless one is named."""

    async def story() -> None:
        async with a_desk(tmp_runtime) as desk:
            id_ = await desk.run()
            items = [{"at": float(n), "attempt": 1, "step": n, "of": None, "numbers": {}} for n in range(3)]
            (desk.of(id_) / "progress.curve.json").write_text(json.dumps({"items": items}))
            desk.report(id_, 7)
            ada = desk.broker.as_("ada")
            page = (await ada.get(f"/workloads/{id_}/progress")).json()
            assert (page["attempt"], [it["step"] for it in page["items"]]) == (1, [0, 1, 2, 7])
            assert page == (await ada.get(f"/workloads/{id_}/progress", params={"attempt": 1})).json()
            assert (await ada.get(f"/workloads/{id_}/progress", params={"attempt": 2})).status_code == 404
            assert (await ada.get(f"/workloads/{id_}/progress", params={"attempt": 0})).status_code == 422

    play(story)


def test_the_newest_report_is_in_the_curve_once(tmp_path: Path) -> None:
    """Where the curve has it already."""
    newest = {"at": 1.0, "attempt": 1, "step": 1, "of": None, "numbers": {}}
    since = {"from_at": 0.5, "from_step": 0}  # what the newest has beside
    (tmp_path / "progress.json").write_text(json.dumps(newest | since))
    (tmp_path / "progress.curve.json").write_text(json.dumps({"items": [newest]}))
    assert read_curve(tmp_path, 1) == (Progress(at=1.0, attempt=1, step=1),)


@pytest.mark.parametrize("what", ["attempts", "progress"])
def test_what_a_job_has_done_is_its_owners_and_operators(tmp_runtime: Places, what: str) -> None:
    """A reservation has done nothing; what is not there is not found."""

    async def story() -> None:
        async with a_desk(tmp_runtime) as desk:
            id_ = await desk.run()
            held = int((await desk.broker.as_("ada").post("/workloads", json=RESERVATION)).json()["id"])
            for who, path, status in (
                ("ada", id_, 200), ("oper", id_, 200), ("grace", id_, 403), ("ada", held, 404), ("ada", 99, 404),
            ):  # fmt: skip
                answer = await desk.broker.as_(who).get(f"/workloads/{path}/{what}")
                assert answer.status_code == status, (who, path)

    play(story)


def test_the_attempts_of_a_job_are_read_from_its_life(tmp_runtime: Places) -> None:
    """However many events it has."""

    async def story() -> None:
        async with a_desk(tmp_runtime) as desk:
            id_ = await desk.run()
            loop = desk.broker.loop
            await loop.handle(Cancel(workload=id_, by="ada"))
            left = Outcome(end=EndReason.FAILED, signal=15, noticed=True, from_step=3, unsaved_seconds=2.5)
            desk.broker.engine.see(id_, 1, Stage.GONE, left)
            await loop.handle(SeeExited(workload=id_, attempt=1, outcome=left, clear=True))
            (one,) = (await desk.broker.as_("ada").get(f"/workloads/{id_}/attempts")).json()["items"]
            assert (one["attempt"], one["eviction"], one["devices"]) == (1, "cancelled", ["GPU-0"])
            assert (one["outcome"]["from_step"], one["outcome"]["unsaved_seconds"]) == (3, 2.5)

    play(story)


def test_a_job_that_stands_still_is_evicted_as_hung(tmp_runtime: Places) -> None:
    """From its folder and the readings to the event; a line of its log in between begins the time anew."""

    async def story() -> None:
        clock = Clock()
        async with a_desk(tmp_runtime, clock=clock) as desk:
            id_ = await desk.run(hang_seconds=60)
            world = desk.broker.loop.world

            async def pass_(seconds: int) -> State:
                for _ in range(seconds // 5):
                    clock.now += 5
                    for uuid in world.devices:
                        desk.broker.loop.world.readings[uuid] = Reading(uuid=uuid, at=clock.now, utilisation_percent=0)
                    await desk.reader.look()
                return desk.broker.loop.world.workloads[id_].state

            await desk.reader.look()
            assert await pass_(50) is State.ACTIVE
            with (desk.of(id_) / "log").open("a") as log:
                log.write("still here\n")
            assert await pass_(60) is State.ACTIVE
            assert await pass_(20) is State.YIELDING
            it = desk.broker.loop.world.workloads[id_]
            assert it.eviction is EvictionReason.HUNG
            assert it.detail.startswith("it has reported nothing, printed nothing and left its GPUs idle since")

    play(story)


def test_a_job_without_devices_is_looked_at_by_its_processor_time(tmp_runtime: Places) -> None:
    """Of its whole tree, below its supervisor."""

    async def story() -> None:
        async with a_desk(tmp_runtime) as desk:
            answer = await desk.broker.as_("ada").post("/workloads", json=job(ask={"devices": 0}))
            id_ = int(answer.json()["id"])
            await desk.start(id_, 1, pid=os.getpid())
            reader = desk.reader
            await reader.look()
            assert reader._used[id_, 1].is_at_work is None
            reader._used[id_, 1] = reader._used[id_, 1]._replace(at=float("-inf"))
            await reader.look()
            assert reader._used[id_, 1].is_at_work is False

    play(story)


def test_processor_time_is_that_of_the_processes_that_are_named() -> None:
    """What a process and the children that it waited for have used; one that is gone used nothing any more."""
    assert cpu_ticks([]) == cpu_ticks([2**22 + 1]) == 0
    with subprocess.Popen(["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read x"], stdin=-1) as busy:
        assert busy.stdin is not None
        asyncio.run(_until(lambda: cpu_ticks(procs.descendants(os.getpid())) > 0))
        busy.stdin.close()


async def _until(true: object) -> None:
    async with asyncio.timeout(30):
        while not true():  # type: ignore[operator]
            await asyncio.sleep(0.01)
