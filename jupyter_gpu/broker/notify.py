"""Tells people of their jobs, at least once, by processes of their own.

The log is read on from where it was told last, and that place is kept in the store: what happened while the broker was
down, or just before it was killed, is told by the next one. Each piece of news has an id, so that who is told twice can
see it. One message at a time goes to one target of one owner, and takes along all that has come up meanwhile, so an
array of a thousand is some messages and not a thousand.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from .. import spawn
from ..core.events import RecurringChanged, RecurringPut
from ..core.news import Told, is_wanted, news_of, news_of_recurring, soon
from ..core.outlook import expected_start_at
from ..errors import GpuError
from ..model import JobSpec, Kind, Recurring, Workload, unpack_bytes
from ..notifying import Errand, Message, News
from .engines.accounts import Accounts
from .store.store import Record, Store

if TYPE_CHECKING:
    from .loop import Loop

log = logging.getLogger(__name__)

MARK = "told"
#: So many processes at once; one more that hangs keeps nobody else.
MOST_AT_ONCE = 4
#: The process itself tries for less.
ERRAND_SECONDS = 90.0
COMMAND_SECONDS = 10.0
#: So much news in one message; of more than that the rest is counted.
MOST_NEWS = 50
#: So much waits for one target; a target that takes none must not fill the memory.
MOST_PENDING = 1000
#: News older than this is no news: a broker that was down for a week does not wake anybody for it.
OLD_SECONDS = 86_400.0
SOON_SECONDS = 600.0
#: Who is served at once needs not be told that it will be.
WAITED_SECONDS = 60.0
_READ_TOGETHER = 500

#: Whom a target belongs to, and the target: "" is the admin's command.
Key = tuple[str, str, str]


class _Whose(NamedTuple):
    """Of what news is: a job, or a recurring job."""

    id: int
    name: str
    owner: str
    account: str
    spec: JobSpec
    attempt: int = 0


class _Due(NamedTuple):
    """One piece of news that is to be told, and the variables that its job was submitted with."""

    #: The event's; 0 for what no event tells.
    number: int
    news: News
    environment: Mapping[str, str]


class Notifier:
    """All that is still to be told, and the processes that tell."""

    def __init__(self, loop: Loop, *, command: Sequence[str] = ()) -> None:
        self._loop, self._command = loop, tuple(command)
        self._accounts = Accounts()
        self._pending: dict[Key, list[_Due]] = {}
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(MOST_AT_ONCE)
        self._soon: set[tuple[int, int]] = set()
        #: All events up to this one were looked at, and up to that one were told.
        self._looked_at = 0
        self._told = 0
        self._is_closed = False

    async def start(self) -> None:
        """Take up what the broker before this one did not tell."""
        newest = self._loop.world.revision
        mark = await self._loop.read(lambda store: store.mark(MARK))
        self._looked_at = self._told = newest if mark is None else min(mark, newest)
        while self._looked_at < newest and (records := await self._loop.read(self._next_records)):
            for record in records:
                await self._look_back(record)
        self._loop.on_commit = self.hear

    def _next_records(self, store: Store) -> list[Record]:
        return store.events_since(self._looked_at, _READ_TOGETHER)

    async def close(self) -> None:
        """Wait for nobody; what was not told is told by the next broker."""
        self._is_closed = True
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        with contextlib.suppress(GpuError):
            await self._keep_mark()

    def hear(self, records: Sequence[Record]) -> None:
        """What was committed just now."""
        for record in records:
            self._looked_at = record.number
            it = self._loop.world.workloads.get(getattr(record.event, "workload", -1))
            self._take(it, record)

    async def _look_back(self, record: Record) -> None:
        """What was committed long ago: its workload stands otherwise by now, and may be in the store alone."""
        self._looked_at = record.number
        if record.event.at < self._loop.now() - OLD_SECONDS:
            return
        id_ = getattr(record.event, "workload", -1)
        it = self._loop.world.workloads.get(id_)
        if it is None and id_ > 0:
            it = await self._loop.read(lambda store: store.workload(id_))
        self._take(it, record)

    def look_ahead(self) -> None:
        """Who is expected to start soon."""
        world, now = self._loop.world, self._loop.now()
        heads = set[str]()
        for it in world.queued():
            if len(heads) == len(world.policy.queues):
                break
            if it.queue in heads:
                continue
            heads.add(it.queue)
            key = (it.id, it.attempt)
            whose = _of_job(it)
            if whose is None or not whose.spec.notify or key in self._soon or now - it.submitted_at < WAITED_SECONDS:
                continue
            at = expected_start_at(world, it, now, 0)
            if at is not None and at - now <= SOON_SECONDS:
                self._soon.add(key)
                self._enter(whose, soon(it, at, now), f"{self._loop.store_id}:soon:{it.id}.{it.attempt}", now, 0)
        self._soon = {key for key in self._soon if key[0] in world.workloads}

    # -- what is told to whom

    def _take(self, it: Workload | None, record: Record) -> None:
        event = record.event
        if isinstance(event, RecurringPut | RecurringChanged):
            id_ = event.it.id if isinstance(event, RecurringPut) else event.recurring
            recurring = self._loop.world.recurring.get(id_)
            whose = None if recurring is None else _of_recurring(recurring)
            told = None if recurring is None else news_of_recurring(recurring, event)
        else:
            whose = None if it is None else _of_job(it)
            told = None if it is None else news_of(self._loop.world, it, event)
        if told is not None and whose is not None and (self._command or whose.spec.notify):
            self._enter(whose, told, f"{self._loop.store_id}:{record.number}", event.at, record.number)

    def _enter(self, whose: _Whose, told: Told, id_: str, at: float, number: int) -> None:
        news = News(
            id=id_, at=at, what=told.what, workload=whose.id, name=whose.name, owner=whose.owner, text=told.text,
            end=None if told.end is None else str(told.end), attempt=whose.attempt,
        )  # fmt: skip
        targets = whose.spec.notify if is_wanted(told, whose.spec.notify_on) else ()
        keys = [(whose.owner, whose.account, target) for target in targets]
        for key in [*keys, *([("", "", "")] if self._command else [])]:
            pending = self._pending.setdefault(key, [])
            if len(pending) < MOST_PENDING:
                pending.append(_Due(number, news, whose.spec.environment))
            self._go(key)

    def _go(self, key: Key) -> None:
        if key in self._running or self._is_closed or not self._pending.get(key):
            return
        task = asyncio.ensure_future(self._tell(key))
        self._running[key] = task
        task.add_done_callback(lambda _: self._gone(key))

    def _gone(self, key: Key) -> None:
        self._running.pop(key, None)
        if not self._pending.get(key):
            self._pending.pop(key, None)
        self._go(key)

    # -- the telling

    async def _tell(self, key: Key) -> None:
        async with self._turn:
            batch = self._pending[key].copy()
            message = _message([due.news for due in batch])
            try:
                await (self._tell_user(key, message, batch[-1].environment) if key[2] else self._tell_admin(message))
            except Exception:  # a fault of ours must not keep what comes later
                log.exception("cannot tell %s of its jobs", key[0] or "the admin's command")
            del self._pending[key][: len(batch)]
        with contextlib.suppress(GpuError):
            await self._keep_mark()

    async def _tell_user(self, key: Key, message: Message, environment: Mapping[str, str]) -> None:
        owner, account, target = key
        environ, user = await self._who(account, environment)
        errand = msgspec.json.encode(Errand(to=target, message=message)).decode()
        argv = [sys.executable, "-m", "jupyter_gpu.notifying"]
        done = await asyncio.to_thread(
            spawn.run, argv, ERRAND_SECONDS, text=errand, cwd="/", environ=environ, user=user
        )
        why = "it did not end in time" if done.exit_code is None else done.errors.strip().rpartition("\n")[2][:500]
        self._note(message, "" if done.exit_code == 0 else f"by {_named(target)}: {why}")
        if done.exit_code != 0:
            log.warning("%s was not told by %s: %s. It was: %s", owner, _named(target), why, message.news[-1].text)

    def _note(self, message: Message, untold: str) -> None:
        """Keep why the last word did not arrive, for whoever looks at the job."""
        kept, known = self._loop.untold, self._loop.world.workloads
        for news in message.news:
            kept.pop(news.workload, None)
            if untold and news.workload in known:
                kept[news.workload] = untold
        for id_ in [id_ for id_ in kept if id_ not in known]:
            del kept[id_]

    async def _who(self, account: str, given: Mapping[str, str]) -> tuple[dict[str, str], spawn.User | None]:
        """As whom, and with which variables: those that the job itself was submitted with, and no GPU."""
        who = await self._accounts.find(account)
        text = {name: unpack_bytes(value).decode("utf-8", "surrogateescape") for name, value in given.items()}
        base = {"PATH": os.defpath, "PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": ""}
        # Its interpreter is ours, not the job's.
        kept = {name: value for name, value in text.items() if not name.startswith(("PYTHON", "LD_"))}
        user = None if who.uid is None or who.gid is None else spawn.User(who.uid, who.gid, who.groups)
        return base | (kept | who.environment if user is not None else who.environment | kept), user

    async def _tell_admin(self, message: Message) -> None:
        for news in message.news:
            text = msgspec.json.encode(news).decode() + "\n"
            done = await asyncio.to_thread(spawn.run, self._command, COMMAND_SECONDS, text=text)
            if done.exit_code != 0:
                how = "did not end in time" if done.exit_code is None else f"failed: {done.errors}"
                log.error("the notify command %s %s", self._command[0], how.strip())

    async def _keep_mark(self) -> None:
        """All before the oldest that is still to be told was told."""
        waiting = [due.number for pending in self._pending.values() for due in pending if due.number]
        told = min(waiting, default=self._looked_at + 1) - 1
        if told > self._told:
            self._told = told
            await self._loop.read(lambda store: store.set_mark(MARK, told))


def _named(target: str) -> str:
    """Call a target by what of it is no secret: the rest of an address, and the words of a command, may be."""
    return urlsplit(target).hostname or "its address" if "://" in target else target.split(maxsplit=1)[0]


def _of_job(it: Workload) -> _Whose | None:
    if it.kind is not Kind.JOB or it.spec is None:
        return None
    return _Whose(it.id, it.name, it.owner, it.account, it.spec, it.attempt)


def _of_recurring(it: Recurring) -> _Whose | None:
    asked = it.submit
    if asked.spec is None:
        return None
    return _Whose(it.id, asked.name, it.owner, asked.account or it.owner, asked.spec)


def _message(news: Sequence[News]) -> Message:
    shown = news[:MOST_NEWS]
    more = f"\nand {len(news) - len(shown)} more" if len(news) > len(shown) else ""
    return Message(text="\n".join(it.text for it in shown) + more, news=tuple(shown))
