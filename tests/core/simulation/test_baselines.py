"""The textbook policies do what their textbooks say: by hand on small traces, and always on any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.core.simulation.baselines import fifo, sjf
from jupyter_gpu.core.simulation.easy import easy
from jupyter_gpu.core.simulation.figures import figures
from jupyter_gpu.core.simulation.pool import Pool
from jupyter_gpu.core.simulation.runs import TOO_WIDE
from jupyter_gpu.core.simulation.srtf import srtf
from tests.core.simulation.ground import jobs, some_jobs, when

ALL = (fifo, easy, sjf, srtf)
#: A holds one of two GPUs; B wants both; C is long, D is done when A is, E is short.
LINE = jobs((0, 1, 100), (10, 2, 50), (20, 1, 200), (30, 1, 70), (40, 1, 20))


def test_first_come_first_served_lets_nobody_pass():
    """B waits for A, and all others for B."""
    assert when(fifo(LINE, [2])) == [(0, 0, 100), (1, 100, 150), (2, 150, 350), (3, 150, 220), (4, 220, 240)]


def test_backfill_lets_those_pass_who_are_done_when_the_first_begins():
    """D ends when B begins and holds what E would need; C would be in B's way."""
    assert when(easy(LINE, [2])) == [(0, 0, 100), (1, 100, 150), (2, 150, 350), (3, 30, 100), (4, 150, 170)]


def test_backfill_lets_those_pass_beside_whom_the_first_still_fits():
    """On a second node B fits whatever C does on the first."""
    line = jobs((0, 1, 100), (0, 2, 50), (10, 2, 50), (20, 1, 200))

    assert when(easy(line, [2, 2])) == [(0, 0, 100), (1, 0, 50), (2, 50, 100), (3, 20, 220)]


def test_shortest_first_lets_the_short_pass_and_the_first_that_does_not_fit_blocks():
    """C and D wait behind B, which is shorter; E is shorter still."""
    assert when(sjf(LINE, [2])) == [(0, 0, 100), (1, 100, 150), (2, 150, 350), (3, 150, 220), (4, 40, 60)]


def test_shortest_remaining_takes_the_gpu_of_who_has_more_left_and_coming_back_costs():
    """Seven seconds for one GPU; who has less left is left alone."""
    line = jobs((0, 1, 100), (10, 1, 20), (25, 1, 6))

    assert when(srtf(line, [1])) == [(0, 0, 10), (0, 36, 133), (1, 10, 30), (2, 30, 36)]


def test_ends_come_before_arrivals_and_arrivals_before_scheduling():
    """Of two that arrive when the GPU is free again the shorter goes first."""
    line = jobs((0, 1, 10), (10, 1, 9), (10, 1, 8))

    assert when(sjf(line, [1])) == [(0, 0, 10), (1, 18, 27), (2, 10, 18)]


def test_a_job_sits_on_the_fullest_node_that_has_room_and_a_wide_one_on_whole_nodes():
    """The remainder of a wide one goes where most is free."""
    pool = Pool([4, 4, 4])
    pool.take(((1, 3),))

    assert pool.find(1) == ((1, 1),)
    assert pool.find(2) == ((0, 2),)
    assert pool.find(6) == ((0, 4), (2, 2))
    assert pool.find(9) == ((0, 4), (2, 4), (1, 1))
    assert pool.find(10) is None
    assert pool.fits(9)
    assert not pool.fits(10)


@pytest.mark.parametrize("policy", ALL)
def test_what_no_pool_could_hold_is_noted_and_delays_nobody(policy):
    """More GPUs than there are."""
    runs = policy(jobs((0, 9, 100), (1, 1, 10)), [4, 4])

    assert when(runs) == [(1, 1, 11)]
    assert runs.refused == {0: TOO_WIDE}


@pytest.mark.parametrize("policy", ALL)
@given(line=some_jobs(most_gpus=9), nodes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_no_gpu_is_used_twice_and_all_that_fits_runs_to_its_end(policy, line, nodes):
    """Of no node more is ever held than it has; without preemption each runs once and as long as it says."""
    runs = policy(line, nodes)

    for node, size in enumerate(nodes):
        changes = sorted(
            (moment, sign * count)
            for (_, begin, end), places in zip(runs.spans, runs.places, strict=True)
            for at, count in places
            if at == node and end > begin
            for moment, sign in ((begin, 1), (end, -1))
        )
        held = 0
        for _, count in changes:
            held += count
            assert 0 <= held <= size
    assert {number for number, _, _ in runs.spans} | set(runs.refused) == set(range(len(line)))
    for number, begin, end in runs.spans:
        assert begin >= line[number].submit_s
        if policy is not srtf:
            assert end - begin == line[number].duration_s
    for (number, _, _), places in zip(runs.spans, runs.places, strict=True):
        assert sum(count for _, count in places) == line[number].gpus


@given(line=some_jobs(most_gpus=1))
def test_while_somebody_waits_for_one_gpu_none_is_idle(line):
    """All of them are work conserving where every job fits everywhere."""
    for policy in ALL:
        assert figures(policy(line, [2, 1])).utilisation_while_queued in (None, 1.0)


@given(line=some_jobs())
def test_backfill_starts_the_first_that_waits_no_later_than_without(line):
    """Whoever is first in line never waits for those who came after."""
    first = next(
        (number for number, begin, _ in sorted(fifo(line, [3, 2]).spans) if begin > line[number].submit_s), None
    )
    if first is None:
        return
    of_fifo = {number: begin for number, begin, _ in fifo(line, [3, 2]).spans}
    of_easy = {number: begin for number, begin, _ in easy(line, [3, 2]).spans}

    assert of_easy[first] <= of_fifo[first]
