"""A day at the hub, in a real browser: log in, choose, wait in line, submit, be preempted, resume, log out."""

import contextlib
import json
import os
import re
import shlex
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from jupyter_gpu.model import Kind, State
from tests.stories.lab import _FLAGS, CHROMIUM, NO_CHROMIUM, STEP_MS, Lab, disable_the_scheduler
from tests.stories.scene import SIGTERM_ONLY

from .hub import OPERATOR, PASSWORD, a_hub, until

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(400),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
]

NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "cells": [{"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None, "source": ""}],
}


_PICTURES, _LOG = os.environ.get("JUPYTER_GPU_PICTURES"), os.environ.get("JUPYTER_GPU_HUB_LOG")


@pytest.fixture(scope="module")
def the_hub():
    """Two GPUs, so that they are soon taken."""
    with tempfile.TemporaryDirectory(prefix="jgb-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        with a_hub(root / "hub", base="/lab/", devices=2, lab=True) as hub:
            for name in ("ana", "ben"):
                home = root / "hub" / "homes" / name
                home.mkdir()
                (home / "work.ipynb").write_text(json.dumps(NOTEBOOK))
                disable_the_scheduler(home / ".jupyter")
            yield hub
        if _LOG:
            Path(_LOG).write_bytes(hub.log.read_bytes())


@pytest.fixture
def hub(the_hub):
    """The hub with nobody's work on it, before and after."""
    yield the_hub
    the_hub.clear()


@pytest.fixture
def log_in(hub):
    """A browser of their own for each person, who has just logged in."""
    with contextlib.ExitStack() as stack:
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=_FLAGS)
        stack.callback(browser.close)

        def enter(name, path="hub/spawn"):
            context = browser.new_context(viewport={"width": 1400, "height": 1000})
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(STEP_MS)
            page.goto(f"{hub.url}hub/login?next={hub.base}{path}")
            page.get_by_label("Username").fill(name)
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(f"**{hub.base}{path}*")
            return page

        yield enter


def picture(page, name):
    """Take one where somebody asked for pictures."""
    if _PICTURES:
        page.screenshot(path=f"{_PICTURES}/{name}.png")


def start(page, title, *, wait=False):
    """Choose a profile and press the button."""
    page.get_by_label(title, exact=True).check()
    if wait:
        page.get_by_label("Wait in line if none is free").check()
    page.get_by_role("button", name="Start").click()


def in_lab(page, hub, user):
    """Their notebook in Lab, with its kernel."""
    page.wait_for_url(re.compile(rf".*/user/{user}/.*"))
    page.goto(f"{hub.url}user/{user}/lab/tree/work.ipynb")
    page.wait_for_function("() => window.jupyterapp?.restored", timeout=STEP_MS)
    page.evaluate("() => jupyterapp.restored.then(() => null)")
    lab = Lab(page, None, hub.as_(user), [])
    lab.wait_for_kernel()
    return lab


def keep_the_server(lab):
    """What a server holds is said at once; to give it back would end the server, which is asked first."""
    page = lab.page
    page.locator('[data-gpu="toolbar"][data-standing="server"]').wait_for()
    lab.part("workload").get_by_role("button", name="Release").click()
    page.get_by_text("and end this server?").wait_for()
    picture(page, "hub-release")
    page.get_by_role("button", name="Keep", exact=True).click()


def training(folder):
    """One that has much to do until it has yielded once, and little then: nobody waits for it, however long Ben takes.

    Not by a shell's `-c`: a cell would read its dollar signs as its own.
    """
    script = folder / "train.sh"
    argv = SIGTERM_ONLY.argv(folder, steps=150, step_seconds=0)
    script.write_text(
        f'[ "$JUPYTER_GPU_ATTEMPT" = 1 ] && pace=3600 || pace=0\nexec {shlex.join(argv)} --step-seconds $pace\n'
    )
    return ["sh", str(script)]


def test_a_day_at_the_hub(hub, log_in, tmp_path):
    """Two people, two GPUs, a training that yields to the second person, and a hub that is killed in the midst."""
    # Ana chooses a GPU for her server, and trains on the other one.
    page = log_in("ana")
    offers = page.locator("#jupyter-gpu")
    offers.get_by_text("2 of 2 free now.").first.wait_for()
    assert page.get_by_label("No GPU", exact=True).is_checked()
    assert offers.get_by_label("One GPU of vision").count() == 1
    picture(page, "hub-spawn")
    start(page, "One GPU")
    lab = in_lab(page, hub, "ana")
    lab.command("gpu:open-panel")
    lab.part("device").nth(1).wait_for()
    (held,) = hub.as_("ana").workloads(mine=True, ended=False)
    keep_the_server(lab)
    assert held.devices[0] in lab.execute("import os; print(os.environ['CUDA_VISIBLE_DEVICES']); kept = 7")
    said = lab.execute(f"%gpu submit --name train -- {shlex.join(training(tmp_path))}")
    jobs = [it for it in hub.as_("ana").workloads(mine=True, ended=False) if it.kind is Kind.JOB]
    assert len(jobs) == 1, said
    until(lambda: hub.as_("ana").workload(jobs[0].id).state is State.ACTIVE, "the training runs")
    page.get_by_text("train").first.wait_for()
    picture(page, "hub-lab")

    # Ben comes, finds nothing free, and waits in line; the training yields to him.
    bens = log_in("ben")
    bens.locator("#jupyter-gpu").get_by_text("0 of 2 free now").first.wait_for()
    picture(bens, "hub-spawn-full")
    start(bens, "One GPU", wait=True)
    bens.wait_for_url("**/hub/spawn-pending/ben*")
    bens.wait_for_url(re.compile(r".*/user/ben/.*"), timeout=2 * STEP_MS)
    assert [it.kind for it in hub.as_("ana").workloads(mine=True, ended=False)].count(Kind.JOB) == 1
    assert hub.as_("ana").workload(jobs[0].id).state is State.QUEUED
    picture(page, "hub-preempted")

    # The hub is killed and comes back; pages, kernels, leases and the line are as they were.
    hub.kill()
    hub.start()
    assert "7" in lab.execute("print(kept)")
    assert {it.id for it in hub.as_("ana").workloads(mine=True, ended=False)} == {held.id, jobs[0].id}
    lab.part("device").nth(1).wait_for()

    # Ben stops his server at the hub's own page; the training resumes where it was, and ends.
    bens.goto(f"{hub.url}hub/home")
    bens.get_by_role("button", name="Stop My Server").click()
    over = hub.as_("ana").wait(jobs[0].id, until="ended", timeout_seconds=120)
    assert (over.end, over.preemptions, over.attempt) == ("succeeded", 1, 2)
    dismiss = page.get_by_role("button", name="Dismiss")
    if dismiss.count():  # Lab's own word on a hub that was away
        dismiss.first.click()
    page.get_by_text("1 of 2 free").first.wait_for()
    picture(page, "hub-resumed")

    # Ana logs out: nothing of hers is shown any more, and her server keeps its GPU until it is stopped.
    page.goto(f"{hub.url}hub/logout")
    page.goto(f"{hub.url}services/jupyter-gpu/")
    page.get_by_label("Username").wait_for()
    assert [it.id for it in hub.as_("ana").workloads(mine=True, ended=False)] == [held.id]
    hub.stop_server("ana")
    until(lambda: not list(hub.as_("ana").workloads(mine=True, ended=False)), "it is given back")


def test_who_waits_in_line_may_leave_it(hub, log_in):
    """By stopping the server that has not started: the line forgets them, and nothing is left pending."""
    hub.spawn("ana", gpu_profile="two").raise_for_status()
    page = log_in("cho")
    start(page, "One GPU", wait=True)
    page.wait_for_url("**/hub/spawn-pending/cho*")
    page.goto(f"{hub.direct}hub/spawn-pending/cho")
    page.get_by_text(re.compile("Waiting in line for “One GPU”.*You are first")).first.wait_for()
    page.get_by_text("Event log").click()
    picture(page, "hub-waiting")
    assert [it.state for it in hub.as_("cho").workloads(mine=True, ended=False)] == [State.QUEUED]

    page.get_by_role("button", name="Stop Server").or_(page.get_by_role("link", name="Stop Server")).click()

    until(lambda: not list(hub.as_("cho").workloads(mine=True, ended=False)), "cho is in line no more")
    until(lambda: hub.server("cho") == {}, "nothing is left pending")


def test_a_refusal_is_read_on_the_page(hub, log_in):
    """What is not free, and what is: no traceback, and the form again."""
    hub.spawn("ana", gpu_profile="two").raise_for_status()
    page = log_in("dov")

    start(page, "One GPU")

    page.get_by_text("Error: “One GPU” is not free now").first.wait_for()
    page.get_by_text("choose “No GPU”, which starts at once").first.wait_for()
    assert page.get_by_role("alert").evaluate("it => it === document.activeElement")
    picture(page, "hub-refused")


def test_the_services_page_knows_its_visitor(hub, log_in):
    """By the hub's login, without a question whether that is meant: it is a part of the hub."""
    page = log_in(OPERATOR, path="services/jupyter-gpu/")

    page.wait_for_url(f"{hub.url}services/jupyter-gpu/")
    page.get_by_text(re.compile(OPERATOR)).first.wait_for()
    picture(page, "hub-service")
