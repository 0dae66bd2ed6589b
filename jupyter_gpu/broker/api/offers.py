"""What the caller may ask for by name, and what each would come to now: for pages on which somebody chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...core.offers import offer
from ...core.status import profile_view
from ...model import Caller, OfferPage, OfferView, Policy, Profile
from .base import Base, endpoint

if TYPE_CHECKING:
    from ..loop import Loop


class OffersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The team that it is to count for, the usual one of theirs else; and how much of it."""

    team: str | None = None
    #: Only the profile of this name.
    profile: str | None = None
    #: Whether it is tried what would come of each; a burst of starts only wants to know what is theirs.
    trial: bool = True


class Offers(Base):
    """/offers."""

    @endpoint(OfferPage, query=OffersQuery, in_turn=True)
    async def get(self, query: OffersQuery) -> OfferPage:
        """The profiles that are the caller's, and what asking by each would come to now: nothing is asked by it."""
        return await offers(self.loop, self.caller, query)


async def offers(loop: Loop, caller: Caller, query: OffersQuery) -> OfferPage:
    """What is the caller's, tried where that is asked for."""
    policy = loop.world.policy
    teams = policy.teams_of(caller.name, caller.groups)
    theirs = [it for it in policy.profiles_for(caller.name, teams) if query.profile in (None, it.name)]
    if query.trial:
        found = await _tried(loop, caller, theirs, query.team)
    else:
        found = [OfferView(profile=profile_view(it), starts_now=it.devices == 0) for it in theirs]
    return OfferPage(items=tuple(found), teams=teams, teams_differ=_by_team(policy), tried=query.trial)


async def _tried(loop: Loop, caller: Caller, profiles: Sequence[Profile], team: str | None) -> list[OfferView]:
    """Decide what differs by itself, and let others be served in between: behind a long line each costs a step."""
    blind = not await loop.sights.knows_devices()
    known: dict[Profile, OfferView] = {}
    found = []
    for profile in profiles:
        alike = msgspec.structs.replace(profile, name="", title="", description="", users=(), teams=())
        if alike not in known:
            known[alike] = offer(loop.world, profile, caller, loop.now(), team=team, blind=blind)
            await asyncio.sleep(0)
        found.append(msgspec.structs.replace(known[alike], profile=profile_view(profile)))
    return found


def _by_team(policy: Policy) -> bool:
    """Whether a rule looks at the team."""
    return (
        any(rule.team is not None for rule in policy.quotas)
        or any(queue.teams for queue in policy.queues)
        or any(hold.teams for hold in policy.holds)
    )
