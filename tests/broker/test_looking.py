"""What is looked at for as long as the broker runs."""

from __future__ import annotations

import asyncio

from jupyter_gpu.broker.looking import Looking


class Looks(Looking):
    """Fails at the first look, and tells of each."""

    what = "the moon"

    def __init__(self) -> None:
        super().__init__()
        self.seen: asyncio.Queue[int] = asyncio.Queue()
        self._count = 0

    def pause_seconds(self) -> float:
        return 0.0

    async def look(self) -> None:
        self._count += 1
        self.seen.put_nowait(self._count)
        if self._count == 1:
            raise RuntimeError("clouds")


def test_a_look_that_fails_is_told_and_the_next_one_comes(caplog) -> None:
    """What is wrong now may be well in a moment; and once it is closed nobody looks any more."""

    async def story() -> None:
        looks = Looks()
        looks.begin()
        assert [await asyncio.wait_for(looks.seen.get(), 30) for _ in range(3)] == [1, 2, 3]
        await looks.close()
        while not looks.seen.empty():
            looks.seen.get_nowait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert looks.seen.empty()

    asyncio.run(story())
    assert [record.getMessage() for record in caplog.records] == ["the moon cannot be looked at"]


def test_what_has_never_begun_is_closed_as_well() -> None:
    """The start of a broker may fail before that."""
    asyncio.run(Looks().close())
