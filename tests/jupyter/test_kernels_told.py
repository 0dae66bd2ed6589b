"""What the broker tells a kernel although nothing ends: its server hears it with a renewal, and its pages show it."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.client import AsyncClient

from .kernels_ground import a_lab, broker, play, until

__all__ = ["broker"]

pytestmark = pytest.mark.timeout(120)

ABOVE = "It uses {} GiB and has reserved 4 GiB"


@pytest.fixture
def told(monkeypatch):
    """What renewals say besides; the one thing of the broker that is made up here."""
    words = [""]
    renew = AsyncClient.renew

    async def renew_and_tell(self, workload_id, holder_number, **word):
        return msgspec.structs.replace(await renew(self, workload_id, holder_number, **word), told=words[0])

    monkeypatch.setattr(AsyncClient, "renew", renew_and_tell)
    return words


def test_it_reaches_the_pages_and_the_log_has_it_once(broker, tmp_path, told, caplog):
    """As long as it lasts the kernel's row has it, with its figures as they are now; afterwards no more."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            lab.server.app.log.addHandler(caplog.handler)
            session, kernel = await lab.start()
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            assert lab.view(kernel).told == ""
            for gibibytes in (5, 6):
                told[0] = ABOVE.format(gibibytes)
                await until(lambda: lab.view(kernel).told == told[0], "it is told")
            said = [
                it.getMessage() for it in caplog.records if kernel in it.getMessage() and "4 GiB" in it.getMessage()
            ]
            assert said == [f"Kernel {kernel}: {ABOVE.format(5)}"]
            assert (await lab.lease(held.id)).state == "active"
            told[0] = ""
            await until(lambda: not lab.view(kernel).told, "it is over")
            await lab.shut_down(session)

    play(story)


def test_what_was_told_of_a_reservation_ends_with_it(broker, tmp_path, told):
    """The next reservation of the kernel begins without."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            await lab.reserve(kernel)
            told[0] = ABOVE.format(5)
            await until(lambda: lab.view(kernel).told, "it is told")
            await lab.give_back(kernel)
            assert lab.view(kernel).told == ""

    play(story)
