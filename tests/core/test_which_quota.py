"""Which rule keeps an ask from its devices: refused where it could never fit, named with its numbers where it waits."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.dry_run import dry_run
from jupyter_gpu.core.policy_check import check
from jupyter_gpu.core.which_quota import what_keeps
from jupyter_gpu.errors import LimitExceeded
from jupyter_gpu.model import Caller, HoldPolicy, Policy, PolicyEffect, QueuePolicy, QuotaRule, SharingRule, State
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING
from tests.world import GIB, HOUR, Play, a_device, a_job, a_reservation

NARROW = QueuePolicy(name="training", priority=50, kinds=TRAINING.kinds, most_devices=1)


@pytest.mark.parametrize(
    ("policy", "command", "said"),
    [
        (
            Policy(quotas=(QuotaRule(user="*", devices=4),)),
            a_job(devices=5),
            "5 GPUs are more than 4 GPUs at once, the quota of each user",
        ),
        (
            Policy(quotas=(QuotaRule(user="*", gpu_hours=4),)),
            a_reservation(devices=3, seconds=3 * HOUR),
            "3 GPUs for 3h come to 9 GPU-hours, more than 4 in 7d, the quota of each user",
        ),
        (
            Policy(quotas=(QuotaRule(gpu_hours=0),)),
            a_job(),
            "there are no GPU-hours in 7d in the quota of everybody",
        ),
        (
            Policy(quotas=(QuotaRule(user="*", memory_bytes=10 * GIB),), sharing=(SharingRule(),)),
            a_job(memory_bytes=20 * GIB),
            "20GiB of shared GPUs' memory are more than 10GiB at once, the quota of each user",
        ),
        (
            Policy(queues=(INTERACTIVE, NARROW, DEFERRED)),
            a_job(devices=2),
            "2 GPUs are more than 1 GPU at once, the quota of queue training",
        ),
        (
            Policy(quotas=(QuotaRule(device_class="*", devices=1),)),
            a_job(devices=2, array=({"seed": "0"}, {"seed": "1"})),
            "2 GPUs are more than 1 GPU at once, the quota of each class",
        ),
    ],
)
def test_what_no_quota_could_ever_hold_is_refused(policy, command, said):
    """It would wait for ever; a dry run refuses it in the same words, and nothing enters the line."""
    play = Play(8, policy)

    for ask in (
        play.do,
        lambda one: dry_run(play.world, one, Caller(name=command.owner, account=command.owner), play.now),
    ):
        with pytest.raises(LimitExceeded) as refused:
            ask(command)
        assert refused.value.message == said
        assert "`jupyter gpu quota`" in refused.value.hint
    assert not play.world.workloads


def test_a_class_that_allows_it_is_enough():
    """Only where every class forbids it could it never start."""
    play = Play(
        [a_device(0), a_device(1), a_device(2, device_class="l4"), a_device(3, device_class="l4")],
        Policy(quotas=(QuotaRule(device_class="a100", devices=1),)),
    )

    assert play.state(play.job(devices=2)) is State.ACTIVE


def test_what_waits_when_a_quota_is_lowered_is_named_as_what_can_never_start():
    """It keeps its place: nobody is thrown out by a reload."""
    play = Play(2)
    play.running("bob", devices=2)
    waits = play.job("ada", devices=2)

    found = check(play.world, Policy(quotas=(QuotaRule(user="*", devices=1),)), play.now)

    (never,) = [it for it in found.affected if it.effect is PolicyEffect.REFUSED]
    assert never.workload == waits
    assert never.text.startswith("keeps its place, and can never start under these rules: 2 GPUs are more than 1 GPU")


def test_the_tightest_rule_is_named_with_its_numbers():
    """Of two in the way the one that leaves less."""
    play = Play(8, Policy(quotas=(QuotaRule(user="*", devices=4), QuotaRule(devices=5))))
    play.running("ada", devices=4)
    waits = play.job("ada", devices=2)

    assert what_keeps(play.world, play[waits], play.now) == ("Each user: 4 of 4 GPUs at once are held, and it wants 2")


def test_used_hours_are_named_with_what_is_wanted():
    """What is left may be too little for a whole reservation."""
    play = Play(4, Policy(quotas=(QuotaRule(user="*", gpu_hours=4),)))
    play.reservation("bob", seconds=3 * HOUR)
    waits = play.reservation("bob", seconds=2 * HOUR)

    assert what_keeps(play.world, play[waits], play.now) == (
        "Each user: 3 of 4 GPU-hours in 7d are used, and it wants 2"
    )


def test_holds_that_are_over_or_for_nobody_are_warned_of_and_lengths_are_as_people_write_them():
    """A year that was mistyped, a team that nobody is in; 10m and no 600."""
    play = Play(1)
    hold = HoldPolicy(name="exam", from_at=play.now - 2 * HOUR, until_at=play.now - HOUR, count=1, teams=("vision",))

    found = check(play.world, Policy(holds=(hold,), teams={"vision": ()}, idle_warn_seconds=600), play.now)

    assert [it.partition(":")[0].partition(" since")[0] for it in found.warnings] == [
        "The hold exam is for the team vision, and nobody is in it",
        "The hold exam is over",
    ]
    assert "idle_warn_seconds: 20m, then 10m" in found.changes
