"""Random lives, briefly, and planted faults that lives lead to. The long run is tests/sim/test_long.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from jupyter_gpu.core import one_step
from jupyter_gpu.model import (
    AddHold,
    Chain,
    Cordon,
    Dependency,
    EndReason,
    Outcome,
    Policy,
    QuotaRule,
    Reading,
    Release,
    SeeExited,
    Span,
    Use,
    UseKind,
    WaitingReason,
)
from tests.core import faults
from tests.core.faults import forget_the_cap, stop_at_the_first_refusal
from tests.core.machine import POLICIES, Checked, Lives, Wrong
from tests.world import CRASHED, GIB, HOUR, SAVED, a_job, a_reservation, a_spec

BRIEF = settings(
    max_examples=20,
    stateful_step_count=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_random_lives_keep_all_promises():
    """Safety, liveness and replay, after every step of random lives."""
    run_state_machine_as_test(Lives, settings=BRIEF)


# -- lives that lead to a fault, if there is one


def take_what_is_cordoned(play: Checked) -> None:
    """The only device that is named is not well."""
    play.do(Cordon(device="gpu-0", by="op"))
    play.do(a_job("ada", on=("gpu-0",)))


def end_a_job(play: Checked) -> None:
    """One that has run, and left."""
    play.exit(play.running("ada"))


def want_more_than_the_quota(play: Checked) -> None:
    """Three where two are allowed."""
    for _ in range(3):
        play.do(a_job("ada"))


def want_what_has_just_begun(play: Checked) -> None:
    """All a100 are held by a training that began just now."""
    play.running("ada", 3, device_class="a100")
    play.do(a_reservation("bob", device_class="a100"))


def want_what_is_reserved(play: Checked) -> None:
    """All a100 are held by a reservation within its time."""
    play.do(a_reservation("ada", 3, HOUR, device_class="a100"))
    play.do(a_reservation("bob", device_class="a100"))


def want_more_than_is_left(play: Checked) -> None:
    """Two parts that are more than the whole."""
    for _ in range(2):
        play.do(a_job("ada" if play.world.last_id else "bob", seconds=HOUR, memory_bytes=14 * GIB))


def want_two_mig_devices(play: Checked) -> None:
    """CUDA would show a process the first of them only."""
    play.do(a_job("ada", 2, device_class="mig-3g.40gb"))


def name_a_device(play: Checked) -> None:
    """Which is not the first choice."""
    play.do(a_job("ada", on=("gpu-0",)))


def want_a_part(play: Checked) -> None:
    """Of what no rule shares."""
    play.do(a_job("ada", memory_bytes=6 * GIB))


def hear_of_another_attempt(play: Checked) -> None:
    """A word about one that there never was."""
    job = play.running("ada")
    play.do(SeeExited(workload=job, attempt=7, outcome=CRASHED, clear=True))


def come_one_after_the_other(play: Checked) -> None:
    """Two wait for the device that the third gives back."""
    first = play.running("ada", on=("gpu-0",))
    for owner in ("bob", "cleo"):
        play.do(a_job(owner, on=("gpu-0",)))
    play.exit(first)


def come_after_a_failure(play: Checked) -> None:
    """What was to come after a success never can."""
    job = play.running("ada")
    play.do(a_job("ada", after=(Dependency(workload=job, ok=True),), spec=a_spec(retries=0)))
    play.exit(job, Outcome(end=EndReason.FAILED, exit_code=93, noticed=True))


def come_after_each_other(play: Checked) -> None:
    """A circle of two."""
    job = play.job("ada", paused=True)
    other = play.job("ada", after=(Dependency(workload=job),))
    play.do(Chain(workload=job, by="ada", after=(Dependency(workload=other),)))


def run_one_at_a_time(play: Checked) -> None:
    """Three, of which one may run."""
    play.do(a_job("ada", array=tuple({"n": str(n)} for n in range(3)), at_most=1))


def come_after_who_runs(play: Checked) -> None:
    """There is room, but it is not its turn."""
    job = play.running("ada")
    play.do(a_job("ada", after=(Dependency(workload=job),)))


def stay_off_what_is_withheld(play: Checked) -> None:
    """A device that is named by an operator's hold."""
    span = Span(from_at=play.now, until_at=play.now + HOUR)
    play.do(AddHold(name="works", by="op", devices=("gpu-2",), windows=(span,)))
    play.do(a_job("ada", on=("gpu-2",)))


def stand_before_a_promise(play: Checked) -> None:
    """A device is kept for somebody, and one of a higher queue comes."""
    play.running("ada", on=("gpu-0",))
    play.do(a_job("bob", 3, 2 * HOUR, device_class="a100"))
    play.do(a_reservation("cleo", seconds=12 * HOUR, device_class="a100"))


def come_some_seconds_later(play: Checked) -> None:
    """So few that what was found out is remembered."""
    play.do(a_job("ada"))
    play.now += 7
    play.do(a_job("bob"))


def want_what_may_not_be_taken(play: Checked) -> None:
    """Only trainings may preempt what is deferred."""
    play.running("ada", 2, device_class="a100", queue="deferred")
    play.later(HOUR)
    play.do(a_reservation("bob", 2, device_class="a100"))


def want_what_is_on_two_nodes(play: Checked) -> None:
    """Where one node has enough, though not now."""
    play.running("ada", on=("gpu-0",))
    play.do(a_job("bob", 3, across_nodes=True))


def ask_for_nonsense(play: Checked) -> None:
    """More than there ever is."""
    play.do(a_job("ada", 40))


#: The fault, the policy by its number, the life, and what is said of it.
LIVES = (
    (faults.ignore_cordons, 0, take_what_is_cordoned, "which is not well"),
    (faults.keep_the_lease, 0, end_a_job, "holds|lease"),
    (faults.count_one_too_few, 1, want_more_than_the_quota, "beyond a quota"),
    (faults.protect_nobody, 0, want_what_has_just_begun, "in its protected time"),
    (faults.move_reservations, 0, want_what_is_reserved, "within its time"),
    (faults.share_without_counting, 1, want_more_than_is_left, "and leases of"),
    (faults.join_mig_devices, 0, want_two_mig_devices, "MIG device beside others"),
    (faults.ignore_the_hand, 0, name_a_device, "which does not serve it"),
    (faults.share_what_nobody_shares, 0, want_a_part, "which does not serve it"),
    (faults.believe_late_words, 0, hear_of_another_attempt, "counted for another"),
    (faults.serve_the_last_first, 0, come_one_after_the_other, "which is first in line and fits"),
    (faults.forget_to_unindex, 0, end_a_job, "gpu-|live|index"),
    (faults.forget_who_waits, 0, come_after_a_failure, "and 1 has ended"),
    (faults.take_any_end_for_success, 0, come_after_a_failure, "can never come after"),
    (faults.accept_circles, 0, come_after_each_other, "waits for itself"),
    (faults.run_more_than_was_asked_for, 0, run_one_at_a_time, "of array"),
    (faults.start_before_others_end, 0, come_after_who_runs, "runs before the end of"),
    (faults.forget_whose_a_hold_is, 0, stay_off_what_is_withheld, "which hold 1"),
    (faults.forget_who_may_preempt, 6, want_what_may_not_be_taken, "may not preempt it"),
    (faults.join_what_is_apart, 0, want_what_is_on_two_nodes, "do not go together"),
)
#: Of what one step leaves to the next.
LIVES_IN_PLACE = (
    (faults.remember_too_much, 0, stand_before_a_promise, "what was remembered"),
    (faults.live_in_the_past, 0, come_some_seconds_later, "is recorded at"),
    (faults.leave_something_of_a_refusal, 0, ask_for_nonsense, "was refused and left something"),
)


@pytest.mark.parametrize("in_place", [False, True], ids=["on copies", "in place"])
@pytest.mark.parametrize("case", LIVES, ids=lambda case: case[0].__name__)
def test_a_planted_fault_is_found(case, in_place, monkeypatch):
    """A test that finds nothing proves nothing; and without the fault nothing is wrong with these lives."""
    plant, policy, life, said = case
    life(Checked(POLICIES[policy], in_place=in_place))
    plant(monkeypatch)

    with pytest.raises(Wrong, match=said):
        life(Checked(POLICIES[policy], in_place=in_place))


@pytest.mark.parametrize("case", LIVES_IN_PLACE, ids=lambda case: case[0].__name__)
def test_a_fault_of_what_is_decided_in_place_is_found(case, monkeypatch):
    """The same of what a step leaves to the next."""
    test_a_planted_fault_is_found(case, True, monkeypatch)


def wait_for_a_hold(play: Checked) -> None:
    """A reservation that reaches into a hold for others."""
    for uuid in ("gpu-0", "gpu-1", "gpu-3", "mig-4:0", "mig-4:1"):
        play.do(Cordon(device=uuid, by="op"))
    play.do(a_reservation("cleo", seconds=6 * HOUR))


def die_of_the_hardware(play: Checked) -> None:
    """An attempt that died on the device that is still the first choice."""
    job = play.running("ada")
    play.exit(job, Outcome(end=EndReason.DEVICE_LOST, exit_code=1))
    play.later(10)


def share_with(*uses: Use, used_gib: int) -> Callable[[Checked], None]:
    """Another part of a device on which these are: workload 1 has 6 of its 24 GiB."""

    def life(play: Checked) -> None:
        play.running("ada", seconds=HOUR, memory_bytes=6 * GIB)
        play.world.uses["gpu-3"] = uses
        play.world.readings["gpu-3"] = Reading(
            uuid="gpu-3", at=play.now, memory_used_bytes=used_gib * GIB, memory_total_bytes=24 * GIB
        )
        play.do(a_job("bob", seconds=HOUR, memory_bytes=10 * GIB))

    return life


@pytest.mark.parametrize(
    ("plant", "policy", "life", "said"),
    [
        (faults.ignore_holds, POLICIES[3], wait_for_a_hold, "beyond the beginning of the hold course"),
        (
            faults.go_back_to_where_it_died,
            POLICIES[0],
            die_of_the_hardware,
            "on which it died, though there are others",
        ),
        (
            faults.forget_strangers,
            POLICIES[1],
            share_with(Use(pid=1, kind=UseKind.USER, memory_bytes=12 * GIB), used_gib=12),
            "which does not serve it",
        ),
        (
            faults.forget_who_uses_more,
            POLICIES[1],
            share_with(Use(pid=1, kind=UseKind.HOLDER, workload=1, memory_bytes=16 * GIB), used_gib=16),
            "which does not serve it",
        ),
    ],
)
def test_what_chance_rarely_leads_to_is_found_too(plant, policy, life, said, monkeypatch):
    """The same eyes, on lives that lead there; and without the fault nothing is wrong with these."""
    life(Checked(policy))
    plant(monkeypatch)

    with pytest.raises(Wrong, match=said):
        life(Checked(policy))


def test_a_forgotten_cap_is_found(monkeypatch):
    """The same eyes, on a life that chance rarely leads: moved twice a day where once is the cap."""
    forget_the_cap(monkeypatch)
    play = Checked(Policy(preemptions_per_day=1))
    job = play.running(devices=3)

    def move_it_once() -> None:
        play.later(HOUR)
        play.do(a_reservation(device_class="a100"))
        play.exit(job, SAVED)
        play.do(Release(workload=play.world.last_id, by="bob"))
        play.clear(play.world.last_id)
        play.start(job)

    move_it_once()
    with pytest.raises(Wrong, match="beyond the cap"):
        move_it_once()


def test_a_line_that_is_not_looked_at_is_found(monkeypatch):
    """Whoever stands behind one that must wait, fits, and is left waiting."""
    play = Checked(Policy(quotas=(QuotaRule(user="ada", devices=1),)))
    play.running("ada")
    play.do(a_job("ada"))
    stop_at_the_first_refusal(monkeypatch)

    with pytest.raises(Wrong, match="job 3 is first in line, fits and waits"):
        play.do(a_job("bob"))


def test_starvation_is_found(monkeypatch):
    """What never runs, though everything is free, is named at the end of the play."""
    monkeypatch.setattr(one_step.Step, "_place", lambda *_: WaitingReason.QUOTA)
    play = Checked()
    play.do(a_job("bob"))

    with pytest.raises(Wrong, match="never ran"):
        play.let_all_run()
