"""The pages of the service, below its prefix."""

from __future__ import annotations

from tornado.web import RequestHandler

from ... import __version__
from ...errors import BrokerUnavailable
from ..api.base import PREFIX
from .bundle import SCRIPT, STATIC_ROUTES, STYLE
from .frame import live_page
from .page import LOGIN_ROUTES, HubPage


class NotBuilt(BrokerUnavailable):
    """The package was installed without what the page runs."""

    hint = (
        "An admin installs jupyter-gpu from its wheel, `pip install --force-reinstall jupyter-gpu`, or builds it "
        "with Node.js at hand, and restarts the service. Meanwhile JupyterLab's panel and `jupyter gpu status` show "
        "the same."
    )


class Front(HubPage):
    """/: the panel, and for operators their view."""

    async def get(self) -> None:
        """The page as its script expects it."""
        script, style = self.file_link(SCRIPT), self.file_link(STYLE)
        if script is None or style is None:
            raise NotBuilt("This page was not built when jupyter-gpu was installed here.")
        told = {
            "api": self.application.link(self.request, PREFIX),
            "xsrf": self.xsrf,
            "caller": self.caller.name,
            "scopes": sorted(self.caller.scopes),
            "hub": self.hub_link(""),
            "spawn": self.hub_link("spawn"),
            "version": __version__,
        }
        self.finish(live_page(told, script=script, style=style))

    head = get


PAGES: list[tuple[str, type[RequestHandler]]] = [*LOGIN_ROUTES, *STATIC_ROUTES, ("/", Front)]
