"""Renewals: that holders live which the broker cannot see. They are no events; only a lapse becomes one."""

from __future__ import annotations

from ..core.status import notice_of
from ..core.told import told
from ..errors import LeaseLost
from ..model import Renewal, RenewBody, State, Workload, World
from .idle import Idle


class Renewals:
    """By when each holder has to renew."""

    def __init__(self, idle: Idle) -> None:
        self._idle = idle
        self._by: dict[int, float] = {}

    def renew(self, world: World, it: Workload, body: RenewBody, now: float) -> Renewal:
        """Take a renewal, and tell what its holder should know. Raises LeaseLost when the lease is over."""
        if it.state is State.ENDED or it.outcome is not None:
            raise LeaseLost(f"{it.title} is over: {it.end or 'released'}. {it.detail}".strip())
        if it.holder is not None and it.holder.number != body.holder_number:
            raise LeaseLost(f"the lease of {it.title} has moved to {it.holder.name}")
        self._by[it.id] = now + world.policy.lapse_seconds
        self._idle.hear(it.id, body.holder_number, busy=body.busy, idle_since=body.idle_since, now=now)
        return Renewal(
            renew_by=self._by[it.id],
            ends_at=it.lease.ends_at if it.lease is not None else None,
            notice=notice_of(it),
            told=" ".join(filter(None, (told(world, it), self._idle.told(it.id)))),
        )

    def has_lapsed(self, world: World, it: Workload, now: float) -> bool:
        """Whether renewals are overdue. The first look, after a start or a stall, begins the count anew."""
        return now > self._by.setdefault(it.id, now + world.policy.lapse_seconds)

    def count_anew(self) -> None:
        """Nobody could renew just now."""
        self._by.clear()

    def forget(self, workload_id: int) -> None:
        """It is held no more."""
        self._by.pop(workload_id, None)
