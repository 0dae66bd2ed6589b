"""What would change, for whom, if another policy were loaded now: decided on copies of the world, by the very planner.

Both policies are loaded into a copy each, so that what would happen anyway is nobody's doing. Nothing is guessed: whom
the step with the other policy evicts, starts or lets wait is what the broker would do at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..errors import GpuError
from ..model import (
    Kind,
    LoadPolicy,
    Policy,
    PolicyAffected,
    PolicyCheckView,
    PolicyEffect,
    State,
    Submit,
    WaitingReason,
    Workload,
    World,
)
from ..units import format_when
from .admission import submit
from .decide import step
from .events import Event, Evicted, Granted
from .holds import next_hold_at
from .policy_changes import bound_changes, setting_changes
from .quota import Ledger
from .unmet import holds_over, unmet_rules
from .which_quota import beyond_for_ever

#: So many workloads are listed; the rest is counted.
MOST_LISTED = 200
#: Of so many kinds of waiting work it is tried whether they would be let in anew.
MOST_TRIED = 500

_BOUND = (WaitingReason.QUOTA, WaitingReason.BUDGET, WaitingReason.HOLD)


def check(world: World, policy: Policy, now: float) -> PolicyCheckView:
    """Load it into a copy of the world and say what is different. Raises InvalidAsk where it cannot be loaded."""
    before, after = world.copy(), world.copy()
    would_be = step(after, LoadPolicy(policy=policy), now, before=world)
    would = step(before, LoadPolicy(policy=world.policy), now, before=world)
    found = sorted(_affected(_Both(before, would, after, would_be, now)), key=_order)
    return PolicyCheckView(
        digest=policy.digest(),
        digest_now=world.policy.digest(),
        bounds=tuple(bound_changes(world, policy)),
        changes=tuple(setting_changes(world.policy, policy)),
        affected=tuple(found[:MOST_LISTED]),
        more=max(0, len(found) - MOST_LISTED),
        warnings=(
            *(it for it in unmet_rules(after) if it not in unmet_rules(before)),
            *holds_over(policy, now),
        ),
    )


def _order(it: PolicyAffected) -> tuple[int, int]:
    return (list(PolicyEffect).index(it.effect), it.workload)


class _Both(msgspec.Struct, frozen=True):
    """The world as it would be now by the policy in force and by the other one, and what led to it."""

    before: World
    would: list[Event]
    after: World
    would_be: list[Event]
    now: float


def _affected(both: _Both) -> Iterator[PolicyAffected]:
    yield from _evicted(both)
    yield from _borrowing(both)
    yield from _leaving_for_holds(both)
    yield from _in_line(both)
    yield from _refused(both)


def _about(it: Workload, effect: PolicyEffect, text: str) -> PolicyAffected:
    return PolicyAffected(
        workload=it.id, kind=it.kind, title=it.title, owner=it.owner, team=it.team, queue=it.queue, effect=effect,
        text=text,
    )  # fmt: skip


def _evicted(both: _Both) -> Iterator[PolicyAffected]:
    anyway = {event.workload for event in both.would if isinstance(event, Evicted)}
    for event in both.would_be:
        if isinstance(event, Evicted) and event.workload not in anyway:
            it = both.after.workloads[event.workload]
            yield _about(it, PolicyEffect.YIELDS, f"must yield at once ({event.reason}): it {event.detail}")


def _borrowing(both: _Both) -> Iterator[PolicyAffected]:
    """Who is beyond a quota or a share by the other policy, and was not."""
    now_, then = Ledger(both.before, both.now), Ledger(both.after, both.now)
    for it in both.after.holders():
        if it.state is not State.ACTIVE or it.id not in both.before.live or not then.is_borrowing(it):
            continue
        if now_.is_borrowing(it):
            continue
        over = "a quota" if then.is_over_quota(it) else "what its team or its queue has of its own"
        queue = both.after.policy.queue(it.queue)
        stays = it.kind is Kind.RESERVATION or queue is None or not queue.preemptible
        what = "it keeps its time" if stays else "evicted nobody now, but first to yield when a better claim comes"
        yield _about(it, PolicyEffect.BORROWS, f"is beyond {over} then and counts as borrowed: {what}")


def _leaving_for_holds(both: _Both) -> Iterator[PolicyAffected]:
    for it in both.after.holders():
        if it.state is not State.ACTIVE or it.id not in both.before.live:
            continue
        at, known = next_hold_at(both.after, it, both.now), next_hold_at(both.before, it, both.now)
        if at is not None and at != known:
            stays = it.kind is Kind.RESERVATION
            what = "it keeps its time, and cannot be extended into it" if stays else "it must have left by then"
            said = f"is on a GPU that is held for others from {format_when(at, both.now)} on: {what}"
            yield _about(it, PolicyEffect.MUST_LEAVE, said)


def _in_line(both: _Both) -> Iterator[PolicyAffected]:
    started = {event.workload for event in both.would if isinstance(event, Granted)}
    for event in both.would_be:
        if isinstance(event, Granted) and event.workload not in started:
            yield _about(both.after.workloads[event.workload], PolicyEffect.STARTS, "starts at once")
    for it in both.after.queued():
        known = both.before.workloads[it.id]
        if known.state is not State.QUEUED:
            if known.state is State.ACTIVE and it.id in started:
                yield _about(it, PolicyEffect.WAITS, f"has to wait ({it.waiting}), and would start now")
        elif it.waiting in _BOUND and known.waiting is not it.waiting:
            yield _about(it, PolicyEffect.WAITS, f"waits for {it.waiting} and no more for {known.waiting}")
        elif known.waiting in _BOUND and it.waiting is not known.waiting:
            yield _about(it, PolicyEffect.EASES, f"waits for {it.waiting} and no more for {known.waiting}")


def _refused(both: _Both) -> Iterator[PolicyAffected]:
    """What waits now and would not be let in any more; one of those that are alike tells for all of them."""
    said: dict[object, str | None] = {}
    for it in both.after.queued():
        spec = it.spec
        stated = None if spec is None else (spec.grace_seconds, spec.leftover_seconds)
        kind = (it.owner, it.team, it.queue, it.kind, it.ask, stated)
        if kind not in said:
            said[kind] = _refusal(both, it) if len(said) < MOST_TRIED else None
        refusal = said[kind]
        if refusal is not None:
            is_never = beyond_for_ever(both.after, (it.owner, it.team, it.queue), it.kind, it.ask) is not None
            what = "can never start under these rules" if is_never else "would be refused if it came anew"
            yield _about(it, PolicyEffect.REFUSED, f"keeps its place, and {what}: {refusal}")


def _refusal(both: _Both, it: Workload) -> str | None:
    groups = (both.after.groups or {}).get(it.owner, ())
    is_usual = it.team == both.before.policy.teams_of(it.owner, groups)[0]  # nobody named it
    team = None if is_usual else it.team
    command = Submit(
        kind=it.kind, owner=it.owner, team=team, queue=it.queue, ask=it.ask, spec=it.spec, account=it.account,
        groups=groups,
    )  # fmt: skip
    refusal = _tried(both.after, command, both.now)
    return None if _tried(both.before, command, both.now) is not None else refusal


def _tried(world: World, command: Submit, now: float) -> str | None:
    try:
        submit(world, command, now)
    except GpuError as error:
        return error.message
    return None
