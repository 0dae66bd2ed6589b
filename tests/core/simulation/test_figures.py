"""What a replay came to, by hand."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.simulation.baselines import fifo
from jupyter_gpu.core.simulation.figures import figures, quantile
from jupyter_gpu.core.simulation.srtf import srtf
from tests.core.simulation.ground import jobs


def test_waits_use_and_fairness_of_three_jobs():
    """One GPU: b's job waits for a's 100 s; the GPU is held all the time but the last 50 s before c comes."""
    found = figures(fifo(jobs((0, 1, 100, "a"), (0, 1, 100, "b"), (250, 1, 50, "c")), [1]))

    assert (found.jobs, found.devices, found.length_seconds) == (3, 1, 300)
    assert found.mean_wait_seconds == pytest.approx(100 / 3)
    assert found.mean_time_in_system_seconds == pytest.approx(350 / 3)
    assert (found.median_wait_seconds, found.longest_wait_seconds) == (0, 100)
    assert found.p90_wait_seconds == pytest.approx(80)
    assert (found.worst_stretch, found.worst_team) == (2.0, "b")
    assert found.jain == pytest.approx((1 + 0.5 + 1) ** 2 / (3 * (1 + 0.25 + 1)))
    assert found.utilisation == pytest.approx(250 / 300)
    assert found.utilisation_while_queued == 1
    assert [(team.team, team.jobs, team.mean_wait_seconds) for team in found.teams] == [
        *(("a", 1, 0), ("b", 1, 100), ("c", 1, 0)),
    ]


def test_what_a_preemption_cost_is_lost_and_waited_for():
    """A job of 100 s on two GPUs comes back after another, which costs 30 s of both."""
    found = figures(srtf(jobs((0, 2, 100), (10, 2, 20)), [2]))

    assert found.preemptions == 1
    assert found.lost_gpu_hours == pytest.approx(60 / 3600)
    assert found.longest_wait_seconds == 50


def test_the_curves_have_so_many_points_and_no_more_and_keep_the_sums():
    """Each is an average over its stretch, so the areas stay what they were."""
    found = figures(fifo(jobs(*((at, 1, 7) for at in range(0, 500, 5))), [1]), most_points=10)

    width = found.points[1].at - found.points[0].at
    lasts = [min(width, found.length_seconds - point.at) for point in found.points]
    assert len(found.points) <= 10
    assert sum(point.busy * length for point, length in zip(found.points, lasts, strict=True)) == pytest.approx(700)
    waited = (found.mean_wait_seconds or 0) * 100
    assert sum(point.queued * length for point, length in zip(found.points, lasts, strict=True)) == pytest.approx(
        waited
    )


def test_a_trace_of_which_nothing_ran_has_no_figures_and_no_fault():
    """Not known is None, never zero."""
    found = figures(fifo(jobs((0, 5, 10)), [1]))

    assert found.jobs == 0
    assert (found.mean_wait_seconds, found.utilisation, found.jain, found.worst_team) == (None, None, None, None)
    assert found.not_run == {"more GPUs than there are": 1}
    assert found.points == ()


@pytest.mark.parametrize(("values", "part", "expected"), [([], 0.5, None), ([7], 0.9, 7), ([0, 10], 0.25, 2.5)])
def test_a_quantile_lies_between_its_neighbours(values, part, expected):
    """In proportion, as in most tools."""
    assert quantile(values, part) == expected
