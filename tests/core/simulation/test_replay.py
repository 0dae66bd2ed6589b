"""Our own rules on a trace: what a replay tells the core, and what it makes of the answers."""

from __future__ import annotations

from hypothesis import given, settings

from jupyter_gpu.core.simulation.figures import figures
from jupyter_gpu.core.simulation.replay import Assumed, ours
from jupyter_gpu.model import HoldPolicy, Policy
from tests.core.simulation.ground import jobs, some_jobs, when


def test_a_job_that_must_yield_goes_on_from_its_last_checkpoint():
    """700 s of work, 600 of them saved; it comes back when the other is done, and its start costs 60 s."""
    line = [*jobs((0, 1, 1000), queue="deferred"), *jobs((700, 1, 100), queue="training")]

    runs = ours(line, [1])

    assert when(runs) == [(0, 0, 700), (0, 800, 800 + 60 + 400), (1, 700, 800)]
    assert runs.preemptions == 1
    assert figures(runs).lost_gpu_hours == 160 / 3600


def test_however_many_must_yield_at_once_they_all_do():
    """Three hundred GPUs, each with a job of its own, and one that wants them all."""
    many = jobs(*((0, 1, 1000) for _ in range(300)), queue="deferred")
    runs = ours([*many, *jobs((500, 300, 100), queue="training")], [300])

    assert (300, 500, 600) in runs.spans
    assert runs.preemptions == 300


def test_without_checkpoints_all_is_done_again():
    """And where a start costs nothing, nothing else."""
    line = [*jobs((0, 1, 1000), queue="deferred"), *jobs((700, 1, 100), queue="training")]

    runs = ours(line, [1], assumed=Assumed(checkpoint_seconds=0, restart_seconds=0))

    assert when(runs)[1] == (0, 800, 1800)


def test_a_queue_for_people_makes_a_reservation_of_it():
    """It is given back when its time is over, and moves a training meanwhile."""
    line = [*jobs((0, 1, 5000)), *jobs((1000, 1, 600), queue="interactive")]

    runs = ours(line, [1])

    assert when(runs) == [(0, 0, 1000), (0, 1600, 1600 + 60 + 4400), (1, 1000, 1600)]


def test_a_queue_that_the_policy_lacks_is_the_usual_one():
    """A trace has names of its own."""
    assert when(ours(jobs((0, 1, 10), queue="batch-7"), [1])) == [(0, 0, 10)]


def test_what_the_policy_refuses_is_noted_with_its_reason():
    """And no other job is delayed by it."""
    runs = ours(jobs((0, 3, 10), (0, 1, 10)), [4], Policy(most_devices=2))

    assert when(runs) == [(1, 0, 10)]
    assert runs.refused == {0: "one ask may contain 2 devices, not 3"}


def test_what_could_never_be_placed_is_refused():
    """More GPUs than all nodes have."""
    runs = ours(jobs((0, 5, 10), (0, 1, 10)), [2, 2])

    assert when(runs) == [(1, 0, 10)]
    assert list(runs.refused) == [0]


def test_what_never_starts_does_not_keep_the_replay_from_its_end():
    """All is held for others, for ever."""
    hold = HoldPolicy(name="b", from_at=0, until_at=4e12, count=2, teams=("b",))
    runs = ours(jobs((0, 1, 10, "a"), (0, 1, 10, "b")), [2], Policy(holds=(hold,)))

    assert when(runs) == [(1, 0, 10)]
    assert runs.refused == {0: "it never started: it waits for hold"}


def test_a_limit_below_the_run_time_ends_nothing():
    """In the trace it ran on."""
    assert when(ours(jobs((0, 1, 5000), (100, 1, 10), limit_s=60), [1])) == [(0, 0, 5000), (1, 5000, 5010)]


@settings(max_examples=30, deadline=None)
@given(line=some_jobs(most_gpus=4))
def test_the_invariants_hold_at_each_step_and_all_that_fits_runs(line):
    """No device is held twice; each job runs once, and as long as it says; the same again gives the same."""
    told = []

    def seen(world, now, events):
        assert world.check() == []
        told.append(now)

    runs = ours(line, [4, 2], seen=seen)

    assert told == sorted(told)
    assert runs.refused == {}
    assert runs.preemptions == 0
    assert sorted(end - begin for _, begin, end in runs.spans) == sorted(job.duration_s for job in line)
    assert ours(line, [4, 2]).spans == runs.spans


@settings(max_examples=30, deadline=None)
@given(line=some_jobs(most_gpus=1))
def test_while_somebody_waits_for_one_gpu_none_is_idle(line):
    """Nothing is held back where every job fits everywhere."""
    assert figures(ours(line, [2, 1])).utilisation_while_queued in (None, 1.0)
