"""When those in line will start: the planner run forward, with early and with late ends."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.core.foresight import Foresight, foresee
from jupyter_gpu.core.likely import likely_left_seconds
from jupyter_gpu.core.outlook import Expected, place_of
from jupyter_gpu.core.sooner import sooner
from jupyter_gpu.core.status import view
from jupyter_gpu.model import (
    Caller,
    Pause,
    Policy,
    QueuePolicy,
    QuotaRule,
    Scope,
    SoonerView,
    State,
)
from jupyter_gpu.model.states import Kind
from tests.world import DAY, DONE, HOUR, MINUTE, Play, a_device, a_job, differences

ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))


def a_history(play: Play, owner: str, seconds: list[float], **words) -> None:
    """Jobs of theirs that ran for so long, one after the other."""
    for length in seconds:
        job = play.running(owner, **words)
        play.now += length
        play.exit(job, DONE)


def expected(play: Play, id_: int) -> Expected | None:
    """What a look ahead says of one that waits."""
    return foresee(play.world, play.now).of(id_, play.now)


def test_who_waits_for_an_end_that_is_known_is_told_that_instant():
    """A reservation ends when it was bought to, and then it has its grace: both runs give that."""
    play = Play(devices=1)
    play.reservation("grace", seconds=HOUR)
    job = play.job("ada")

    at = play.now + HOUR + play.world.policy.reservation_grace_seconds
    assert expected(play, job) == Expected(at, at)


def test_the_range_spans_what_the_holders_jobs_took_of_late():
    """From what the short ones took to what the long ones did, and wider, since others may come."""
    play = Play(devices=1)
    a_history(play, "grace", [10 * MINUTE, 20 * MINUTE, 2 * HOUR, 3 * HOUR] * 3)
    play.running("grace")
    job = play.job("ada", seconds=HOUR)

    found = expected(play, job)

    assert found is not None
    assert play.now < found.from_at < play.now + 20 * MINUTE
    assert found.until_at is not None
    assert play.now + 2 * HOUR < found.until_at < play.now + 6 * HOUR


def test_what_has_run_for_long_is_expected_to_run_as_those_that_ran_longer():
    """Of jobs that took minutes or hours, one that is there after an hour is one of the latter."""
    play = Play(devices=1)
    a_history(play, "grace", [10 * MINUTE, 20 * MINUTE, 2 * HOUR, 3 * HOUR] * 3)
    running = play.running("grace")
    early = likely_left_seconds(play.world, play[running], play.now, 250)
    play.later(HOUR)

    assert early <= 20 * MINUTE
    assert likely_left_seconds(play.world, play[running], play.now, 250) >= HOUR / 2


def test_nobody_is_expected_to_run_beyond_their_limit():
    """The limit is the end, whatever their other jobs took."""
    play = Play(devices=1)
    a_history(play, "grace", [5 * HOUR] * 4)
    running = play.running("grace", seconds=HOUR)

    assert likely_left_seconds(play.world, play[running], play.now, 750) == HOUR
    play.later(HOUR / 2)
    assert likely_left_seconds(play.world, play[running], play.now, 750) == HOUR / 2


def test_the_end_of_whom_nothing_is_known_is_open():
    """Nothing of theirs, their team's or anybody's has run, and they said no limit: nobody knows when they leave."""
    play = Play(devices=1)
    running = play.running("grace")
    job = play.job("ada")

    found = expected(play, job)

    assert found is not None
    assert found.until_at is None
    reason = view(play.world, play[job], ADA, play.now, alone=True, expected=found).reason
    assert f"When is not known: job {running} has no time limit." in reason


def test_who_stands_behind_others_starts_after_them():
    """All of the line are foreseen at once, each with those before it."""
    play = Play(devices=1)
    a_history(play, "grace", [HOUR] * 12)
    play.running("grace")
    jobs = [play.job("grace") for _ in range(5)]

    found = [expected(play, id_) for id_ in jobs]

    assert [it.from_at for it in found] == sorted({it.from_at for it in found})
    assert [it.until_at for it in found] == sorted({it.until_at for it in found})
    assert found[4].from_at > play.now + 3 * HOUR


def test_who_would_preempt_is_foreseen_to_do_so():
    """It is the planner itself that runs: a person's reservation moves a training once its protected time is over."""
    play = Play(devices=1)
    a_history(play, "grace", [9 * HOUR] * 4)
    play.running("grace")
    person = play.reservation("ada")

    policy, queue = play.world.policy, play.world.policy.queue("training")
    at = play.now + queue.protected_seconds + queue.grace_seconds
    found = expected(play, person)
    assert found is not None
    assert abs(found.from_at - at) <= policy.kill_after_seconds
    assert found.until_at == found.from_at


def test_what_is_promised_for_later_begins_at_its_time():
    """A reservation for later is no estimate."""
    play = Play(devices=2)
    play.running("grace", seconds=HOUR)
    begins_at = play.now + DAY
    booked = play.reservation("ada", seconds=HOUR, not_before=begins_at, holder=None)

    assert expected(play, booked) == Expected(begins_at, begins_at)


def test_what_is_paused_is_not_foreseen():
    """Nobody knows when it is let go, and nobody waits for it meanwhile."""
    play = Play(devices=1)
    play.running("grace", seconds=HOUR)
    paused, other = play.job("ada", seconds=HOUR), play.job("ada", seconds=HOUR)
    play.do(Pause(workload=paused, by="ada"))

    assert expected(play, paused) is None
    assert expected(play, other) is not None


def test_a_look_that_finds_no_end_says_until_when_it_has_looked():
    """With a budget of a few steps the far end of the line is only known not to start before those."""
    play = Play(devices=1)
    a_history(play, "grace", [HOUR] * 12)
    play.running("grace")
    jobs = [play.job("grace") for _ in range(30)]

    few = foresee(play.world, play.now, budget=500)

    assert few.starts[jobs[0]].until_at is not None
    assert few.starts[jobs[-1]].until_at is None
    assert play.now < few.starts[jobs[-1]].from_at < foresee(play.world, play.now).starts[jobs[-1]].from_at


def test_to_look_ahead_leaves_the_world_as_it_is():
    """Nothing of it is state, no habit is learnt of it, and the same world gives the same answer."""
    play = Play(devices=2)
    a_history(play, "grace", [HOUR, 2 * HOUR])
    play.running("grace", 2)
    for devices in (1, 2, 1):
        play.job("ada", devices)
    before = play.world.copy()

    first = foresee(play.world, play.now)

    assert differences(before, play.world) == []
    assert before.habits == play.world.habits
    assert foresee(play.world, play.now) == first


def test_what_was_said_a_while_ago_is_never_of_the_past():
    """Who has not started by the end of the range is expected at any time, and until when is not known."""
    known = Foresight({7: Expected(100.0, 200.0)})

    assert known.of(7, 50.0) == Expected(100.0, 200.0)
    assert known.of(7, 150.0) == Expected(150.0, 200.0)
    assert known.of(7, 250.0) == Expected(250.0, None)
    assert known.of(8, 50.0) is None


# -- who is before it, in words


def test_who_is_before_it_is_named_as_far_as_one_may_know():
    """The last few of its queue; where names are not public it is only said how many."""
    play = Play(devices=1)
    play.running("grace", seconds=HOUR)
    ids = [play.job("grace", seconds=HOUR) for _ in range(5)]
    mine = play.job("ada", seconds=HOUR)
    secret = Policy(names_are_public=False)

    shown = view(play.world, play[mine], ADA, play.now, alone=True)
    play.world.policy = secret
    hidden = view(play.world, play[mine], ADA, play.now, alone=True)

    assert (shown.ahead, shown.before) == (5, tuple(ids[2:]))
    assert f"You are 6th in queue training, behind job {ids[2]}, job {ids[3]}, job {ids[4]} and 2 more." in shown.reason
    assert (hidden.ahead, hidden.before) == (5, ())
    assert "You are 6th in queue training, behind 5 others." in hidden.reason
    assert place_of(play.world, play[ids[0]]).ahead == 0


def test_a_range_is_told_in_words_and_in_numbers():
    """The sentence has both ends; the document has both and the middle."""
    play = Play(devices=1)
    play.running("grace", seconds=HOUR)
    job = play.job("ada", seconds=HOUR)
    known = Expected(play.now + 10 * MINUTE, play.now + HOUR)

    shown = view(play.world, play[job], ADA, play.now, alone=True, expected=known)

    assert "Expected between 12:10 and 13:00." in shown.reason
    assert (shown.expected_start_from, shown.expected_start_until) == known
    assert shown.expected_start_at == play.now + 35 * MINUTE


def test_an_open_range_says_only_before_when_it_is_not_expected():
    """Of one that is not first, or waits for devices whose holders have limits."""
    play = Play(devices=1)
    play.running("grace", seconds=HOUR)
    play.job("grace", seconds=HOUR)
    job = play.job("ada", seconds=HOUR)
    known = Expected(play.now + HOUR, None)

    shown = view(play.world, play[job], ADA, play.now, alone=True, expected=known)

    assert "Not expected before 13:00; until when is not known." in shown.reason
    assert (shown.expected_start_from, shown.expected_start_until, shown.expected_start_at) == (
        known.from_at,
        None,
        None,
    )


# -- what would be sooner


def ways(play: Play, id_: int) -> dict[tuple, float]:
    """What would start sooner: the change, and by when."""
    found = expected(play, id_)
    assert found is not None
    changes = ("devices", "device_class", "queue", "duration_seconds")
    return {
        tuple((name, getattr(it, name)) for name in changes if getattr(it, name) is not None): it.expected_start_until
        for it in sooner(play.world, play[id_], play.now, found)
    }


def test_fewer_devices_are_told_where_they_are_free_sooner():
    """Two are held for hours and two for minutes: for two it is minutes, for four hours."""
    play = Play(devices=4)
    play.reservation("grace", 2, 2 * HOUR)
    play.reservation("bob", 2, 10 * MINUTE)
    job = play.job("ada", 4)

    at = play.now + 10 * MINUTE + play.world.policy.reservation_grace_seconds
    assert ways(play, job) == {(("devices", 2),): at}


def test_what_is_not_sooner_is_not_told():
    """All are held until the same instant: fewer of them, or another queue, come no sooner."""
    play = Play(devices=2)
    play.reservation("grace", 2, 2 * HOUR)
    job = play.job("ada", 2)

    assert ways(play, job) == {}


def test_another_class_is_told_only_where_it_would_do():
    """One that is free starts at once; one with less memory than is asked to be free is not told."""
    devices = (a_device(0), a_device(1, device_class="h100"), a_device(2, device_class="l4", memory_bytes=24 << 30))
    play = Play(devices)
    play.reservation("grace", seconds=2 * HOUR, device_class="a100")
    job = play.job("ada", device_class="a100", min_free_bytes=40 << 30)

    assert ways(play, job) == {(("device_class", ""),): play.now, (("device_class", "h100"),): play.now}


def test_another_queue_is_told_where_its_quota_has_room_and_one_may_enter():
    """In training nobody gets more; deferred is open to all, and the third queue is not theirs."""
    queues = (
        QueuePolicy(name="training", priority=50, kinds=(Kind.JOB,)),
        QueuePolicy(name="deferred", priority=10, kinds=(Kind.JOB,)),
        QueuePolicy(name="secret", priority=90, kinds=(Kind.JOB,), users=("bob",)),
    )
    play = Play(devices=4, policy=Policy(queues=queues, quotas=(QuotaRule(user="*", queue="training", devices=1),)))
    play.running("ada", seconds=5 * HOUR)
    job = play.job("ada", seconds=5 * HOUR)

    assert ways(play, job) == {(("queue", "deferred"),): play.now}


def test_a_shorter_limit_is_told_where_it_fits_before_a_promise():
    """A hold begins soon: what is over by then may run before it."""
    play = Play(devices=1)
    play.reservation("grace", seconds=HOUR, not_before=play.now + 3 * HOUR, holder=None)
    mine = play.reservation("ada", seconds=4 * HOUR)
    assert play.state(mine) is State.QUEUED

    assert ways(play, mine) == {(("duration_seconds", 2 * HOUR),): play.now}


@pytest.mark.parametrize("words", [{"on": ("gpu-0",)}, {"array": ({"a": "1"}, {"a": "2"})}])
def test_what_was_placed_by_hand_or_is_one_of_many_is_not_changed(words):
    """To take other devices is not what was meant, and of an array each is told by the others."""
    play = Play(devices=2)
    play.reservation("grace", 2, HOUR)
    job = play.submit(a_job("ada", **words))

    assert ways(play, job) == {}


def test_what_stays_as_it_is_is_not_written():
    """The document has only the change."""
    found = msgspec.json.decode(
        msgspec.json.encode(SoonerView(devices=2, expected_start_from=1.0, expected_start_until=2.0))
    )

    assert found == {"devices": 2, "expected_start_from": 1.0, "expected_start_until": 2.0}
