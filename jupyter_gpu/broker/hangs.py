"""Jobs that stand still: told after a while, then started anew from their checkpoint where a time was stated for it.

A job stands still while three things hold at once: it reports nothing, it prints nothing, and every device that it
holds is idle. A job without devices is idle while its processes use no processor time. What cannot be read is no
idleness: a device without a reading, or with an old one, is taken to be at work. A job whose output is buffered would
look the same (leahneukirchen/nq#36, alphaXiv/OpenResearch#71), which is why ours are unbuffered; and one that waits in
a busy loop for another process looks as if it worked. Only time during which we have looked counts, so neither a
suspended machine nor a stopped broker nor a clock that jumps makes anybody hang. All of it is memory only: after a
restart of the broker everybody begins anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from ..model import Kind, SeeHung, State, Workload, World
from ..units import format_seconds, format_when
from .alerts import Alert, Alerts
from .idle import BLIND_SECONDS, IDLE_PERCENT

GROUP = "hang"
#: We look once a second; what lies further apart was not looked at.
GAP_SECONDS = 5.0


class Sign(NamedTuple):
    """What was seen of an attempt in its folder."""

    attempt: int
    #: Changes whenever it reports or prints.
    mark: Hashable
    #: Of a job without devices: whether its processes are at work; None where that is not known.
    is_at_work: bool | None = None


class _Still(NamedTuple):
    """How long an attempt has stood still, as far as we have looked."""

    attempt: int
    mark: Hashable
    since: float
    seconds: float = 0.0


class Hangs:
    """Remembers since when each job stands still, and who is told."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        self._still: dict[int, _Still] = {}
        self._told: frozenset[str] = frozenset()
        self._looked_at = float("-inf")

    def look(self, world: World, now: float, signs: Mapping[int, Sign]) -> list[SeeHung]:
        """Once a second or so: tell of who has stood still for long enough, and name whose time is over."""
        passed = now - self._looked_at
        passed = passed if 0.0 <= passed <= GAP_SECONDS else 0.0
        self._looked_at = now
        running = [it for it in world.holders() if _is_running(it)]
        self._still = {it.id: self._look_at(world, it, signs[it.id], passed, now) for it in running if it.id in signs}
        wanted, due = dict[str, Alert](), list[SeeHung]()
        for it in running:
            still = self._still.get(it.id)
            warn_after, restart_after = limits(world, it)
            if still is None or warn_after is None or still.seconds < warn_after:
                continue
            key = f"{GROUP}:{it.id}:{still.attempt}:{still.since:.0f}"
            wanted[key] = _alert(it, still, restart_after, now)
            if restart_after is not None and still.seconds >= restart_after and key in self._told:
                due.append(SeeHung(workload=it.id, attempt=still.attempt, detail=_detail(it, still, now)))
        self._alerts.settle(GROUP, wanted)
        self._told = frozenset(wanted)
        return due

    def _look_at(self, world: World, it: Workload, sign: Sign, passed: float, now: float) -> _Still:
        before = self._still.get(it.id)
        if before is None or (before.attempt, before.mark) != sign[:2] or not _is_idle(world, it, sign, now):
            return _Still(sign.attempt, sign.mark, since=now)
        return before._replace(seconds=before.seconds + passed)


def limits(world: World, it: Workload) -> tuple[float | None, float | None]:
    """After how long of standing still a job is told of, and after how long it is started anew; None for never.

    The job's own word goes before the admin's. Who is to be started anew is told at half of that time at the latest.
    """
    stated = None if it.spec is None else it.spec.hang_seconds
    restart_after = world.policy.hang_restart_seconds if stated is None else stated
    known = [
        after
        for after in (world.policy.hang_warn_seconds, None if restart_after is None else restart_after / 2)
        if after is not None
    ]
    return min(known, default=None), restart_after


def _is_running(it: Workload) -> bool:
    return it.kind is Kind.JOB and it.state is State.ACTIVE and it.started_at is not None and it.outcome is None


def _is_idle(world: World, it: Workload, sign: Sign, now: float) -> bool:
    devices = it.lease.devices if it.lease is not None else ()
    if not devices:
        return sign.is_at_work is False
    for uuid in devices:
        reading = world.readings.get(uuid)
        if reading is None or reading.utilisation_percent is None or reading.utilisation_percent > IDLE_PERCENT:
            return False
        if abs(now - reading.at) > BLIND_SECONDS:
            return False
    return True


def _what(it: Workload, still: _Still, now: float) -> str:
    has_devices = it.lease is not None and it.lease.devices
    did = "left its GPUs idle" if has_devices else "used no processor time"
    return f"it has reported nothing, printed nothing and {did} since {format_when(still.since, now)}"


def _detail(it: Workload, still: _Still, now: float) -> str:
    return f"{_what(it, still, now)} ({format_seconds(still.seconds // 1)})"


def _alert(it: Workload, still: _Still, restart_after: float | None, now: float) -> Alert:
    if restart_after is None:
        next_ = (
            f"It goes on as it is: `jupyter gpu log {it.id}` shows its last words, `jupyter gpu cancel {it.id}` ends "
            "it. A job that is submitted with --hang, like 30m, is started anew from its checkpoint instead."
        )
    else:
        at = format_when(now + max(0.0, restart_after - still.seconds), now)
        next_ = f"It is started anew from its newest checkpoint at {at}, unless it goes on before."
    text = f"it seems to hang: {_what(it, still, now)}. {next_}"
    return Alert(
        text=f"{it.title} of {it.owner}: {text}",
        plain=f"{it.title}: {text}",
        workload=it.id,
        users=frozenset({it.owner}),
    )
