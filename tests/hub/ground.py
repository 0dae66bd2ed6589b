"""A service of a stand-in hub: a real loop and real doors, callers by the hub's tokens."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket

from jupyter_gpu.broker.api.application import Api
from jupyter_gpu.broker.api.routes import make_application
from jupyter_gpu.broker.hub.bundle import SCRIPT, STYLE, Bundle, built
from jupyter_gpu.broker.hub.service import Service
from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.broker.visits import Book
from tests.broker.ground import FakeEngine, a_loop

from .fake_hub import FakeHub, a_hub

SPAWNER_TOKEN = "token-of-the-spawner"
DIGEST = hashlib.sha256(SPAWNER_TOKEN.encode()).hexdigest()
#: As if the page had been built, whether it was or not.
BUNDLE = {SCRIPT: built(b"'the script';\n" * 100), STYLE: built(b"main { margin: 0 }\n")}


@dataclass
class Serving:
    """A service behind its doors."""

    hub: FakeHub
    loop: Loop
    engine: FakeEngine
    service: Service
    #: Without a prefix, as it listens.
    root: str
    uds: Path
    app: Api
    _open: list[httpx.AsyncClient] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return self.service.place.prefix

    def as_(self, token: str, **headers: str) -> httpx.AsyncClient:
        """Ask with a token of the hub."""
        return self.client(headers={"Authorization": f"token {token}", **headers})

    def spawner(self, user: str, *groups: str) -> httpx.AsyncClient:
        """Ask as the hub's spawner, for somebody."""
        more = {"X-Jupyter-Gpu-For": quote(user, safe="")}
        if groups:
            more["X-Jupyter-Gpu-Groups"] = ",".join(quote(it, safe="") for it in groups)
        return self.as_(SPAWNER_TOKEN, **more)

    def client(self, base: str | None = None, **words: Any) -> httpx.AsyncClient:
        """Ask below the prefix, as everybody does who comes by the proxy."""
        url = f"{self.root}{self.prefix}/api/v1" if base is None else base
        client = httpx.AsyncClient(base_url=url, trust_env=False, **words)
        self._open.append(client)
        return client

    def here(self) -> httpx.AsyncClient:
        """Ask over the Unix socket."""
        return self.client("http://broker/api/v1", transport=httpx.AsyncHTTPTransport(uds=str(self.uds)))


@contextlib.asynccontextmanager
async def a_service(
    folder: Path,
    *,
    base: str = "",
    cache_seconds: float = 0.0,
    accounts: Any = "",
    tokens: Any = None,
    system: bool = False,
    socket_scopes: tuple[str, ...] = (),
    count: int = 1,
    bundle: Bundle | None = None,
    **loop_words: Any,
) -> AsyncIterator[Serving]:
    """Serve a real loop below a prefix; the hub answers, until the test has it otherwise."""
    async with a_hub() as hub, a_loop(folder / "state", count=count, **loop_words) as (loop, engine):
        loop._identity = msgspec.structs.replace(loop._identity, state_dir=str(folder / "state"))
        engine.log_path = lambda workload, attempt: folder / f"{workload}.{attempt}.log"  # type: ignore[method-assign]
        app = SimpleNamespace(
            hub_cache_seconds=cache_seconds,
            account_of_user=accounts,
            system=system,
            tokens=tokens,
            hub_socket_scopes=socket_scopes,
        )
        sockets = bind_sockets(0, "127.0.0.1")
        port = sockets[0].getsockname()[1]
        environ = hub.environ(port, base=base, JUPYTER_GPU_SPAWNER_DIGEST=DIGEST)
        service = Service(app, Book(), environ, bundle=BUNDLE if bundle is None else bundle)  # type: ignore[arg-type]
        service.hub.on_away = loop.count_renewals_anew
        service.join(loop)
        application = make_application(loop, service.gate, **service.words)
        server = HTTPServer(application)
        server.add_sockets(sockets)
        uds = folder / "s"
        server.add_socket(bind_unix_socket(str(uds), mode=0o666))
        serving = Serving(hub, loop, engine, service, f"http://127.0.0.1:{port}", uds, application)
        try:
            yield serving
        finally:
            for client in serving._open:
                await client.aclose()
            server.stop()
            await server.close_all_connections()
            await service.close()


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run one asynchronous story."""
    asyncio.run(story())  # type: ignore[arg-type]
