"""What the tests of the API share: a real loop behind real doors, callers by token, every answer held to its schema."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import msgspec
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket

from jupyter_gpu.broker.api.application import Api
from jupyter_gpu.broker.api.openapi import described, document
from jupyter_gpu.broker.api.routes import ROUTES, make_application
from jupyter_gpu.broker.auth import Gate
from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.model import Policy

from .ground import FakeEngine, a_loop

ME = getpass.getuser()
USER = ["read", "reserve", "submit"]
#: Caller -> scopes; the token of each is "token-of-NAME".
CALLERS = {
    "ada": USER,
    "grace": USER,
    "oper": ["read", "reserve", "submit", "logs", "operate", "admin"],
    "reader": ["read"],
    "logreader": ["read", "logs"],
    "nothing": [],
}
DESCRIPTION = json.loads(document(ROUTES))
_PATHS = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path)), route.path) for route in described(ROUTES)]


def tokens() -> dict[str, dict[str, Any]]:
    """What the gate is configured with."""
    return {
        hashlib.sha256(f"token-of-{name}".encode()).hexdigest(): {"name": name, "account": ME, "scopes": scopes}
        for name, scopes in CALLERS.items()
    }


@dataclass
class Served:
    """A broker's doors, open."""

    loop: Loop
    application: Api
    engine: FakeEngine
    url: str
    uds: Path
    state: Path
    _open: list[httpx.AsyncClient] = field(default_factory=list)

    def as_(self, name: str) -> httpx.AsyncClient:
        """Ask over TCP as the bearer of a token."""
        return self._client(headers={"Authorization": f"Bearer token-of-{name}"})

    def bare(self, **words: Any) -> httpx.AsyncClient:
        """Ask over TCP without a token."""
        return self._client(**words)

    def here(self, **words: Any) -> httpx.AsyncClient:
        """Ask over the Unix socket."""
        return self._client(transport=httpx.AsyncHTTPTransport(uds=str(self.uds)), **words)

    def _client(self, **words: Any) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            base_url=self.url, trust_env=False, event_hooks={"response": [hold_to_schema]}, **words
        )
        self._open.append(client)
        return client


async def hold_to_schema(answer: httpx.Response) -> None:
    """Every answer of every test is what docs/openapi.json says it is."""
    kind = answer.headers["Content-Type"]
    if kind == "application/x-ndjson":
        return
    await answer.aread()
    path = answer.request.url.path.removeprefix("/api/v1")
    known = next((path_ for pattern, path_ in _PATHS if pattern.fullmatch(path)), None)
    operation = DESCRIPTION["paths"].get(known, {}).get(answer.request.method.lower())
    if not answer.is_success:
        hold_to({"$ref": "#/components/schemas/Error"}, answer.json())
        return
    assert operation is not None, f"{answer.request.method} {path} is not described"
    content = operation["responses"][str(answer.status_code)]["content"]
    assert kind in content
    if "schema" in content[kind]:
        hold_to(content[kind]["schema"], answer.json())


def hold_to(schema: dict[str, Any], document: object) -> None:
    """Check one document against a schema of the description."""
    whole = schema | {"components": DESCRIPTION["components"]}
    jsonschema.Draft202012Validator(whole).validate(document)


@contextlib.asynccontextmanager
async def an_api(
    folder: Path,
    *,
    count: int = 1,
    policy: Policy | None = None,
    system: bool = False,
    uid: int | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[Served]:
    """Serve a real loop over TCP and a Unix socket in `folder`, whose path must be short."""
    async with a_loop(folder / "state", count=count, policy=policy, clock=clock) as (loop, engine):
        loop._identity = msgspec.structs.replace(loop._identity, state_dir=str(folder / "state"))
        engine.log_path = lambda workload, attempt: folder / f"{workload}.{attempt}.log"  # type: ignore[method-assign]
        application = make_application(loop, Gate(system=system, tokens=tokens(), uid=uid))
        server = HTTPServer(application, max_body_size=32 << 20)
        uds = folder / "s"
        server.add_socket(bind_unix_socket(str(uds), mode=0o666))
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        port = sockets[0].getsockname()[1]
        served = Served(loop, application, engine, f"http://127.0.0.1:{port}/api/v1", uds, folder / "state")
        try:
            yield served
        finally:
            for client in served._open:
                await client.aclose()
            server.stop()
            await server.close_all_connections()


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run one asynchronous story."""
    asyncio.run(story())  # type: ignore[arg-type]


def job(*argv: str, **more: Any) -> dict[str, Any]:
    """The body of a job that could run here."""
    return {"kind": "job", "spec": {"argv": list(argv) or ["true"], "folder": "/tmp"} | more.pop("spec", {})} | more
