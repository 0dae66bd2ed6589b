"""POST /workloads and POST /submissions: what both do with one ask, and how many are taken at once.

Each of many stands for itself: one that is refused keeps no other back, and its error stands in its place in the
answer. They are decided and committed some dozens at a time, so that whoever else asks is served in between.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from itertools import islice
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from ...core.dry_run import dry_run
from ...errors import GpuError
from ...model import (
    AddRecurring,
    DryRunView,
    Error,
    JobSpec,
    Kind,
    Scope,
    Submission,
    SubmissionAnswer,
    SubmissionsBody,
    Submit,
    SubmitBody,
    Workload,
    unpack_bytes,
)
from ..loop import Answer
from ..recurring import Calendar, own_timezone
from . import views
from .base import Base, endpoint
from .bounds import MOST_BYTES
from .parents import Parents
from .room import size_of
from .scripts import LARGEST_BYTES, copies_of
from .submit import read_submission

T = TypeVar("T")

#: A script of the largest size in base64, and as much again as all other words may have.
SUBMIT_BYTES = LARGEST_BYTES * 4 // 3 + (4 << 20)
#: So many are prepared, decided and committed together.
TOGETHER = 50
#: So many instants of a calendar show whether it is meant so.
FIRST_TIMES = 3


class SubmitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`keep` names variables that the user gave by name: they pass although they look like a secret."""

    REPEATED: ClassVar[frozenset[str]] = frozenset({"keep"})
    keep: tuple[str, ...] = ()


class AskQuery(SubmitQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """And whether it is only tried: what would come of it, and nothing is asked for; also of one by a calendar."""

    dry_run: bool = False
    cron: str | None = None
    timezone: str | None = None


class Accepting(Base):
    """A handler that takes submissions."""

    _parents: Parents | None = None

    async def check(self, body: SubmitBody, key: str | None, keep: tuple[str, ...], *, is_dry: bool = False) -> Submit:
        """Make a command of one ask, or refuse it. One that is only tried leaves nothing behind."""
        self.must_have(Scope.RESERVE if body.kind is Kind.RESERVATION else Scope.SUBMIT)
        self.application.room.take(self.caller.name, size_of(body, is_dry=is_dry))
        scripts, looks = None if is_dry else self.application.scripts, self.application.looks
        return await read_submission(self.loop, scripts, looks, body, self.parents, key=key, keep=keep)

    @property
    def parents(self) -> Parents:
        """What the jobs of this request come after."""
        if self._parents is None:
            self._parents = Parents(self.loop, self.caller)
        return self._parents

    async def accept(self, command: Submit) -> Workload:
        """Have it decided and committed; of an array the first is the answer."""
        command = await self.sighted(command)
        answer = await self.decided(command, command.spec)
        return await self.find(str(answer.workload))

    async def decided(self, command: Submit | AddRecurring, spec: JobSpec | None) -> Answer:
        """Have a command decided and committed that brings the copies of this spec."""
        copies = copies_of(spec)
        return await (self._with_copies(command, copies) if copies else self.loop.handle(command))

    async def would_be(self, body: SubmitBody, query: AskQuery) -> DryRunView:
        """What would come of an ask. It costs a step of the planner, so one is tried at a time for each caller."""
        async with self.application.turn_of(self.caller):
            cron, zone = query.cron, query.timezone or own_timezone()
            calendar = None if cron is None else await asyncio.to_thread(Calendar, cron, zone)
            command = await self.sighted(await self.check(body, None, query.keep, is_dry=True))
            found = dry_run(self.loop.world, command, self.caller, self.loop.now())
            if calendar is None:
                return found
            instants = calendar.after(self.loop.now())
            times = await asyncio.to_thread(lambda: tuple(islice(instants, FIRST_TIMES)))
            return msgspec.structs.replace(found, times=times, timezone=calendar.timezone)

    async def sighted(self, command: Submit) -> Submit:
        """Before the first look for devices nothing is refused for want of them."""
        if await self.loop.sights.knows_devices():
            return command
        return msgspec.structs.replace(command, blind=True)

    async def _with_copies(self, command: Submit | AddRecurring, copies: tuple[str, ...]) -> Answer:
        """Have it decided. Where that is refused (or the same ask was accepted long ago) nothing needs the copies."""
        may_go = False
        try:
            answer = await self.loop.handle(command)
            it = self.loop.world.workloads.get(answer.workload or 0)
            may_go = it is None or not set(copies) <= set(copies_of(it.spec))
        except GpuError:
            may_go = True
            raise
        finally:
            files = [Path(os.fsdecode(unpack_bytes(copy))) for copy in copies]
            await asyncio.to_thread(self.application.scripts.done, files, may_go=may_go)
        return answer


class Submissions(Accepting):
    """/submissions."""

    @endpoint(SubmissionAnswer, scope=None, query=SubmitQuery, body=SubmissionsBody, body_bytes=MOST_BYTES)
    async def post(self, query: SubmitQuery, body: SubmissionsBody) -> SubmissionAnswer:
        """Ask for many at once: for each, in their order, the workload or why it is refused."""
        key = self.request.headers.get("Idempotency-Key")
        answers: list[Submission] = []
        for begin in range(0, len(body.items), TOGETHER):
            keyed = [(it, key and f"{key}/{begin + n}") for n, it in enumerate(body.items[begin : begin + TOGETHER])]
            commands = await asyncio.gather(*(_or_error(self.check(it, key, query.keep)) for it, key in keyed))
            # Only now, and all at once: they are decided in their order, whatever of them took longer to check.
            answers += await asyncio.gather(*(self._answer(command) for command in commands))
        return SubmissionAnswer(items=tuple(answers))

    async def _answer(self, command: Submit | GpuError) -> Submission:
        found = command if isinstance(command, GpuError) else await _or_error(self.accept(command))
        if isinstance(found, GpuError):
            return Submission(error=msgspec.convert(found.to_body(), Error))
        # As lists show it: to find the place of each would be to walk a long line once for each.
        return Submission(workload=views.listed(self.loop, found, self.caller))


async def _or_error(work: Awaitable[T]) -> T | GpuError:
    try:
        return await work
    except GpuError as error:
        return error
