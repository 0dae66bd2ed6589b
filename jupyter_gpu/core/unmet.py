"""Rules of the policy for GPUs that are not there: mostly a name that was mistyped, or of another machine."""

from __future__ import annotations

from collections.abc import Iterator

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
    for quota in world.policy.quotas:
        if quota.device_class not in (None, EACH) and quota.device_class not in classes:
            yield f"A rule of `quotas` names the class {quota.device_class}, and no GPU is of it: {there}."
