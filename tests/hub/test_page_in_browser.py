"""The page at the service's address, in a real browser at a real hub: who sees what, what they can do, what goes on."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from functools import partial
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect, sync_playwright

from jupyter_gpu.model import Ask, Holder, JobSpec, Kind, SubmitBody
from tests.stories.lab import _FLAGS, CHROMIUM, NO_CHROMIUM, STEP_MS

from .front import a_front
from .hub import CONTRACTOR, OPERATOR, PASSWORD, POLICY, STRANGER, a_hub, until

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(400),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
]

#: Where somebody wants pictures; the tests' own environment is clean.
expect.set_options(timeout=STEP_MS)
_PICTURES = os.environ.get("JUPYTER_GPU_PICTURES")
SERVICE = "services/jupyter-gpu/"
WIDE, NARROW = {"width": 1300, "height": 900}, {"width": 380, "height": 900}
#: A stream's listener is looked at anew after a minute, and what the hub says of a token is kept for two seconds.
SIGNED_OUT_MS = 120_000


@pytest.fixture(scope="module")
def the_hub():
    """Two GPUs, so that they are soon taken."""
    with (
        tempfile.TemporaryDirectory(prefix="jgp-", ignore_cleanup_errors=True) as folder,
        a_hub(Path(folder) / "hub", base="/lab/", devices=2) as hub,
    ):
        yield hub


@pytest.fixture(scope="module")
def front(the_hub):
    """The address that people type."""
    with a_front(the_hub) as it:
        yield it


@pytest.fixture
def hub(the_hub):
    """The hub with nobody's work on it, and all GPUs in service."""
    yield the_hub
    operator = the_hub.as_(OPERATOR)
    for device in ("0", "1"):
        operator.uncordon(device)
    the_hub.clear()


@pytest.fixture
def log_in(front, log_in_at):
    """A browser of their own for each person, who has just logged in at the hub of all tests."""
    return partial(log_in_at, front)


@pytest.fixture
def log_in_at():
    """The same, at any hub's front; nothing of the page may be wrong in it."""
    faults: list[str] = []
    with contextlib.ExitStack() as stack:
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=_FLAGS)
        stack.callback(browser.close)

        def enter(front, name, path=SERVICE, **words):
            context = browser.new_context(**{"viewport": WIDE, **words})
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(STEP_MS)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("console", lambda said: "Content Security Policy" in said.text and faults.append(said.text))
            sign_in(page, front, name, path)
            return page

        yield enter
    assert faults == []


def sign_in(page, front, name, path=SERVICE):
    """At the hub's own login, on the way to the page."""
    page.goto(f"{front.url}{path}")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"**/{path}")


def row_of(page, it):
    """What the page has of one's own work."""
    return page.locator(f'[data-gpu="workload"][data-id="{it.id}"]')


def all_row_of(page, it):
    """What an operator's page has of somebody's work."""
    return page.locator(f'[data-gpu="all-row"][data-id="{it.id}"]')


def part(page, name):
    """An element of the page, by its name in `data-gpu`."""
    return page.locator(f'[data-gpu="{name}"]')


def picture(page, name):
    """Take one where somebody asked for pictures."""
    if _PICTURES:
        page.screenshot(path=f"{_PICTURES}/{name}.png", full_page=True)


def job(folder: Path, said: str, *, name: str = "train", devices: int = 1) -> SubmitBody:
    """A job that says something and runs on until it is ended."""
    code = f"import time; print({said!r}, flush=True); time.sleep(600)"
    spec = JobSpec(argv=(sys.executable, "-c", code), folder=str(folder))
    return SubmitBody(kind=Kind.JOB, name=name, ask=Ask(devices=devices), spec=spec)


def reserve(devices: int = 1) -> SubmitBody:
    """A reservation that nobody holds yet."""
    return SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=devices, duration_seconds=3600))


def ask(page, path, *, method="GET", body=None, xsrf=None):
    """What the API answers to a page, with what the page was told: the status and the text."""
    return page.evaluate(
        """async ([path, method, body, xsrf]) => {
            const told = JSON.parse(document.getElementById('jp-gpu-data').textContent);
            const answer = await fetch(told.api + path, {method, body, headers: {'X-XSRFToken': xsrf ?? told.xsrf}});
            return [answer.status, await answer.text()];
        }""",
        [path, method, body, xsrf],
    )


# -- who sees what


def test_the_hubs_menu_leads_to_a_page_that_lives(hub, log_in, tmp_path):
    """What was begun elsewhere appears without a reload, its log is read, and it is cancelled."""
    page = log_in("ana", path="hub/home")
    page.get_by_role("button", name="Services").click()
    page.get_by_role("link", name="jupyter-gpu").click()
    page.wait_for_url(f"**/{SERVICE}")
    expect(part(page, "device")).to_have_count(2)
    expect(page).to_have_title(re.compile("2 of 2 free"))
    expect(part(page, "tab-operate")).to_have_count(0)

    ran = hub.as_("ana").submit(job(tmp_path, "epoch 1 of ana", name="digits"))
    row = row_of(page, ran)
    expect(row).to_contain_text("digits")
    expect(page).to_have_title(re.compile("1 of 2 free"))
    row.locator('[data-gpu="log-open"]').click()
    expect(page.get_by_role("dialog")).to_contain_text("epoch 1 of ana")
    picture(page, "page-log")
    part(page, "log-close").click()

    row.locator('[data-gpu="cancel"]').click()
    part(page, "question-yes").click()
    until(lambda: hub.as_("ana").workload(ran.id).end == "cancelled", "it is cancelled")
    expect(page).to_have_title(re.compile("2 of 2 free"))


def test_a_researcher_sees_who_has_the_gpus_and_touches_nothing_of_it(hub, log_in, tmp_path):
    """Neither by a button nor by hand: no log, no cancel, no cordon."""
    ran = hub.as_("ana").submit(job(tmp_path, "secret of ana"))
    page = log_in("ben")
    expect(part(page, "device-holder")).to_contain_text("ana")
    expect(part(page, "workload")).to_have_count(0)
    expect(part(page, "tab-operate")).to_have_count(0)
    assert ask(page, f"/workloads/{ran.id}/log")[0] == 403
    assert ask(page, f"/workloads/{ran.id}/cancel", method="POST")[0] == 403
    assert ask(page, "/devices/0/drain", method="POST")[0] == 403
    page.goto(f"{page.url}#operate")
    page.reload()
    expect(part(page, "device")).to_have_count(2)
    expect(part(page, "operate")).to_have_count(0)
    assert hub.as_("ana").workload(ran.id).state == "active"


def test_a_contractor_sees_their_own_and_what_is_free(hub, log_in, tmp_path):
    """Of others' work nothing: no name, no number of theirs, not in the page and not in what it was sent."""
    hub.as_("ana").submit(job(tmp_path, "secret of ana", name="secret-model"))
    page = log_in(CONTRACTOR)
    expect(part(page, "device")).to_have_count(2)
    expect(page).to_have_title(re.compile("1 of 2 free"))
    mine = hub.as_(CONTRACTOR).submit(reserve())
    expect(row_of(page, mine)).to_be_visible()
    expect(page).to_have_title(re.compile("0 of 2 free|none of 2 free|none free"))
    picture(page, "page-contractor")
    for text in (page.content(), *(ask(page, path)[1] for path in ("/status", "/workloads", "/devices"))):
        assert "ana" not in text
        assert "secret" not in text
    hub.as_(CONTRACTOR).release(mine.id)


def test_who_has_no_role_is_not_let_in_by_the_hub_and_finds_no_link(hub, log_in):
    """The menu does not name what is not theirs; by its address the hub's own words say that it is not."""
    page = log_in(STRANGER, path="hub/home")
    expect(page.get_by_role("button", name="Services")).to_have_count(0)
    answer = page.goto(page.url.replace("hub/home", SERVICE))
    assert answer.status == 403
    expect(page.get_by_role("heading", name="You do not have permission to access")).to_be_visible()


# -- what an operator does


def test_an_operator_drains_a_gpu_and_its_holder_reads_why(hub, log_in, tmp_path):
    """Everybody's work is there, and the reason reaches the page of whom it concerns."""
    ran = hub.as_("ana").submit(job(tmp_path, "step 1", name="digits"))
    until(lambda: hub.as_("ana").workload(ran.id).attempt, "it runs")
    waits = hub.as_("ben").submit(job(tmp_path, "step 1", devices=2))
    hers, operators = log_in("ana"), log_in(OPERATOR)
    part(operators, "tab-operate").click()
    expect(part(operators, "all-row")).to_have_count(2)
    expect(all_row_of(operators, waits)).to_contain_text("ben")
    part(operators, "all-filter").fill("ana")
    expect(part(operators, "all-row")).to_have_count(1)
    part(operators, "all-filter").fill("")
    picture(operators, "page-operator")

    number = next(it.index for it in hub.as_(OPERATOR).devices().items if ran.id in it.workloads)
    part(operators, "device").nth(number).locator('[data-gpu="device-drain"]').click()
    part(operators, "question-reason").fill("node maintenance")
    picture(operators, "page-drain")
    part(operators, "question-yes").click()
    row = row_of(hers, ran)
    expect(row.or_(part(hers, "device").nth(number)).filter(has_text="node maintenance").first).to_be_visible()
    picture(hers, "page-drained")
    told = [it.detail for it in hub.as_("ana").events(ran.id) if it.event == "evicted"]
    assert told == [f"drained by {OPERATOR}: node maintenance"]
    expect(part(operators, "device").nth(number)).to_contain_text("node maintenance")

    all_row_of(operators, waits).locator('[data-gpu="all-cancel"]').click()
    part(operators, "question-reason").fill("the rack is moved")
    part(operators, "question-yes").click()
    until(lambda: hub.as_("ben").workload(waits.id).end == "cancelled", "it is cancelled")
    assert hub.as_("ben").workload(waits.id).detail == f"cancelled by {OPERATOR}: the rack is moved"


def test_an_idle_reservation_is_kept_by_a_click(log_in_at):
    """The warning has a button; with it the warning is gone, and the time without use begins anew."""
    with (
        tempfile.TemporaryDirectory(prefix="jgk-", ignore_cleanup_errors=True) as folder,
        a_hub(Path(folder) / "hub", policy=POLICY | {"idle_warn_seconds": 5, "idle_release_seconds": 3600}) as hub,
        a_front(hub) as front,
    ):
        hers, client = log_in_at(front, "ana"), hub.as_("ana")
        held = client.submit(msgspec.structs.replace(reserve(), holder=Holder(kind="kernel", name="a.ipynb")))
        client.renew(client.wait(held.id, until="active", timeout_seconds=30).id, 1, busy=False)
        warning = part(hers, "alert").filter(has=part(hers, "keep"))
        expect(warning).to_have_count(1)
        (first,) = client.status().alerts
        assert (warning.get_attribute("data-key"), first.workload) == (first.key, held.id)

        part(hers, "keep").click()

        expect(hers.locator(f'[data-key="{first.key}"]')).to_have_count(0)
        until(lambda: client.status().alerts, "idle again, it is told again")
        assert client.status().alerts[0].since >= first.since + 5
        expect(part(hers, "keep")).to_have_count(1)


# -- what goes on meanwhile


def test_a_page_that_was_open_over_a_restart_of_the_hub_comes_back(hub, log_in, tmp_path):
    """While it is away the page says so; then it goes on by itself, and nobody has to sign in or load it anew."""
    ran = hub.as_("ana").submit(job(tmp_path, "step 1", name="digits"))
    page, second = log_in("ana"), log_in("ana")
    row = row_of(page, ran)
    expect(row).to_be_visible()
    hub.kill()
    expect(part(page, "trouble")).to_be_visible()
    expect(row).to_be_visible()
    picture(page, "page-hub-away")
    hub.start()
    expect(part(page, "trouble")).to_have_count(0)
    expect(part(page, "reload")).to_have_count(0)
    assert ask(page, "/status")[0] == 200
    later = hub.as_("ana").submit(job(tmp_path, "step 1", name="letters"))
    expect(row_of(page, later)).to_be_visible()
    expect(row).to_be_visible()
    second.reload()
    expect(row_of(second, ran)).to_be_visible()
    assert hub.as_("ana").workload(ran.id).state == "active"


def test_a_page_whose_visitor_logs_out_says_so_in_bounded_time(hub, front, log_in, tmp_path):
    """Though nobody touches it; whoever comes next in the same browser sees nothing of who was there before."""
    ran = hub.as_("ana").submit(job(tmp_path, "step 1", name="secret-model"))
    page = log_in("ana")
    expect(row_of(page, ran)).to_be_visible()
    other = page.context.new_page()
    other.set_default_timeout(STEP_MS)
    other.goto(f"{front.url}hub/logout")
    expect(part(page, "reload")).to_be_visible(timeout=SIGNED_OUT_MS)
    expect(part(page, "trouble")).to_contain_text("login that is over")
    assert "secret-model" not in page.content()
    picture(page, "page-signed-out")
    hers = page.evaluate("JSON.parse(document.getElementById('jp-gpu-data').textContent).xsrf")
    assert ask(page, "/status")[0] == 403

    sign_in(other, front, CONTRACTOR)
    expect(part(other, "device")).to_have_count(2)
    assert "secret-model" not in other.content()
    assert ask(other, "/status", xsrf=hers)[0] == 403
    part(page, "reload").click()
    expect(page.get_by_text(f"You are {CONTRACTOR} here")).to_be_visible()
    assert "secret-model" not in page.content()


def test_no_page_of_another_user_reads_this_one(hub, front, log_in):
    """Their servers have the same origin and so the cookie: not by fetching it, nor by a frame, nor by a window."""
    page = log_in("ana")
    xsrf = page.evaluate("JSON.parse(document.getElementById('jp-gpu-data').textContent).xsrf")
    theirs = page.context.new_page()
    theirs.goto(f"{front.url}hub/home")
    # Theirs is no page of the hub, whose own policy would forbid more than any other.
    theirs.route("**/user/bob/evil", lambda it: it.fulfill(content_type="text/html", body="<title>evil</title>"))
    theirs.goto(f"{front.url}user/bob/evil")
    read = """async ([url, mode]) => {
        try { return await (await fetch(url, {mode})).text(); } catch (error) { return String(error); }
    }"""
    for mode in ("cors", "no-cors", "same-origin"):
        found = theirs.evaluate(read, [f"{front.url}{SERVICE}", mode])
        assert xsrf not in found
        assert "Another page may not read this one" in found
    assert xsrf not in theirs.evaluate("document.cookie")
    framed = """url => new Promise(done => {
        const frame = document.createElement('iframe');
        frame.onload = () => {
            try { done(frame.contentDocument ? frame.contentDocument.documentElement.outerHTML : 'closed'); }
            catch (error) { done(String(error)); }
        };
        frame.src = url;
        document.body.append(frame);
    })"""
    assert xsrf not in theirs.evaluate(framed, f"{front.url}{SERVICE}")
    # Nor by what cookies show to scripts there, where a frame holds any other answer of ours.
    cookies = framed.replace("frame.contentDocument.documentElement.outerHTML", "frame.contentDocument.cookie")
    assert xsrf not in theirs.evaluate(cookies, f"{front.url}{SERVICE}api/v1/nothing")
    opened = """url => new Promise(done => {
        const there = window.open(url);
        const look = () => {
            let found = 'closed';
            try { found = there.closed ? 'closed' : there.document.documentElement.outerHTML; }
            catch (error) { found = String(error); }
            if (there.closed || found.includes('jp-gpu')) done(found); else setTimeout(look, 50);
        };
        look();
    })"""
    assert theirs.evaluate(opened, f"{front.url}{SERVICE}") == "closed"


# -- how it looks


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_is_cut_off(hub, log_in, tmp_path, scheme, viewport):
    """In light and dark, wide and narrow: no page is wider than its window."""
    ran = hub.as_("ana").submit(job(tmp_path, "step 1", name="a-training-with-a-rather-long-name-that-goes-on"))
    hub.as_("ben").submit(job(tmp_path, "step 1", devices=2))
    hub.as_(OPERATOR).cordon("1", "node maintenance on Thursday, ask Olga")
    size = f"{viewport['width']}-{scheme}"
    page = log_in("ana", viewport=viewport, color_scheme=scheme)
    expect(row_of(page, ran)).to_be_visible()
    picture(page, f"page-ana-{size}")
    is_cut = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(is_cut)
    page = log_in(OPERATOR, viewport=viewport, color_scheme=scheme)
    part(page, "tab-operate").click()
    expect(part(page, "all-row")).to_have_count(2)
    picture(page, f"page-operator-{size}")
    assert not page.evaluate(is_cut)
