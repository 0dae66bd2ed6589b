"""Held and allowed, used and left: devices at once, GPU-hours per window, and what is charged, to the millisecond."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.moment import Moment
from jupyter_gpu.core.quota import Ledger, available_again_at, bind
from jupyter_gpu.core.recent_use import RecentUse
from jupyter_gpu.core.status import quota_views
from jupyter_gpu.errors import LimitExceeded
from jupyter_gpu.model import (
    Caller,
    Cancel,
    Extend,
    LetGo,
    Policy,
    QuotaRule,
    Release,
    Scope,
    SeeExited,
    SharingRule,
    State,
    WaitingReason,
)
from tests.world import BEGIN, DAY, DONE, GIB, HOUR, SAVED, Play, a_device

MS = 1000
TEAMS = {"vision": ("ada", "bob"), "speech": ("cleo",)}


def a_policy(*quotas: QuotaRule, **words) -> Policy:
    """The usual policy with these rules, and two teams."""
    return Policy(quotas=quotas, teams=TEAMS, **words)


# -- devices at once


def test_a_rule_of_each_user_binds_each_by_itself():
    """The star means each; nobody waits for what another holds."""
    play = Play(4, a_policy(QuotaRule(user="*", devices=1)))
    ada, bob = play.job("ada"), play.job("bob")

    assert {play.state(ada), play.state(bob)} == {State.ACTIVE}
    assert play.waiting(play.job("ada")) is WaitingReason.QUOTA


def test_a_rule_of_none_binds_all_together():
    """No selector at all is everybody in one."""
    play = Play(4, a_policy(QuotaRule(devices=1)))
    play.job("ada")

    assert play.waiting(play.job("bob")) is WaitingReason.QUOTA


@pytest.mark.parametrize(
    ("rule", "other", "granted"),
    [
        (QuotaRule(user="ada", devices=1), {"owner": "bob"}, True),
        (QuotaRule(team="vision", devices=1), {"owner": "bob"}, False),
        (QuotaRule(team="vision", devices=1), {"owner": "cleo"}, True),
        (QuotaRule(team="*", devices=1), {"owner": "cleo"}, True),
        (QuotaRule(queue="training", devices=1), {"owner": "cleo"}, False),
        (QuotaRule(queue="training", devices=1), {"owner": "cleo", "queue": "deferred"}, True),
        (QuotaRule(queue="*", devices=1), {"owner": "ada", "queue": "deferred"}, True),
        (QuotaRule(user="*", queue="training", devices=1), {"owner": "ada"}, False),
        (QuotaRule(device_class="a100", devices=1), {"owner": "cleo", "device_class": "a100"}, False),
        (QuotaRule(device_class="*", devices=1), {"owner": "cleo", "device_class": "l4"}, True),
    ],
)
def test_selectors(rule, other, granted):
    """A rule binds a workload when every selector matches it."""
    play = Play([a_device(0), a_device(1), a_device(2, device_class="l4")], a_policy(rule))
    play.job("ada", device_class="a100")

    second = play.job(**other)

    assert (play.state(second) is State.ACTIVE) is granted
    assert granted or play.waiting(second) is WaitingReason.QUOTA


def test_all_rules_that_match_apply():
    """The tightest of them decides."""
    play = Play(8, a_policy(QuotaRule(user="*", devices=4), QuotaRule(team="vision", devices=3)))

    with pytest.raises(LimitExceeded, match="4 GPUs are more than 3 GPUs at once, the quota of team vision"):
        play.job("ada", devices=4)
    assert play.state(play.job("ada", devices=3)) is State.ACTIVE


def test_an_ask_of_no_class_goes_where_its_rules_allow():
    """A class that is used up is barred; another serves. When all are, it waits for the quota and says so."""
    rules = (QuotaRule(user="*", device_class="a100", devices=1), QuotaRule(user="*", device_class="l4", devices=1))
    play = Play(
        [a_device(0), a_device(1), a_device(2, device_class="l4"), a_device(3, device_class="l4")], a_policy(*rules)
    )
    first, second, third = play.job(), play.job(), play.job()

    assert (play.devices_of(first), play.devices_of(second)) == (("gpu-0",), ("gpu-2",))
    assert play.waiting(third) is WaitingReason.QUOTA


def test_what_yields_is_still_held():
    """A device counts until it is clear: giving back early does not double a quota."""
    play = Play(2, a_policy(QuotaRule(user="*", devices=1)))
    first = play.running()
    second = play.job()
    play.exit(first, DONE, clear=False)

    assert play.waiting(second) is WaitingReason.QUOTA
    play.clear(first)
    assert play.state(second) is State.ACTIVE


def test_over_quota_is_passed_by_those_who_are_not():
    """It waits; others do not wait for it, and nothing is held back for it."""
    play = Play(2, a_policy(QuotaRule(user="*", devices=1)))
    play.running("ada")
    play.job("ada")

    assert play.state(play.job("bob")) is State.ACTIVE


def test_no_devices_need_no_quota():
    """A job that sees no GPU holds none."""
    play = Play(1, a_policy(QuotaRule(user="*", devices=0)))

    assert play.state(play.job(devices=0)) is State.ACTIVE
    with pytest.raises(LimitExceeded, match="1 GPU is more than 0 GPUs at once, the quota of each user"):
        play.job(devices=1)


def test_a_promise_counts_against_the_quota_in_the_same_step():
    """Of two asks that are over it together only one preempts."""
    policy = a_policy(QuotaRule(user="*", queue="interactive", devices=1))
    play = Play(2, policy)
    jobs = [play.running("cleo"), play.running("cleo")]
    play.later(HOUR)
    play.reservation("bob", paused=True)
    play.reservation("bob", paused=True)
    play.do(LetGo(workload=3, by="bob"))
    play.do(LetGo(workload=4, by="bob"))

    assert [play.state(job) for job in jobs].count(State.YIELDING) == 1
    assert play.waiting(3) is WaitingReason.CLEARING
    assert play.waiting(4) is WaitingReason.QUOTA


# -- GPU-hours


def test_a_reservation_is_charged_whole_at_the_grant_and_refunded_at_its_release():
    """Two devices for two hours are four hours at once; half an hour of use leaves one."""
    play = Play(2)
    reservation = play.reservation(devices=2, seconds=2 * HOUR)

    assert play.used_ms("bob") == 4 * HOUR * MS
    play.now += 1800.5
    play.do(Release(workload=reservation, by="bob"))
    assert play.used_ms("bob") == 4 * HOUR * MS
    play.now += 30  # clearing is nobody's use
    play.clear(reservation)
    assert play.used_ms("bob") == 2 * 1_800_500


def test_an_extension_is_charged_when_it_is_bought():
    """And refunded like the rest."""
    play = Play(1)
    reservation = play.reservation(seconds=HOUR)

    play.do(Extend(workload=reservation, by="bob", seconds=HOUR))
    assert play.used_ms("bob") == 2 * HOUR * MS
    play.do(Release(workload=reservation, by="bob"))
    play.clear(reservation)
    assert play.used_ms("bob") == 0


def test_overtime_is_paid_at_the_end():
    """Holding on while nobody waits is use like any other."""
    play = Play(1)
    reservation = play.reservation(seconds=HOUR)
    play.later(3 * HOUR)
    play.do(Release(workload=reservation, by="bob"))
    play.clear(reservation)

    assert play.used_ms("bob") == 3 * HOUR * MS


def test_a_job_is_charged_for_what_it_ran_in_the_hours_it_ran_in():
    """Not at its grant, and not all in one hour, so that a window counts what lies within it."""
    play = Play(2)
    job = play.running(devices=2)
    play.now += 2.5 * HOUR
    assert play.used_ms("ada") == 0
    play.exit(job)

    begin = int(BEGIN) // HOUR
    assert play.world.usage["ada", "everyone", "training", "a100"] == {
        begin: 2 * HOUR * MS,
        begin + 1: 2 * HOUR * MS,
        begin + 2: HOUR * MS,
    }


def test_every_attempt_is_charged():
    """A preempted one too."""
    play = Play(1)
    job = play.running()
    play.later(HOUR)
    reservation = play.reservation()
    play.exit(job, SAVED)

    assert play.used_ms("ada") == HOUR * MS
    assert play.used_ms("bob") == 2 * HOUR * MS
    assert play.state(reservation) is State.ACTIVE


def test_a_reservation_waits_for_a_budget_that_it_would_overdraw():
    """It is charged whole, so it must fit whole; a shorter one does."""
    play = Play(2, a_policy(QuotaRule(user="*", gpu_hours=3)))
    play.reservation(seconds=2 * HOUR)

    assert play.waiting(play.reservation(seconds=2 * HOUR)) is WaitingReason.BUDGET
    assert play.state(play.reservation(seconds=HOUR)) is State.ACTIVE


def test_two_reservations_of_one_step_cannot_both_have_the_last_hours():
    """The first grant counts when the second is looked at."""
    play = Play(2, a_policy(QuotaRule(user="*", gpu_hours=3)))
    running = play.running("cleo", devices=2)
    first, second = play.reservation(seconds=2 * HOUR), play.reservation(seconds=2 * HOUR)
    play.exit(running)

    assert (play.state(first), play.waiting(second)) == (State.ACTIVE, WaitingReason.BUDGET)


def test_a_job_starts_while_anything_is_left_and_runs_on():
    """Jobs are charged as they run: one may overdraw, the next waits."""
    play = Play(2, a_policy(QuotaRule(user="*", gpu_hours=1)))
    job = play.running()
    play.later(2 * HOUR)

    assert play.waiting(play.job()) is WaitingReason.BUDGET
    assert play.state(job) is State.ACTIVE


def test_who_spent_a_budget_yields_first_after_the_protected_time():
    """To whoever is in line with the same priority and a budget left, and waits then for the window."""
    play = Play(1, a_policy(QuotaRule(user="*", gpu_hours=1)))
    job = play.running("ada")
    other = play.job("cleo")
    assert play.later(HOUR - 1) == []

    assert play.later(1) == [f"evicted (preempted) {job}", f"explained {other}:clearing"]
    play.exit(job, SAVED)
    assert (play.state(other), play.waiting(job)) == (State.ACTIVE, WaitingReason.BUDGET)


def test_a_window_rolls():
    """Use leaves it when its hour has, and the answer says when."""
    play = Play(1, a_policy(QuotaRule(user="*", gpu_hours=1, window_seconds=DAY)))
    job = play.running("ada")
    play.now += 1.5 * HOUR
    play.exit(job)
    waits = play.job("ada")
    assert play.waiting(waits) is WaitingReason.BUDGET

    binding = bind(0, play.world.policy.quotas[0], "ada", "vision", "training", None)
    again = available_again_at(play.world, 0, binding, play.now)
    assert again == BEGIN + HOUR + DAY
    play.now = again - 1
    assert play.later(0) == [f"amended {waits}"] or play.waiting(waits) is WaitingReason.BUDGET
    play.later(1)
    assert play.state(waits) is State.ACTIVE
    assert available_again_at(play.world, 0, binding, BEGIN + 9 * DAY) is None


def test_a_long_job_counts_only_within_the_window():
    """What it ran before the window began is past."""
    play = Play(1, a_policy(QuotaRule(user="*", gpu_hours=100, window_seconds=DAY)))
    play.running("ada")
    play.now += 3 * DAY
    binding = bind(0, play.world.policy.quotas[0], "ada", "vision", "training", None)

    assert Ledger(play.world, play.now).spent_ms(0, binding) == DAY * MS


def test_an_extension_goes_up_to_the_budget():
    """Granted as far as it goes, refused when that is nowhere; the answer is the new end."""
    play = Play(1, a_policy(QuotaRule(user="*", gpu_hours=3)))
    reservation = play.reservation(seconds=2 * HOUR)

    play.do(Extend(workload=reservation, by="bob", seconds=5 * HOUR))
    assert play[reservation].lease.ends_at == BEGIN + 3 * HOUR
    with pytest.raises(LimitExceeded, match="cannot be extended"):
        play.do(Extend(workload=reservation, by="bob", seconds=60))


def test_use_is_forgotten_after_the_longest_window():
    """Buckets that no window reaches are dropped."""
    play = Play(1)
    for _ in range(2):
        job = play.running()
        play.now += HOUR
        play.exit(job)
        play.now += 40 * DAY

    assert play.used_ms("ada") == HOUR * MS


def test_a_refund_never_makes_use_negative():
    """Release at once: nothing was used."""
    play = Play(1)
    reservation = play.reservation()
    play.do(Cancel(workload=reservation, by="bob"))
    play.clear(reservation)

    assert play.used_ms("bob") == 0


def test_decayed_use_halves_and_counts_owner_and_team():
    """In thousandths of everybody's: the mean of the owner's part and the team's."""
    play = Play(2, a_policy())
    for owner in ("ada", "cleo"):
        job = play.running(owner)
        play.now += HOUR
        play.exit(job)

    def part(owner: str, team: str, later: float = 0) -> int:
        return RecentUse(play.world, play.now + later).permille(owner, team)

    assert (part("ada", "vision"), part("bob", "vision"), part("dan", "everyone")) == (500, 250, 0)
    job = play.running("ada")
    play.now += 7 * DAY
    play.exit(job)
    assert part("ada", "vision") > 900
    assert part("ada", "vision", 40 * DAY) == 0


def test_an_exit_without_a_clear_device_is_charged_once():
    """At the close, up to the release."""
    play = Play(1)
    job = play.running()
    play.now += 60
    play.do(SeeExited(workload=job, attempt=1, outcome=DONE))
    play.now += 600
    play.clear(job)

    assert play.used_ms("ada") == 60 * MS


# -- the memory of parts


def shared(count: int = 2, *quotas: QuotaRule) -> Play:
    """Devices of 80 GiB that are leased in parts."""
    return Play(count, a_policy(*quotas, sharing=(SharingRule(),)))


def test_the_parts_of_shared_devices_are_bounded_together():
    """In bytes, over all devices; a smaller part may still fit in, and what is given back counts no more."""
    play = shared(2, QuotaRule(user="*", memory_bytes=60 * GIB))
    first = play.running("ada", memory_bytes=40 * GIB)

    large = play.job("ada", memory_bytes=30 * GIB)
    assert play.waiting(large) is WaitingReason.QUOTA
    assert play.state(play.job("ada", memory_bytes=20 * GIB)) is State.ACTIVE
    assert play.state(play.job("bob", memory_bytes=60 * GIB)) is State.ACTIVE
    play.exit(first)
    assert play.state(large) is State.ACTIVE


def test_each_part_of_an_ask_counts():
    """Two devices of 30 GiB are 60."""
    play = shared(2, QuotaRule(user="*", memory_bytes=50 * GIB))

    with pytest.raises(LimitExceeded, match="60GiB of shared GPUs' memory are more than 50GiB at once"):
        play.job("ada", devices=2, memory_bytes=30 * GIB)
    assert play.state(play.job("ada", devices=2, memory_bytes=25 * GIB)) is State.ACTIVE


def test_whole_devices_do_not_count_as_parts():
    """Another rule bounds those."""
    play = shared(2, QuotaRule(user="*", memory_bytes=1 * GIB))

    assert play.state(play.job("ada")) is State.ACTIVE


def test_two_parts_of_one_step_cannot_both_have_the_last_bytes():
    """The first grant counts when the second is looked at."""
    play = shared(1, QuotaRule(user="*", memory_bytes=50 * GIB))
    whole = play.running("cleo")
    first, second = (play.job("ada", memory_bytes=30 * GIB) for _ in range(2))
    play.exit(whole)

    assert (play.state(first), play.waiting(second)) == (State.ACTIVE, WaitingReason.QUOTA)


def test_a_class_whose_parts_are_used_up_is_barred_and_another_serves():
    """As with a rule of devices."""
    rule = QuotaRule(user="*", device_class="a100", memory_bytes=40 * GIB)
    play = Play([a_device(0), a_device(1, device_class="l4")], a_policy(rule, sharing=(SharingRule(),)))
    play.running("ada", memory_bytes=30 * GIB, device_class="a100")

    assert play.devices_of(play.job("ada", memory_bytes=30 * GIB)) == ("gpu-1",)


def test_a_part_is_charged_as_the_whole_device():
    """Its memory is divided and its compute is not: who has a part may use all the time that there is."""
    play = shared(1)
    job = play.running("ada", memory_bytes=10 * GIB)
    play.now += HOUR
    play.exit(job)

    assert play.used_ms("ada") == HOUR * MS


def test_what_is_held_of_parts_is_shown_beside_its_bound():
    """To whom it concerns."""
    play = shared(1, QuotaRule(user="*", memory_bytes=60 * GIB))
    play.running("ada", memory_bytes=40 * GIB)
    caller = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))

    (found,) = quota_views(Moment(play.world, play.now), caller)
    assert (found.rule, found.memory_held_bytes, found.memory_allowed_bytes) == ("you", 40 * GIB, 60 * GIB)
