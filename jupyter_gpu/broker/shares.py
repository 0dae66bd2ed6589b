"""Who uses more of a shared device than their part: told at once, and evicted when the policy says so."""

from __future__ import annotations

from ..core.told import Above, above_its_part, told, what_it_used
from ..model import SeeAboveShare, State, Workload, World
from .alerts import Alert, Alerts

GROUP = "share"


class Shares:
    """Remembers since when each holder has been above its part."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        #: Workload -> since when, and what its owner was told then.
        self._since: dict[int, tuple[float, Alert]] = {}

    def look(self, world: World, now: float) -> list[SeeAboveShare]:
        """Tell who is above, and name whose time for that is over."""
        found = {it.id: above for it in world.holders() if (above := _above(world, it)) is not None}
        self._since = {id_: self._since.get(id_) or (now, _alert(world, world.workloads[id_])) for id_ in found}
        # One reading may be of a moment, and who is not above at the next has done nothing.
        lasting = {id_: alert for id_, (since, alert) in self._since.items() if now > since}
        self._alerts.settle(GROUP, {f"{GROUP}:{id_}": alert for id_, alert in lasting.items()})
        return [
            SeeAboveShare(workload=id_, detail=what_it_used(above))
            for id_, above in found.items()
            if id_ in lasting and _is_over(above, self._since[id_][0], now)
        ]


def _above(world: World, it: Workload) -> Above | None:
    return above_its_part(world, it) if it.state is State.ACTIVE and it.outcome is None else None


def _is_over(above: Above, since: float, now: float) -> bool:
    after = above.rule.evict_after_seconds
    return after is not None and now >= since + after


def _alert(world: World, it: Workload) -> Alert:
    text = told(world, it)
    return Alert(
        text=f"{it.title} of {it.owner}: {text}",
        plain=f"{it.title}: {text}",
        workload=it.id,
        users=frozenset({it.owner}),
    )
