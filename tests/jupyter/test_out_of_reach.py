"""A server in a container without GPUs, whose kernels may reserve: it is told, and holds nothing that it cannot open.

The nodes are files with the names of device nodes, in a folder of the test's.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu import out_of_reach, own_reach, reserve
from jupyter_gpu.client import AsyncClient, Client
from jupyter_gpu.errors import Conflict
from jupyter_gpu.model import DevicePage, State
from jupyter_gpu.opening import MISSING, OPENED, REFUSED
from jupyter_gpu.out_of_reach import why_none, why_not
from jupyter_gpu.own_reach import Surroundings
from tests.cli.conftest import Terminal
from tests.cli.fake import FakeClient, device

from .kernels_ground import a_lab, broker, hold, play, until

__all__ = ["broker"]

HUB = {"JUPYTERHUB_USER": "ada"}
CONTAINER = Surroundings(0, "0::/docker/abc\n", in_container=True)
UNIT = Surroundings(0, "0::/system.slice/jupyter-ada-singleuser.service\n", in_container=False)
PLAIN = Surroundings(0, "0::/user.slice\n", in_container=False)
NONE = "This server can open no GPU: its container has none of the device nodes."


@pytest.fixture
def nodes(tmp_path, monkeypatch) -> Path:
    """A folder that stands for /dev of a container; nothing is in it."""
    folder = tmp_path / "dev"
    folder.mkdir()
    monkeypatch.setattr(out_of_reach, "DEV", folder)
    monkeypatch.setattr(out_of_reach, "surroundings", lambda: CONTAINER)
    return folder


def gpus(folder: Path, count: int = 4) -> list:
    """GPUs with a node each."""
    return [device(number, nodes=(f"{folder}/nvidia{number}",)) for number in range(count)]


# --- what is known --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "here", "said"),
    [
        (MISSING, CONTAINER, "its container has none of the device nodes"),
        (REFUSED, CONTAINER, "its container does not allow it"),
        (REFUSED, UNIT, "its systemd unit does not allow it"),
        (MISSING, PLAIN, "the device nodes are not there"),
        (REFUSED, PLAIN, "{}/nvidia3 is refused to it"),
    ],
)
def test_it_says_which_gpu_it_cannot_open_and_what_keeps_it(nodes, monkeypatch, answer, here, said):
    """As far as it shows."""
    monkeypatch.setattr(out_of_reach, "surroundings", lambda: here)
    why = why_not(gpus(nodes)[3:], lambda _: answer)
    assert why == f"This server cannot open GPU 3: {said.format(nodes)}."


def test_a_node_that_its_mode_closes_is_told_as_that(nodes, monkeypatch):
    """Nothing of the container's then."""
    monkeypatch.setattr(out_of_reach, "is_closed_by_mode", lambda _: True)
    assert why_not(gpus(nodes)[:1], lambda _: REFUSED).endswith("nvidia0 keep its account out.")


def test_what_opens_or_is_unknown_or_simulated_is_never_said_to_be_out_of_reach(nodes):
    """Of several nodes one that opens is enough, as is one that gives no answer."""
    (nodes / "nvidia0").touch()
    there, away = gpus(nodes)[:2]
    both = msgspec.structs.replace(away, nodes=(*away.nodes, *there.nodes))
    unknown, simulated = (msgspec.structs.replace(away, **it) for it in ({"nodes": ()}, {"simulated": True}))
    for one in (there, both, unknown, simulated):
        assert why_not([one]) == ""
        assert why_none([away, one]) == ""
    assert why_none([]) == ""
    assert why_none([away]) == NONE


def test_a_driver_that_hangs_is_not_taken_for_a_container_without_gpus(nodes, monkeypatch):
    """What gave no answer in time may be what it can open."""
    monkeypatch.setattr(out_of_reach, "DEADLINE_SECONDS", 0.02)
    go = own_reach.threading.Event()
    try:
        assert why_not(gpus(nodes)[:1], lambda _: MISSING if go.wait(30) else OPENED) == ""
    finally:
        go.set()


def test_nodes_are_found_by_name_where_the_broker_sees_them_elsewhere(nodes, tmp_path):
    """A broker in a container of its own may have the machine's /dev under another name."""
    (nodes / "nvidia-caps").mkdir()
    (nodes / "nvidia-caps/nvidia-cap21").touch()
    part = device(0, nodes=(f"{tmp_path}/host/nvidia0", f"{tmp_path}/host/nvidia-caps/nvidia-cap21"))
    assert why_not([part]) == ""
    (nodes / "nvidia-caps/nvidia-cap21").unlink()
    assert why_not([part]) != ""


# --- in a terminal and in a script ----------------------------------------------------------------


def in_reach(client: FakeClient, *paths: Path) -> Terminal:
    """A terminal of a hub's server."""
    there, cards = {str(path) for path in paths}, client.lab.devices
    for path in there:
        Path(path).touch()
    folder = out_of_reach.DEV
    nodes = tuple(msgspec.structs.replace(it, nodes=(f"{folder}/nvidia{it.index}",)) for it in cards)
    client.lab = msgspec.structs.replace(client.lab, devices=nodes)
    return Terminal(client, environ=HUB)


def called(client: FakeClient) -> list[str]:
    """What was asked."""
    return [name for name, *_ in client.calls]


def test_a_terminal_that_can_open_none_asks_for_none(nodes):
    """Somebody might have to make room for nothing."""
    client = FakeClient()
    done = in_reach(client)("reserve")
    assert done.code == Conflict.exit_code
    assert NONE in " ".join(done.err.split())
    assert "Start a server with GPUs" in done.err
    assert "submit" not in called(client)


@pytest.mark.parametrize("words", [("reserve",), ("reserve", "--", "true")])
def test_what_a_terminal_cannot_open_is_given_back_at_once(nodes, words):
    """The first GPU is there, and the third, which is granted, is not."""
    client = FakeClient()
    done = in_reach(client, nodes / "nvidia0")(*words)
    assert done.code == Conflict.exit_code
    assert "cannot open GPU 2" in done.err
    assert "Reservation 15 is given back" in " ".join(done.err.split())
    assert ("release", 15, None) in client.calls


def test_outside_of_a_hub_nothing_is_tried(nodes):
    """The reservation is the broker's and the machine's business there."""
    client = FakeClient()
    terminal = in_reach(client)
    terminal.environ = {}
    assert terminal("reserve").code == 0
    assert "release" not in called(client)


def test_a_script_in_such_a_server_holds_nothing(broker, nodes, monkeypatch):
    """`with jupyter_gpu.reserve()` raises, and the GPU is free again."""
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    _with_nodes(monkeypatch, nodes)
    with pytest.raises(Conflict, match="can open no GPU"), reserve(client=broker.client):
        pytest.fail("it holds what it cannot open")
    assert list(broker.client.workloads(mine=True)) == []


# --- for kernels ----------------------------------------------------------------------------------


def _with_nodes(monkeypatch, folder: Path, *there: int) -> None:
    """The broker's simulated devices pass for real ones with nodes, of which only some are there."""
    for number in there:
        (folder / f"nvidia{number}").touch()

    def real(page: DevicePage) -> DevicePage:
        items = [
            msgspec.structs.replace(it, simulated=False, nodes=(f"{folder}/nvidia{it.index}",)) for it in page.items
        ]
        return msgspec.structs.replace(page, items=tuple(items))

    asked, asked_async = Client.devices, AsyncClient.devices

    async def devices(self: AsyncClient) -> DevicePage:
        return real(await asked_async(self))

    monkeypatch.setattr(Client, "devices", lambda self: real(asked(self)))
    monkeypatch.setattr(AsyncClient, "devices", devices)


@pytest.mark.timeout(120)
def test_a_kernel_of_a_server_without_gpus_is_refused_before_it_asks(broker, nodes, tmp_path, monkeypatch):
    """By the panel and by `%gpu` alike, and nothing was ever reserved."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _with_nodes(monkeypatch, nodes)
            _, kernel = await lab.start()
            monkeypatch.setenv("JUPYTERHUB_USER", "ada")
            with pytest.raises(Conflict, match="its container has none") as refused:
                await lab.reserve(kernel)
            assert "Start a server with GPUs" in refused.value.hint
            assert await lab.mine() == []

    play(story)


@pytest.mark.timeout(120)
def test_what_a_kernel_was_granted_and_its_server_cannot_open_goes_back(broker, nodes, tmp_path, monkeypatch):
    """At once by the answer; after a wait in line by who follows it, and the kernel's line says why."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _with_nodes(monkeypatch, nodes, 0)
            _, kernel = await lab.start()
            monkeypatch.setenv("JUPYTERHUB_USER", "ada")
            first = hold(broker, 1)
            with pytest.raises(Conflict, match=r"cannot open GPU 1.* is given back"):
                await lab.reserve(kernel)
            second = hold(broker, 1)
            waits = await lab.reserve(kernel)
            assert waits.state is State.QUEUED
            broker.client.release(second.id)
            over = await lab.ended(waits.id)
            assert over.end == "released"
            await until(lambda: lab.view(kernel).workload is None, "the kernel holds nothing")
            assert "this server cannot open GPU 1" in lab.view(kernel).reason
            assert "Start a server with GPUs" in lab.view(kernel).reason
            broker.client.release(first.id)
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "GPU 0 can be opened")
            assert (await lab.lease(held.id)).state is State.ACTIVE

    play(story)


def test_jobs_are_not_asked_whether_they_stand_in_a_server(nodes):
    """A job has a probe of its own."""
    client = FakeClient()
    terminal = in_reach(client)
    terminal.environ = HUB | {"JUPYTER_GPU_ATTEMPT": os.fspath(nodes)}
    assert terminal("reserve").code == 0
