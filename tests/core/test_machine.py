"""Random lives, briefly, and planted faults that they find. The long run is tests/sim/test_long.py."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from jupyter_gpu.core import decide, holds, lifecycle, observed, placement, planner, quota, victims
from jupyter_gpu.model import Kind, Policy, QuotaRule, Release, WaitingReason, World
from tests.core.machine import Checked, Lives, Wrong
from tests.world import HOUR, SAVED, a_job, a_reservation

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
    patch.setattr(placement, "is_well", lambda *_: True)
    patch.setattr(planner, "is_well", lambda *_: True)


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

    def left(self, bounds, price_ms):
        devices, affordable = before(self, bounds, price_ms)
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
    before = planner._Step._consider_all
    patch.setattr(planner._Step, "_consider_all", lambda self, line: before(self, list(line)[::-1]))


def stop_at_the_first_refusal(patch):
    """Whoever stands behind one that must wait is not looked at."""

    def consider_all(self, line):
        for *_, id_ in line:
            it = self.world.workloads[id_]
            if self._consider(it, planner.lane_of(it)) is not None:
                return

    patch.setattr(planner._Step, "_consider_all", consider_all)


def forget_to_unindex(patch):
    """The index of leases keeps what was given back."""
    patch.setattr(World, "_unindex", lambda *_: None)


FAULTS = (
    ignore_cordons, keep_the_lease, count_one_too_few, protect_nobody, move_reservations, share_without_counting,
    ignore_holds, believe_late_words, serve_the_last_first, forget_to_unindex,
)  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant, monkeypatch):
    """A test that finds nothing proves nothing: each of these faults is found by chance."""
    plant(monkeypatch)

    with pytest.raises(Wrong):
        run_state_machine_as_test(Lives, settings=UNTIL_CAUGHT)


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
    monkeypatch.setattr(planner._Step, "_place", lambda *_: WaitingReason.QUOTA)
    play = Checked()
    play.do(a_job("bob"))

    with pytest.raises(Wrong, match="never ran"):
        play.let_all_run()
