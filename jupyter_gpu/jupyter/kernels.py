"""The kernels of one Jupyter server: reserve for one, pin it, give back, and say how each stands.

Everything that must work while a cell computes goes this way, since the kernel itself answers only when it is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import PurePosixPath
from typing import Any
from uuid import uuid4

from .. import pins
from ..client import AsyncClient
from ..errors import BrokerUnavailable, Conflict, GpuError, NotAllowed, NotFound
from ..holding import kernel_holder
from ..model import Kind, Policy, State, SubmitBody, WorkloadView
from ..out_of_reach import refuse_granted_for, refuse_in_vain_for
from .documents import KernelAsk, KernelView, PinAnswer
from .following import Following, in_background, is_over
from .keeper import Keeper, Kept, is_held_by, keep_for, refuse_twice, reservation_of
from .live import cuda_is_loaded
from .restarting import CLAIMED_SECONDS, Restarts
from .sessions import Sessions
from .silent import change_pin
from .standing import view_of

#: How often is looked for what kernels have reserved themselves, should nobody tell.
LOOK_SECONDS = 20.0
#: So long the kernel before may take to end where a notebook's kernel is changed.
OLD_SECONDS = 8.0


class Kernels(Keeper):
    """What the server extension and its pages ask about kernels, and the keeper of all of them."""

    may_wait = False  # who waits in line here can be seen and called off, unlike a start

    def __init__(
        self, serverapp: Any, client_of: Callable[..., AsyncClient], *, attach_seconds: float | None = None
    ) -> None:
        super().__init__(serverapp.log)
        self._app, self._client_of = serverapp, client_of
        self._attach_seconds = float(Policy().attach_seconds if attach_seconds is None else attach_seconds)
        #: Called on the loop when `views()` may differ.
        self.on_change: list[Callable[[], None]] = []
        self._following: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._looks_around = False
        keep_for(serverapp.kernel_manager, self)
        self._sessions, self._restarts = Sessions(serverapp, self.changed), Restarts(serverapp)

    async def close(self) -> None:
        """From now on nothing is reserved and nothing started; what kernels hold they give back when they end."""
        self.closing = True
        tasks = [*self._following.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._restarts.finished()

    # -- what is asked

    async def reserve(self, kernel_id: str, ask: KernelAsk, client: AsyncClient) -> WorkloadView:
        """Ask for devices for a kernel; granted or not, it is followed from here on."""
        kept = self._find(kernel_id)
        async with kept.reserving:  # a double click, or two pages, are one ask and one refusal
            return await self._reserve(kept, ask, client)

    async def _reserve(self, kept: Kept, ask: KernelAsk, client: AsyncClient) -> WorkloadView:
        if pins.ATTEMPT in os.environ:
            raise Conflict("This server runs in a job and has that job's GPUs.", hint="Say --gpus when you submit.")
        if kept.lease is not None and kept.lease.end is None and kept.lease.outcome is None:
            raise refuse_twice(kept.lease)
        body = SubmitBody(
            kind=Kind.RESERVATION,
            ask=ask.to_ask(),
            queue=ask.queue,
            team=ask.team,
            profile=ask.profile,
            name=self._name(kept),
            holder=kernel_holder(kept.kernel_id, kept.pid),
        )
        await refuse_in_vain_for(client)
        view = await client.submit(body, f"kernel {kept.kernel_id} {uuid4().hex}")
        await refuse_granted_for(client, view)
        if self.closing or self.kernels.get(kept.kernel_id) is not kept:
            with contextlib.suppress(GpuError):  # its end came before the answer: nobody else may give this back
                await client.cancel(view.id)
            raise Conflict("The kernel has ended meanwhile.", hint="Start one, then reserve for it.")
        # Who is known by a token asks by it from now on; an account of this machine is known anyway.
        kept.client = client if client.place is not None and client.place.token else None
        self._follow(kept, view)
        return view

    async def give_back(self, kernel_id: str, client: AsyncClient, *, by_page: bool = False) -> WorkloadView:
        """Leave the line; or let the kernel go on without its devices, and give them back.

        Where a restart is needed for that and a page makes it (`by_page`), the answer comes before.
        """
        kept = self._find(kernel_id)
        it = await self._theirs(kept, client)
        self._leave_alone(kept)
        kept.lease = it
        if by_page and not await self._unpin_live(kept):
            kept.leaving = kept.restart_due = True
            self._spawn(self._leave(kept, it, client))
            return await client.workload(it.id)
        return await self._left(kept, it, client)

    async def _leave(self, kept: Kept, it: WorkloadView, client: AsyncClient) -> None:
        if not await self._restarts.is_restarted(kept, CLAIMED_SECONDS):
            await self._restarts.restart_here(kept)
        await self._left(kept, it, client)

    async def _left(self, kept: Kept, it: WorkloadView, client: AsyncClient) -> WorkloadView:
        try:
            await self.unpin(kept, "Its reservation is given back.")
            view = await client.release(it.id)
        except BaseException:
            kept.leaving = False
            self._follow(kept, it)
            raise
        kept.lease = kept.notice = kept.restart_needed = None
        kept.leaving, kept.reason, kept.told = False, "", ""
        self.changed()
        return view

    async def pin(self, kernel_id: str, client: AsyncClient, *, restart: bool) -> PinAnswer:
        """Let a kernel see what was granted: at once where CUDA is not loaded, else by a restart where it may be."""
        kept = self._find(kernel_id)
        try:
            it = await self._theirs(kept, client)
        except NotFound:
            return PinAnswer(state="none", reason="This kernel has no reservation.")
        self._follow(kept, it)
        if it.state is not State.ACTIVE:
            return PinAnswer(state="waiting" if it.state is State.QUEUED else "none", reason=it.reason)
        if not kept.is_pinned and not await self.pin_live(kept) and restart:
            await self._restarts.restart_here(kept)
        kept.heard.set()
        self.changed()
        if kept.is_pinned:
            return PinAnswer(state="pinned", devices=kept.devices)
        why = kept.restart_needed or "The kernel is busy; it is pinned when its cell has ended, or by a restart."
        return PinAnswer(state="restart-needed", reason=why, devices=it.devices)

    async def _theirs(self, kept: Kept, client: AsyncClient) -> WorkloadView:
        """The kernel's reservation as the broker says now.

        It is asked first: where it is away, or the reservation is somebody else's, nothing is done to the kernel.
        """
        known = kept.lease or await reservation_of(client, kept.kernel_id)
        if known is None:
            raise NotFound("This kernel has no reservation.", hint="Ask for one first.")
        it = await client.workload(known.id)
        if not it.is_mine:
            raise NotAllowed(f"The reservation {it.id} of this kernel is not yours.", hint="Ask its owner.")
        return it

    def see(self, view: WorkloadView, *, is_own: bool = True) -> None:
        """Something became known of a reservation: of one that is followed, or of one that a kernel made itself.

        Kernels ask in the name of their server (`is_own`). Others who share it may name a kernel, but bind nothing.
        """
        kept = next((one for one in self.kernels.values() if one.lease is not None and one.lease.id == view.id), None)
        if kept is not None:
            kept.lease = view
            if view.notice is not None:
                kept.notice = view.notice
            kept.heard.set()
            self.changed()
        elif is_own and is_held_by(view) and view.outcome is None and view.holder is not None:
            kept = self.kernels.get(view.holder.name)
            if kept is not None and (kept.lease is None or is_over(kept.lease)) and not kept.leaving:
                self._follow(kept, view)

    def views(self) -> tuple[KernelView, ...]:
        """Every kernel of this server."""
        manager, paths = self._app.kernel_manager, self._sessions.paths()
        known = {id_: manager.get_kernel(id_) for id_ in manager.list_kernel_ids()}
        return tuple(view_of(self.kernels.get(id_), id_, it, paths.get(id_)) for id_, it in known.items())

    # -- what is done to a running kernel

    async def pin_live(self, kept: Kept) -> bool:
        """Pin it without a restart; where that cannot be, `restart_needed` says why. False for one that is busy too."""
        it = kept.held
        if it is None or kept.pid is None:
            return False
        if kept.restart_needed is None:
            kept.restart_needed = _why_restart(kept, it)
        if kept.restart_needed is not None or not self.is_idle(kept):
            return False
        said = await change_pin(self._app.kernel_manager.get_kernel(kept.kernel_id), it.devices)
        if said == "done" and kept.held is not None:
            kept.devices, kept.pinned_by = it.devices, it.id
            return True
        if said in ("loaded", "failed"):
            kept.restart_needed = _LOADED if said == "loaded" else "The kernel did not take the change."
        return False

    async def unpin(self, kept: Kept, why: str) -> None:
        """Let it see nothing of its reservation from now on, by a restart where it must be."""
        if not await self._unpin_live(kept):
            kept.leaving = True
            await self._restarts.restart(kept, why)

    async def _unpin_live(self, kept: Kept) -> bool:
        """Whether it sees nothing of its reservation now; it can where it was pinned live and CUDA is not loaded."""
        manager = self._app.kernel_manager
        if kept.pinned_by is None or kept.kernel_id not in manager:
            return True
        if kept.devices == kept.started_with or not self.is_idle(kept):
            return False
        kept.leaving = True
        if await change_pin(manager.get_kernel(kept.kernel_id), None) != "done":
            return False
        kept.devices, kept.pinned_by = kept.started_with, None
        return True

    async def let_go(self, kept: Kept) -> bool | None:
        """Whether it sees nothing of what is over, without a restart; None where it cannot say as long as it computes.

        One that gave its devices back itself has unpinned itself, and has lost nothing by it.
        """
        manager, was_pinned = self._app.kernel_manager, kept.pinned_by is not None
        if kept.kernel_id not in manager:
            return True
        is_python, began_so = kept.language.lower() == "python", was_pinned and kept.devices == kept.started_with
        if began_so or not is_python or cuda_is_loaded(kept.pid):
            return not was_pinned
        if not self.is_idle(kept):
            return None
        said = await change_pin(manager.get_kernel(kept.kernel_id), None)
        if said == "done":
            kept.devices, kept.pinned_by = kept.started_with, None
        return True if said == "done" else None if said == "busy" else not was_pinned

    def is_idle(self, kept: Kept) -> bool:
        """Whether it computes nothing, as far as its server knows."""
        manager = self._app.kernel_manager
        if kept.kernel_id not in manager:
            return False
        return getattr(manager.get_kernel(kept.kernel_id), "execution_state", None) in ("idle", "starting")

    def claim(self, kernel_id: str) -> bool:
        """Whether the page that asks is to make the restart that it was told of."""
        kept = self.kernels.get(kernel_id)
        return kept is not None and self._restarts.claim(kept)

    @property
    def on_restart(self) -> list[Callable[[str, str], None]]:
        """Called on the loop with a kernel that pages are to restart, and the reason."""
        return self._restarts.on_restart

    def changed(self) -> None:
        """Tell the listeners."""
        for tell in self.on_change:
            tell()

    # -- what the provisioner tells

    @contextlib.asynccontextmanager
    async def asking(self, kept: Kept) -> AsyncIterator[AsyncClient]:
        """As whom a kernel's reservation was asked for, else as this server; neither starts a broker."""
        if self.closing:  # what the server shares is closed
            async with super().asking(kept) as client:
                yield client
        else:
            yield kept.client or self._client_of(None, start=False)

    async def started(self, kept: Kept) -> None:
        """A kernel runs, for the first time or anew."""
        await super().started(kept)
        if not self._looks_around:
            self._looks_around = True
            self._spawn(self._look_around())
        if kept.lease is not None and kept.lease.end is None:
            self._follow(kept, kept.lease)
        kept.heard.set()
        self.changed()

    async def take_over(self, kept: Kept) -> None:
        """A notebook's kernel is changed: end the old one first, so that the new one starts with its devices.

        Jupyter starts the new one first, and would end the old one after it.
        """
        before = self._sessions.kernel_before()
        old = None if before == kept.kernel_id else self.kernels.get(before or "")
        if old is None or old.held is None or self.closing:
            return
        old.heir = kept
        try:
            await asyncio.wait_for(old.manager.shutdown_kernel(), OLD_SECONDS)
        except Exception as error:  # noqa: BLE001 - it then starts without, and gets them when the old one has ended
            self.log.warning("Kernel %s: the kernel before it does not end: %s", kept.kernel_id, error)

    async def stopped(self, kept: Kept) -> None:
        """A kernel is over: its reservation passes to the one that its notebook was changed to, else it goes back."""
        self._leave_alone(kept)
        heir = None if self.closing or kept.lease is None else self._heir(kept)
        if heir is None or not await self.in_time(self._pass_on(kept, heir), kept, "its reservation did not move"):
            await super().stopped(kept)
        self.kernels.pop(kept.kernel_id, None)
        self.changed()

    def crashed(self, kept: Kept, how: str) -> None:
        """A kernel died by itself."""
        super().crashed(kept, how)
        self.changed()

    def _heir(self, kept: Kept) -> Kept | None:
        """The kernel that a session of this one shows now; a session that ends still shows the old one."""
        if kept.heir is not None and self.kernels.get(kept.heir.kernel_id) is kept.heir:
            return kept.heir
        shown = [self.kernels.get(kernel_id) for kernel_id in self._sessions.shown_next(kept.sessions, kept.kernel_id)]
        return next((heir for heir in shown if heir is not None and heir.lease is None), None)

    async def _pass_on(self, kept: Kept, heir: Kept) -> bool:
        assert kept.lease is not None  # noqa: S101 - who has none passes nothing on
        heir.client = kept.client
        async with self.asking(heir) as client:
            view = await client.move(kept.lease.id, kernel_holder(heir.kernel_id, heir.pid))
        kept.lease = None
        heir.lease, heir.sessions = view, heir.sessions | kept.sessions
        if heir.pid is not None:  # it runs already, without
            self._follow(heir, view)
            if view.state is State.ACTIVE:
                self._spawn(self._pin_heir(heir))
        return True

    async def _pin_heir(self, heir: Kept) -> None:
        """It runs already, without: let it have what it inherits."""
        if not await self.pin_live(heir) and not heir.is_pinned:
            await self._restarts.restart(heir, "Its notebook's kernel was changed.")

    # -- small

    def _find(self, kernel_id: str) -> Kept:
        if self.closing:
            raise Conflict("The Jupyter server is shutting down.", hint="Start it again.")
        if kernel_id not in self._app.kernel_manager:
            raise NotFound("There is no such kernel.", hint="Reload the page.")
        kept = self.kernels.get(kernel_id)
        if kept is None:
            raise Conflict(
                "This kernel was started by another provisioner, so it cannot be pinned.",
                hint="Take metadata.kernel_provisioner out of its kernelspec, or reserve for the whole server.",
            )
        return kept

    def _follow(self, kept: Kept, view: WorkloadView) -> None:
        if kept.lease is None or kept.lease.id != view.id:
            kept.reason = kept.told = ""  # it was about the one before
        kept.lease = view
        kept.sessions |= self._sessions.of(kept.kernel_id)
        task = self._following.get(kept.kernel_id)
        if (task is None or task.done()) and not self.closing:
            following = Following(self, self, kept, attach_seconds=self._attach_seconds)
            self._following[kept.kernel_id] = asyncio.get_running_loop().create_task(following.run())
        self.changed()

    def _leave_alone(self, kept: Kept) -> None:
        task = self._following.pop(kept.kernel_id, None)
        if task is not None:
            task.cancel()

    def _spawn(self, work: Any) -> None:
        in_background(self._tasks, work, lambda error: self.log.warning("A kernel's GPUs: %s", error))

    async def _look_around(self) -> None:
        """Find what kernels have reserved themselves (%gpu reserve), should the stream not be listened to."""
        while not self.closing:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(GpuError, BrokerUnavailable):
                async for view in self._client_of(None, start=False).workloads(kind=Kind.RESERVATION, mine=True):
                    self.see(view)

    def _name(self, kept: Kept) -> str:
        return PurePosixPath(self._sessions.paths().get(kept.kernel_id, "")).name or kept.name


_LOADED = "CUDA is loaded in the kernel already, so it goes on seeing the devices it saw then."


def _why_restart(kept: Kept, it: WorkloadView) -> str | None:
    """Why a kernel cannot be pinned while it lives."""
    if kept.started_with and kept.started_with != it.devices:
        return "The kernel was started with other devices."
    if kept.language.lower() != "python":
        return "Only Python kernels can be changed while they run."
    return _LOADED if cuda_is_loaded(kept.pid) else None
