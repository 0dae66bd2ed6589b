"""Which profiles a person of a hub may start a server with, what they have chosen, and what of it is free now.

Pure. The broker decides who gets what; this is what a page can say before it is asked, and what is refused at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import InvalidAsk, NotAllowed
from ..model import DeviceView, Profile, Status
from ..units import format_bytes, format_seconds, format_when

#: The options of a user that are ours. The first names a profile; `profile` is taken for it too, where the spawner has
#: no profiles of its own, and `gpus` means the first profile with so many.
PROFILE, WAIT, GPUS, PLAIN = "gpu_profile", "gpu_wait", "gpus", "profile"
_YES, _NO = ("1", "on", "true", "yes"), ("", "0", "off", "false", "no")


class Choice(NamedTuple):
    """What somebody wants their server to start with."""

    profile: Profile
    #: Wait in line if it is not free, instead of being told so.
    waits: bool = False

    def options(self) -> dict[str, Any]:
        """As the hub keeps it, for the next start."""
        return {PROFILE: self.profile.name} | ({WAIT: True} if self.waits else {})


#: Where nothing is offered: a server that sees no GPU.
NO_GPU = Profile(name="none", title="No GPU", devices=0)


def usable(profiles: Iterable[Profile], name: str, teams: Iterable[str]) -> tuple[Profile, ...]:
    """The profiles that this person may start a server with, in the admin's order."""
    of = frozenset(teams)
    return tuple(it for it in profiles if it.for_servers and it.is_open_to(name, of))


def split(options: Mapping[str, Any], *, plain: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell our options from those of others. `plain` says that `profile` is ours."""
    ours = {PROFILE, WAIT, GPUS} | ({PLAIN} if plain else set())
    return (
        {name: it for name, it in options.items() if name in ours},
        {name: it for name, it in options.items() if name not in ours},
    )


def choose(options: Mapping[str, Any], profiles: Sequence[Profile], allowed: Sequence[Profile]) -> Choice:
    """What is chosen; nothing chosen is the first that this person may use (jupyterhub/jupyterhub#1629).

    Forms send lists of text and programs send JSON, and both mean the same. InvalidAsk and NotAllowed name what may be
    chosen instead.
    """
    named = _one(options, PROFILE) or _one(options, PLAIN)
    waits = _yes(_one(options, WAIT))
    if named is not None:
        return Choice(_named(str(named), profiles, allowed), waits)
    count = _one(options, GPUS)
    if count is not None:
        return Choice(_with_so_many(count, allowed), waits)
    return Choice(next(iter(allowed), NO_GPU), waits)


def _one(options: Mapping[str, Any], name: str) -> Any:
    """One value, of a form or of JSON; None where nothing is said."""
    value = options.get(name)
    if isinstance(value, list | tuple):
        if len(value) > 1:
            raise InvalidAsk(f"{name}: only one can be chosen, not {len(value)}.")
        value = value[0] if value else None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str | int | float | None):
        raise InvalidAsk(f"{name}: a {type(value).__name__} cannot be meant; give one word or number.")
    return None if value in ("", None) else value


def _yes(value: Any) -> bool:
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    word = str(value).strip().lower()
    if word not in _YES + _NO:
        raise InvalidAsk(f"{WAIT}: {word[:40]!r} is neither yes nor no.")
    return word in _YES


def _named(name: str, profiles: Sequence[Profile], allowed: Sequence[Profile]) -> Profile:
    found = next((it for it in allowed if it.name == name), None)
    if found is None and not profiles and name == NO_GPU.name:
        return NO_GPU
    if found is not None:
        return found
    # Of one that is there and not theirs the answer is the same, save for its status: names are no secret.
    if any(it.name == name for it in profiles):
        raise NotAllowed(f"The profile {name[:80]!r} is not yours to start a server with.", hint=_may_choose(allowed))
    raise InvalidAsk(f"There is no profile {name[:80]!r}.", hint=_may_choose(allowed))


def _with_so_many(count: Any, allowed: Sequence[Profile]) -> Profile:
    try:
        wanted = int(count)
    except (ValueError, OverflowError):
        raise InvalidAsk(f"{GPUS}: {str(count)[:40]!r} is no number.", hint=_may_choose(allowed)) from None
    found = next((it for it in allowed if it.devices == wanted), NO_GPU if wanted == 0 else None)
    if found is None:
        raise InvalidAsk(f"No profile of yours has {wanted} GPUs.", hint=_may_choose(allowed))
    return found


def _may_choose(allowed: Sequence[Profile]) -> str:
    names = ", ".join(it.name for it in allowed)
    return f"Choose one of: {names}." if names else "No profile is open to you; ask an admin."


# -- what is free


class Free(NamedTuple):
    """How much of what a profile asks for is there and free; None where that is not known."""

    #: Of so many that could serve it.
    free: int | None = None
    all: int | None = None
    #: When it can expect as many as it asks for, where that is not now.
    at: float | None = None

    def is_now(self, profile: Profile) -> bool:
        """Whether it would start at once, as far as devices go."""
        return profile.devices == 0 or (self.free is not None and self.free >= profile.devices)


def free_of(profile: Profile, status: Status | None) -> Free:
    """What of a profile is free now, and when it is else."""
    if status is None or profile.devices == 0:
        return Free()
    fitting = [it for it in status.devices if _serves(it, profile)]
    free = [it for it in fitting if _is_free(it, profile)]
    busy = [it.free_at for it in fitting if it not in free and it.free_at is not None and _is_well(it)]
    missing = profile.devices - len(free)
    at = sorted(busy)[missing - 1] if 0 < missing <= len(busy) else None
    return Free(len(free), len(fitting), at)


def _serves(device: DeviceView, profile: Profile) -> bool:
    if profile.device_class not in (None, device.device_class):
        return False
    return profile.memory_bytes is None or (
        device.shareable and (device.memory_total_bytes is None or device.memory_total_bytes >= profile.memory_bytes)
    )


def _is_well(device: DeviceView) -> bool:
    return not device.cordoned and device.condition is None


def _is_free(device: DeviceView, profile: Profile) -> bool:
    if not _is_well(device):
        return False
    if profile.memory_bytes is None or not device.workloads:
        return not device.workloads
    if device.memory_leased_bytes is None or device.memory_total_bytes is None:  # leased whole, or not known
        return False
    reserved = device.memory_reserved_bytes or 0
    return device.memory_total_bytes - device.memory_leased_bytes - reserved >= profile.memory_bytes


def what_of(profile: Profile) -> str:
    """What a profile gives, like "2 GPUs, a100-80gb, for 4h"."""
    if profile.devices == 0:
        return "no GPU of its own"
    parts = [f"{profile.devices} GPU{'' if profile.devices == 1 else 's'}"]
    if profile.memory_bytes is not None:
        parts = [f"{format_bytes(profile.memory_bytes)} of {parts[0]}"]
    parts += [profile.device_class] if profile.device_class else []
    parts += [f"for {format_seconds(profile.duration_seconds)}"] if profile.duration_seconds else []
    return ", ".join(parts)


def alternatives(refused: Profile, allowed: Iterable[Profile], status: Status | None, now: float) -> str:
    """What somebody can do instead who is told that a profile is not free: only what would really start now."""
    if status is None:
        return ""
    mine = free_of(refused, status)
    parts = [f"{title_of(refused)} is expected to be free at about {format_when(mine.at, now)}."] if mine.at else []
    others = [it for it in allowed if it.name != refused.name and it.devices and free_of(it, status).is_now(it)]
    if others:
        named = ", ".join(f"{title_of(it)} ({what_of(it)})" for it in others)
        parts.append(f"Free now: {named}.")
    without = next((it for it in allowed if not it.devices), None)
    if without is not None and without.name != refused.name:
        parts.append(f"{title_of(without)} starts at once.")
    return " ".join(parts)


def title_of(profile: Profile) -> str:
    """How people read a profile."""
    return profile.title or profile.name
