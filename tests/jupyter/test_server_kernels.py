"""The routes of kernels: what they pass to what looks after kernels, and with which status its answer comes back."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

from jupyter_gpu.errors import Conflict
from jupyter_gpu.jupyter.documents import KernelAsk, KernelView, PinAnswer
from jupyter_gpu.model import State
from tests.broker.ground import a_reservation
from tests.jupyter.server_ground import a_broker, a_server, body, error_of, play

ID = "0f0f0f0f-0000-4000-8000-000000000001"
PATH = f"jupyter-gpu/kernels/{ID}"


class Kernels:
    """Keeps what it is asked, and answers with what the broker really says."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.claims = 1

    def views(self) -> tuple[KernelView, ...]:
        """One kernel."""
        return (KernelView(kernel_id=ID, name="Python 3", pinned=False, execution_state="idle", notebook="a.ipynb"),)

    async def reserve(self, kernel_id: str, ask: KernelAsk, client: Any) -> Any:
        """As the real ones, without a kernel."""
        self.asked.append(("reserve", kernel_id, ask, (await client.status()).caller))
        return await anext(client.workloads())

    async def give_back(self, kernel_id: str, client: Any, *, by_page: bool = False) -> Any:
        """As the real ones."""
        self.asked.append(("give back", kernel_id, by_page))
        return await anext(client.workloads())

    async def pin(self, kernel_id: str, _client: Any, *, restart: bool) -> PinAnswer:
        """As the real ones."""
        self.asked.append(("pin", kernel_id, restart))
        if restart:
            raise Conflict("It is busy.")
        return PinAnswer(state="restart-needed", reason="CUDA is loaded.", devices=("GPU-0",))

    def claim(self, kernel_id: str) -> bool:
        """To the first."""
        self.asked.append(("claim", kernel_id))
        self.claims -= 1
        return self.claims >= 0


def test_the_kernels_of_the_server(tmp_path, tmp_runtime):
    """The list, as the contract has it."""

    async def story():
        async with a_server(tmp_path) as server:
            server.extension.kernels = Kernels()
            answer = await server.program().get("jupyter-gpu/kernels")
            assert answer.json() == {
                "items": [
                    {
                        "kernel_id": ID,
                        "name": "Python 3",
                        "notebook": "a.ipynb",
                        "pinned": False,
                        "execution_state": "idle",
                    }
                ]
            }

    play(story)


@pytest.mark.parametrize(("before", "status", "state"), [(0, 201, State.ACTIVE), (1, 202, State.QUEUED)])
def test_to_reserve_for_a_kernel(tmp_path, tmp_runtime, before, status, state):
    """201 where it is granted, 202 where it waits, with its reason; in the name of who asks."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir, count=1) as broker, a_server(tmp_path) as server:
            server.extension.kernels = kernels = Kernels()
            for _ in range(before):
                await broker.loop.handle(a_reservation(owner="grace", duration_seconds=600))
            await broker.loop.handle(a_reservation(owner=getpass.getuser(), duration_seconds=600))
            answer = await server.program().post(f"{PATH}/reservation", content=body({"duration_seconds": 600}))

            assert (answer.status_code, answer.json()["state"]) == (status, state)
            assert ("waiting" in answer.json()) == (state is State.QUEUED)
            assert kernels.asked == [("reserve", ID, KernelAsk(duration_seconds=600), getpass.getuser())]

    play(story)


def test_to_give_back(tmp_path, tmp_runtime):
    """The server restarts the kernel, or the page says that it will."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            server.extension.kernels = kernels = Kernels()
            await broker.loop.handle(a_reservation(owner=getpass.getuser(), duration_seconds=600))
            for query in ("", "?restart=page", "?restart=server"):
                answer = await server.program().delete(f"{PATH}/reservation{query}")
                assert (answer.status_code, answer.json()["id"]) == (200, 1)
            assert [asked[2] for asked in kernels.asked] == [False, True, False]

    play(story)


def test_to_pin(tmp_path, tmp_runtime):
    """The answer says what is missing; a refusal keeps its status."""

    async def story():
        async with a_server(tmp_path) as server:
            server.extension.kernels = kernels = Kernels()
            answer = await server.program().post(f"{PATH}/pin")
            assert answer.json() == {"state": "restart-needed", "reason": "CUDA is loaded.", "devices": ["GPU-0"]}
            answer = await server.program().post(f"{PATH}/pin", content=body({"restart": True}))
            assert (answer.status_code, error_of(answer)["message"]) == (409, "It is busy.")
            assert [asked[2] for asked in kernels.asked] == [False, True]

    play(story)


def test_one_page_claims_the_restart(tmp_path, tmp_runtime, monkeypatch):
    """204 to the first, 409 to the others."""

    async def story():
        async with a_server(tmp_path) as server:
            server.extension.kernels = Kernels()
            monkeypatch.setattr(type(server.app.kernel_manager), "__contains__", lambda _self, _id: True)
            answers = [await server.program().post(f"{PATH}/claim") for _ in range(3)]
            assert [(answer.status_code, answer.content == b"") for answer in answers] == [
                (204, True), (409, False), (409, False),
            ]  # fmt: skip
            assert error_of(answers[1])["code"] == "conflict"

    play(story)


@pytest.mark.parametrize("kernel", ["..", "a%2Fb", "a b", "x" * 101])
def test_what_is_no_kernel_id(tmp_path, tmp_runtime, kernel):
    """Never passed on."""

    async def story():
        async with a_server(tmp_path) as server:
            server.extension.kernels = kernels = Kernels()
            answer = await server.program().post(f"jupyter-gpu/kernels/{kernel}/pin")
            assert answer.status_code == 404
            assert kernels.asked == []

    play(story)


def test_an_unknown_kernel(tmp_path, tmp_runtime):
    """The real ones: 404, in our words."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir), a_server(tmp_path) as server:
            assert (await server.program().get("jupyter-gpu/kernels")).json() == {"items": []}
            for verb, path in (("POST", "reservation"), ("DELETE", "reservation"), ("POST", "pin"), ("POST", "claim")):
                answer = await server.program().request(verb, f"{PATH}/{path}")
                assert (answer.status_code, error_of(answer)["code"]) == (404, "not-found")

    play(story)
