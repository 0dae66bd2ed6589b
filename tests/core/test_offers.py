"""What asking by a profile would come to: what the broker would do, said without doing it."""

import pytest

from jupyter_gpu.core.offers import offer
from jupyter_gpu.model import (
    Caller,
    LoadPolicy,
    OfferView,
    Policy,
    Profile,
    QuotaRule,
    Scope,
    SharingRule,
    WaitingReason,
)
from tests.world import GIB, HOUR, Play, a_device, a_reservation

ANA = Caller(name="ana", account="ana", scopes=frozenset({Scope.READ}), groups=("speech", "vision"))
ONE = Profile(name="one", devices=1, duration_seconds=HOUR)
TWO = Profile(name="two", devices=2, duration_seconds=HOUR)
NONE = Profile(name="none", devices=0)
PART = Profile(name="part", devices=1, memory_bytes=20 * GIB, duration_seconds=HOUR)
PROFILES = (ONE, TWO, NONE, PART)


def a_play(devices=2, **policy) -> Play:
    """A lab that offers profiles."""
    return Play(devices=devices, policy=Policy(profiles=PROFILES, **policy))


def offered(play: Play, profile: Profile = ONE, team: str | None = None) -> OfferView:
    """What ana would get."""
    return offer(play.world, profile, ANA, play.now, team=team)


def test_what_is_free_would_start_and_nothing_is_asked_by_looking():
    """The world is as it was, to the last event."""
    play = a_play()
    before = (play.world.revision, play.world.last_id, dict(play.world.leases))

    found = offered(play)

    assert (found.starts_now, found.waiting, found.free, found.kin) == (True, None, 2, 2)
    assert (play.world.revision, play.world.last_id, dict(play.world.leases)) == before


def test_a_profile_without_devices_starts_at_once_whatever_there_is():
    """Nothing has to be decided for it."""
    assert offered(a_play(devices=0), NONE).starts_now


def test_who_holds_what_is_wanted_is_said_with_the_expected_start_and_no_other_time():
    """Two instants a minute apart would be two answers to one question."""
    play = a_play(devices=1)
    play.submit(a_reservation(owner="grace", seconds=HOUR))

    found = offered(play)

    assert (found.starts_now, found.waiting, found.ahead) == (False, WaitingReason.DEVICES, 0)
    assert found.why == "No GPU is free: GPU 0 is reserved by grace."
    assert found.expected_start_at == play.now + HOUR + play.world.policy.reservation_grace_seconds


def test_where_the_start_is_not_known_the_ends_of_what_is_held_are_said():
    """Others are before one in the line: that much can be said."""
    play = a_play(devices=1)
    for owner in ("grace", "bob"):
        play.submit(a_reservation(owner=owner, seconds=HOUR))
    play.later(HOUR // 2)

    found = offered(play)

    assert (found.ahead, found.expected_start_at) == (1, None)
    assert found.why.startswith("No GPU is free: GPU 0 is reserved by grace until ")


def test_a_training_that_would_make_room_is_said_to():
    """Within its grace and the kill after it; or once its protected time is over, if that is not yet."""
    play = a_play(devices=1)
    job = play.running(owner="grace", seconds=10 * HOUR)
    grace = play.world.policy.queue("training").grace_seconds + play.world.policy.kill_after_seconds
    protected = offered(play)
    assert (protected.waiting, protected.yielding) == (WaitingReason.DEVICES, 0)
    assert protected.expected_start_at == play.now + play.world.policy.queue("training").protected_seconds + grace

    play.later(2 * HOUR)
    found = offered(play)

    assert (found.waiting, found.yielding) == (WaitingReason.CLEARING, 1)
    assert found.expected_start_at == play.now + grace
    assert play[job].eviction is None


@pytest.mark.parametrize(
    ("rule", "held", "profile", "said"),
    [
        (
            QuotaRule(user="*", devices=1), 1, ONE, (WaitingReason.QUOTA,
            "You hold 1 of the 1 GPU allowed at once, and this takes 1.", False),
        ),
        (
            QuotaRule(team="*", queue="interactive", devices=2), 1, TWO, (WaitingReason.QUOTA,
            "Your team speech holds 1 of the 2 GPUs allowed at once in queue interactive, and this takes 2.", False),
        ),
        (
            QuotaRule(devices=2), 1, TWO, (WaitingReason.QUOTA,
            "All users together hold 1 of the 2 GPUs allowed at once, and this takes 2.", False),
        ),
        (
            QuotaRule(user="ana", gpu_hours=3), 1, TWO, (WaitingReason.BUDGET,
            "You have 1 of the 3 GPU-hours allowed in 7d left, and this takes 2.", False),
        ),
    ],
)  # fmt: skip
def test_a_bound_that_is_reached_is_named_and_whether_waiting_would_help(rule, held, profile, said):
    """Whose it is, what is held of it, and what this takes: free GPUs do not help then."""
    play = a_play(devices=4, quotas=(rule,))
    for _ in range(held):
        play.submit(a_reservation(owner="ana", seconds=2 * HOUR, groups=("speech", "vision")))

    found = offered(play, profile)

    assert (found.waiting, found.why, found.never) == said
    assert (found.free, found.kin) == (4 - held, 4)


def test_used_hours_are_said_with_when_some_are_there_again():
    """What was used long enough ago does not count any more."""
    play = a_play(quotas=(QuotaRule(user="*", gpu_hours=1, window_seconds=24 * HOUR),))
    it = play.submit(a_reservation(owner="ana", seconds=HOUR))
    play.later(HOUR)
    play.exit(it)

    found = offered(play)

    assert found.why.startswith("You have 0 of the 1 GPU-hour allowed in 1d left, and this takes 1. Some are available")


def test_the_team_that_it_is_to_count_for_decides():
    """Two teams with different bounds give two answers."""
    play = a_play(quotas=(QuotaRule(team="vision", devices=1), QuotaRule(team="speech", devices=0)))

    assert offered(play, team="vision").starts_now
    refused = offered(play, team="speech").refused
    assert refused == "1 GPU is more than 0 GPUs at once, the quota of team speech."
    assert "not in the team" in offered(play, team="audio").refused


def test_what_would_be_refused_says_why_and_what_then():
    """Beyond a limit, or of a kind that is not here."""
    play = a_play(devices=1)

    found = offered(play, TWO)

    assert not found.starts_now
    assert "2 GPUs cannot be had" in found.refused
    assert found.hint

    play.do(LoadPolicy(policy=Policy(profiles=(ONE,))))
    assert "no profile 'two'" in offered(play, TWO).refused


def test_a_part_of_a_gpu_is_expected_when_those_who_share_it_have_left():
    """At the latest: another part may be given back before."""
    card = a_device(0)
    play = a_play(devices=[card], sharing=(SharingRule(),))
    for _ in range(4):
        play.submit(a_reservation(owner="grace", seconds=HOUR, memory_bytes=20 * GIB))

    found = offered(play, PART)

    assert (found.free, found.kin, found.starts_now) == (0, 1, False)
    assert found.expected_start_at == play.now + HOUR + play.world.policy.reservation_grace_seconds
