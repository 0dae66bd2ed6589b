"""What our pages stand on: their visitors sign in at the hub and come back with a cookie of ours.

A page holds nothing of anybody: what it shows it asks of the API, with the cookie and the header X-XSRFToken, whose
value is the cookie `_xsrf`. So a page is only ever read, and no other page may frame it.
"""

from __future__ import annotations

from typing import Any, cast

from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from tornado.escape import xhtml_escape
from tornado.web import HTTPError, RequestHandler

from ...errors import GpuError
from ...model import Caller
from ..api.application import Api
from .asking import Hub
from .auth import HubGate

_FRAME = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<h1>{title}</h1><p>{text}</p><p>{hint}</p></html>
"""


class _AtTheHub(HubOAuthenticated, RequestHandler):
    application: Api

    @property
    def gate(self) -> HubGate:
        """Who says who calls; pages are served only where a hub knows."""
        return cast("HubGate", self.application.gate)

    @property
    def hub_auth(self) -> Hub:
        """Our end of the hub."""
        return self.gate.hub

    def set_default_headers(self) -> None:
        """Kept by nobody, framed by nobody."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.clear_header("Server")

    def compute_etag(self) -> None:
        """None, as for all that is not to be kept."""

    def write_error(self, status_code: int, **details: Any) -> None:
        """What went wrong, in the words of the error, for a person."""
        error = details.get("exc_info", (None, None, None))[1]
        text, hint = f"{status_code}", "Go back and try again."
        if isinstance(error, GpuError):
            self.set_status(getattr(error, "answered", type(error).http_status))
            text, hint = error.message, error.hint or ""
        elif isinstance(error, HTTPError) and error.log_message:
            text = error.log_message
        self.set_header("Content-Type", "text/html; charset=utf-8")
        words = {"title": "GPUs", "text": xhtml_escape(text), "hint": xhtml_escape(hint)}
        self.finish(_FRAME.format(**words))


class HubPage(_AtTheHub):
    """A page for who has signed in at the hub and has one of our scopes; `caller` says who it is."""

    SUPPORTED_METHODS = ("GET", "HEAD")
    caller: Caller
    #: What the page sends as X-XSRFToken.
    xsrf: str

    async def prepare(self) -> None:
        """Know who it is, or send them to the hub and back. Raises NotAllowed where nothing here is theirs."""
        # As it was asked for, without what a proxy or a slip made of it: it is where they come back to.
        self.request.uri = self.application.link(self.request)
        hub = self.hub_auth
        model = await hub.get_user(self, sync=False)
        known = None if model is None else await hub.whois(hub.get_token(self, in_cookie=True))
        if known is None:
            self.redirect(self.get_login_url())
            return
        self.current_user = known.model
        self.caller = await self.gate.caller_of(known)
        self.gate.let_in(self.request, self.caller)
        # To ask for it sets the cookie `_xsrf`.
        self.xsrf = bytes(self.xsrf_token).decode()


class Callback(_AtTheHub, HubOAuthCallbackHandler):
    """/oauth_callback: the hub sends visitors back to here."""

    SUPPORTED_METHODS = ("GET",)

    async def prepare(self) -> None:
        """Know who has signed in already, without waiting for it later."""
        self.current_user = await self.hub_auth.get_user(self, sync=False)


#: What every service with pages has; below its prefix.
LOGIN_ROUTES: list[tuple[str, type[RequestHandler]]] = [("/oauth_callback", Callback)]
