"""What is expected of work: learnt from how long its owner's jobs ran, the limit where nothing is known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jupyter_gpu.core.forecast import expected_end_at, expected_left_seconds, expected_seconds
from jupyter_gpu.model import Policy, Rerank
from jupyter_gpu.model.habits import REMEMBERED
from tests.world import CRASHED, DAY, HOUR, SAVED, Play, a_spec

MINUTE = 60


def ran(play: Play, seconds: float, owner: str = "ada", times: int = 1, **words) -> None:
    """So many jobs run for so long, one after the other."""
    for _ in range(times):
        job = play.running(owner, **words)
        play.now += seconds
        play.exit(job)


def expected(play: Play, owner: str = "ada", **words) -> int:
    """What is expected of one more."""
    return expected_seconds(play.world, play[play.job(owner, **words)])


def test_who_has_run_nothing_is_expected_to_take_what_the_queue_says():
    """Four hours of a training."""
    assert expected(Play(1)) == 4 * HOUR


def test_where_nothing_is_known_of_an_owner_the_limit_is_all_there_is():
    """Whatever others did."""
    play = Play(1)
    ran(play, MINUTE, "bob", times=5)

    assert expected(play, "ada", seconds=10 * HOUR) == 10 * HOUR
    assert expected(play, "bob", seconds=10 * HOUR) < HOUR


def test_ones_own_jobs_of_one_size_count_most():
    """After some of them it is what they took."""
    play = Play(4)
    ran(play, 10 * HOUR, times=10, devices=4)
    ran(play, 10 * MINUTE, times=10)

    assert expected(play) < HOUR
    assert expected(play, devices=4) > 5 * HOUR


def test_a_name_counts_more_than_a_size():
    """Evaluations are short, trainings long, and both are of one device."""
    play = Play(1)
    ran(play, 10 * MINUTE, times=10, name="eval")
    ran(play, 10 * HOUR, times=10, name="train")

    assert expected(play, name="eval") < HOUR
    assert expected(play, name="train") > 5 * HOUR


def test_one_odd_run_does_not_decide():
    """What wider kinds of work say counts as much as two runs."""
    play = Play(1)
    ran(play, HOUR, times=20)
    ran(play, 10, "bob")

    assert MINUTE < expected(play, "bob") < HOUR


def test_only_the_last_runs_count():
    """Who does other work now is soon known by it."""
    play = Play(1)
    ran(play, 10 * HOUR, times=30)
    ran(play, 10 * MINUTE, times=REMEMBERED)

    assert expected(play) == pytest.approx(10 * MINUTE, rel=0.05)


def test_no_job_is_expected_to_outlive_its_limit():
    """It will be ended there."""
    play = Play(1)
    ran(play, 10 * HOUR, times=5)

    assert expected(play, seconds=HOUR) == HOUR


def test_what_an_earlier_attempt_did_is_not_expected_again():
    """What it has to repeat is."""
    play = Play(1)
    job = play.running(seconds=10 * HOUR, spec=a_spec(retries=1))
    play.now += 4 * HOUR
    play.exit(job, replace(CRASHED, unsaved_seconds=float(HOUR), progressed=True))

    assert expected_left_seconds(play.world, play[job]) == 7 * HOUR


def test_who_outlives_the_expectation_is_expected_to_take_half_as_long_again():
    """A job that has run for ten hours will not be over in a minute."""
    play = Play(1)
    job = play.running()
    assert expected_end_at(play.world, play[job], play.now) == play.now + 4 * HOUR

    play.now += 10 * HOUR

    assert expected_end_at(play.world, play[job], play.now) == play.now + 5 * HOUR


def test_a_job_that_never_ran_teaches_nothing():
    """One that was cancelled in line is no short job."""
    play = Play(1)
    ran(play, HOUR, times=3)
    before = expected(play)

    assert play.world.habits == play.world.copy().habits
    assert expected(play) == before


def test_places_in_line_are_made_anew_by_what_was_learnt():
    """Once an hour, and only of those for whom it matters."""
    play = Play(2, Policy())
    play.reservation("zoe", seconds=12 * HOUR)
    first, second = play.running("bob"), play.job("ada")
    other = play.job("cleo")
    rank = play[other].rank_ms
    play.now += 10 * MINUTE
    play.exit(first)
    play.exit(second, SAVED)

    assert play.do(Rerank())[:1] in ([], ["reranked"])
    play.now += DAY
    assert play[other].rank_ms <= rank
