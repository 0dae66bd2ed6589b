"""What a holder is told although nothing ends: above its part, outside its reservation, on a sick device."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.told import WORDS, above_its_part, told, used_by
from jupyter_gpu.model import Condition, Policy, SeeCondition, SharingRule, Use, UseKind
from tests.world import GIB, Play

MIB = 1 << 20


def sharing(**words) -> Policy:
    """All devices in parts."""
    return Policy(sharing=(SharingRule(**words),))


def uses(play: Play, uuid: str, *found: Use) -> None:
    """Who is on a device."""
    play.world.uses[uuid] = found


def of(workload: int, used: int | None, pid: int = 4711, kind: UseKind = UseKind.HOLDER) -> Use:
    """A process of a workload."""
    return Use(pid=pid, kind=kind, workload=workload, memory_bytes=used)


def a_part(policy: Policy, gib: int = 20) -> Play:
    """Workload 1, a reservation, holds a part of the only device."""
    play = Play(1, policy)
    play.reservation(memory_bytes=gib * GIB)
    return play


def test_who_keeps_to_their_part_is_told_nothing():
    """Up to the part and the slack beside it: a CUDA context has its own size."""
    play = a_part(sharing(slack_bytes=512 * MIB))

    uses(play, "gpu-0", of(1, 20 * GIB), of(1, 512 * MIB, pid=4712))

    assert used_by(play.world, play[1], "gpu-0") == 20 * GIB + 512 * MIB
    assert told(play.world, play[1]) == ""


def test_who_is_above_their_part_is_told_how_much_and_what_to_do():
    """All processes of a holder count together, with the size that would do."""
    play = a_part(sharing())

    uses(play, "gpu-0", of(1, 20 * GIB), of(1, 600 * MIB, pid=4712), of(2, 50 * GIB, pid=9))

    assert told(play.world, play[1]) == (
        "It uses 20.6GiB of GPU 0, more than its part of 20GiB, and others there may run out of memory. "
        "Free some, or ask anew with `--memory 21GiB`."
    )


def test_who_will_be_evicted_for_it_is_told_when():
    """Where the policy ends it, the holder hears how long it may last."""
    play = a_part(sharing(evict_after_seconds=600))

    uses(play, "gpu-0", of(1, 90 * GIB))

    assert told(play.world, play[1]).endswith(
        "ask anew for a whole GPU: without `--memory`. It is ended when this lasts 10m."
    )


@pytest.mark.parametrize("found", [(None,), (30 * GIB, None)])
def test_an_incomplete_sum_accuses_nobody(found):
    """The driver tells no memory of some process: not known is neither zero nor too much (pytorch/pytorch#64491)."""
    play = a_part(sharing())

    uses(play, "gpu-0", *(of(1, used, pid=pid) for pid, used in enumerate(found)))

    assert used_by(play.world, play[1], "gpu-0") is None
    assert above_its_part(play.world, play[1]) is None
    assert told(play.world, play[1]) == ""


def test_who_holds_a_whole_device_is_above_no_part():
    """There is nobody else's memory to take."""
    play = Play(1, sharing())
    play.reservation()

    uses(play, "gpu-0", of(1, 79 * GIB))

    assert told(play.world, play[1]) == ""


def test_a_job_that_left_its_pin_hears_where_it_runs():
    """It set CUDA_VISIBLE_DEVICES itself and runs on another's GPU (justanhduc/task-spooler#73)."""
    play = Play(3)
    play.running(devices=2)
    play.running()

    uses(play, "gpu-0", of(2, GIB, kind=UseKind.ASTRAY))

    assert told(play.world, play[2]) == (
        "It runs outside its reservation: process 4711 of it is on GPU 0. Let the pin that it was given stand."
    )
    assert told(play.world, play[1]) == ""


@pytest.mark.parametrize("condition", list(Condition))
def test_who_is_on_a_device_that_is_not_well_is_told_what_it_has(condition):
    """In words for people, with what was seen and what to do; others on the board hear nothing (rossumai/nvgpu#6)."""
    play = Play(2)
    play.reservation()
    play.reservation("cleo")

    play.do(SeeCondition(device="gpu-0", condition=condition, detail="as it was seen"))

    if condition is Condition.LOST:  # it has a notice, which says so
        assert (told(play.world, play[1]), play[1].detail) == ("", "GPU 0 is lost")
    else:
        assert told(play.world, play[1]).startswith(f"GPU 0 {WORDS[condition]} (as it was seen). ")
    assert told(play.world, play[2]) == ""


def test_a_job_is_not_told_what_only_a_person_can_do():
    """It reads in the job's reason what its device has; one that is moved for it has that as its notice."""
    play = Play(2, Policy(drains=(Condition.HOT,)))
    stays, moves = play.running(), play.running()

    play.do(SeeCondition(device="gpu-0", condition=Condition.FAULTY))
    play.do(SeeCondition(device="gpu-1", condition=Condition.HOT))

    assert told(play.world, play[stays]) == "GPU 0 has a hardware fault."
    assert (told(play.world, play[moves]), play[moves].detail) == ("", "GPU 1 is too hot, or slowed down")


def test_who_holds_nothing_is_told_nothing():
    """Waiting or over."""
    play = Play(1)
    play.running()
    waiting = play.job()
    play.exit(1)

    assert told(play.world, play[1]) == ""
    assert told(play.world, play[waiting]) == ""
