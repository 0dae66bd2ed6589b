"""In whose name the server extension asks the broker.

Standalone that is the account of the Jupyter server: its socket shows it, and the username that jupyter_server makes up
for each browser is nobody. Under a hub whose broker is reached over the network it is the person at the browser. The
owner of the server asks by the server's own token, as all that runs in it does; who visits somebody else's server asks
by the token that they showed it, which allows to look and no more: whoever runs the server could use it for anything. A
broker on a socket judges the account in any case, as it does for all that runs in the server's kernels and terminals.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import pwd
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import httpx

from ..client import AsyncClient
from ..client.calls import Call
from ..client.find import read_url
from ..errors import GpuError, NotAllowed

T = TypeVar("T")

#: Where somebody can do what they cannot in another's server.
OWN_PLACES = "Open your own server, or the page of the GPU service in the hub's menu Services."

#: Connections that nobody used for so long are let go; a client opens them again when it has to.
CLOSE_AFTER_SECONDS = 60.0
#: A client that nobody used for so long is forgotten.
FORGET_AFTER_SECONDS = 3600.0


class Identity(NamedTuple):
    """Who asks: what tells them apart, what people read, and the token that the broker judges."""

    key: str
    name: str
    #: None where the socket shows who asks.
    token: str | None = None
    #: In somebody else's server.
    is_visitor: bool = False


def own_identity(environ: Mapping[str, str] = os.environ) -> Identity:
    """The Jupyter server itself, for what it does without being asked by a page."""
    token = environ.get("JUPYTERHUB_API_TOKEN") if _asks_by_token(environ) else None
    if token is None or "JUPYTER_GPU_TOKEN" in environ:
        return Identity("own", _account())
    return Identity(_digest(token), environ.get("JUPYTERHUB_USER") or _account(), token)


def identity_of(handler: Any, environ: Mapping[str, str] = os.environ) -> Identity:
    """Who is behind a request that was admitted already."""
    hub_auth = getattr(handler.identity_provider, "hub_auth", None)
    if hub_auth is None or not _asks_by_token(environ):
        return own_identity(environ)
    token = hub_auth.get_token(handler)
    if not token:
        raise NotAllowed("The hub gave no token for you.", hint="Log in at the hub again, then reload the page.")
    if _is_owner(handler.current_user, environ):
        return own_identity(environ)
    return Identity(_digest(token), handler.current_user.username, token, is_visitor=True)


def _is_owner(user: Any, environ: Mapping[str, str]) -> bool:
    """Whether the hub's word is that it is the user whose server this is, and no service of that name."""
    kind = getattr(user, "hub_user", {}).get("kind", "user")
    is_known = "JUPYTERHUB_API_TOKEN" in environ and kind == "user"
    return is_known and user.username == environ.get("JUPYTERHUB_USER")


def _asks_by_token(environ: Mapping[str, str]) -> bool:
    """Whether the broker is reached over the network, where only tokens count."""
    told = environ.get("JUPYTER_GPU_URL")
    try:
        return told is not None and read_url(told).uds is None
    except GpuError:  # it is said when it is used
        return False


def _digest(token: str) -> str:
    """To tell tokens apart without keeping them as keys."""
    return hashlib.sha256(token.encode()).hexdigest()


@functools.cache  # it is asked for each line of a stream, and a directory service may take its time
def _account() -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return str(os.geteuid())


class Clients:
    """One client for each identity; `start` says whether they may start a broker."""

    def __init__(self, *, start: bool) -> None:
        self._start = start
        self._clients: dict[tuple[str, bool], SharedClient] = {}

    def of(self, identity: Identity | None = None, *, start: bool = True) -> AsyncClient:
        """The client that asks in this name; of the server itself where none is given."""
        who = own_identity() if identity is None else identity
        start = start and self._start
        client = self._clients.get((who.key, start))
        if client is None:
            kind = VisitorsClient if who.is_visitor else SharedClient
            client = self._clients[who.key, start] = kind(token=who.token, start=start)
        client.used_at = time.monotonic()
        return client

    async def tidy(self) -> None:
        """Let go of connections that nobody uses, and forget who has not been here for long."""
        now = time.monotonic()
        for key, client in list(self._clients.items()):
            if client.uses or now < client.used_at + CLOSE_AFTER_SECONDS:
                continue
            if now > client.used_at + FORGET_AFTER_SECONDS:
                del self._clients[key]
            await client.close()

    async def close(self) -> None:
        """Let go of all."""
        clients = list(self._clients.values())
        self._clients.clear()
        await asyncio.gather(*(client.close() for client in clients))


class SharedClient(AsyncClient):
    """A client that knows whether somebody is waiting for it, so that it is closed on nobody."""

    uses = 0
    used_at = 0.0

    @contextlib.contextmanager
    def _use(self) -> Iterator[None]:
        self.uses += 1
        try:
            yield
        finally:
            self.uses -= 1
            self.used_at = time.monotonic()

    async def _ask(self, call: Call[Any]) -> httpx.Response:
        with self._use():
            return await super()._ask(call)

    async def _listen(
        self, call: Call[None], *, silence_seconds: float | None
    ) -> AsyncGenerator[tuple[Mapping[str, str], bytes], None]:
        with self._use():
            async with contextlib.aclosing(super()._listen(call, silence_seconds=silence_seconds)) as parts:
                async for it in parts:
                    yield it


class VisitorsClient(SharedClient):
    """Of who visits somebody else's server: what they lack there is not for an admin of the hub to give."""

    async def _ask(self, call: Call[Any]) -> httpx.Response:
        answer = await super()._ask(call)
        if answer.status_code == HTTPStatus.FORBIDDEN:
            raise NotAllowed(
                "In somebody else's server this is not shown to you: there you see what researchers may, and no more.",
                hint=OWN_PLACES,
            )
        return answer
