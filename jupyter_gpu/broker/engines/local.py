"""The engine of this node: starts attempts through the launcher, and sees them to their end.

The record is on disk, one folder per attempt (see `spool` and `files`). So a broker that starts anew adopts what
runs, and every step can be repeated: a start is decided by the started mark, an end by the outcome. Reports over
the launcher's socket and pidfds make it quick, and a look at the folders each second makes it certain. An
attempt is lost when its mark is there, its supervisor is not, no outcome was written, and nothing of its tree
lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...model import EndReason, Holder, IsolationView, Outcome
from . import aftermath, files, procs
from .accounts import Accounts
from .base import Attempt, Order, Sighting, Stage
from .channel import Channel
from .container_plan import engine_of
from .guard import Guard
from .spool import Spool, make_folder, number_of
from .watching import Supervisor, Watching

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_ASK_AGAIN_SECONDS = 2.0


@dataclass
class _Entry:
    """One attempt that is not yet taken back."""

    sighting: Sighting
    folder: str
    #: Who sees to it, and lives.
    supervisor: Supervisor | None = None
    #: Its folder is complete: it may be started.
    prepared: bool = False
    #: When the launcher was last asked to start it (monotonic); None: not this launcher.
    asked_at: float | None = None
    #: What its supervisor failed of, if that was told.
    fault: str = ""
    #: Nobody wants to hear of it any more; forgotten once it is over.
    unwanted: bool = False
    #: The outcome as it was last read, and by what it is seen to have changed since.
    outcome_is: tuple[int, int, int] | None = None
    outcome: dict[str, Any] | None = None
    clearing: asyncio.Task[None] | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.sighting.workload, self.sighting.attempt

    @property
    def is_marked(self) -> bool:
        return os.path.lexists(f"{self.folder}/{files.MARK}")

    def read_outcome(self) -> dict[str, Any] | None:
        """The outcome, read only where it was written anew."""
        path = f"{self.folder}/{files.OUTCOME}"
        found = files.signature_of(path)
        if found != self.outcome_is:
            self.outcome_is, self.outcome = found, files.read(path) if found else None
        return self.outcome


class LocalEngine:
    """Processes on this node. `folder` is on a local disk and only ours."""

    def __init__(self, folder: Path, isolation: str = "auto") -> None:
        self._spool = Spool(folder)
        self._guard = Guard(
            isolation, self._spool, lambda folder: self._channel is not None and self._channel.start(folder)
        )
        self.for_errands = self._guard.for_errands
        self._accounts = Accounts()
        self._entries: dict[tuple[int, int], _Entry] = {}
        self._newest: dict[int, Sighting] = {}
        self._watching = Watching(self._supervisor_has_ended)
        self._channel: Channel | None = None
        self._look: asyncio.TimerHandle | None = None
        self._on_sighting: Callable[[Sighting], None] = lambda _: None

    # --- the seam ---------------------------------------------------------------------------------

    async def start(self, on_sighting: Callable[[Sighting], None]) -> None:
        """Adopt what an earlier broker left and begin to report."""
        self._on_sighting = on_sighting
        procs.raise_file_limit()
        self._spool.open()
        await self._guard.begin()
        self._channel = Channel(self._spool.root / "launcher.log", self._hear, self._launcher_is_new)
        for workload, attempt in self._spool.live():
            entry = self._enter(workload, attempt)
            entry.prepared = True
            self._guard.adopted(entry.key, entry.folder)
            self._settle(entry)
        self._channel.open()
        self._look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_around)

    async def close(self) -> None:
        """Stop reporting. What runs goes on."""
        self._on_sighting = lambda _: None
        if self._look:
            self._look.cancel()
        self._guard.close()
        if self._channel:
            self._channel.close()
        self._watching.close()
        tasks = [entry.clearing for entry in self._entries.values() if entry.clearing]
        await asyncio.gather(*tasks, return_exceptions=True)
        self._entries.clear()

    def inventory(self) -> Mapping[int, Sighting]:
        """The newest attempt of each workload that is not yet taken back."""
        return self._newest

    @property
    def isolation(self) -> IsolationView:
        """Whether jobs are kept from the devices of others, by what, and on what evidence."""
        return self._guard.view

    def keep_apart(self, nodes: Iterable[str]) -> None:
        """Take the device nodes of all devices, and find out whether jobs can be kept from those of others."""
        self._guard.keep_apart(nodes)

    async def hand_over(self, attempt: Attempt) -> None:
        """Start it once: what is here already is left as it is."""
        if (attempt.workload, attempt.attempt) in self._entries:
            return
        try:
            entry = self._enter(attempt.workload, attempt.attempt, anew=True)
        except OSError as error:  # the loop sees that it is not known here, and hands it over again
            log.warning("attempt %s.%s cannot be taken now: %s", attempt.workload, attempt.attempt, error)
            return
        fresh = False
        try:
            fresh = make_folder(entry.folder)
            account = await self._accounts.find(attempt.account)
            if entry.sighting.stage is not Stage.HANDED_OVER or entry.unwanted:
                return  # called off meanwhile
            if fresh or not entry.is_marked:
                job = self._guard.fence(attempt.withheld, attempt.devices, engine_of(attempt.spec))
                self._spool.write(attempt, entry.folder, account, job, fresh=fresh)
                self._guard.started(entry.key, job, account.uid)
            entry.prepared = True
        except (ValueError, IndexError) as error:  # of its own words: text that is none, a place that is not there
            self._over(entry, _launch_failed(f"what it asks for cannot be meant: {error}", engine_fault=False))
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's end and nobody else's
            self._over(entry, _launch_failed(f"could not prepare the start: {error}"))
            return
        if fresh:
            self._ask(entry)
        else:
            self._settle(entry)

    async def order(self, order: Order) -> None:
        """Bring it to an end."""
        entry = self._entries.get((order.workload, order.attempt))
        if entry is None or entry.sighting.stage is Stage.GONE or entry.sighting.order == order:
            return
        try:
            files.write_order(entry.folder, msgspec.to_builtins(order))
        except OSError:
            return  # the loop sees that it was not taken, and orders again
        self._see(entry, order=order)
        if entry.sighting.stage is Stage.HANDED_OVER:
            self._call_off(entry, f"ordered to yield ({order.reason}) before it began; nothing was started")
        else:
            self._watching.poke(entry.supervisor)

    async def take_back(self, workload: int, attempt: int) -> None:
        """Forget an attempt that is over; one that has not begun does not begin."""
        entry = self._entries.get((workload, attempt))
        if entry is None:
            return
        entry.unwanted = True
        if entry.sighting.stage is Stage.HANDED_OVER:
            self._call_off(entry, "taken back before it began; nothing was started")
        if entry.sighting.stage is Stage.GONE:
            self._forget(entry)
        elif entry.sighting.order is None:
            now = time.time()
            await self.order(
                Order(workload=workload, attempt=attempt, reason="cancelled", ordered_at=now, yield_by=now,
                      kill_after_seconds=0)
            )  # fmt: skip

    def highest_workload(self) -> int:
        """The highest number that a folder here bears: it must name no other workload, even after a lost store."""
        return self._spool.highest_workload()

    def folder_of(self, workload: int, attempt: int) -> Path:
        """Where the attempt's log and outcome are; they stay after it was taken back."""
        return self._spool.folder(workload, attempt)

    def log_path(self, workload: int, attempt: int) -> Path:
        """Where the raw log of an attempt stands, whether or not it exists yet."""
        return self.folder_of(workload, attempt) / files.LOG

    @property
    def launcher_pid(self) -> int | None:
        """The launcher, for the operator's eyes."""
        return self._channel.pid if self._channel else None

    # --- what is on disk --------------------------------------------------------------------------

    def _enter(self, workload: int, attempt: int, *, anew: bool = False) -> _Entry:
        sighting = Sighting(workload=workload, attempt=attempt, stage=Stage.HANDED_OVER)
        folder, is_new = self._spool.folder_to_start_in(workload, attempt) if anew else (None, False)
        entry = _Entry(sighting, folder or str(self._spool.folder(workload, attempt)))
        order = None if is_new else files.read(f"{entry.folder}/{files.ORDER}")
        if order:
            entry.sighting = msgspec.structs.replace(sighting, order=msgspec.convert(order, Order))
        self._entries[entry.key] = entry
        self._remember(entry.sighting)
        return entry

    def _call_off(self, entry: _Entry, detail: str) -> None:
        """Make the mark ourselves, so that no launcher can; if one was quicker, its supervisor has the order."""
        with contextlib.suppress(OSError):
            if files.make_mark(entry.folder, {"called_off": True, "at": time.time()}):
                outcome = files.never_started(detail)
                files.write_whole(f"{entry.folder}/{files.OUTCOME}", outcome)
                self._over(entry, outcome)
                files.forget_environment(entry.folder)
                return
        self._settle(entry)

    # --- what is seen -----------------------------------------------------------------------------

    def _settle(self, entry: _Entry) -> None:
        """Bring an entry up to date with its folder; start it if it has not begun. What cannot be read is not known."""
        try:
            self._bring_up_to_date(entry)
        except Exception as error:  # noqa: BLE001 - no files left, say: nothing follows, and the next look tries again
            log.warning("attempt %s.%s cannot be looked at: %s", *entry.key, error)

    def _bring_up_to_date(self, entry: _Entry) -> None:
        if entry.sighting.stage is Stage.GONE or entry.clearing:
            return
        mark: dict[str, Any] = {}
        if entry.supervisor is None:
            found = files.read(f"{entry.folder}/{files.MARK}")
            if found is None and not entry.is_marked:
                self._ask(entry)
                return
            mark = found or {}
            self._watch(entry, mark)
        # After the pidfd was tried: a supervisor that is dead now has written all that it will ever write. One that
        # lives may see to another attempt already, but not before it has written that this one is gone.
        outcome = entry.read_outcome()
        if outcome and (outcome.get("gone") or entry.supervisor is not None):
            self._over(entry, outcome)
        elif entry.supervisor is None:
            entry.clearing = asyncio.get_running_loop().create_task(self._clear(entry, mark, outcome))

    def _ask(self, entry: _Entry) -> None:
        """Ask for a supervisor, and again if none has made its mark: it may have been ended before it could."""
        now = time.monotonic()
        due = entry.asked_at is None or now > entry.asked_at + _ASK_AGAIN_SECONDS
        if due and entry.prepared and not entry.unwanted and self._channel and self._channel.start(entry.folder):
            entry.asked_at = now

    def _watch(self, entry: _Entry, mark: dict[str, Any]) -> None:
        entry.supervisor = self._watching.watch(mark)
        if entry.sighting.holder is None and mark.get("pid"):
            workload, attempt = entry.key
            holder = Holder(
                kind="attempt", name=f"{workload}.{attempt}", number=attempt, pid=mark["pid"],
                start_ticks=mark["start_ticks"], boot_id=mark["boot_id"],
            )  # fmt: skip
            self._see(entry, stage=Stage.STARTED, holder=holder)

    def _supervisor_has_ended(self, one: Supervisor) -> None:
        for entry in [each for each in self._entries.values() if each.supervisor == one]:
            entry.supervisor = None
            self._settle(entry)

    def _over(self, entry: _Entry, content: dict[str, Any]) -> None:
        """Take an outcome: the main process is gone, and perhaps all of its tree."""
        stage = Stage.GONE if content.get("gone") else Stage.EXITED
        if stage is not entry.sighting.stage:
            self._guard.ended(entry.key, content)
            self._see(entry, stage=stage, outcome=msgspec.convert(content, Outcome))
        if stage is Stage.GONE and entry.unwanted:
            self._forget(entry)

    def _see(self, entry: _Entry, **changes: Any) -> None:
        entry.sighting = msgspec.structs.replace(entry.sighting, **changes)
        self._remember(entry.sighting)
        self._on_sighting(entry.sighting)

    def _remember(self, sighting: Sighting) -> None:
        known = self._newest.get(sighting.workload)
        if known is None or known.attempt <= sighting.attempt:
            self._newest[sighting.workload] = sighting

    def _forget(self, entry: _Entry) -> None:
        workload, attempt = entry.key
        with contextlib.suppress(OSError):
            self._spool.forget(workload, attempt)
        self._entries.pop(entry.key, None)
        if workload in self._newest and self._newest[workload].attempt == attempt:
            del self._newest[workload]
            for other in [one for one in self._entries.values() if one.key[0] == workload]:
                self._remember(other.sighting)

    async def _clear(self, entry: _Entry, mark: dict[str, Any], outcome: dict[str, Any] | None) -> None:
        """End what a dead supervisor has left; only then the attempt is over."""
        try:
            await self._end_the_rest(entry, mark, outcome)
        except OSError as error:  # whether anything lives is not known
            log.warning("what is left of attempt %s.%s cannot be looked at: %s", *entry.key, error)
        finally:
            entry.clearing = None

    async def _end_the_rest(self, entry: _Entry, mark: dict[str, Any], outcome: dict[str, Any] | None) -> None:
        spec = files.read(f"{entry.folder}/{files.SPEC}")
        done, forced = True, list[str]()
        if spec:
            done, forced = await asyncio.to_thread(aftermath.clear, entry.folder, spec, mark)
        with contextlib.suppress(OSError):
            if done and outcome:
                outcome = outcome | {"gone": True, "forced": [*outcome.get("forced", []), *forced][: files.MOST_NAMED]}
                files.write_whole(f"{entry.folder}/{files.OUTCOME}", outcome)
            elif done and mark.get("called_off"):  # by a broker that was killed before it could write this
                outcome = files.never_started("called off before it began; nothing was started")
                files.write_whole(f"{entry.folder}/{files.OUTCOME}", outcome)
            elif done:
                order = files.read(f"{entry.folder}/{files.ORDER}")
                outcome = aftermath.lost(entry.folder, why=_why_lost(mark, entry.fault), forced=forced, order=order)
            files.forget_environment(entry.folder)
        if done and outcome and outcome.get("gone"):
            self._over(entry, outcome)
        # Else something hangs in the kernel, or the disk is full: the next look around tries again.

    # --- what arrives -----------------------------------------------------------------------------

    def _hear(self, report: list[Any]) -> None:
        what, folder, *more = report
        if self._guard.heard(folder):
            return
        entry = self._entries.get(number_of(folder))
        if entry is None or entry.folder != folder:
            return
        if what == "fault":
            if not entry.is_marked:
                self._over(entry, _launch_failed(f"could not start a supervisor: {more[1]}"))
            else:
                entry.fault = str(more[1])  # its pidfd tells when it is gone
            return
        if what == "open":
            if entry.sighting.stage is not Stage.GONE:
                self._guard.told(entry.key, more[0])
            return
        if what == "started" and entry.supervisor is None:
            self._watch(entry, dict(zip(("pid", "start_ticks", "boot_id"), more, strict=True)))
            return
        self._settle(entry)

    def _launcher_is_new(self) -> None:
        for entry in list(self._entries.values()):
            if entry.sighting.stage is Stage.HANDED_OVER:
                entry.asked_at = None
                self._settle(entry)

    def _look_around(self) -> None:
        """Find what no report has told."""
        self._look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_around)
        self._guard.look()
        for entry in list(self._entries.values()):
            self._settle(entry)


def _why_lost(mark: dict[str, Any], fault: str) -> str:
    if mark.get("boot_id") not in (None, procs.boot_id()):
        return "the machine was restarted while it ran"
    if fault:
        return f"its supervisor failed: {fault}"
    return "its supervisor was ended from outside before the outcome was known"


def _launch_failed(detail: str, *, engine_fault: bool = True) -> dict[str, Any]:
    return {
        "end": EndReason.LAUNCH_FAILED.value, "detail": detail[: files.LONGEST_DETAIL], "engine_fault": engine_fault,
        "gone": True, "ended_at": time.time(),
    }  # fmt: skip
