"""A server that was started with GPUs says whether it computes, so that its GPUs are idle only when all of it is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from jupyter_gpu import pins
from jupyter_gpu.model import Ask, Holder, Kind, SubmitBody

from .kernels_ground import Lab, a_lab, a_lab_broker, play, silent_until, until

pytestmark = pytest.mark.timeout(120)

WARNED_SECONDS = 1
#: `lapse_seconds` of the ground is 6: nobody but the server itself renews here.
LAPSE_SECONDS = 6


def hold(broker, kind):
    """A reservation as a spawner makes one, of which the broker sees no process."""
    body = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1), holder=Holder(kind=kind, name="me/"))
    return broker.client.submit(body)


async def warned_at(lab: Lab) -> float | None:
    """Since when the broker warns of idleness."""
    status = await asyncio.to_thread(lab.broker.status)
    return next((it.since for it in status.alerts if it.key.startswith("idle:")), None)


def test_it_is_idle_only_while_none_of_its_kernels_computes_and_no_terminal_is_open(monkeypatch, tmp_path):
    """A silent cell in any of its kernels is work (jupyter/notebook#3896); what runs in a terminal is not seen."""

    async def story(broker):
        held = hold(broker, "server")
        monkeypatch.setenv(pins.RESERVATION, str(held.id))
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            await until(lambda: warned_at(lab), "the warning")
            running = asyncio.create_task(lab.run(kernel, silent_until(tmp_path / "go")))

            async def is_no_more():
                return await warned_at(lab) is None

            await until(is_no_more, "the cell is known")
            (tmp_path / "go").touch()
            ended = float(await running)
            await until(lambda: warned_at(lab), "the warning after the cell")
            assert (await warned_at(lab) or 0) >= ended + WARNED_SECONDS
            monkeypatch.setitem(
                lab.server.app.web_app.settings, "terminal_manager", SimpleNamespace(list=lambda: [{"name": "1"}])
            )
            await until(is_no_more, "the terminal is known")
            await asyncio.sleep(LAPSE_SECONDS + 1)
            assert ((await lab.lease(held.id)).state, await warned_at(lab)) == ("active", None)

    with a_lab_broker(monkeypatch, idle_warn_seconds=WARNED_SECONDS) as running:
        play(lambda: story(running))


def test_within_a_command_that_holds_gpus_it_says_nothing(monkeypatch, tmp_path):
    """`jupyter gpu reserve -- jupyter lab`: the server is but a part of what runs there, and renews nothing."""

    async def story(broker):
        held = hold(broker, "command")
        monkeypatch.setenv(pins.RESERVATION, str(held.id))
        async with a_lab(broker, tmp_path) as lab:
            over = await lab.ended(held.id, LAPSE_SECONDS * 3)
            assert over.end == "released"

    with a_lab_broker(monkeypatch, idle_warn_seconds=WARNED_SECONDS) as running:
        play(lambda: story(running))
