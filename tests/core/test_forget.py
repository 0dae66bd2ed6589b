"""Devices that do not come back: MIG devices of a card that was split anew, and what an operator gives up."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.events import DeviceForgotten
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.errors import Conflict, NotFound
from jupyter_gpu.model import Condition, Cordon, EndReason, Forget, Outcome, Release, SeeCondition, SeeDevices, State
from tests.world import CRASHED, HOUR, Play, a_device, a_mig_device, differences, refolded

SMALL = {"device_class": "mig-1g.10gb"}
#: What the card of the MIG devices is made of once it was split anew.
ANEW = tuple(a_mig_device(slot, uuid=f"new-{slot}", **SMALL) for slot in (0, 1))


def a_split_card() -> Play:
    """Two halves of one card, beside a whole GPU."""
    return Play([a_device(5), a_mig_device(0), a_mig_device(1)])


def inventory(play: Play, *devices, cards=()) -> list[str]:
    """What the machine has, beside its whole GPU."""
    return play.do(SeeDevices(pool="local", devices=(a_device(5), *devices), cards=cards))


@pytest.mark.parametrize(
    ("there", "cards"),
    [
        (ANEW, ()),
        ((), (a_mig_device(0).card,)),
        ((a_device(0, uuid="card-0"),), ()),
    ],
    ids=["others", "none", "whole"],
)
def test_mig_devices_whose_card_is_there_without_them_are_lost_and_then_no_more(there, cards):
    """Split anew, emptied, or whole again: their UUIDs never come back, so they are not listed for ever."""
    play = a_split_card()

    first, second, third = (inventory(play, *there, cards=cards) for _ in range(3))

    assert first == ["device-appeared"] * len(there) + ["device-marked"] * 2
    assert second == ["device-forgotten"] * 2
    assert third == []
    assert list(play.world.devices) == ["gpu-5", *(device.uuid for device in there)]
    assert differences(refolded(play), play.world) == []


def test_one_look_that_missed_a_mig_device_forgets_nothing_of_it():
    """It is lost until it is read again, and an operator's mark on it stays."""
    play = a_split_card()
    play.do(Cordon(device="mig-0:0", by="op"))

    inventory(play, a_mig_device(1))
    assert inventory(play, a_mig_device(0), a_mig_device(1)) == []
    play.do(SeeCondition(device="mig-0:0", condition=None))

    assert play.world.devices["mig-0:0"].condition is None
    assert play.world.devices["mig-0:0"].cordoned


def test_mig_devices_of_a_card_that_is_not_there_either_may_come_back():
    """A card that has fallen off the bus takes its parts with it; a reset brings both back."""
    play = a_split_card()

    for _ in range(3):
        inventory(play)

    assert play.world.devices["mig-0:0"].condition is Condition.LOST
    assert inventory(play, a_mig_device(0), a_mig_device(1)) == []


def test_whoever_holds_a_mig_device_that_is_gone_keeps_it_listed_until_their_lease_is_over():
    """Not before: their end is still to be told, and charged to its class."""
    play = a_split_card()
    job = play.running(device_class="mig-3g.40gb")
    person = play.reservation(seconds=HOUR, device_class="mig-3g.40gb")
    play.now += 60

    for _ in range(3):
        inventory(play, *ANEW)
    assert set(play.world.devices) == {"gpu-5", "mig-0:0", "mig-0:1", "new-0", "new-1"}
    assert {play.state(job), play.state(person)} == {State.YIELDING}

    play.exit(job, CRASHED)
    assert inventory(play, *ANEW) == ["device-forgotten"]
    play.do(Release(workload=person, by="bob"))
    play.clear(person)
    assert inventory(play, *ANEW) == ["device-forgotten"]
    assert differences(refolded(play), play.world) == []


def test_what_was_used_of_a_forgotten_device_stays_charged():
    """Use is counted by class, and the class may be gone with its last device."""
    play = a_split_card()
    job = play.running(device_class="mig-3g.40gb")
    play.now += 60
    play.exit(job)

    for _ in range(2):
        inventory(play, *ANEW)

    assert play.used_ms("ada") == 60_000
    assert [key[3] for key in play.world.usage] == ["mig-3g.40gb"]
    play.later(HOUR)
    assert play.devices_of(play.job(device_class="mig-1g.10gb")) == ("new-0",)


def test_work_that_remembers_a_forgotten_device_goes_on():
    """Where it was before, and where it must not go for a while, are names like any other."""
    play = Play([a_device(5), a_mig_device(0), a_device(6)])
    job = play.running(on=("gpu-5", "mig-0:0", "gpu-6"))
    assert play.devices_of(job) == ("gpu-5",)
    play.exit(job, Outcome(end=EndReason.DEVICE_LOST, exit_code=1))
    assert play[job].avoids == ("gpu-5",)
    play.do(SeeCondition(device="gpu-5", condition=Condition.LOST))
    play.do(Forget(device="gpu-5", by="op"))
    play.later(10)

    assert play.devices_of(job) == ("gpu-6",)
    play.do(SeeCondition(device="gpu-6", condition=Condition.LOST))
    play.exit(job, CRASHED)
    play.do(Forget(device="gpu-6", by="op"))
    play.later(60)

    assert play.devices_of(job) == ("mig-0:0",)


def test_an_operator_says_that_a_lost_gpu_does_not_come_back():
    """By number or UUID; it is gone for good, and a second time there is none."""
    play = Play(2)
    play.do(SeeDevices(pool="local", devices=(a_device(1),)))
    assert play.do(SeeDevices(pool="local", devices=(a_device(1),))) == []

    assert play.do(Forget(device="0", by="op")) == ["device-forgotten"]
    assert play.events[-1].by == "op"
    assert list(play.world.devices) == ["gpu-1"]
    with pytest.raises(NotFound):
        play.do(Forget(device="0", by="op"))


def test_a_forgotten_gpu_that_comes_back_is_a_new_one():
    """Nothing of before counts against it, a cordon neither."""
    play = Play(1)
    play.do(Cordon(device="gpu-0", by="op"))
    play.do(SeeDevices(pool="local", devices=()))
    play.do(Forget(device="gpu-0", by="op"))

    assert play.do(SeeDevices(pool="local", devices=(a_device(0),))) == ["device-appeared"]
    assert play.world.devices["gpu-0"] == a_device(0)


@pytest.mark.parametrize("condition", [None, *(it for it in Condition if it is not Condition.LOST)])
def test_what_is_there_is_not_forgotten(condition):
    """Whatever else is wrong with it: it would be back with the next look."""
    play = Play(1)
    play.do(SeeCondition(device="gpu-0", condition=condition))

    with pytest.raises(Conflict, match="only a lost GPU can be forgotten"):
        play.do(Forget(device="gpu-0", by="op"))


def test_what_is_held_is_not_forgotten():
    """A lease of it is still to end."""
    play = Play(1)
    job = play.running()
    play.do(SeeCondition(device="gpu-0", condition=Condition.LOST))

    with pytest.raises(Conflict, match=f"job {job} still holds it"):
        play.do(Forget(device="gpu-0", by="op"))
    with pytest.raises(Conflict, match="is held"):
        evolve(play.world, DeviceForgotten(at=play.now, device="gpu-0"))
