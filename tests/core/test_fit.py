"""Part 3, the fit: whole devices by best fit, parts of shareable ones, free memory by leases and by NVML."""

from __future__ import annotations

import pytest

from jupyter_gpu.errors import LimitExceeded
from jupyter_gpu.model import (
    Condition,
    EndReason,
    Outcome,
    Policy,
    Reading,
    SeeCondition,
    SharingRule,
    State,
    Vitals,
    WaitingReason,
)
from tests.world import BEGIN, DAY, GIB, HOUR, SAVED, Play, a_device, a_mig_device


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


#: All devices may be leased in parts.
SHARED = Policy(sharing=(SharingRule(),))


def sharing(count: int = 1, **words) -> Play:
    """Devices of which parts may be leased."""
    return Play([a_device(index, **words) for index in range(count)], SHARED)


def test_parts_of_a_shareable_device_never_sum_above_what_it_has():
    """Three of thirty do not fit into eighty."""
    play = sharing()
    jobs = [play.job(memory_bytes=30 * GIB) for _ in range(3)]

    assert [play.state(job) for job in jobs] == [State.ACTIVE, State.ACTIVE, State.QUEUED]


def test_a_part_goes_where_it_fills_best():
    """The fullest that still has room, so that the other stays whole."""
    play = sharing(2)
    play.job(memory_bytes=50 * GIB)

    assert play.devices_of(play.job(memory_bytes=20 * GIB)) == ("gpu-0",)
    assert play.devices_of(play.job(devices=1)) == ("gpu-1",)


def test_whole_and_part_exclude_each_other():
    """A whole lease shares with nobody, a part keeps the whole from being leased."""
    play = sharing()
    part = play.running(memory_bytes=10 * GIB)
    whole = play.job("bob")
    assert play.state(whole) is State.QUEUED
    play.exit(part)
    assert play.state(whole) is State.ACTIVE
    assert play.state(play.job(memory_bytes=GIB)) is State.QUEUED


def test_a_device_that_is_not_shareable_is_leased_whole_or_not_at_all():
    """Only what an admin allowed is shared."""
    play = Play(2, Policy(sharing=(SharingRule(device="gpu-1"),)))

    assert play.devices_of(play.job(memory_bytes=GIB)) == ("gpu-1",)


def test_memory_that_somebody_took_outside_the_queue_counts():
    """By NVML, for parts and for whole devices that must have so much free."""
    play = sharing(2)
    read(play, "gpu-0", 60)
    read(play, "gpu-1", 1)

    assert play.devices_of(play.job(memory_bytes=30 * GIB)) == ("gpu-1",)
    assert play.devices_of(play.job("bob", min_free_bytes=40 * GIB)) == ()
    assert play.devices_of(play.job("bob", min_free_bytes=10 * GIB)) == ("gpu-0",)


def test_a_missing_reading_is_not_zero():
    """Not known is not full: the leases decide."""
    play = sharing()
    play.world.readings["gpu-0"] = Reading(uuid="gpu-0", at=BEGIN)

    assert play.state(play.job(memory_bytes=70 * GIB)) is State.ACTIVE


def test_a_part_may_preempt_a_whole():
    """Somebody's training that holds a shareable device yields to an interactive part of it."""
    play = sharing()
    job = play.running()
    play.later(HOUR)

    part = play.reservation(memory_bytes=10 * GIB)

    assert play.waiting(part) is WaitingReason.CLEARING
    play.exit(job, SAVED)
    assert play.devices_of(part) == ("gpu-0",)


def test_a_whole_preempts_all_the_parts_or_none():
    """A device with two holders is free only when both are gone; where one is protected, nobody is moved in vain."""
    play = sharing()
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
    play = sharing()
    play.running("ada", memory_bytes=10 * GIB, seconds=HOUR)
    whole = play.job("bob", seconds=HOUR)
    long = play.job("cleo", memory_bytes=10 * GIB, seconds=DAY)

    assert play.waiting(long) is WaitingReason.DEVICES
    assert play.state(whole) is State.QUEUED


def test_a_part_that_waits_first_does_not_leave_the_whole_behind_it_without_a_start():
    """Parts and wholes each have a first in line."""
    play = Play(2, Policy(order_multiple=0, sharing=(SharingRule(device="gpu-0"),)))
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


# -- placed by hand


def test_who_names_devices_gets_these_and_no_others():
    """By their UUIDs, whatever the best fit would be."""
    play = Play(4)

    assert play.devices_of(play.job(on=("gpu-2",))) == ("gpu-2",)
    assert play.devices_of(play.job(devices=2, on=("gpu-3", "gpu-1", "gpu-2"))) == ("gpu-1", "gpu-3")


def test_who_names_devices_waits_for_these():
    """Though others are free; and whoever names others, or none, has an answer of their own."""
    play = Play(3)
    play.running(on=("gpu-1",))

    waits = play.job("bob", on=("gpu-1",))
    assert play.waiting(waits) is WaitingReason.DEVICES
    assert play.devices_of(play.job("bob", on=("gpu-2",))) == ("gpu-2",)
    assert play.devices_of(play.job("bob")) == ("gpu-0",)


def test_who_names_a_device_that_is_gone_waits_for_just_that():
    """The others are all there: that does not help this one."""
    play = Play(2)
    play.do(SeeCondition(device="gpu-0", condition=Condition.LOST))
    play.running()

    assert play.waiting(play.job("bob", on=("gpu-0",))) is WaitingReason.ENGINE
    assert play.waiting(play.job("bob", on=("gpu-1",))) is WaitingReason.DEVICES


def test_who_names_a_device_moves_who_is_on_it():
    """The better claim is to that device, so nobody on another is moved."""
    play = Play(2)
    first, second = play.running("ada"), play.running("cleo")
    play.later(HOUR)

    wanted = play.reservation(on=("gpu-1",))

    assert play.waiting(wanted) is WaitingReason.CLEARING
    assert (play.state(first), play.state(second)) == (State.ACTIVE, State.YIELDING)


def test_each_named_device_has_a_first_in_line():
    """The start of one is held back from long work that could go there, and that of the other too."""
    play = Play(3, Policy(order_multiple=0))
    play.running("ada", seconds=HOUR, on=("gpu-0",))
    for on in (("gpu-0", "gpu-1"), ("gpu-0", "gpu-2")):
        play.job("bob", devices=2, seconds=HOUR, on=on)

    assert play.waiting(play.job("cleo", seconds=DAY)) is WaitingReason.DEVICES
    assert play.devices_of(play.job("cleo", seconds=HOUR)) == ("gpu-1",)


# -- MIG devices beside whole GPUs


def mixed() -> Play:
    """One whole GPU of 80 GiB; a card in two halves, and one in two eighths."""
    eighth = {"device_class": "mig-1g.10gb", "memory_bytes": 10 * GIB}
    return Play([
        a_device(2),
        *(a_mig_device(slot) for slot in (1, 2)),
        *(a_mig_device(slot, card=1, **eighth) for slot in (1, 2)),
    ])  # fmt: skip


def test_who_says_nothing_of_size_gets_a_whole_gpu_and_never_a_slice_by_surprise():
    """A whole one while there is one, then the largest there is."""
    play = mixed()

    got = [play.devices_of(play.job(owner)) for owner in ("a", "b", "c", "d", "e")]

    assert got == [("gpu-2",), ("mig-0:1",), ("mig-0:2",), ("mig-1:1",), ("mig-1:2",)]


def test_who_says_how_much_must_be_free_gets_the_smallest_that_has_it():
    """So the whole ones stay for those who need them."""
    play = mixed()

    asked = (8, 8, 8, 30, 50)

    assert [play.devices_of(play.job(min_free_bytes=gib * GIB)) for gib in asked] == [
        ("mig-1:1",), ("mig-1:2",), ("mig-0:1",), ("mig-0:2",), ("gpu-2",),
    ]  # fmt: skip


def test_several_devices_are_whole_ones():
    """MIG devices are no parts of a larger ask, however many are free (pytorch/pytorch#102715)."""
    play = Play([a_mig_device(1), a_mig_device(2), a_device(1), a_device(2)])
    play.job()

    assert play.waiting(play.job(devices=2)) is WaitingReason.DEVICES


def test_one_card_is_filled_before_the_next_is_begun():
    """A card on which nobody is can be split anew."""
    play = Play([a_mig_device(slot, card=card) for card in (0, 1) for slot in (1, 2, 3)])
    words = {"device_class": "mig-3g.40gb"}
    jobs = [play.running(**words) for _ in range(4)]
    assert play.devices_of(jobs[3]) == ("mig-1:1",)
    play.exit(jobs[0])

    assert [play.devices_of(play.job(**words)) for _ in range(2)] == [("mig-0:1",), ("mig-1:2",)]


# -- displays, and unequal GPUs


def drives_a_display(play: Play, *uuids: str, offered: bool = True) -> None:
    """A monitor hangs on these, as the driver says or as what draws there shows."""
    for uuid in uuids:
        shows = {"vitals": Vitals(drives_display=True)} if offered else {"drawing_pids": (815,)}
        play.world.readings[uuid] = Reading(uuid=uuid, at=BEGIN, **shows)


@pytest.mark.parametrize("offered", [True, False])
def test_the_gpu_that_drives_a_display_goes_last(offered):
    """A part of it is taken already, and who works at it would notice; where nothing else is free it serves."""
    play = Play(3)
    drives_a_display(play, "gpu-0", offered=offered)

    assert [play.devices_of(play.job()) for _ in range(3)] == [("gpu-1",), ("gpu-2",), ("gpu-0",)]


def test_several_devices_leave_the_display_out_while_they_can():
    """Also where they would be linked with it: two of a pair, one of which drives a display, or two without a link."""
    play = Play([*linked("a", "a"), a_device(2), a_device(3)])
    drives_a_display(play, "gpu-0")

    assert play.devices_of(play.job(devices=2)) == ("gpu-1", "gpu-2")
    assert play.devices_of(play.job(devices=2)) == ("gpu-0", "gpu-3")


def test_a_small_card_for_the_screen_is_nobodys_surprise():
    """A workstation: the card with the monitor is number 0, and the others are what people come for."""
    screen = {"device_class": "gt-710", "memory_bytes": 2 * GIB}
    play = Play([a_device(0, **screen), a_device(1), a_device(2)])
    drives_a_display(play, "gpu-0")

    assert play.devices_of(play.job(min_free_bytes=GIB)) == ("gpu-0",)
    assert play.devices_of(play.job()) == ("gpu-1",)


def unequal() -> Play:
    """Two small cards before three large ones."""
    return Play([
        *(a_device(index, device_class="l4", memory_bytes=24 * GIB) for index in (0, 1)),
        *(a_device(index) for index in (2, 3, 4)),
    ])  # fmt: skip


def test_who_names_no_class_gets_the_largest_first():
    """As with MIG devices: what was not asked for is never a small one by surprise."""
    play = unequal()

    assert [play.devices_of(play.job()) for _ in range(4)] == [("gpu-2",), ("gpu-3",), ("gpu-4",), ("gpu-0",)]


def test_several_devices_are_of_one_class_while_one_has_enough():
    """The slowest of them would set the pace. Different ones only where no class has so many."""
    play = unequal()

    assert play.devices_of(play.job(devices=2)) == ("gpu-2", "gpu-3")
    assert play.devices_of(play.job(devices=2)) == ("gpu-0", "gpu-1")
    play = unequal()
    assert play.devices_of(play.job(devices=4)) == ("gpu-0", "gpu-1", "gpu-2", "gpu-3")


def test_a_part_with_a_least_free_memory_waits_for_that():
    """Both are asked for, so both are kept: 20 GiB of its own, on a device that has 50 left."""
    play = sharing(2)
    play.job(memory_bytes=40 * GIB)

    assert play.devices_of(play.job(memory_bytes=20 * GIB, min_free_bytes=50 * GIB)) == ("gpu-1",)
    assert play.waiting(play.job(memory_bytes=20 * GIB, min_free_bytes=70 * GIB)) is WaitingReason.DEVICES
