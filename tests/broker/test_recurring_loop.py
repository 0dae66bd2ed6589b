"""Who fires: the loop, by its clock. However the clock jumps and whoever was away, an instant leads to one job."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import zoneinfo
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.broker import deadlines
from jupyter_gpu.broker.deadlines import TICK_SECONDS, until_next_deadline
from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.broker.recurring import Calendar
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.errors import LimitExceeded, StoreUnavailable
from jupyter_gpu.model import (
    AddRecurring,
    FireNow,
    Overlap,
    PauseRecurring,
    Recurring,
    RemoveRecurring,
    Submit,
    Tick,
    World,
)
from tests.broker.api_ground import play
from tests.broker.ground import Clock, a_job, a_loop

DAY = 86_400
MINUTE = 60
CALENDAR = Calendar("30 2 * * *", "Europe/Amsterdam")


def at(text: str) -> float:
    """An instant by UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON = at("2026-12-01T12:00")
#: 02:30 in Amsterdam, in winter.
NIGHT = at("2026-12-02T01:30")


class Ground:
    """A loop whose clock is the test's, and which ticks and looks as fast as it can."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.clock.now = NOON
        self._folder = folder
        self.loop: Loop
        self._looked = asyncio.Event()
        self.ticked = asyncio.Event()

    @contextlib.asynccontextmanager
    async def broker(self) -> AsyncIterator[Loop]:
        """One broker; the next finds what it left."""
        async with a_loop(self._folder, clock=self.clock, idle_seconds=600) as (loop, _):
            handle = loop.handle

            async def telling(command):
                if isinstance(command, Tick):
                    self.ticked.set()
                return await handle(command)

            forget = loop.clockwork.forget

            def looking(world):
                self._looked.set()
                forget(world)

            loop.handle = telling  # type: ignore[method-assign]
            loop.clockwork.forget = looking  # type: ignore[method-assign]
            self.loop = loop
            yield loop

    async def add(self, **words) -> int:
        """A nightly job of one device."""
        next_at = CALENDAR.next_after(self.clock.now)
        usual = {"cron": CALENDAR.cron, "timezone": CALENDAR.timezone, "submit": a_job(), "next_at": next_at}
        answer = await self.loop.handle(AddRecurring(**{**usual, "overlap": Overlap.QUEUE, **words}))
        assert answer.workload is not None
        return answer.workload

    async def set(self, now: float) -> None:
        """The clock shows this from now on; what that leads to has happened when this returns.

        The second look from now began after the change, and the third after all that it led to.
        """
        self.clock.now = now
        for _ in range(3):
            self._looked.clear()
            await self._looked.wait()

    def the(self, id_: int) -> Recurring:
        """How it stands."""
        return self.loop.world.recurring[id_]

    @property
    def jobs(self) -> list[int]:
        """All that was submitted."""
        return sorted(self.loop.world.workloads)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch) -> Ground:
    """A quick loop over a store of its own."""
    monkeypatch.setattr(deadlines, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(deadlines, "LEAST_TICK_SECONDS", 0.001)
    return Ground(tmp_path)


def test_the_loop_wakes_for_the_next_instant():
    """Not up to a second later; a paused one and one without an instant wake nobody."""
    world = World()
    it = Recurring(id=1, cron="* * * * *", timezone="UTC", submit=a_job(), added_at=NOON, next_at=NOON + 0.3)
    world.put_recurring(it)
    assert until_next_deadline(world, NOON) == pytest.approx(0.3)

    world.put_recurring(msgspec.structs.replace(it, paused=True))
    world.put_recurring(msgspec.structs.replace(it, id=2, next_at=None))
    assert until_next_deadline(world, NOON) == TICK_SECONDS


def test_an_instant_comes_and_the_next_is_awaited(ground: Ground):
    """Nothing a second before, one job at it, no other until the next night."""

    async def story() -> None:
        async with ground.broker():
            id_ = await ground.add()
            await ground.set(NIGHT - 1)
            assert ground.jobs == []
            await ground.set(NIGHT)
            await ground.set(NIGHT + 1)
            assert len(ground.jobs) == 1
            assert (ground.the(id_).next_at, ground.the(id_).last_detail) == (NIGHT + DAY, "")
            await ground.set(NIGHT + DAY)
            assert len(ground.jobs) == 2

    play(story)


@pytest.mark.parametrize(("begin", "days"), [("2026-10-24T10:00", 4), ("2026-03-28T10:00", 4)])
def test_each_local_day_has_its_job_while_clocks_are_changed(ground: Ground, begin: str, days: int):
    """taichino/croniter#48, gawel/aiocron#28, healthchecks/healthchecks#196, with the hours of those nights passing."""

    async def story() -> None:
        ground.clock.now = at(begin)
        async with ground.broker():
            await ground.add()
            # The hours around each 02:30, by steps of ten minutes.
            for day in range(1, days):
                midnight = at(begin) - 10 * 3600 + day * DAY
                for step in range(-12, 24):
                    await ground.set(midnight + step * 10 * MINUTE)
                assert len(ground.jobs) == day

    play(story)


def test_a_machine_that_slept_for_a_week_makes_up_for_it_once(ground: Ground):
    """Seven nights are one job, which says so."""

    async def story() -> None:
        async with ground.broker():
            id_ = await ground.add()
            await ground.set(NIGHT + 7 * DAY - MINUTE)
            it = ground.the(id_)
            assert len(ground.jobs) == 1
            assert it.last_detail == "6d23h late; 6 more times were missed meanwhile, and this stands for all"
            assert ground.loop.world.workloads[ground.jobs[0]].detail == it.last_detail
            assert it.next_at == NIGHT + 7 * DAY

    play(story)


def test_a_broker_that_was_away_for_days_makes_up_for_it_once(ground: Ground):
    """It is started again; and started once more, it has nothing to make up for."""

    async def story() -> None:
        async with ground.broker():
            id_ = await ground.add()
        ground.clock.now = NIGHT + 2 * DAY + 3600
        for _ in range(2):
            async with ground.broker():
                await ground.set(ground.clock.now + 1)
                assert len(ground.jobs) == 1
                assert ground.the(id_).times == 1
                assert "2 more times were missed" in ground.the(id_).last_detail

    play(story)


@pytest.mark.parametrize("back", [1, 3600, 23 * 3600])
def test_a_clock_that_is_set_back_fires_nothing_twice(ground: Ground, back: float):
    """The night that has been does not come again; the one after it does. Also for a broker that begins then."""

    async def story() -> None:
        async with ground.broker():
            id_ = await ground.add()
            await ground.set(NIGHT)
            await ground.set(NIGHT - back)
            await ground.set(NIGHT + 1)
            assert (len(ground.jobs), ground.the(id_).next_at) == (1, NIGHT + DAY)
            await ground.set(NIGHT - back)
        async with ground.broker():
            await ground.set(NIGHT + 2)
            assert (len(ground.jobs), ground.the(id_).next_at) == (1, NIGHT + DAY)
            await ground.set(NIGHT + DAY)
            assert len(ground.jobs) == 2

    play(story)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_was_a_year_ahead_keeps_no_night_from_coming(ground: Ground, is_restarted):
    """Set right again, the next night comes, and not next year's. The night that had its job has no second one."""

    async def story() -> None:
        async with ground.broker():
            id_ = await ground.add()
            await ground.set(NIGHT + 365 * DAY - MINUTE)  # one for all that was missed, of which the first was NIGHT
            await ground.set(NIGHT + 365 * DAY)
            assert (len(ground.jobs), ground.the(id_).next_at) == (2, NIGHT + 366 * DAY)
            if not is_restarted:
                await ground.set(NOON)
                assert ground.the(id_).next_at == NIGHT
        ground.clock.now = NOON
        async with ground.broker():
            await ground.set(NOON + 1)
            assert ground.the(id_).next_at == NIGHT
            await ground.set(NIGHT)
            assert len(ground.jobs) == 2
            await ground.set(NIGHT + DAY)
            assert len(ground.jobs) == 3

    play(story)


def test_a_full_disk_makes_it_late_and_not_lost(ground: Ground, monkeypatch):
    """What could not be written is due at the next tick, and once."""

    async def story() -> None:
        async with ground.broker():
            id_ = await ground.add()
            commit = Store.commit

            def full(*_: object) -> None:
                raise StoreUnavailable("the disk is full")

            monkeypatch.setattr(Store, "commit", full)
            await ground.set(NIGHT)
            assert (ground.jobs, ground.the(id_).next_at) == ([], NIGHT)
            monkeypatch.setattr(Store, "commit", commit)
            await ground.set(NIGHT + 2 * MINUTE)
            assert (len(ground.jobs), ground.the(id_).last_detail) == (1, "2m late")

    play(story)


def test_a_zone_that_was_removed_keeps_one_job_back_and_no_other(ground: Ground, monkeypatch):
    """The admin removed tzdata: it is told, the others come, and with the zone back so does this one."""

    async def story() -> None:
        async with ground.broker() as loop:
            gone = await ground.add()
            await ground.add(cron="30 1 * * *", timezone="UTC")
            known = zoneinfo.ZoneInfo
            monkeypatch.setattr(zoneinfo, "ZoneInfo", _unknown)
            await ground.set(NIGHT)
            assert (len(ground.jobs), ground.the(gone).times) == (1, 0)
            assert "there is no time zone 'Europe/Amsterdam'" in loop.clockwork.held[gone]
            assert loop.warnings == (f"Recurring jobs cannot come: {loop.clockwork.held[gone]}.",)
            monkeypatch.setattr(zoneinfo, "ZoneInfo", known)
            await ground.set(NIGHT + 1)
            assert (len(ground.jobs), ground.the(gone).times, loop.warnings) == (2, 1, ())

    play(story)


def test_time_goes_on_while_calendars_are_read(ground: Ground):
    """However long that takes: what is to start at its hour, or to end, waits for nobody's calendar."""

    async def story() -> None:
        async with ground.broker() as loop:
            begun, may_end, due = asyncio.Event(), threading.Event(), loop.clockwork.due
            here = asyncio.get_running_loop()

            def slowly(world, now):
                here.call_soon_threadsafe(begun.set)
                assert may_end.wait(60)
                return due(world, now)

            loop.clockwork.due = slowly  # type: ignore[method-assign]
            await ground.add()
            ground.clock.now = NIGHT
            try:
                await asyncio.wait_for(begun.wait(), 60)
                for _ in range(3):
                    ground.ticked.clear()
                    await asyncio.wait_for(ground.ticked.wait(), 20)
            finally:
                may_end.set()
            await ground.set(NIGHT + 1)
            assert len(ground.jobs) == 1

    play(story)


def test_a_calendar_that_the_library_cannot_read_keeps_no_other_from_coming(ground: Ground, monkeypatch, caplog):
    """Whatever goes wrong at it: it is held back and told, to its owner and in the log, once."""

    async def story() -> None:
        async with ground.broker() as loop:
            odd = await ground.add(cron="31 2 * * *")
            await ground.add()
            monkeypatch.setattr(Calendar, "next_after", _fails_at("31 2 * * *", Calendar.next_after))
            await ground.set(NIGHT + MINUTE)
            await ground.set(NIGHT + 2 * MINUTE)
            assert (len(ground.jobs), ground.the(odd).times) == (1, 0)
            assert "cannot be read" in loop.clockwork.held[odd]

    play(story)
    assert [it.exc_info[0] for it in caplog.records if it.name.endswith("recurring") and it.exc_info] == [
        ZeroDivisionError
    ]


def _fails_at(cron: str, real):
    def next_after(calendar: Calendar, at: float) -> float | None:
        if calendar.cron == cron:
            raise ZeroDivisionError
        return real(calendar, at)

    return next_after


def test_what_there_is_no_room_for_comes_when_there_is(ground: Ground):
    """A disk that is almost full, an owner who has submitted too much lately: late, and not lost."""

    async def story() -> None:
        async with ground.broker() as loop:
            id_ = await ground.add()
            lately = ["ada has submitted 300MB lately."]

            def take(_: Submit) -> None:
                if lately:
                    raise LimitExceeded(lately[0])

            loop.clockwork.take = take
            await ground.set(NIGHT)
            assert (ground.the(id_).times, loop.clockwork.held) == (0, {id_: "ada has submitted 300MB lately"})
            assert loop.warnings == ()  # it names an owner, and is theirs to know
            del lately[0]
            await ground.set(NIGHT + 1)
            assert (ground.the(id_).times, loop.clockwork.held) == (1, {})

            lately.append("The disk is almost full.")
            await ground.set(NIGHT + DAY)
            assert loop.clockwork.held == {id_: "The disk is almost full"}
            assert (ground.the(id_).times, ground.the(id_).next_at) == (1, NIGHT + DAY)
            await loop.handle(RemoveRecurring(recurring=id_, by="ada"))
            await ground.set(NIGHT + DAY + 1)
            assert (loop.clockwork.held, loop.warnings) == ({}, ())

    play(story)


def _unknown(name: str):
    raise zoneinfo.ZoneInfoNotFoundError(name)


def test_what_recurs_keeps_an_embedded_broker_there(ground: Ground):
    """It would be there at no instant if it stopped for idleness; a paused one keeps nobody."""

    async def story() -> None:
        async with ground.broker() as loop:
            assert loop.stops_at() is not None
            id_ = await ground.add()
            assert (loop.has_work, loop.stops_at()) == (True, None)
            await loop.handle(PauseRecurring(recurring=id_, by="ada", paused=True))
            assert loop.stops_at() is not None
            await loop.handle(PauseRecurring(recurring=id_, by="ada", paused=False, next_at=NIGHT))
            assert loop.has_work
            await loop.handle(RemoveRecurring(recurring=id_, by="ada"))
            assert not loop.has_work

    play(story)


def test_an_answer_names_what_it_was_about(ground: Ground):
    """The recurring job that was added, also to who asks again with the key; the job of who wants it now."""

    async def story() -> None:
        async with ground.broker() as loop:
            keyed = msgspec.structs.replace(a_job(), idempotency_key="k")
            first = await ground.add(submit=keyed)
            other = await ground.add()
            assert other != first
            assert await ground.add(submit=keyed) == first
            fired = await loop.handle(FireNow(recurring=first, by="ada"))
            assert loop.world.workloads[fired.workload].recurring == first

    play(story)
