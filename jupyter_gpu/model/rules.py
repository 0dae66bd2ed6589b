"""What is done about use beside the leases: processes on devices without one, and holders above their part.

Each rule may differ by team. What counts are all teams of whoever it is, never the one that they named for some work;
who is in several is treated by the strictest of their rules, so nobody gets a milder one by joining another group. The
plain rule is for those of whose teams none has a rule. Whose teams are not known now is told, and nothing ends.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

import msgspec

from .devices import Device

#: The team of those who are in none.
EVERYONE = "everyone"


class ForeignRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is done about a process without a lease where its owner is in a team."""

    team: str
    use: Literal["warn", "end"]
    #: Of "end": how long after they were told; None is the policy's `foreign_seconds`.
    after_seconds: int | None = None


class PartRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How long a holder may stay above its part where its owner is in a team; None only tells it."""

    team: str
    evict_after_seconds: int | None = None


class SharingRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Devices whose memory may be leased in parts: one by its UUID, all of a class, or (with neither) all."""

    device: str | None = None
    device_class: str | None = None
    #: What a holder may use beyond its part before it is told: a CUDA context has its own size.
    slack_bytes: int = 512 << 20
    #: A holder that stays above its part for so long after it was told is evicted; None only tells it.
    evict_after_seconds: int | None = None
    #: The same for owners in a team.
    by_team: tuple[PartRule, ...] = ()

    def names(self, device: Device) -> bool:
        """Whether it is about this device."""
        return self.device in (None, device.uuid) and self.device_class in (None, device.device_class)

    def treatment_of(self, teams: Collection[str] | None) -> Treatment:
        """What becomes of a holder above its part whose owner is in these teams; None where they are not known."""
        if teams is None and self.by_team:
            return UNKNOWN
        usual = Treatment("evict_after_seconds", self.evict_after_seconds)
        return strictest(
            usual, [_of_team(it.team, it.evict_after_seconds) for it in self.by_team if it.team in (teams or ())]
        )


class Treatment(NamedTuple):
    """What becomes of somebody: by which rule, and how long after they were told they are ended; None never are."""

    #: In words, like "the rule for team students"; else the setting of the plain one.
    rule: str
    ends_after_seconds: int | None = None
    is_of_a_team: bool = False
    #: Their teams are not known now, so there is no rule to end them by.
    is_unknown: bool = False


#: Of those whose teams are not known now.
UNKNOWN = Treatment("", is_unknown=True)


def of_foreign(
    usual: Treatment, rules: Collection[ForeignRule], seconds: int, teams: Collection[str] | None
) -> Treatment:
    """What becomes of processes without a lease of somebody in these teams; None where they are not known."""
    if teams is None and rules:
        return UNKNOWN
    found = []
    for it in rules:
        if it.team in (teams or ()):
            after = seconds if it.after_seconds is None else it.after_seconds
            found.append(_of_team(it.team, None if it.use == "warn" else after))
    return strictest(usual, found)


def strictest(usual: Treatment, found: Collection[Treatment]) -> Treatment:
    """Who ends soonest; who never ends comes last. The first of those that are alike."""
    return min(found, key=_patience, default=usual)


def _patience(it: Treatment) -> float:
    return float("inf") if it.ends_after_seconds is None else it.ends_after_seconds


def _of_team(team: str, ends_after_seconds: int | None) -> Treatment:
    return Treatment(f"the rule for team {team}", ends_after_seconds, is_of_a_team=True)


def foreign_problems(rules: Collection[ForeignRule], known_teams: Collection[str] | None) -> list[str]:
    """What cannot be meant of `foreign_rules`; `known_teams` is None where any name may be a team."""
    found = _team_problems("foreign_rules", [it.team for it in rules], known_teams)
    for number, it in enumerate(rules):
        if it.after_seconds is not None and it.after_seconds < 0:
            found.append(f"foreign_rules[{number}].after_seconds is {it.after_seconds}; it must be 0 or more")
        if it.after_seconds is not None and it.use == "warn":
            found.append(
                f'foreign_rules[{number}]: it only warns the team {it.team}, so leave after_seconds out, or say "end"'
            )
    return found


def sharing_problems(rules: Collection[SharingRule], known_teams: Collection[str] | None) -> list[str]:
    """What cannot be meant of `sharing`."""
    found = []
    for number, rule in enumerate(rules):
        place = f"sharing[{number}]"
        found += [
            f"{name} is {value}; it must be 0 or more"
            for name, value in (
                (f"{place}.slack_bytes", rule.slack_bytes),
                (f"{place}.evict_after_seconds", rule.evict_after_seconds),
                *(
                    (f"{place}.by_team[{at}].evict_after_seconds", it.evict_after_seconds)
                    for at, it in enumerate(rule.by_team)
                ),
            )
            if value is not None and value < 0
        ]
        found += _team_problems(f"{place}.by_team", [it.team for it in rule.by_team], known_teams)
    return found


def _team_problems(place: str, teams: list[str], known: Collection[str] | None) -> list[str]:
    found = []
    for team in sorted(set(teams)):
        if team in ("", "*"):
            found.append(f"{place}: {team!r} is no team; what is for all stands in the plain rule")
        elif known is not None and team not in known:
            found.append(
                f"{place}: there is no team {team!r}; the teams are {', '.join(sorted(known))}. "
                "A group of the hub is named in team_groups"
            )
        if teams.count(team) > 1:
            found.append(f"{place}: the team {team!r} has {teams.count(team)} rules; leave one")
    return found
