"""The policy: what cannot be meant is refused with the name of the setting, and a reload breaks nothing."""

from __future__ import annotations

import pytest

from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import (
    HoldPolicy,
    Kind,
    LoadPolicy,
    Policy,
    Profile,
    QueuePolicy,
    QuotaRule,
    SharingRule,
    State,
    WaitingReason,
)
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING
from tests.world import BEGIN, DAY, HOUR, Play, a_device


def a_queue(**words) -> QueuePolicy:
    """A queue of which only the words matter."""
    return QueuePolicy(**{"name": "q", "priority": 1, **words})


def rules(*quotas: QuotaRule) -> Policy:
    """The usual policy with these quotas."""
    return Policy(quotas=quotas)


def a_hold(**words) -> HoldPolicy:
    """One device for an hour, for nobody."""
    return HoldPolicy(**{"name": "course", "from_at": BEGIN, "until_at": BEGIN + HOUR, "count": 1, **words})


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(queues=()), "at least one queue"),
        (Policy(queues=(a_queue(), a_queue())), "'q' is given twice"),
        (Policy(queues=(a_queue(name="no name"),)), "'no name' is no name"),
        (Policy(queues=(a_queue(name=""),)), "'' is no name"),
        (Policy(queues=(a_queue(kinds=(Kind.JOB,)),)), "no queue admits a reservation"),
        (Policy(queues=(a_queue(grace_seconds=-1),)), "q.grace_seconds is -1"),
        (Policy(queues=(a_queue(protected_seconds=-1),)), "q.protected_seconds is -1"),
        (Policy(queues=(a_queue(expected_seconds=0),)), "q.expected_seconds is 0"),
        (Policy(queues=(a_queue(wait_limit_seconds=0),)), "q.wait_limit_seconds is 0"),
        (Policy(queues=(a_queue(longest_seconds=0),)), "q.longest_seconds is 0"),
        (Policy(queues=(a_queue(most_devices=0),)), "queues[0]: q.most_devices is 0; it must be 1 or more"),
        (Policy(queues=(a_queue(share_devices=-1),)), "q.share_devices is -1"),
        (Policy(queues=(a_queue(share_devices=3, most_devices=2),)), "most_devices lets it hold 2"),
        (Policy(queues=(a_queue(), a_queue(name="r", kinds=()))), "queues[1]: r.kinds is empty"),
        (Policy(teams={"a": ("ada",)}, queues=(a_queue(teams=("b",)),)), "nobody could enter it"),
        (Policy(queues=(a_queue(preempted_by=()),)), "it is not preemptible"),
        (Policy(queues=(a_queue(preemptible=True, preempted_by=("x",)),)), "there is no queue 'x'"),
        (
            Policy(queues=(a_queue(), a_queue(name="r", preemptible=True, preempted_by=("q",)))),
            "q has no higher priority, so what it took would go straight back",
        ),
        (Policy(attach_seconds=0), "attach_seconds: 0"),
        (Policy(half_life_seconds=0), "half_life_seconds: 0"),
        (Policy(preemptions_per_day=-1), "preemptions_per_day: -1"),
        (Policy(most_devices=0), "most_devices: 0"),
        (Policy(lapse_seconds=20), "lapse_seconds: it must be longer"),
        (rules(QuotaRule(user="*")), "bounds nothing"),
        (rules(QuotaRule(queue="express", devices=1)), "no queue 'express'"),
        (rules(QuotaRule(user="ada", devices=-1)), "devices of the rule for user ada is -1"),
        (rules(QuotaRule(user="*", gpu_hours=-1)), "gpu_hours of the rule for each user is -1"),
        (rules(QuotaRule(user="*", memory_bytes=-1)), "memory_bytes of the rule for each user is -1"),
        (rules(QuotaRule(devices=1), QuotaRule(queue="x", devices=1)), "quotas[1]: there is no queue 'x'"),
        (rules(QuotaRule(share_devices=1)), "one named team"),
        (rules(QuotaRule(team="*", share_devices=1)), "one named team"),
        (rules(QuotaRule(team="a", queue="training", share_devices=1)), "takes no user, queue or class"),
        (rules(QuotaRule(team="a", share_devices=1), QuotaRule(team="a", share_devices=2)), "two shares"),
        (rules(QuotaRule(gpu_hours=1, window_seconds=60)), "between 3600"),
        (rules(QuotaRule(gpu_hours=1, window_seconds=36 * DAY)), "35 days"),
        (Policy(holds=(a_hold(until_at=BEGIN),)), "ends before it begins"),
        (Policy(holds=(a_hold(count=0),)), "withholds nothing"),
        (Policy(holds=(a_hold(no_show_seconds=-1),)), "no_show_seconds is -1"),
        (Policy(sharing=(SharingRule(slack_bytes=-1),)), "sharing[0].slack_bytes is -1"),
        (Policy(sharing=(SharingRule(), SharingRule(evict_after_seconds=-1))), "sharing[1].evict_after_seconds is -1"),
        (Policy(hot_celsius=0), "hot_celsius: 0 is no temperature"),
        (Policy(hot_celsius=151), "hot_celsius: 151 is no temperature"),
        (Policy(strikes=-1), "strikes: -1"),
        (Policy(strike_seconds=0), "strike_seconds: 0"),
        (Policy(foreign_seconds=-1), "foreign_seconds: -1"),
        (Policy(profiles=(Profile(name="p", queue="x"),)), "names the queue 'x'"),
        (Policy(profiles=(Profile(name="p", devices=-1),)), "asks for -1 devices"),
        (
            Policy(profiles=(Profile(name="p", devices=2),), quotas=(QuotaRule(user="*", devices=1),)),
            "profiles[0]: 'p' asks for 2 devices at once, and the rule for each user allows 1: it would wait for ever",
        ),
        (
            Policy(profiles=(Profile(name="p", memory_bytes=2),), quotas=(QuotaRule(memory_bytes=1),)),
            "2 bytes of shared devices, and the rule for everybody allows 1",
        ),
        (
            Policy(profiles=(Profile(name="p", duration_seconds=3601),), quotas=(QuotaRule(team="*", gpu_hours=1),)),
            "asks for 2 GPU-hours, and the rule for each team allows 1",
        ),
    ],
)
def test_what_cannot_be_meant_is_named(policy, said):
    """One sentence with the setting's name; loading it is refused and the policy in force stays."""
    assert any(said in problem for problem in policy.problems()), policy.problems()

    play = Play(1)
    with pytest.raises(InvalidAsk, match="cannot be meant"):
        play.do(LoadPolicy(policy=policy))
    assert play.world.policy == Policy()


def test_the_policy_that_ships_can_be_meant():
    """The defaults are a policy like any other."""
    assert Policy().problems() == []
    assert Policy(most_devices=None, quotas=(QuotaRule(user="*", devices=0),)).problems() == []


def test_a_profile_is_measured_by_the_rules_of_all_who_may_use_it():
    """A rule of one user, of another queue, or of a class that it does not name may leave it room."""
    profile = Profile(name="p", devices=2, queue="interactive")
    others = (
        QuotaRule(user="ada", devices=1),
        QuotaRule(team="vision", devices=1),
        QuotaRule(queue="training", devices=1),
        QuotaRule(device_class="*", devices=1),
    )

    assert Policy(profiles=(profile,), quotas=others).problems() == []


def test_a_digest_changes_with_every_rule_and_with_nothing_else():
    """It stands on each event, so that a past decision can be explained."""
    assert Policy().digest() == Policy().digest()
    assert Policy(teams={"a": ("x",), "b": ("y",)}).digest() == Policy(teams={"b": ("y",), "a": ("x",)}).digest()
    assert len({Policy().digest(), Policy(failures=4).digest(), Policy(quotas=(QuotaRule(devices=1),)).digest()}) == 3


def test_a_lowered_quota_evicts_nobody():
    """What exceeds it stays until it ends; only the next grant sees the new bound."""
    play = Play(3)
    first, second = play.running(), play.running()

    assert play.do(LoadPolicy(policy=rules(QuotaRule(user="*", devices=1)))) == ["policy-loaded"]
    assert set(play.holding()) == {first, second}
    third = play.job()
    assert play.waiting(third) is WaitingReason.QUOTA
    play.exit(first)
    assert play.waiting(third) is WaitingReason.QUOTA
    play.exit(second)
    assert play.state(third) is State.ACTIVE


def test_a_raised_quota_grants_in_the_same_step():
    """A reload is a command like any other: a step of the planner follows."""
    play = Play(2, rules(QuotaRule(user="*", devices=1)))
    play.running()
    waits = play.job()

    assert play.do(LoadPolicy(policy=Policy())) == ["policy-loaded", f"granted {waits}"]


def test_a_queue_that_holds_work_cannot_be_removed():
    """Waiting or running; once it is empty it may go. Names of the past stay in the history."""
    play = Play(1)
    job = play.running(queue="deferred")
    less = Policy(queues=(INTERACTIVE, TRAINING))

    with pytest.raises(InvalidAsk, match="lacks queues that hold work: deferred"):
        play.do(LoadPolicy(policy=less))
    play.exit(job)
    assert play.do(LoadPolicy(policy=less)) == ["policy-loaded"]


def test_a_reload_keeps_the_place_in_line():
    """Priority and rank are of the day of submission."""
    play = Play(1)
    play.running()
    first, second = play.job("bob", seconds=60), play.job("cleo", seconds=6000)
    before = list(play.world.line)

    swapped = (INTERACTIVE, TRAINING, DEFERRED, a_queue(name="new", priority=500))
    play.do(LoadPolicy(policy=Policy(queues=swapped, order_multiple=0)))

    assert play.world.line == before
    assert [it.id for it in play.world.queued()] == [first, second]


def test_a_team_is_the_first_that_lists_a_user():
    """By name, so that it does not depend on the order of a file; else everyone's."""
    policy = Policy(teams={"z": ("ada",), "b": ("ada", "bob")})

    assert [policy.teams_of(user)[0] for user in ("ada", "bob", "cleo")] == ["b", "b", "everyone"]


def test_the_groups_of_a_hub_are_teams_after_those_that_list_a_user():
    """All of them, or those that the admin names, in the admin's order."""
    policy = Policy(teams={"z": ("ada",)})
    chosen = Policy(team_groups=("speech", "vision"))

    assert policy.teams_of("ada", ("vision", "hiking")) == ("z", "hiking", "vision")
    assert chosen.teams_of("ada", ("vision", "hiking", "speech")) == ("speech", "vision")
    assert chosen.teams_of("ada", ("hiking",)) == ("everyone",)


def test_a_rule_is_named_as_people_say_it():
    """For texts: each user, team vision."""
    assert QuotaRule(user="*", queue="training", devices=1).title == "each user, queue training"
    assert QuotaRule(team="vision", device_class="*", devices=1).title == "team vision, each class"
    assert QuotaRule(devices=1).title == "everybody"


def test_the_first_rule_that_names_a_device_shares_it():
    """One by its UUID before its class, and all by a rule that names neither."""
    one, kind, rest = SharingRule(device="gpu-0", slack_bytes=1), SharingRule(device_class="l4"), SharingRule()
    policy = Policy(sharing=(one, kind, rest))

    devices = (a_device(0, device_class="l4"), a_device(1, device_class="l4"), a_device(2))

    assert [policy.sharing_of(device) for device in devices] == [one, kind, rest]
    assert Policy(sharing=(one,)).sharing_of(devices[1]) is None
