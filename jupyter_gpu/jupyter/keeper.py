"""Who looks after the kernels of this process: what each has reserved, and which process of it holds that now.

The provisioner tells what becomes of a kernel; the keeper tells the broker. Hooks of a kernel come twice or never, so
they are hints only: that a kernel or its keeper is gone, the broker sees by itself. No kernel waits for the broker
longer than `DEADLINE_SECONDS`, and none of this starts a broker.

This keeper serves programs that run one notebook (nbclient, papermill): their kernel is known to the broker by its
process, so nothing has to be renewed. A Jupyter server has `kernels.Kernels`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from ..errors import Conflict, GpuError
from ..holding import kernel_holder
from ..model import Holder, Kind, Notice, State, WorkloadView

if TYPE_CHECKING:
    from ..client import AsyncClient

T = TypeVar("T")

#: No start and no end of a kernel waits longer for the broker.
DEADLINE_SECONDS = 2.0


@dataclass(eq=False)
class Kept:
    """One kernel of this process."""

    kernel_id: str
    #: What people read: its notebook's file name, else its kernelspec's.
    name: str = ""
    language: str = ""
    #: The KernelManager that runs it.
    manager: Any = None
    #: As whom its reservation was asked for; None is this process's own account.
    client: AsyncClient | None = None
    #: Its reservation as last heard of.
    lease: WorkloadView | None = None
    #: Its process now; None before the first start and while there is none.
    pid: int | None = None
    #: What its process sees, and what it was started with, where it is ours to say.
    devices: tuple[str, ...] = ()
    started_with: tuple[str, ...] = ()
    #: The reservation that these devices are of.
    pinned_by: int | None = None
    #: It is being started without its devices, although they are still leased.
    leaving: bool = False
    #: It has to be restarted now: by a page that shows it, which claims that first, else by its server.
    restart_due: bool = False
    restart_claimed: bool = False
    #: The kernel that takes its place; else what its sessions show next.
    heir: Kept | None = None
    #: Why it must be restarted to see what was granted.
    restart_needed: str | None = None
    #: The broker's warning, once it has come.
    notice: Notice | None = None
    #: What the broker tells although nothing ends; empty once it tells it no more.
    told: str = ""
    #: The sessions of its Jupyter server that show it, or did: where a kernel is changed they show the next one.
    sessions: set[str] = field(default_factory=set)
    #: Said whenever something new is known of it.
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    #: One ask at a time.
    reserving: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: One restart by us at a time.
    restarting: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: How its process died by itself, until the next one runs; and when.
    crash: str | None = None
    crashed_at: float | None = None
    #: What a person should know.
    reason: str = ""

    @property
    def held(self) -> WorkloadView | None:
        """The reservation that its process may use now."""
        it = self.lease
        return it if it is not None and it.state is State.ACTIVE and not self.leaving else None

    @property
    def is_pinned(self) -> bool:
        """Whether its process sees what it has reserved, or without a reservation what it inherited."""
        return bool(self.devices) if self.lease is None else self.held is not None and self.pinned_by == self.lease.id


class Keeper:
    """The kernels that one kernel manager starts."""

    #: Whether starts of kernels may wait in line, as the environment asks.
    may_wait = True

    def __init__(self, log: Any = None) -> None:
        self.kernels: dict[str, Kept] = {}
        #: From now on no kernel is started and nothing is reserved.
        self.closing = False
        self.log = log or logging.getLogger(__name__)

    def kept(self, kernel_id: str) -> Kept:
        """What is known of a kernel; a new one if nothing is."""
        return self.kernels.setdefault(kernel_id, Kept(kernel_id))

    @contextlib.asynccontextmanager
    async def asking(self, kept: Kept) -> AsyncIterator[AsyncClient]:  # noqa: ARG002 - a server asks as somebody
        """The client that asks for a kernel."""
        from ..client import AsyncClient  # noqa: PLC0415 - most kernels are started without asking anybody

        async with AsyncClient(start=False) as client:
            yield client

    # -- what the provisioner tells

    async def take_over(self, kept: Kept) -> None:
        """A kernel is about to start: where it is put in another's place, let it have what that one holds."""

    async def held_by(self, kept: Kept) -> WorkloadView | None:
        """What a kernel that is started anew may use: as the broker says, else as it was last heard of."""
        before = kept.held
        answer = await self.in_time(self._look_up(kept), kept, "its reservation cannot be looked up")
        if answer is None and before is not None and _is_over(before):
            return None
        return kept.held

    async def _look_up(self, kept: Kept) -> bool:
        async with self.asking(kept) as client:
            kept.lease = await reservation_of(client, kept.kernel_id)
        return True

    async def started(self, kept: Kept) -> None:
        """A kernel runs, in a new process: that one holds its reservation now."""
        if kept.lease is not None:
            await self.in_time(self.move(kept), kept, "its reservation does not know its new process")

    async def move(self, kept: Kept) -> None:
        """Name the kernel's present process to the broker, where it knows another."""
        it = kept.lease
        if it is None or kept.pid is None or it.state not in (State.QUEUED, State.ACTIVE) or kept.leaving:
            return
        holder = kernel_holder(kept.kernel_id, kept.pid)
        if holder.pid is None or (it.holder is not None and _same(it.holder, holder)):
            return
        async with self.asking(kept) as client:
            kept.lease = await client.move(it.id, holder)

    async def stopped(self, kept: Kept) -> None:
        """A kernel is over for good: what it held is given back, and its place in line given up."""
        self.kernels.pop(kept.kernel_id, None)
        await self.in_time(self._give_back(kept), kept, "its reservation is not given back; the broker sees to it")

    async def _give_back(self, kept: Kept) -> bool:
        async with self.asking(kept) as client:
            it = kept.lease or await reservation_of(client, kept.kernel_id)
            kept.lease = None
            if it is not None and it.end is None:
                # By its number: what has passed to another kernel meanwhile stays with that one.
                await client.release(it.id, None if it.holder is None else it.holder.number)
        return True

    def crashed(self, kept: Kept, how: str) -> None:
        """A kernel has died by itself and is about to be started anew."""
        if not kept.restarting.locked():  # else that is our doing
            self.log.warning("Kernel %s of %s has died and is started anew: %s.", kept.kernel_id, kept.name, how)
            kept.crash, kept.crashed_at = how, time.time()

    # -- small

    async def in_time(self, work: Awaitable[T], kept: Kept, what: str) -> T | None:
        """Ask the broker, but let no kernel wait for it; what fails is said in the log, and made up for later."""
        lease = kept.lease
        try:
            return await asyncio.wait_for(work, DEADLINE_SECONDS)
        except (GpuError, TimeoutError, OSError) as error:
            said = str(error) or f"the broker did not answer within {DEADLINE_SECONDS:.0f} s"
            level = logging.DEBUG if lease is None else logging.WARNING  # without one nothing is amiss
            self.log.log(level, "Kernel %s: %s: %s", kept.kernel_id, what, said)
            return None


def keeper_of(manager: Any) -> Keeper:
    """The keeper of what a manager of kernels starts: a server's, else one of its own."""
    found = _KEEPERS.get(manager) if manager is not None else None
    if found is None:
        found = Keeper()
        if manager is not None:
            _KEEPERS[manager] = found
    return found


def keep_for(manager: Any, keeper: Keeper) -> None:
    """Let a keeper look after what a manager of kernels starts."""
    _KEEPERS[manager] = keeper


_KEEPERS: WeakKeyDictionary[Any, Keeper] = WeakKeyDictionary()


async def reservation_of(client: AsyncClient, kernel_id: str) -> WorkloadView | None:
    """A kernel's reservation, waiting or held; one that is being given back only where there is no other."""
    found = None
    async for it in client.workloads(kind=Kind.RESERVATION, mine=True):
        if is_held_by(it, kernel_id) and (found is None or found.state is State.YIELDING):
            found = it
    return found


def is_held_by(it: WorkloadView, kernel_id: str | None = None) -> bool:
    """Whether it is a reservation of the caller's that a kernel holds: this one, where it is named."""
    return (
        it.is_mine
        and it.end is None
        and it.kind is Kind.RESERVATION
        and it.holder is not None
        and it.holder.kind == "kernel"
        and kernel_id in (None, it.holder.name)
    )


def _same(one: Holder, other: Holder) -> bool:
    """Whether the broker knows this process, or was told of it and does not believe it (a container's)."""
    return (one.pid, one.start_ticks) == (other.pid, other.start_ticks) or one.pid is one.keeper_pid is None


def _is_over(it: WorkloadView) -> bool:
    return it.ends_at is not None and time.time() >= it.ends_at


def refuse_twice(it: WorkloadView) -> Conflict:
    """What is said to a kernel that has a reservation already."""
    return Conflict(
        f"This kernel has reservation {it.id} already.",
        hint="Extend it, or give it back before you ask for another.",
    )
