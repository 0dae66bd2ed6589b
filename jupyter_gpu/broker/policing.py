"""What operators are told of the rules at work: whom a reload affects, and who waits past the limit of their queue.

An alert of a reload is open as long as somebody whom it affects is still as it left them. Of a queue so many who wait
too long are told one by one, and the rest together: a long line must not call the admin's command a thousand times.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ..core.policy_words import affected_text, said
from ..model import PolicyCheckView, PolicyEffect, State, Workload, World
from ..units import format_seconds, format_when
from .alerts import Alert, Alerts

log = logging.getLogger(__name__)

#: Of each queue so many who wait past its limit are told by themselves.
MOST_ALONE = 20
#: So many of those whom a reload affects are in its alert; all are in the log.
MOST_NAMED = 5

#: Whoever only gains by a reload need not be told of as of a loss.
_GAINS = frozenset({PolicyEffect.STARTS, PolicyEffect.EASES})


class PolicyTold:
    """Tells of a reload before it happens, and for as long as it is felt."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        #: Workload -> the state in which a reload affects it.
        self._felt: dict[int, State] = {}

    def will_load(self, view: PolicyCheckView) -> None:
        """Write into the log what is about to change, and for whom."""
        if view.digest == view.digest_now:
            return
        for sentence in said(view):
            log.info("the policy that is being loaded: %s", sentence)

    def has_loaded(self, view: PolicyCheckView, world: World, now: float) -> None:
        """Tell operators, where somebody is affected who does not only gain by it."""
        losers = [it for it in view.affected if it.effect not in _GAINS]
        its = (world.workloads.get(it.workload) for it in losers)
        self._felt = {it.id: it.state for it in its if it is not None and it.state is not State.ENDED}
        told = [sentence for sentence in affected_text(view) if any(_is_of(sentence, it.title) for it in losers)]
        more = len(losers) + view.more - MOST_NAMED
        what = " ".join(told[:MOST_NAMED]) + (f" And {more} more: see the broker's log." if more > 0 else "")
        text = f"The policy that was loaded at {format_when(now, now)} affects work that is here. {what}"
        self._alerts.settle("policy", {f"policy:{view.digest}": Alert(text=text)} if self._felt else {})

    def look(self, world: World) -> None:
        """It is felt no more once all of these are in another state."""
        if self._felt and not any(_state(world, id_) is state for id_, state in self._felt.items()):
            self._felt = {}
            self._alerts.settle("policy", {})


def _is_of(sentence: str, title: str) -> bool:
    return sentence.casefold().startswith(title.casefold())


def _state(world: World, id_: int) -> State | None:
    it = world.workloads.get(id_)
    return None if it is None else it.state


def tell_of_waits(alerts: Alerts, world: World, now: float) -> None:
    """Let just those alerts be open that who waits past their queue's limit calls for; each ends when it starts."""
    alerts.settle("wait", dict(_of_waits(world, now)) if any(not key[1] for key in world.line) else {})


def _of_waits(world: World, now: float) -> Iterator[tuple[str, Alert]]:
    counts: dict[str, int] = {}
    for it in world.queued():
        if it.lifted and not (it.paused or it.unmet or it.attempt or it.previous_devices):
            counts[it.queue] = counts.get(it.queue, 0) + 1
            if counts[it.queue] <= MOST_ALONE:
                yield f"wait:{it.id}", _of_one(world, it, now)
    for queue, count in counts.items():
        if count > MOST_ALONE:
            what = f"{count - MOST_ALONE} more wait past the limit of the queue {queue}"
            yield f"wait:more:{queue}", Alert(text=f"{what}: `jupyter gpu queue` lists all.")


def _of_one(world: World, it: Workload, now: float) -> Alert:
    queue = world.policy.queue(it.queue)
    limit = None if queue is None else queue.wait_limit_seconds
    past = "" if limit is None else f" ({format_seconds(limit)})"
    since = format_when(max(it.submitted_at, it.not_before or 0.0), now)
    text = (
        f"{it.title} of {it.owner} waits since {since}, past the limit of the queue {it.queue}{past}, for {it.waiting}."
        f" It stands at the front of its queue now; `jupyter gpu show {it.id}` says what it waits for."
    )
    return Alert(text=text, workload=it.id)
