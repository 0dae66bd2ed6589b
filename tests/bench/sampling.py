"""What one sample of 8 and of 64 GPUs costs, all through one library that answers at once and stands in for NVML.

Beside us: the same calls bare, nvitop and gpustat. Each reads in a process of its own, and what counts is its CPU time,
the library's own included. What a real driver takes for a call comes on top, for everybody alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_gpu.broker.telemetry.nvml import NvmlSource
from jupyter_gpu.broker.telemetry.simulated import SimulatedSource
from tests.nvml.board import GIB, Board, Tally, data_centre_card
from tests.nvml.library import why_not

from .ground import row

SIZES = (8, 64)
#: The vitals of a card are asked every ten seconds, so ten samples are a fair round.
ROUND = 10
CPU_SECONDS = 1.5
READERS = ("ours", "bare", "nvitop", "gpustat")


def run() -> list[dict[str, Any]]:
    """A row for each size of board, and one for simulated devices."""
    if why_not():
        return [_simulated(), row("sampling GPUs through NVML", float("nan"), "", beside=str(why_not()))]
    return [*(_row(size) for size in SIZES), _simulated()]


def _row(size: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="jg-bench-") as folder:
        board = _board(Path(folder), size)
        seconds = {reader: _measured(reader, board, size) for reader in READERS}
    others = ", ".join(f"{reader} {seconds[reader] * 100:.3g} %" for reader in READERS[1:])
    return row(
        f"sampling {size} GPUs once a second",
        seconds["ours"] * 100,
        "% of a core",
        reach="under 1" if size == SIZES[0] else "",
        beside=f"{others} (bare: the same calls of NVML and nothing else)",
    )


def _simulated() -> dict[str, Any]:
    source = SimulatedSource(8)
    uuids = source.uuids
    source.read(uuids)
    seconds = _each(lambda: source.read(uuids))
    return row(
        "sampling 8 simulated GPUs once a second",
        seconds * 100,
        "% of a core",
        reach="under 1",
        beside="a scan of /proc",
    )


def _board(folder: Path, size: int) -> Board:
    """Cards of which each has a process; peers look for it, so it is one that is there."""
    cards = [data_centre_card(number, "NVIDIA H100 80GB HBM3", 80 * GIB) for number in range(size)]
    for card in cards:
        card.hold(os.getpid(), GIB)
    return Board(folder, *cards)


def _measured(reader: str, board: Board, size: int) -> float:
    """CPU seconds of one sample."""
    argv = [sys.executable, "-m", __name__, reader, str(board.path.parent)]
    done = subprocess.run(
        argv, env=os.environ | board.environment(), cwd=Path(__file__).parents[2], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{reader} cannot read {size} GPUs: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


# --- in a process of its own ----------------------------------------------------------------------


def _each(sample: Callable[[], object]) -> float:
    """CPU seconds of one sample, measured over whole rounds."""
    rounds, begun = 0, time.process_time()
    while time.process_time() - begun < CPU_SECONDS:
        for _ in range(ROUND):
            sample()
        rounds += 1
    return (time.process_time() - begun) / (rounds * ROUND)


def _ours() -> Callable[[], object]:
    now = 0.0

    def clock() -> float:
        return now

    source = NvmlSource(clock=clock)
    uuids = [it.uuid for it in source.devices() or ()]

    def sample() -> None:
        nonlocal now
        now += 1.0
        readings = source.read(uuids)
        source.events()
        assert all(it.fault is None and it.processes for it in readings)

    return sample


def _bare() -> Callable[[], object]:
    """What our source calls for one sample, and every tenth time for the vitals, with nothing made of the answers."""
    import pynvml as nvml

    nvml.nvmlInit()
    cards = [nvml.nvmlDeviceGetHandleByIndex(it) for it in range(nvml.nvmlDeviceGetCount())]
    events = nvml.nvmlEventSetCreate()
    for card in cards:
        nvml.nvmlDeviceRegisterEvents(card, nvml.nvmlEventTypeXidCriticalError, events)
    count = 0

    def sample() -> None:
        nonlocal count
        for card in cards:
            _figures(nvml, card)
            if count % ROUND == 0:
                _vitals(nvml, card)
        count += 1
        try:
            nvml.nvmlEventSetWait_v2(events, 0)
        except nvml.NVMLError_Timeout:
            return

    return sample


def _figures(nvml: Any, card: Any) -> None:
    nvml.nvmlDeviceGetMemoryInfo(card, nvml.nvmlMemory_v2)
    nvml.nvmlDeviceGetUtilizationRates(card)
    nvml.nvmlDeviceGetTemperature(card, 0)
    nvml.nvmlDeviceGetPowerUsage(card)
    nvml.nvmlDeviceGetComputeRunningProcesses(card)
    nvml.nvmlDeviceGetGraphicsRunningProcesses(card)
    nvml.nvmlDeviceGetMPSComputeRunningProcesses(card)


def _vitals(nvml: Any, card: Any) -> None:
    nvml.nvmlDeviceGetRemappedRows(card)
    nvml.nvmlDeviceGetComputeMode(card)
    nvml.nvmlDeviceGetCurrentClocksEventReasons(card)
    nvml.nvmlDeviceGetTemperatureThreshold(card, 1)
    nvml.nvmlDeviceGetTotalEccErrors(card, 1, 0)
    nvml.nvmlDeviceGetFieldValues(card, [230])
    nvml.nvmlDeviceGetDisplayActive(card)


def _nvitop() -> Callable[[], object]:
    from nvitop import Device

    cards = Device.all()

    def sample() -> None:
        for card in cards:
            with card.oneshot():
                card.memory_info()
                card.utilization_rates()
                card.temperature()
                card.power_usage()
                assert card.processes()

    return sample


def _gpustat() -> Callable[[], object]:
    import gpustat

    return gpustat.new_query


def _calls_of(sample: Callable[[], object], tally: Tally) -> set[str]:
    with tally.counting(os.environ):
        for _ in range(ROUND):
            sample()
    return set(tally.calls())


def _main(reader: str, folder: str) -> None:
    sample = {"ours": _ours, "bare": _bare, "nvitop": _nvitop, "gpustat": _gpustat}[reader]()
    sample()
    if reader == "bare":
        ours, tally = _ours(), Tally(Path(folder))
        ours()
        differ = _calls_of(sample, tally) ^ _calls_of(ours, tally)
        assert not differ, f"no longer the same calls: {differ}"
    print(json.dumps(_each(sample)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
