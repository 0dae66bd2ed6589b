"""An attempt's log, byte for byte: a part from an offset, or all that comes until the attempt has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from pathlib import Path
from typing import Annotated

import msgspec

from ...errors import NotAllowed, NotFound
from ...model import Kind, Scope, State, Workload
from .base import Base, endpoint
from .bounds import too_much

#: How often a log that is followed is looked at: a file that grows tells nobody.
LOOK_SECONDS = 0.2
PART_BYTES = 1 << 20
LARGEST_PART_BYTES = 8 << 20
#: How long one look at a workload that has not started waits before the connection is looked at again.
_START_SECONDS = 60.0

Offset = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of which attempt; without `attempt` the newest. A negative offset counts from the end."""

    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    offset: Offset = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PART_BYTES)] = PART_BYTES
    follow: bool = False


class Log(Base):
    """/workloads/ID/log."""

    @endpoint("application/octet-stream", query=LogQuery)
    async def get(self, id_: str, query: LogQuery) -> None:
        """The raw bytes of an attempt's log, from an offset, or followed until the attempt has ended."""
        it = await self.find(id_)
        self._must_read(it)
        self.set_header("Content-Type", "application/octet-stream")
        await (self.unless_gone(self._follow(it, query)) if query.follow else self._part(it, query))

    def _must_read(self, it: Workload) -> None:
        if it.kind is not Kind.JOB:
            raise NotFound(f"{it.title} has no log: it runs nothing.")
        if it.owner != self.caller.name and not self.caller.scopes & {Scope.LOGS, Scope.ADMIN}:
            raise NotAllowed(
                f"The log of {it.title} is its owner's.", hint="Ask them, or somebody who has the scope logs."
            )

    async def _part(self, it: Workload, query: LogQuery) -> None:
        attempt = self._attempt(it, query)
        # Asked before the file is read: what is written after the answer is no was written before it.
        is_complete = is_over(it, attempt)
        path = self.loop.log_path(it.id, attempt)
        if not self.application.may_hold(self.caller.name, query.limit):
            raise too_much(self.caller.name)
        self.held_bytes = query.limit
        offset, data = await asyncio.to_thread(read_part, path, query.offset, query.limit)
        if not data and is_complete and it.attempt and not await asyncio.to_thread(path.parent.exists):
            raise NotFound(
                f"The log of attempt {attempt} of {it.title} was cleared away.",
                hint=f"Logs are kept for {self.loop.world.policy.keep_log_days} days here, and fewer where disks fill.",
            )
        self.held_bytes = len(data)
        more = is_complete and len(data) == query.limit
        self.set_header("X-Attempt", str(attempt))
        self.set_header("X-Next-Offset", str(offset + len(data)))
        self.set_header("X-Log-Complete", "true" if is_complete and not more else "false")
        self.set_header("Content-Length", str(len(data)))
        self.write(data)
        await self.flush()

    async def _follow(self, it: Workload, query: LogQuery) -> None:
        while query.attempt is None and it.attempt == 0 and it.state is not State.ENDED:
            it = await self.loop.wait_until(it.id, lambda now: now.attempt > 0, _START_SECONDS)
        attempt = self._attempt(it, query)
        self.set_header("X-Attempt", str(attempt))
        await self.flush()
        path, offset = self.loop.log_path(it.id, attempt), query.offset
        while True:
            it = self.loop.world.workloads.get(it.id, it)
            is_complete = is_over(it, attempt)
            offset, data = await asyncio.to_thread(read_part, path, offset, PART_BYTES)
            offset += len(data)
            if data:
                self.write(data)
                await self.flush()
            elif is_complete:
                return
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _attempt(self, it: Workload, query: LogQuery) -> int:
        newest = max(it.attempt, 1)
        attempt = newest if query.attempt is None else query.attempt
        # One more than has been seen to start: a start is observed a moment after its first words.
        if attempt > newest + 1:
            raise NotFound(f"{it.title} has no attempt {attempt}.", hint=f"Its newest is {it.attempt}.")
        return attempt


def is_over(it: Workload, attempt: int) -> bool:
    """Whether nothing will be added to the log of an attempt."""
    if it.state is State.ENDED or attempt < it.attempt:
        return True
    return it.state is State.QUEUED and 0 < attempt == it.attempt


def read_part(path: Path, offset: int, limit: int) -> tuple[int, bytes]:
    """Where the part begins, and its bytes. Never follows a link: what lies there may be a user's."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return max(offset, 0), b""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return max(offset, 0), b""
        start = max(0, found.st_size + offset) if offset < 0 else offset
        with contextlib.suppress(OSError):
            return start, os.pread(fd, limit, start)
        return start, b""
    finally:
        os.close(fd)
