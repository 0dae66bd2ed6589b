"""The story of a sweep and its summary, as somebody types it: an array, what comes after, and a chain that breaks."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.model import DryRunView, EndReason, State, WaitingReason, WorkloadView

from .scene import SCRIPTS, Broker, a_broker, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

POLICY: dict[str, object] = {
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {"name": "training", "priority": 50, "kinds": ["job"]},
    ]
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A lab of three GPUs, one more than the sweep may use."""
    with a_broker(tmp_path / "b", devices=3, policy=POLICY) as found:
        yield found


def sweep(folder: Path) -> list[str]:
    """Four trainings, two at a time: the words of the command line."""
    script = str(SCRIPTS / "sweep_one.py")
    axes = ["--array", "lr=0.1,0.5", "seed=1..2", "--at-most", "2", "--name", "digits"]
    return [*axes, "--", sys.executable, script, str(folder), "{lr}", "{index}"]


def numbers_in(printed: str) -> list[int]:
    """The numbers of what was submitted."""
    found = re.search(r"numbers (\d+) to (\d+)|job (\d+)", printed)
    assert found is not None, printed
    if found[3]:
        return [int(found[3])]
    return list(range(int(found[1]), int(found[2]) + 1))


def stand(broker: Broker, ids: list[int]) -> list[WorkloadView]:
    """How they stand now."""
    return [broker.client.workload(id_) for id_ in ids]


def most_at_once(broker: Broker, ids: list[int]) -> int:
    """How many of them held GPUs at the same time, by the events of their lives in the order of the log."""
    changes = [
        (event.number, {"granted": 1, "released": -1}[event.event])
        for id_ in ids
        for event in broker.client.events(id_)
        if event.event in ("granted", "released")
    ]
    held = [sum(change for _, change in sorted(changes)[: place + 1]) for place in range(len(changes))]
    return max(held)


def test_a_sweep_and_its_summary(broker: Broker, tmp_path: Path) -> None:
    """Tried first, then two at a time although a third GPU is free, then what collects the results of all four."""
    told = broker.cli("submit", "--dry-run", *sweep(tmp_path))
    assert told.startswith("Nothing is queued. It would be 4 jobs (digits) in queue training.\n")
    assert "2 of them would start now." in told
    document = json.loads(broker.cli("submit", "--json", "--dry-run", *sweep(tmp_path)))
    assert (document["jobs"], document["starts_now"]) == (4, 2)
    assert set(document) <= {*DryRunView.__struct_fields__}
    assert broker.cli("queue", "--all") == "There are no workloads yet.\n"

    ids = numbers_in(broker.cli("submit", *sweep(tmp_path)))
    summary = str(SCRIPTS / "sweep_summary.py")
    (last,) = numbers_in(
        broker.cli(
            *("submit", "--gpus", "0", "--name", "summary", "--after-ok", str(ids[0])),
            *("--", sys.executable, summary, str(tmp_path)),
        )
    )
    assert len(ids) == 4

    until(lambda: sum(it.progress is not None for it in stand(broker, ids)) == 2, "two of them say how far they are")
    its = stand(broker, ids)
    assert [it.state for it in its] == [State.ACTIVE] * 2 + [State.QUEUED] * 2
    assert {it.waiting for it in its[2:]} == {WaitingReason.QUOTA}
    assert f"2 of array {ids[0]} run" in its[2].reason
    shown = broker.cli("queue")
    assert "digits" in shown
    assert "[4: 2 run, 2 wait]" in shown
    assert f"waits for {ids[0]}" in shown
    assert "step 1/2, 50 %" in broker.cli("queue", "--unfold")
    assert f"Job {ids[0]} (digits, 1 of 4 of array {ids[0]}), attempt 1: step 1/2" in broker.cli(
        "progress", str(ids[0])
    )

    (tmp_path / "go").touch()
    assert broker.cli("wait", str(last)).endswith("succeeded.\n")

    assert {it.end for it in stand(broker, ids)} == {EndReason.SUCCEEDED}
    assert most_at_once(broker, ids) == 2
    assert json.loads((tmp_path / "summary.json").read_text()) == {"results": 4, "best": {"lr": 0.1, "seed": 1}}
    assert broker.cli("log", str(last)) == "best of 4: {'lr': 0.1, 'seed': 1}\n"
    third = json.loads((tmp_path / "result-3.json").read_text())
    assert (third["lr"], third["parameters"], third["place"]) == (0.5, {"lr": 0.5, "seed": 1}, [3, 4])


def test_a_chain_whose_parent_fails_ends_with_its_path(broker: Broker) -> None:
    """What can never start does not wait for ever, and says along which way it became so."""

    def submit(name: str, *words: str) -> str:
        return str(*numbers_in(broker.cli("submit", "--gpus", "0", "--name", name, *words)))

    prep = submit("prep", "--paused", "--retries", "0", "--shell", "exit 3")
    train = submit("train", "--after-ok", prep, "--", "true")
    report = submit("report", "--after", train, "--", "true")
    whatever = submit("tidy", "--after", prep, "--", "true")
    assert f"waits for {prep}" in broker.cli("queue")

    broker.cli("let-go", prep)

    for number, said in (
        (train, f"job {prep} (prep) failed, and job {train} (train) was to come after its success"),
        (report, f"and job {report} (report) after job {train}"),
    ):
        it = broker.client.wait(int(number), until="ended", timeout_seconds=60)
        assert it.end is EndReason.DEPENDENCY_UNMET
        assert said in it.detail
        assert it.attempt == 0
    assert broker.client.wait(int(whatever), until="ended", timeout_seconds=60).end is EndReason.SUCCEEDED


def test_a_chain_is_changed_and_a_circle_is_refused(broker: Broker) -> None:
    """`amend` says what comes after what; nobody waits for who waits for them."""
    first, second = (str(*numbers_in(broker.cli("submit", "--gpus", "0", "--paused", "--", "true"))) for _ in range(2))

    assert f"comes after {first}." in broker.cli("amend", second, "--after", first)
    with pytest.raises(AssertionError, match=f"{first} → {second} → {first}"):
        broker.cli("amend", first, "--after", second)
    broker.cli("amend", second, "--no-after")
    broker.cli("let-go", second)

    assert broker.client.wait(int(second), until="ended", timeout_seconds=60).end is EndReason.SUCCEEDED
