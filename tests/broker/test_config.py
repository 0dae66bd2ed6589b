"""What an admin writes becomes the frozen policy, or a sentence that names the setting which cannot be meant."""

from typing import Any

import pytest

from jupyter_gpu.broker.config import read_policy
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import Kind, Policy


def test_nothing_written_is_the_policy_that_ships() -> None:
    """Every setting has a default, and the defaults can be meant."""
    assert read_policy({}) == Policy()
    assert Policy().problems() == []


def test_units_are_taken_as_people_write_them() -> None:
    """Lengths and sizes, at every depth, and plain numbers as well."""
    policy = read_policy(
        {
            "reservation_seconds": "90m",
            "baseline_bytes": "2GiB",
            "kill_after_seconds": 5,
            "queues": [{"name": "all", "priority": 1, "kinds": ["job", "reservation"], "grace_seconds": "1m30s"}],
            "quotas": [{"user": "*", "gpu_hours": 10, "window_seconds": "7d"}],
        }
    )
    assert (policy.reservation_seconds, policy.baseline_bytes, policy.kill_after_seconds) == (5400, 2 << 30, 5)
    assert (policy.queues[0].grace_seconds, policy.quotas[0].window_seconds) == (90, 604_800)
    assert policy.queues[0].kinds == (Kind.JOB, Kind.RESERVATION)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"reservation_secnds": 1}, "reservation_secnds"),
        ({"reservation_seconds": "soon"}, "reservation_seconds"),
        ({"reservation_seconds": -5}, "reservation_seconds"),
        ({"queues": []}, "queues"),
        ({"queues": [{"name": "x"}]}, "priority"),
        ({"queues": [{"name": "x", "priority": "high"}]}, "priority"),
        ({"queues": [{"name": "x", "priority": 1, "preemptable": True}]}, "preemptable"),
        ({"quotas": [{"user": "*"}]}, "bounds nothing"),
        ({"quotas": [{"user": "*", "devices": -1}]}, "devices"),
        ({"quotas": [{"queue": "nowhere", "devices": 1}]}, "nowhere"),
        ({"quotas": {"user": "*"}}, "quotas"),
        ({"teams": {"vision": "ada"}}, "teams"),
        ({"holds": [{"name": "h", "from_at": 2, "until_at": 1, "count": 1}]}, "ends before it begins"),
        ({"lapse_seconds": 10}, "lapse_seconds"),
        ({"most_devices": 0}, "most_devices"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(settings: dict[str, Any], named: str) -> None:
    """The sentence says which setting is wrong, and the hint where it is described."""
    with pytest.raises(InvalidAsk, match=named) as refused:
        read_policy(settings)
    assert "docs/admin.md" in (refused.value.hint or "")


def test_a_policy_is_known_by_its_digest() -> None:
    """The digest stands on each event: alike policies share it, any change changes it."""
    assert Policy().digest() == read_policy({}).digest()
    assert Policy().digest() != Policy(failures=4).digest()
