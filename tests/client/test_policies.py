"""What an admin writes becomes the frozen policy, or a sentence that names the setting which cannot be meant."""

from typing import Any

import pytest

from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import Condition, Kind, Policy
from jupyter_gpu.policies import read_policy


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


def test_devices_as_they_are_are_ruled_as_people_write_it() -> None:
    """What is shared and how long somebody may be above their part; what moves jobs; what heat and strangers mean."""
    policy = read_policy(
        {
            "sharing": [
                {"device_class": "a100-80gb", "slack_bytes": "1GiB", "evict_after_seconds": "10m"},
                {"device": "GPU-7"},
            ],
            "drains": ["faulty", "hot"],
            "drawing_bytes": "300MiB",
            "foreign_use": "end",
            "foreign_seconds": "2m",
            "hot_celsius": 85,
            "hot_seconds": "1m",
            "strikes": 0,
            "strike_seconds": "2h",
        }
    )

    first, second = policy.sharing
    assert (first.device_class, first.slack_bytes, first.evict_after_seconds) == ("a100-80gb", 1 << 30, 600)
    assert (second.device, second.slack_bytes, second.evict_after_seconds) == ("GPU-7", 512 << 20, None)
    assert policy.drains == (Condition.FAULTY, Condition.HOT)
    assert (policy.drawing_bytes, policy.foreign_use, policy.foreign_seconds) == (300 << 20, "end", 120)
    assert (policy.hot_celsius, policy.hot_seconds, policy.strikes, policy.strike_seconds) == (85, 60, 0, 7200)


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
        ({"sharing": [{}, {"slack_bytes": "a lot"}]}, r"sharing\[1\]\.slack_bytes: "),
        ({"sharing": [{"slack_byts": "1GiB"}]}, r"slack_byts.*sharing\[0\]|sharing\[0\].*slack_byts"),
        ({"sharing": {"device": "GPU-7"}}, "sharing"),
        ({"sharing": [{}, {"evict_after_seconds": -1}]}, r"sharing\[1\]\.evict_after_seconds is -1"),
        ({"drains": ["hott"]}, r"hott.*drains\[0\].*use one of: lost, faulty, .*, hot, suspect, not-clear, foreign"),
        ({"queues": [{"name": "x", "priority": 1, "kinds": ["jobs"]}]}, "jobs.*use one of: reservation, job"),
        ({"drains": "faulty"}, "drains"),
        ({"foreign_use": "kill"}, "foreign_use`; use one of: end, warn"),
        ({"foreign_use": 3}, "foreign_use`\n"),
        ({"hot_celsius": 900}, "hot_celsius"),
        ({"strike_seconds": "0s"}, "strike_seconds"),
        ({"strikes": -1}, "strikes"),
        ({"reservation_secnds": 1}, "did you mean reservation_seconds"),
        ({"queues": [{"name": "x", "priority": 1, "preemptable": True}]}, "did you mean preemptible"),
        ({"profiles": [{"name": "a"}, {"name": "b", "device_clas": "a100"}]}, r"mean device_class|profiles\[1\]"),
        ({"profiles": [{"name": "a"}, {"name": "a"}]}, r"profiles\[1\]: 'a' has the name of another"),
        ({"profiles": [{"name": " "}]}, r"profiles\[0\]: ' ' has no name"),
        ({"profiles": [{"name": "a", "devices": -1}]}, r"profiles\[0\]: 'a' asks for -1 devices"),
        ({"profiles": [{"name": "a", "devices": 9}], "most_devices": 8}, "9 devices, and most_devices is 8"),
        ({"profiles": [{"name": "a", "devices": 0, "memory_bytes": "8GiB"}]}, "asks for memory of no device"),
        ({"profiles": [{"name": "a", "memory_bytes": 0}]}, "asks for 0 bytes"),
        ({"profiles": [{"name": "a", "duration_seconds": "0s"}]}, "lasts 0 s"),
        (
            {"profiles": [{"name": "a", "duration_seconds": "13h", "queue": "interactive"}]},
            "longer than longest_seconds",
        ),
        ({"profiles": [{"name": "a", "queue": "fast"}]}, "names the queue 'fast', which does not exist"),
        ({"profiles": [{"name": "a", "for_servers": False, "for_kernels": False}]}, "neither servers nor kernels"),
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
