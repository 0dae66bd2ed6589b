"""Taking turns: where a queue says so, long jobs of it yield to short ones, and small ones move for a wide one."""

from __future__ import annotations

from msgspec.structs import replace

from jupyter_gpu.model import Kind, Policy, QuotaRule, State, WaitingReason
from tests.world import HOUR, SAVED, Play, a_device

MINUTE = 60


def a_policy(factor: int | None = 4, **words) -> Policy:
    """The usual queues; trainings take turns."""
    queues = [replace(it, slice_factor=factor) if it.name == "training" else it for it in Policy().queues]
    return Policy(queues=tuple(queues), **words)


def a_lab(devices: int = 1, factor: int | None = 4, **words) -> Play:
    """Devices whose trainings take turns."""
    return Play(devices, a_policy(factor, **words))


def test_a_short_job_takes_the_place_of_a_long_one_and_that_comes_back_after_it():
    """The long one has run through its protected time, saves, waits, and goes on on the same device."""
    play = a_lab()
    long = play.running("ada", seconds=40 * HOUR)
    play.later(20 * MINUTE)

    short = play.job("bob", seconds=HOUR)
    assert play.waiting(short) is WaitingReason.CLEARING
    assert play[long].evicted_for == short
    play.exit(long, SAVED)
    assert (play.state(short), play.state(long)) == (State.ACTIVE, State.QUEUED)
    play.start(short)
    play.now += HOUR
    play.exit(short)

    assert play.devices_of(long) == ("gpu-0",)
    assert play.story(long)[-2:] == ["requeued", "granted"]


def test_nobody_yields_to_an_equal_where_the_queue_does_not_say_so():
    """It is a rule that an admin makes: a training that cannot resume would lose by it."""
    play = a_lab(factor=None)
    long = play.running("ada", seconds=40 * HOUR)
    play.later(20 * MINUTE)

    assert play.waiting(play.job("bob", seconds=HOUR)) is WaitingReason.DEVICES
    assert play.state(long) is State.ACTIVE


def test_who_is_nearly_as_short_waits():
    """Four times as long is the least; what is already done counts for who runs."""
    play = a_lab()
    long = play.running("ada", seconds=4 * HOUR)
    play.later(HOUR)

    assert play.waiting(play.job("bob", seconds=HOUR)) is WaitingReason.DEVICES
    assert play.state(long) is State.ACTIVE


def test_nobody_yields_within_the_protected_time_and_a_tick_later_they_do():
    """Whoever waits need not be new for it."""
    play = a_lab()
    long = play.running("ada", seconds=40 * HOUR)
    play.later(5 * MINUTE)
    short = play.job("bob", seconds=HOUR)
    assert play.waiting(short) is WaitingReason.DEVICES

    play.later(5 * MINUTE)

    assert play[long].evicted_for == short


def test_who_yielded_often_enough_today_runs_on():
    """The cap is the same as for every preemption."""
    play = a_lab(preemptions_per_day=1)
    long = play.running("ada", seconds=100 * HOUR)
    play.later(20 * MINUTE)
    short = play.job("bob", seconds=HOUR)
    play.exit(long, SAVED)
    play.start(short)
    play.now += MINUTE
    play.exit(short)
    play.start(long)
    play.later(20 * MINUTE)

    assert play.waiting(play.job("bob", seconds=HOUR)) is WaitingReason.DEVICES
    assert play.state(long) is State.ACTIVE


def test_what_was_taken_for_somebody_is_theirs():
    """Who stands before them and wants it too, but whom nobody had to yield to, does not get it."""
    play = a_lab()
    long = play.running("ada")
    play.later(20 * MINUTE)
    before = play.job("cleo", seconds=20 * HOUR)
    play.now += 100 * HOUR  # its place in line is before that of anybody who comes now
    short = play.job("bob", seconds=HOUR)
    assert [it.id for it in play.world.queued()] == [before, short]

    assert play[long].evicted_for == short
    play.exit(long, SAVED)

    assert (play.state(short), play.state(before)) == (State.ACTIVE, State.QUEUED)


def test_a_short_job_moves_nobody_where_that_would_not_make_it_fit():
    """A preemption that helps nobody is none: the other device is a reservation's."""
    play = a_lab(2)
    play.running("ada", seconds=40 * HOUR)
    play.reservation("zoe", seconds=10 * HOUR)
    play.later(20 * MINUTE)

    assert play.waiting(play.job("bob", devices=2, seconds=HOUR)) is WaitingReason.DEVICES


def on_two_nodes(policy: Policy) -> Play:
    """Two nodes of two devices."""
    return Play([a_device(index, node=f"node-{index // 2}") for index in range(4)], policy)


def test_a_small_job_moves_for_a_wide_one_where_devices_are_scattered():
    """Two devices are free, one on each node: one of those who run goes on on the other."""
    play = on_two_nodes(a_policy())
    jobs = [play.running("ada", seconds=HOUR) for _ in range(4)]
    play.later(20 * MINUTE)
    play.exit(jobs[0])
    play.exit(jobs[2])

    wide = play.job("bob", devices=2, seconds=100 * HOUR)
    assert play.waiting(wide) is WaitingReason.DEVICES, "who has only just come moves nobody"
    play.later(10 * MINUTE)
    moved = next(id_ for id_ in (jobs[1], jobs[3]) if play.state(id_) is State.YIELDING)
    assert play[moved].evicted_for == wide
    play.exit(moved, SAVED)

    assert play.state(wide) is State.ACTIVE
    assert play.state(moved) is State.ACTIVE


def test_nothing_moves_where_the_free_devices_are_too_few():
    """A wide job that would push small ones out of their devices waits for its turn like others."""
    play = on_two_nodes(a_policy())
    jobs = [play.running("ada", seconds=HOUR) for _ in range(4)]
    play.later(20 * MINUTE)
    play.exit(jobs[0])

    assert play.waiting(play.job("bob", devices=2, seconds=100 * HOUR)) is WaitingReason.DEVICES
    assert [play.state(id_) for id_ in jobs[1:]] == [State.ACTIVE] * 3


def test_of_several_the_fewest_devices_change_hands():
    """One device is wanted: the job with two runs on."""
    play = a_lab(3)
    wide = play.running("ada", devices=2, seconds=100 * HOUR)
    narrow = play.running("ada", seconds=40 * HOUR)
    play.later(20 * MINUTE)
    play.job("bob", seconds=HOUR)

    assert (play.state(wide), play.state(narrow)) == (State.ACTIVE, State.YIELDING)


def test_who_yielded_stands_behind_whom_it_yielded_to():
    """Its place counts what it has had and what it still needs, so no two push each other out in turns."""
    play = a_lab()
    long = play.running("ada", seconds=40 * HOUR)
    play.later(20 * MINUTE)
    short, other = play.job("bob", seconds=HOUR), play.job("cleo", seconds=HOUR)
    play.exit(long, SAVED)

    assert [it.id for it in play.world.queued()] == [other, long]
    assert play[long].rank_ms > play[short].rank_ms


def test_saying_that_a_job_is_short_gets_nobody_ahead_for_long():
    """A limit that is stated is kept: who is over it is ended, so a lie costs the work."""
    play = a_lab()
    long = play.running("ada", seconds=40 * HOUR)
    play.later(20 * MINUTE)
    liar = play.job("bob", seconds=HOUR)
    play.exit(long, SAVED)
    play.start(liar)

    play.later(HOUR + 1)

    assert play[liar].eviction == "timed-out"


def test_a_reservation_never_takes_turns_and_no_queue_does_that_does_not_yield():
    """Its time was promised; and where nothing is preemptible, the policy is refused."""
    queues = (replace(Policy().queues[1], kinds=(Kind.JOB, Kind.RESERVATION), slice_factor=4),)
    assert Policy(queues=queues).problems() == []
    play = Play(1, Policy(queues=queues))
    reservation = play.reservation("ada", seconds=8 * HOUR)
    play.later(HOUR)

    assert play.waiting(play.job("bob", seconds=MINUTE)) is WaitingReason.DEVICES
    assert play.state(reservation) is State.ACTIVE
    stiff = (replace(queues[0], preemptible=False), *Policy().queues[:1])
    assert "slice_factor" in " ".join(Policy(queues=stiff).problems())
    assert "slice_factor is 1; it must be 2" in " ".join(
        Policy(queues=(replace(queues[0], slice_factor=1),)).problems()
    )


def test_what_is_another_teams_own_takes_no_turns():
    """A short job of others waits until the team lends it."""
    quotas = (QuotaRule(team="vision", share_devices=1),)
    play = Play(1, a_policy(teams={"vision": ("ada",), "speech": ("bob",)}, quotas=quotas))
    own = play.running("ada", seconds=40 * HOUR)
    play.later(20 * MINUTE)

    play.job("bob", seconds=HOUR)

    assert play.state(own) is State.ACTIVE
    assert play[play.job("ada", seconds=HOUR)].waiting is WaitingReason.CLEARING
