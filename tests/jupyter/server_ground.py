"""What the tests of the server extension share: a real Jupyter server with it, in this process, and who asks it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.auth import Authorizer
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import JupyterServerAuthWarning
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect
from traitlets.config import Config

from jupyter_gpu.jupyter import upstream
from jupyter_gpu.jupyter.documents import BrokerFrame, ChangeFrame, KernelsFrame, StatusFrame
from jupyter_gpu.jupyter.server import PROVISIONER_WORD, GpuExtension
from tests.broker.api_ground import Served, an_api

TOKEN = "token-of-the-server"
WAIT_SECONDS = 20


@dataclass
class Server:
    """A Jupyter server that runs, and how a page or a program asks it."""

    app: ServerApp
    port: int
    root: Path
    _open: list[Any] = field(default_factory=list)

    @property
    def extension(self) -> GpuExtension:
        """Ours."""
        return self.app.web_app.settings["jupyter_gpu"]

    def url(self, path: str = "", scheme: str = "http") -> str:
        """An address below the base URL."""
        return f"{scheme}://127.0.0.1:{self.port}{self.app.base_url}{path}"

    def program(self, **words: Any) -> httpx.AsyncClient:
        """Who shows the token with every request."""
        headers = {"Authorization": f"token {TOKEN}"} | words.pop("headers", {})
        return self._client(headers=headers, **words)

    def nobody(self, **words: Any) -> httpx.AsyncClient:
        """Who shows nothing."""
        return self._client(**words)

    async def page(self) -> httpx.AsyncClient:
        """A browser's page: logged in by the token once, and from then on by its cookie alone."""
        client = self._client()
        await client.get(f"?token={TOKEN}")
        assert any(name.startswith("username-") for name in client.cookies)
        return client

    def _client(self, **words: Any) -> httpx.AsyncClient:
        client = httpx.AsyncClient(base_url=self.url(), trust_env=False, timeout=WAIT_SECONDS, **words)
        self._open.append(client)
        return client

    async def listen(self, *, headers: dict[str, str] | None = None, query: str = "") -> Socket:
        """Open the stream; as a program unless other headers are given."""
        sent = {"Authorization": f"token {TOKEN}"} if headers is None else headers
        request = HTTPRequest(self.url(f"jupyter-gpu/stream{query}", "ws"), headers=sent)
        socket = Socket(await websocket_connect(request))
        self._open.append(socket)
        return socket

    async def close_clients(self) -> None:
        """Let go of all who asked."""
        for it in self._open:
            if isinstance(it, httpx.AsyncClient):
                await it.aclose()
            else:
                it.connection.close()


@dataclass
class Socket:
    """One page's stream."""

    connection: WebSocketClientConnection

    async def frame(self) -> Any:
        """The next frame."""
        data = await asyncio.wait_for(self.connection.read_message(), WAIT_SECONDS)
        assert data is not None, "the stream has ended"
        return upstream.read_frame(data)

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The next frame that is wanted; what comes before it is passed by."""
        while True:
            frame = await self.frame()
            if wanted(frame):
                return frame

    async def status(self) -> Any:
        """The next whole status."""
        return (await self.until(lambda frame: isinstance(frame, StatusFrame))).status

    async def change(self) -> Any:
        """The next change that is no sample."""
        wanted = await self.until(lambda it: isinstance(it, ChangeFrame) and it.change.revision is not None)
        return wanted.change

    async def kernels(self) -> Any:
        """The next kernels."""
        return (await self.until(lambda frame: isinstance(frame, KernelsFrame))).kernels

    async def broker(self, state: str) -> Any:
        """The next word of the broker's coming or going."""
        return await self.until(lambda frame: isinstance(frame, BrokerFrame) and frame.state == state)


class DenyWrites(Authorizer):
    """Everybody may look and nobody may touch."""

    def is_authorized(self, _handler: Any, _user: Any, action: str, resource: str) -> bool:
        """Reading only, and only what is ours."""
        return action == "read" or resource != "jupyter-gpu"


class DenyAll(Authorizer):
    """Nothing of ours is anybody's."""

    def is_authorized(self, _handler: Any, _user: Any, _action: str, resource: str) -> bool:
        """Not ours."""
        return resource != "jupyter-gpu"


class DenyFiles(Authorizer):
    """The GPUs are everybody's to see, and the files are not."""

    def is_authorized(self, _handler: Any, _user: Any, _action: str, resource: str) -> bool:
        """All but the files."""
        return resource != "contents"


@contextlib.asynccontextmanager
async def a_server(
    root: Path,
    *,
    base_url: str = "/",
    extension: dict[str, Any] | None = None,
    config: Config | None = None,
    **server: Any,
) -> AsyncIterator[Server]:
    """Run a Jupyter server with our extension on a free port; nobody may come in without a login."""
    before = os.environ.get(PROVISIONER_WORD)
    ServerApp.clear_instance()
    KernelProvisionerFactory.clear_instance()
    config = config or Config()
    config.IdentityProvider.token = TOKEN
    config.NotebookNotary.db_file = ":memory:"
    config.GpuExtension.update(extension or {})
    words = {
        "port": 0, "port_retries": 0, "open_browser": False, "allow_root": True, "log_level": "INFO",
        "allow_unauthenticated_access": False, "root_dir": str(root), "base_url": base_url,
        "jpserver_extensions": {"jupyter_gpu": True, "jupyter_server_terminals": True},
    }  # fmt: skip
    app = ServerApp.instance(config=config, **(words | server))
    app.init_signal = lambda: None
    try:
        with warnings.catch_warnings():  # the terminals' own socket says nothing of who may open it
            warnings.simplefilter("ignore", JupyterServerAuthWarning)
            app.initialize(argv=[], find_extensions=False)
        await asyncio.sleep(0)  # it binds its port in the first turn of the loop
        await app._post_start()
        running = Server(app, app.port, root)
        try:
            yield running
        finally:
            await running.close_clients()
            app.http_server.stop()
            await app._cleanup()
            await app.http_server.close_all_connections()
    finally:
        app.kernel_manager.context.destroy()
        app.log.handlers.clear()
        ServerApp.clear_instance()
        KernelProvisionerFactory.clear_instance()
        assert os.environ.get(PROVISIONER_WORD) == before, "the environment is left as it was found"


@contextlib.asynccontextmanager
async def a_broker(folder: Path, **words: Any) -> AsyncIterator[Served]:
    """A broker's doors at the place where faces look."""
    async with an_api(folder, **words) as served:
        path = Path(os.environ["JUPYTER_GPU_RUNTIME_DIR"]) / "broker.sock"
        served.uds.rename(path)
        try:
            yield served
        finally:
            served.loop.publisher.close()
            await asyncio.sleep(0.05)  # the streams end in good order, as when a broker stops
            path.unlink()


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run one asynchronous story."""
    asyncio.run(story())  # type: ignore[arg-type]


def body(document: object) -> bytes:
    """A document as it is sent."""
    return msgspec.json.encode(document)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """What an answer says went wrong; it says all three things."""
    error = json.loads(answer.content)
    assert set(error) == {"code", "message", "hint"}, error
    return error
