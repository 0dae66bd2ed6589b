"""What a kernel reserves and gives back itself, with %gpu: its server follows, and takes no process from it."""

import asyncio

import pytest

from jupyter_gpu.model import State

from .kernels_ground import NOTHING, a_lab, a_lab_broker, broker, hold, play, until

__all__ = ["broker"]
pytestmark = pytest.mark.timeout(180)

ROUNDS = 5
RELEASE = "%gpu release\nimport time; time.sleep({seconds})"


async def _mine(lab):
    """The reservations that the kernel may use or waits for."""
    return [it for it in await lab.mine() if it.outcome is None and it.end is None]


@pytest.mark.parametrize("shown", [False, True])
def test_who_gives_back_itself_is_not_restarted(broker, tmp_path, shown):
    """Also where the server hears of it while the cell still runs; with a page beside it, and without one."""
    told = []

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            lab.kernels.on_restart.append(lambda *words: told.append(words))
            if shown:
                lab.server.app.kernel_manager.notify_connect(kernel)
            before = lab.pid(kernel)
            await lab.run(kernel, "x = 7")
            for number in range(ROUNDS):
                await lab.run(kernel, "%gpu reserve 1 --for 5m")
                held = (await _mine(lab))[0]
                assert await lab.sees(kernel) == held.devices[0]
                lab.kernels.see(held)
                if number != 1:  # else it is given back before the server knows that it is pinned
                    await until(lambda: lab.view(kernel).pinned, "the server knows it")
                ends = asyncio.create_task(lab.run(kernel, RELEASE.format(seconds=number % 3)))
                ended = await lab.ended(held.id)
                assert ended.end == "released"
                lab.kernels.see(ended)
                await ends
                await until(lambda: lab.view(kernel).workload is None, "its end is known")
                assert "was given back" in lab.view(kernel).reason
                assert await lab.sees(kernel) == NOTHING
                assert lab.view(kernel).devices == ()
            assert lab.pid(kernel) == before
            assert await lab.run(kernel, "print(x)") == "7"
            assert not told

    play(story)


def test_a_reason_is_of_the_reservation_that_it_is_about(broker, tmp_path):
    """What became of the one before is not said of the next, held or waited for; and who waits holds nothing."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            before = lab.pid(kernel)
            await lab.run(kernel, "%gpu reserve 1 --for 5m")
            first = (await _mine(lab))[0]
            lab.kernels.see(first)
            await until(lambda: lab.view(kernel).pinned, "the server knows it")
            # Both in one cell: the server hears of the second while it still asks for the end of the first.
            await lab.run(kernel, "%gpu release\n%gpu reserve 1 --for 5m")
            second = (await _mine(lab))[0]
            assert second.id != first.id
            lab.kernels.see(await lab.lease(first.id))
            lab.kernels.see(second)
            await until(lambda: lab.view(kernel).workload == second.id and lab.view(kernel).pinned, "the second")
            assert lab.view(kernel).reason == ""
            assert await lab.sees(kernel) == second.devices[0]

            await lab.run(kernel, "%gpu release")
            lab.kernels.see(await lab.ended(second.id))
            await until(lambda: "was given back" in lab.view(kernel).reason, "the reason")
            hold(broker, 2)
            waiting = await lab.reserve(kernel)
            view = lab.view(kernel)
            assert waiting.state is State.QUEUED
            assert (view.workload, view.pinned, view.devices, view.reason) == (waiting.id, False, (), "")
            assert lab.pid(kernel) == before

    play(story)


def test_what_another_gives_back_is_taken_when_the_cell_has_ended(monkeypatch, tmp_path):
    """In a terminal, while it computes: it is asked when it is idle, and loses its pin but no variable."""

    async def story(broker):
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            before = lab.pid(kernel)
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            await lab.run(kernel, "x = 7; import time; time.sleep(3)", wait=False)
            await until(lambda: lab.view(kernel).execution_state == "busy", "it computes")
            broker.client.release(held.id)
            await until(lambda: lab.view(kernel).workload is None, "its end is known")
            assert await lab.sees(kernel) == NOTHING
            assert await lab.run(kernel, "print(x)") == "7"
            assert lab.pid(kernel) == before

    with a_lab_broker(monkeypatch, kill_after_seconds=30, clear_seconds=40) as broker:
        play(lambda: story(broker))
