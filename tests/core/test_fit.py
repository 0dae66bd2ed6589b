"""Part 3, the fit: whole devices by best fit, parts of shareable ones, free memory by leases and by NVML."""

from __future__ import annotations

import pytest

from jupyter_gpu.errors import LimitExceeded
from jupyter_gpu.model import Condition, EndReason, Outcome, Policy, Reading, SeeCondition, State, WaitingReason
from tests.world import BEGIN, DAY, GIB, HOUR, SAVED, Play, a_device


def read(play: Play, uuid: str, used_gib: float) -> None:
    """What NVML says of a device."""
    play.world.readings[uuid] = Reading(
        uuid=uuid, at=BEGIN, memory_used_bytes=int(used_gib * GIB), memory_total_bytes=80 * GIB
    )


def linked(*groups: str, **words) -> list:
    """Devices in these link groups."""
    return [a_device(index, link_group=group, **words) for index, group in enumerate(groups)]


def test_the_group_that_leaves_the_fewest_over():
    """Two devices go to the pair, not into the four."""
    play = Play(linked("a", "a", "a", "a", "b", "b"))

    assert play.devices_of(play.job(devices=2)) == ("gpu-4", "gpu-5")


def test_across_groups_of_one_node_only_where_the_ask_allows():
    """Three of two and two: fine unless they must be linked, which is refused at once."""
    play = Play(linked("a", "a", "b", "b"))

    assert len(play.devices_of(play.job(devices=3))) == 3


def test_linked_devices_are_waited_for():
    """Two free devices of two groups do not make a pair."""
    play = Play(linked("a", "a", "b", "b"))
    held = [play.running(devices=1), play.running(devices=2), play.running(devices=1)]
    play.exit(held[0])
    free = {"gpu-0", "gpu-1", "gpu-2", "gpu-3"} - {uuid for uuids in play.holding().values() for uuid in uuids}
    assert len(free) == 1
    pair = play.job(devices=2, same_link_group=True)

    assert play.state(pair) is State.QUEUED


def test_devices_without_a_link_are_linked_to_nobody():
    """No group is not a group."""
    play = Play(2)
    with pytest.raises(LimitExceeded, match="in one link group"):
        play.job(devices=2, same_link_group=True)
    assert play.devices_of(play.job(devices=1, same_link_group=True)) == ("gpu-0",)


def test_all_devices_of_an_ask_are_on_one_node():
    """Three devices on two nodes of two are not three."""
    nodes = [a_device(index, node=f"n{index // 2}") for index in range(4)]
    play = Play(nodes)
    play.job(devices=1)

    assert play.devices_of(play.job(devices=2)) == ("gpu-2", "gpu-3")


def test_the_devices_of_before_when_that_costs_nothing():
    """A job that comes back finds its warm cache."""
    play = Play(2)
    other, job = play.running("bob"), play.running("ada")
    play.exit(other)
    play.exit(job, Outcome(end=EndReason.FAILED, exit_code=75, progressed=True))

    assert play.devices_of(job) == ("gpu-1",)


def test_class_and_pool_are_heeded():
    """The kind asked for, and no other."""
    play = Play([a_device(0), a_device(1, device_class="l4"), a_device(2, pool="rented")])

    assert play.devices_of(play.job(device_class="l4")) == ("gpu-1",)
    assert play.devices_of(play.job(pool="rented")) == ("gpu-2",)
    assert play[2].lease.pool == "rented"


@pytest.mark.parametrize("condition", list(Condition))
def test_what_is_not_well_serves_nobody(condition):
    """A condition means no lease; what nobody can serve says why."""
    play = Play(1)
    play.do(SeeCondition(device="gpu-0", condition=condition))
    job = play.job()

    expected = {Condition.UNREADABLE: WaitingReason.DRIVER, Condition.LOST: WaitingReason.ENGINE}
    assert play.waiting(job) is expected.get(condition, WaitingReason.DEVICES)


# -- memory


def shareable(count: int = 1) -> list:
    """Devices of which parts may be leased."""
    return [a_device(index, shareable=True) for index in range(count)]


def test_parts_of_a_shareable_device_never_sum_above_what_it_has():
    """Three of thirty do not fit into eighty."""
    play = Play(shareable())
    jobs = [play.job(memory_bytes=30 * GIB) for _ in range(3)]

    assert [play.state(job) for job in jobs] == [State.ACTIVE, State.ACTIVE, State.QUEUED]


def test_a_part_goes_where_it_fills_best():
    """The fullest that still has room, so that the other stays whole."""
    play = Play(shareable(2))
    play.job(memory_bytes=50 * GIB)

    assert play.devices_of(play.job(memory_bytes=20 * GIB)) == ("gpu-0",)
    assert play.devices_of(play.job(devices=1)) == ("gpu-1",)


def test_whole_and_part_exclude_each_other():
    """A whole lease shares with nobody, a part keeps the whole from being leased."""
    play = Play(shareable())
    part = play.running(memory_bytes=10 * GIB)
    whole = play.job("bob")
    assert play.state(whole) is State.QUEUED
    play.exit(part)
    assert play.state(whole) is State.ACTIVE
    assert play.state(play.job(memory_bytes=GIB)) is State.QUEUED


def test_a_device_that_is_not_shareable_is_leased_whole_or_not_at_all():
    """Only what an admin allowed is shared."""
    play = Play([a_device(0), a_device(1, shareable=True)])

    assert play.devices_of(play.job(memory_bytes=GIB)) == ("gpu-1",)


def test_memory_that_somebody_took_outside_the_queue_counts():
    """By NVML, for parts and for whole devices that must have so much free."""
    play = Play(shareable(2))
    read(play, "gpu-0", 60)
    read(play, "gpu-1", 1)

    assert play.devices_of(play.job(memory_bytes=30 * GIB)) == ("gpu-1",)
    assert play.devices_of(play.job("bob", min_free_bytes=40 * GIB)) == ()
    assert play.devices_of(play.job("bob", min_free_bytes=10 * GIB)) == ("gpu-0",)


def test_a_missing_reading_is_not_zero():
    """Not known is not full: the leases decide."""
    play = Play(shareable())
    play.world.readings["gpu-0"] = Reading(uuid="gpu-0", at=BEGIN)

    assert play.state(play.job(memory_bytes=70 * GIB)) is State.ACTIVE


def test_a_part_may_preempt_a_whole():
    """Somebody's training that holds a shareable device yields to an interactive part of it."""
    play = Play(shareable())
    job = play.running()
    play.later(HOUR)

    part = play.reservation(memory_bytes=10 * GIB)

    assert play.waiting(part) is WaitingReason.CLEARING
    play.exit(job, SAVED)
    assert play.devices_of(part) == ("gpu-0",)


def test_a_whole_preempts_all_the_parts_or_none():
    """A device with two holders is free only when both are gone; where one is protected, nobody is moved in vain."""
    play = Play(shareable())
    first = play.running("ada", memory_bytes=10 * GIB)
    play.later(HOUR)
    second = play.running("cleo", memory_bytes=10 * GIB)

    whole = play.reservation()
    assert play.waiting(whole) is WaitingReason.DEVICES
    assert play.state(first) is State.ACTIVE
    play.later(600)
    assert (play.state(first), play.state(second)) == (State.YIELDING, State.YIELDING)
    play.exit(first, SAVED)
    assert play.state(whole) is State.QUEUED
    play.exit(second, SAVED)
    assert play.state(whole) is State.ACTIVE


def test_a_whole_is_not_starved_by_parts():
    """The first in line for the whole device holds it back from parts that would stay too long."""
    play = Play(shareable())
    play.running("ada", memory_bytes=10 * GIB, seconds=HOUR)
    whole = play.job("bob", seconds=HOUR)
    long = play.job("cleo", memory_bytes=10 * GIB, seconds=DAY)

    assert play.waiting(long) is WaitingReason.DEVICES
    assert play.state(whole) is State.QUEUED


def test_a_part_that_waits_first_does_not_leave_the_whole_behind_it_without_a_start():
    """Parts and wholes each have a first in line."""
    play = Play([a_device(0, shareable=True), a_device(1)], Policy(order_multiple=0))
    play.running("ada", seconds=HOUR, memory_bytes=70 * GIB)
    play.job("bob", memory_bytes=20 * GIB, seconds=HOUR)
    whole = play.job("bob", devices=2, seconds=HOUR)

    assert play.waiting(play.job("cleo", seconds=DAY)) is WaitingReason.DEVICES
    assert play.state(whole) is State.QUEUED


def test_placement_is_the_same_every_time():
    """By pool, node and index, whatever order the inventory came in."""
    orders = ([0, 1, 2], [2, 0, 1], [1, 2, 0])

    assert {_first(order) for order in orders} == {"gpu-0"}


def _first(order: list[int]) -> str:
    play = Play([a_device(index) for index in order])
    return play.devices_of(play.job())[0]
