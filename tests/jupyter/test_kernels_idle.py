"""A kernel that computes for long: busy while it does, idle from then on, its GPU its own throughout."""

import asyncio
import time

import pytest

from .kernels_ground import NOTHING, Lab, a_lab, a_lab_broker, broker, play, silent_until, until

__all__ = ["broker"]

pytestmark = pytest.mark.timeout(120)

#: Longer than a holder may be silent: `lapse_seconds` of the ground is 6.
CELL_SECONDS = 8
#: After so long a reservation is warned of here, and given back.
WARNED_SECONDS, RELEASED_SECONDS = 1, 5


def test_a_long_silent_cell_is_not_idle_and_idle_time_begins_at_its_end(broker, tmp_path):
    """Nothing is taken from it, and its last activity is the end of the cell, not its start (jupyter/notebook#3896)."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            cell = f"import time; time.sleep({CELL_SECONDS}); print(time.time())"
            running = asyncio.create_task(lab.run(kernel, cell))
            await until(lambda: lab.view(kernel).execution_state == "busy", "the cell runs")
            begun = time.time()
            ended = float(await running)
            assert ended > begun
            await until(lambda: lab.view(kernel).execution_state == "idle", "the cell's end is known")
            assert (lab.view(kernel).last_activity or 0) >= ended
            assert (await lab.lease(held.id)).state == "active"

    play(story)


async def warnings(lab: Lab) -> dict[str, float]:
    """The alerts of idleness, each with when it began."""
    status = await asyncio.to_thread(lab.broker.status)
    return {it.key: it.since for it in status.alerts if it.key.startswith("idle:")}


def test_a_silent_cell_is_not_idle_and_what_is_kept_goes_on_until_it_is_idle_again(monkeypatch, tmp_path):
    """Warned of only after the end of the cell, kept, warned of again and given back (jupyter/notebook#3896)."""

    async def story(broker):
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            running = asyncio.create_task(lab.run(kernel, silent_until(tmp_path / "go")))
            await until(lambda: lab.view(kernel).execution_state == "busy", "the cell runs")
            held, begun = await lab.reserve(kernel), time.time()
            while time.time() < begun + WARNED_SECONDS + 2:
                assert await warnings(lab) == {}
                await asyncio.sleep(0.1)
            (tmp_path / "go").touch()
            ended = float(await running)

            await until(lambda: warnings(lab), "the warning")
            ((key, since),) = (await warnings(lab)).items()
            assert (key.split(":")[1], since >= ended + WARNED_SECONDS) == (str(held.id), True)
            assert f"jupyter gpu keep {held.id}" in (await asyncio.to_thread(lab.broker.status)).alerts[0].text
            kept = time.time()
            assert (await asyncio.to_thread(lab.broker.keep, held.id)).state == "active"
            assert all(since >= kept + WARNED_SECONDS for since in (await warnings(lab)).values())
            await until(lambda: lab.view(kernel).pinned, "the pin")
            assert (await lab.sees(kernel)) == held.devices[0]

            over = await lab.ended(held.id)
            assert (over.end, "idle since" in over.detail) == ("released", True)
            assert (over.ended_at or 0) > kept + WARNED_SECONDS + RELEASED_SECONDS
            await until(lambda: lab.view(kernel).workload is None, "the kernel goes on without")
            assert await lab.sees(kernel) == NOTHING

    with a_lab_broker(monkeypatch, idle_warn_seconds=WARNED_SECONDS, idle_release_seconds=RELEASED_SECONDS) as running:
        play(lambda: story(running))
