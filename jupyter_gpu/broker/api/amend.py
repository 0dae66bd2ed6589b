"""What may be changed of a workload that is there: its end, its pause, its priority, what it comes after."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...errors import LimitExceeded
from ...model import Chain, ChainBody, Extend, ExtendBody, LetGo, Pause, Reprioritise, Scope, WorkloadPage, WorkloadView
from ...units import MAX_SECONDS
from .base import Base, endpoint
from .bounds import check_after
from .parents import Parents
from .room import EACH_LINK_BYTES, EACH_WORD_BYTES
from .whole import ONE_OR_ARRAY, STATUSES, ArrayQuery, OfArrays


class ReprioritiseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /workloads/ID/reprioritise."""

    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]


class ExtendHandler(Base):
    """/workloads/ID/extend."""

    @endpoint(WorkloadView, scope=None, body=ExtendBody)
    async def post(self, id_: str, body: ExtendBody) -> WorkloadView:
        """Buy more time, as far as quota, limit and the next hold allow; the answer states the new end."""
        self.application.room.take(self.caller.name, EACH_WORD_BYTES)
        return await self.act(id_, lambda it, by: Extend(workload=it, by=by, seconds=bounded(body.seconds)))


class PauseHandler(OfArrays):
    """/workloads/ID/pause."""

    @endpoint(ONE_OR_ARRAY, scope=None, query=ArrayQuery, statuses=STATUSES)
    async def post(self, id_: str, query: ArrayQuery) -> WorkloadView | WorkloadPage:
        """A queued workload must not start yet; with `array` none of its array that is queued."""
        return await self.act_on(id_, query, lambda it, by: Pause(workload=it, by=by), size=EACH_WORD_BYTES)


class LetGoHandler(OfArrays):
    """/workloads/ID/let-go."""

    @endpoint(ONE_OR_ARRAY, scope=None, query=ArrayQuery, statuses=STATUSES)
    async def post(self, id_: str, query: ArrayQuery) -> WorkloadView | WorkloadPage:
        """A paused workload may start; with `array` all of its array."""
        return await self.act_on(id_, query, lambda it, by: LetGo(workload=it, by=by), size=EACH_WORD_BYTES)


class ChainHandler(OfArrays):
    """/workloads/ID/chain."""

    @endpoint(ONE_OR_ARRAY, scope=None, query=ArrayQuery, body=ChainBody, statuses=STATUSES)
    async def post(self, id_: str, query: ArrayQuery, body: ChainBody) -> WorkloadView | WorkloadPage:
        """What a queued job comes after from now on, and nothing else; never itself, over whatever others."""
        check_after(body.after)
        past = await Parents(self.loop, self.caller).past(body.after)
        return await self.act_on(
            id_,
            query,
            lambda it, by: Chain(workload=it, by=by, after=body.after, past=past),
            size=EACH_WORD_BYTES + len(body.after) * EACH_LINK_BYTES,
        )


class ReprioritiseHandler(Base):
    """/workloads/ID/reprioritise."""

    @endpoint(WorkloadView, scope=Scope.OPERATE, body=ReprioritiseBody)
    async def post(self, id_: str, body: ReprioritiseBody) -> WorkloadView:
        """Move a queued workload to another priority."""
        return await self.act(id_, lambda it, by: Reprioritise(workload=it, by=by, priority=body.priority))


def bounded(seconds: int) -> int:
    """A length that a calendar has."""
    if abs(seconds) > MAX_SECONDS:
        raise LimitExceeded(f"An extension of {seconds} s is beyond ten years.", hint="Ask for less.")
    return seconds
