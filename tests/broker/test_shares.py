"""Who uses more than their part of a shared device: told where they are, evicted by the rule of their teams."""

from __future__ import annotations

import pytest

from jupyter_gpu.broker.alerts import Alerts
from jupyter_gpu.broker.shares import Shares
from jupyter_gpu.model import Caller, Holder, PartRule, Policy, Scope, SharingRule, Use, UseKind
from tests.world import GIB, Play

from .ground import Clock

OPER = Caller(name="oper", account="oper", scopes=frozenset({Scope.OPERATE}))
ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))
BY_TEAM = SharingRule(
    evict_after_seconds=60, by_team=(PartRule(team="students", evict_after_seconds=10), PartRule(team="staff"))
)


class Room:
    """Ada's reservation has 20GiB of a device and uses 25GiB."""

    def __init__(
        self, groups: dict[str, tuple[str, ...]] | None, *, server: str | None = None, holder: str = "kernel"
    ) -> None:
        self.clock, self.play = Clock(), Play(1, Policy(sharing=(BY_TEAM,)))
        self.alerts = Alerts(self.clock)
        self.shares = Shares(self.alerts)
        self.play.reservation(
            memory_bytes=20 * GIB, owner="ada", name="train.ipynb", holder=Holder(kind=holder, name="ada/big")
        )
        self.play.world.groups = groups
        use = Use(pid=1, kind=UseKind.HOLDER, workload=1, memory_bytes=25 * GIB, server=server)
        self.play.world.uses["gpu-0"] = (use,)

    def look(self, seconds: int) -> list[str]:
        """Let so many samples come, one a second; what the last one evicts it for."""
        found = []
        for _ in range(seconds):
            self.clock.now += 1
            found = self.shares.look(self.play.world, self.clock.now)
        return [it.detail for it in found]

    def told(self, caller: Caller = OPER) -> str:
        """What somebody is told of it."""
        return " ".join(it.text for it in self.alerts.views(caller))


@pytest.mark.parametrize(
    ("groups", "seconds", "by"),
    [
        (("students",), 10, " (by the rule for team students)"),
        (("staff", "students"), 10, " (by the rule"),
        ((), 60, ""),
    ],
)
def test_a_holder_is_evicted_by_the_rule_of_its_owners_teams(groups: tuple[str, ...], seconds: int, by: str) -> None:
    """What ended it says which rule that was; the plain one needs no word."""
    room = Room({"ada": groups})
    assert room.look(seconds) == []
    (detail,) = room.look(1)
    assert f"of which its part is 20GiB{by}" in detail
    assert ("by the rule" in detail) == bool(by)


@pytest.mark.parametrize("groups", [{"ada": ("staff",)}, {}])
def test_who_is_only_told_or_whose_teams_are_not_known_keeps_it(groups: dict[str, tuple[str, ...]]) -> None:
    """A hub that is away ends nothing."""
    room = Room(groups)
    assert room.look(300) == []
    assert "more than its part" in room.told(ADA)
    assert "It is ended" not in room.told(ADA)


def test_the_time_of_another_rule_begins_when_it_holds() -> None:
    """The hub's word came late: it is told when it is ended, and then has that long."""
    room = Room({})
    room.look(100)
    room.play.world.groups = {"ada": ("students",)}
    assert room.look(10) == []
    assert "It is ended when this lasts 10s." in room.told(ADA)
    assert len(room.look(1)) == 1


def test_it_is_told_in_which_server_of_its_owner_that_is() -> None:
    """A kernel's reservation is named for its notebook; that of a server for the server."""
    room = Room(None, server="small")
    room.look(2)
    assert room.told().startswith("reservation 1 (train.ipynb) of ada, server 'small': It uses 25GiB")
    assert room.told(ADA).startswith("reservation 1 (train.ipynb), server 'small': It uses 25GiB")
    for words in ({"server": ""}, {"server": None}, {"server": "big", "holder": "server"}):
        room = Room(None, **words)
        room.look(2)
        assert room.told().startswith("reservation 1 (train.ipynb) of ada: It uses 25GiB")
