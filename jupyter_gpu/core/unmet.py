"""Rules of the policy for GPUs that are not there: mostly a name that was mistyped, or of another machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..model import EACH, World


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
    for quota in world.policy.quotas:
        if quota.team not in (None, EACH) and known is not None and quota.team not in known:
            yield f"A rule of `quotas` names the team {quota.team}, and nobody is in it: {_listed(known)}."
        if quota.device_class not in (None, EACH) and quota.device_class not in classes:
            yield f"A rule of `quotas` names the class {quota.device_class}, and no GPU is of it: {there}."


def _listed(teams: Collection[str]) -> str:
    return f"the teams are {', '.join(sorted(teams))}; a group of a hub is named in `team_groups`"


def _too_much_promised(world: World) -> Iterator[str]:
    """Parts of their own that cannot all be had at once."""
    there, policy = len(world.devices), world.policy
    for what, own in (
        ("teams in `quotas`", [rule.share_devices or 0 for rule in policy.quotas]),
        ("`queues`", [queue.share_devices or 0 for queue in policy.queues]),
    ):
        if sum(own) > there:
            yield f"The {what} have {sum(own)} GPUs of their own together, and there are {there}: not all get theirs."
