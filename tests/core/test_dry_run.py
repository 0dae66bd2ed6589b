"""A dry run: what would become of an ask, said without asking."""

import pytest

from jupyter_gpu.core.dry_run import dry_run
from jupyter_gpu.errors import LimitExceeded, NotFound
from jupyter_gpu.model import (
    Caller,
    Dependency,
    DryRunView,
    EndReason,
    Policy,
    QuotaRule,
    QuotaView,
    Scope,
    State,
    Submit,
    WaitingReason,
)
from tests.world import CRASHED, DAY, HOUR, Play, a_device, a_job

ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ, Scope.SUBMIT}))
CONTRACTOR = Caller(name="ada", account="ada", scopes=frozenset({Scope.SUBMIT}))


def asked(play: Play, command: Submit, caller: Caller = ADA) -> DryRunView:
    """What ada would be told; and nothing is other than before."""
    before = (play.world.revision, play.world.last_id, dict(play.world.workloads), list(play.world.line))
    found = dry_run(play.world, command, caller, play.now)
    assert (play.world.revision, play.world.last_id, play.world.workloads, play.world.line) == before
    return found


def test_what_would_start_is_said_with_what_it_counts_for():
    """The bounds as they would stand then; those of others' classes and queues are none of its own."""
    quotas = (
        QuotaRule(user="*", devices=3),
        QuotaRule(user="*", queue="interactive", devices=1),
        QuotaRule(user="*", device_class="*", gpu_hours=10, window_seconds=DAY),
    )
    play = Play((a_device(0), a_device(1), a_device(2, device_class="l4")), Policy(quotas=quotas))

    found = asked(play, a_job(device_class="a100"))

    assert (found.workload.state, found.jobs, found.starts_now, found.evicts) == (State.ACTIVE, 1, 1, ())
    assert found.quotas == (
        QuotaView(rule="you", devices_held=1, devices_allowed=3),
        QuotaView(rule="you, class a100", devices_held=1, used_ms=0, allowed_ms=36_000_000, window_seconds=DAY),
    )


def test_of_an_array_it_is_said_why_the_others_would_wait():
    """The first alone says that it would start."""
    play = Play(1)

    found = asked(play, a_job(array=({"seed": "1"}, {"seed": "2"})))

    assert (found.workload.state, found.starts_now) == (State.ACTIVE, 1)
    assert found.others_wait.startswith("No GPU is free")
    assert not asked(play, a_job()).others_wait


def test_what_would_wait_is_said_with_why_and_when_and_without_a_number_that_nothing_has():
    """Queue, reason, expected start."""
    play = Play(1)
    play.reservation(seconds=HOUR)

    found = asked(play, a_job(name="digits"))

    assert (found.workload.waiting, found.workload.ahead, found.workload.queue) == (
        WaitingReason.DEVICES,
        0,
        "training",
    )
    assert found.workload.reason == "No GPU is free: GPU 0 is reserved by bob."
    assert found.workload.expected_start_at == play.now + HOUR + play.world.policy.reservation_grace_seconds
    assert asked(play, a_job(paused=True)).workload.reason == "It would be paused, and wait until it is let go."


def test_whom_it_would_make_yield_is_said_to_who_may_see_others_work():
    """By their ids; a contractor sees that devices are made free, and not whose."""
    play = Play(1)
    victim = play.running("bob", queue="deferred")
    play.later(HOUR)

    assert asked(play, a_job()).evicts == (victim,)
    assert asked(play, a_job(), CONTRACTOR).evicts == ()
    assert asked(play, a_job()).workload.waiting is WaitingReason.CLEARING


def test_an_array_is_tried_as_a_whole():
    """How many there would be and how many would start; the view is its first's."""
    play = Play(3)

    found = asked(play, a_job(array=({"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "4"}), at_most=2))

    assert (found.jobs, found.starts_now, found.workload.member.index) == (4, 2, 1)


def test_a_job_that_would_never_start_is_said_to():
    """What it would come after failed already."""
    play = Play(1)
    failed = play.running()
    play.exit(failed, CRASHED)

    found = asked(play, a_job(after=(Dependency(workload=failed, ok=True),)))

    assert (found.workload.end, found.starts_now) == (EndReason.DEPENDENCY_UNMET, 0)
    assert found.workload.reason == (
        "It ended: dependency-unmet (job 1 failed, and job 2 was to come after its success). "
        "`jupyter gpu again` runs such a job all the same, after nothing."
    )


def test_a_refusal_is_the_refusal():
    """The same error that the ask would get."""
    play = Play(1)

    with pytest.raises(LimitExceeded, match="9 GPUs"):
        asked(play, a_job(devices=9))
    with pytest.raises(NotFound, match="there is no workload 7"):
        asked(play, a_job(after=(Dependency(workload=7),)))


def test_a_key_that_was_used_is_not_what_is_asked_about():
    """What would come of a first ask."""
    play = Play(2)
    play.job(idempotency_key="k")

    assert asked(play, a_job(idempotency_key="k")).starts_now == 1


def test_of_a_large_array_some_are_tried_and_all_are_counted():
    """What the first of them wait for all others wait for; those that see no GPU start all."""
    play = Play(2)
    array = tuple({"seed": str(seed)} for seed in range(5000))

    found = asked(play, a_job(array=array))
    assert (found.jobs, found.starts_now, found.workload.member.of) == (5000, 2, 5000)
    assert found.others_wait.startswith("No GPU is free")
    found = asked(play, a_job(devices=0, array=array))
    assert (found.jobs, found.starts_now) == (5000, 5000)
    with pytest.raises(LimitExceeded, match="5000 more would be above"):
        asked(Play(2, Policy(most_queued=1000)), a_job(array=array))
