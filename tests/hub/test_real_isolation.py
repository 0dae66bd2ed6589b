"""A server of a real hub finds out whether it is kept from other GPUs; its page hears it, and doctor in it says so."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from jupyter_gpu.jupyter.documents import ServerFrame
from jupyter_gpu.jupyter.own_isolation import NOT_YET
from jupyter_gpu.jupyter.upstream import read_frame
from jupyter_gpu.model import IsolationView
from tests.engines.fences import IS_ROOT
from tests.nvml import boards
from tests.nvml.library import needs_standin
from tests.stories.house_of_nodes import House

from .hub import Hub

pytestmark = [needs_standin, pytest.mark.story, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """A folder with the device nodes of four cards."""
    if not IS_ROOT:
        pytest.skip("only root may make device nodes")
    with tempfile.TemporaryDirectory(prefix="jgh-", ignore_cleanup_errors=True) as folder:
        yield House(Path(folder))


@pytest.fixture(scope="module")
def hub(house: House) -> Iterator[Hub]:
    """A hub of processes, whose service sees these cards."""
    board = boards.four_alike(house.root)
    for card in board.cards:
        house.node(f"nvidia{card.number}")
    made = Hub(house.root / "hub", board=board)
    text = made.config.read_text()
    made.config.write_text(
        text.replace("'system': False", f"'system': False, 'devices_folder': {str(house.devices)!r}")
    )
    try:
        made.start()
        yield made
    finally:
        made.end()


def told(hub: Hub, user: str) -> IsolationView:
    """What the page of a server hears of it."""

    async def hear() -> IsolationView:
        at = hub.at(user)
        url = str(at.base_url).rstrip("/").replace("http", "ws", 1) + "/jupyter-gpu/stream"
        socket = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {hub.token_of(user)}"}))
        try:
            async with asyncio.timeout(60):
                while True:
                    frame = read_frame(await socket.read_message() or b"")
                    if isinstance(frame, ServerFrame) and frame.isolation not in (None, NOT_YET):
                        return frame.isolation
        finally:
            socket.close()
            while await socket.read_message() is not None:  # until the other end has said good-bye
                pass

    return asyncio.run(hear())


def test_of_a_plain_process_page_and_doctor_say_that_nothing_keeps_it(hub):
    """Doctor in a kernel, which stands where its server stands; the server's own card was not tried."""
    hub.spawn("ana", gpu_profile="one").raise_for_status()
    held = next(iter(hub.as_("ana").workloads(mine=True, ended=False)))
    nodes = {it.uuid: it.nodes for it in hub.as_("ana").devices().items}
    others = sorted(node for uuid, its in nodes.items() for node in its if uuid not in held.devices)
    expected = f"it could open {others[0]}, which is not its own"

    found = told(hub, "ana")
    checked = hub.kernel("ana").run("!jupyter gpu doctor --json")

    assert len(others) == 3
    assert (found.enforced, found.detail) == (False, expected)
    assert f"advisory ({expected})" in checked


def test_of_a_server_without_devices_it_says_that_its_kernels_reserve(hub):
    """The same for who has no lease: whatever opens is somebody else's."""
    hub.spawn("ben", gpu_profile="none").raise_for_status()
    found = told(hub, "ben")
    assert not found.enforced
    assert found.detail.endswith("its kernels reserve for themselves, and are told which GPUs are theirs")
