"""Who may do what to a kernel, and asks that meet each other or the kernel's end."""

import asyncio
import os
import signal

import msgspec
import pytest

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.errors import BrokerUnavailable, Conflict, NotAllowed

from .kernels_ground import a_lab, broker, play, until

__all__ = ["broker"]

pytestmark = pytest.mark.timeout(120)


def test_asks_at_once_are_one_reservation(broker, tmp_path):
    """A double click, or two tabs: one is granted, the others hear that there is one already."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            answers = await asyncio.gather(*(lab.reserve(kernel) for _ in range(4)), return_exceptions=True)
            assert sorted(isinstance(it, Conflict) for it in answers) == [False, True, True, True]
            assert len(await lab.mine()) == 1

    play(story)


def test_a_kernel_that_ends_before_the_answer_holds_nothing(broker, tmp_path, monkeypatch):
    """Nobody else would give back what it was granted then."""
    submit = AsyncClient.submit

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, kernel = await lab.start()

            async def slow(self, *words, **more):
                view = await submit(self, *words, **more)
                await lab.shut_down(session)
                return view

            monkeypatch.setattr(AsyncClient, "submit", slow)
            with pytest.raises(Conflict, match="ended meanwhile"):
                await lab.reserve(kernel)
            await until(_nothing_of(lab), "the reservation has ended")

    play(story)


def _nothing_of(lab):
    async def nothing():
        return await lab.mine() == []

    return nothing


def test_who_does_not_hold_it_takes_nothing_from_a_kernel(broker, tmp_path, monkeypatch):
    """Several may share a server: the broker is asked first, and the kernel is not touched."""
    workload = AsyncClient.workload

    async def another_persons(self, number):
        return msgspec.structs.replace(await workload(self, number), is_mine=False)

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            await lab.restart(kernel)
            before = lab.pid(kernel)
            with monkeypatch.context() as patch:
                patch.setattr(AsyncClient, "workload", another_persons)
                for ask in (lab.give_back(kernel), lab.give_back(kernel, by_page=True), lab.pin(kernel, restart=True)):
                    with pytest.raises(NotAllowed):
                        await ask
            assert lab.pid(kernel) == before
            assert (await lab.lease(held.id)).state == "active"
            lab.kernels.see(msgspec.structs.replace(held, id=999), is_own=False)
            assert lab.view(kernel).workload == held.id

    play(story)


def test_while_the_broker_is_away_a_kernel_loses_nothing(broker, tmp_path):
    """Giving back would restart it for nothing: it is refused, and the kernel goes on."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            await lab.restart(kernel)
            before = lab.pid(kernel)
            pid = (await asyncio.to_thread(lab.broker.broker)).pid
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises((BrokerUnavailable, TimeoutError)):
                    await asyncio.wait_for(lab.give_back(kernel), 3)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert lab.pid(kernel) == before

    play(story)
