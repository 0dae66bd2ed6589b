"""What was used, added up: by the hour, by the day, and what was found out of it once."""

from __future__ import annotations

from typing import Any

from .policy import Policy

UsageKey = tuple[str, str, str, str]
#: Whose use: ("user", name), ("team", name) or ("", "") for everybody.
Whose = tuple[str, str]


class Sums:
    """What was found out once. Each names what it was made from, so it is never wrong for another world."""

    __slots__ = ("bounds", "made_for", "of_windows")

    def __init__(self) -> None:
        """Nothing is known yet."""
        #: Use within a window: the buckets it is the sum of, the oldest bucket, the sum.
        self.of_windows: dict[tuple[UsageKey, int], tuple[dict[int, int], int, int]] = {}
        #: The rules that concern somebody's use, by `core.quota`, under these rules and classes of devices.
        self.made_for: tuple[Policy, tuple[str, ...]] | None = None
        self.bounds: dict[Any, Any] = {}


def whose_are(owner: str, team: str) -> tuple[Whose, Whose, Whose]:
    """All those for whom a use counts: its user, their team, everybody."""
    return (("user", owner), ("team", team), ("", ""))


def added(buckets: dict[int, int], more: dict[int, int], kept: int) -> dict[int, int]:
    """New buckets with more use in some of them, and without those too old for the newest of these."""
    oldest = max(more) - kept
    new = buckets.copy()
    for bucket, used in more.items():
        new[bucket] = new.get(bucket, 0) + used
    if next(iter(new)) < oldest:  # they come in their order, or nearly
        return {bucket: used for bucket, used in new.items() if bucket >= oldest}
    return new
