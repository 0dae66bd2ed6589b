"""Restarts that the server wants: a page that shows the kernel makes them, else the server.

A restart by a page is clean. After one by the server alone a page waits for ever for what its cells would have said;
told in Jupyter's own way, it shows a dialog that the kernel died. So pages are asked first, one claims it, and where
none does in time, the server restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from .keeper import Kept
from .silent import is_ready

#: So long a page has to claim a restart, and then to make it.
CLAIM_SECONDS, CLAIMED_SECONDS = 3.0, 10.0
#: A kernel that still starts gets so long until it is restarted: its imports must not be interrupted.
READY_SECONDS = 30.0
#: What is under way when the server ends gets so long: Jupyter shuts down no kernel that is being restarted.
FINISH_SECONDS = 10.0


class Restarts:
    """The restarts of one server's kernels."""

    def __init__(self, serverapp: Any) -> None:
        self._manager, self._log = serverapp.kernel_manager, serverapp.log
        #: Called with a kernel and the reason, for the pages.
        self.on_restart: list[Callable[[str, str], None]] = []
        self._under_way: set[asyncio.Future[Any]] = set()

    async def finished(self) -> None:
        """Wait for what is under way."""
        if self._under_way:
            await asyncio.wait(set(self._under_way), timeout=FINISH_SECONDS)

    def claim(self, kept: Kept) -> bool:
        """Whether the page that asks is to make a restart that is due; one page is, and no other."""
        if not kept.restart_due or kept.restart_claimed:
            return False
        kept.restart_claimed = True
        kept.heard.set()
        return True

    async def restart(self, kept: Kept, reason: str) -> None:
        """Have a kernel started anew, by a page if one shows it. Returns when it was."""
        kept.restart_due, kept.restart_claimed = True, False
        try:
            if self._is_shown(kept):
                for tell in self.on_restart:
                    tell(kept.kernel_id, reason)
                await self.is_restarted(kept, CLAIM_SECONDS)
                if kept.restart_claimed:
                    await self.is_restarted(kept, CLAIMED_SECONDS)
            if kept.restart_due:
                await self.restart_here(kept)
        finally:
            kept.restart_due = False

    async def is_restarted(self, kept: Kept, seconds: float) -> bool:
        """Wait until a kernel was started anew, at most so long; less where a page claims the restart meanwhile."""
        deadline, claimed = time.monotonic() + seconds, kept.restart_claimed
        while kept.restart_due and kept.restart_claimed == claimed and (left := deadline - time.monotonic()) > 0:
            kept.heard.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kept.heard.wait(), left)
        return not kept.restart_due

    async def restart_here(self, kept: Kept) -> None:
        """Start it anew ourselves."""
        async with kept.restarting:
            if kept.kernel_id not in self._manager:
                return
            kernel = self._manager.get_kernel(kept.kernel_id)
            if getattr(kernel, "execution_state", None) == "starting":
                await is_ready(kernel, READY_SECONDS)
            if self._is_shown(kept):
                for tell in list(getattr(getattr(kernel, "_restarter", None), "callbacks", {}).get("restart", ())):
                    tell()
            # One that is called off half way would leave a kernel that Jupyter can neither use nor shut down.
            task = asyncio.ensure_future(self._manager.restart_kernel(kept.kernel_id))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            try:
                answer = await asyncio.shield(task)
                if isinstance(answer, asyncio.Future):  # its first word: nobody has to wait for that
                    answer.add_done_callback(lambda it: it.cancelled() or it.exception())
            except Exception as error:  # noqa: BLE001 - another restart was under way, which pins as well
                self._log.warning("Kernel %s: a restart did not go well: %s", kept.kernel_id, error)

    def _is_shown(self, kept: Kept) -> bool:
        return bool(getattr(self._manager, "_kernel_connections", {}).get(kept.kernel_id))
