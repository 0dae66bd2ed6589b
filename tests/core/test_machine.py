"""Random lives, briefly, and planted faults that they find. The long run is tests/sim/test_long.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from jupyter_gpu.core import chains, decide, holds, lifecycle, observed, one_step, placement, quota, spare, victims
from jupyter_gpu.model import (
    Cordon,
    Device,
    EndReason,
    Kind,
    Outcome,
    Policy,
    QuotaRule,
    Reading,
    Release,
    Use,
    UseKind,
    WaitingReason,
    World,
)
from tests.core.machine import POLICIES, Checked, Lives, Wrong
from tests.world import GIB, HOUR, SAVED, a_job, a_reservation

BRIEF = settings(
    max_examples=20,
    stateful_step_count=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
#: Until the first failure, which nobody needs to see in its shortest form. Always the same lives: whether a fault is
#: found must not be a matter of luck.
UNTIL_CAUGHT = settings(BRIEF, max_examples=2000, stateful_step_count=30, phases=(Phase.generate,), derandomize=True)


def test_random_lives_keep_all_promises():
    """Safety, liveness and replay, after every step of random lives."""
    run_state_machine_as_test(Lives, settings=BRIEF)


def ignore_cordons(patch):
    """The planner places on devices that are not well."""
    patch.setattr(Device, "is_well", True)


def keep_the_lease(patch):
    """`evolve` forgets to drop the lease of what has ended."""
    changes = dict(lifecycle._CHANGES)
    before = changes[lifecycle.Ended]

    def ended(it, event):
        return lifecycle._replace(before(it, event), lease=it.lease)

    changes[lifecycle.Ended] = ended
    patch.setattr(lifecycle, "_CHANGES", changes)


def count_one_too_few(patch):
    """A quota is off by one."""
    before = quota.Ledger._left

    def left(self, bounds, price_ms, part):
        devices, affordable = before(self, bounds, price_ms, part)
        return devices + 1, affordable

    patch.setattr(quota.Ledger, "_left", left)


def protect_nobody(patch):
    """Victims are taken in their protected time."""
    patch.setattr(victims.Victims, "_may_yield", lambda _, it: it.kind is Kind.JOB and it.queue != "interactive")


def forget_the_cap(patch):
    """A job may be preempted again and again."""
    patch.setattr(victims, "has_reached_the_cap", lambda *_: False)
    patch.setattr(holds, "has_reached_the_cap", lambda *_: False)


def move_reservations(patch):
    """A reservation yields within its time."""
    patch.setattr(victims, "is_in_overtime", lambda *_: True)


def share_without_counting(patch):
    """Parts of a device are given away whatever is leased of it."""
    patch.setattr(placement, "spare_bytes", lambda _, device, *__: device.memory_bytes)


def forget_strangers(patch):
    """What no lease explains counts as free."""
    patch.setattr(spare, "_unexplained_bytes", lambda *_: 0)


def forget_who_uses_more(patch):
    """A holder takes its part and no more, whatever it really uses."""
    before = spare._used_by
    patch.setattr(spare, "_used_by", lambda *of: {} if before(*of) else before(*of))
    patch.setattr(spare, "_unexplained_bytes", lambda *_: 0)


def join_mig_devices(patch):
    """Several MIG devices make up one ask."""
    patch.setattr(placement, "is_mig", lambda _: False)


def ignore_the_hand(patch):
    """Who names devices gets others."""
    before = placement.Room.__init__
    patch.setattr(
        placement.Room, "__init__", lambda self, world, ask, **words: before(self, world, replace(ask, on=()), **words)
    )


def go_back_to_where_it_died(patch):
    """What died of the hardware is sent there again."""
    patch.setattr(one_step, "avoided", lambda *_: frozenset())


def share_what_nobody_shares(patch):
    """The inventory, not the policy, says what is shared."""
    patch.setattr(observed, "shared_by", lambda _, device: replace(device, shareable=device.device_class == "l4"))
    patch.setattr(placement, "_is_shared", lambda device: device.shareable and device.memory_bytes is not None)


def ignore_holds(patch):
    """Everybody is entitled to every hold."""
    patch.setattr(holds, "is_entitled", lambda *_: True)


def believe_late_words(patch):
    """The end of an earlier attempt ends the present one."""
    before = observed.see_exited

    def see_exited(world, command, now):
        it = world.workloads.get(command.workload)
        if it is not None:
            attempt = it.attempt + (it.started_at is None)
            command = type(command)(
                **{f: getattr(command, f) for f in command.__struct_fields__} | {"attempt": attempt}
            )
        return before(world, command, now)

    patch.setitem(decide._RULES, observed.SeeExited, see_exited)


def serve_the_last_first(patch):
    """The line is walked from its end."""

    def walk(self):
        for key in self.world.line[::-1]:
            self._answer(key, self.world.lanes.of[key[3]])

    patch.setattr(one_step.Step, "walk", walk)


def stop_at_the_first_refusal(patch):
    """Whoever stands behind one that must wait is not looked at."""

    def walk(self):
        for key in self.world.line.copy():
            if self._answer(key, self.world.lanes.of[key[3]]) is not None:
                return

    patch.setattr(one_step.Step, "walk", walk)


def forget_to_unindex(patch):
    """The index of leases keeps what was given back."""
    patch.setattr(World, "_unindex", lambda *_: None)


def forget_who_waits(patch):
    """An end is followed up by nothing."""
    patch.setattr(decide, "follow", lambda *_: [])


def take_any_end_for_success(patch):
    """Who failed, or never began, is as good as anybody."""
    patch.setattr(chains, "is_lost", lambda *_: False)


def accept_circles(patch):
    """Nobody looks whether a job would wait for itself."""
    patch.setattr(chains, "_way_back", lambda *_: [])


def run_more_than_was_asked_for(patch):
    """The word of an array's owner is not heard."""
    patch.setattr(one_step.Step, "_runs_as_many_as_it_may", lambda *_: False)


def start_before_others_end(patch):
    """What comes after others starts at once."""
    before = one_step.Step._known_reason

    def known_reason(step, lane):
        reason = before(step, lane)
        return None if reason is WaitingReason.DEPENDENCY else reason

    patch.setattr(one_step.Step, "_known_reason", known_reason)


FAULTS = (
    ignore_cordons, keep_the_lease, count_one_too_few, protect_nobody, move_reservations, share_without_counting,
    join_mig_devices, ignore_the_hand, share_what_nobody_shares, believe_late_words, serve_the_last_first,
    forget_to_unindex, forget_who_waits, take_any_end_for_success, accept_circles, run_more_than_was_asked_for,
    start_before_others_end,
)  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant, monkeypatch):
    """A test that finds nothing proves nothing: each of these faults is found by chance."""
    plant(monkeypatch)

    with pytest.raises(Wrong):
        run_state_machine_as_test(Lives, settings=UNTIL_CAUGHT)


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
        (ignore_holds, POLICIES[3], wait_for_a_hold, "beyond the beginning of the hold course"),
        (go_back_to_where_it_died, POLICIES[0], die_of_the_hardware, "on which it died, though there are others"),
        (
            forget_strangers,
            POLICIES[1],
            share_with(Use(pid=1, kind=UseKind.USER, memory_bytes=12 * GIB), used_gib=12),
            "which does not serve it",
        ),
        (
            forget_who_uses_more,
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
    play = Checked(Policy(quotas=(QuotaRule(user="ada", devices=0),)))
    play.do(a_job("ada"))
    stop_at_the_first_refusal(monkeypatch)

    with pytest.raises(Wrong, match="job 2 is first in line, fits and waits"):
        play.do(a_job("bob"))


def test_starvation_is_found(monkeypatch):
    """What never runs, though everything is free, is named at the end of the play."""
    monkeypatch.setattr(one_step.Step, "_place", lambda *_: WaitingReason.QUOTA)
    play = Checked()
    play.do(a_job("bob"))

    with pytest.raises(Wrong, match="never ran"):
        play.let_all_run()
