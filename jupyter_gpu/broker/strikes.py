"""Work that died of one device's hardware again and again: a sick card looks the freest, and would get all the work."""

from __future__ import annotations

from ..model import Policy


class Strikes:
    """Counts, for each device, the work in a row that died of it; what ends well begins the count anew. Pure."""

    def __init__(self) -> None:
        #: Device -> (workload, when), oldest first.
        self._of: dict[str, list[tuple[int, float]]] = {}

    def add(self, policy: Policy, uuid: str, workload: int, at: float) -> tuple[int, ...]:
        """Count one; the workloads that take the device out of use, empty while they are too few.

        The same workload, tried again on the same device, counts each time.
        """
        recent = [(id_, when) for id_, when in self._of.get(uuid, ()) if at - when <= policy.strike_seconds]
        self._of[uuid] = recent = [*recent, (workload, at)]
        if not policy.strikes or len(recent) < policy.strikes:
            return ()
        return tuple(id_ for id_, _ in recent)

    def forget(self, uuid: str) -> None:
        """Begin anew."""
        self._of.pop(uuid, None)
