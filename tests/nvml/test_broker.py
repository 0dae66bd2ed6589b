"""A whole broker on a board whose driver fails under it: who runs goes on, nobody starts on what is not there."""

import contextlib
import os
import time

import pytest

from jupyter_gpu.model import Ask, Condition, EndReason, JobSpec, Kind, State, SubmitBody
from tests.stories.scene import a_broker, this_process, until

from . import boards
from .library import needs_standin

pytestmark = [needs_standin, pytest.mark.story, pytest.mark.timeout(180)]

UNTIL_GO = ("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; echo $CUDA_VISIBLE_DEVICES")


def submit(client, folder, argv=UNTIL_GO, *, devices=1):
    """Hand in a job that works in a folder of its own."""
    folder.mkdir()
    spec = JobSpec(argv=argv, folder=str(folder), environment={"PATH": os.environ["PATH"]})
    return client.submit(SubmitBody(kind=Kind.JOB, ask=Ask(devices=devices), spec=spec)).id


def conditions(client):
    """What is wrong with each GPU, by its index."""
    return {it.index: it.condition for it in client.status().devices}


@contextlib.contextmanager
def on(tmp_path, board):
    """A broker on this board; both are well again, and the jobs let go, before it ends, whatever became of the test."""
    with a_broker(tmp_path / "b", devices=None, policy={}, board=board) as broker:
        try:
            yield broker
        finally:
            board.fails.clear()
            board.hangs.clear()
            board.write()
            for folder in tmp_path.glob("*ing?"):
                (folder / "go").touch()


def ends_well(client, *jobs):
    """Wait until these jobs are through."""
    ended = [client.wait(it, until="ended", timeout_seconds=60) for it in jobs]
    assert [it.end for it in ended] == [EndReason.SUCCEEDED] * len(jobs), [it.detail for it in ended]
    return ended


def test_one_lost_card_leaves_status_and_the_others_as_they_are(tmp_path):
    """The page is there, with three healthy cards and one that is lost and given to nobody (rossumai/nvgpu#6)."""
    board = boards.four_alike(tmp_path)
    with on(tmp_path, board) as broker:
        client = broker.client
        assert conditions(client) == dict.fromkeys(range(4))
        board.cards[2].lose()
        board.write()
        until(lambda: conditions(client)[2], "the card is seen to be lost")

        assert conditions(client) == {0: None, 1: None, 2: Condition.LOST, 3: None}
        readings = [it.memory_total_bytes for it in client.status().devices if it.index != 2]
        assert readings == [board.cards[0]["memory_total"]] * 3
        ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=3, duration_seconds=600), holder=this_process())
        held = client.wait(client.submit(ask).id, until="active", timeout_seconds=30)
        assert board.cards[2].uuid not in held.devices
        client.release(held.id)
        assert "lost" in broker.cli("devices")
        board.cards[2].come_back()
        board.write()
        until(lambda: conditions(client)[2] is None, "the card is back")


def test_a_driver_that_was_updated_under_jobs_ends_none_and_starts_none(tmp_path):
    """Two run and three wait, with the reason and at no cost; all by itself it goes on (lyulyul/shine-cluster#30)."""
    board = boards.four_alike(tmp_path)
    del board.cards[2:]
    board.write()
    with on(tmp_path, board) as broker:
        client = broker.client
        running = [submit(client, tmp_path / f"running{it}") for it in range(2)]
        for it in running:
            client.wait(it, until="active", timeout_seconds=30)
        board.fails["*"] = boards.MISMATCH
        board.write()
        until(lambda: any("was updated" in it for it in client.status().warnings), "the driver is seen to be gone")
        waiting = [submit(client, tmp_path / f"waiting{it}", ("true",)) for it in range(3)]
        (tmp_path / "running0" / "go").touch()
        until(lambda: client.workload(running[0]).state is not State.ACTIVE, "the program of the first is through")

        assert client.workload(running[1]).state is State.ACTIVE
        seen = client.status()
        assert {it.condition for it in seen.devices} <= {None, Condition.UNREADABLE}
        # Several rounds of the scheduler and of the sampler, in which nothing may start.
        later = seen.at + 3
        until(lambda: client.status().at > later, "time has passed")
        views = [client.workload(it) for it in waiting]
        assert [(it.state, it.attempt, it.failures) for it in views] == [(State.QUEUED, 0, 0)] * 3
        assert all("No GPU can be read" in it.reason for it in views), [it.reason for it in views]
        assert client.workload(running[1]).state is State.ACTIVE

        board.fails.clear()
        board.write()
        ends_well(client, running[0], *waiting)
        assert not any("was updated" in it for it in client.status().warnings)
        (tmp_path / "running1" / "go").touch()
        ends_well(client, running[1])


@pytest.mark.parametrize("make", ["mismatched", "not_loaded", "no_driver"])
def test_a_broker_begins_without_a_driver(tmp_path, make):
    """It answers, says what is the matter, and takes no harm; a job without a GPU is none of the driver's business."""
    board = boards.ALL[make](tmp_path)
    with on(tmp_path, board) as broker:
        seen = broker.client.status()

        assert seen.devices == ()
        assert seen.warnings


def test_a_driver_that_takes_long_to_open_holds_up_no_answer(tmp_path):
    """The page is there at once; the cards come when the driver does (NVIDIA/nvidia-container-toolkit#1053).

    What is asked for meanwhile is taken and waits.
    """
    board = boards.four_alike(tmp_path)
    board.hangs.add("nvmlInitWithFlags")
    board.write()
    with on(tmp_path, board) as broker:
        client = broker.client
        begun = time.monotonic()
        assert any("is starting" in it for it in client.status().warnings)
        assert time.monotonic() - begun < 2
        assert client.status().devices == ()
        job = submit(client, tmp_path / "waiting0", ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES"))
        assert client.workload(job).state is State.QUEUED
        board.hangs.clear()
        board.write()
        until(lambda: len(client.status().devices) == 4, "the cards are there", seconds=90)
        ends_well(client, job)
