"""What one job has done so far, for its owner and for operators: its attempts, and the curve of its progress."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec

from ...core.attempts import attempts_of
from ...errors import NotAllowed, NotFound
from ...model import AttemptPage, Kind, ProgressPage, Workload
from ..progress import read_curve
from .base import Base, endpoint

if TYPE_CHECKING:
    from ..loop import Loop
    from ..store.store import Record

_ROWS = 500


class ProgressQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which attempt; without `attempt` the newest."""

    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None


class Attempts(Base):
    """/workloads/ID/attempts."""

    @endpoint(AttemptPage, in_turn=True)
    async def get(self, id_: str) -> AttemptPage:
        """All attempts of a job, oldest first: when, on which devices, why it left, how it ended, what it repeated."""
        it = await self.find(id_)
        _must_be_theirs(self, it, "attempts")
        return AttemptPage(items=attempts_of(record.event for record in await _life(self.loop, it.id)))


class ProgressCurve(Base):
    """/workloads/ID/progress."""

    @endpoint(ProgressPage, query=ProgressQuery)
    async def get(self, id_: str, query: ProgressQuery) -> ProgressPage:
        """How an attempt has come along, by what it said itself: some hundred points, the newest among them."""
        it = await self.find(id_)
        _must_be_theirs(self, it, "progress")
        newest = max(it.attempt, 1)
        attempt = newest if query.attempt is None else query.attempt
        if attempt > newest:
            raise NotFound(f"{it.title} has no attempt {attempt}.", hint=f"Its newest is {it.attempt}.")
        folder = self.loop.log_path(it.id, attempt).parent
        return ProgressPage(attempt=attempt, items=await asyncio.to_thread(read_curve, folder, attempt))


async def _life(loop: Loop, workload_id: int) -> list[Record]:
    """All events of a workload, a page at a time, so that others come between."""
    found: list[Record] = []
    while True:
        after = found[-1].number if found else 0
        rows = await loop.read(lambda store, after=after: store.events_of(workload_id, after, _ROWS))  # type: ignore[misc]
        found += rows
        if len(rows) < _ROWS:
            return found


def _must_be_theirs(handler: Base, it: Workload, what: str) -> None:
    if it.kind is not Kind.JOB:
        raise NotFound(f"{it.title} has no {what}: it runs nothing.")
    if it.owner != handler.caller.name and not handler.caller.is_operator:
        raise NotAllowed(f"The {what} of {it.title} can be seen by its owner only.", hint="Ask them, or an operator.")
