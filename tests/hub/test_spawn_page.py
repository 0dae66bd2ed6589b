"""The spawn page's part that is ours: what it says, that it works without JavaScript, and for whom."""

import re
import time
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest
from jupyterhub.utils import subdomain_hook_idna

from jupyter_gpu.core.status import profile_view
from jupyter_gpu.jupyter import offers, prospects, spawn_page
from jupyter_gpu.jupyter.offers import Choice, Offered, Seen
from jupyter_gpu.jupyter.spawn_page import Page, form, quota_text
from jupyter_gpu.model import OfferView, Profile, QuotaView, WaitingReason

from .ground import play
from .spawn_ground import NONE, ONE, TWO, a_hall, occupy

NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC
HOUR = 3600.0
GIB = 1 << 30
PART = Profile(name="part", title="A part", devices=1, memory_bytes=20 * GIB)
MIG = Profile(name="mig", title="A slice", devices=1, device_class="mig-3g.40gb")
EVIL = "\"><script>alert(1)</script>&'{{x}}"


@pytest.fixture(autouse=True)
def clock_of_utc(monkeypatch):
    """Times are said by the clock of the hub's machine."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def an_offer(profile: Profile, **more: Any) -> OfferView:
    """What the broker says of a profile that would start now, unless more is said."""
    shown = profile_view(profile)
    words = {"starts_now": True, "free": 2, "kin": 2} if profile.devices else {"starts_now": True}
    return OfferView(profile=shown, **words | more)


def waits(profile: Profile = ONE, reason: WaitingReason = WaitingReason.DEVICES, **more: Any) -> OfferView:
    """One that would wait."""
    return an_offer(profile, **{"starts_now": False, "waiting": reason, "free": 0, "ahead": 0} | more)


def seen(*profiles: Profile, offers: Mapping[str, OfferView] = {}, **more: Any) -> Seen:
    """What somebody sees who may use these; `offers` by the names of profiles, all others start now."""
    found = [Offered(it, {"everyone": offers.get(it.name, an_offer(it))}) for it in profiles or (ONE, TWO, NONE)]
    return Seen(tuple(found), **{"teams": ("everyone",)} | more)


def a_page(it: Seen | None = None, chosen: Profile | None = None, **more: Any) -> Page:
    """What is shown."""
    it = it or seen()
    return Page(seen=it, chosen=Choice(chosen or it.profiles[0]), now=NOON, **more)


def an_away_page(*profiles: Profile, **more: Any) -> Page:
    """What is shown while the broker does not answer."""
    known = Seen(tuple(Offered(it) for it in profiles or (ONE, TWO, NONE)), ("everyone",))
    return a_page(known, answers=False, **more)


class Reader(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.of: dict[str, str] = {}
        self._ids: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "input":
            self.open.append(tag)
            self._ids.append(dict(attrs).get("id") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._ids.pop()

    def handle_data(self, data: str) -> None:
        if "script" in self.open or "style" in self.open:
            return
        self.text += data
        for name in self._ids:
            self.of[name] = self.of.get(name, "") + data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


def read(page: Page) -> Reader:
    """As a browser would."""
    return Reader(form(page))


def checked(page: Page) -> list[str | None]:
    """What is chosen from the beginning."""
    return [it["value"] for it in read(page).all("input") if "checked" in it]


# -- a form that everybody can use


def test_every_choice_has_its_label_and_its_description_and_all_of_them_a_name():
    """A fieldset with a legend, radio buttons with labels, and what each gives tied to it for screen readers."""
    page = read(a_page(seen(teams=("a", "b"), teams_differ=True)))
    inputs, ids = page.all("input") + page.all("select"), [it["id"] for _, it in page.elements if it.get("id")]

    assert [it.get("type") for it in inputs] == ["radio", "radio", "radio", "checkbox", None]
    assert len(ids) == len(set(ids))
    assert {it["for"] for it in page.all("label")} == {it["id"] for it in inputs}
    assert {it["aria-describedby"] for it in inputs} <= set(ids)
    assert len(page.all("legend")) == len(page.all("fieldset")) == 1
    assert page.all("section") == [{"class": "jupyter-gpu", "aria-labelledby": "jupyter-gpu-left"}]
    assert [it["value"] for it in page.all("input")] == ["one", "two", "none", "yes"]
    assert not [it for _, it in page.elements if "tabindex" in it or any(name.startswith("on") for name in it)]


def test_one_is_chosen_from_the_beginning():
    """What was chosen last, or the usual: the form can be sent as it stands."""
    assert checked(a_page(chosen=TWO)) == ["two"]
    assert checked(a_page()._replace(chosen=Choice(ONE, waits=True))) == ["one", "yes"]


def test_without_javascript_all_is_said_and_nothing_is_hidden():
    """The script only renews texts that are there already."""
    page = form(a_page())
    plain = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)

    assert Reader(plain).text == Reader(page).text
    assert "hidden" not in plain
    assert "2 of 2 free now" in plain


def test_what_comes_from_elsewhere_is_text_and_nothing_else():
    """Names of profiles, groups, rules and holders, and the broker's words, may hold anything."""
    profile = Profile(name=EVIL, title=EVIL, description=EVIL, device_class=EVIL)
    by_team = {EVIL: waits(profile, WaitingReason.QUOTA, why=EVIL), "other": an_offer(profile)}
    quotas = (QuotaView(rule=EVIL, devices_allowed=1),)
    page = form(a_page(Seen((Offered(profile, by_team),), (EVIL, "other"), teams_differ=True, quotas=quotas)))

    assert "<script>alert" not in page
    read_back = Reader(page)
    assert read_back.all("input")[0]["value"] == EVIL
    assert read_back.all("option")[0]["value"] == EVIL
    assert read_back.text.count(EVIL) >= 8
    assert len(read_back.all("script")) == 1


def test_titles_in_any_script_are_laid_out_by_their_own():
    """From right to left where they are."""
    arabic = Profile(
        name="ar", title="\u0628\u0637\u0627\u0642\u0629", description="\u0644\u0644\u062a\u0639\u0644\u0645", devices=1
    )
    page = read(a_page(seen(arabic)))

    assert page.all("label")[0]["dir"] == "auto"
    assert [it for it in page.all("span") if it.get("dir") == "auto"]
    assert arabic.title in page.text


def test_thirty_profiles_are_thirty_choices():
    """Each with its own label; what is free is named of a few."""
    many = tuple(Profile(name=f"p{n}", title=f"Kind {n}", devices=1) for n in range(30))
    page = read(a_page(seen(*many), chosen=many[17]))

    assert len(page.all("label")) == 31
    assert checked(a_page(seen(*many), chosen=many[17])) == ["p17"]
    assert page.of["jupyter-gpu-news"] == "Free for you now: Kind 0, Kind 1, Kind 2 and 27 more."


def test_who_may_use_no_profile_is_told_so():
    """Beside the form that the spawner has."""
    page = read(a_page(Seen(()), chosen=NONE))

    assert page.all("input") == []
    assert page.of["jupyter-gpu-news"].startswith("No GPU is offered to you here, so your server will see none.")


def test_a_line_is_offered_only_where_there_is_something_to_wait_for():
    """With what happens then, and how to leave."""
    assert [it["type"] for it in read(a_page(seen(NONE))).all("input")] == ["radio"]

    said = read(a_page(seen(ONE))._replace(longest_wait_seconds=5400)).of["jupyter-gpu-wait-about"]
    assert "your place and the expected start" in said
    assert "at the latest after 1h30m" in said
    assert "to leave the line, stop the server" in said


def test_a_team_is_asked_for_only_where_it_matters():
    """Several, of which the rules know: then for each what would come of it, where that differs."""
    by_team = {"speech": waits(why="Your team speech holds all.", reason=WaitingReason.QUOTA), "vision": an_offer(ONE)}
    differs = Seen((Offered(ONE, by_team), Offered(NONE, {})), ("speech", "vision"), teams_differ=True)
    page = read(a_page(differs)._replace(chosen=Choice(ONE, team="vision")))

    assert [(it["value"], "selected" in it) for it in page.all("option")] == [("speech", False), ("vision", True)]
    assert page.of["jupyter-gpu-0-free"] == (
        "For team speech: 0 of 2 free now. Your team speech holds all. For team vision: 2 of 2 free now."
    )
    assert read(a_page(differs._replace(teams_differ=False))).all("select") == []
    usual = read(a_page(differs))
    assert [it["value"] for it in usual.all("option") if "selected" in it] == ["speech"]


# -- what is free


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (an_offer(ONE, free=2, kin=4), "2 of 4 free now."),
        (waits(expected_start_at=NOON + 2 * HOUR), "0 of 2 free now; expected at about 14:00."),
        (waits(expected_start_at=NOON + 100), "0 of 2 free now; expected within about 2 min."),
        (waits(), "0 of 2 free now; when it would start is not known."),
        (waits(ahead=1), "0 of 2 free now; 1 is before you in line, and when it would start is not known."),
        (waits(ahead=3, free=1), "1 of 2 free now; 3 are before you in line, and when it would start is not known."),
        (
            waits(reason=WaitingReason.CLEARING, yielding=1, expected_start_at=NOON + 150),
            "0 of 2 free now; a running job makes room within about 3 min.",
        ),
        (
            waits(reason=WaitingReason.CLEARING, yielding=2, expected_start_at=NOON + 1800),
            "0 of 2 free now; 2 running jobs make room at about 12:30.",
        ),
        (waits(reason=WaitingReason.CLEARING), "0 of 2 free now; one is being made ready."),
        (waits(reason=WaitingReason.HOLD, free=2), "2 of 2 free now; they are held for others for now."),
        (waits(reason=WaitingReason.DRIVER), "None can be used now. An admin has to look at it."),
        (waits(reason=WaitingReason.ENGINE), "None can be used now. An admin has to look at it."),
        (waits(kin=0), "There is no such GPU at the moment."),
        (
            waits(reason=WaitingReason.QUOTA, free=1, why="You hold 1 of the 1 GPU allowed at once, and this takes 1."),
            "1 of 2 free now. You hold 1 of the 1 GPU allowed at once, and this takes 1.",
        ),
        (
            waits(reason=WaitingReason.QUOTA, free=2, never=True, why="You may have 1 GPU at once, and this takes 2."),
            "2 of 2 free now. You may have 1 GPU at once, and this takes 2. So it would never start.",
        ),
        (an_offer(ONE, starts_now=False, refused="no GPU has 200GiB"), "No GPU has 200GiB."),
        (an_offer(NONE), "Starts at once. Each notebook can reserve a GPU when it needs one."),
        (an_offer(Profile(name="cpu", devices=0, for_kernels=False)), "Starts at once."),
    ],
)
def test_what_would_come_of_each_is_said_in_plain_words(offer, said):
    """As the broker foresees it: free, for whom it makes room, by when, or why not."""
    (shown,) = offers.collate({"everyone": [offer]})
    page = read(a_page(Seen((shown,))))

    assert page.of["jupyter-gpu-0-free"] == said


def test_times_carry_their_instant_for_the_readers_clock():
    """The page's machine may stand in another time zone."""
    page = read(a_page(seen(ONE, offers={"one": waits(expected_start_at=NOON + 2 * HOUR)})))

    assert {"datetime": "2026-01-01T14:00:00Z", "data-before": "at about "} in page.all("time")


def test_what_is_free_is_said_before_the_choices():
    """A screen reader hears it when it changes."""
    nothing = seen(offers={"one": waits(), "two": waits(TWO)})
    assert read(a_page()).of["jupyter-gpu-news"] == "Free for you now: One GPU, Two GPUs."
    assert read(a_page(nothing)).of["jupyter-gpu-news"] == "Nothing with a GPU starts at once now."
    assert "jupyter-gpu-news" not in read(a_page(seen(NONE))).of


def test_a_broker_that_does_not_answer_is_said_and_a_server_without_gpus_still_starts():
    """What needs it is greyed, with the reason; what does not is chosen."""
    page = read(an_away_page(chosen=TWO))

    assert page.of["jupyter-gpu-0-free"] == "It needs the GPU service, which does not answer now."
    assert page.of["jupyter-gpu-news"] == (
        "The GPU service does not answer now. A server without a GPU starts all the same."
    )
    assert page.of["jupyter-gpu-2-free"].startswith("Starts at once.")
    assert [it["value"] for it in page.all("input") if "disabled" in it] == ["one", "two"]
    assert checked(an_away_page(chosen=TWO)) == ["none"]


def test_where_all_needs_the_broker_nothing_is_greyed():
    """There would be nothing left to choose; a try is worth it."""
    page = read(an_away_page(ONE, TWO, chosen=TWO))

    assert [it for it in page.all("input") if "disabled" in it] == []
    assert checked(an_away_page(ONE, TWO, chosen=TWO)) == ["two"]
    assert page.of["jupyter-gpu-news"] == "The GPU service does not answer now. Try again in a minute."


def test_what_could_never_start_cannot_be_chosen():
    """Beyond a quota or refused; as long as one team of theirs could have it, it can."""
    never = waits(TWO, WaitingReason.QUOTA, never=True, why="You may have 1 GPU at once, and this takes 2.")
    page = a_page(seen(offers={"two": never}), chosen=TWO)
    assert [it["value"] for it in read(page).all("input") if "disabled" in it] == ["two"]
    assert checked(page) == ["one"]

    one_team = Seen((Offered(TWO, {"a": never, "b": waits(TWO)}),), ("a", "b"), teams_differ=True)
    assert [it for it in read(a_page(one_team)).all("input") if "disabled" in it] == []


def test_what_a_profile_gives_is_said_in_words():
    """Number, class, part and length."""
    long = Profile(name="l", devices=2, device_class="a100-80gb", duration_seconds=5400)
    assert offers.what_of(long) == "2 GPUs, a100-80gb, for 1h30m"
    assert offers.what_of(PART) == "20GiB of 1 GPU"
    assert offers.what_of(NONE) == "no GPU of its own"


# -- what is refused


NOT_NOW = "“Two GPUs” is not free now, so your server was not started."
IN_VAIN = "“Two GPUs” was not free within 1h of waiting in line, so your server was not started."
TICK = "tick “Wait in line if none is free” and start again: your server then starts by itself"
WHO = "No GPU is free: GPU 0 runs job 12."


@pytest.mark.parametrize(
    ("offer", "waited", "said", "first_way"),
    [
        (
            waits(TWO, why=WHO, expected_start_at=NOON + 2 * HOUR),
            None,
            f"{NOT_NOW} {WHO} Expected at about 14:00.",
            TICK,
        ),
        (
            waits(TWO, WaitingReason.CLEARING, why="A GPU is freed.", yielding=1, expected_start_at=NOON + 150),
            None,
            f"{NOT_NOW} A GPU is freed. A running job makes room within about 3 min.",
            TICK,
        ),
        (
            waits(TWO, why=WHO, ahead=2),
            3600,
            f"{IN_VAIN} {WHO} 2 are before you in line, and when it would start is not known.",
            "start again to wait on",
        ),
        (an_offer(TWO), None, f"{NOT_NOW} It is free again.", "start again"),
        (None, None, NOT_NOW, "try again in a minute"),
    ],
)
def test_a_refusal_says_what_happened_why_and_what_to_do_each_once(offer, waited, said, first_way):
    """For people who have never heard of leases."""
    found = None if offer is None else seen(ONE, TWO, NONE, offers={"two": offer})
    message, ways = prospects.not_now(Choice(TWO), found, NOON, waited)

    assert (message, ways[0]) == (said, first_way)


def test_only_what_would_really_start_is_named_instead():
    """An alternative that is not free either is none."""
    found = seen(ONE, TWO, MIG, NONE, offers={"mig": waits(MIG)})

    assert prospects.instead(Choice(TWO), found) == (
        "choose “One GPU” (1 GPU, for 1h), which starts at once",
        "choose “No GPU”, which starts at once",
    )
    assert prospects.instead(Choice(NONE), seen(NONE)) == ()


# -- what is left


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        (QuotaView(rule="user ana", devices_held=1, devices_allowed=2), "user ana: 1 of 2 GPUs held, 1 left"),
        (
            QuotaView(rule="team vision", used_ms=5_400_000, allowed_ms=144_000_000, window_seconds=604_800),
            "team vision: 1.5 of 40 GPU-hours used in 7d, 38.5 left",
        ),
        (
            QuotaView(rule="x", used_ms=9, allowed_ms=0, available_again_at=NOON + HOUR),
            "x: 0 of 0 GPU-hours used, 0 left; some are available again at 13:00",
        ),
        (QuotaView(rule="x", devices_held=3, devices_allowed=2), "x: 3 of 2 GPUs held, 0 left"),
        (QuotaView(rule="x"), "x"),
    ],
)
def test_a_bound_is_said_with_what_is_left_of_it(quota, said):
    """Of devices at once and of hours in a window."""
    assert quota_text(quota, NOON) == said


def test_own_and_team_quota_and_the_groups_that_they_go_by_are_shown():
    """With when the groups were looked up, so that a change that is not seen yet is understood."""
    quotas = (QuotaView(rule="you", devices_held=0, devices_allowed=2),)
    page = read(a_page(seen(quotas=quotas, teams=("vision", "everyone"), teams_at=NOON - 60)))

    assert "You: 0 of 2 GPUs held, 2 left" in page.of["jupyter-gpu-quotas"]
    assert "Your teams: vision, everyone (groups as of 11:59)" in page.of["jupyter-gpu-quotas"]
    by_hub = read(an_away_page(groups=("vision",)))
    assert "Your teams: vision (groups as of 12:00)" in by_hub.of["jupyter-gpu-quotas"]


# -- with a broker behind it


def test_the_page_shows_what_the_broker_says_to_this_person(tmp_runtime):
    """Live, under their own name, and what they chose last is chosen again."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await occupy(serving, devices=1)
            page = Reader(await hall.spawner("ana", "vision", gpu_profile="two").get_options_form())

            assert page.of["jupyter-gpu-0-free"] == "1 of 2 free now."
            assert re.match("1 of 2 free now; expected (tomorrow )?at about", page.of["jupyter-gpu-1-free"])
            assert [it["value"] for it in page.all("input")] == ["one", "two", "none", "vision", "yes"]
            assert [it["value"] for it in page.all("input") if "checked" in it] == ["two"]
            assert "For a <notebook>" in page.text

    play(story)


def test_it_leads_to_the_page_of_the_service():
    """In the same tab, by words that say where to; without such a page there is no link."""
    page = an_away_page(all_gpus="/j/services/gpu/?a=1&b=2")

    (link,) = Reader(form(page)).all("a")

    assert (link["href"], "target" in link) == ("/j/services/gpu/?a=1&b=2", False)
    assert Reader(form(page)).of["jupyter-gpu-all"] == "See all GPUs and your work"
    assert "&amp;b=2" in form(page)
    assert Reader(form(an_away_page())).all("a") == []


@pytest.mark.parametrize(
    ("settings", "link"),
    [
        ({}, "/services/jupyter-gpu/"),
        (
            {
                "subdomain_host": "https://hub.example:8443",
                "domain": "hub.example",
                "subdomain_hook": subdomain_hook_idna,
            },
            "https://jupyter-gpu--service.hub.example:8443/services/jupyter-gpu/",
        ),
    ],
)
def test_the_way_to_the_page_is_that_of_the_hub(tmp_runtime, settings, link):
    """Where each user has a host of their own, so has the service."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_page="/services/jupyter-gpu/") as (hall, _):
            spawner = hall.spawner("ana")
            spawner.user.settings.update(settings)
            (found,) = Reader(await spawner.get_options_form()).all("a")
            assert found["href"] == link

    play(story)


def test_a_choice_that_is_gone_is_the_usual_one_again(tmp_runtime):
    """The profile of the last start may have been taken away."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, _):
            page = Reader(await hall.spawner("ana", gpu_profile="gone").get_options_form())
            assert [it["value"] for it in page.all("input") if "checked" in it] == ["one"]

    play(story)


def test_the_script_asks_the_page_itself_and_starts_nothing():
    """A query on the spawn page's address is an order to start; the script leaves it out."""
    script = spawn_page._SCRIPT
    assert "fetch(window.location.pathname," in script
    assert "location.href" not in script
    assert "location.search" not in script
