"""Reservations whose GPUs and whose holder do nothing: told after a while, then given back unless they are kept.

A cell that computes in silence is no idleness, and idle time begins at its end (jupyter/notebook#3896). So it is the
holder who says whether it computes; without its word, or with one that is old, nothing is given back. What cannot be
read of a device is no idleness either. All of it is memory only: after a restart of the broker everybody begins anew.
"""

from __future__ import annotations

from typing import NamedTuple

from ..model import Kind, SeeIdle, State, Workload, World
from ..units import format_when
from .alerts import Alert, Alerts

GROUP = "idle"
#: More work than this, in percent, is use; a driver's own housekeeping is not.
IDLE_PERCENT = 2
#: After so long without a look nothing is known of the time between.
BLIND_SECONDS = 15.0
#: What runs in a shell, or what a command does beside the GPU, is not seen: these are never given back for idleness.
_RELEASED = frozenset({"kernel", "server"})


class Word(NamedTuple):
    """What a holder said last of itself."""

    holder_number: int
    is_busy: bool
    heard_at: float


class Warned(NamedTuple):
    """A warning that stands."""

    since: float
    at: float
    release_at: float


class Idle:
    """Remembers when each reservation was last used, and who is warned."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        self._used_at: dict[int, float] = {}
        self._words: dict[int, Word] = {}
        self._warned: dict[int, Warned] = {}
        self._looked_at = float("-inf")

    # -- what is heard

    def hear(
        self, workload_id: int, holder_number: int, *, busy: bool | None, idle_since: float | None, now: float
    ) -> None:
        """Take a holder's word; one that says nothing of it changes nothing. Its clock may be ahead of ours."""
        if busy is None:
            return
        before = self._words.get(workload_id)
        used_at = self._used_at.get(workload_id, now)
        was_idle = before is not None and not before.is_busy and before.holder_number == holder_number
        if busy:
            used_at = now
        elif idle_since is not None:
            used_at = max(used_at, min(idle_since, now))
        elif not was_idle:
            used_at = now
        self._used_at[workload_id] = used_at
        self._words[workload_id] = Word(holder_number, busy, now)

    def keep(self, workload_id: int, now: float) -> None:
        """Its owner wants it: idle time begins anew."""
        self._used_at[workload_id] = now
        self._warned.pop(workload_id, None)
        self._alerts.settle(f"{GROUP}:{workload_id}", {})

    # -- what is told

    def told(self, workload_id: int) -> str:
        """The warning that stands; empty where none does."""
        warned = self._warned.get(workload_id)
        return "" if warned is None else _warning(workload_id, warned)

    def used_at(self, world: World, it: Workload, now: float) -> float:
        """When its devices or its holder were last seen at work; that it is seen for the first time counts as that."""
        word = self._word(world, it, now)
        # Who has said it and says it no more may compute.
        is_busy = it.id in self._words if word is None else word.is_busy
        if is_busy or not _is_quiet(world, it):
            self._used_at[it.id] = now
        return self._used_at.setdefault(it.id, now)

    def look(self, world: World, now: float) -> list[SeeIdle]:
        """With each sample: warn who has been idle for long enough, and name whose time after the warning is over."""
        if now - self._looked_at > BLIND_SECONDS:
            self._used_at.clear()
            self._warned.clear()
        self._looked_at = now
        self._used_at = {id_: at for id_, at in self._used_at.items() if id_ in world.live}
        self._words = {id_: word for id_, word in self._words.items() if id_ in world.live}
        held = [it for it in world.holders() if it.kind is Kind.RESERVATION and it.state is State.ACTIVE]
        found = ((it, self._look_at(world, it, now)) for it in held if it.outcome is None)
        self._warned = {it.id: warned for it, warned in found if warned is not None}
        # Each warning is an alert of its own: who has kept it once, or computed between, is told again.
        self._alerts.settle(
            GROUP,
            {f"{GROUP}:{id_}:{it.at:.0f}": _alert(world.workloads[id_], it) for id_, it in self._warned.items()},
        )
        # Only on a word of after the deadline: who computes again may not have said so before it.
        return [
            SeeIdle(workload=id_, detail=f"idle since {format_when(it.since, now)}, and nobody said to keep it")
            for id_, it in self._warned.items()
            if self._words[id_].heard_at >= it.release_at
        ]

    def _look_at(self, world: World, it: Workload, now: float) -> Warned | None:
        policy, used_at = world.policy, self.used_at(world, it, now)
        word, before = self._word(world, it, now), self._warned.get(it.id)
        if word is None or used_at == now or policy.idle_warn_seconds is None:
            return None
        if now < used_at + policy.idle_warn_seconds:
            return None
        at = now if before is None else before.at
        return Warned(since=used_at, at=at, release_at=at + policy.idle_release_seconds)

    def _word(self, world: World, it: Workload, now: float) -> Word | None:
        """What its present holder said lately, where that is one who can tell."""
        word, holder = self._words.get(it.id), it.holder
        if word is None or holder is None or holder.kind not in _RELEASED or holder.number != word.holder_number:
            return None
        return word if now <= word.heard_at + world.policy.lapse_seconds else None


def _is_quiet(world: World, it: Workload) -> bool:
    """Whether all its devices do nothing, as far as all of them can be read."""
    readings = [world.readings.get(uuid) for uuid in (it.lease.devices if it.lease is not None else ())]
    seen = [None if reading is None else reading.utilisation_percent for reading in readings]
    return all(percent is not None and percent <= IDLE_PERCENT for percent in seen)


def _warning(workload_id: int, it: Warned) -> str:
    return (
        f"It has been idle since {format_when(it.since, it.at)}; it is given back at "
        f"{format_when(it.release_at, it.at)} unless you keep it: `jupyter gpu keep {workload_id}`."
    )


def _alert(it: Workload, warned: Warned) -> Alert:
    text = _warning(it.id, warned)
    return Alert(
        text=f"{it.title} of {it.owner}: {text}",
        plain=f"{it.title}: {text}",
        workload=it.id,
        users=frozenset({it.owner}),
        for_operators=False,
    )
