"""Who has used how much of late: decayed use by user and by team, for the order of the line. Integer arithmetic."""

from __future__ import annotations

from functools import lru_cache

from ..model import USAGE_SECONDS, World

_DAY_SECONDS = 86_400
#: A day's use counts in so many parts.
_WHOLE = 1 << 16


@lru_cache
def _weights(half_life_seconds: int) -> tuple[int, ...]:
    """What a day of each age counts: half after each half-life."""
    days = range(USAGE_SECONDS // _DAY_SECONDS + 1)
    return tuple(round(_WHOLE * 0.5 ** (day * _DAY_SECONDS / half_life_seconds)) for day in days)


class RecentUse:
    """Everybody's part of the decayed use at one instant."""

    def __init__(self, world: World, now: float) -> None:
        """Begin with what runs now; what is over is added up when it is asked for."""
        self._today, self._days = int(now) // _DAY_SECONDS, world.days()
        self._weights = _weights(world.policy.half_life_seconds)
        self._used: dict[tuple[str, str], int] = {}
        self._running: dict[tuple[str, str], int] = {}
        now_ms = round(now * 1000)
        for (owner, team, _, _), (running, granted_ms, ran_ms) in world.runs.items():
            ms = running * now_ms - granted_ms + ran_ms
            for whose in (("user", owner), ("team", team), ("", "")):
                self._running[whose] = self._running.get(whose, 0) + ms

    def permille(self, owner: str, team: str) -> int:
        """The use of an owner and of their team, each as a part of everybody's, in thousandths: the mean of both."""
        total = self._of(("", ""))
        return (self._of(("user", owner)) + self._of(("team", team))) * 500 // total if total > 0 else 0

    def _of(self, whose: tuple[str, str]) -> int:
        """In parts of a device-millisecond."""
        used = self._used.get(whose)
        if used is None:
            weights, today = self._weights, self._today
            used = self._running.get(whose, 0) * _WHOLE
            for day, ms in self._days.get(whose, {}).items():
                if ms > 0 and 0 <= today - day < len(weights):
                    used += ms * weights[today - day]
            self._used[whose] = used
        return used
