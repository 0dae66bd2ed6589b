"""Planted faults: what random lives, and lives that lead there, must find. A test that finds nothing proves nothing."""

from __future__ import annotations

from msgspec.structs import replace

from jupyter_gpu.core import (
    beside,
    chains,
    decide,
    holds,
    lifecycle,
    observed,
    one_step,
    placement,
    quota,
    spare,
    victims,
)
from jupyter_gpu.model import Device, Kind, WaitingReason, World


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

    def walk(self, _first=()):
        for key in self.world.line[::-1]:
            self._answer(key, self.world.lanes.of[key[3]])

    patch.setattr(one_step.Step, "walk", walk)


def stop_at_the_first_refusal(patch):
    """Whoever stands behind one that must wait is not looked at."""

    def walk(self, _first=()):
        for key in self.world.line.copy():
            if self._answer(key, self.world.lanes.of[key[3]]) is not None:
                return

    patch.setattr(one_step.Step, "walk", walk)


def forget_to_unindex(patch):
    """The index of leases keeps what was given back."""
    patch.setattr(World, "_give_devices_back", lambda *_: None)


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


def forget_whose_a_hold_is(patch):
    """Every promise is for everybody."""
    patch.setattr(holds, "is_for", lambda *_: True)
    patch.setattr(beside, "is_for", lambda *_: True)


def remember_too_much(patch):
    """Whoever is new is measured by what is kept for those behind."""
    patch.setattr(one_step.Step, "stands_before_a_promise", lambda *_: False)


def live_in_the_past(patch):
    """What is remembered is taken for now."""
    patch.setattr(one_step.Step, "go_on", lambda *_: None)


def forget_who_may_preempt(patch):
    """Every queue of a higher priority may."""
    patch.setattr(victims, "yields_to", lambda *_: True)


def join_what_is_apart(patch):
    """Devices of any nodes make up an ask."""
    patch.setattr(placement.Room, "_size", lambda _: 2)


def leave_something_of_a_refusal(patch):
    """What was refused has changed something."""
    before = decide._RULES[decide.Submit]

    def submit(world, command, now):
        world.last_id += 1
        return before(world, command, now)

    patch.setitem(decide._RULES, decide.Submit, submit)


#: What chance finds within some thousand lives.
FAULTS = (
    ignore_cordons, keep_the_lease, count_one_too_few, protect_nobody, move_reservations, share_without_counting,
    join_mig_devices, ignore_the_hand, share_what_nobody_shares, believe_late_words, serve_the_last_first,
    forget_to_unindex, forget_who_waits, take_any_end_for_success, accept_circles, run_more_than_was_asked_for,
    start_before_others_end, remember_too_much, live_in_the_past, leave_something_of_a_refusal,
)  # fmt: skip
