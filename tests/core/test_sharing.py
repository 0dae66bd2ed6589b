"""Parts of a device: which devices the policy shares, what of one is really free, and who uses more than their part."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.spare import spare_bytes
from jupyter_gpu.errors import LimitExceeded
from jupyter_gpu.model import (
    Condition,
    EndReason,
    EvictionReason,
    LoadPolicy,
    Outcome,
    Policy,
    Reading,
    Release,
    SeeAboveShare,
    SeeCondition,
    SeeDevices,
    SharingRule,
    State,
    Use,
    UseKind,
    WaitingReason,
)
from tests.world import BEGIN, DONE, GIB, SAVED, Play, a_device, a_job, a_mig_device

SHARED = Policy(sharing=(SharingRule(),))


def is_shared(play: Play, uuid: str = "gpu-0") -> bool:
    """Whether parts of a device may be leased."""
    return play.world.devices[uuid].shareable


def read(play: Play, used_gib: float | None, *uses: Use, reserved_gib: float = 0) -> None:
    """What NVML says of the first device, and who was on it then."""
    used = None if used_gib is None else int(used_gib * GIB)
    play.world.readings["gpu-0"] = Reading(
        uuid="gpu-0",
        at=BEGIN,
        memory_used_bytes=used,
        memory_total_bytes=80 * GIB,
        memory_reserved_bytes=int(reserved_gib * GIB),
    )
    play.world.uses["gpu-0"] = uses


def use(kind: UseKind, gib: float | None, workload: int | None = None) -> Use:
    """A process on a device."""
    return Use(pid=4711, kind=kind, workload=workload, memory_bytes=None if gib is None else int(gib * GIB))


def spare_gib(play: Play, *gone: int) -> float | None:
    """What is left of the first device."""
    spare = spare_bytes(play.world, play.world.devices["gpu-0"], gone)
    return None if spare is None else spare / GIB


# -- which devices are shared


@pytest.mark.parametrize(
    ("rule", "shared"),
    [
        (SharingRule(), {"gpu-0", "gpu-1", "mig-2:0"}),
        (SharingRule(device="gpu-1"), {"gpu-1"}),
        (SharingRule(device_class="l4"), {"gpu-1"}),
        (SharingRule(device="gpu-0", device_class="l4"), set()),
        (SharingRule(device_class="mig-3g.40gb"), {"mig-2:0"}),
    ],
)
def test_the_policy_says_which_devices_are_shared(rule, shared):
    """One by its UUID, all of a class, or all: what the inventory says of it does not count."""
    devices = (a_device(0, shareable=True), a_device(1, device_class="l4"), a_mig_device(0, card=2))
    play = Play(devices, Policy(sharing=(rule,)))

    assert {device.uuid for device in play.world.devices.values() if device.shareable} == shared
    assert play.do(SeeDevices(pool="local", devices=devices)) == []


def test_a_new_policy_shares_anew_and_drops_no_lease():
    """What is held in parts stays so; only new leases see the change."""
    play = Play(2, SHARED)
    part, whole = play.running(memory_bytes=GIB), play.running("bob")

    assert play.do(LoadPolicy(policy=Policy())) == ["policy-loaded", "device-appeared", "device-appeared"]
    assert set(play.holding()) == {part, whole}
    with pytest.raises(LimitExceeded, match="no GPU here is shared"):
        play.do(a_job(memory_bytes=GIB))
    assert play.state(play.job("cleo")) is State.QUEUED
    assert play.do(LoadPolicy(policy=Policy())) == ["policy-loaded"]


def test_what_waits_for_a_part_goes_on_waiting_while_nobody_shares():
    """An admin's reload ends no queued work, and says what it waits for."""
    play = Play(1, SHARED)
    play.running()
    waits = play.job("bob", memory_bytes=GIB)

    play.do(LoadPolicy(policy=Policy()))
    assert play.waiting(waits) is WaitingReason.ENGINE
    play.exit(1)
    assert play.state(waits) is State.QUEUED
    play.do(LoadPolicy(policy=SHARED))
    assert play.state(waits) is State.ACTIVE


@pytest.mark.parametrize("words", [{"exclusive": True}, {"shares_host_memory": True}, {"memory_bytes": None}])
def test_a_device_that_cannot_be_shared_any_more_keeps_who_is_on_it(words):
    """Its compute mode was changed while it was leased: no new part, and none is taken away (pytorch/pytorch#3871)."""
    play = Play(1, SHARED)
    play.running(memory_bytes=GIB)
    waits = play.job(memory_bytes=80 * GIB)

    play.do(SeeDevices(pool="local", devices=(a_device(0, **words),)))

    assert not is_shared(play)
    assert (play.state(1), play.state(waits)) == (State.ACTIVE, State.QUEUED)
    play.exit(1)
    assert play.state(waits) is State.QUEUED
    play.do(SeeDevices(pool="local", devices=(a_device(0),)))
    assert play.state(waits) is State.ACTIVE


# -- what of it is really free


def test_a_holder_takes_its_part_or_what_it_really_uses():
    """Whichever is more: who uses less may still come to use it, who uses more has it already."""
    play = Play(1, SHARED)
    play.running(memory_bytes=20 * GIB)
    play.running(memory_bytes=10 * GIB)

    read(play, 5, use(UseKind.HOLDER, 5, 1))
    assert spare_gib(play) == 50
    read(play, 40, use(UseKind.HOLDER, 35, 1), use(UseKind.HOLDER, 5, 2))
    assert spare_gib(play) == 35


@pytest.mark.parametrize("kind", sorted(set(UseKind) - {UseKind.HOLDER}))
def test_what_no_lease_explains_is_not_free(kind):
    """A stranger's memory, and the display's: it is nobody's fault, and not free either (russellb/canhazgpu#5)."""
    play = Play(1, SHARED)
    play.running(memory_bytes=20 * GIB)

    read(play, 15, use(UseKind.HOLDER, 5, 1), use(kind, 10))

    assert spare_gib(play) == 50


def test_memory_of_no_process_and_what_the_driver_keeps_are_not_free():
    """What is used beyond what processes show counts; the reserve is neither used nor free (wookayin/gpustat#141)."""
    play = Play(1, SHARED)
    play.running(memory_bytes=20 * GIB)

    read(play, 12, use(UseKind.HOLDER, 5, 1), reserved_gib=1)

    assert spare_gib(play) == 80 - 1 - 20 - 7


def test_who_is_imagined_gone_takes_its_use_along():
    """So a part may preempt another, and what a stranger holds is still not there then."""
    play = Play(1, SHARED)
    play.running(memory_bytes=20 * GIB)
    play.running(memory_bytes=30 * GIB)
    read(play, 65, use(UseKind.HOLDER, 25, 1), use(UseKind.HOLDER, 30, 2), use(UseKind.USER, 10))

    assert [spare_gib(play), spare_gib(play, 1), spare_gib(play, 2), spare_gib(play, 1, 2)] == [15, 40, 45, 70]


@pytest.mark.parametrize("known", [False, True])
def test_where_nobody_knows_who_uses_what_the_free_memory_bounds_it(known):
    """No memory of single processes is told: leases count, and what NVML says is free (pytorch/pytorch#64491)."""
    play = Play(1, SHARED)
    play.running(memory_bytes=20 * GIB)
    play.running(memory_bytes=10 * GIB)
    read(play, 60, *([use(UseKind.HOLDER, None, 1), use(UseKind.USER, 3)] if known else []))
    if not known:
        del play.world.uses["gpu-0"]

    assert spare_gib(play) == 20
    assert spare_gib(play, 1) == 70


def test_there_is_never_less_than_nothing():
    """Whoever uses more than there seems to be leaves zero."""
    play = Play(1, SHARED)
    play.running(memory_bytes=20 * GIB)

    read(play, 80, use(UseKind.USER, 90))

    assert spare_gib(play) == 0


def test_a_part_waits_until_the_memory_is_really_free():
    """By what is used, not by what is leased; and it starts when that changes."""
    play = Play(1, SHARED)
    read(play, 70, use(UseKind.CONTAINER, 70))
    waits = play.job(memory_bytes=20 * GIB)
    assert play.state(waits) is State.QUEUED

    read(play, 50, use(UseKind.CONTAINER, 50))
    play.later(1)

    assert play.state(waits) is State.ACTIVE


# -- above a part


def test_a_job_above_its_part_is_ended_with_what_it_should_have_asked_for():
    """It would do the same again, so it is not repeated blindly; it saved in its grace all the same."""
    play = Play(1, SHARED)
    job = play.running(memory_bytes=20 * GIB)
    read(play, 25.5, use(UseKind.HOLDER, 25.5, job))

    assert play.do(SeeAboveShare(workload=job)) == [f"evicted (above-share) {job}"]
    assert play[job].yield_by == play.now + 120
    assert play.exit(job, SAVED) == [f"released {job}", f"ended (above-share) {job}"]
    assert play[job].detail == ("it used 25.5GiB of GPU 0, of which its part is 20GiB; ask again with `--memory 26GiB`")


def test_what_finished_in_its_grace_has_succeeded():
    """The notice came too late to matter."""
    play = Play(1, SHARED)
    job = play.running(memory_bytes=20 * GIB)
    play.do(SeeAboveShare(workload=job))

    assert play.exit(job, Outcome(end=EndReason.SUCCEEDED, finished=True, noticed=True))[-1].startswith("ended (succ")


def test_a_job_that_ended_before_the_notice_reached_it_ended_by_itself():
    """As with every eviction."""
    play = Play(1, SHARED)
    job = play.running(memory_bytes=20 * GIB)
    play.do(SeeAboveShare(workload=job))

    assert play.exit(job, DONE)[-1] == f"ended (succeeded) {job}"


def test_a_reservation_above_its_part_is_ended_with_the_same_words():
    """The person hears it in the notice and at the end; who uses more than any part is sent to a whole GPU."""
    play = Play(1, SHARED)
    held = play.reservation(memory_bytes=20 * GIB)
    read(play, 79.5, use(UseKind.HOLDER, 80.5, held))

    play.do(SeeAboveShare(workload=held, detail="as the watch saw it"))
    assert play[held].detail.endswith("its part is 20GiB; ask again for a whole GPU: without `--memory`")
    play.do(Release(workload=held, by="bob"))
    assert play.clear(held) == [f"ended (above-share) {held}"]


def test_what_is_not_known_any_more_is_told_as_it_was_seen():
    """The observation is the watch's; the words are of the reading of now where there is one."""
    play = Play(1, SHARED)
    held = play.reservation(memory_bytes=20 * GIB)

    play.do(SeeAboveShare(workload=held, detail="as the watch saw it"))

    assert (play[held].eviction, play[held].detail) == (EvictionReason.ABOVE_SHARE, "as the watch saw it")


def test_nobody_else_is_above_a_part():
    """Who holds a whole device, waits, or is over; and a late word changes nothing."""
    play = Play(1, SHARED)
    whole, waits = play.running(), play.job()

    for id_ in (whole, waits, 99):
        assert play.do(SeeAboveShare(workload=id_)) == []


def test_a_device_in_parts_that_is_not_well_gets_no_new_part():
    """Those on it stay."""
    play = Play(1, SHARED)
    play.running(memory_bytes=GIB)
    play.do(SeeCondition(device="gpu-0", condition=Condition.HOT))

    assert play.state(play.job(memory_bytes=GIB)) is State.QUEUED
    assert play.state(1) is State.ACTIVE
