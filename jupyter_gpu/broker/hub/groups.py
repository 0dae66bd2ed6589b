"""Which groups people are in now, of those whom it concerns although they do not come here themselves.

The hub says it with each token, but whoever is on a device without a lease need not come here at all, and whose job
recurs was here months ago. So it is asked about just those: where a rule differs by team, and before such a job comes
that counts for a group. Its word is kept for as long as on a token. What it does not say is not known: nobody is ended
for it, and a job counts as it did when it was asked for; that is told where it lasts.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ...core.told import above_its_part
from ...errors import BrokerUnavailable, NotAllowed
from ...model import World
from ..alerts import Alert
from ..looking import Looking
from .asking import Hub
from .auth import escaped

if TYPE_CHECKING:
    from ..loop import Loop

LOOK_SECONDS = 1.0
#: So long before a recurring job comes its owner's groups are asked for.
BEFORE_SECONDS = 60.0
#: So many are asked about at one look; the others follow.
MOST_AT_ONCE = 32


class Groups(Looking):
    """Asks the hub, and keeps what it says in `known`, which is the world's `groups`."""

    what = "the hub's groups"

    def __init__(self, loop: Loop, hub: Hub) -> None:
        super().__init__()
        self._loop, self._hub = loop, hub
        self.known: dict[str, tuple[str, ...]] = {}
        #: When each was asked about.
        self._asked_at: dict[str, float] = {}

    def pause_seconds(self) -> float:
        """Whoever comes new is asked about soon; of the others an answer is kept."""
        return LOOK_SECONDS

    async def look(self) -> None:
        """Ask about whom it concerns now, where the last answer is too old."""
        now = self._loop.now()
        wanted = concerned(self._loop.world) | who_comes(self._loop.world, now)
        for name in self._asked_at.keys() - wanted:
            del self._asked_at[name]
            self.known.pop(name, None)
        due = [it for it in sorted(wanted) if now >= self._asked_at.get(it, float("-inf")) + self._hub.cache_seconds]
        for name in due[:MOST_AT_ONCE]:
            self._asked_at[name] = now
            await self._ask(name)
        if not wanted:
            self._loop.alerts.settle("hub-groups", {})

    async def _ask(self, name: str) -> None:
        # A service of the hub, an account of the machine and a token are no users of it, and in no group.
        groups: tuple[str, ...] | None = () if "/" in name else None
        with contextlib.suppress(BrokerUnavailable):
            try:
                groups = await self._groups_of(name) if groups is None else groups
                self._loop.alerts.settle("hub-groups", {})
            except NotAllowed as error:
                self._loop.alerts.settle("hub-groups", {"hub-groups:refused": Alert(text=f"{error.message} {_REMEDY}")})
        if groups is None:
            self.known.pop(name, None)
        else:
            self.known[name] = groups

    async def _groups_of(self, name: str) -> tuple[str, ...]:
        model = await self._hub.request("GET", f"users/{escaped(name)}")
        if model is None:  # the hub has no such user (any more)
            return ()
        if not isinstance(model, dict) or not isinstance(model.get("groups"), list):
            raise NotAllowed("The hub does not show the groups of its users.")
        return tuple(sorted(map(str, model["groups"])))


_REMEDY = (
    "So rules by team (foreign_rules, by_team of sharing) end nobody's work, and a recurring job may count for a group "
    "that its owner has left: give the service's role the scope read:users:groups, as setup_hub does."
)


def concerned(world: World) -> set[str]:
    """Whose teams say what becomes of what they do beside their leases."""
    if not world.policy.differs_by_team:
        return set()
    strangers = {use.owner for uses in world.uses.values() for use in uses if use.is_foreign and use.owner}
    return strangers | {it.owner for it in world.holders() if above_its_part(world, it) is not None}


def who_comes(world: World, now: float) -> set[str]:
    """Whose jobs come soon by a calendar and may count for a group: who has left it since may not use its share."""
    return {
        it.owner
        for it in world.recurring.values()
        if it.submit.groups and not it.paused and it.next_at is not None and it.next_at <= now + BEFORE_SECONDS
    }
