"""The spawn page's part that is ours: what it says, that it works without JavaScript, and for whom."""

import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from jupyter_gpu.jupyter import offers, spawn_page
from jupyter_gpu.jupyter.offers import Choice, Free
from jupyter_gpu.jupyter.spawn_page import Page, form, quota_text
from jupyter_gpu.model import Condition, DeviceView, Profile, QuotaView, Status

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


def a_device(index: int = 0, **more: Any) -> DeviceView:
    """A whole free GPU."""
    words = {
        "uuid": f"GPU-{index}",
        "index": index,
        "number": str(index),
        "name": "Test",
        "device_class": "a100-80gb",
        "pool": "local",
        "simulated": False,
        "cordoned": False,
        "memory_total_bytes": 80 * GIB,
    }
    return DeviceView(**words | more)


def held(index: int, hours: float | None = 2.0, **more: Any) -> DeviceView:
    """One that somebody has for so long."""
    return a_device(index, workloads=(1,), free_at=None if hours is None else NOON + hours * HOUR, **more)


def a_status(*devices: DeviceView, **more: Any) -> Status:
    """What somebody sees."""
    words = {
        "revision": 1,
        "store_id": "s",
        "at": NOON,
        "caller": "ana",
        "simulated": False,
        "workloads": (),
        "quotas": (),
        "waiting": {},
    }
    return Status(devices=devices, **words | more)


def a_page(*profiles: Profile, chosen: Profile | None = None, **more: Any) -> Page:
    """What is shown to somebody who may use these."""
    offered = profiles or (ONE, TWO, NONE)
    return Page(offers=offered, chosen=Choice(chosen or offered[0]), now=NOON, **more)


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


# -- a form that everybody can use


def test_every_choice_has_its_label_and_its_description_and_all_of_them_a_name():
    """A fieldset with a legend, radio buttons with labels, and what each gives tied to it for screen readers."""
    page = read(a_page(status=a_status(a_device())))
    inputs, ids = page.all("input"), [it["id"] for _, it in page.elements if it.get("id")]

    assert [it["type"] for it in inputs] == ["radio", "radio", "radio", "checkbox"]
    assert len(ids) == len(set(ids))
    assert {it["for"] for it in page.all("label")} == {it["id"] for it in inputs}
    assert {it["aria-describedby"] for it in inputs} <= set(ids)
    assert len(page.all("legend")) == len(page.all("fieldset")) == 1
    assert page.all("section")[0:1] in ([], [{"class": "jupyter-gpu", "aria-labelledby": "jupyter-gpu-left"}])
    assert [it["value"] for it in inputs] == ["one", "two", "none", "yes"]
    assert not [it for _, it in page.elements if "tabindex" in it or any(name.startswith("on") for name in it)]


def test_one_is_chosen_from_the_beginning():
    """What was chosen last, or the usual: the form can be sent as it stands."""
    checked = [it["value"] for it in read(a_page(chosen=TWO)).all("input") if "checked" in it]
    assert checked == ["two"]

    page = a_page()._replace(chosen=Choice(ONE, waits=True))
    assert [it["value"] for it in read(page).all("input") if "checked" in it] == ["one", "yes"]


def test_without_javascript_all_is_said_and_nothing_is_hidden():
    """The script only renews texts that are there already."""
    page = form(a_page(status=a_status(a_device())))
    plain = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)

    assert Reader(plain).text == Reader(page).text
    assert "hidden" not in plain
    assert "1 of 1 free now" in plain


def test_what_comes_from_elsewhere_is_text_and_nothing_else():
    """Names of profiles, groups, rules and holders may hold anything."""
    profile = Profile(name=EVIL, title=EVIL, description=EVIL, device_class=EVIL)
    status = a_status(quotas=(QuotaView(rule=EVIL, devices_allowed=1),), teams=(EVIL,), teams_at=NOON)
    page = form(a_page(profile, status=status))

    assert "<script>alert" not in page
    read_back = Reader(page)
    assert read_back.all("input")[0]["value"] == EVIL
    assert read_back.text.count(EVIL) >= 5
    assert len(read_back.all("script")) == 1


def test_nobody_is_asked_where_nothing_is_offered():
    """The hub shows its own form then, or none."""
    assert form(a_page()._replace(offers=())) == ""


def test_a_line_is_offered_only_where_there_is_something_to_wait_for():
    """With what happens then, and how to leave."""
    assert [it["type"] for it in read(a_page(NONE)).all("input")] == ["radio"]

    said = read(a_page(ONE)._replace(longest_wait_seconds=5400)).of["jupyter-gpu-wait-about"]
    assert "your place and the expected start" in said
    assert "at the latest after 1h30m" in said
    assert "to leave the line, stop the server" in said


# -- what is free


@pytest.mark.parametrize(
    ("profile", "devices", "said"),
    [
        (ONE, [a_device(0), a_device(1), held(2), held(3)], "2 of 4 free now."),
        (ONE, [held(0, 3), held(1, 2)], "0 of 2 free now; free at about 14:00."),
        (TWO, [a_device(0), held(1, 2), held(2, 3)], "1 of 3 free now; free at about 14:00."),
        (TWO, [held(0, 2), held(1, 3)], "0 of 2 free now; free at about 15:00."),
        (ONE, [held(0, None)], "0 of 1 free now; when more are free is not known."),
        (ONE, [], "There is no such GPU at the moment."),
        (MIG, [a_device(0)], "There is no such GPU at the moment."),
        (MIG, [a_device(0), a_device(1, device_class="mig-3g.40gb")], "1 of 1 free now."),
        (ONE, [a_device(0, cordoned=True), a_device(1, condition=Condition.HOT)], "0 of 2 free now; when more"),
        (PART, [a_device(0)], "There is no such GPU at the moment."),
        (PART, [held(0, shareable=True, memory_leased_bytes=40 * GIB)], "1 of 1 free now."),
        (PART, [held(0, shareable=True, memory_leased_bytes=70 * GIB)], "0 of 1 free now; free at about 14:00."),
        (PART, [held(0, shareable=True)], "0 of 1 free now; free at about 14:00."),
        (NONE, [], "Starts at once. Kernels reserve a GPU when they need one."),
    ],
)
def test_what_is_free_is_said_of_each_profile(profile, devices, said):
    """Of its class and its memory, well, and not held; else when so many as it wants can be expected."""
    page = read(a_page(profile, status=a_status(*devices)))

    assert page.of["jupyter-gpu-0-free"].startswith(said)


def test_times_carry_their_instant_for_the_readers_clock():
    """The page's machine may stand in another time zone."""
    (time,) = read(a_page(ONE, status=a_status(held(0)))).all("time")
    assert time == {"datetime": "2026-01-01T14:00:00Z"}


def test_a_broker_that_does_not_answer_is_said_and_a_server_without_gpus_still_starts():
    """The form is there in any case."""
    page = read(a_page())

    assert page.of["jupyter-gpu-0-free"] == "How many are free is not known now."
    assert "The GPU service does not answer now." in page.of["jupyter-gpu-news"]
    assert page.of["jupyter-gpu-2-free"].startswith("Starts at once.")


def test_what_a_profile_gives_is_said_in_words():
    """Number, class, part and length."""
    long = Profile(name="l", devices=2, device_class="a100-80gb", duration_seconds=5400)
    assert offers.what_of(long) == "2 GPUs, a100-80gb, for 1h30m"
    assert offers.what_of(PART) == "20GiB of 1 GPU"
    assert offers.what_of(NONE) == "no GPU of its own"


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ([a_device(0), held(1)], "Two GPUs is expected to be free at about 14:00. Free now: One GPU (1 GPU, for 1h)."),
        ([held(0), held(1)], "Two GPUs is expected to be free at about 14:00."),
        ([a_device(0, device_class="mig-3g.40gb")], "Free now: One GPU (1 GPU, for 1h), A slice (1 GPU, mig-3g.40gb)."),
    ],
)
def test_only_what_would_really_start_is_named_instead(devices, said):
    """An alternative that is not free either is none."""
    found = offers.alternatives(TWO, [ONE, TWO, MIG, NONE], a_status(*devices), NOON)

    assert found == f"{said} No GPU starts at once."
    assert offers.alternatives(TWO, [ONE], None, NOON) == ""
    assert Free().is_now(ONE) is False


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
    quotas = (QuotaView(rule="each user", devices_held=0, devices_allowed=2),)
    status = a_status(quotas=quotas, teams=("vision", "everyone"), teams_at=NOON - 60)
    page = read(a_page(status=status))

    assert "each user: 0 of 2 GPUs held, 2 left" in page.of["jupyter-gpu-quotas"]
    assert "Your teams: vision, everyone (groups as of 11:59)" in page.of["jupyter-gpu-quotas"]
    by_hub = read(a_page(groups=("vision",), groups_at=NOON))
    assert "Your teams: vision (groups as of 12:00)" in by_hub.of["jupyter-gpu-quotas"]


# -- with a broker behind it


def test_the_page_shows_what_the_broker_says_to_this_person(tmp_runtime):
    """Live, under their own name, and what they chose last is chosen again."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await occupy(serving, devices=1)
            page = Reader(await hall.spawner("ana", "vision", gpu_profile="two").get_options_form())

            assert page.of["jupyter-gpu-0-free"] == "1 of 2 free now."
            assert page.of["jupyter-gpu-1-free"].startswith("1 of 2 free now; free at about")
            assert [it["value"] for it in page.all("input")] == ["one", "two", "none", "vision", "yes"]
            assert [it["value"] for it in page.all("input") if "checked" in it] == ["two"]
            assert "For a <notebook>" in page.text

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
