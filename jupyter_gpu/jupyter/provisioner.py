"""Starts kernels of any language such that each sees exactly the GPUs that it may use, which is none to begin with.

What a kernel sees, in this order: what the attempt sees that it runs in, its own reservation, what its server was
started with under a reservation, nothing. Nothing is said as such. A kernel whose reservation waits is started without;
only programs that run one notebook may wait for a GPU before they start its kernel, where their environment says so:

    JUPYTER_GPU_KERNEL_DEVICES=1 JUPYTER_GPU_KERNEL_WAIT=10m JUPYTER_GPU_KERNEL_FOR=4h
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Bool

from .. import pins
from ..exits import describe, memory_kills, own_cgroups
from . import ports
from .keeper import Keeper, Kept, keeper_of

if TYPE_CHECKING:
    from ..model import WorkloadView

DEVICES = "JUPYTER_GPU_KERNEL_DEVICES"
PROVISIONER = "JUPYTER_DEFAULT_PROVISIONER_NAME"
_LOAD = "--ext=jupyter_gpu"


class GpuProvisioner(LocalProvisioner):
    """Jupyter's own local provisioner, and the pin."""

    hide_gpus = Bool(
        default_value=True,
        help="Let kernels without a reservation see no GPU; off where everybody may take what is free.",
    ).tag(config=True)
    load_magics = Bool(
        default_value=True, help="Give Python kernels %gpu at their start, where their environment has this package."
    ).tag(config=True)

    _listens = False
    _is_over = False
    _starts = 0
    _ports: tuple[int, ...] = ()
    #: What the kernel is started with; None where that is not ours to say.
    _pin: tuple[str, ...] | None = None
    _pinned_by: int | None = None
    #: What had been killed here for want of host memory when the kernel was started.
    _memory_kills = 0

    @property
    def _keeper(self) -> Keeper:
        manager = getattr(self.parent, "parent", None)  # of many kernels; it is falsy as long as it has none
        return keeper_of(self.parent if manager is None else manager)

    @property
    def _kept(self) -> Kept:
        return self._keeper.kept(self.kernel_id)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Say what the kernel will see. Waits in line only where the environment of a single notebook asks for it."""
        kept, environ = self._kept, kwargs.get("env") or os.environ
        kept.name = PurePath(environ.get("JPY_SESSION_NAME", "")).name or self.kernel_spec.display_name
        kept.language = self.kernel_spec.language or ""
        self._is_over = False
        async with self._or_given_back():
            if self._keeper.closing:
                raise RuntimeError("The Jupyter server is shutting down, so no kernel is started any more.")
            pin = await self._what_it_sees(kept)
            if self._starts and ports.leave_taken(self):
                self.log.warning("Kernel %s: somebody else listens at a port of it; it gets others.", self.kernel_id)
            kwargs = await super().pre_launch(**kwargs)
        # What runs in a kernel inherits its pin, and in an environment without us this would hide every kernel.
        kwargs["env"].pop(PROVISIONER, None)
        if self.load_magics and _is_ipykernel(self.kernel_spec, kwargs["cmd"]) and _has_package(kwargs["cmd"]):
            kwargs["cmd"] = [*kwargs["cmd"], _LOAD]
        # After what the kernelspec says: it must not show what was not granted.
        kwargs["env"] |= {**pin, pins.KERNEL: self.kernel_id}
        return kwargs

    async def _what_it_sees(self, kept: Kept) -> dict[str, str]:
        self._pin = self._pinned_by = None
        if pins.ATTEMPT in os.environ:
            return pins.inherited(os.environ)
        it = await self._reservation(kept)
        if it is not None:
            self._pin, self._pinned_by = it.devices, it.id
            return pins.variables(it.devices)
        if pins.RESERVATION in os.environ:
            return pins.inherited(os.environ)
        if not self.hide_gpus:
            return {}
        self._pin = ()
        return pins.variables(())

    async def _reservation(self, kept: Kept) -> WorkloadView | None:
        if not self._starts:
            await self._keeper.take_over(kept)
        # A kernel that never ran has reserved nothing, so nobody has to be asked and the start costs nothing.
        if self._starts or kept.lease is not None:
            return await self._keeper.held_by(kept)
        if DEVICES not in os.environ or not self._keeper.may_wait:
            return None
        from .waiting import wait_for_devices  # noqa: PLC0415 - only where it is asked for

        return await wait_for_devices(self._keeper, kept)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start it. Of two restarts at once only the last process may live on: nobody would end the other."""
        while self.process is not None and await self.poll() is None:
            await self.kill()
            await self.wait()
        async with self._or_given_back():
            return await super().launch_kernel(cmd, **kwargs)

    async def post_launch(self, **kwargs: Any) -> None:
        """Tell who runs now."""
        await super().post_launch(**kwargs)
        before, self._ports = self._ports, ports.of(self.parent)
        if self._starts and before != self._ports:
            ports.watch_anew(self.parent, self.kernel_id)
        self._starts += 1
        kept = self._kept
        kept.pid, kept.pinned_by, kept.manager = self.pid, self._pinned_by, self.parent
        kept.restart_needed, kept.restart_due = None, False
        kept.devices = kept.started_with = _inherited() if self._pin is None else self._pin
        kept.reason = "" if kept.crash is None else f"restarted after a crash ({kept.crash})"
        kept.crashed_at, kept.crash = None if kept.crash is None else kept.crashed_at, None
        self._memory_kills = memory_kills(_cgroups())
        listen = getattr(self.parent, "add_restart_callback", None)
        if not self._listens and listen is not None:
            self._listens = True
            listen(lambda: self._keeper.crashed(self._kept, self._how_it_ended()), "restart")
            listen(self._gave_up, "dead")
        await self._keeper.started(kept)

    async def cleanup(self, restart: bool = False) -> None:  # noqa: FBT001, FBT002 - as the base has it
        """Give back what it held, unless it starts anew; called twice, or never."""
        await super().cleanup(restart=restart)
        if not restart:
            await self._over()

    async def _over(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        await self._keeper.stopped(self._kept)

    def _how_it_ended(self) -> str:
        """In words; with what proves that memory ran out, as a signal 9 alone may be anybody's."""
        status = None if self.process is None else self.process.returncode
        if status is None:
            return "nobody knows how it ended"
        how = describe(None, -status) if status < 0 else describe(status, None)
        kills = memory_kills(_cgroups()) - self._memory_kills
        if status == 0 or kills <= 0:
            return how
        processes = "1 process" if kills == 1 else f"{kills} processes"
        return f"{how}; while it ran the system killed {processes} of its server for want of host memory"

    def _gave_up(self) -> None:
        """It crashed again and again: nobody cleans up after it."""
        self.log.warning("Kernel %s dies again and again and is given up: %s.", self.kernel_id, self._how_it_ended())
        with contextlib.suppress(RuntimeError):  # no loop runs: the broker sees by itself that it is gone
            self._last_word = asyncio.get_running_loop().create_task(self._over())

    @contextlib.asynccontextmanager
    async def _or_given_back(self) -> AsyncIterator[None]:
        """Nobody cleans up after a start that failed. One that was to start anew may be tried again, and keeps it."""
        try:
            yield
        except BaseException:
            if not self._starts:
                await self._over()
                self._forget_pending()
            raise

    def _forget_pending(self) -> None:
        # jupyter_client keeps waiting for what never started, and a Jupyter server then never shuts down.
        pending = getattr(getattr(self.parent, "parent", None), "_pending_kernels", None)
        if isinstance(pending, dict):
            pending.pop(self.kernel_id, None)


def _inherited() -> tuple[str, ...]:
    """The devices of the attempt or the server that we are part of; what else we see was leased to nobody."""
    if pins.ATTEMPT not in os.environ and pins.RESERVATION not in os.environ:
        return ()
    return tuple(word for word in pins.read(os.environ.get(pins.VISIBLE)) or () if isinstance(word, str))


def _cgroups() -> list[str]:
    """Where a kernel lives, as its server does: what starts it makes it none of its own."""
    return [folder for _, folder in own_cgroups()]


def _is_ipykernel(spec: Any, cmd: Sequence[str]) -> bool:
    """Whether it is IPython's kernel, started in the plain way: a wrapper might not pass an option on."""
    is_python = (spec.language or "").lower() == "python"
    return is_python and any(
        one == "-m" and other in ("ipykernel", "ipykernel_launcher") for one, other in pairwise(cmd)
    )


def _has_package(cmd: Sequence[str]) -> bool:
    """Whether an interpreter has this package; by its files, since to ask it would take longer than a kernel's start.

    The link of a virtual environment is not followed: there it stands for the environment.
    """
    if cmd[0] == sys.executable:
        return True
    prefix = Path(cmd[0]).parent.parent
    return PurePath(cmd[0]).name.startswith("python") and any(
        next(prefix.glob(f"lib/python3*/{place}"), None)
        for place in ("site-packages/jupyter_gpu-*.dist-info", "dist-packages/jupyter_gpu-*.dist-info")
    )
