"""What is promised for later, with a real broker: a course that comes, one that does not, and who must come in time."""

from __future__ import annotations

import getpass
import json
import sys
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.model import Ask, EndReason, EventView, HoldView, JobSpec, Kind, State, SubmitBody, WorkloadView

from .preempt_and_resume import named
from .scene import Broker, a_broker, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

ME = getpass.getuser()
GRACE_SECONDS, KILL_AFTER_SECONDS = 4, 1
#: From notice to a clear device.
NOTICE_SECONDS = GRACE_SECONDS + KILL_AFTER_SECONDS
POLICY: dict[str, object] = {
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {
            "name": "training",
            "priority": 50,
            "kinds": ["job"],
            "preemptible": True,
            "protected_seconds": 0,
            "grace_seconds": GRACE_SECONDS,
        },
    ],
    "kill_after_seconds": KILL_AFTER_SECONDS,
    # One person is in both: what their work counts for says whether the course's hold is for it.
    "teams": {"ml101": [ME], "vision": [ME]},
}
#: It leaves at its notice, as a training that has saved.
YIELDS = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done")
#: Time enough to be told a grace before, on a busy machine as well.
SOON = f"+{NOTICE_SECONDS + 5}s"
#: How it went with a training that made room and came back.
MADE_ROOM = ["submitted", "granted", "started (1)", "evicted (preempted)", "released", "requeued", "granted"]


def a_training(broker: Broker, folder: Path) -> int:
    """A job of others than the course that runs until it is told to leave."""
    spec = JobSpec(argv=YIELDS, folder=str(folder))
    return broker.client.submit(SubmitBody(kind=Kind.JOB, ask=Ask(), spec=spec, team="vision")).id


def trainings(broker: Broker, folder: Path, count: int) -> list[int]:
    """So many, once they have started."""
    ids = [a_training(broker, folder) for _ in range(count)]
    until(lambda: all(broker.client.workload(id_).started_at for id_ in ids), "the trainings have started")
    return ids


def a_seat(broker: Broker) -> WorkloadView:
    """Somebody of the course takes a GPU."""
    ask = Ask(duration_seconds=600)
    body = SubmitBody(kind=Kind.RESERVATION, ask=ask, holder=this_process(), team="ml101")
    return broker.client.submit(body)


def hold(broker: Broker, *words: str) -> HoldView:
    """Withhold GPUs for the course, as an operator does."""
    argv = ("hold", "add", "ml101", "--for-team", "ml101", "--from", SOON, *words, "--json")
    return msgspec.convert(json.loads(broker.cli(*argv)), HoldView)


def seen(broker: Broker, id_: int) -> HoldView:
    """How it stands, as `jupyter gpu hold` tells it."""
    return next(it for it in broker.client.holds() if it.id == id_)


def until_at(broker: Broker, at: float, what: str) -> None:
    """Wait until an instant has come on the broker's clock."""
    until(lambda: broker.client.status().at >= at, what)


def alerts(broker: Broker) -> str:
    """What its owner is told."""
    return " ".join(it.text for it in broker.client.status().alerts)


def went(broker: Broker, id_: int) -> list[EventView]:
    """What happened to it."""
    return list(broker.client.events(id_))


def waits_for_hold(broker: Broker, ids: list[int]) -> bool:
    """Whether they are in line for no other reason."""
    its = [broker.client.workload(id_) for id_ in ids]
    return all((it.state, it.waiting) == (State.QUEUED, "hold") for it in its)


def test_a_course_that_comes_keeps_its_gpus_to_the_end_of_its_time(tmp_path: Path) -> None:
    """Trainings leave a grace before; who came keeps all GPUs, also after leaving; then they go on."""
    with a_broker(tmp_path / "lab", devices=2, policy=POLICY) as broker:
        others = trainings(broker, tmp_path, 2)
        it = hold(broker, "--to", "+10m", "--devices", "2", "--no-show", "2s")
        begin = it.from_at or 0.0
        until(lambda: waits_for_hold(broker, others), "others have left for the course")
        for events in (went(broker, id_) for id_ in others):
            (told,) = (event.at for event in events if event.event == "evicted")
            assert begin - NOTICE_SECONDS - 1 <= told < begin, "neither earlier than needed nor too late"

        until_at(broker, begin, "the course begins")
        seat = a_seat(broker)
        assert seat.state is State.ACTIVE
        until_at(broker, begin + 3, "nobody could say any more that they did not come")
        assert not seen(broker, it.id or 0).given_back
        broker.client.release(seat.id)
        broker.client.wait(seat.id, until="ended", timeout_seconds=60)
        assert waits_for_hold(broker, others), "who came may come back"
        assert "ml101, for you" in broker.cli("hold")

        assert "goes to the line" in broker.cli("hold", "remove", str(it.id))
        until(lambda: all(broker.client.workload(id_).attempt == 2 for id_ in others), "the trainings go on")
        assert [[named(event) for event in went(broker, id_)][:7] for id_ in others] == [MADE_ROOM, MADE_ROOM]


def test_a_course_that_does_not_come_gives_its_gpus_back(tmp_path: Path) -> None:
    """Not before the stated time; then the training that made room for it goes on, and everybody can read why."""
    with a_broker(tmp_path / "lab", devices=1, policy=POLICY) as broker:
        (training,) = trainings(broker, tmp_path, 1)
        it = hold(broker, "--to", "+10m", "--devices", "1", "--no-show", "2s")

        until(lambda: broker.client.workload(training).attempt == 2, "the training goes on")
        events = went(broker, training)
        assert [named(event) for event in events][:7] == MADE_ROOM
        assert events[6].at >= (it.from_at or 0.0) + 2, "until then they could have come"
        assert seen(broker, it.id or 0).given_back
        assert "given back" in broker.cli("hold")
        assert a_seat(broker).state is State.QUEUED, "who comes after that stands in line"


def test_a_reservation_for_later_is_there_at_its_time(tmp_path: Path) -> None:
    """A training works until a grace before and goes on afterwards; who reserved takes it, and gives the rest back."""
    with a_broker(tmp_path / "lab", devices=1, policy=POLICY) as broker:
        (training,) = trainings(broker, tmp_path, 1)
        it = json.loads(broker.cli("reserve", "1", "--at", SOON, "--for", "10m", "--team", "vision", "--json"))
        number, begin = int(it["id"]), float(it["not_before"])
        assert broker.client.workload(training).state is State.ACTIVE

        said = broker.cli("wait", str(number))
        assert f"eservation {number}" in said
        mine = broker.client.workload(number)
        assert (mine.state, mine.ends_at) == (State.ACTIVE, begin + 600)
        assert next(event.at for event in went(broker, number) if event.event == "granted") >= begin
        (told,) = (event.at for event in went(broker, training) if event.event == "evicted")
        assert begin - NOTICE_SECONDS - 1 <= told < begin

        broker.cli("release", str(number))
        until(lambda: broker.client.workload(training).attempt == 2, "the training goes on")
        assert [named(event) for event in went(broker, training)][:7] == MADE_ROOM


def test_who_does_not_come_when_it_is_their_turn_is_passed_over(tmp_path: Path) -> None:
    """The GPU waits for them for the stated time, as they are told; then the next one gets it, and they read why."""
    heard = tmp_path / "heard"
    keep = f"import sys; open({str(heard)!r}, 'a').write(sys.stdin.read())"
    folder = tmp_path / "lab" / "config"
    folder.mkdir(parents=True)
    words = {"GpuBroker": {"notify_command": [sys.executable, "-c", keep]}}
    (folder / "jupyter_gpu_config.json").write_text(json.dumps(words))
    with a_broker(tmp_path / "lab", devices=1, policy=POLICY | {"attach_seconds": 4}) as broker:
        first = a_seat(broker)
        absent = broker.client.submit(SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=600))).id
        training = a_training(broker, tmp_path)
        assert broker.client.workload(absent).state is State.QUEUED

        broker.client.release(first.id)
        until(lambda: broker.client.workload(absent).state is State.ACTIVE, "it is the absent one's turn")
        until(lambda: f"`jupyter gpu wait {absent}`" in alerts(broker), "they are told")

        ended = broker.client.wait(absent, until="ended", timeout_seconds=60)
        assert ended.end is EndReason.ABANDONED
        until(lambda: broker.client.workload(training).started_at is not None, "the next one gets it")
        offered, passed_on = (event.at for event in went(broker, absent) if event.event in ("granted", "ended"))
        assert passed_on >= offered + 4, "until then it was theirs"
        until(lambda: f"Nobody came for reservation {absent}" in broker.cli("status"), "its owner can read why")
        until(lambda: heard.exists() and '"offered"' in heard.read_text(), "the admin's command was told")
