"""Tells people of their jobs, at least once, by processes of their own.

The log is read on from where it was told last, and that place is kept in the store: what happened while the broker was
down, or just before it was killed, is told by the next one. Each piece of news has an id, so that who is told twice can
see it. One message at a time goes to one owner (see `turns`), and takes along all that has come up meanwhile, so an
array of a thousand is some messages and not a thousand.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from .. import spawn
from ..core.events import Event, RecurringChanged, RecurringPut
from ..core.news import Told, is_wanted, news_of, news_of_recurring, news_of_reservation, soon
from ..core.outlook import expected_start_at
from ..errors import GpuError
from ..model import JobSpec, Kind, Recurring, Workload, World, unpack_bytes
from ..notifying import Errand, Message, News
from .engines import errand
from .engines.accounts import Accounts
from .store.store import Record, Store
from .turns import Key, Turns

if TYPE_CHECKING:
    from .loop import Loop

log = logging.getLogger(__name__)

T = TypeVar("T")

MARK = "told"
#: The process itself tries for less.
ERRAND_SECONDS = 90.0
COMMAND_SECONDS = 10.0
#: So much news in one message; of more than that the rest is counted.
MOST_NEWS = 50
#: News older than this is no news: a broker that was down for a week does not wake anybody for it.
OLD_SECONDS = 86_400.0
SOON_SECONDS = 600.0
#: Who is served at once needs not be told that it will be.
WAITED_SECONDS = 60.0
#: The mark is moved on at least so often, so that the next broker has little to look back at.
MARK_EVENTS = 1000
MARK_SECONDS = 60.0
_READ_TOGETHER = 200


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

    def __init__(
        self, loop: Loop, *, command: Sequence[str] = (), for_errands: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        self._loop, self._command, self._for_errands = loop, tuple(command), for_errands
        self._accounts = Accounts()
        self._turns: Turns[_Due] = Turns(time.monotonic)
        self._running: set[asyncio.Task[None]] = set()
        self._looking_back: asyncio.Task[None] | None = None
        self._soon: set[tuple[int, int]] = set()
        #: All events up to this one were looked at, but for what is still to be looked back at; up to that one all were
        #: told, and so it is written since then.
        self._looked_at = 0
        self._back_from: int | None = None
        self._told = 0
        self._marked_at = time.monotonic()
        self._is_closed = False

    async def start(self) -> None:
        """Tell from now on, and beside it what the broker before this one did not."""
        mark = await self._loop.read(lambda store: store.mark(MARK))
        newest = self._looked_at = self._loop.world.revision
        self._loop.on_commit = self.hear
        self._told = -1 if mark is None else min(mark, newest)
        if 0 <= self._told < newest:
            self._back_from = self._told
            self._looking_back = asyncio.ensure_future(self._look_back(newest))
        await self._keep_mark()

    async def _look_back(self, newest: int) -> None:
        """Read on from where it was told last; who asks for something meanwhile does not wait for that."""
        try:
            while (self._back_from or 0) < newest and (found := await self._loop.read(self._next_records)):
                for record, it in found:
                    self._back_from = record.number
                    if record.number <= newest and record.event.at >= self._loop.now() - OLD_SECONDS:
                        id_ = getattr(record.event, "workload", -1)
                        self._take(self._loop.world.workloads.get(id_) or it, record)
                await self._keep_mark(at_least=MARK_EVENTS)
        except GpuError as error:
            log.warning("what the broker before did not tell is told by the next one: %s", error)
            return
        self._back_from = None
        await self._keep_mark()

    def _next_records(self, store: Store) -> list[tuple[Record, Workload | None]]:
        """The next ones with their workloads, which stand otherwise by now, and may be in the store alone."""
        records = store.events_since(self._back_from or 0, _READ_TOGETHER)
        ids = {getattr(record.event, "workload", -1) for record in records} - self._loop.world.workloads.keys()
        known = {id_: store.workload(id_) for id_ in ids if id_ > 0}
        return [(record, known.get(getattr(record.event, "workload", -1))) for record in records]

    async def close(self) -> None:
        """Wait for nobody; what was not told is told by the next broker."""
        self._is_closed = True
        tasks = [*self._running, *([self._looking_back] if self._looking_back else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        errand.end_all()
        with contextlib.suppress(GpuError):
            await self._keep_mark()

    def hear(self, records: Sequence[Record]) -> None:
        """What was committed just now."""
        for record in records:
            self._looked_at = record.number
            it = self._loop.world.workloads.get(getattr(record.event, "workload", -1))
            self._take(it, record)

    async def keep_up(self) -> None:
        """Now and then: whom it is time for again, who is to start soon, and how far all was told."""
        self.look_ahead()
        self._go()
        with contextlib.suppress(GpuError):
            is_due = time.monotonic() - self._marked_at >= MARK_SECONDS
            await self._keep_mark(at_least=1 if is_due else MARK_EVENTS)

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
            told = None if it is None else _news_of(self._loop.world, it, event)
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
            if not self._turns.put(key, _Due(number, news, whose.spec.environment)):
                log.warning("so much news waits for %s that this is left out: %s", key[0] or "the admin", told.text)
        self._go()

    def _go(self) -> None:
        """Tell whoever's turn it is."""
        while not self._is_closed and (turn := self._turns.take()) is not None:
            task = asyncio.ensure_future(self._tell(*turn))
            self._running.add(task)
            task.add_done_callback(self._gone)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._go()

    # -- the telling

    async def _tell(self, key: Key, batch: list[_Due]) -> None:
        message, was_told = _message([due.news for due in batch]), False
        try:
            if key[2]:
                was_told = await self._tell_user(key, message, batch[-1].environment)
            else:
                was_told = await self._tell_admin(message)
        except Exception:  # a fault of ours must not keep what comes later
            log.exception("cannot tell %s of its jobs", key[0] or "the admin's command")
        self._turns.done(key, len(batch), failed=not was_told)
        with contextlib.suppress(GpuError):
            await self._keep_mark()

    async def _tell_user(self, key: Key, message: Message, environment: Mapping[str, str]) -> bool:
        owner, account, target = key
        environ, user = await self._who(account, environment)
        await self._loop.sights.knows_devices()  # from which it is kept
        text = msgspec.json.encode(Errand(to=target, message=message)).decode()
        argv = [sys.executable, "-m", "jupyter_gpu.notifying"]
        tell = functools.partial(
            errand.run, argv, environ, ERRAND_SECONDS,
            user=user, text=text, fence=self._for_errands(), is_heard=False,
        )  # fmt: skip
        code, _, errors = await _on_a_thread_of_its_own(tell)
        last = errors.strip().rpartition("\n")[2]
        why = "it did not end in time" if code is None else _clean(last)
        self._note(message, "" if code == 0 else f"by {_named(target)}: {why}")
        if code != 0:
            log.warning("%s was not told by %s: %s. It was: %s", owner, _named(target), why, message.news[-1].text)
        return code == 0

    def _note(self, message: Message, untold: str) -> None:
        """Keep why the last word did not arrive, for whoever looks at the job."""
        kept, known = self._loop.untold, self._loop.world.workloads
        for news in message.news:
            kept.pop(news.workload, None)
            if untold and news.workload in known:
                kept[news.workload] = untold
        for id_ in [id_ for id_ in kept if id_ not in known]:
            del kept[id_]

    async def _who(
        self, account: str, given: Mapping[str, str]
    ) -> tuple[dict[str, str], tuple[int, int, Sequence[int]] | None]:
        """As whom, and with which variables: those that the job itself was submitted with, and no GPU."""
        who = await self._accounts.find(account)
        text = {name: unpack_bytes(value).decode("utf-8", "surrogateescape") for name, value in given.items()}
        base = {"PATH": os.defpath, "PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": ""}
        # Its interpreter is ours, not the job's.
        kept = {name: value for name, value in text.items() if not name.startswith(("PYTHON", "LD_"))}
        user = None if who.uid is None or who.gid is None else (who.uid, who.gid, who.groups)
        return base | (kept | who.environment if user is not None else who.environment | kept), user

    async def _tell_admin(self, message: Message) -> bool:
        is_told = True
        for news in message.news:
            text = msgspec.json.encode(news).decode() + "\n"
            done = await asyncio.to_thread(spawn.run, self._command, COMMAND_SECONDS, text=text)
            if done.exit_code != 0:
                is_told = False
                how = "did not end in time" if done.exit_code is None else f"failed: {_clean(done.errors)}"
                log.error("the notify command %s %s", self._command[0], how)
        return is_told

    async def _keep_mark(self, at_least: int = 1) -> None:
        """All before the oldest that is still to be told was told. Written once that is so many events on."""
        waiting = [due.number for due in self._turns.all() if due.number]
        told = min(waiting, default=self._looked_at + 1) - 1
        if self._back_from is not None:
            told = min(told, self._back_from)
        if told >= self._told + at_least:
            self._told, self._marked_at = told, time.monotonic()
            await self._loop.read(lambda store: store.set_mark(MARK, told))


async def _on_a_thread_of_its_own(run: Callable[[], T]) -> T:
    """Those that all share must not wait for programs of users; and nobody waits for it at our end."""
    running = asyncio.get_running_loop()
    answer: asyncio.Future[T] = running.create_future()

    def end(found: T) -> None:
        if not answer.cancelled():
            answer.set_result(found)

    def work() -> None:
        found = run()
        with contextlib.suppress(RuntimeError):  # the broker has stopped meanwhile
            running.call_soon_threadsafe(end, found)

    threading.Thread(target=work, name="tells", daemon=True).start()
    return await answer


def _clean(words: str) -> str:
    """A user's words as they may stand in a log."""
    return "".join(it if it.isprintable() else " " for it in words.strip())[:500]


def _named(target: str) -> str:
    """Call a target by what of it is no secret: the rest of an address, and the words of a command, may be."""
    return urlsplit(target).hostname or "its address" if "://" in target else target.split(maxsplit=1)[0]


def _news_of(world: World, it: Workload, event: Event) -> Told | None:
    return news_of(world, it, event) if it.kind is Kind.JOB else news_of_reservation(it, event)


def _of_job(it: Workload) -> _Whose | None:
    if it.kind is Kind.RESERVATION:  # told by the admin's command, and in the document that every face shows
        return _Whose(it.id, it.name, it.owner, it.account, JobSpec(argv=(), folder=""))
    if it.spec is None:
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
