"""Internal TLS: the service shows a certificate of the hub's authority, and hears only who shows one too."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from certipy import Certipy
from jupyterhub.utils import make_ssl_context

from jupyter_gpu.broker.api.routes import make_application
from jupyter_gpu.broker.hub.service import Service
from jupyter_gpu.broker.listen import Doors
from jupyter_gpu.broker.visits import Book
from tests.conftest import Places
from tests.ports import free_port

from .fake_hub import RESEARCHER
from .ground import Serving, a_service, play


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An authority as a hub makes it, with a pair for the service and one for the proxy."""
    folder = tmp_path_factory.mktemp("internal-ssl")
    certipy = Certipy(store_dir=str(folder))
    authority = certipy.create_ca("authority")["files"]["cert"]
    names = ["IP:127.0.0.1", "DNS:localhost"]
    pairs = {name: certipy.create_signed_pair(name, "authority", alt_names=names)["files"] for name in ("gpu", "proxy")}
    return {"authority": authority, **pairs}


@contextlib.asynccontextmanager
async def a_door(folder: Path, files: dict[str, Any], book: Book | None = None) -> AsyncIterator[tuple[Serving, int]]:
    """A service behind the door that a hub with internal TLS wants, and its port."""
    async with a_service(folder) as it:
        port = free_port()
        told = it.hub.environ(
            port,
            JUPYTERHUB_SERVICE_URL=f"https://127.0.0.1:{port}",
            JUPYTERHUB_SSL_KEYFILE=files["gpu"]["key"],
            JUPYTERHUB_SSL_CERTFILE=files["gpu"]["cert"],
            JUPYTERHUB_SSL_CLIENT_CA=files["authority"],
        )
        app = SimpleNamespace(hub_cache_seconds=0, account_of_user="", system=False, tokens=None, hub_socket_scopes=())
        service = Service(app, Book(), told)  # type: ignore[arg-type]
        doors = Doors(
            make_application(it.loop, it.service.gate, **it.service.words),
            socket_path=folder / "other",
            for_everybody=False,
            service=service.address,
            tls=service.tls,
            make_folder=lambda: None,
            book=book,
        )
        doors.open()
        try:
            yield it, port
        finally:
            doors.close()
            await service.hub.close()


def test_only_the_hubs_own_parts_get_through(tmp_runtime: Places, files: dict[str, Any]) -> None:
    """With a certificate of the authority the API answers; without one there is no connection, nor in the clear."""

    async def story() -> None:
        async with a_door(tmp_runtime.runtime_dir, files) as (it, port):
            url = f"https://127.0.0.1:{port}/api/v1/status"
            headers = {"Authorization": f"token {it.hub.add('ana', *RESEARCHER)}"}
            proxy = make_ssl_context(files["proxy"]["key"], files["proxy"]["cert"], cafile=files["authority"])
            async with httpx.AsyncClient(verify=proxy, trust_env=False) as client:
                answer = await client.get(url, headers=headers)
                assert (answer.status_code, answer.json()["caller"]) == (200, "ana")
                assert (await client.get(url)).status_code == 401
            stranger = ssl.create_default_context(cafile=files["authority"])
            async with httpx.AsyncClient(verify=stranger, trust_env=False) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get(url, headers=headers)
            async with httpx.AsyncClient(trust_env=False) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get(url.replace("https", "http"), headers=headers)

    play(story)


def test_a_stranger_at_the_door_keeps_nobody_out(tmp_runtime: Places, files: dict[str, Any]) -> None:
    """Who connects and never shakes hands is sent away when its time is over."""

    async def story() -> None:
        book = Book(header_seconds=0.2)
        async with a_door(tmp_runtime.runtime_dir, files, book) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
            while book.open:
                await asyncio.sleep(0.01)

    play(story)
