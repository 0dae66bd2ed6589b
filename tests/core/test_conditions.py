"""What is wrong with a device: how it begins, stays and ends, who is moved for it, and where their work goes then."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.core.conditions import changes
from jupyter_gpu.core.events import Requeued
from jupyter_gpu.model import (
    Condition,
    Cordon,
    Drain,
    EndReason,
    EvictionReason,
    Outcome,
    Policy,
    SeeCondition,
    SeeDevices,
    SeeProbe,
    State,
    Uncordon,
    WaitingReason,
    Wrong,
)
from tests.world import CRASHED, DONE, HOUR, SAVED, Play, a_device, a_mig_device, a_spec

DIED = Outcome(end=EndReason.DEVICE_LOST, exit_code=1, detail="uncorrectable ECC error encountered")


def condition(play: Play, uuid: str = "gpu-0") -> Condition | None:
    """What a device has."""
    return play.world.devices[uuid].condition


def see(play: Play, seen: Condition | None, uuid: str = "gpu-0", **words) -> list[str]:
    """The watch tells the gravest that holds now."""
    return play.do(SeeCondition(device=uuid, condition=seen, **words))


def inventory(play: Play, *devices) -> list[str]:
    """What the machine has."""
    return play.do(SeeDevices(pool="local", devices=devices))


# -- how a condition begins, stays and ends

#: What is seen of a device that has something, and stays what it was.
STAYS = {
    (Condition.LOST, Condition.UNREADABLE),
    (Condition.NOT_CLEAR, Condition.FOREIGN),
    *((Condition.FAULTY, seen) for seen in (*Condition, None) if seen is not Condition.LOST),
}


@pytest.mark.parametrize("seen", [*Condition, None])
@pytest.mark.parametrize("had", [*Condition, None])
def test_the_gravest_that_holds_now_is_what_a_device_has(had, seen):
    """All but a hardware fault ends or changes by what is seen next; the table has the exceptions."""
    play = Play(1)
    see(play, had)
    expected = had if (had, seen) in STAYS else seen
    command = SeeCondition(device="gpu-0", condition=seen, detail="d")

    assert changes(play.world.devices["gpu-0"], command) is (expected is not had)
    assert play.do(command) == ([] if expected is had else ["device-marked"])
    assert condition(play) is expected


def test_a_hardware_fault_ends_by_an_operator_a_reset_or_a_loss():
    """A card that answers again is not yet well; one that was reset is what it shows."""
    play = Play(1)
    see(play, Condition.FAULTY, detail="Xid 48")
    assert see(play, None) == []
    assert play.do(Uncordon(device="gpu-0", by="op")) == ["device-marked"]
    assert condition(play) is None

    see(play, Condition.FAULTY)
    assert see(play, Condition.HOT, was_reset=True) == ["device-marked"]
    assert condition(play) is Condition.HOT
    see(play, Condition.FAULTY)
    assert see(play, None, was_reset=True) == ["device-marked"]

    see(play, Condition.FAULTY)
    see(play, Condition.LOST)
    assert condition(play) is Condition.LOST


def test_a_card_that_comes_back_is_well_only_after_a_clean_reading():
    """The inventory lists it again: that says nothing of how it is (rossumai/nvgpu#6)."""
    play = Play(2)
    inventory(play, a_device(1))
    waits = play.job(devices=2)

    assert inventory(play, a_device(0), a_device(1)) == []
    assert (condition(play), play.state(waits)) == (Condition.LOST, State.QUEUED)
    assert see(play, None) == ["device-marked", f"granted {waits}"]


def test_a_card_that_comes_back_sick_has_what_it_shows():
    """Lost no more, and not well either."""
    play = Play(1)
    inventory(play)
    inventory(play, a_device(0))

    see(play, Condition.FAULTY, detail="Xid 79")

    assert (condition(play), play.world.devices["gpu-0"].condition_detail) == (Condition.FAULTY, "Xid 79")


#: What an operator can know better than a reading: that it was mended, or never was what it seemed.
ENDED_BY_WORD = {Condition.FAULTY, Condition.RESET_NEEDED, Condition.SUSPECT}


@pytest.mark.parametrize("had", Condition)
def test_an_operators_word_ends_only_what_an_operator_can_know_better(had):
    """The usual cordon and uncordon of maintenance gives nobody a card on which somebody else is, or that is gone."""
    play = Play(1)
    see(play, had, detail="why")
    play.do(Cordon(device="gpu-0", by="op"))
    waits = play.job()

    said = play.do(Uncordon(device="gpu-0", by="op"))

    if had in ENDED_BY_WORD:
        assert said == ["device-marked", f"granted {waits}"]
        assert condition(play) is None
    else:
        device = play.world.devices["gpu-0"]
        assert said[0] == "device-marked"
        assert play.state(waits) is State.QUEUED
        assert (device.cordoned, device.condition, device.condition_detail) == (False, had, "why")
        assert play.do(Uncordon(device="gpu-0", by="op")) == []


@pytest.mark.parametrize("under", sorted(set(Condition) - ENDED_BY_WORD))
def test_what_a_fault_has_hidden_is_there_once_the_fault_is_over(under):
    """Only the gravest is told; the word that ends it leaves what else the newest reading shows, in the same step."""
    play = Play(1)
    see(play, Condition.FAULTY)
    play.world.wrong["gpu-0"] = (
        Wrong(condition=Condition.FAULTY, detail="Xid 48"),
        Wrong(condition=under, detail="what it shows"),
    )
    waits = play.job()

    play.do(Uncordon(device="gpu-0", by="op"))

    device = play.world.devices["gpu-0"]
    assert (device.condition, device.condition_detail) == (under, "what it shows")
    assert play.state(waits) is State.QUEUED


def test_an_index_that_moved_moves_nobody():
    """A device is its UUID: after a reboot the numbers may differ (tensorflow/tensorflow#32881)."""
    play = Play(2)
    job = play.running()
    play.do(Cordon(device="gpu-1", by="op"))

    inventory(play, a_device(1, uuid="gpu-0"), a_device(0, uuid="gpu-1"))

    assert play.devices_of(job) == ("gpu-0",)
    assert play.world.devices["gpu-0"].title == "GPU 1"
    assert play.world.devices["gpu-1"].cordoned


# -- who gets no new lease, and who is moved


@pytest.mark.parametrize("seen", sorted(set(Condition) - {Condition.LOST, Condition.FAULTY}))
def test_what_runs_on_a_device_that_is_not_well_runs_on(seen):
    """Too hot, prohibited (pytorch/pytorch#3871), suspect (Datura-ai/lium-io#1140): it only gets no new work."""
    play = Play(1)
    job = play.running()

    see(play, seen)

    assert play.state(job) is State.ACTIVE
    waits = play.job("bob")
    play.exit(job)
    assert play.state(waits) is State.QUEUED


def test_jobs_are_moved_off_faulty_hardware_and_people_are_told():
    """With notice and grace, so they may save; what a person holds is theirs to decide.

    (jade-hpc-gpu/jade-hpc-gpu.github.io#194)
    """
    play = Play(3)
    job, held = play.running(devices=2), play.reservation()

    assert see(play, Condition.FAULTY, detail="Xid 48") == ["device-marked", f"evicted (drained) {job}"]
    assert see(play, Condition.FAULTY, "gpu-2") == ["device-marked"]
    assert (play[job].yield_by, play[job].detail) == (play.now + 120, "GPU 0 has a hardware fault (Xid 48)")
    assert play.state(held) is State.ACTIVE


def test_the_policy_says_which_conditions_move_jobs():
    """None, or more than the hardware fault."""
    play = Play(1, Policy(drains=(Condition.HOT,)))
    job = play.running()

    assert see(play, Condition.FAULTY) == ["device-marked"]
    play.do(Uncordon(device="gpu-0", by="op"))
    assert see(play, Condition.HOT)[-1] == f"evicted (drained) {job}"


def test_a_weaker_reason_does_not_replace_a_stronger_one():
    """What must leave already leaves as it was told."""
    play = Play(1)
    job = play.running(seconds=HOUR)
    play.later(HOUR)

    assert see(play, Condition.FAULTY) == ["device-marked"]
    assert play[job].eviction is EvictionReason.TIMED_OUT


def test_a_job_on_two_devices_that_are_lost_together_is_told_once():
    """One eviction, whatever is missing of it."""
    play = Play(2)
    job = play.running(devices=2)

    assert inventory(play) == ["device-marked", "device-marked", f"evicted (device-lost) {job}"]
    assert play[job].detail == "GPU 0 is lost"


# -- where the work goes


def test_mig_devices_split_anew_while_leased_send_their_work_elsewhere():
    """The old MIG device is lost with what ran there, the new ones are devices like all."""
    play = Play([a_mig_device(0), a_mig_device(1)])
    job = play.running(device_class="mig-3g.40gb")

    said = inventory(play, a_mig_device(1), a_mig_device(3, uuid="mig-new", device_class="mig-1g.10gb"))

    assert said == ["device-appeared", "device-marked", f"evicted (device-lost) {job}"]
    assert "split anew" in play.world.devices["mig-0:0"].condition_detail
    play.exit(job, CRASHED)
    assert play.devices_of(job) == ("mig-0:1",)


def test_what_died_of_the_hardware_goes_to_another_device_and_costs_no_retry():
    """The bad card is the freest, so a queue drains into it; this one goes elsewhere (MFlowCode/MFC#1748)."""
    play = Play(2)
    job = play.running(spec=a_spec(retries=0))

    assert play.exit(job, DIED) == [f"released {job}", f"requeued {job}", f"explained {job}:back-off"]
    assert play.later(play.world.policy.back_off_seconds) == [f"granted {job}"]
    assert play.devices_of(job) == ("gpu-1",)
    assert (play[job].losses, play[job].failures) == (1, 0)


def test_it_waits_for_another_device_rather_than_go_back():
    """Until the strikes against the bad one are forgotten."""
    play = Play(2)
    job, other = play.running(), play.running("bob")

    play.exit(job, DIED)
    play.later(10)
    assert play.waiting(job) is WaitingReason.DEVICES
    assert play.devices_of(play.job("cleo")) == ("gpu-0",)
    play.exit(3)
    play.exit(other)
    assert play.devices_of(job) == ("gpu-1",)


def test_after_a_while_the_device_is_as_good_as_any():
    """Nothing waits for ever beside a device that is idle and well."""
    play = Play(2)
    job = play.running()
    play.running("bob")
    play.exit(job, DIED)

    play.later(play.world.policy.strike_seconds - 1)
    assert play.state(job) is State.QUEUED
    play.later(1)
    assert play.devices_of(job) == ("gpu-0",)


def test_the_only_device_is_tried_again():
    """Where there is no elsewhere, it goes back; the strikes against the device are counted by the watch."""
    play = Play(1)
    job = play.running()

    play.exit(job, DIED)
    assert play.later(10) == [f"granted {job}"]


def test_the_next_try_comes_after_a_pause_that_doubles():
    """A program that says so by mistake went through four cards in 0.2 s, each time to the harm of the card."""
    play = Play(4)
    job = play.running()
    pauses = []
    while True:
        play.exit(job, DIED)
        if play.state(job) is State.ENDED:
            break
        assert play.waiting(job) is WaitingReason.BACK_OFF
        pauses.append(play[job].back_off_until - play.now)
        play.later(pauses[-1] - 1)
        assert play.state(job) is State.QUEUED
        play.later(1)
        play.start(job)

    assert pauses == [10, 20, 40, 80, 160]


def test_it_avoids_each_device_on_which_it_died():
    """The third time it is not sent to the first."""
    play = Play(3)
    job = play.running()

    play.exit(job, DIED)
    play.later(10)
    play.start(job)
    play.exit(job, DIED)
    play.later(20)

    assert play[job].avoids == ("gpu-0", "gpu-1")
    assert play.devices_of(job) == ("gpu-2",)


def test_drained_from_faulty_hardware_it_forgets_where_it_was():
    """Once the device is mended it is as good as any, and not the first choice."""
    play = Play(2)
    play.running("bob")
    job = play.running()
    see(play, Condition.FAULTY, "gpu-1")

    play.exit(job, SAVED)

    assert (play[job].previous_devices, play[job].avoids) == ((), ())
    play.do(Uncordon(device="gpu-1", by="op"))
    assert play.devices_of(job) == ("gpu-1",)


def test_drained_by_an_operator_it_remembers_where_it_was():
    """Nothing is wrong with the device: its cache is still warm there."""
    play = Play(2)
    job = play.running()
    play.do(Drain(device="gpu-0", by="op"))
    play.running("bob")

    play.exit(job, SAVED)

    assert play[job].previous_devices == ("gpu-0",)


@pytest.mark.parametrize("is_told_first", [True, False])
def test_a_crash_on_hardware_that_failed_is_the_hardwares(is_told_first):
    """Whatever the job says itself, and whether the fault was seen before its end or just after."""
    play = Play(2)
    job = play.running(spec=a_spec(retries=0))
    if is_told_first:
        see(play, Condition.FAULTY)
        play.exit(job, CRASHED)
    else:
        play.exit(job, CRASHED, clear=False)
        see(play, Condition.FAULTY)
        play.do(SeeProbe(workload=job))
    play.later(10)

    assert play.devices_of(job) == ("gpu-1",)
    assert play[job].failures == 0


def test_what_succeeded_on_hardware_that_failed_has_succeeded():
    """It was done before anybody told it to leave."""
    play = Play(2)
    job = play.running()
    see(play, Condition.FAULTY)

    assert play.exit(job, DONE)[-1] == f"ended (succeeded) {job}"


def test_losses_end_too():
    """Work that dies of every device is over after as many as the policy bears."""
    play = Play(2, Policy(losses=1))
    job = play.running()
    play.exit(job, DIED)
    play.later(10)
    play.start(job)

    assert play.exit(job, DIED)[-1] == f"ended (device-lost) {job}"


def test_a_requeue_of_an_earlier_version_reads_as_before():
    """What that version wrote has no word of where not to go."""
    old = msgspec.json.decode(b'{"type":"requeued","at":1.0,"workload":1,"cause":"device-lost"}', type=Requeued)

    assert old.avoid_until is None
