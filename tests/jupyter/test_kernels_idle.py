"""A kernel that computes for long: busy while it does, idle from then on, its GPU its own throughout."""

import asyncio
import time

import pytest

from .kernels_ground import a_lab, broker, play, until

__all__ = ["broker"]

pytestmark = pytest.mark.timeout(120)

#: Longer than a holder may be silent: `lapse_seconds` of the ground is 6.
CELL_SECONDS = 8


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
            assert ended > begun + CELL_SECONDS / 2
            await until(lambda: lab.view(kernel).execution_state == "idle", "the cell's end is known")
            assert (lab.view(kernel).last_activity or 0) >= ended
            assert (await lab.lease(held.id)).state == "active"

    play(story)
