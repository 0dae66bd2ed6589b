"""The story of cards as they are: one falls off the bus, one is used by somebody without a lease, one is in pieces.

The broker, the trainings and the stranger are real; the cards are a stand-in for the driver's own library.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.client import Client
from jupyter_gpu.errors import LimitExceeded
from jupyter_gpu.model import Ask, Condition, DeviceView, JobSpec, Kind, SubmitBody, WorkloadView
from tests.nvml import boards
from tests.nvml.board import GIB

from .preempt_and_resume import named
from .scene import SIGTERM_ONLY, Script, a_broker, steps_in, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]


def test_a_card_that_falls_off_the_bus_takes_nobody_else_with_it(tmp_path: Path) -> None:
    """Its job goes on elsewhere from its last checkpoint, the other does not notice, and the card comes back by itself.

    rossumai/nvgpu#6, leptonai/gpud#810
    """
    board = boards.four_alike(tmp_path)
    with a_broker(tmp_path / "b", devices=None, policy={}, board=board) as broker:
        client = broker.client
        jobs = [train(client, tmp_path / name, SIGTERM_ONLY) for name in ("struck", "spared")]
        for job, name in zip(jobs, ("struck", "spared"), strict=True):
            client.wait(job.id, until="active", timeout_seconds=30)
            until(lambda name=name: len(steps_in(tmp_path / name / "ran.jsonl")) >= 5, "the training makes steps")
        struck = client.workload(jobs[0].id).devices[0]

        card = next(it for it in board.cards if it.uuid == struck)
        card.lose()
        board.write()
        elsewhere = client.wait(jobs[0].id, until="ended", timeout_seconds=90)
        spared = client.wait(jobs[1].id, until="ended", timeout_seconds=90)
        lost = device(client, struck)
        printed = broker.cli("devices")
        card.come_back()
        board.write()
        until(lambda: device(client, struck).condition is None, "the card is well again")
        history = [named(event) for event in client.events(elsewhere.id)]

    assert history == [
        "submitted", "granted", "started (1)", "evicted (device-lost)", "released", "requeued",
        "granted", "started (2)", "released", "ended (succeeded)",
    ]  # fmt: skip
    assert elsewhere.failures == 0  # the card's fault is not the job's
    assert spared.attempt == 1
    # What it had saved was not done again: the log of steps has no gap and no double.
    assert [step for _, step in steps_in(tmp_path / "struck" / "steps.jsonl")] == list(range(1, STEPS + 1))
    assert lost.condition is Condition.LOST
    assert "lost" in printed


def test_who_has_no_lease_is_seen_named_and_waited_for(tmp_path: Path) -> None:
    """A process outside the queue makes its card not free; when it has gone, who waited for the card gets it."""
    board = boards.four_alike(tmp_path)
    wanted = board.cards[2]
    with a_broker(tmp_path / "b", devices=None, policy={}, board=board) as broker, a_stranger() as stranger:
        client = broker.client
        wanted.hold(stranger.pid, 30 * GIB)
        board.write()
        until(lambda: device(client, wanted.uuid).condition is Condition.FOREIGN, "the stranger is seen")
        seen = device(client, wanted.uuid)
        printed = broker.cli("status")
        ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=4, duration_seconds=300), holder=this_process())
        waits = client.submit(ask)

        wanted.release(stranger.pid)
        board.write()
        granted = client.wait(waits.id, until="active", timeout_seconds=30)
        client.release(granted.id)

    assert [(use.pid, use.foreign) for use in seen.uses] == [(stranger.pid, True)]
    assert str(stranger.pid) in seen.condition_detail
    assert "used without a lease" in printed
    assert waits.state == "queued"
    assert wanted.uuid in granted.devices


def test_a_card_in_pieces_is_reserved_by_the_piece(tmp_path: Path) -> None:
    """MIG devices stand under their card, one is had by its class, and two for one process are refused with the reason.

    XuehaiPan/nvitop#5, pytorch/pytorch#102715
    """
    board = boards.h100_mixed(tmp_path)
    with a_broker(tmp_path / "b", devices=None, policy={}, board=board) as broker:
        client = broker.client
        printed = broker.cli("devices")
        folder = tmp_path / "piece"
        folder.mkdir()
        show = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
        job = client.submit(
            SubmitBody(
                kind=Kind.JOB,
                ask=Ask(device_class="mig-3g.40gb"),
                spec=JobSpec(argv=(sys.executable, "-c", show), folder=str(folder)),
            )
        )
        done = client.wait(job.id, until="ended", timeout_seconds=30)
        log = broker.cli("log", str(job.id))
        with pytest.raises(LimitExceeded, match="MIG"):
            client.submit(SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=2, device_class="mig-3g.40gb")))

    piece = board.cards[1].slots[0]
    assert "1:0" in printed
    assert "1:3" in printed
    assert done.end == "succeeded"
    assert log.strip().endswith(piece.uuid)


STEPS = 60


def train(client: Client, folder: Path, script: Script) -> WorkloadView:
    """Submit a training that takes some seconds."""
    folder.mkdir()
    argv = script.argv(folder, steps=STEPS, step_seconds=0.05)
    return client.submit(SubmitBody(kind=Kind.JOB, ask=Ask(), spec=JobSpec(argv=tuple(argv), folder=str(folder))))


def device(client: Client, uuid: str) -> DeviceView:
    """One device as it is shown now."""
    return next(it for it in client.status().devices if it.uuid == uuid)


def a_stranger() -> subprocess.Popen[bytes]:
    """A process that somebody has started beside the queue; it leaves when its input is closed."""
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
