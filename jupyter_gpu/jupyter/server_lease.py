"""The lease of one server of a hub: asked for before its start, named in the hub's state, given back at its end.

Who looks after it is the hub's process, which may be restarted while servers run. So the broker keeps what counts, by
user and server: what is done here is done in time or left to the broker, which asks the hub which servers there are
(jupyterhub/jupyterhub#4519). Nothing here is ever in the way of a stop.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import quote

from ..client import AsyncClient
from ..errors import BrokerUnavailable, GpuError, LeaseLost, NotFound, StoreUnavailable
from ..model import DeviceView, Holder, Kind, Profile, Renewal, ServerBody, State, SubmitBody, WorkloadView
from ..units import format_when
from .offers import title_of
from .prospects import waiting
from .refusals import said
from .whereabouts import AGAIN_SECONDS

T = TypeVar("T")

#: One look at the line; then the place of who waits is told anew.
STEP_SECONDS = 5.0
#: While the broker does not answer, somebody who waits in line tries again after so long.
RETRY_SECONDS = 2.0
_KEY_CHARACTERS = 100
#: A hub's progress bar: asking, waiting up to here, and the spawner's own from there.
_ASKED, _NEXT, _GRANTED = 2, 40, 45


class Phase(StrEnum):
    """How far a start has come."""

    NONE = "none"
    ASKING = "asking"
    WAITING = "waiting"
    HELD = "held"
    OVER = "over"


class ServerLease:
    """What one server holds, and what there is to tell of it. `open_client` makes a client that asks for its user."""

    def __init__(self, open_client: Callable[[], AsyncClient], log: Any, deadline_seconds: float) -> None:
        self._open, self._log, self.deadline_seconds = open_client, log, deadline_seconds
        self.id: int | None = None
        self.number = 1
        #: In which store of the broker: in another one the same number is another reservation. None is not known.
        self.store: str | None = None
        self.phase = Phase.NONE
        self._event: dict[str, Any] | None = None
        self._most_ahead = 0
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._giving: asyncio.Task[Any] | None = None
        #: When it was said where the server runs, and what.
        self._told: tuple[float, ServerBody | None] = (float("-inf"), None)

    # -- at the start

    def begin(self) -> None:
        """A start begins, whose progress may be looked at before there is any."""
        self._most_ahead, self._event, self.phase = 0, None, Phase.NONE

    async def take(
        self,
        profile: Profile,
        holder: str,
        *,
        waits: bool,
        longest_seconds: float,
        join_line: Callable[[], None],
        team: str | None = None,
    ) -> tuple[WorkloadView, tuple[DeviceView, ...]]:
        """Ask, and wait so long: the workload as it stands then, and the devices that it got, if it got any.

        `join_line` is called before it waits in line, and raises where it must not.
        """
        self._tell(Phase.ASKING, f"Asking for “{title_of(profile)}”.", _ASKED)
        it = await self._submit(profile, holder, team)
        if waits and it.state is State.QUEUED:
            join_line()
        async with self._open() as client:
            it = await self._until_active(client, it, profile, time.monotonic() + longest_seconds, waits=waits)
            if it.state is not State.ACTIVE:
                return it, ()
            found = {device.uuid: device for device in (await self._in_time(client.devices())).items}
        devices = tuple(found[uuid] for uuid in it.devices)
        named = ", ".join(f"GPU {device.number}" for device in devices)
        until = "" if it.ends_at is None else f" until {format_when(it.ends_at, time.time())}"
        self._tell(Phase.HELD, f"{named} reserved{until}. Starting your server.", _GRANTED)
        return it, devices

    async def _submit(self, profile: Profile, holder: str, team: str | None) -> WorkloadView:
        key = f"server:{quote(holder, safe='/')[:_KEY_CHARACTERS]}:{uuid.uuid4().hex}"
        body = SubmitBody(
            kind=Kind.RESERVATION,
            profile=profile.name,
            team=team,
            name=f"server {holder.partition('/')[2]}".strip(),
            holder=Holder(kind="server", name=holder),
        )
        sending = asyncio.ensure_future(self._send(body, key))
        try:
            it = await asyncio.wait_for(asyncio.shield(sending), self.deadline_seconds)
        except (TimeoutError, asyncio.CancelledError):
            self.later(self._undo(sending))  # it may have come through all the same
            raise
        self.id, self.number = it.id, 1 if it.holder is None else it.holder.number
        return it

    async def _send(self, body: SubmitBody, key: str) -> WorkloadView:
        async with self._open() as client:
            self.store = (await client.broker()).store_id
            return await client.submit(body, key)

    async def _undo(self, sending: asyncio.Future[WorkloadView]) -> None:
        try:
            it = await sending
        except (GpuError, OSError):
            return
        await self._release(it.id, self.store)

    async def _until_active(
        self, client: AsyncClient, it: WorkloadView, profile: Profile, end: float, *, waits: bool
    ) -> WorkloadView:
        """Until it is granted or over; who waits in line outlasts a restart of the broker."""
        while it.state is State.QUEUED and (left := end - time.monotonic()) > 0:
            if waits:
                self._tell_place(it, profile)
            try:
                # There is no process yet that the broker could see, so it has to hear that somebody waits.
                await self._in_time(self._renew(client, it.id))
                step = min(left, STEP_SECONDS)
                it = await client.wait(it.id, "active", step, raise_on_timeout=False)
            except LeaseLost:  # it was ended by somebody between two looks
                it = await self._in_time(client.workload(it.id))
            except (BrokerUnavailable, StoreUnavailable, TimeoutError) as error:
                if not waits:
                    raise
                self._log.warning("The broker cannot be asked about reservation %s: %s", it.id, error)
                self._tell(Phase.WAITING, "The GPU service does not answer now; still waiting in line.")
                await asyncio.sleep(min(left, RETRY_SECONDS))
        return it

    async def move(self, holder: Holder) -> None:
        """Name the server's process to the broker, which then sees by itself whether it lives."""
        if self.id is None:
            return
        try:
            async with self._open() as client:
                it = await self._in_time(self._move(client, self.id, holder))
        except (GpuError, TimeoutError, OSError) as error:
            self._log.warning("Reservation %s does not know the process of its server: %s", self.id, said(error))
            return
        self.number = self.number if it.holder is None else it.holder.number

    async def _move(self, client: AsyncClient, lease: int, holder: Holder) -> WorkloadView:
        await _in_its_store(client, lease, self.store)
        return await client.move(lease, holder)

    async def _renew(self, client: AsyncClient, lease: int) -> Renewal:
        await _in_its_store(client, lease, self.store)
        return await client.renew(lease, self.number)

    # -- while it runs

    async def hear(self) -> str:
        """Tell the broker that the server lives; why the server must end now, empty while it need not."""
        if self.id is None:
            return ""
        try:
            async with self._open() as client:
                return await self._in_time(self._hear(client, self.id))
        except (GpuError, TimeoutError, OSError) as error:
            self._log.debug("Reservation %s cannot be renewed: %s", self.id, said(error))
            return ""

    async def _hear(self, client: AsyncClient, lease: int) -> str:
        try:
            notice = (await self._renew(client, lease)).notice
        except LeaseLost as error:
            it = await client.workload(lease)
            if it.end is None and it.outcome is None and it.holder is not None:
                self.number = it.holder.number  # its owner has passed it on, or the broker was told so late
                return ""
            return str(error)
        if notice is None or time.time() < notice.yield_by:
            return ""
        return f"reservation {lease} is over ({notice.reason})" + (f": {notice.detail}" if notice.detail else "")

    def tell_later(self, body: ServerBody) -> None:
        """Say where the server runs, if that is news or was said some time ago."""
        if body != self._told[1] or time.monotonic() >= self._told[0] + AGAIN_SECONDS:
            self._told = (time.monotonic(), body)
            self.later(self._tell_whereabouts(body))

    async def _tell_whereabouts(self, body: ServerBody) -> None:
        try:
            async with self._open() as client:
                await self._in_time(client.tell_server(body))
        except (GpuError, TimeoutError, OSError) as error:
            self._told = (float("-inf"), None)
            self._log.debug("The broker does not know where the server %r runs: %s", body.name, said(error))

    # -- at the end

    async def give_back(self) -> None:
        """Give back what is held, or the place in line. Twice is once, and it takes no longer than the deadline."""
        self.give_back_later()
        self.nothing_to_take()
        if self._giving is not None:
            await asyncio.shield(self._giving)

    def give_back_later(self) -> None:
        """The same, without waiting for it."""
        lease, self.id = self.id, None
        if lease is not None:
            self.nothing_to_take()
            self._giving = self.later(self._release(lease, self.store))

    async def _release(self, lease: int, store: str | None) -> None:
        try:
            async with self._open() as client:
                await self._in_time(_release_in(client, lease, store))
        except (NotFound, LeaseLost):
            pass  # it is over already
        except (GpuError, TimeoutError, OSError) as error:
            self._log.warning("Reservation %s is not given back; the broker sees to it: %s", lease, said(error))

    # -- what the hub keeps

    def to_keep(self) -> dict[str, Any] | None:
        """What a hub that starts anew needs to go on; None where nothing is held."""
        return None if self.id is None else {"id": self.id, "number": self.number, "store": self.store}

    def go_on_with(self, kept: Any) -> bool:
        """Go on with what was kept, also by a version that kept no store; whether there is anything."""
        if not (isinstance(kept, dict) and isinstance(kept.get("id"), int)):
            return False
        self.id, self.number, self.store = kept["id"], int(kept.get("number", 1)), kept.get("store")
        return True

    # -- what is told

    async def news(self) -> AsyncGenerator[dict[str, Any], None]:
        """What a person who waits for the start should see, from now until it is granted or over."""
        shown: dict[str, Any] | None = None
        while True:
            changed, event = self._changed, self._event
            if event is not None and event != shown:
                shown = event
                yield event
            if self.phase in (Phase.HELD, Phase.OVER):
                return
            await changed.wait()

    def nothing_to_take(self) -> None:
        """No more is to be told: of a start that needs no GPU there is nothing from the beginning."""
        self.phase = Phase.OVER
        self._say(None)

    def _tell_place(self, it: WorkloadView, profile: Profile) -> None:
        ahead = it.ahead or 0
        self._most_ahead = max(self._most_ahead, ahead)
        percent = _ASKED + (_NEXT - _ASKED) * (self._most_ahead - ahead) // (self._most_ahead + 1)
        self._tell(Phase.WAITING, waiting(it, profile, time.time()), percent)

    def _tell(self, phase: Phase, message: str, percent: int | None = None) -> None:
        self.phase = phase
        before = (self._event or {}).get("progress", 0)
        self._say({"progress": max(before, percent or 0), "message": message})

    def _say(self, event: dict[str, Any] | None) -> None:
        self._event = event
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # -- small

    async def _in_time(self, work: Awaitable[T]) -> T:
        return await asyncio.wait_for(work, self.deadline_seconds)

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any] | None:
        """Do it in the background."""
        try:
            task = asyncio.get_running_loop().create_task(work)
        except RuntimeError:  # the hub is being taken down: the broker sees to it
            work.close()
            return None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self) -> None:
        """Wait for what is done in the background."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def _in_its_store(client: AsyncClient, lease: int, store: str | None) -> None:
    """Raise NotFound where the broker has another store than the one that a lease is in, as after its loss."""
    if store is not None and (await client.broker()).store_id != store:
        raise NotFound(
            f"Reservation {lease} is in another store than the broker has now.",
            hint="Start the server again, or let the broker have its former state folder.",
        )


async def _release_in(client: AsyncClient, lease: int, store: str | None) -> None:
    await _in_its_store(client, lease, store)
    await client.release(lease)
