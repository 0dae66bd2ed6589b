"""GET /offers: what each profile would come to now, for whom it is asked, and that nothing is asked by it."""

from typing import Any

import pytest

from jupyter_gpu.core import dry_run as core_dry_run
from jupyter_gpu.core.decide import decide
from jupyter_gpu.core.offers import offer
from jupyter_gpu.model import OfferView, Policy, Profile, QuotaRule, Submit, World
from tests.conftest import Places

from .api_ground import an_api, play

PROFILES = (
    Profile(name="none", title="No GPU", devices=0),
    Profile(name="one", title="One GPU", devices=1, duration_seconds=3600),
    Profile(name="graces", devices=1, users=("grace",)),
    Profile(name="many", devices=64),
)


def by_name(page: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The offers of an answer."""
    return {it["profile"]["name"]: it for it in page["items"]}


def test_one_sees_what_is_ones_own_and_what_it_would_come_to(tmp_runtime: Places) -> None:
    """In the admin's order; before and after somebody else takes what there is."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, policy=Policy(profiles=PROFILES)) as broker:
            ada, grace = broker.as_("ada"), broker.as_("grace")
            before = (await ada.get("/offers")).json()
            assert list(by_name(before)) == ["none", "one", "many"]
            assert by_name(before)["one"]["starts_now"]
            assert "cannot be had" in by_name(before)["many"]["refused"]
            assert (before["teams"], before.get("teams_differ")) == (["everyone"], None)

            await grace.post("/workloads", json={"kind": "reservation", "profile": "graces"})
            after = by_name((await ada.get("/offers")).json())["one"]
            assert (after["starts_now"], after["waiting"], after["ahead"]) == (False, "devices", 0)
            assert after["expected_start_at"] > broker.loop.now()
            assert (await ada.get("/workloads?mine=true")).json()["items"] == []

    play(story)


def test_who_only_asks_what_is_theirs_costs_no_decision(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same profiles and teams, and nothing is said of what would come; of one by its name only that is tried."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, policy=Policy(profiles=PROFILES)) as broker:
            ada = broker.as_("ada")
            whole = (await ada.get("/offers")).json()
            tried: list[str | None] = []

            def counted(world: World, command: Submit, now: float) -> Any:
                tried.append(command.profile)
                return decide(world, command, now)

            monkeypatch.setattr(core_dry_run, "decide", counted)
            light = (await ada.get("/offers?trial=false")).json()
            assert tried == []
            assert [it["profile"] for it in light["items"]] == [it["profile"] for it in whole["items"]]
            assert (light["teams"], light["tried"], "tried" in whole) == (whole["teams"], False, False)
            assert [set(it) for it in light["items"]] == [{"profile", "starts_now"}] * 3

            one = (await ada.get("/offers?profile=one")).json()
            assert tried == ["one"]
            assert one["items"] == [it for it in whole["items"] if it["profile"]["name"] == "one"]
            assert (await ada.get("/offers?profile=graces")).json()["items"] == []

    play(story)


def test_it_is_counted_for_the_team_that_is_named(tmp_runtime: Places) -> None:
    """A team that one is not in is refused as it would be at the ask; whether teams matter is said."""
    quotas = (QuotaRule(team="speech", devices=0),)
    policy = Policy(profiles=PROFILES, quotas=quotas, teams={"speech": ("ada",), "vision": ("ada",)})

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, policy=policy) as broker:
            ada = broker.as_("ada")
            usual, vision, others = [
                (await ada.get(f"/offers{query}")).json() for query in ("", "?team=vision", "?team=audio")
            ]
            assert (usual["teams"], usual["teams_differ"]) == (["speech", "vision"], True)
            assert "the quota of team speech" in by_name(usual)["one"]["refused"]
            assert by_name(vision)["one"]["starts_now"]
            assert "is not in the team 'audio'" in by_name(others)["one"]["refused"]
            assert (await ada.get("/offers?teem=vision")).status_code == 422

    play(story)


def test_profiles_that_ask_for_the_same_are_decided_once(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty names for three kinds of asks are three steps, and each is answered under its own name."""
    decided: list[str] = []

    def counted(world: World, profile: Profile, *words: Any, **more: Any) -> OfferView:
        decided.append(profile.name)
        return offer(world, profile, *words, **more)

    monkeypatch.setattr("jupyter_gpu.broker.api.offers.offer", counted)
    profiles = tuple(Profile(name=f"p{n}", title=f"Kind {n}", devices=n % 3) for n in range(30))

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, policy=Policy(profiles=profiles)) as broker:
            found = by_name((await broker.as_("ada").get("/offers")).json())
            assert [it["profile"]["title"] for it in found.values()] == [it.title for it in profiles]

    play(story)
    assert decided == ["p0", "p1", "p2"]
