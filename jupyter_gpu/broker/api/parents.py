"""What a job is to come after, looked up for the core: only what its asker may see, also what ended long ago."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from ...errors import LimitExceeded
from ...model import Caller, Dependency, Workload
from . import views

if TYPE_CHECKING:
    from ..loop import Loop

#: So many of them, and so many arrays, are looked up for one request, however many jobs come after each: meanwhile
#: nothing is committed.
MOST_PAST = 200
MOST_PAST_ARRAYS = 10


class Parents:
    """What the jobs of one request come after. Each is looked up once, whichever of them name it."""

    def __init__(self, loop: Loop, caller: Caller) -> None:
        self._loop, self.caller = loop, caller
        self._looked_up = self._arrays = 0
        self._found: dict[Dependency, asyncio.Future[tuple[Workload, ...]]] = {}

    async def past(self, after: Iterable[Dependency]) -> tuple[Workload, ...]:
        """Those that the world keeps no more, as the store has them, without what they ran; 404 for what is not there.

        Of an array that is its first, and the first of it that meets a dependency no more, if there is one. What one
        may not see is not there: else a job that waits would tell when others' secret work ends.
        """
        past: list[Workload] = []
        for dependency in after:
            past += await self._past_of(dependency)
        return tuple({it.id: it for it in past}.values())

    async def _past_of(self, dependency: Dependency) -> tuple[Workload, ...]:
        if dependency not in self._found:
            self._found[dependency] = asyncio.ensure_future(self._look_up(dependency))
        return await self._found[dependency]

    async def _look_up(self, dependency: Dependency) -> tuple[Workload, ...]:
        known = self._loop.world.workloads
        if dependency.workload not in known:
            self._looked_up += 1
            if self._looked_up > MOST_PAST:
                raise _too_many(f"{MOST_PAST} workloads")
        it = await views.find(self._loop, str(dependency.workload), self.caller)
        ids = it.member.ids if it.member is not None and it.member.array == it.id else (it.id,)
        lost = None
        if len(ids) > 1 and not all(map(known.__contains__, ids)):
            self._arrays += 1
            if self._arrays > MOST_PAST_ARRAYS:
                raise _too_many(f"{MOST_PAST_ARRAYS} arrays")
            lost = await self._loop.read(lambda store: store.first_lost(ids[0], ids[-1], ok=dependency.ok))
        found = (one for one in (it, lost) if one is not None)
        return tuple(
            msgspec.structs.replace(one, spec=None) for one in found if one.id not in self._loop.world.workloads
        )


def _too_many(most: str) -> LimitExceeded:
    return LimitExceeded(
        f"The request comes after more than {most} that ended long ago, which is the most.",
        hint="Leave out what is over, or ask in several requests.",
    )
