"""Cards that strangers use, that are split anew, lost, hot or broken: told, kept from work, and back.

The broker is a real one, its driver the stand-in of `tests/nvml`, the processes on the cards are real ones too.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.client import Client
from jupyter_gpu.model import (
    AlertView,
    Ask,
    Condition,
    DeviceView,
    EndReason,
    JobSpec,
    Kind,
    State,
    SubmitBody,
    UseKind,
    WorkloadView,
)
from tests.nvml import boards
from tests.nvml.board import GIB, MIB, TEMPERATURE, Board, Card, consumer_card, mig_device
from tests.nvml.library import needs_standin
from tests.stories.scene import Broker, a_broker, this_process, until

from .test_users import accounts  # noqa: F401 - a fixture

pytestmark = [needs_standin, pytest.mark.timeout(180)]

UNTIL_GO = ("sh", "-c", "echo $$ > pid; echo $CUDA_VISIBLE_DEVICES >> on; while [ ! -e go ]; do sleep 0.05; done")
QUICK = {
    "kill_after_seconds": 1,
    "clear_seconds": 2,
    "back_off_seconds": 1,
    "hot_celsius": 85,
    "hot_seconds": 1,
    "suspect_seconds": 1,
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {"name": "training", "priority": 50, "kinds": ["job"], "preemptible": True, "grace_seconds": 1},
    ],
}


def two_cards(folder: Path) -> Board:
    """Two alike."""
    board = boards.four_alike(folder)
    del board.cards[2:]
    board.write()
    return board


@contextlib.contextmanager
def on(folder: Path, board: Board, **policy: object) -> Iterator[Broker]:
    """A broker on a board, which is well again before the broker ends."""
    with a_broker(folder / "b", devices=None, policy=QUICK | policy, board=board) as broker:
        try:
            until(lambda: any(it.sampled_at for it in broker.client.status().devices), "the cards are read")
            yield broker
        finally:
            for card in board.cards:
                card.come_back()
                card.processes.clear()
            board.write()


@contextlib.contextmanager
def a_process(user: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody leased anything to."""
    process = subprocess.Popen(["sleep", "600"], user=user)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def device(client: Client, card: Card) -> DeviceView:
    """One card as the broker shows it."""
    return next(it for it in client.status().devices if it.uuid == card.uuid)


def alerts(client: Client, group: str) -> list[AlertView]:
    """What operators are told now."""
    return [it for it in client.status().alerts if it.key.startswith(f"{group}:")]


def submit(
    client: Client, folder: Path, *, on: tuple[str, ...] = (), argv: tuple[str, ...] = UNTIL_GO, ask: Ask | None = None
) -> int:
    """A job on one device, which runs until it is told to go on unless it is another."""
    folder.mkdir()
    spec = JobSpec(argv=argv, folder=str(folder), environment={"PATH": os.environ["PATH"]})
    return client.submit(SubmitBody(kind=Kind.JOB, ask=ask or Ask(devices=1, on=on), spec=spec)).id


def running(client: Client, job: int) -> WorkloadView:
    """A job once it runs."""
    until(lambda: client.workload(job).started_at is not None, "the job runs")
    return client.workload(job)


def pid_of(folder: Path) -> int:
    """The main process of a job; that it has started is seen before it has said a word."""
    until(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip(), "the job has said its pid")
    return int((folder / "pid").read_text())


def ends_well(client: Client, job: int, folder: Path) -> None:
    """Let a job go on to its end."""
    (folder / "go").touch()
    assert client.wait(job, until="ended", timeout_seconds=60).end is EndReason.SUCCEEDED


def test_a_stranger_is_named_told_and_bars_the_card_until_it_has_left(tmp_path: Path) -> None:
    """Work goes to the other card; nobody is ended by a policy that warns; free again by itself."""
    board = two_cards(tmp_path)
    card, other = board.cards
    with on(tmp_path, board) as broker, a_process() as stranger:
        client = broker.client
        card.hold(stranger.pid, 3 * GIB)
        board.write()
        until(lambda: device(client, card).condition is Condition.FOREIGN, "the stranger is seen")
        until(lambda: alerts(client, "foreign"), "it is told")
        (use,) = device(client, card).uses
        assert (use.pid, use.kind, use.foreign, use.memory_bytes) == (stranger.pid, UseKind.USER, True, 3 * GIB)
        assert use.user == pwd.getpwuid(os.geteuid()).pw_name
        assert f"process {stranger.pid} (sleep) of {use.user}" in alerts(client, "foreign")[0].text
        job = submit(client, tmp_path / "job")
        assert running(client, job).devices == (other.uuid,)
        ends_well(client, job, tmp_path / "job")
        assert stranger.poll() is None
        card.release(stranger.pid)
        board.write()
        until(lambda: device(client, card).condition is None, "the card is free")
        assert alerts(client, "foreign") == []
        assert device(client, card).uses == ()


def test_maintenance_gives_nobody_a_card_on_which_somebody_is(tmp_path: Path) -> None:
    """Cordon and uncordon are no reading; one fact is one alert, and the next stranger there is another."""
    board = two_cards(tmp_path)
    card = board.cards[0]
    with on(tmp_path, board) as broker, a_process() as stranger:
        client = broker.client
        card.hold(stranger.pid, 3 * GIB)
        board.write()
        until(lambda: device(client, card).condition is Condition.FOREIGN, "the stranger is seen")
        client.cordon(card.uuid)
        job = submit(client, tmp_path / "job", on=(card.uuid,))
        after = client.uncordon(card.uuid)
        assert (after.cordoned, after.condition) == (False, Condition.FOREIGN)
        assert str(stranger.pid) in after.condition_detail
        assert client.workload(job).state is State.QUEUED
        until(lambda: alerts(client, "foreign"), "it is told")
        assert [it.device for it in client.status().alerts] == [card.uuid]
        card.release(stranger.pid)
        board.write()
        running(client, job)
        ends_well(client, job, tmp_path / "job")


def test_the_policy_ends_who_is_certain_and_nobody_else(tmp_path: Path, accounts: tuple[str, str]) -> None:  # noqa: F811
    """A user's process is asked to go after its notice; root's own stays, and the alert says why."""
    board = two_cards(tmp_path)
    card, other = board.cards
    with (
        on(tmp_path, board, foreign_use="end", foreign_seconds=2) as broker,
        a_process(accounts[0]) as theirs,
        a_process() as roots,
    ):
        client = broker.client
        card.hold(theirs.pid, 3 * GIB)
        other.hold(roots.pid, 3 * GIB)
        board.write()
        until(lambda: len(alerts(client, "foreign")) == 2, "both are told")
        assert theirs.poll() is None
        texts = {it.device: it.text for it in alerts(client, "foreign")}
        assert "It is ended at" in texts[card.uuid]
        assert "It is left alone: it is the machine's own." in texts[other.uuid]
        assert theirs.wait(20) == -signal.SIGTERM
        card.release(theirs.pid)
        board.write()
        until(lambda: device(client, card).condition is None, "the card is free")
        assert roots.poll() is None


def test_the_policy_ends_who_is_in_a_team_whose_rule_says_so(tmp_path: Path, accounts: tuple[str, str]) -> None:  # noqa: F811
    """Two strangers on one card: the student's is ended, and it is told by which rule; the other's stays."""
    board = two_cards(tmp_path)
    card = board.cards[0]
    student, other = accounts
    rules = [{"team": "students", "use": "end", "after_seconds": 2}, {"team": "staff", "use": "warn"}]
    # Who is in both is a student all the same.
    teams = {"students": [student], "staff": [student, other]}
    with (
        on(tmp_path, board, foreign_use="end", foreign_seconds=2, foreign_rules=rules, teams=teams) as broker,
        a_process(student) as theirs,
        a_process(other) as spared,
    ):
        client = broker.client
        card.hold(theirs.pid, 3 * GIB)
        card.hold(spared.pid, 2 * GIB)
        board.write()
        until(lambda: "the others are left alone" in "".join(it.text for it in alerts(client, "foreign")), "it is told")
        assert ", by the rule for team students;" in alerts(client, "foreign")[0].text
        assert theirs.wait(20) == -signal.SIGTERM
        until(lambda: alerts(client, "ended"), "it is told that it was ended")
        (told,) = alerts(client, "ended")
        assert told.text.startswith(f"Process {theirs.pid} (sleep) of {student} was asked to end at ")
        assert "(the rule for team students)" in told.text
        card.release(theirs.pid)
        board.write()
        until(lambda: [use.pid for use in device(client, card).uses] == [spared.pid], "the other is there alone")
        until(lambda: "Let its user end it" in alerts(client, "foreign")[0].text, "it is only told")
        assert spared.poll() is None


def test_a_job_outside_its_reservation_is_told(tmp_path: Path) -> None:
    """It was given one card and is on another as well: justanhduc/task-spooler#73."""
    board = two_cards(tmp_path)
    with on(tmp_path, board) as broker:
        client = broker.client
        job = submit(client, tmp_path / "job")
        (own,) = running(client, job).devices
        pid = pid_of(tmp_path / "job")
        for card in board.cards:
            card.hold(pid, GIB)
        board.write()
        until(lambda: alerts(client, "astray"), "it is told")
        kinds = {it.uuid: [use.kind for use in it.uses] for it in client.status().devices}
        assert kinds == {card.uuid: [UseKind.HOLDER if card.uuid == own else UseKind.ASTRAY] for card in board.cards}
        assert alerts(client, "foreign") == []
        assert "outside its reservation" in client.workload(job).reason
        for card in board.cards:
            card.release(pid)
        board.write()
        until(lambda: not alerts(client, "astray"), "it is over")
        ends_well(client, job, tmp_path / "job")


def test_memory_of_a_dead_process_bars_the_card_and_says_what_helps(tmp_path: Path) -> None:
    """The driver counts on for a pid that is no more."""
    board = two_cards(tmp_path)
    card = board.cards[0]
    with on(tmp_path, board) as broker:
        client = broker.client
        with a_process() as process:
            pass
        card.hold(process.pid, 2 * GIB)
        board.write()
        until(lambda: device(client, card).condition is Condition.NOT_CLEAR, "it is seen")
        assert "gpu-reset" in device(client, card).condition_detail
        until(lambda: [use.kind for use in device(client, card).uses] == [UseKind.DEAD], "it is shown")
        card.release(process.pid)
        board.write()
        until(lambda: device(client, card).condition is None, "the card is free")


def test_a_card_that_is_split_anew_under_a_job_sends_it_elsewhere(tmp_path: Path) -> None:
    """Its MIG device is gone: lost to that, started anew on one that is there; the new one is seen at once.

    The old one is listed no more once nobody holds it: its UUID never comes back.
    """
    board = boards.a100_in_slices(tmp_path)
    card = board.cards[0]
    with on(tmp_path, board) as broker:
        client = broker.client
        job = submit(client, tmp_path / "job")
        (first,) = running(client, job).devices
        slot = next(slot for slot, mig in card.slots.items() if mig.uuid == first)
        del card.slots[slot]
        fresh = mig_device(card, slot, "2g.10gb", memory_bytes=9856 * MIB, gpu_instance=30)
        board.write()
        until(lambda: any(it.uuid == fresh.uuid for it in client.status().devices), "the new one is seen", seconds=20)
        until(lambda: client.workload(job).attempt == 2 and running(client, job), "the job runs elsewhere")
        assert client.workload(job).devices != (first,)
        until(lambda: all(it.uuid != first for it in client.status().devices), "the old one is forgotten", seconds=20)
        assert next(it.devices for it in client.events(job) if it.event == "granted") == (first,)
        assert alerts(client, "device") == []  # somebody did that, and the card is there
        ends_well(client, job, tmp_path / "job")
        assert len((tmp_path / "job" / "on").read_text().split()) == 2


def test_a_lost_card_costs_its_own_work_a_start_and_nobody_else_anything(tmp_path: Path) -> None:
    """The job goes on elsewhere, who reserved is told, the other job notices nothing: rossumai/nvgpu#6."""
    board = boards.four_alike(tmp_path)
    with on(tmp_path, board) as broker:
        client = broker.client
        card, reserved, other = board.cards[:3]
        jobs = [submit(client, tmp_path / f"job{n}", on=(it.uuid,)) for n, it in enumerate((other,))]
        lost = submit(client, tmp_path / "lost")
        first = next(it for it in board.cards if it.uuid == running(client, lost).devices[0])
        ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, duration_seconds=600), holder=this_process())
        held = client.wait(client.submit(ask).id, until="active", timeout_seconds=30)
        mine = next(it for it in board.cards if it.uuid == held.devices[0])
        first.lose()
        board.write()
        until(lambda: client.workload(lost).attempt == 2, "the job runs elsewhere")
        assert first.uuid not in running(client, lost).devices
        until(lambda: [it.device for it in alerts(client, "device")] == [first.uuid], "it is told")
        mine.lose()
        board.write()
        until(lambda: alerts(client, "holder"), "who reserved is told")
        assert [(it.workload, it.device) for it in alerts(client, "holder")] == [(held.id, mine.uuid)]
        assert client.workload(jobs[0]).attempt == 1
        first.come_back()
        mine.come_back()
        board.write()
        until(lambda: device(client, first).condition is None, "the card is back")
        assert {card.uuid, reserved.uuid} <= {it.uuid for it in board.cards}
        ends_well(client, lost, tmp_path / "lost")
        ends_well(client, jobs[0], tmp_path / "job0")


def test_a_hot_card_gets_no_new_work_until_it_has_cooled_down(tmp_path: Path) -> None:
    """What runs there goes on."""
    board = two_cards(tmp_path)
    with on(tmp_path, board) as broker:
        client = broker.client
        job = submit(client, tmp_path / "job")
        (uuid,) = running(client, job).devices
        card = next(it for it in board.cards if it.uuid == uuid)
        card[TEMPERATURE] = 91
        board.write()
        until(lambda: device(client, card).condition is Condition.HOT, "it is seen")
        assert "91 °C" in device(client, card).condition_detail
        assert client.workload(job).state is State.ACTIVE
        card[TEMPERATURE] = 60
        board.write()
        until(lambda: device(client, card).condition is None, "it has cooled down")
        ends_well(client, job, tmp_path / "job")
        card["utilisation"] = 100
        board.write()
        until(lambda: device(client, card).condition is Condition.SUSPECT, "load without owner is seen")
        card["utilisation"] = 0
        board.write()
        until(lambda: device(client, card).condition is None, "it is well")


def test_a_grave_error_moves_the_job_off_and_an_operator_brings_the_card_back(tmp_path: Path) -> None:
    """Xid 48 asks for a reset, Xid 13 is the program's own, Xid 79 is a card that has gone."""
    board = two_cards(tmp_path)
    with on(tmp_path, board) as broker:
        client = broker.client
        job = submit(client, tmp_path / "job")
        (uuid,) = running(client, job).devices
        card = next(it for it in board.cards if it.uuid == uuid)
        other = next(it for it in board.cards if it is not card)
        board.report(card, 13)
        board.report(card, 48)
        until(lambda: device(client, card).condition is Condition.FAULTY, "it is seen")
        assert "Xid 48" in device(client, card).condition_detail
        until(lambda: client.workload(job).attempt == 2, "the job runs elsewhere")
        assert running(client, job).devices == (other.uuid,)
        assert device(client, card).condition is Condition.FAULTY
        client.uncordon(card.uuid)
        until(lambda: device(client, card).condition is None, "an operator says that it is well")
        board.report(card, 79)
        until(lambda: device(client, card).condition is Condition.LOST, "it is gone")
        until(lambda: device(client, card).condition is None, "it can be read, so it is there")
        assert client.workload(job).attempt == 2
        ends_well(client, job, tmp_path / "job")


def test_of_two_on_one_card_the_one_above_its_part_is_told_and_then_evicted(tmp_path: Path) -> None:
    """Each is known by its own processes; the other is not touched."""
    board = boards.one_a100(tmp_path)
    card = board.cards[0]
    with on(tmp_path, board, sharing=[{"slack_bytes": 0, "evict_after_seconds": 2}]) as broker:
        client = broker.client
        part = Ask(devices=1, memory_bytes=4 * GIB)
        greedy, modest = (submit(client, tmp_path / name, ask=part) for name in ("greedy", "modest"))
        assert {running(client, it).devices for it in (greedy, modest)} == {(card.uuid,)}
        pids = {name: pid_of(tmp_path / name) for name in ("greedy", "modest")}
        card.hold(pids["greedy"], 6 * GIB)
        card.hold(pids["modest"], 4 * GIB)
        board.write()
        until(lambda: alerts(client, "share"), "it is told")
        assert [it.workload for it in alerts(client, "share")] == [greedy]
        assert "--memory 6GiB" in client.workload(greedy).reason
        assert {use.workload: use.memory_bytes for use in device(client, card).uses} == {
            greedy: 6 * GIB,
            modest: 4 * GIB,
        }
        until(lambda: client.workload(greedy).state is not State.ACTIVE, "it is evicted")
        card.release(pids["greedy"])
        board.write()
        ended = client.wait(greedy, until="ended", timeout_seconds=60)
        assert "its part is 4GiB" in ended.detail
        assert client.workload(modest).state is State.ACTIVE
        assert alerts(client, "share") == []
        ends_well(client, modest, tmp_path / "modest")


#: Dies as programs die of a card's memory, on the card whose UUID stands in a file beside its folder.
DIES_THERE = (
    "sh",
    "-c",
    (
        'if [ "$CUDA_VISIBLE_DEVICES" = "$(cat ../bad)" ]; then '
        "echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1; fi"
    ),
)


@pytest.mark.parametrize("has_counter", [False, True])
def test_a_board_on_which_job_after_job_dies_is_taken_out_of_use(tmp_path: Path, has_counter: bool) -> None:
    """Each goes elsewhere at no cost of its own, and after three the board gets no more: MFlowCode/MFC#1748.

    A card whose own counter says that nothing happened stays: anybody can print such words.
    """
    cards = [consumer_card(number, "NVIDIA GeForce RTX 4090", 24 * GIB) for number in range(2)]
    board = two_cards(tmp_path) if has_counter else Board(tmp_path, *cards)
    with on(tmp_path, board) as broker:
        client = broker.client
        bad = _first_card(client, tmp_path)
        (tmp_path / "bad").write_text(bad)
        for number in range(3):
            job = submit(client, tmp_path / f"job{number}", argv=DIES_THERE)
            it = client.wait(job, until="ended", timeout_seconds=60)
            assert (it.end, it.attempt, it.failures) == (EndReason.SUCCEEDED, 2, 0)
        if has_counter:
            later = client.status().at + 3
            until(lambda: client.status().at > later, "samples have come")
            assert {it.condition for it in client.status().devices} == {None}
            return
        until(lambda: [it.device for it in alerts(client, "device")] == [bad], "it is told")
        shown = next(it for it in client.status().devices if it.uuid == bad)
        assert shown.condition is Condition.FAULTY
        assert "3 jobs in a row" in shown.condition_detail
        it = client.wait(submit(client, tmp_path / "last", argv=DIES_THERE), until="ended", timeout_seconds=60)
        assert (it.end, it.attempt) == (EndReason.SUCCEEDED, 1)


def _first_card(client: Client, folder: Path) -> str:
    """The card that the next job will get."""
    probe = submit(client, folder / "probe")
    (uuid,) = running(client, probe).devices
    ends_well(client, probe, folder / "probe")
    return uuid
