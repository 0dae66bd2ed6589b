"""How far the live attempts say they are, and whether they still say or do anything: read from their folders.

The supervisors write there; the broker looks once a second, on a thread, since a disk may be slow. What is read stands
beside the log, as readings of devices do: it is no event, and after a restart of the broker it is read again. Who may
see it is told when it has changed. The curve of an attempt is read only when somebody asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import GpuError
from ..model import Kind, Progress, State, Workload
from .attempts import attempt_of
from .engines import files, procs
from .hangs import Hangs, Sign
from .looking import Looking
from .loop import Loop

LOOK_SECONDS = 1.0
#: So often the processor time of jobs without devices is read, which takes a look at all processes.
CPU_SECONDS = 10.0
#: More than this part of a core is work.
_AT_WORK = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")
_Key = tuple[int, int]


class _Wanted(NamedTuple):
    """What is to be looked at of one attempt."""

    workload: int
    attempt: int
    #: The supervisor, of a job without devices.
    pid: int | None = None

    @property
    def key(self) -> _Key:
        return self.workload, self.attempt


class _Used(NamedTuple):
    """The processor time of a job's tree as it was read last, and whether it was at work before that."""

    ticks: int
    at: float
    is_at_work: bool | None


class ProgressReader(Looking):
    """Looks once a second for as long as the broker runs."""

    what = "the progress of jobs"

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop
        self._hangs = Hangs(loop.alerts)
        #: What the file of the newest report was read from, by attempt.
        self._read: dict[_Key, tuple[int, int, int] | None] = {}
        #: The attempts that were live at the last look: their last word is read once more.
        self._before: dict[_Key, _Wanted] = {}
        self._used: dict[_Key, _Used] = {}

    def pause_seconds(self) -> float:
        """They report once a second at most."""
        return LOOK_SECONDS

    async def look(self) -> None:
        """Look once at everything that lives, and at what has just ended."""
        live = {it.key: it for it in map(_wanted, self._loop.world.holders()) if it is not None}
        wanted = {**self._before, **live}
        self._before = live
        found, signs = dict[_Key, Progress](), dict[_Key, Sign]()
        if wanted:
            found, signs = await asyncio.to_thread(self._look_at_files, tuple(wanted.values()))
        self._take(found)
        now = {workload: sign for (workload, attempt), sign in signs.items() if (workload, attempt) in live}
        for command in self._hangs.look(self._loop.world, self._loop.now(), now):
            with contextlib.suppress(GpuError):  # what cannot be recorded now is seen again at the next look
                await self._loop.handle(command)

    def _take(self, found: dict[_Key, Progress]) -> None:
        world = self._loop.world
        for id_ in [id_ for id_ in world.progress if id_ not in world.workloads]:
            del world.progress[id_]
        changed = set()
        for (id_, _), progress in sorted(found.items()):
            if id_ in world.workloads and world.progress.get(id_) != progress:
                world.progress[id_] = progress
                changed.add(id_)
        if changed:
            self._loop.moment = None  # documents of a moment ago show it as it was then
            self._loop.publisher.look(world.revision, progress=frozenset(changed))

    # -- on the thread

    def _look_at_files(self, wanted: tuple[_Wanted, ...]) -> tuple[dict[_Key, Progress], dict[_Key, Sign]]:
        keys = {it.key for it in wanted}
        self._read = {key: read for key, read in self._read.items() if key in keys}
        self._look_at_processors([it for it in wanted if it.pid is not None])
        found, signs = dict[_Key, Progress](), dict[_Key, Sign]()
        for it in wanted:
            path = self._loop.log_path(*it.key)
            with contextlib.suppress(OSError):
                report = files.signature_of(str(path.with_name(files.PROGRESS)))
                if report != self._read.get(it.key):
                    self._read[it.key] = report
                    newest = read_newest(path.parent, it.attempt)
                    if newest is not None:
                        found[it.key] = newest
                used = self._used.get(it.key)
                is_at_work = None if used is None else used.is_at_work
                signs[it.key] = Sign(it.attempt, (files.signature_of(str(path)), report), is_at_work)
        return found, signs

    def _look_at_processors(self, wanted: list[_Wanted]) -> None:
        self._used = {it.key: self._used[it.key] for it in wanted if it.key in self._used}
        now = time.monotonic()
        due = [it for it in wanted if it.key not in self._used or now >= self._used[it.key].at + CPU_SECONDS]
        if not due:
            return
        with contextlib.suppress(OSError):
            everyone = procs.everyone()
            for it in due:
                tree = procs.descendants(it.pid or 0, everyone)
                ticks, before = cpu_ticks(tree), self._used.get(it.key)
                is_at_work = None
                if before is not None:
                    is_at_work = abs(ticks - before.ticks) > _AT_WORK * _TICKS * (now - before.at)
                self._used[it.key] = _Used(ticks, now, is_at_work)


def cpu_ticks(pids: Iterable[int]) -> int:
    """The processor time of these processes and of the children that they have waited for, in clock ticks."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = procs.slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            ticks += sum(int(word) for word in fields[11:15])
    return ticks


def read_newest(folder: Path, attempt: int) -> Progress | None:
    """The newest report of an attempt from its folder; None where it has reported nothing."""
    return _progress(files.read(str(folder / files.PROGRESS)), attempt)


def read_curve(folder: Path, attempt: int) -> tuple[Progress, ...]:
    """The curve of an attempt from its folder, the newest report always among it."""
    items = (files.read(str(folder / files.CURVE)) or {}).get("items")
    found = [_progress(item, attempt) for item in (items if isinstance(items, list) else [])]
    points = [point for point in found if point is not None]
    newest = read_newest(folder, attempt)
    newest = newest and msgspec.structs.replace(newest, from_at=None, from_step=None)  # the curve begins with that
    return tuple(points if newest is None or newest in points else [*points, newest])


def _progress(content: Any, attempt: int) -> Progress | None:
    try:
        return msgspec.convert({**content, "attempt": attempt}, Progress)
    except (TypeError, msgspec.ValidationError):  # damaged, or not ours
        return None


def _wanted(it: Workload) -> _Wanted | None:
    if it.kind is not Kind.JOB or it.lease is None or it.outcome is not None:
        return None
    is_without = it.state is State.ACTIVE and not it.lease.devices and it.holder is not None
    return _Wanted(it.id, attempt_of(it), it.holder.pid if is_without and it.holder is not None else None)
