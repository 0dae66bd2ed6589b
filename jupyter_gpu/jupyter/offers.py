"""Which profiles a person of a hub may start a server with, and what they have chosen.

Pure. The broker decides who gets what and says beforehand what would come of each (`OfferView`); here is what is read
of a form or of a program, and what of it is refused at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..errors import InvalidAsk, NotAllowed
from ..model import OfferView, Profile, QuotaView
from ..units import format_bytes, format_seconds

#: The options of a user that are ours. The first names a profile; `profile` is taken for it too, where the spawner has
#: no profiles of its own, and `gpus` means the first profile with so many.
PROFILE, WAIT, TEAM, GPUS, PLAIN = "gpu_profile", "gpu_wait", "gpu_team", "gpus", "profile"
_YES, _NO = ("1", "on", "true", "yes"), ("", "0", "off", "false", "no")
#: Of what somebody sent no more is repeated to them.
_MOST_SHOWN = 80


class Choice(NamedTuple):
    """What somebody wants their server to start with."""

    profile: Profile
    #: Wait in line if it is not free, instead of being told so.
    waits: bool = False
    #: The team that it counts for; None is the usual one.
    team: str | None = None

    def options(self) -> dict[str, Any]:
        """As the hub keeps it, for the next start."""
        more = ({WAIT: True} if self.waits else {}) | ({TEAM: self.team} if self.team is not None else {})
        return {PROFILE: self.profile.name} | more


class Offered(NamedTuple):
    """A profile that somebody may choose, and for each of their teams what would come of it, the usual one first."""

    profile: Profile
    #: Empty where the broker does not say.
    by_team: Mapping[str, OfferView] = {}

    def to(self, team: str | None) -> OfferView | None:
        """What would come of it for a team, or for the usual one."""
        found = self.by_team.get(team or "")
        return found if found is not None else next(iter(self.by_team.values()), None)


class Seen(NamedTuple):
    """What the broker says to one person of a hub at one moment."""

    offers: tuple[Offered, ...]
    #: The teams that their work may count for, the usual one first; and whether the rules treat them differently.
    teams: tuple[str, ...] = ()
    teams_differ: bool = False
    teams_at: float | None = None
    quotas: tuple[QuotaView, ...] = ()

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """What may be chosen."""
        return tuple(it.profile for it in self.offers)

    def offer(self, choice: Choice) -> OfferView | None:
        """What would come of a choice."""
        return next((it.to(choice.team) for it in self.offers if it.profile.name == choice.profile.name), None)


#: Where nothing is offered: a server that sees no GPU.
NO_GPU = Profile(name="none", title="No GPU", devices=0)


def usable(profiles: Iterable[Profile], name: str, teams: Iterable[str]) -> tuple[Profile, ...]:
    """The profiles that this person may start a server with, in the admin's order."""
    of = frozenset(teams)
    return tuple(it for it in profiles if it.for_servers and it.is_open_to(name, of))


def without_gpus(profiles: Iterable[Profile]) -> tuple[Profile, ...]:
    """What of them is left to who may reserve nothing, in a server or in its kernels."""
    return tuple(msgspec.structs.replace(it, for_kernels=False) for it in profiles if not it.devices)


def collate(by_team: Mapping[str, Iterable[OfferView]]) -> tuple[Offered, ...]:
    """What the broker says for each team, by profile; only what a server may be started with."""
    found: dict[str, dict[str, OfferView]] = {}
    for team, offers in by_team.items():
        for it in offers:
            if it.profile.for_servers:
                found.setdefault(it.profile.name, {})[team] = it
    return tuple(Offered(_profile(next(iter(of.values()))), of) for of in found.values())


def _profile(it: OfferView) -> Profile:
    return msgspec.convert(msgspec.to_builtins(it.profile), Profile)


def split(options: Mapping[str, Any], *, plain: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell our options from those of others. `plain` says that `profile` is ours."""
    ours = {PROFILE, WAIT, TEAM, GPUS} | ({PLAIN} if plain else set())
    return (
        {name: it for name, it in options.items() if name in ours},
        {name: it for name, it in options.items() if name not in ours},
    )


def choose(
    options: Mapping[str, Any], profiles: Sequence[Profile], allowed: Sequence[Profile], teams: Sequence[str]
) -> Choice:
    """What is chosen; nothing chosen is the first that this person may use (jupyterhub/jupyterhub#1629).

    Forms send lists of text and programs send JSON, and both mean the same. InvalidAsk and NotAllowed name what may be
    chosen instead.
    """
    named = _word(options, PROFILE) or _word(options, PLAIN)
    waits, team = _yes(_one(options, WAIT)), _team(_word(options, TEAM), teams)
    if named is not None:
        return Choice(_named(named, profiles, allowed), waits, team)
    count = _one(options, GPUS)
    if count is not None:
        return Choice(_with_so_many(count, allowed), waits, team)
    return Choice(next(iter(allowed), NO_GPU), waits, team)


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
        raise InvalidAsk(f"{name}: a {type(value).__name__} cannot be meant.", hint="Give one word or number.")
    return None if value in ("", None) else value


def _word(options: Mapping[str, Any], name: str) -> str | None:
    """A name; nobody means one by true or 2."""
    value = _one(options, name)
    if value is not None and not isinstance(value, str):
        raise InvalidAsk(f"{name}: {_shown(value)} is no name.", hint="Give a name in quotes.")
    return value


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def _yes(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    word = str(value).strip().lower()
    if word not in _YES + _NO:
        raise InvalidAsk(f"{WAIT}: {_shown(value)} is neither yes nor no.", hint="Give true or false.")
    return word in _YES


def _team(name: str | None, teams: Sequence[str]) -> str | None:
    if name is not None and name not in teams:
        may = f"Your teams: {', '.join(teams)}." if teams else "You are in no team that is known here."
        raise NotAllowed(f"{TEAM}: you are not in the team {_shown(name)}.", hint=may)
    return name


def _named(name: str, profiles: Sequence[Profile], allowed: Sequence[Profile]) -> Profile:
    for it in allowed:
        if it.name == name:
            return it
    # Somebody who may not use it may know of it: names are no secret.
    if any(it.name == name for it in profiles):
        raise NotAllowed(f"The profile {_shown(name)} is not yours to start a server with.", hint=_may_choose(allowed))
    raise InvalidAsk(f"There is no profile {_shown(name)}.", hint=_may_choose(allowed))


def _with_so_many(count: Any, allowed: Sequence[Profile]) -> Profile:
    try:
        wanted = int(count)
    except (ValueError, OverflowError):
        wanted = None
    if wanted is None or isinstance(count, bool) or (isinstance(count, float) and count != wanted):
        raise InvalidAsk(f"{GPUS}: {_shown(count)} is no number of GPUs.", hint=_may_choose(allowed))
    found = next((it for it in allowed if it.devices == wanted), NO_GPU if wanted == 0 else None)
    if found is None:
        raise InvalidAsk(f"No profile of yours has {str(count)[:_MOST_SHOWN]} GPUs.", hint=_may_choose(allowed))
    return found


def _may_choose(allowed: Sequence[Profile]) -> str:
    names = ", ".join(it.name for it in allowed)
    return f"Choose one of: {names}." if names else "No profile is open to you; ask an admin."


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


def title_of(profile: Profile) -> str:
    """How people read a profile."""
    return profile.title or profile.name
