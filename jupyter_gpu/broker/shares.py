"""Who uses more of a shared device than their part: told at once, and evicted when the policy says so."""

from __future__ import annotations

from typing import NamedTuple

from ..core.told import Above, above_its_part, told, what_it_used
from ..model import SeeAboveShare, State, Treatment, Workload, World
from .alerts import Alert, Alerts

GROUP = "share"


class _Since(NamedTuple):
    """Since when a holder is above its part, since when under this rule, and what its owner was told then."""

    at: float
    ruled_at: float
    treatment: Treatment
    alert: Alert


class Shares:
    """Remembers since when each holder has been above its part."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        self._since: dict[int, _Since] = {}

    def look(self, world: World, now: float) -> list[SeeAboveShare]:
        """Tell who is above, and name whose time for that is over."""
        found = {it.id: above for it in world.holders() if (above := _above(world, it)) is not None}
        self._since = {id_: self._of(world, id_, above, now) for id_, above in found.items()}
        # One reading may be of a moment, and who is not above at the next has done nothing.
        lasting = {id_: since for id_, since in self._since.items() if now > since.at}
        self._alerts.settle(GROUP, {f"{GROUP}:{id_}": since.alert for id_, since in lasting.items()})
        return [
            SeeAboveShare(workload=id_, detail=what_it_used(above))
            for id_, above in found.items()
            if id_ in lasting and _is_over(self._since[id_], now)
        ]

    def _of(self, world: World, id_: int, above: Above, now: float) -> _Since:
        """Where another rule holds from now on, its time begins now: nobody is ended whom it was not told."""
        since = self._since.get(id_)
        if since is not None and since.treatment == above.treatment:
            return since
        return _Since(now if since is None else since.at, now, above.treatment, _alert(world, world.workloads[id_]))


def _above(world: World, it: Workload) -> Above | None:
    return above_its_part(world, it) if it.state is State.ACTIVE and it.outcome is None else None


def _is_over(since: _Since, now: float) -> bool:
    after = since.treatment.ends_after_seconds
    return after is not None and now >= since.ruled_at + after


def _alert(world: World, it: Workload) -> Alert:
    text, where = told(world, it), _where(world, it)
    return Alert(
        text=f"{it.title} of {it.owner}{where}: {text}",
        plain=f"{it.title}{where}: {text}",
        workload=it.id,
        users=frozenset({it.owner}),
    )


def _where(world: World, it: Workload) -> str:
    """In which of its owner's servers it is used, where that is known and its title does not say it."""
    uses = (use for uuid in (it.lease.devices if it.lease is not None else ()) for use in world.uses.get(uuid, ()))
    servers = {use.server for use in uses if use.workload == it.id and use.server}
    is_said = it.holder is not None and it.holder.kind == "server"
    return "" if is_said or len(servers) != 1 else f", server '{servers.pop()}'"
