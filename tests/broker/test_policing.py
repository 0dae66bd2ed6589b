"""What operators are told of the rules at work: whom a reload affects, and who waits past their queue's limit."""

from __future__ import annotations

import logging

import msgspec
import pytest

from jupyter_gpu.broker.alerts import Alerts
from jupyter_gpu.broker.policing import MOST_ALONE, MOST_NAMED, PolicyTold, tell_of_waits
from jupyter_gpu.core.policy_check import check
from jupyter_gpu.model import Caller, LoadPolicy, Pause, Policy, QuotaRule, Scope, State
from jupyter_gpu.model.queues import TRAINING
from jupyter_gpu.units import format_seconds
from tests.world import HOUR, SAVED, Play

from .ground import Clock

OPER = Caller(name="oper", account="oper", scopes=frozenset({Scope.READ, Scope.OPERATE}))
ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))


LIMIT = TRAINING.wait_limit_seconds or 0


def shown(alerts: Alerts, caller: Caller = OPER) -> dict[str, str]:
    """What a caller is told."""
    return {view.key: view.text for view in alerts.views(caller)}


# -- who waits too long


def test_who_waits_past_the_limit_of_a_queue_is_told_to_operators_until_it_starts() -> None:
    """Once for each; it says whose it is, since when, and what it waits for."""
    play, alerts = Play(1), Alerts(Clock())
    play.running("bob", seconds=2 * LIMIT)
    waits = play.job("ada", name="digits")
    play.later(LIMIT)
    tell_of_waits(alerts, play.world, play.now)
    assert shown(alerts) == {}

    play.later(1)
    tell_of_waits(alerts, play.world, play.now)
    assert list(shown(alerts)) == [f"wait:{waits}"]
    text = shown(alerts)[f"wait:{waits}"]
    assert text.startswith(f"job {waits} (digits) of ada waits since")
    assert f"past the limit of the queue training ({format_seconds(LIMIT)}), for devices" in text
    assert shown(alerts, ADA) == {}

    play.exit(1)
    assert play.state(waits) is State.ACTIVE
    tell_of_waits(alerts, play.world, play.now)
    assert shown(alerts) == {}


def test_it_is_told_once_also_where_it_is_preempted_later() -> None:
    """It keeps its place at the front; that it got its devices once is what the limit was about."""
    play, alerts = Play(1), Alerts(Clock())
    play.running("bob")
    waits = play.job("ada")
    play.later(LIMIT + 1)
    play.exit(1)
    play.start(waits)
    play.later(HOUR)
    play.reservation("zoe")
    play.exit(waits, SAVED)
    assert (play.state(waits), play[waits].lifted) == (State.QUEUED, True)

    tell_of_waits(alerts, play.world, play.now)
    assert shown(alerts) == {}


def test_what_its_owner_keeps_from_starting_is_nobodys_long_wait() -> None:
    """A job that was paused after it was lifted."""
    play, alerts = Play(1), Alerts(Clock())
    play.running("bob")
    waits = play.job("ada")
    play.later(LIMIT + 1)
    play.do(Pause(workload=waits, by="ada"))

    tell_of_waits(alerts, play.world, play.now)
    assert shown(alerts) == {}


def test_of_a_long_line_the_first_are_told_alone_and_the_rest_together() -> None:
    """A command for each of a thousand would be a fault of its own."""
    play, alerts = Play(1), Alerts(Clock())
    play.running("bob")
    for _ in range(MOST_ALONE + 3):
        play.job("ada")
    play.later(LIMIT + 1)

    tell_of_waits(alerts, play.world, play.now)

    assert len(shown(alerts)) == MOST_ALONE + 1
    assert shown(alerts)["wait:more:training"].startswith("3 more wait past the limit of the queue training")


# -- a reload


def reloaded(play: Play, told: PolicyTold, policy: Policy) -> None:
    """As the broker does it."""
    view = check(play.world, policy, play.now)
    told.will_load(view)
    play.do(LoadPolicy(policy=policy))
    told.has_loaded(view, play.world, play.now)


def test_a_reload_is_told_before_it_happens_and_for_as_long_as_it_is_felt(caplog: pytest.LogCaptureFixture) -> None:
    """All of it in the log, whom it affects in an alert for operators, which ends with the last of them."""
    play, alerts = Play(2), Alerts(Clock())
    told = PolicyTold(alerts)
    jobs = [play.running("ada"), play.running("ada")]
    with caplog.at_level(logging.INFO):
        reloaded(play, told, Policy(quotas=(QuotaRule(user="*", devices=1),)))

    assert "the policy that is being loaded: Each user: GPUs at once unbounded, then 1 (less); concerns ada." in (
        caplog.messages
    )
    (text,) = shown(alerts).values()
    assert "affects work that is here" in text
    assert f"Job {jobs[0]} of ada is beyond a quota then and counts as borrowed" in text
    assert all(play.state(job) is State.ACTIVE for job in jobs)

    play.exit(jobs[0])
    told.look(play.world)
    assert len(shown(alerts)) == 1
    play.exit(jobs[1])
    told.look(play.world)
    assert shown(alerts) == {}


def test_a_reload_that_affects_nobody_is_no_alert(caplog: pytest.LogCaptureFixture) -> None:
    """Nor is one by which people only gain; the log has it all the same."""
    play, alerts = Play(2, Policy(quotas=(QuotaRule(user="*", devices=1),))), Alerts(Clock())
    told = PolicyTold(alerts)
    play.running("ada")
    waits = play.job("ada")
    with caplog.at_level(logging.INFO):
        reloaded(play, told, Policy())

    assert f"the policy that is being loaded: Job {waits} of ada starts at once." in caplog.messages
    assert shown(alerts) == {}

    caplog.clear()
    with caplog.at_level(logging.INFO):
        reloaded(play, told, Policy())
    assert caplog.messages == []


def test_the_next_reload_takes_the_place_of_the_last() -> None:
    """What is wrong no more is told no more."""
    play, alerts = Play(2), Alerts(Clock())
    told = PolicyTold(alerts)
    play.running("ada"), play.running("ada")
    reloaded(play, told, Policy(quotas=(QuotaRule(user="*", devices=1),)))
    assert len(shown(alerts)) == 1

    reloaded(play, told, Policy())
    assert shown(alerts) == {}


def test_an_alert_names_some_and_counts_the_rest() -> None:
    """It is read on a telephone."""
    play, alerts = Play(MOST_NAMED + 2), Alerts(Clock())
    told = PolicyTold(alerts)
    for _ in range(MOST_NAMED + 2):
        play.running("ada")
    reloaded(play, told, Policy(quotas=(QuotaRule(user="*", devices=1),)))

    (text,) = shown(alerts).values()
    assert text.count("counts as borrowed") == MOST_NAMED
    assert text.endswith("And 2 more: see the broker's log.")


def test_a_digest_is_of_the_policy_that_was_loaded() -> None:
    """Two reloads that affect somebody are two alerts."""
    play, alerts = Play(2), Alerts(Clock())
    told = PolicyTold(alerts)
    play.running("ada"), play.running("ada")
    first = Policy(quotas=(QuotaRule(user="*", devices=1),))
    reloaded(play, told, first)
    second = msgspec.structs.replace(first, quotas=(QuotaRule(user="*", devices=1), QuotaRule(team="*", devices=0)))
    play.do(LoadPolicy(policy=Policy()))
    reloaded(play, told, second)

    assert list(shown(alerts)) == [f"policy:{second.digest()}"]
