"""Rules of the policy for GPUs that are not there: mostly a name that was mistyped, or of another machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..model import EACH, Policy, World
from ..units import format_when


def unmet_rules(world: World) -> tuple[str, ...]:
    """A sentence for each such rule, for operators; none while no GPU is known."""
    return tuple(dict.fromkeys(_sentences(world))) if world.devices else ()


def _sentences(world: World) -> Iterator[str]:
    classes = {device.device_class for device in world.devices.values()}
    there = f"here there {'is' if len(classes) == 1 else 'are'} {', '.join(sorted(classes))}"
    for rule in world.policy.sharing:
        if rule.device is not None and rule.device not in world.devices:
            yield f"A rule of `sharing` names the GPU {rule.device}, and there is none: see `jupyter gpu devices`."
        if rule.device_class is not None and rule.device_class not in classes:
            yield f"A rule of `sharing` names the class {rule.device_class}, and no GPU is of it: {there}."
    known = world.policy.known_teams
    yield from _too_much_promised(world)
    yield from _holds_for_nobody(world.policy)
    there_are = known if known is None else _with_people(world.policy, known)
    for quota in world.policy.quotas:
        if quota.team not in (None, EACH) and there_are is not None and quota.team not in there_are:
            yield f"A rule of `quotas` names the team {quota.team}, and nobody is in it: {_listed(there_are)}."
        if quota.device_class not in (None, EACH) and quota.device_class not in classes:
            yield f"A rule of `quotas` names the class {quota.device_class}, and no GPU is of it: {there}."


def _with_people(policy: Policy, known: Collection[str]) -> frozenset[str]:
    """The teams that somebody may be in: not those that list nobody and are no groups of a hub."""
    return frozenset(it for it in known if policy.teams.get(it, ("somebody",)) or it in (policy.team_groups or ()))


def holds_over(policy: Policy, now: float) -> tuple[str, ...]:
    """A sentence for each hold whose time has passed: mostly a year or a month that was mistyped."""
    return tuple(
        f"The hold {it.name} is over since {format_when(it.until_at, now)}: it withholds nothing. Give it another "
        "time, or take it out."
        for it in policy.holds
        if it.until_at <= now
    )


def _listed(teams: Collection[str]) -> str:
    return f"the teams are {', '.join(sorted(teams))}; a group of a hub is named in `team_groups`"


def _holds_for_nobody(policy: Policy) -> Iterator[str]:
    """Holds for teams that nobody is in: nobody could use what they withhold."""
    known = policy.known_teams
    there = None if known is None else _with_people(policy, known)
    for hold in policy.holds if there is not None else ():
        for team in hold.teams:
            if team not in (there or ()):
                yield f"The hold {hold.name} is for the team {team}, and nobody is in it: {_listed(there or ())}."


def _too_much_promised(world: World) -> Iterator[str]:
    """Parts of their own that cannot all be had at once."""
    there, policy = len(world.devices), world.policy
    for what, own in (
        ("teams in `quotas`", [rule.share_devices or 0 for rule in policy.quotas]),
        ("`queues`", [queue.share_devices or 0 for queue in policy.queues]),
    ):
        if sum(own) > there:
            yield f"The {what} have {sum(own)} GPUs of their own together, and there are {there}: not all get theirs."
