"""Which devices a name means: one by its UUID or its number, all MIG devices of a GPU by the GPU's."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.which import devices_named
from jupyter_gpu.errors import Conflict, NotFound
from jupyter_gpu.model import Card, Condition, Cordon, Device, Drain, SeeCondition, State, Uncordon
from tests.world import Play, a_device, a_mig_device

#: GPU 0 whole, GPU 1 in two MIG devices.
MIXED = (a_device(0), a_mig_device(0, card=1), a_mig_device(1, card=1))


def named(play: Play, name: str) -> list[str]:
    """What a name means."""
    return [device.uuid for device in devices_named(play.world, name)]


def cordoned(play: Play) -> list[str]:
    """Which get no new leases."""
    return [device.uuid for device in play.world.devices.values() if device.cordoned]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("0", ["gpu-0"]),
        ("gpu-0", ["gpu-0"]),
        ("1:1", ["mig-1:1"]),
        ("mig-1:0", ["mig-1:0"]),
        ("1", ["mig-1:0", "mig-1:1"]),
        ("card-1", ["mig-1:0", "mig-1:1"]),
    ],
)
def test_a_name_is_a_uuid_a_number_or_a_gpu_in_mig_mode(name, found):
    """What stands in `jupyter gpu devices`, each way."""
    assert named(Play(MIXED), name) == found


@pytest.mark.parametrize("name", ["2", "1:2", "200", "gpu", ""])
def test_what_is_not_there_is_named_by_nothing(name):
    """The index of a MIG device is nobody's name."""
    with pytest.raises(NotFound):
        devices_named(Play(MIXED).world, name)


def test_a_gpu_that_was_split_has_the_name_that_it_had_whole():
    """The whole one is listed as lost, under the number and the UUID that its pieces go by now."""
    play = Play((a_device(1, uuid="card-1"), *MIXED))
    play.do(SeeCondition(device="card-1", condition=Condition.LOST))

    assert named(play, "1") == named(play, "card-1") == ["mig-1:0", "mig-1:1"]

    for uuid in ("mig-1:0", "mig-1:1"):
        play.do(SeeCondition(device=uuid, condition=Condition.LOST))
    assert named(play, "1") == ["card-1"]


def test_a_gpu_in_mig_mode_without_mig_devices_is_told_what_is_missing():
    """It is there, and nothing of it can be leased."""
    cards = (Card(uuid="card-7", index=7, name="A100"),)
    for name in ("7", "card-7"):
        with pytest.raises(Conflict, match="GPU 7 is in MIG mode and has no MIG devices") as error:
            devices_named(Play(MIXED).world, name, cards=cards)
        assert "nvidia-smi mig -cgi" in str(error.value.hint)


def test_what_is_done_to_a_gpu_is_done_to_all_its_mig_devices():
    """In one step: between two marks nothing is granted on the rest."""
    play = Play(MIXED)
    jobs = [play.running(device_class="mig-3g.40gb") for _ in range(2)]

    assert play.do(Cordon(device="1", by="op")) == ["device-marked"] * 2
    assert cordoned(play) == ["mig-1:0", "mig-1:1"]
    assert play.do(Cordon(device="1", by="op")) == []
    drained = play.do(Drain(device="1", by="op"))
    assert drained == [f"evicted (drained) {id_}" for id_ in jobs]
    for id_ in jobs:
        play.exit(id_)
    waits = play.job(device_class="mig-3g.40gb")
    assert play.state(waits) is State.QUEUED
    assert play.do(Uncordon(device="1", by="op"))[:2] == ["device-marked"] * 2
    assert (cordoned(play), play.state(waits)) == ([], State.ACTIVE)


def test_drain_asks_each_holder_once_however_many_of_its_devices_are_meant():
    """Two parts of one card for one workload cannot be; two workloads on one device can."""
    play = Play((Device(uuid="gpu-0", index=0, name="A100", device_class="a100"),))
    job = play.running()

    assert play.do(Drain(device="0", by="op")) == ["device-marked", f"evicted (drained) {job}"]
