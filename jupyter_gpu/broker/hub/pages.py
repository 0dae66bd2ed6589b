"""The pages of the service, below its prefix."""

from __future__ import annotations

from tornado.web import RequestHandler

from .page import LOGIN_ROUTES, HubPage


class Front(HubPage):
    """/."""

    async def get(self) -> None:
        """Say who has signed in."""
        self.finish({"name": self.caller.name})


PAGES: list[tuple[str, type[RequestHandler]]] = [*LOGIN_ROUTES, ("/", Front)]
