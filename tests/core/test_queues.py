"""Queues: what is a queue's own, how much it may hold, and whose higher priority moves its work."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.core.outlook import expected_start_at
from jupyter_gpu.model import EvictionReason, LoadPolicy, Policy, QueuePolicy, QuotaRule, State, WaitingReason
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING
from tests.world import HOUR, SAVED, Play

_replace = msgspec.structs.replace


def queues(**changed: dict[str, object]) -> tuple[QueuePolicy, ...]:
    """The three that ship, with changes by their names."""
    return tuple(_replace(it, **changed.get(it.name, {})) for it in (INTERACTIVE, TRAINING, DEFERRED))


def a_play(devices: int = 2, policy: dict[str, object] | None = None, **changed: dict[str, object]) -> Play:
    """A lab whose queues are changed."""
    return Play(devices, Policy(queues=queues(**changed), **(policy or {})))


def yielding(play: Play) -> list[int]:
    """Who must go."""
    return [it.id for it in play.world.holders() if it.state is State.YIELDING]


# -- at most


def test_a_queue_holds_no_more_than_it_may():
    """Of all its users together; what is beyond waits for its quota, and others do not wait for it."""
    play = a_play(4, training={"most_devices": 2})
    play.running("ada"), play.running("bob")

    third = play.job("cleo")
    assert play.waiting(third) is WaitingReason.QUOTA
    assert play.state(play.job("cleo", queue="deferred")) is State.ACTIVE
    play.exit(1)
    assert play.state(third) is State.ACTIVE


def test_what_a_queue_may_hold_counts_beside_the_quotas():
    """The tightest of all that apply decides."""
    play = a_play(4, {"quotas": (QuotaRule(user="*", devices=1),)}, training={"most_devices": 2})
    play.running("ada")

    assert play.waiting(play.job("ada")) is WaitingReason.QUOTA
    play.running("bob")
    assert play.waiting(play.job("cleo")) is WaitingReason.QUOTA


# -- its own


def test_what_is_a_queues_own_is_lent_while_it_idles():
    """Nobody waits for devices that nobody wants."""
    play = a_play(2, deferred={"share_devices": 1})

    assert play.state(play.job("ada", devices=2)) is State.ACTIVE


def test_a_queue_takes_its_own_back_whatever_the_priority():
    """After the protected time of who borrowed it; and it does not go back to them, though they stand before it."""
    play = a_play(2, deferred={"share_devices": 1})
    borrowers = [play.running("ada"), play.running("ada")]
    mine = play.job("bob", queue="deferred")
    assert play.waiting(mine) is WaitingReason.DEVICES

    play.later(600)
    (victim,) = yielding(play)
    assert victim in borrowers
    assert play[victim].eviction is EvictionReason.PREEMPTED
    assert play[victim].evicted_for == mine
    play.exit(victim, SAVED)
    assert play.state(mine) is State.ACTIVE
    assert play.waiting(victim) is WaitingReason.DEVICES


def test_no_more_comes_back_than_is_the_queues_own():
    """A second ask is beyond its share and waits as everybody does."""
    play = a_play(2, deferred={"share_devices": 1})
    for _ in range(2):
        play.running("ada")
    for _ in range(2):
        play.job("bob", queue="deferred")
    play.later(HOUR)

    assert len(yielding(play)) == 1


def test_what_a_queue_holds_of_its_own_is_moved_by_no_other_queue():
    """Not for a reservation either; what it has beyond that is."""
    play = a_play(2, deferred={"share_devices": 1})
    own, lent = play.running("ada", queue="deferred"), play.running("ada", queue="deferred")
    play.later(HOUR)

    play.reservation("bob")
    assert len(yielding(play)) == 1
    play.reservation("cleo")
    assert len(yielding(play)) == 1
    assert set(yielding(play)) < {own, lent}


def test_the_share_of_a_queue_is_not_given_to_what_never_yields():
    """A reservation cannot be moved, so it may hold what is nobody's own, and what is its queue's."""
    play = a_play(2, deferred={"share_devices": 1})
    play.reservation("ada")

    second = play.reservation("bob")
    assert play.waiting(second) is WaitingReason.QUOTA
    assert play.state(play.job("cleo", queue="deferred")) is State.ACTIVE


def test_a_share_of_a_queue_takes_nothing_of_what_a_team_holds_of_its_own():
    """Where both are promised to somebody, only what is lent comes back."""
    quotas = (QuotaRule(team="vision", share_devices=1),)
    play = a_play(2, {"quotas": quotas, "teams": {"vision": ("ada",)}}, deferred={"share_devices": 1})
    own, lent = play.running("ada"), play.running("bob")
    play.later(HOUR)

    play.job("cleo", queue="deferred")

    assert yielding(play) == [lent]
    assert play.state(own) is State.ACTIVE


def test_within_a_queues_own_a_team_gets_its_part_first():
    """The borrower's older place does not get back what the team reclaimed."""
    quotas = (QuotaRule(team="vision", share_devices=1),)
    play = a_play(1, {"quotas": quotas, "teams": {"vision": ("ada",)}}, deferred={"share_devices": 1})
    borrower = play.running("bob", queue="deferred")
    play.later(HOUR)
    mine = play.job("ada", queue="deferred")

    play.exit(borrower, SAVED)

    assert (play.state(mine), play.state(borrower)) == (State.ACTIVE, State.QUEUED)


# -- who may preempt it


def test_only_the_queues_that_are_named_preempt_it():
    """A higher priority alone does not count then; after the protected time, as ever."""
    urgent = QueuePolicy(name="urgent", priority=70, preemptible=True)
    policy = Policy(queues=(*queues(training={"preempted_by": ("interactive",)}), urgent))
    play = Play(1, policy)
    job = play.running("ada")
    play.later(HOUR)

    assert play.waiting(play.job("bob", queue="urgent")) is WaitingReason.DEVICES
    play.reservation("cleo")
    assert yielding(play) == [job]


@pytest.mark.parametrize("named", [(), ("interactive",)])
def test_what_nobody_may_preempt_is_expected_back_at_its_end(named):
    """The start that is told to who waits counts on no preemption that does not come."""
    urgent = QueuePolicy(name="urgent", priority=70)
    play = Play(1, Policy(queues=(*queues(training={"preempted_by": named}), urgent)))
    play.running("ada", seconds=10 * HOUR)
    play.now += HOUR
    waits = play.job("bob", queue="urgent")

    expected = expected_start_at(play.world, play[waits], play.now, 0)
    assert expected is not None
    assert expected >= play.now + 9 * HOUR


def test_nothing_short_of_its_end_passes_a_head_that_cannot_preempt_it():
    """A device is held back for the first in line; who could not be moved for it must end before."""
    urgent = QueuePolicy(name="urgent", priority=70)
    play = Play(2, Policy(queues=(*queues(training={"preempted_by": ("interactive",)}), urgent)))
    play.running("ada", seconds=HOUR)
    play.job("bob", devices=2, queue="urgent")

    assert play.waiting(play.job("cleo", seconds=10 * HOUR)) is WaitingReason.DEVICES
    assert play.state(play.job("cleo", seconds=HOUR // 2)) is State.ACTIVE


def test_a_share_comes_back_whoever_may_preempt():
    """`preempted_by` is about priority; what is a team's own is its own."""
    quotas = (QuotaRule(team="vision", share_devices=1),)
    play = a_play(1, {"quotas": quotas, "teams": {"vision": ("ada",)}}, training={"preempted_by": ()})
    job = play.running("bob")
    play.later(HOUR)

    play.job("ada")

    assert yielding(play) == [job]


# -- a reload


def test_what_a_lowered_bound_leaves_above_it_is_borrowed_and_goes_first():
    """Nobody is evicted at the reload; the next better claim moves it before work that keeps to its quota."""
    play = Play(2)
    old = play.running("ada")
    play.now += HOUR
    young = play.running("bob")
    play.later(HOUR)
    play.do(LoadPolicy(policy=Policy(quotas=(QuotaRule(user="ada", devices=0),))))
    assert yielding(play) == []

    play.reservation("cleo")

    assert yielding(play) == [old]
    assert play.state(young) is State.ACTIVE


def test_only_what_is_above_a_lowered_bound_is_borrowed():
    """Once one of two leaves, the other keeps to the quota again."""
    play = Play(3)
    first = play.running("ada")
    play.now += 60
    second = play.running("ada")
    play.now += 60
    young = play.running("bob")
    play.later(HOUR)
    play.do(LoadPolicy(policy=Policy(quotas=(QuotaRule(user="ada", devices=1),))))

    play.reservation("cleo")
    assert yielding(play) == [second]
    play.reservation("dan")
    assert yielding(play) == [second, young]
    assert play.state(first) is State.ACTIVE
