"""What the caller may ask for by name, and what each would come to now: for pages on which somebody chooses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ...core.offers import offer
from ...core.status import profile_view
from ...model import Caller, OfferPage, OfferView, Policy, Profile
from .base import Base, endpoint

if TYPE_CHECKING:
    from ..loop import Loop


class OffersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The team that it is to count for; the usual one of theirs else."""

    team: str | None = None


class Offers(Base):
    """/offers."""

    @endpoint(OfferPage, query=OffersQuery, in_turn=True)
    async def get(self, query: OffersQuery) -> OfferPage:
        """The profiles that are the caller's, and what asking by each would come to now: nothing is asked by it."""
        return await offers(self.loop, self.caller, query.team)


async def offers(loop: Loop, caller: Caller, team: str | None) -> OfferPage:
    """Decide what differs by itself, and let others be served in between: behind a long line each costs a step."""
    blind = not await loop.sights.knows_devices()
    policy = loop.world.policy
    teams = policy.teams_of(caller.name, caller.groups)
    known: dict[Profile, OfferView] = {}
    found = []
    for profile in policy.profiles_for(caller.name, teams):
        alike = msgspec.structs.replace(profile, name="", title="", description="", users=(), teams=())
        if alike not in known:
            known[alike] = offer(loop.world, profile, caller, loop.now(), team=team, blind=blind)
            await asyncio.sleep(0)
        found.append(msgspec.structs.replace(known[alike], profile=profile_view(profile)))
    return OfferPage(items=tuple(found), teams=teams, teams_differ=_by_team(policy))


def _by_team(policy: Policy) -> bool:
    """Whether a rule looks at the team."""
    return (
        any(rule.team is not None for rule in policy.quotas)
        or any(queue.teams for queue in policy.queues)
        or any(hold.teams for hold in policy.holds)
    )
