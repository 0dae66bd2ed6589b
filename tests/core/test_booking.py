"""Reservations for later: accepted only where they can be kept, and kept from then on."""

from __future__ import annotations

import pytest

from jupyter_gpu.core import calendar
from jupyter_gpu.core.devices_then import Candidate, DevicesThen
from jupyter_gpu.errors import Conflict, InvalidAsk, LimitExceeded
from jupyter_gpu.model import (
    MOST_AHEAD_SECONDS,
    Cancel,
    Cordon,
    EndReason,
    Extend,
    HoldPolicy,
    LoadPolicy,
    Move,
    Pause,
    Policy,
    QuotaRule,
    Release,
    SharingRule,
    State,
    Tick,
    WaitingReason,
    Window,
)
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, QueuePolicy
from tests.world import BEGIN, DAY, GIB, HOUR, KERNEL, MINUTE, SAVED, Play, a_device, a_reservation

#: A line that never yields, in which work may state no end.
FIRM = QueuePolicy(name="firm", priority=20)


def book(play: Play, at: float, hours: float = 2, devices: int = 1, owner: str = "bob", **words) -> int:
    """Reserve from so many hours after the beginning on."""
    words = {"not_before": BEGIN + at * HOUR, "holder": None, **words}
    return play.reservation(owner, devices, round(hours * HOUR), **words)


def is_refused(play: Play, *args, error: type[Exception] = Conflict, match: str = ".", **words) -> str:
    """A reservation for later is refused, with these words; gives what was hinted at."""
    before = play.world.revision
    with pytest.raises(error, match=match) as refusal:
        book(play, *args, **words)
    assert play.world.revision == before
    return refusal.value.hint or ""


def attach(play: Play, id_: int) -> None:
    """Somebody takes it."""
    play.do(Move(workload=id_, by="bob", holder=KERNEL))


# -- what is kept


def test_it_begins_at_its_time_and_ends_at_its_time():
    """Not before, though devices are free; then at once, and it must be taken within the usual time."""
    play = Play(1)
    it = book(play, 3)

    assert play.waiting(it) is WaitingReason.NOT_BEFORE
    assert play.later(3 * HOUR - 1) == []
    assert play.later(1) == [f"granted {it}"]
    assert play[it].lease.ends_at == BEGIN + 5 * HOUR
    assert play[it].lease.attach_by == play.now + 300


def test_nothing_starts_on_its_device_that_would_still_be_there():
    """A reservation of three hours waits before one in two; one of two hours does not."""
    play = Play(1)
    book(play, 2)

    assert play.waiting(play.reservation("cleo", seconds=3 * HOUR)) is WaitingReason.HOLD
    assert play.state(play.reservation("dora", seconds=2 * HOUR)) is State.ACTIVE


def test_a_training_works_until_a_grace_before_and_goes_on_afterwards():
    """It is told so early that it can have saved and left: at the instant the device is clear."""
    play = Play(1)
    training = play.running(seconds=None)
    it = book(play, 2)

    assert play.later(2 * HOUR - 151) == []
    assert play.later(1) == [f"evicted (preempted) {training}"]
    play.later(60)
    play.exit(training, SAVED)
    assert play.waiting(training) is WaitingReason.HOLD
    assert play.later(90)[0] == f"granted {it}"
    attach(play, it)
    play.do(Release(workload=it, by="bob"))
    assert play.clear(it) == [f"ended (released) {it}", f"granted {training}"]


def test_what_states_no_end_and_never_yields_does_not_start_before_it():
    """Nobody knows when it would be gone; on the other device it may stay for ever."""
    play = Play(2, Policy(queues=(INTERACTIVE, DEFERRED, FIRM)))
    book(play, 30)
    first, second = play.job("ada", queue="firm"), play.job("ada", queue="firm")

    assert play.state(first) is State.ACTIVE
    assert play.waiting(second) is WaitingReason.HOLD
    assert play.state(play.job("cleo", seconds=29 * HOUR, queue="firm")) is State.ACTIVE


def test_its_devices_are_chosen_late():
    """Long before, what is taken already serves as well, so the free device is anybody's; at last what is free does."""
    play = Play(2)
    play.running("ada")  # a training, which yields
    it = book(play, 12)

    long = play.reservation("cleo", seconds=12 * HOUR)
    assert play.state(long) is State.ACTIVE
    play.do(Release(workload=long, by="cleo"))
    play.clear(long)
    play.now = BEGIN + 12 * HOUR - 5 * MINUTE
    assert play.do(Tick()) == []
    assert play.later(5 * MINUTE) == [f"granted {it}"]
    assert play.state(1) is State.ACTIVE


def test_a_reservation_that_ends_in_time_is_waited_for_and_the_free_device_is_anybodys():
    """Two devices, one reserved until noon: who comes for the whole day gets the other."""
    play = Play(2)
    play.reservation("ada", seconds=3 * HOUR)
    book(play, 3)

    assert play.state(play.reservation("cleo", seconds=12 * HOUR)) is State.ACTIVE


def test_several_of_its_devices_are_of_one_node():
    """Two of four are free at that time, but not together."""
    play = Play([a_device(index, node=f"n{index // 2}") for index in range(4)])
    for uuid in ("gpu-0", "gpu-2"):
        play.reservation("ada", seconds=10 * HOUR, on=(uuid,))

    hint = is_refused(play, 2, devices=2, match="GPU 0 is held by reservation 1")
    assert "1 GPU at the time that you named" in hint
    it = book(play, 10, devices=2)
    play.later(10 * HOUR)
    play.do(Release(workload=1, by="ada"))
    play.clear(1)
    assert play.state(it) is State.ACTIVE


def test_two_may_follow_one_another_on_one_device():
    """The second begins when the first ends; the first has time to leave."""
    play = Play(1)
    first, second = book(play, 1, hours=1), book(play, 2, hours=1, owner="cleo")

    play.later(HOUR)
    attach(play, first)
    assert play.later(HOUR)[0] == f"evicted (expired) {first}"
    play.do(Release(workload=first, by="bob"))
    play.clear(first)
    assert play.state(second) is State.ACTIVE


def test_the_named_device_is_promised():
    """And none in its place."""
    play = Play(2)
    it = book(play, 1, on=("gpu-0",))

    assert play.devices_of(play.reservation("cleo", seconds=5 * HOUR)) == ("gpu-1",)
    play.later(HOUR)
    assert play.devices_of(it) == ("gpu-0",)


# -- what is refused, and what is offered instead


def test_who_is_there_then_is_named_and_the_first_time_that_would_do():
    """A reservation that is still there."""
    play = Play(1)
    play.reservation("ada", seconds=4 * HOUR)

    hint = is_refused(play, 2, match=r"1 GPU cannot be promised from .* GPU 0 is held by reservation 1 until")
    assert "1 GPU can be had at" in hint


def test_another_promise_is_in_the_way():
    """The same device cannot be promised twice, however short the two are at one time."""
    play = Play(1)
    other = book(play, 2, owner="cleo")

    assert is_refused(play, 1, hours=1.5, match=f"promised to reservation {other}")
    assert is_refused(play, 3.5, match=f"promised to reservation {other}")
    assert book(play, 1, hours=1)
    assert book(play, 4)


def test_fewer_and_other_classes_are_offered():
    """What could be had at the time that was named."""
    play = Play([a_device(0), a_device(1), a_device(2, device_class="l4"), a_device(3, device_class="l4")])
    book(play, 2, device_class="a100", owner="cleo")

    hint = is_refused(play, 2, devices=2, device_class="a100")
    assert "1 GPU of class a100 at the time" in hint
    assert "room among l4" in hint


def test_a_hold_or_maintenance_is_in_the_way():
    """Not for whom the hold is: theirs stands in it."""
    hold = HoldPolicy(name="course", from_at=BEGIN + 2 * HOUR, until_at=BEGIN + 4 * HOUR, count=1, teams=("course",))
    play = Play(1, Policy(holds=(hold,), teams={"course": ("eve", "finn")}))

    assert is_refused(play, 3, match="the hold course of the policy")
    it = book(play, 3, hours=1, owner="eve")
    assert is_refused(play, 3, hours=1, owner="finn", match=f"reservation {it}")
    play.later(3 * HOUR)
    assert play.state(it) is State.ACTIVE


def test_what_is_out_of_use_is_not_counted_on():
    """A cordoned device may be back by then, or not."""
    play = Play(1)
    play.do(Cordon(device="0", by="op"))

    assert is_refused(play, 2, match="GPU 0 is out of use")


def test_a_job_without_an_end_that_never_yields_is_in_the_way():
    """Nobody knows when it is gone."""
    play = Play(1, Policy(queues=(INTERACTIVE, FIRM)))
    play.running("ada", queue="firm")

    assert is_refused(play, 20, match="held by job 1 without a stated end")


def test_nobody_passes_those_who_wait_by_naming_a_later_time():
    """A reservation waits for the device, which is free in an hour; in the hours after that it is theirs."""
    play = Play(1)
    play.reservation("ada", seconds=HOUR)
    play.reservation("cleo", seconds=4 * HOUR)

    assert is_refused(play, 1)
    assert book(play, 5)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"memory_bytes": GIB}, "part"),
        ({"holder": KERNEL}, "no holder yet"),
        ({"paused": True}, "not paused"),
    ],
)
def test_what_cannot_be_meant_of_one_for_later(words, match):
    """Parts of devices, holders, pauses."""
    play = Play(1, Policy(sharing=(SharingRule(device="gpu-0"),)))
    is_refused(play, 2, error=InvalidAsk, match=match, **words)


def test_only_so_far_ahead_and_only_so_many_of_one_owner():
    """Windows of holds are known for some weeks."""
    play = Play(1)
    is_refused(play, MOST_AHEAD_SECONDS / HOUR, error=LimitExceeded, match="within 28d")
    for day in range(20):
        book(play, 24 * day + 1, hours=1)
    is_refused(play, 600, hours=1, error=LimitExceeded, match="20 reservations for later already")


def test_a_time_that_has_come_is_now():
    """It is a reservation like any other."""
    play = Play(1)
    it = book(play, -1)

    assert play.state(it) is State.ACTIVE
    assert play[it].lease.ends_at == BEGIN + 2 * HOUR


def test_it_is_not_paused():
    """It begins at its time, or is cancelled."""
    play = Play(1)
    it = book(play, 1)

    with pytest.raises(Conflict, match="for later"):
        play.do(Pause(workload=it, by="bob"))


def test_one_owner_books_only_so_many_gpu_hours_ahead():
    """A chain of them would keep the devices from all others for weeks; others, and what has begun, do not count."""
    play = Play(2, Policy(most_booked_gpu_hours=5))
    first = book(play, 1, devices=2)

    is_refused(play, 4, error=LimitExceeded, match=r"4 GPU-hours reserved for later already; .* 2 of this .* above 5")
    assert book(play, 4, hours=1)
    assert book(play, 6, owner="cleo")
    play.later(HOUR)
    assert play.state(first) is State.ACTIVE
    assert book(play, 9, devices=2)


def test_without_that_limit_they_book_on():
    """None is no limit."""
    play = Play(8, Policy(most_booked_gpu_hours=None))

    assert all(book(play, 1 + 12 * link, hours=12, devices=8) for link in range(4))
    bounded = Play(8)
    assert all(book(bounded, 1 + 12 * link, hours=12, devices=8) for link in range(3))
    is_refused(bounded, 40, hours=12, devices=8, error=LimitExceeded, match="above 336")


@pytest.fixture
def looks(monkeypatch) -> list[int]:
    """How many devices are looked at, each time anew."""
    seen: list[int] = []
    ask = DevicesThen.for_

    def counted(then: DevicesThen, window: Window) -> list[Candidate]:
        found = ask(then, window)
        seen.append(len(found))
        return found

    monkeypatch.setattr(DevicesThen, "for_", counted)
    return seen


def test_a_refused_one_among_many_promises_looks_at_few_devices(looks):
    """A hundred in chains on eight devices, then one that wants all of them: a bounded number of looks."""
    play = Play(8)
    for number in range(100):
        chain, link = divmod(number, 20)
        book(play, 1 + 12 * link + chain / 60, hours=12, owner=f"user{chain}")
    looks.clear()

    assert "8 GPUs can be had at" in is_refused(play, 2, hours=1, devices=8, owner="zoe")
    assert sum(looks) <= 2 * calendar.MOST_LOOKS + 8 * (4 * 101 + 10)


def test_no_calendar_is_made_anew_for_each_that_waits_in_line(looks):
    """Fifty wait: for each the instants and the devices, and twice whether all are kept; not all anew for each."""
    play = Play([a_device(index, node=f"n{index // 8}") for index in range(64)])
    for number in range(8):
        play.reservation(f"user{number}", devices=8, seconds=12 * HOUR)
    for number in range(50):
        play.reservation(f"late{number}", devices=8, seconds=HOUR)
    looks.clear()

    is_refused(play, 2, hours=1, devices=8, owner="zoe")
    assert sum(looks) <= 64 * (2 * 50 + 2 * 51 + 10)


# -- quota at that time


def test_the_quota_of_that_time_counts_what_is_reserved_for_then():
    """Two at once: a third at one time is refused, before and after it is not."""
    play = Play(4, Policy(quotas=(QuotaRule(user="*", devices=2),)))
    play.reservation("bob", seconds=4 * HOUR)
    book(play, 2)

    assert "quota" in is_refused(play, 3, error=LimitExceeded, match="quota")
    assert book(play, 4)
    assert book(play, 3, owner="cleo")


def test_one_that_would_keep_a_later_one_from_its_quota_is_refused():
    """What was promised is kept."""
    play = Play(4, Policy(quotas=(QuotaRule(user="*", devices=2),)))
    later = book(play, 2, devices=2)

    is_refused(play, 1, hours=2, error=LimitExceeded, match=f"reservation {later}")


def test_hours_of_a_window_are_counted_at_that_time():
    """What was used today has left the window tomorrow; what is reserved for today counts."""
    play = Play(2, Policy(quotas=(QuotaRule(user="*", gpu_hours=4, window_seconds=DAY),)))
    book(play, 1)

    is_refused(play, 5, hours=3, error=LimitExceeded)
    assert book(play, 5, hours=2)
    assert book(play, 48, hours=3)


# -- what becomes of it


def test_a_no_show_gives_it_back():
    """Nobody took it in time: it is over, with the reason, and the device is the line's."""
    play = Play(1)
    it = book(play, 1)
    waits = play.reservation("ada", seconds=DAY // 3)
    play.later(HOUR)
    assert play.later(300)[:2] == [f"evicted (no-show) {it}", f"released {it}"]
    play.clear(it)

    assert play[it].end is EndReason.ABANDONED
    assert "in time" in play[it].detail
    assert play.state(waits) is State.ACTIVE


def test_given_back_early_the_rest_is_free_at_once():
    """No promise is left of it."""
    play = Play(1)
    it = book(play, 1, hours=8)
    play.later(HOUR)
    attach(play, it)
    play.do(Release(workload=it, by="bob"))
    play.clear(it)

    assert play.state(play.reservation("cleo", seconds=12 * HOUR)) is State.ACTIVE


def test_cancelled_before_its_time_it_keeps_nothing():
    """In the same step who waits gets the device."""
    play = Play(1)
    it = book(play, 1)
    waits = play.reservation("cleo", seconds=5 * HOUR)

    assert play.do(Cancel(workload=it, by="bob")) == [f"ended (cancelled) {it}", f"granted {waits}"]


def test_a_broker_that_was_down_at_the_instant_grants_what_is_left():
    """It begins late and ends when it was to end."""
    play = Play(1)
    it = book(play, 1)
    play.now += HOUR + 50 * MINUTE

    assert play.do(LoadPolicy(policy=Policy()))[1:] == [f"granted {it}", f"amended {it}"]
    assert play[it].lease.ends_at == BEGIN + 3 * HOUR
    assert play.used_ms("bob") == 70 * MINUTE * 1000


def test_where_nothing_is_left_it_is_over_and_says_why():
    """Before anything else is decided: nobody is granted a time that has passed."""
    play = Play(1)
    it = book(play, 1)
    play.now += 3 * HOUR

    assert play.do(LoadPolicy(policy=Policy()))[0:2] == ["policy-loaded", f"ended (expired) {it}"]
    assert "no broker was there" in play[it].detail


def test_an_extension_goes_up_to_the_next_promise_and_no_further():
    """Where another device will do for the promise it goes on."""
    play, wide = Play(1), Play(2)
    for one in (play, wide):
        one.reservation("ada", seconds=HOUR)
        book(one, 3)
        one.do(Extend(workload=1, by="ada", seconds=6 * HOUR))

    assert play[1].lease.ends_at == BEGIN + 3 * HOUR
    assert wide[1].lease.ends_at == BEGIN + 7 * HOUR


def test_one_in_overtime_leaves_before_it_begins():
    """A grace early, as with holds."""
    play = Play(1)
    play.reservation("ada", seconds=30 * MINUTE)
    book(play, 1)

    assert play.later(HOUR - 91) == []
    assert play.later(1) == ["evicted (expired) 1"]


def test_who_was_promised_first_is_served_first_where_devices_are_missing():
    """A device breaks: of two for one time the later ask goes without, and who is first gets the other."""
    play = Play(2)
    first, second = book(play, 1), book(play, 1, owner="cleo")
    play.do(Cordon(device="1", by="op"))
    play.later(HOUR)

    assert play.state(first) is State.ACTIVE
    assert play.waiting(second) is WaitingReason.DEVICES


def test_folding_the_log_gives_the_same_promises():
    """Whatever was booked, granted late and ended."""
    from tests.world import differences, refolded

    play = Play(2)
    book(play, 1)
    book(play, 3, owner="cleo", devices=2)
    play.submit(a_reservation("dora"))
    play.later(HOUR)
    play.later(5 * HOUR)

    assert differences(refolded(play), play.world) == []
