"""Accounts, asked for on the side: what hangs or fails there is not known, and holds up nothing else."""

from __future__ import annotations

import asyncio
import pwd
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jupyter_gpu.broker import people as room
from jupyter_gpu.broker.people import MOST_PENDING, People

from .people_ground import ME


def story(tell: Callable[[People], Awaitable[None]]) -> None:
    """Play an asynchronous story with people."""

    async def run() -> None:
        people = People()
        try:
            await tell(people)
        finally:
            people.close()

    asyncio.run(run())


def test_accounts_are_asked_for_on_the_side() -> None:
    """Until the name service has answered nothing is known; then it is kept."""

    async def tell(people: People) -> None:
        assert people.uid_of("") == ME
        assert people.name_of(0) is None
        assert people.uid_of("root") is None
        assert people.uid_of("nobody-has-this-name") is None
        await people.settled()
        assert (people.name_of(0), people.uid_of("root"), people.uid_of("nobody-has-this-name")) == ("root", 0, None)
        assert not people._asking

    story(tell)


class Clock:
    """Time that only the test moves."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_a_name_service_that_failed_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it knew no such account for a moment was kept for five minutes, and cost the holder's own process."""
    clock, answers = Clock(), iter([KeyError("ada"), 1007, KeyError("ada"), OSError("it is away"), 1008])
    monkeypatch.setattr(room, "time", clock)

    def answer(_: str) -> int:
        told = next(answers)
        if isinstance(told, Exception):
            raise told
        return told

    monkeypatch.setattr(room, "_uid_of", answer)

    async def tell(people: People) -> None:
        said = []
        for seconds in (1, 6, 301, 6, 6):
            clock.now += seconds
            people.uid_of("ada")
            await people.settled()
            said.append(people.uid_of("ada"))
        # What was known stays known while the name service fails.
        assert said == [None, 1007, 1007, 1007, 1008]

    story(tell)


def test_names_that_hang_hold_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many numbers took a thread of those that all others share, for a minute; callers waited for one."""
    go = threading.Event()
    asked: list[int] = []

    def hang(uid: int) -> str:
        asked.append(uid)
        go.wait(30)
        return "late"

    monkeypatch.setattr(room, "_name_of", hang)

    async def tell(people: People) -> None:
        for uid in range(100_000, 100_500):
            assert people.name_of(uid) is None
        assert len(people._asking) == MOST_PENDING
        # Whose a lease is has a thread of its own, and everybody else's threads are free.
        people.uid_of("root")
        async with asyncio.timeout(5):
            while people.uid_of("root") is None:
                await asyncio.sleep(0.01)
            assert await asyncio.gather(*(asyncio.to_thread(pwd.getpwuid, 0) for _ in range(20)))
        assert len(asked) == 1
        go.set()

    story(tell)


def test_a_hanging_name_service_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads are left behind."""
    go, hangs = threading.Event(), threading.Event()

    def hang(_: int) -> str:
        hangs.set()
        return str(go.wait(30))

    monkeypatch.setattr(room, "_name_of", hang)
    before = set(threading.enumerate())

    async def tell(people: People) -> None:
        people.name_of(100_000)
        assert await asyncio.to_thread(hangs.wait, 10)  # what nobody has begun to answer is given up at once

    story(tell)
    (left,) = set(threading.enumerate()) - before
    assert left.daemon
    go.set()
    left.join(10)
    assert not left.is_alive()


def test_who_may_give_a_number_away_is_told_by_the_machines_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is one account; what cannot be read as a range counts for nothing."""
    file = tmp_path / "subuid"
    monkeypatch.setattr(room, "_SUB_USERS", file)
    people = People()
    assert people.lender_of(100_005) == ""
    file.write_text("ada:100000:65536\n\n# a note\nbroken:x:1\ngrace:165536:10\nalan:165540:1\n")
    assert [people.lender_of(uid) for uid in (99_999, 100_000, 165_535, 165_536)] == ["", "ada", "ada", "grace"]
    assert people.lender_of(165_540) == ""
