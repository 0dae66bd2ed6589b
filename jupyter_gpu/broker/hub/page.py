"""What our pages stand on: their visitors sign in at the hub and come back with a cookie of ours.

A page holds nothing of anybody but its visitor's name: what it shows it asks of the API, with the cookie and the header
X-XSRFToken. Servers of other users may share the hub's origin, so a page is given only to who opens it in a tab: no
script of theirs reads it, no frame holds it, and a tab that they opened is out of their reach.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, cast

from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from tornado.web import HTTPError, RequestHandler

from ...errors import GpuError, NotAllowed
from ...model import Caller
from ..api.application import Api
from ..api.base import tell
from .asking import Hub
from .auth import HubGate
from .bundle import STYLE, Bundle
from .frame import words_page

#: Everything from here and nothing else: whatever a name or a log holds, no browser runs it or sends it away.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


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
        """Kept by nobody, framed by nobody, reached by nobody who opened it."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("Cross-Origin-Opener-Policy", "noopener-allow-popups")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.clear_header("Server")

    def compute_etag(self) -> None:
        """None, as for all that is not to be kept."""

    def hub_link(self, path: str) -> str:
        """An address of the hub, which may be another host than ours."""
        return f"{self.hub_auth.hub_host}{self.gate.place.base}/hub/{path}"

    def file_link(self, name: str) -> str | None:
        """The address of a file that was built."""
        found = cast("Bundle", self.settings["bundle"]).get(name)
        return None if found is None else self.application.link(self.request, f"/static/{found.digest}/{name}")

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
        self.finish(words_page(text, hint, hub=self.hub_link("home"), style=self.file_link(STYLE)))

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """A visitor who may not is no fault of ours."""
        tell(self, typ, value, tb)


class HubPage(_AtTheHub):
    """A page for who has signed in at the hub and has one of our scopes; `caller` says who it is."""

    SUPPORTED_METHODS = ("GET", "HEAD")
    caller: Caller
    #: What the page sends as X-XSRFToken.
    xsrf: str

    async def prepare(self) -> None:
        """Know who it is, or send them to the hub and back. Raises NotAllowed where nothing here is theirs."""
        self._must_be_opened()
        # As it was asked for, without what a proxy or a slip made of it: it is where they come back to.
        self.request.uri = self.application.link(self.request)
        hub = self.hub_auth
        with self.gate.judging(self.request):
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

    def _must_be_opened(self) -> None:
        """Refuse what a script fetches, or a frame: it would get what only our page should have."""
        headers = self.request.headers
        shown = (headers.get("Sec-Fetch-Mode", "navigate"), headers.get("Sec-Fetch-Dest", "document"))
        if shown != ("navigate", "document"):
            raise NotAllowed("Another page may not read this one.", hint="Open it in a tab of its own.")


class Callback(_AtTheHub, HubOAuthCallbackHandler):
    """/oauth_callback: the hub sends visitors back to here."""

    SUPPORTED_METHODS = ("GET",)

    async def prepare(self) -> None:
        """Know who has signed in already, without waiting for it later."""
        self.current_user = await self.hub_auth.get_user(self, sync=False)

    async def get(self) -> None:
        """Have the hub make a token of its code, and go where they wanted to."""
        with self.gate.judging(self.request):
            found = super().get()
            if found is not None:
                await found


#: What every service with pages has; below its prefix.
LOGIN_ROUTES: list[tuple[str, type[RequestHandler]]] = [("/oauth_callback", Callback)]
