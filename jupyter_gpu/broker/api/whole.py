"""What is done to one workload, or with `?array=true` to all of its array: one command, so all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...core.events import OfWorkload
from ...errors import Conflict
from ...model import Command, State, Workload, WorkloadPage, WorkloadView
from . import views
from .base import Base

#: 207: those of an array that it concerned, those that waited first.
ONE_OR_ARRAY = {200: WorkloadView, 207: WorkloadPage}
STATUSES = tuple(ONE_OR_ARRAY)


class ArrayQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether all others of its array are meant as well, as far as it can concern them."""

    array: bool = False


class OfArrays(Base):
    """The base of what may be said of a whole array."""

    async def act_on(
        self,
        text: str,
        query: ArrayQuery,
        make: Callable[[int, str], Command],
        *,
        only_waiting: bool = True,
        size: int = 0,
    ) -> WorkloadView | WorkloadPage:
        """Have a command about one decided, or about all of its array, and show what came of it.

        `size` is what it writes down of each; 0 for what ends work, which is never refused for want of room.
        """
        if not query.array:
            if size:
                self.application.room.take(self.caller.name, size)
            return await self.act(text, make)
        it = await self.find(text)
        self.must_own(it)
        ids = range(it.id, it.id + 1) if it.member is None else it.member.ids
        if size:
            self.application.room.take(self.caller.name, size * len(ids))
        # Whichever is named stands for all of them: the first may be over, and forgotten, long before the last.
        known = next((id_ for id_ in ids if id_ in self.loop.world.workloads), None)
        if known is None:
            raise Conflict(f"{it.title} has ended long ago ({it.end}), and all of its array with it.")
        answer = await self.loop.handle(msgspec.structs.replace(make(known, self.caller.name), array=True))
        self.set_status(207)
        changed = {event.workload for event in answer.events if isinstance(event, OfWorkload)}
        its = [found for id_ in ids if (found := self.loop.world.workloads.get(id_)) is not None]
        # Also what stood like that already: who says a thing twice is told the same twice.
        meant = [found for found in its if found.id in changed or _is_meant(found, only_waiting=only_waiting)]
        meant.sort(key=lambda found: (found.state is not State.QUEUED and found.end is None, found.id))
        return WorkloadPage(items=tuple(views.listed(self.loop, found, self.caller) for found in meant))


def _is_meant(it: Workload, *, only_waiting: bool) -> bool:
    return it.state is State.QUEUED if only_waiting else it.state is not State.ENDED
