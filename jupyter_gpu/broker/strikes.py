"""Work that died of one device's hardware again and again: a sick card looks the freest, and would get all the work."""

from __future__ import annotations

from typing import NamedTuple

from ..model import Policy


class Strike(NamedTuple):
    """One attempt that died of a device's hardware, by what its own log says."""

    workload: int
    owner: str
    at: float
    #: Whether anything besides its words says so.
    is_borne_out: bool = False


class Strikes:
    """Counts, for each device, the work in a row that died of it; what ends well begins the count anew. Pure.

    Different workloads count, and each once: a job that is tried again is the same program, which may say the same
    for a reason of its own. Different owners are not asked for: where one person works, nobody else's work would ever
    bear it out. What one owner's words alone can do is bounded instead: one device within `strike_seconds`.
    """

    def __init__(self) -> None:
        #: Device -> its strikes, oldest first.
        self._of: dict[str, list[Strike]] = {}
        #: Owner -> when their words alone took a device out of use, and which.
        self._believed: dict[str, tuple[float, str]] = {}

    def add(self, policy: Policy, uuid: str, strike: Strike) -> tuple[int, ...]:
        """Count one; the workloads that take the device out of use, empty while they are too few."""
        since = strike.at - policy.strike_seconds
        before = {it.workload: it for it in self._of.get(uuid, ()) if it.at >= since}
        known = before.pop(strike.workload, strike)
        is_borne_out = strike.is_borne_out or known.is_borne_out
        self._of[uuid] = recent = [*before.values(), strike._replace(is_borne_out=is_borne_out)]
        if not policy.strikes or len(recent) < policy.strikes or not self._believes(uuid, recent, since):
            return ()
        return tuple(it.workload for it in recent)

    def _believes(self, uuid: str, recent: list[Strike], since: float) -> bool:
        self._believed = {owner: told for owner, told in self._believed.items() if told[0] >= since}
        owners = {it.owner for it in recent}
        if len(owners) > 1 or any(it.is_borne_out for it in recent):
            return True
        return self._believed.setdefault(owners.pop(), (recent[-1].at, uuid))[1] == uuid

    def forget(self, uuid: str) -> None:
        """Begin anew."""
        self._of.pop(uuid, None)
