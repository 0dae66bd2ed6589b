"""The replay is right: the textbook policies give on a real trace what published simulators give, to the second."""

from __future__ import annotations

import gzip
import hashlib

import pytest

from jupyter_gpu.core.simulation.figures import figures
from jupyter_gpu.core.simulation.replay import ours
from jupyter_gpu.simulated import BASELINES
from tests.sim import philly

pytestmark = [pytest.mark.sim, pytest.mark.timeout(300)]


def test_the_trace_is_the_one_that_its_notice_is_about():
    """Byte for byte, and all of it can be read."""
    unpacked = gzip.decompress((philly.FOLDER / "philly.csv.gz").read_bytes())
    known = philly.about()

    assert hashlib.sha256(unpacked).hexdigest() == known["csv_sha256"]
    assert len(philly.whole().jobs) == known["jobs"]
    assert not philly.whole().has_users
    assert len(philly.pool_jobs()) == 68_503
    assert len(philly.hundred_thousand()) == 100_000


@pytest.mark.slow
@pytest.mark.parametrize("policy", philly.TABLE)
def test_a_textbook_policy_gives_the_published_figures(policy):
    """Each column to the second, whichever way the table was rounded."""
    found = figures(BASELINES[policy](philly.pool_jobs(), philly.NODES, lambda _done, _of: None))

    waits = (
        *(found.mean_time_in_system_seconds, found.mean_wait_seconds, found.median_wait_seconds),
        *(found.p90_wait_seconds, found.p999_wait_seconds, found.longest_wait_seconds),
    )
    *seconds, stretch, jain = philly.TABLE[policy]
    assert [abs(it - published) < 1 for it, published in zip(waits, seconds, strict=True)] == [True] * 6
    assert float(f"{found.worst_stretch:.3g}") == stretch
    assert round(found.jain, 3) == jain
    assert found.not_run == {}


@pytest.mark.slow
def test_shortest_remaining_bounds_what_anybody_could_do():
    """It knows all, and may move everybody: no mean wait is shorter, and hardly a team waits for anything."""
    found = figures(BASELINES["srtf"](philly.pool_jobs(), philly.NODES, lambda _done, _of: None))

    assert found.jobs == 68_503
    assert found.mean_wait_seconds < 1_400
    assert found.p90_wait_seconds == 0
    assert found.jain > 0.99


@pytest.mark.slow
def test_our_own_rules_run_a_busy_week_to_its_end():
    """All jobs run, each once, and the invariants hold at every hundredth step."""
    jobs = philly.pool_jobs()[:2_000]
    steps = 0

    def seen(world, _now, _events):
        nonlocal steps
        steps += 1
        assert steps % 100 or world.check() == []

    runs = ours(jobs, philly.NODES, seen=seen)

    assert steps > 4_000
    assert figures(runs).jobs == 2_000
    assert runs.refused == {}
