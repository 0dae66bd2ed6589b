"""What somebody with one account at the hub tries against the others: to take, see, cancel or starve their work.

Each test is an attack that worked once, or one that would tell most if it did.
"""

from __future__ import annotations

from tests.conftest import Places

from .fake_hub import RESEARCHER
from .ground import play
from .test_cookies import a_browser
from .test_page import Parsed, fetch


def test_no_frame_shows_a_script_what_our_page_alone_is_told(tmp_runtime: Places) -> None:
    """A page of Mallory's server has our origin: in a frame of any answer of ours it could read our cookies of there.

    With the value of `_xsrf` it would be Ana, or the operator, to everything here.
    """

    async def story() -> None:
        async with a_browser(tmp_runtime.runtime_dir, *RESEARCHER) as (it, browser):
            page = Parsed((await browser.open()).text)
            cookies = {cookie.name: cookie for cookie in browser.http.cookies.jar}
            assert page.told()["xsrf"] == cookies["_xsrf"].value
            for name in ("_xsrf", "service-jupyter-gpu"):
                assert cookies[name].has_nonstandard_attr("HttpOnly"), name
            answers = [await browser.ask("GET", path) for path in ("/status", "/nothing", "/workloads/1/log")]
            for answer in (*answers, *[await fetch(it, address) for address in page.files().values()]):
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]

    play(story)
