"""Whether this server is kept from other GPUs than its own, tried anew when its lease or the devices change.

Only under a hub, whose spawner started it, and only for the pages of who it runs for: it is the server's own word.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping

from ..model import IsolationView, Status
from ..opening import try_to_open
from ..own_reach import DEADLINE_SECONDS, Asking, Question, is_in_a_server, question

NOT_YET = IsolationView(enforced=False, detail="not probed yet")


class OwnIsolation:
    """What the last trial found; None where there is nothing to keep apart."""

    def __init__(self, changed: Callable[[], None], environ: Mapping[str, str] = os.environ) -> None:
        self.view: IsolationView | None = None
        self.deadline_seconds = DEADLINE_SECONDS
        self.open: Callable[[str], str] = try_to_open
        self._changed, self._environ = changed, environ
        self._asked: Question | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a hub has started this server."""
        return is_in_a_server(self._environ)

    def look(self, status: Status, kernels: Iterable[str]) -> None:
        """Try again, if by this document there is something else to try. On the loop, and never for long."""
        asked = question(status, self._environ, frozenset(kernels))
        if asked == self._asked:
            return
        self._asked = asked
        self._tell(None if asked is None else NOT_YET)
        if asked is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._ask())

    def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()

    async def _ask(self) -> None:
        """Until what was asked last is answered. A driver that hangs is told of, and waited for: one thread at most."""
        tried: Question | None = None
        while self._asked is not None and tried != self._asked:
            tried = self._asked
            asking = Asking(tried, self.open)
            done = asyncio.wrap_future(asking.done)
            await asyncio.wait([done], timeout=self.deadline_seconds)
            self._tell_of(tried, asking)
            await done
            self._tell_of(tried, asking)

    def _tell_of(self, tried: Question, asking: Asking) -> None:
        if tried == self._asked:
            self._tell(asking.view)

    def _tell(self, view: IsolationView | None) -> None:
        if view != self.view:
            self.view = view
            self._changed()
