"""The story of preemption and resumption, with real trainings on simulated devices."""

import re
from pathlib import Path

import pytest

from .preempt_and_resume import EVENTS, POLICY, play, problems
from .scene import DIGITS, IGNORES_SIGTERM, SIGTERM_ONLY, a_broker

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]


def test_a_training_makes_room_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    """A training that knows us saves at the notice, comes back by itself, and ends with the very same weights."""
    with a_broker(tmp_path / "b", devices=2, policy=POLICY) as broker:
        played = play(broker, tmp_path, DIGITS, devices=2)
        printed = broker.cli("events", str(played.training.id))

    assert problems(played) == []
    # The face prints the very events that the broker recorded, in their order, and nothing of others.
    assert printed_events(printed) == EVENTS


def printed_events(printed: str) -> list[str]:
    """The names that stand in the lines of `jupyter gpu events`, without the times in front."""
    return [found[0] for line in printed.splitlines() if (found := re.findall(r"\b[a-z]+(?: \([a-z0-9-]+\))?", line))]


def test_a_script_that_only_handles_sigterm_does_as_well(tmp_path: Path) -> None:
    """No import of ours is needed: who saves on SIGTERM and exits 0 is requeued all the same."""
    with a_broker(tmp_path / "b", devices=1, policy=POLICY) as broker:
        played = play(broker, tmp_path, SIGTERM_ONLY, devices=1)

    assert problems(played) == []


def test_a_script_that_ignores_sigterm_loses_at_most_what_it_had_not_saved(tmp_path: Path) -> None:
    """Who ignores the notice is ended at the end of the grace, and the device is leased only after that."""
    with a_broker(tmp_path / "b", devices=1, policy=POLICY | {"kill_after_seconds": 1}) as broker:
        played = play(broker, tmp_path, IGNORES_SIGTERM, devices=1, steps=120, grace_seconds=1)

    assert played.events == [*EVENTS[:4], "overdue", *EVENTS[4:]]
    assert played.durable_steps() == list(range(1, 121))
    assert played.repeated_steps() <= 1
    assert played.disturbed == played.undisturbed
    requeued = next(event for event in played.history if event.event == "requeued")
    assert "ended by force: python" in requeued.detail
