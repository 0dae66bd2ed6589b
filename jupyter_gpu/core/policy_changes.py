"""In what two policies differ: bounds, and whom they bind; and all other settings, a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ..model import BoundChange, Policy, QueuePolicy, QuotaRule, World
from ..units import format_seconds
from .bounds import bind

#: What a rule may bound: the name of its field, how people say it.
_BOUNDS = (
    ("devices", "GPUs at once"),
    ("memory_bytes", "memory of shared GPUs at once"),
    ("share_devices", "GPUs of its own"),
    ("gpu_hours", "GPU-hours"),
)
#: Told in their own way.
_APART = frozenset({"queues", "quotas", "holds", "profiles", "teams"})
#: Of a queue, told as bounds.
_OF_QUEUES = frozenset({"most_devices", "share_devices"})

Key = tuple[str, QuotaRule]


def bound_changes(world: World, policy: Policy) -> Iterator[BoundChange]:
    """The bounds that are other ones, those that shrink first, each with who has work here that it binds."""
    before, after = _amounts(world.policy), _amounts(policy)
    changed = [key for key in dict.fromkeys((*before, *after)) if before.get(key) != after.get(key)]
    for key in sorted(changed, key=lambda key: not _shrinks(key, before, after)):
        what, rule = key
        yield BoundChange(
            whose=rule.title,
            what=what,
            before=before.get(key),
            after=after.get(key),
            shrinks=_shrinks(key, before, after),
            users=_users(world, rule),
        )


def _amounts(policy: Policy) -> dict[Key, int]:
    """What the rules allow whom; of several that bind the same people the tightest."""
    found: dict[Key, int] = {}
    own = (QuotaRule(queue=it.name, share_devices=it.share_devices) for it in policy.queues)
    for rule in (*policy.bounds, *own):
        for field, what in _BOUNDS:
            amount = getattr(rule, field)
            if amount is not None:
                whom = msgspec.structs.replace(
                    rule, devices=None, memory_bytes=None, share_devices=None, gpu_hours=None,
                    window_seconds=rule.window_seconds if field == "gpu_hours" else 3600,
                )  # fmt: skip
                key = (what + (f" in {format_seconds(rule.window_seconds)}" if field == "gpu_hours" else ""), whom)
                found[key] = min(amount, found.get(key, amount))
    return found


def _shrinks(key: Key, before: Mapping[Key, int], after: Mapping[Key, int]) -> bool:
    """A bound shrinks where there was none; what is somebody's own shrinks where there is none any more."""
    then, now = after.get(key), before.get(key)
    if key[0] == "GPUs of its own":
        return (then or 0) < (now or 0)
    return then is not None and (now is None or then < now)


def _users(world: World, rule: QuotaRule) -> tuple[str, ...]:
    """Who has work here that a rule binds."""
    its = (world.workloads[id_] for id_ in (*world.live, *(key[3] for key in world.line)))
    classless = msgspec.structs.replace(rule, device_class=None)
    return tuple(sorted({it.owner for it in its if bind(0, classless, it.owner, it.team, it.queue, None) is not None}))


def setting_changes(before: Policy, after: Policy) -> Iterator[str]:
    """All other differences, in the order of the settings."""
    for name in Policy.__struct_fields__:
        if name not in _APART and getattr(before, name) != getattr(after, name):
            yield _from_to(name, name, getattr(before, name), getattr(after, name))
    yield from _of_queues(before, after)
    for what, title in (("holds", "hold"), ("profiles", "profile")):
        yield from _of_named(title, getattr(before, what), getattr(after, what))
    yield from _of_teams(before.teams, after.teams)


def _from_to(title: str, field: str, before: Any, after: Any) -> str:
    return f"{title}: {_said(field, before)}, then {_said(field, after)}"


def _said(field: str, value: Any) -> str:
    """A length as people write it, all else as in a file."""
    if field.endswith("_seconds") and isinstance(value, int):
        return format_seconds(value)
    return "none" if value is None else msgspec.json.encode(value).decode()


def _of_queues(before: Policy, after: Policy) -> Iterator[str]:
    for queue in before.queues:
        then = after.queue(queue.name)
        if then is None:
            yield f"the queue {queue.name} is no more"
            continue
        for field in QueuePolicy.__struct_fields__:
            if field not in _OF_QUEUES and getattr(queue, field) != getattr(then, field):
                yield _from_to(f"{queue.name}.{field}", field, getattr(queue, field), getattr(then, field))
    yield from (f"the queue {it.name} is new" for it in after.queues if before.queue(it.name) is None)


def _of_named(title: str, before: Iterable[Any], after: Iterable[Any]) -> Iterator[str]:
    known, then = {it.name: it for it in before}, {it.name: it for it in after}
    yield from (f"the {title} {name!r} is no more" for name in known if name not in then)
    yield from (f"the {title} {name!r} is new" for name in then if name not in known)
    yield from (f"the {title} {name!r} is another one" for name in known if known[name] != then.get(name, known[name]))


def _of_teams(before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for team in dict.fromkeys((*before, *after)):
        known, then = before.get(team, ()), after.get(team, ())
        gone = [user for user in known if user not in then]
        new = [user for user in then if user not in known]
        for verb, names in (("leave", gone), ("join", new)):
            if names:
                yield f"{', '.join(names)} {verb}{'' if len(names) > 1 else 's'} the team {team}"
