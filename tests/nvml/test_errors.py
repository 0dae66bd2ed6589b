"""The whole matrix: every NVML call that we make, times every code that it may answer, and silence, and slowness."""

import asyncio
import itertools
import os
import time
from contextlib import nullcontext
from functools import partial

import pytest
from msgspec.structs import replace

from jupyter_gpu.broker.telemetry.nvml import NvmlSource
from jupyter_gpu.broker.telemetry.sampler import Telemetry

from .child import in_child
from .matrix import (
    CARD_LOST,
    CODES,
    NO_FUNCTION,
    NOT_OFFERED,
    NVML_GONE,
    Watcher,
    board_of_all_kinds,
    cases,
    complaints,
    difference,
)

#: Some thousand boards are read, in a few seconds of one core; the cores are shared.
PATIENCE_SECONDS = 240


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_SECONDS)
@pytest.mark.parametrize("part", range(2))
@in_child(board_of_all_kinds, counted=True, seconds=PATIENCE_SECONDS)
def test_whatever_one_call_answers_only_what_it_is_about_is_affected(board, part):
    """While it answers so: nothing raises, others are read as ever, what is not known is n/a. After it: as before."""
    watcher = Watcher(board)
    uuids = watcher.learn_calls()
    was = watcher.look(uuids)
    failures = []
    for number, case in enumerate([*cases(board, CODES)]):
        if number % 2 != part:
            continue
        with case.holding(board), board.counting(os.environ) if case.code == CARD_LOST else nullcontext():
            now = watcher.look(uuids)
        failures += [f"{case}: {it}" for it in complaints(case, board, was, now)]
        if case.code == NO_FUNCTION:  # what a library lacks it lacks until it is loaded anew
            watcher = Watcher(board)
        if left := difference(was, watcher.look_again(uuids, was)):
            failures.append(f"{case}: not as before afterwards: {left}")
            watcher = Watcher(board)
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:40])


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_SECONDS)
@in_child(board_of_all_kinds, counted=True, seconds=PATIENCE_SECONDS)
def test_whatever_one_call_answers_at_the_start_is_made_up_for_later(board):
    """A broker may begin in any of these states; once it is over it sees what it would have seen."""
    fresh = Watcher(board)
    uuids = fresh.learn_calls()
    was = fresh.look(uuids)
    failures = []
    for case in cases(board, [*NVML_GONE, 3, 10, 15, 999]):
        with case.holding(board):
            watcher = Watcher(board)
            now = watcher.look(uuids)
        if case.code in NVML_GONE and case.call.startswith("nvmlInit") and (now.devices is not None or not now.fault):
            failures.append(f"{case}: {now}")
        after = watcher.look_again(uuids, was)
        if case.code in NOT_OFFERED:  # a card that says that it has something not is believed: facts are asked once
            after = after._replace(devices=was.devices)
        if left := difference(was, after):
            failures.append(f"{case}: {left}")
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:40])


def counted_calls(board):
    """The calls of the counted ones that are about a card, and those that open or list."""
    uuids = Watcher(board).learn_calls()
    return uuids, sorted(board.calls())


def telemetry_of(board, **seconds):
    """Telemetry whose clock makes everything due that is asked or tried only now and then."""
    return Telemetry(NvmlSource(clock=partial(next, itertools.count(0, 1000)), retry_seconds=0), **seconds)


async def clean(telemetry, uuids):
    """Wait until everything can be read again."""
    deadline = time.monotonic() + 20
    while any(it.fault for it in await telemetry.probe(uuids)) or await telemetry.inventory() is None:
        assert time.monotonic() < deadline, telemetry.fault
        await asyncio.sleep(0.01)


@in_child(board_of_all_kinds, counted=True)
def test_a_call_that_hangs_is_told_in_time_and_ends_nothing(board):
    """Each call in turn: whoever asks is answered within the deadline, and all is read again once it returns."""
    uuids, calls = counted_calls(board)

    async def body():
        telemetry = telemetry_of(board, interval_seconds=0.05, deadline_seconds=0.15)
        telemetry.start(asyncio.get_running_loop(), lambda _: None)
        await clean(telemetry, uuids)
        hung = 0
        for call in calls:
            if call.startswith("nvmlInit") or call == "nvmlShutdown":
                continue
            board.hangs.add(call)
            board.write()
            hung += await told(telemetry, uuids, call)
            board.hangs.clear()
            board.write()
            await clean(telemetry, uuids)
        telemetry.close()
        assert hung > 10

    async def told(telemetry, uuids, call):
        with board.counting(os.environ):
            return await _told(telemetry, uuids, call)

    async def _told(telemetry, uuids, call):
        begun = time.monotonic()
        # What is asked only when NVML is opened or a device is new may not be called again: then nothing hangs.
        while call in board.calls() or time.monotonic() < begun + 0.4:
            asked = time.monotonic()
            await telemetry.inventory()
            readings = await telemetry.probe(uuids)
            assert time.monotonic() - asked < 5, f"{call}: asked {time.monotonic() - asked} s"
            if telemetry.stalled_since is not None and all(it.fault for it in readings):
                assert "has not answered" in telemetry.fault, f"{call}: {telemetry.fault}"
                return True
            assert time.monotonic() < begun + 10, f"{call} hangs, and nobody is told"
            await asyncio.sleep(0.01)
        return False

    asyncio.run(body())


@in_child(board_of_all_kinds, counted=True)
def test_slow_calls_are_waited_for(board):
    """A driver that takes its time is no driver that hangs: the figures are the same."""
    uuids, _ = counted_calls(board)

    async def body():
        telemetry = telemetry_of(board, interval_seconds=0.2, deadline_seconds=30)
        telemetry.start(asyncio.get_running_loop(), lambda _: None)
        await clean(telemetry, uuids)
        was = await telemetry.probe(uuids)
        board.slow["nvmlDeviceGet*"] = 3
        board.write()
        begun = time.monotonic()
        now = await telemetry.probe(uuids)
        assert time.monotonic() - begun > 0.1
        telemetry.close()
        return was, now

    was, now = asyncio.run(body())
    assert [replace(it, at=0) for it in now] == [replace(it, at=0) for it in was]
