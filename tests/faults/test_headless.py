"""Who ends its main thread alone frees nothing and escapes nothing: cancel, time limit, end of a reservation, policy.

Threads go on with the memory and the GPUs of a process that /proc shows as a zombie.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import procs
from jupyter_gpu.client import Client
from jupyter_gpu.model import Ask, EndReason, Holder, Kind, State, SubmitBody, UseKind
from tests.engines.test_headless import HEADLESS
from tests.nvml.board import GIB
from tests.nvml.library import needs_standin
from tests.stories.scene import until

from .test_sick_devices import alerts, device, on, running, submit, two_cards
from .test_users import accounts  # noqa: F401 - a fixture

pytestmark = [needs_standin, pytest.mark.timeout(120)]

PYTHON = ("/usr/bin/python3", "-I", "-S", "-u", "-c", HEADLESS)


@contextlib.contextmanager
def a_headless_process(user: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """One of that kind, which nobody started for the broker."""
    with subprocess.Popen(PYTHON, user=user, stdout=subprocess.PIPE, env={}) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def in_time(process: subprocess.Popen[bytes]) -> int:
    """Wait until it has been ended; by which signal."""
    return -process.wait(30)


def said_its_pid(client: Client, job: int) -> int:
    """The pid that a job has told once its main thread had ended."""
    until(lambda: b"pid " in client.log(job), "its main thread has ended")
    return int(client.log(job).split()[1])


@pytest.mark.parametrize("limit_seconds", [None, 3])
def test_a_job_ends_when_it_is_cancelled_and_when_its_time_is_over(tmp_path: Path, limit_seconds: int | None) -> None:
    """Its cards are free then, and nothing of it lives."""
    board = two_cards(tmp_path)
    with on(tmp_path, board) as broker:
        client = broker.client
        ask = Ask(devices=2, duration_seconds=limit_seconds)
        job = submit(client, tmp_path / "job", argv=PYTHON, ask=ask)
        running(client, job)
        pid = said_its_pid(client, job)
        if limit_seconds is None:
            client.cancel(job)
        outcome = client.wait(job, until="ended", timeout_seconds=30)
        assert outcome.end is (EndReason.CANCELLED if limit_seconds is None else EndReason.TIMED_OUT)
        assert procs.find(pid) is None
        assert all(not device(client, card).workloads for card in board.cards)


def test_a_reservation_lasts_while_its_holder_does_and_ends_it(tmp_path: Path) -> None:
    """It is not released early, so that nobody else gets the card that its threads are on."""
    board = two_cards(tmp_path)
    card = board.cards[0]
    with on(tmp_path, board) as broker, a_headless_process() as holder:
        client = broker.client
        me = procs.find(holder.pid)
        assert me is not None
        who = Holder(kind="command", name="x", pid=me.pid, start_ticks=me.start_ticks, boot_id=procs.boot_id())
        card.hold(holder.pid, GIB)
        ask = Ask(devices=1, duration_seconds=600, on=(card.uuid,))
        held = client.submit(SubmitBody(kind=Kind.RESERVATION, ask=ask, holder=who)).id
        board.write()
        until(lambda: [use.kind for use in device(client, card).uses] == [UseKind.HOLDER], "its use is seen")
        assert client.workload(held).state is State.ACTIVE
        client.cancel(held)
        assert in_time(holder) in (signal.SIGTERM, signal.SIGKILL)
        card.release(holder.pid)
        board.write()
        assert client.wait(held, until="ended", timeout_seconds=30).state is State.ENDED


def test_a_squatter_is_named_and_ended_by_the_policy(tmp_path: Path, accounts: tuple[str, str]) -> None:  # noqa: F811
    """As any other stranger: by its user, with its notice."""
    board = two_cards(tmp_path)
    card = board.cards[0]
    with (
        on(tmp_path, board, foreign_use="end", foreign_seconds=2) as broker,
        a_headless_process(accounts[0]) as squatter,
    ):
        client = broker.client
        card.hold(squatter.pid, 3 * GIB)
        board.write()
        until(lambda: alerts(client, "foreign"), "it is told")
        text = alerts(client, "foreign")[0].text
        assert f"of {accounts[0]}" in text
        assert "It is ended at" in text
        assert in_time(squatter) == signal.SIGTERM
        card.release(squatter.pid)
        board.write()
        until(lambda: device(client, card).condition is None, "the card is free")
