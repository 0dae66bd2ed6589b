"""POST /workloads and POST /submissions: what both do with one ask, and how many are taken at once.

Each of many stands for itself: one that is refused keeps no other back, and its error stands in its place in the
answer. They are decided and committed some dozens at a time, so that whoever else asks is served in between.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from ...errors import GpuError
from ...model import (
    Error,
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
from . import views
from .base import Base, endpoint
from .bounds import MOST_BYTES
from .room import size_of
from .scripts import LARGEST_BYTES
from .submit import read_submission

T = TypeVar("T")

#: A script of the largest size in base64, and as much again as all other words may have.
SUBMIT_BYTES = LARGEST_BYTES * 4 // 3 + (4 << 20)
#: So many are prepared, decided and committed together.
TOGETHER = 50


class SubmitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`keep` names variables that the user gave by name: they pass although they look like a secret."""

    REPEATED: ClassVar[frozenset[str]] = frozenset({"keep"})
    keep: tuple[str, ...] = ()


class Accepting(Base):
    """A handler that takes submissions."""

    async def check(self, body: SubmitBody, key: str | None, keep: tuple[str, ...]) -> Submit:
        """Make a command of one ask, or refuse it."""
        self.must_have(Scope.RESERVE if body.kind is Kind.RESERVATION else Scope.SUBMIT)
        self.application.room.take(self.caller.name, size_of(body))
        scripts, looks = self.application.scripts, self.application.looks
        return await read_submission(self.loop, scripts, looks, body, self.caller, key=key, keep=keep)

    async def accept(self, command: Submit) -> Workload:
        """Have it decided and committed; before the first look for devices nothing is refused for want of them."""
        if not await self.loop.sights.knows_devices():
            command = msgspec.structs.replace(command, blind=True)
        copy = None if command.spec is None else command.spec.script_copy
        answer = await (self.loop.handle(command) if copy is None else self._with_copy(command, copy))
        return await self.find(str(answer.workload))

    async def _with_copy(self, command: Submit, copy: str) -> Answer:
        """Have it decided. Where that is refused (or the same ask was accepted long ago) nothing needs the copy."""
        is_decided = False
        try:
            answer = await self.loop.handle(command)
            is_decided = True
        except GpuError:
            is_decided = True
            raise
        finally:
            file = Path(os.fsdecode(unpack_bytes(copy)))
            await asyncio.to_thread(self.application.scripts.done, file, may_go=is_decided)
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
