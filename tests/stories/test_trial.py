"""The story of a trial: a real broker, two stand-ins for the driver's libraries, and the program as people run it.

Each free card is reserved and computes; one gives a wrong result; one is in use and left alone; all are given back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.cli.doctor import Checkup
from jupyter_gpu.model import Ask, Kind, State, SubmitBody
from tests.cli.trial.library import build, needs_compiler
from tests.nvml import boards

from .scene import Broker, a_broker, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180), needs_compiler]


def checkup(broker: Broker, *words: str, **environ: str) -> tuple[int, Checkup]:
    """Run `jupyter gpu doctor --json` as a person would, and give its exit code and what it found."""
    argv = [sys.executable, "-m", "jupyter_gpu.cli", "doctor", "--json", *words]
    done = subprocess.run(
        argv, env=broker.environment | environ, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, msgspec.json.decode(done.stdout, type=Checkup)


def test_each_free_card_is_tried_and_given_back(tmp_path: Path) -> None:
    """A sound lab passes; a card that copies wrongly fails; what somebody holds is not touched."""
    board = boards.four_alike(tmp_path)
    cuda = tmp_path / "cuda"
    cuda.mkdir()
    build(cuda)
    with a_broker(tmp_path / "b", devices=None, policy={}, board=board) as broker:
        found = os.pathsep.join([str(cuda), broker.environment["LD_LIBRARY_PATH"]])
        broker = replace(broker, environment=broker.environment | {"LD_LIBRARY_PATH": found})  # noqa: PLW2901
        client = broker.client
        ask = Ask(devices=1, on=(board.cards[3].uuid,), duration_seconds=600)
        held = client.submit(SubmitBody(kind=Kind.RESERVATION, ask=ask, holder=this_process()))
        until(lambda: client.workload(held.id).state is State.ACTIVE, "the fourth card is held")

        _, sound = checkup(broker, "--trial", "--seconds", "1")
        code, sick = checkup(broker, "--trial", "--seconds", "1", CUDA_STANDIN_SPOIL="5")
        after = client.status()
        works = [it for it in client.workloads(ended=True) if it.name == "doctor --trial"]

    tried, left = sound.trials[:3], sound.trials[3]
    assert {it.state for it in tried} <= {"ok", "warn"}  # this machine may be busy, and then one is slower
    assert all(it.unit == "GB/s" and (it.speed or 0) > 0 for it in tried)
    assert all(it.temperature_celsius is not None for it in tried)  # as the board has it
    assert left.text == "not tried: it is in use"
    assert code == 1
    assert [it.state for it in sick.trials] == ["fail", "fail", "fail", "ok"]
    assert all("it computes wrongly: 1 of " in it.text for it in sick.trials[:3])
    assert [it.condition for it in after.devices] == [None] * 4
    assert [it.workloads for it in after.devices] == [(), (), (), (held.id,)]
    assert [it.end for it in works] == ["released"] * 6


def test_doctor_names_what_reads_the_cards(tmp_path: Path) -> None:
    """Driver, library, bindings with file and version (rossumai/nvgpu#29), a sick card, and one without MIG devices."""
    board = boards.h100_mixed(tmp_path)
    board.cards[0].lose()
    board.write()
    with a_broker(tmp_path / "b", devices=None, policy={}, board=board) as broker:
        until(lambda: broker.client.broker().driver is not None, "the driver has been asked")
        _, found = checkup(broker)
        printed = broker.cli("devices")

    checks = {check.name: check for check in found.checks}
    assert "pynvml.py (nvidia-ml-py " in checks["driver"].text
    assert "driver " in checks["driver"].text
    assert "MIG mode without MIG devices" in checks["GPU 2"].text, checks
    assert "MIG mode without MIG devices" in " ".join(printed.split())
    assert all(check.remedy for check in found.checks if check.state == "fail")
