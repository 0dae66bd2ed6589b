"""Shares: a team's own part, what others borrow of it, and how it comes back."""

from __future__ import annotations

from jupyter_gpu.model import EvictionReason, Policy, QuotaRule, SharingRule, State, WaitingReason
from tests.world import GIB, HOUR, SAVED, Play, a_device, a_mig_device

TEAMS = {"vision": ("ada", "bob"), "speech": ("cleo",)}


def play_with_shares(devices: int = 4, vision: int = 2, speech: int = 2, **words) -> Play:
    """Two teams with a part each."""
    quotas = (QuotaRule(team="vision", share_devices=vision), QuotaRule(team="speech", share_devices=speech))
    return Play(devices, Policy(quotas=quotas, teams=TEAMS, **words))


def test_idle_devices_are_borrowed():
    """Beyond the own part one runs on what others leave idle."""
    play = play_with_shares()

    assert play.state(play.job("cleo", devices=4)) is State.ACTIVE


def test_the_owner_of_a_share_gets_it_back_by_preempting_borrowers():
    """At the same priority too, after the protected time, and no more than is needed."""
    play = play_with_shares()
    borrowed = [play.running("cleo") for _ in range(4)]
    mine = play.job("ada")
    assert play.waiting(mine) is WaitingReason.DEVICES

    play.later(600)
    assert play.waiting(mine) is WaitingReason.CLEARING
    victims = [job for job in borrowed if play[job].eviction is EvictionReason.PREEMPTED]
    assert len(victims) == 1
    play.exit(victims[0], SAVED)
    assert play.state(mine) is State.ACTIVE


def test_what_was_reclaimed_does_not_go_back_to_the_borrower():
    """The borrower's old place in line is before the owner's; the owner of the share goes first all the same."""
    play = play_with_shares()
    borrowers = [play.running("cleo") for _ in range(4)]
    play.later(600)
    mine = play.job("ada")
    victim = next(job for job in borrowers if play.state(job) is State.YIELDING)

    play.exit(victim, SAVED)

    assert play.state(mine) is State.ACTIVE
    assert play.waiting(victim) is WaitingReason.DEVICES


def test_no_more_comes_back_than_was_borrowed():
    """A third ask is beyond the share, and the lender's own part stays with it, in one step or in several."""
    play = play_with_shares()
    for _ in range(4):
        play.running("cleo")
    play.later(600)
    mine = [play.job("ada") for _ in range(3)]

    yielding = [it for it in play.world.holders() if it.state is State.YIELDING]
    assert len(yielding) == 2
    assert [play.waiting(job) for job in mine] == [
        WaitingReason.CLEARING, WaitingReason.CLEARING, WaitingReason.DEVICES,
    ]  # fmt: skip
    for it in yielding:
        play.exit(it.id, SAVED)
    play.later(HOUR)
    assert sum(it.team == "speech" for it in play.world.holders()) == 2


def test_a_borrower_does_not_take_another_teams_own_part():
    """A higher priority moves what is borrowed and its own team's work, never what a team holds of its own."""
    play = play_with_shares()
    own = [play.running("cleo", queue="deferred") for _ in range(2)]
    play.running("ada", devices=2)
    play.later(HOUR)

    beyond = play.job("ada")

    assert play.waiting(beyond) is WaitingReason.DEVICES
    assert {play.state(job) for job in own} == {State.ACTIVE}


def test_interactive_work_does_not_borrow():
    """It is never preempted, so what it took of another's part could not come back."""
    play = play_with_shares()
    first, second, third = (play.reservation("ada") for _ in range(3))

    assert (play.state(first), play.state(second)) == (State.ACTIVE, State.ACTIVE)
    assert play.waiting(third) is WaitingReason.QUOTA
    assert play.state(play.job("ada")) is State.ACTIVE


def test_interactive_work_moves_its_own_teams_jobs():
    """A share that is full of one's own trainings is still one's own."""
    play = play_with_shares(devices=2, speech=0)
    job = play.running("ada", devices=2)
    play.later(600)

    reservation = play.reservation("bob", devices=2)

    assert play.waiting(reservation) is WaitingReason.CLEARING
    assert play.state(job) is State.YIELDING


def test_what_is_nobodys_share_is_everybodys():
    """Interactive work of a team without a share may use it, until it is used up by such work."""
    play = play_with_shares(devices=6)

    first, second, third = play.reservation("dan"), play.reservation("ada", devices=3), play.reservation("eve")

    assert play.state(first) is State.ACTIVE
    assert play.state(second) is State.ACTIVE
    assert play.waiting(third) is WaitingReason.QUOTA


def test_without_shares_nobody_borrows():
    """And interactive work is bound by quotas alone."""
    play = Play(2, Policy(teams=TEAMS))

    assert play.state(play.reservation("ada", devices=2)) is State.ACTIVE


def yielding(play: Play) -> list[int]:
    """Who must go."""
    return [it.id for it in play.world.holders() if it.state is State.YIELDING]


def test_of_two_borrowers_each_gives_back_only_what_it_borrows():
    """Who is beyond its share by one gives one, and who has none of its own gives the rest."""
    teams = {**TEAMS, "guests": ("zoe",)}
    quotas = (QuotaRule(team="vision", share_devices=2), QuotaRule(team="speech", share_devices=1))
    play = Play(4, Policy(quotas=quotas, teams=teams))
    speech = [play.running("cleo") for _ in range(2)]
    play.now += 60
    guests = [play.running("zoe") for _ in range(2)]
    play.later(HOUR)

    play.job("ada", devices=2)
    assert yielding(play) == guests  # the youngest first, and both are borrowed
    play.job("bob")
    assert set(yielding(play)).isdisjoint(speech)  # what vision has of its own is all claimed


def test_a_share_counts_mig_devices_one_by_one():
    """Each is a device; it comes back as one of the class that is asked for."""
    devices = [a_mig_device(0), a_mig_device(1), a_device(2)]
    quotas = (QuotaRule(team="vision", share_devices=1), QuotaRule(team="speech", share_devices=1))
    play = Play(devices, Policy(quotas=quotas, teams=TEAMS))
    parts = [play.running("cleo", device_class="mig-3g.40gb") for _ in range(2)]
    play.now += 60
    play.running("cleo", device_class="a100")
    play.later(HOUR)

    mine = play.job("ada", device_class="mig-3g.40gb")

    (victim,) = yielding(play)
    assert victim in parts
    play.exit(victim, SAVED)
    assert play[mine].lease.devices[0].startswith("mig-")


def test_a_share_comes_back_of_shared_devices_as_parts():
    """A part counts as one device, and only as many parts leave as make room for the one that is asked for."""
    quotas = (QuotaRule(team="vision", share_devices=1),)
    play = Play(1, Policy(quotas=quotas, teams=TEAMS, sharing=(SharingRule(),)))
    parts = [play.running("cleo", memory_bytes=35 * GIB) for _ in range(2)]
    play.later(HOUR)

    mine = play.job("ada", memory_bytes=30 * GIB)

    (victim,) = yielding(play)
    assert victim in parts
    play.exit(victim, SAVED)
    assert play.state(mine) is State.ACTIVE
    assert sum(play.state(part) is State.ACTIVE for part in parts) == 1


def test_who_is_in_two_teams_uses_the_share_of_the_one_they_name():
    """The first by name unless they say which; what it counts for is fixed at the submission."""
    teams = {"speech": ("ada",), "vision": ("ada",)}
    quotas = (QuotaRule(team="vision", share_devices=1), QuotaRule(team="speech", devices=1))
    play = Play(2, Policy(quotas=quotas, teams=teams))
    play.running("ada")

    assert play.waiting(play.job("ada")) is WaitingReason.QUOTA
    assert play.state(play.job("ada", team="vision")) is State.ACTIVE
