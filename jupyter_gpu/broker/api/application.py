"""The application: the routes, what their handlers share, and the prefix under which a proxy brings them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tornado.httputil import HTTPServerRequest
from tornado.web import Application, RequestHandler

from ...model import Caller, World
from ..auth import Gate
from .account import Looks
from .base import PREFIX, Base, Unknown, quoted, stopped
from .bounds import MOST_HELD_BYTES
from .room import Room, size_of
from .scripts import Scripts, copies_of

if TYPE_CHECKING:
    from ..loop import Loop
    from .stream import Fanout

log = logging.getLogger(__name__)

Routes = Sequence[tuple[str, type[RequestHandler]]]

#: So long a broker that stops goes on with what it was asked before; nobody is kept from stopping it.
GOODBYE_SECONDS = 2.0
_SLASHES = re.compile("/{2,}")


class Api(Application):
    """The application: the routes, and what their handlers share."""

    def __init__(
        self,
        routes: Routes,
        loop: Loop,
        gate: Gate,
        stream: Fanout,
        *,
        pages: Routes = (),
        prefix: str = "",
        **settings: Any,
    ) -> None:
        super().__init__(
            [*((f"{PREFIX}{path}", handler) for path, handler in routes), *pages],
            default_handler_class=Unknown,
            log_function=_log_request,
            **settings,
        )
        self._prefix = prefix
        self.loop, self.gate, self.stream = loop, gate, stream
        self.looks = Looks(loop.sights.for_errands)
        state = Path(loop.broker_view().state_dir)
        self.scripts = Scripts(state, lambda: _copies_needed(loop.world))
        self.room = Room(state)
        # Each time is written down as a job; of the calendar only how it stands then.
        loop.clockwork.take = lambda submit: self.room.take(submit.owner, size_of(submit))
        self.is_closing = False
        #: Caller and kind of request -> which of theirs is being made.
        self._turns: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()
        #: Whose report is being made: of all callers one at a time.
        self.reporting = asyncio.Lock()
        self._under_way: weakref.WeakSet[Base] = weakref.WeakSet()
        self._is_through = asyncio.Event()

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """Whoever answers a path, with what stands before it behind a hub's proxy as well as without."""
        _, request.path = self._split(request.path)
        return super().find_handler(request, **kwargs)

    def link(self, request: HTTPServerRequest, path: str | None = None) -> str:
        """A path of ours, or what was asked for, as it is written where the request came from."""
        # Not as a URL, in which two slashes begin the name of a host.
        asked, mark, query = str(request.uri).partition("?")
        before, own = self._split(asked)
        return f"{before}{path}" if path is not None else f"{before}{own}{mark}{query}"

    def _split(self, path: str) -> tuple[str, str]:
        """What stands before our own path, and that; proxies join paths with two slashes, or encode what was not."""
        path = _SLASHES.sub("/", path)
        count = self._prefix.count("/")
        if count:
            parts = path.split("/", count + 1)
            if unquote("/".join(parts[: count + 1])) == unquote(self._prefix):
                return self._prefix, "/" + "".join(parts[count + 1 :])
        return "", path

    def enter(self, handler: Base) -> None:
        """Somebody is being served from now on, unless the broker stops."""
        if self.is_closing:
            raise stopped()
        self._under_way.add(handler)

    def leave(self, handler: Base) -> None:
        """They have their answer."""
        self._under_way.discard(handler)
        if not self._under_way:
            self._is_through.set()

    def may_hold(self, name: str, more_bytes: int) -> bool:
        """Whether so much more of a body or an answer may be kept for a caller, beside what is kept of their others."""
        held = sum(it.held_bytes for it in tuple(self._under_way) if it.held_bytes and it.caller.name == name)
        return held + more_bytes <= MOST_HELD_BYTES

    def turn_of(self, caller: Caller, kind: str = "") -> asyncio.Lock:
        """One turn after the other for one caller's requests of a kind: however many wait, others' come in between."""
        turn = self._turns.get((caller.name, kind))
        if turn is None:
            turn = self._turns[caller.name, kind] = asyncio.Lock()
        return turn

    async def close(self) -> None:
        """Send away who waits and refuse who comes; what is about to be decided still gets its answer."""
        self.is_closing = True
        self._is_through.clear()
        for handler in tuple(self._under_way):
            handler.on_connection_close()
        with contextlib.suppress(TimeoutError):
            if self._under_way:
                await asyncio.wait_for(self._is_through.wait(), GOODBYE_SECONDS)


def _copies_needed(world: World) -> set[str]:
    """The copies of all jobs that are not over, or that come again; of their scripts and of their records.

    A world is replaced, never written to: any thread may ask.
    """
    specs = [it.spec for it in world.workloads.values() if it.end is None]
    specs += [it.submit.spec for it in world.recurring.values()]
    return {copy for spec in specs for copy in copies_of(spec)}


def _log_request(handler: RequestHandler) -> None:
    """Refusals are told by `log_exception`; what went well is for those who look closely."""
    log.debug("%s %s %s", handler.get_status(), handler.request.method, quoted(handler.request.path))
