"""What people see at a hub, for `make pictures`: the page before a server starts, and the page of the service."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, sync_playwright

from jupyter_gpu.model import Ask, JobSpec, Kind, SubmitBody
from tests.stories.lab import _FLAGS, CHROMIUM, STEP_MS

from .front import Front, a_front
from .hub import OPERATOR, PASSWORD, a_hub

SERVICE = "services/jupyter-gpu/"
#: Who runs what: a script that holds memory, so that there is something to see.
_WORK = (("ana", "resnet50", 900), ("ana", "tokenizer", 400), ("ben", "segmentation", 700), ("eve", "evaluate", 100))
_BUSY = "import time; held = bytearray({mib} << 20); print('epoch 1', flush=True); time.sleep(3600)"

Save = Callable[[Page, str], None]


def take(root: Path, stack: ExitStack, save: Save, *, is_dark: bool) -> None:
    """Three GPUs with work on them, one of which is to be mended."""
    hub = stack.enter_context(a_hub(root / "hub"))
    stack.callback(hub.clear)
    front = stack.enter_context(a_front(hub))
    for user, name, mib in _WORK:
        code = _BUSY.format(mib=mib)
        spec = JobSpec(argv=(sys.executable, "-c", code), folder=str(root))
        ask = Ask(devices=1, duration_seconds=4 * 3600)
        hub.as_(user).submit(SubmitBody(kind=Kind.JOB, name=name, ask=ask, spec=spec))
    hub.as_(OPERATOR).cordon("3", "new fan on Thursday, ask Olga")
    playwright = stack.enter_context(sync_playwright())
    browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=_FLAGS)
    stack.callback(browser.close)

    def a_context() -> BrowserContext:
        return browser.new_context(
            viewport={"width": 1200, "height": 760}, color_scheme="dark" if is_dark else "light"
        )  # fmt: skip

    page = _sign_in(a_context(), front, "ana", SERVICE)
    page.get_by_text("Start a server with GPUs").wait_for()
    save(page, "hub-page")
    page.goto(f"{front.url}hub/spawn/ana")
    page.get_by_text("GPUs of your server").wait_for()
    save(page, "hub-spawn")
    page = _sign_in(a_context(), front, OPERATOR, f"{SERVICE}#operate")
    page.locator('[data-gpu="all-row"]').nth(len(_WORK) - 1).wait_for()
    page.set_viewport_size({"width": 1200, "height": 1130})
    save(page, "hub-operate")


def _sign_in(context: BrowserContext, front: Front, name: str, path: str) -> Page:
    page = context.new_page()
    page.set_default_timeout(STEP_MS)
    page.goto(f"{front.url}{path}")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"**/{path.partition('#')[0]}*")
    if "#" in path:
        page.goto(f"{front.url}{path}")
    return page
