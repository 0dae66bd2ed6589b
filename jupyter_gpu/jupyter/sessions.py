"""Which notebook shows which kernel: what jupyter_server keeps for its sessions, read without side effects.

To ask for a session by its own calls deletes those whose kernel has died. And provisioners are not told for which
session they start a kernel, so the call that starts one is watched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

_STARTING: ContextVar[str | None] = ContextVar("starting", default=None)


class Session(NamedTuple):
    """A notebook or console with its kernel."""

    id: str
    path: str
    kernel_id: str


class Sessions:
    """The sessions of one server. One with sessions of another making shows none: then names are missing, no more."""

    def __init__(self, serverapp: Any, on_change: Callable[[], None]) -> None:
        """`on_change` is called when a session is new, or shows another kernel or notebook.

        Only then is its kernel listed: what starts it is done before.
        """
        self._app, manager = serverapp, serverapp.session_manager
        start = getattr(manager, "start_kernel_for_session", None)
        if start is not None:
            manager.start_kernel_for_session = _telling(start)
        for name in ("save_session", "update_session"):
            act = getattr(manager, name, None)
            if act is not None:
                setattr(manager, name, _then(act, on_change))

    def all(self) -> list[Session]:
        """Every session, as its row stands now."""
        try:
            rows = self._app.session_manager.cursor.execute("SELECT session_id, path, kernel_id FROM session")
            return [Session(*row) for row in rows.fetchall()]
        except Exception:  # noqa: BLE001 - see above
            return []

    def paths(self) -> dict[str, str]:
        """Kernel -> the path that shows it."""
        return {it.kernel_id: it.path for it in self.all()}

    def of(self, kernel_id: str) -> set[str]:
        """The sessions that show a kernel."""
        return {it.id for it in self.all() if it.kernel_id == kernel_id}

    def shown_next(self, sessions: set[str], kernel_id: str) -> set[str]:
        """The other kernels that sessions of this one show now. A session that ends still shows its old one."""
        return {it.kernel_id for it in self.all() if it.id in sessions} - {kernel_id}

    def kernel_before(self) -> str | None:
        """Asked while a kernel starts: the one that its session shows as yet."""
        starting = _STARTING.get()
        return next((it.kernel_id for it in self.all() if it.id == starting), None)


def _telling(start: Any) -> Any:
    @functools.wraps(start)
    async def start_and_tell(session_id: str, *args: Any, **words: Any) -> Any:
        token = _STARTING.set(session_id)
        try:
            return await start(session_id, *args, **words)
        finally:
            _STARTING.reset(token)

    return start_and_tell


def _then(act: Any, on_change: Callable[[], None]) -> Any:
    @functools.wraps(act)
    async def act_and_say(*args: Any, **words: Any) -> Any:
        done = await act(*args, **words)
        on_change()
        return done

    return act_and_say
