"""The broker's one loop: commands are decided one at a time, committed together, and then acted on.

Commit first, then act. All commands that wait are decided on one overlay, each seeing those before it; a refusal rolls
back only its own. The store writes what came of them in one transaction on its own thread, and only then is the
overlay the world, are the askers answered and the listeners told. What must be done now is not in a list: the
reconciler derives it from the world against the engines' inventory after each commit, each sighting and each tick.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..core.decide import find, step
from ..core.events import DeviceMarked, Event, PolicyLoaded
from ..core.lifecycle import fold
from ..core.moment import Moment
from ..errors import BrokerUnavailable, GpuError, StoreUnavailable
from ..model import BrokerView, Command, LoadPolicy, Policy, Renewal, RenewBody, State, Workload, World
from .alerts import Alerts
from .answers import about, concerned
from .deadlines import recur_for_ever, tick_for_ever
from .engines.base import Engine
from .foreseeing import Foreseeing
from .holds import Hours, tell_hours_for_ever
from .idle import Idle
from .owners import Owners
from .publish import Publisher, Subscription
from .recurring import Clockwork
from .renewals import Renewals
from .sights import Sights
from .store.store import SNAPSHOT_EVERY, Record, Store

T = TypeVar("T")

log = logging.getLogger(__name__)

ALL = -1
#: Commands are decided together for so long: meanwhile nobody is served, however many wait and whatever they cost.
LONGEST_STEP_SECONDS = 0.1


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command."""

    #: The workload that the command was about; for a repeated submission the one that exists. Where a recurring job was
    #: added its number, where one came the last job that it led to.
    workload: int | None
    events: tuple[Event, ...]


class _Waiting(msgspec.Struct, kw_only=True):
    command: Command
    answer: asyncio.Future[Answer]


class Loop:
    """One writer: the only holder of the world."""

    def __init__(
        self,
        *,
        store: Store,
        engines: Mapping[str, Engine],
        policy: Policy,
        identity: BrokerView,
        idle_seconds: int | None = None,
        ids_after: int = 0,
        alert_command: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store_id = store.store_id
        self.simulated = identity.simulated
        self._identity, self._idle_seconds = identity, idle_seconds
        #: Numbers up to this one name folders of an engine, also where the store does not know them (any more).
        self._ids_after = ids_after
        self.world = World(policy)
        self.last_touched_at = clock()
        self.publisher = Publisher()
        self.alerts = Alerts(self.now, command=alert_command)
        self.alerts.changed = lambda: self.publisher.look(self.world.revision)
        self.idle = Idle(self.alerts)
        self.sights = Sights()
        self.clockwork, self.hours, self.foreseeing = Clockwork(), Hours(), Foreseeing()
        #: Job -> why its owner could not be told of it the last time.
        self.untold: dict[int, str] = {}
        self.moment: Moment | None = None
        self.owners = Owners()  # who of a hub accounts and processes are
        self.engines = engines
        self._store, self._clock = store, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._inbox: asyncio.Queue[_Waiting | None] = asyncio.Queue()
        self._batch: deque[_Waiting] = deque()  # taken out of it, and not decided yet
        self._watchers: dict[int, set[asyncio.Future[None]]] = {}
        self._digest = policy.digest()
        #: The last commit failed, and may have reached the disk all the same.
        self._in_doubt = False
        self._since_snapshot = 0
        self._store_trouble: str | None = None
        self._renewals = Renewals(self.idle)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False
        #: Set by the app: what to do after each commit, sighting and tick; and how to stop.
        self.act: Callable[[], Awaitable[None]] | None = None
        self.on_stop: Callable[[], None] = lambda: None
        #: Set by the watch: to hear of each mark of a device as soon as it is committed.
        self.on_mark: Callable[[DeviceMarked], None] = lambda _: None
        #: Set by who tells people of their jobs.
        self.on_commit: Callable[[Sequence[Record]], None] = lambda _: None

    # -- beginning and end

    async def start(self) -> None:
        """Read the world back from the store, take the policy in force, and begin to decide."""
        self.world = await self._load(self.world.policy)
        broken = self.world.check()
        if broken:
            message = f"the store holds what must never be: {'; '.join(broken)}"
            raise StoreUnavailable(message, hint="Keep a copy of the state folder and see docs/recovery.md.")
        for_ever = (
            self._decide_for_ever(),
            tick_for_ever(self),
            recur_for_ever(self),
            tell_hours_for_ever(self),
        )
        self._tasks = [asyncio.create_task(it) for it in for_ever]
        await self.handle(LoadPolicy(policy=self.world.policy))

    async def _load(self, policy: Policy) -> World:
        world = await self.read(lambda store: store.load(policy))
        world.last_id = max(world.last_id, self._ids_after)
        return world

    async def close(self) -> None:
        """Stop deciding and close the store. What runs goes on."""
        self._is_closed = True
        self.foreseeing.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._inbox.empty():
            if waiting := self._inbox.get_nowait():
                self._batch.append(waiting)
        for waiting in self._batch:
            _fail(waiting, _closed())
        self.publisher.close()
        await self.alerts.close_down()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    # -- what faces ask, through the API

    def now(self) -> float:
        """Unix seconds, by the one clock that every decision uses."""
        return self._clock()

    def touch(self) -> None:
        """Somebody asked something: idle time starts anew."""
        self.last_touched_at = self.now()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know: of the store, and what else the app has to tell."""
        trouble = () if self._store_trouble is None else (self._store_trouble,)
        calendars = (*self.clockwork.warnings, *self.hours.warnings)
        return (*self._store.warnings, *trouble, *calendars, *self.sights.warnings())

    def broker_view(self) -> BrokerView:
        """Which broker this is, and when it stops if nothing happens."""
        return msgspec.structs.replace(
            self._identity,
            store_id=self.store_id,
            policy_digest=self._digest,
            devices=len(self.world.devices),
            stops_at=self.stops_at(),
            warnings=(*self.warnings, *self.alerts.warnings),
            driver=self.sights.driver(),
            isolation=self.sights.isolation(),
        )

    def stops_at(self) -> float | None:
        """The end of the idle time; None while work or a listener is there, or where the broker stays for good."""
        if self._idle_seconds is None or self.has_work or self.publisher.listeners:
            return None
        return self.last_touched_at + self._idle_seconds

    @property
    def has_work(self) -> bool:
        """Whether anything is queued or holds devices, or comes by a calendar."""
        comes = any(it.next_at is not None and not it.paused for it in self.world.recurring.values())
        return comes or bool(self.world.line or self.world.live)

    async def handle(self, command: Command) -> Answer:
        """Have a command decided and committed. Raises the GpuError of a refusal; then nothing has changed."""
        if self._is_closed:
            raise _closed()
        waiting = _Waiting(command=command, answer=asyncio.get_running_loop().create_future())
        self._inbox.put_nowait(waiting)
        return await waiting.answer

    def wake(self) -> None:
        """Something was seen: let the reconciler look."""
        self._inbox.put_nowait(None)

    async def read(self, call: Callable[[Store], T]) -> T:
        """Ask the store on its own thread, in turn with the commits."""
        if self._is_closed:
            raise _closed()
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, self._store)

    def subscribe(self) -> Subscription:
        """Hear of every commit and every sample from now on."""
        return self.publisher.subscribe()

    def log_path(self, workload_id: int, attempt: int) -> Path:
        """Where the log of an attempt stands."""
        return self.engines["local"].log_path(workload_id, attempt)

    async def wait_until(
        self, workload_id: int, is_reached: Callable[[Workload], bool], timeout_seconds: float
    ) -> Workload:
        """Wait until a workload is as wished, or until the time is over; either way it is returned as it stands."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while not is_reached(it := find(self.world, workload_id)) and it.state is not State.ENDED:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            watchers = self._watchers.setdefault(workload_id, set())
            watchers.add(changed)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed, left)
            watchers.discard(changed)
        return find(self.world, workload_id)

    def renew(self, workload_id: int, holder_number: int, **word: Any) -> Renewal:
        """The holder lives, and may say whether it computes. Raises LeaseLost when the lease is over."""
        body = RenewBody(holder_number=holder_number, **word)
        return self._renewals.renew(self.world, find(self.world, workload_id), body, self.now())

    def count_renewals_anew(self) -> None:
        """Nobody could renew just now, through no fault of theirs: the machine slept, or nobody could be recognised."""
        self._renewals.count_anew()

    def has_lapsed(self, it: Workload) -> bool:
        """Whether renewals are overdue. The first look, after a start or a stall, begins the count anew."""
        return self._renewals.has_lapsed(self.world, it, self.now())

    # -- deciding

    async def _decide_for_ever(self) -> None:
        while True:
            await asyncio.sleep(0)  # whoever else there is, also where none of these had to be written
            came = [] if self._batch else [await self._inbox.get()]
            while not self._inbox.empty():
                came.append(self._inbox.get_nowait())
            self._batch += [waiting for waiting in came if waiting is not None]
            if self._batch:
                await self._decide_together(self._batch)
            await self._act()

    async def _act(self) -> None:
        try:
            if self.act is not None:
                await self.act()
        except Exception:  # a fault of ours must not end the loop; the next look finds the same difference
            log.exception("cannot act on what is due")

    async def _decide_together(self, batch: deque[_Waiting]) -> None:
        """Decide those that wait, first to last, for as long as nobody minds; the rest is left for the next time."""
        try:
            await self._settle_doubt()
        except Exception as error:  # noqa: BLE001 - it goes to those who ask; the loop goes on
            self._refuse(batch, error)
            batch.clear()
            return
        overlay, digest = self.world.copy(), self._digest
        records: list[Record] = []
        answers: list[tuple[_Waiting, Answer]] = []
        begun, first = time.monotonic(), batch[0]
        while batch and (batch[0] is first or time.monotonic() < begun + LONGEST_STEP_SECONDS):
            waiting = batch.popleft()
            revision, policy = overlay.revision, overlay.policy
            try:
                events = step(overlay, waiting.command, self.now(), before=self.world)
            except Exception as error:  # it ends one command, never the loop
                if not isinstance(error, GpuError):
                    log.exception("cannot decide %s", type(waiting.command).__name__)
                if overlay.revision != revision or not isinstance(error, GpuError):  # a fault of ours, found too late
                    overlay = self._as_before(records, policy)
                _fail(waiting, error)
                continue
            if isinstance(waiting.command, LoadPolicy):
                digest = overlay.policy.digest()
            records += [Record(number=revision + nth, digest=digest, event=it) for nth, it in enumerate(events, 1)]
            answers.append((waiting, Answer(workload=about(overlay, waiting.command, events), events=tuple(events))))
        if records and not await self._commit(records, overlay, [waiting for waiting, _ in answers]):
            return
        self.world, self._digest = overlay, digest
        for waiting, answer in answers:
            if not waiting.answer.done():
                waiting.answer.set_result(answer)
        self._tell(records)

    def _as_before(self, records: Iterable[Record], policy: Policy) -> World:
        """The world with what was decided in this batch already."""
        overlay = self.world.copy()
        overlay.policy = policy
        return fold(overlay, (record.event for record in records))

    async def _settle_doubt(self) -> None:
        """After a commit that failed: take what the store holds, should more of it have been written than it said."""
        if not self._in_doubt:
            return
        known = self.world
        written = await self.read(lambda store: store.events_since(known.revision, ALL))
        if written:
            self.world = await self._load(known.policy)
            self.world.observe_as(known)
            self._store_trouble = None
            self._tell(written)
        self._in_doubt = False

    async def _commit(self, records: list[Record], overlay: World, waiting: list[_Waiting]) -> bool:
        """Write, or leave everything as it was and say why. What was observed is seen again by the reconciler."""
        try:
            if any(isinstance(record.event, PolicyLoaded) for record in records):
                await self.read(lambda store: store.remember_policy(overlay.policy))
            await self.read(lambda store: store.commit(records, overlay))
        except Exception as error:  # noqa: BLE001 - it goes to those who ask; the loop goes on
            self._in_doubt = True
            self._refuse(waiting, error)
            return False
        self._store_trouble = None
        self._since_snapshot += len(records)
        if self._since_snapshot >= SNAPSHOT_EVERY:
            self._since_snapshot = 0
            with contextlib.suppress(StoreUnavailable):  # a snapshot only shortens a replay
                await self.read(lambda store: store.snapshot(overlay))
        return True

    def _refuse(self, waiting: Iterable[_Waiting], error: Exception) -> None:
        """Nothing of these can be recorded now."""
        if isinstance(error, GpuError):
            self._store_trouble = str(error)
        else:  # a fault of ours must end these commands, never the loop
            log.error("cannot commit", exc_info=error)
        for one in waiting:
            _fail(one, error)

    def _tell(self, records: Sequence[Record]) -> None:
        workloads, devices, everything = concerned(records, self.world)
        for event in (record.event for record in records):
            if isinstance(event, DeviceMarked):
                self.on_mark(event)
        for id_ in workloads:
            for changed in self._watchers.pop(id_, ()):
                if not changed.done():
                    changed.set_result(None)
            if id_ not in self.world.live:
                self._renewals.forget(id_)
                self.touch()
        if workloads or devices or everything:
            names = frozenset(workloads), frozenset(devices)
            self.publisher.publish(self.world.revision, *names, everything=everything)
        self.on_commit(records)


def _closed() -> BrokerUnavailable:
    return BrokerUnavailable("The broker was stopped, and this was not decided.")


def _fail(waiting: _Waiting, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
