"""Before a policy is loaded: what would change, and for whom. Nothing of it happens."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.core.policy_check import MOST_LISTED, check
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import (
    HoldPolicy,
    LoadPolicy,
    Policy,
    PolicyCheckView,
    PolicyEffect,
    Profile,
    QueuePolicy,
    QuotaRule,
    SharingRule,
    State,
)
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING
from tests.world import DAY, GIB, HOUR, Play


def looked_at(play: Play, policy: Policy) -> PolicyCheckView:
    """What would change; and that nothing has."""
    known = (play.world.revision, play.world.policy, play.holding())
    found = check(play.world, policy, play.now)
    assert (play.world.revision, play.world.policy, play.holding()) == known
    assert play.world.check() == []
    return found


def effects(view: PolicyCheckView) -> list[tuple[int, str]]:
    """Who is affected, and how."""
    return [(it.workload, str(it.effect)) for it in view.affected]


def test_the_policy_in_force_changes_nothing():
    """Nobody is affected, whatever would happen at this moment anyway."""
    play = Play(2, Policy(quotas=(QuotaRule(user="*", devices=1),)))
    play.running("ada")
    play.job("ada")
    play.job("bob", paused=True)

    found = looked_at(play, play.world.policy)

    assert found == PolicyCheckView(digest=found.digest, digest_now=found.digest)


def test_what_time_alone_would_bring_is_not_the_doing_of_a_policy():
    """A victim that is due at this very moment is due by both."""
    play = Play(1)
    job = play.running("ada")
    play.reservation("bob")
    play.now += HOUR

    found = looked_at(play, Policy(failures=4))

    assert play.state(job) is State.ACTIVE
    assert effects(found) == []
    assert found.changes == ("failures: 3, then 4",)


def test_a_lowered_quota_evicts_nobody_and_says_who_counts_as_borrowed():
    """With the bound as it was and will be, and who of those here it binds."""
    play = Play(3)
    jobs = [play.running("ada"), play.running("ada")]
    play.running("bob")

    found = looked_at(play, Policy(quotas=(QuotaRule(user="ada", devices=1),)))

    assert effects(found) == [(job, "borrows") for job in jobs]
    assert "evicted nobody now, but first to yield when a better claim comes" in found.affected[0].text
    (bound,) = found.bounds
    assert (bound.whose, bound.what, bound.before, bound.after) == ("user ada", "GPUs at once", None, 1)
    assert (bound.shrinks, bound.users) == (True, ("ada",))


def test_a_reservation_above_a_lowered_quota_keeps_its_time():
    """It is never moved within it, and is told so."""
    play = Play(1)
    play.reservation("bob")

    (one,) = looked_at(play, Policy(quotas=(QuotaRule(user="*", devices=0),))).affected

    assert one.effect is PolicyEffect.BORROWS
    assert one.text.endswith("it keeps its time")


def test_who_waits_for_a_quota_starts_once_it_is_raised():
    """And who is next waits for devices instead."""
    rules = (QuotaRule(user="*", devices=1),)
    play = Play(2, Policy(quotas=rules))
    play.running("ada")
    first, second = play.job("ada"), play.job("ada")

    found = looked_at(play, Policy())

    assert effects(found) == [(first, "starts"), (second, "eases")]
    assert (found.bounds[0].before, found.bounds[0].after, found.bounds[0].shrinks) == (1, None, False)


def test_who_waits_for_devices_and_would_wait_for_a_quota_is_told():
    """They would have to wait for another reason, however many devices come free."""
    play = Play(1)
    play.running("ada")
    waits = play.job("ada")

    found = looked_at(play, Policy(quotas=(QuotaRule(user="*", devices=1),)))

    assert effects(found) == [(waits, "waits")]
    assert found.affected[0].text == "waits for quota and no more for devices"


def test_a_new_share_names_whom_it_takes_devices_from():
    """Who borrows from then on, and who would have to yield at once because its owner waits."""
    play = Play(2)
    jobs = [play.running("ada"), play.running("ada")]
    mine = play.job("bob")
    play.now += HOUR
    policy = Policy(quotas=(QuotaRule(team="vision", share_devices=1),), teams={"vision": ("bob",)})

    found = looked_at(play, policy)

    assert found.changes == ("bob joins the team vision",)
    assert [it for it in found.affected if it.effect is PolicyEffect.YIELDS] == []  # bob's job counts for its old team
    assert effects(found) == [(job, "borrows") for job in jobs]
    assert "what its team or its queue has of its own" in found.affected[0].text
    assert play.state(mine) is State.QUEUED


def test_who_would_have_to_yield_at_once_is_first():
    """A queue of lower priority gets a share, and what it takes back goes with the reload."""
    play = Play(1)
    job = play.running("ada")
    mine = play.job("bob", queue="deferred")
    play.now += HOUR
    deferred = msgspec.structs.replace(DEFERRED, share_devices=1)

    found = looked_at(play, Policy(queues=(INTERACTIVE, TRAINING, deferred)))

    assert effects(found) == [(job, "yields")]
    assert f"makes room for job {mine}" in found.affected[0].text
    assert (found.bounds[0].whose, found.bounds[0].what, found.bounds[0].after) == (
        "queue deferred",
        "GPUs of its own",
        1,
    )
    assert found.bounds[0].shrinks is False


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(most_devices=1), "one ask may contain 1 devices, not 2"),
        (
            Policy(queues=(INTERACTIVE, msgspec.structs.replace(TRAINING, longest_seconds=HOUR))),
            "longer than the 1h that the queue training allows",
        ),
        (
            Policy(queues=(INTERACTIVE, msgspec.structs.replace(TRAINING, users=("bob",)))),
            "ada may not enter the queue training",
        ),
    ],
)
def test_what_would_not_be_let_in_any_more_keeps_its_place(policy, said):
    """It was let in; but who asked for it should know before they ask again."""
    play = Play(2)
    play.running("ada", devices=2)
    waits = play.job("ada", devices=2, seconds=2 * HOUR)

    found = [it for it in looked_at(play, policy).affected if it.effect is PolicyEffect.REFUSED]

    assert [it.workload for it in found] == [waits]
    assert said in found[0].text
    assert "keeps its place" in found[0].text


def test_parts_that_are_shared_no_more_are_told():
    """A part that waits would be refused; the class is not leased in parts then."""
    play = Play(1, Policy(sharing=(SharingRule(),)))
    play.running("ada")
    waits = play.job("ada", memory_bytes=10 * GIB)

    found = looked_at(play, Policy())

    assert (waits, "refused") in effects(found)


def test_profiles_queues_and_holds_that_come_and_go_are_named():
    """So are settings that differ, each with how it was and will be."""
    kept = Policy(
        profiles=(Profile(name="one"), Profile(name="two", devices=2)),
        queues=(INTERACTIVE, TRAINING, DEFERRED, QueuePolicy(name="old", priority=1)),
    )
    play = Play(1, kept)
    hold = HoldPolicy(name="course", from_at=play.now + DAY, until_at=play.now + 2 * DAY, count=1)
    slower = msgspec.structs.replace(TRAINING, protected_seconds=1200)
    policy = Policy(
        profiles=(Profile(name="two"), Profile(name="three")),
        queues=(INTERACTIVE, slower, DEFERRED, QueuePolicy(name="new", priority=1)),
        holds=(hold,),
        most_devices=4,
    )

    assert looked_at(play, policy).changes == (
        "most_devices: none, then 4",
        "training.protected_seconds: 10m, then 20m",
        "the queue old is no more",
        "the queue new is new",
        "the hold 'course' is new",
        "the profile 'one' is no more",
        "the profile 'three' is new",
        "the profile 'two' is another one",
    )


def test_who_is_on_a_device_that_a_new_hold_wants_is_told_by_when():
    """A job must leave; a reservation keeps its time and cannot be extended into the hold."""
    play = Play(2)
    job, reservation = play.running("ada", seconds=2 * DAY), play.reservation("bob", seconds=HOUR)
    hold = HoldPolicy(name="course", from_at=play.now + DAY, until_at=play.now + 2 * DAY, count=2)

    found = looked_at(play, Policy(holds=(hold,)))

    assert effects(found) == [(job, "must-leave"), (reservation, "must-leave")]
    assert "it must have left by then" in found.affected[0].text
    assert "it keeps its time, and cannot be extended into it" in found.affected[1].text


def test_a_policy_that_cannot_be_loaded_is_refused_with_the_same_words():
    """What cannot be meant, and a queue that holds work and is left out."""
    play = Play(1)
    play.running("ada")

    with pytest.raises(InvalidAsk, match="there is no queue 'x'"):
        looked_at(play, Policy(quotas=(QuotaRule(queue="x", devices=1),)))
    with pytest.raises(InvalidAsk, match="lacks queues that hold work: training"):
        looked_at(play, Policy(queues=(QueuePolicy(name="q", priority=1),)))


def test_rules_for_what_is_not_there_are_named():
    """Most likely a slip, which nobody else would notice."""
    play = Play(1)
    policy = Policy(
        teams={"vision": ("ada",)},
        quotas=(QuotaRule(device_class="h100", devices=1), QuotaRule(team="vison", share_devices=2)),
    )

    found = looked_at(play, policy).warnings

    assert any("the class h100" in it for it in found)
    assert any("names the team vison, and nobody is in it" in it for it in found)
    assert any("have 2 GPUs of their own together, and there are 1" in it for it in found)


def test_a_long_line_is_counted_and_not_listed_whole():
    """A document that nobody could read helps nobody."""
    play = Play(1)
    play.running("ada")
    for _ in range(MOST_LISTED + 5):
        play.job("ada")

    found = looked_at(play, Policy(quotas=(QuotaRule(user="*", devices=1),)))

    assert (len(found.affected), found.more) == (MOST_LISTED, 5)


def test_what_the_check_says_is_what_the_reload_does():
    """Who is evicted and who starts, for real."""
    deferred = msgspec.structs.replace(DEFERRED, share_devices=1)
    play = Play(2, Policy(quotas=(QuotaRule(user="dan", devices=0),)))
    job = play.running("ada")
    play.running("ada")
    play.job("bob", queue="deferred")
    play.now += HOUR
    policy = Policy(queues=(INTERACTIVE, TRAINING, deferred))

    said = {it.workload for it in looked_at(play, policy).affected if it.effect is PolicyEffect.YIELDS}
    events = play.do(LoadPolicy(policy=policy))

    assert {f"evicted (preempted) {id_}" for id_ in said} == {it for it in events if it.startswith("evicted")}
    assert said < {job, job + 1}
