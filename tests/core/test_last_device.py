"""What the rules of the line, of holds and of reservations for later make of the oldest complaints about sharing."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.decide import step
from jupyter_gpu.core.events import Event, Granted
from jupyter_gpu.core.planner import Memory
from jupyter_gpu.errors import GpuError
from jupyter_gpu.model import (
    AddHold,
    Condition,
    Holder,
    SeeCondition,
    SeeDevices,
    SeeExited,
    SeeStarted,
    Span,
    WaitingReason,
    World,
)
from tests.world import BEGIN, DONE, HOUR, Play, a_device, a_job, a_reservation


def test_of_two_who_ask_at_one_instant_for_the_last_device_one_gets_it():
    """200 times, in place, with what a step remembers: check and lease are one step (russellb/canhazgpu#30)."""
    world, memory = World(), Memory()
    step(world, SeeDevices(pool="local", devices=(a_device(0),)), BEGIN, memory=memory)
    for _ in range(200):
        asked = [a_job(owner, seconds=HOUR) for owner in ("ada", "bob")]
        granted = [_granted(step(world, submit, BEGIN, memory=memory)) for submit in asked]
        assert granted == [[world.last_id - 1], []]
        assert list(world.live) == granted[0]
        assert _end(world, memory, world.last_id - 1) == [world.last_id]
        assert _end(world, memory, world.last_id) == []
        assert world.check() == []


def _granted(events: list[Event]) -> list[int]:
    return [event.workload for event in events if isinstance(event, Granted)]


def _end(world: World, memory: Memory, job: int) -> list[int]:
    """It starts and is done; give who gets what it had."""
    holder = Holder(kind="attempt", name="a", number=1)
    step(world, SeeStarted(workload=job, attempt=1, holder=holder), BEGIN, memory=memory)
    return _granted(step(world, SeeExited(workload=job, attempt=1, outcome=DONE, clear=True), BEGIN, memory=memory))


#: In exclusive mode with a process on it nobody gets in; a fault, load without an owner, a process without a lease.
WRONG = (Condition.PROHIBITED, Condition.FAULTY, Condition.SUSPECT, Condition.FOREIGN)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_device_that_is_not_well_is_promised_to_nobody(wrong):
    """pytorch/pytorch#3871, cBio/cbio-cluster#144, MFlowCode/MFC#1748, Datura-ai/lium-io#1140, russellb/canhazgpu#5.

    A reservation for later is refused where it would need it, and a hold of so many chooses the others.
    """
    play = Play(2)
    play.do(SeeCondition(device="gpu-1", condition=wrong))

    with pytest.raises(GpuError, match="cannot be promised"):
        play.do(a_reservation("ada", 2, HOUR, holder=None, not_before=play.now + HOUR))
    spans = (Span(from_at=play.now + HOUR, until_at=play.now + 2 * HOUR),)
    play.do(AddHold(name="course", by="op", users=("eve",), count=1, windows=spans))
    play.later(HOUR)

    assert play.waiting(play.reservation("bob", 1, HOUR)) is WaitingReason.HOLD
    assert play.devices_of(play.reservation("eve", 1, HOUR)) == ("gpu-0",)
