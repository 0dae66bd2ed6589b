"""Policy by team for use beside the leases: whose rule counts, which of several, and what cannot be meant."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.told import above_its_part, told, what_it_used
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import ForeignRule, PartRule, Policy, SharingRule, Use, UseKind
from jupyter_gpu.policies import read_policy
from tests.world import GIB, Play

STUDENTS = ForeignRule(team="students", use="end", after_seconds=120)
VISION = ForeignRule(team="vision", use="end")
STAFF = ForeignRule(team="staff", use="warn")
RULES = (STAFF, STUDENTS, VISION)


def foreign(*teams: str, use: str = "warn") -> tuple[str, int | None]:
    """By which rule somebody of these teams is ended, and after how long."""
    policy = Policy(foreign_use=use, foreign_seconds=60, foreign_rules=RULES)
    found = policy.treatment_of(teams)
    return found.rule, found.ends_after_seconds


def test_who_has_no_rule_of_their_own_has_the_plain_one() -> None:
    """Also who is in no team at all."""
    assert foreign("speech") == foreign("everyone") == ("foreign_use", None)
    assert foreign("speech", use="end") == ("foreign_use", 60)


def test_a_team_has_its_own_rule_milder_or_stricter_than_the_plain_one() -> None:
    """With its own time, or the policy's."""
    assert foreign("students") == ("the rule for team students", 120)
    assert foreign("vision") == ("the rule for team vision", 60)
    assert foreign("staff", use="end") == ("the rule for team staff", None)


@pytest.mark.parametrize("teams", [("staff", "students"), ("students", "staff"), ("speech", "staff", "students")])
def test_of_several_teams_the_strictest_rule_counts(teams: tuple[str, ...]) -> None:
    """So that nobody gets a milder one by joining another group; who ends soonest is the strictest."""
    assert foreign(*teams) == ("the rule for team students", 120)
    assert foreign(*teams, "vision") == ("the rule for team vision", 60)


def test_whose_teams_are_not_known_has_no_rule_to_be_ended_by() -> None:
    """The plain rule might be stricter than theirs, and a rule of a team that of somebody else."""
    found = Policy(foreign_use="end", foreign_rules=RULES).treatment_of(None)
    assert (found.is_unknown, found.ends_after_seconds) == (True, None)
    plain = Policy(foreign_use="end").treatment_of(None)
    assert (plain.is_unknown, plain.ends_after_seconds) == (False, 60)


def above(policy: Policy, groups: dict[str, tuple[str, ...]] | None = None, team: str | None = None) -> Play:
    """Workload 1 of ada's has 20GiB of a device and uses 25GiB."""
    play = Play(1, policy)
    play.reservation(memory_bytes=20 * GIB, owner="ada", team=team)
    play.world.groups = groups
    play.world.uses["gpu-0"] = (Use(pid=4711, kind=UseKind.HOLDER, workload=1, memory_bytes=25 * GIB),)
    return play


SHARED = SharingRule(
    by_team=(PartRule(team="students", evict_after_seconds=30), PartRule(team="staff")), evict_after_seconds=600
)


@pytest.mark.parametrize(
    ("teams", "said"),
    [
        ({"students": ("ada",)}, "It is ended when this lasts 30s."),
        ({"speech": ("ada",)}, "It is ended when this lasts 10m."),
        ({"staff": ("ada",)}, ""),
        ({"staff": ("ada",), "students": ("ada",)}, "It is ended when this lasts 30s."),
    ],
)
def test_how_long_a_holder_may_be_above_its_part_differs_by_team(teams: dict[str, tuple[str, ...]], said: str) -> None:
    """Its owner is told what is theirs."""
    play = above(Policy(sharing=(SHARED,), teams=teams))

    assert ("It is ended" in told(play.world, play[1])) == bool(said)
    assert said in told(play.world, play[1])


def test_the_team_that_an_ask_names_changes_nothing() -> None:
    """Who is in both and submits for staff is treated as a student all the same."""
    play = above(Policy(sharing=(SHARED,), teams={"staff": ("ada",), "students": ("ada",)}), team="staff")
    assert play[1].team == "staff"

    found = above_its_part(play.world, play[1])

    assert found is not None
    assert found.treatment.ends_after_seconds == 30
    assert "(by the rule for team students)" in what_it_used(found)


def test_groups_of_a_hub_count_as_soon_as_they_are_known() -> None:
    """Until then a holder is only told; without rules by team nobody waits for the hub's word."""
    play = above(Policy(sharing=(SHARED,)), groups={})
    assert "It is ended" not in told(play.world, play[1])
    play.world.groups = {"ada": ("students",)}
    assert "It is ended when this lasts 30s." in told(play.world, play[1])
    play = above(Policy(sharing=(SharingRule(evict_after_seconds=600),)), groups={})
    assert "It is ended when this lasts 10m." in told(play.world, play[1])


# -- as it is written


def test_rules_by_team_are_written_with_units() -> None:
    """As people write lengths."""
    policy = read_policy(
        {
            "foreign_rules": [{"team": "students", "use": "end", "after_seconds": "2m"}],
            "sharing": [{"by_team": [{"team": "students", "evict_after_seconds": "1m"}]}],
        }
    )
    assert policy.foreign_rules == (STUDENTS,)
    assert policy.sharing[0].by_team == (PartRule(team="students", evict_after_seconds=60),)
    assert policy.differs_by_team
    assert not Policy(foreign_use="end", sharing=(SharingRule(),)).differs_by_team


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"foreign_rules": [{"team": "students", "use": "kill"}]}, "use one of: end, warn"),
        ({"foreign_rules": [{"team": "students", "use": "end", "seconds": 5}]}, "unknown field `seconds`"),
        ({"foreign_rules": [{"use": "end"}]}, "missing required field `team`"),
        ({"foreign_rules": [{"team": "*", "use": "end"}]}, "'*' is no team; what is for all stands in the plain rule"),
        (
            {"foreign_rules": [{"team": "a", "use": "end"}, {"team": "a", "use": "warn"}]},
            "foreign_rules: the team 'a' has 2 rules; leave one",
        ),
        (
            {"foreign_rules": [{"team": "a", "use": "end", "after_seconds": -1}]},
            "foreign_rules[0].after_seconds is -1; it must be 0 or more",
        ),
        (
            {"foreign_rules": [{"team": "a", "use": "warn", "after_seconds": 5}]},
            "foreign_rules[0]: it only warns the team a, so leave after_seconds out",
        ),
        (
            {"team_groups": ["vision"], "foreign_rules": [{"team": "visoin", "use": "end"}]},
            "there is no team 'visoin'; the teams are everyone, vision. A group of the hub is named in team_groups",
        ),
        (
            {"teams": {"vision": ["ada"]}, "sharing": [{"by_team": [{"team": "speech"}]}]},
            "sharing[0].by_team: there is no team 'speech'; the teams are everyone, vision",
        ),
        (
            {"sharing": [{}, {"by_team": [{"team": "a", "evict_after_seconds": -1}]}]},
            "sharing[1].by_team[0].evict_after_seconds is -1; it must be 0 or more",
        ),
        ({"sharing": [{"by_team": [{"team": "a"}, {"team": "a"}]}]}, "sharing[0].by_team: the team 'a' has 2 rules"),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_place(settings: dict[str, object], said: str) -> None:
    """Before anything is loaded."""
    with pytest.raises(InvalidAsk) as refused:
        read_policy(settings)
    assert said in refused.value.message


def test_any_name_may_be_a_group_where_no_team_is_declared() -> None:
    """Under a hub all its groups are teams then."""
    assert Policy(foreign_rules=RULES).problems() == []
    assert Policy(foreign_rules=(ForeignRule(team="everyone", use="end"),), team_groups=("vision",)).problems() == []
