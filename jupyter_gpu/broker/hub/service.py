"""The broker as a hub's service, put together: who calls, where it listens, what it looks at beside its work."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub.utils import make_ssl_context

from ...errors import InvalidAsk
from ...model import Scope
from ..visits import Book
from .accounts import Accounts
from .asking import Hub
from .auth import HubGate
from .bundle import Bundle, read_bundle
from .groups import Groups
from .pages import PAGES
from .place import Place, read_place
from .secret import cookie_secret
from .servers import Servers

if TYPE_CHECKING:
    from ..app import GpuBroker
    from ..loop import Loop


class Service:
    """What a broker has more of under a hub."""

    def __init__(
        self, app: GpuBroker, book: Book, environ: Mapping[str, str] = os.environ, *, bundle: Bundle | None = None
    ) -> None:
        place = read_place(environ)
        self.place: Place = place
        self.hub = Hub(place, cache_seconds=app.hub_cache_seconds)
        self.gate = HubGate(
            place,
            self.hub,
            Accounts(app.account_of_user),
            system=app.system,
            tokens=app.tokens,
            socket_scopes=_scopes(app.hub_socket_scopes),
            book=book,
        )
        self.bundle: Bundle = read_bundle() if bundle is None else bundle
        self._servers: Servers | None = None
        self._groups: Groups | None = None
        self._secret: bytes | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where the hub's proxy expects it."""
        return self.place.host, self.place.port

    @property
    def tls(self) -> ssl.SSLContext | None:
        """Internal TLS, where the hub has it: nobody but the hub's own parts gets through."""
        tls = self.place.tls
        if tls is None:
            return None
        found: ssl.SSLContext = make_ssl_context(
            tls.key, tls.certificate, cafile=tls.authority, purpose=ssl.Purpose.CLIENT_AUTH
        )
        return found

    @property
    def words(self) -> dict[str, Any]:
        """What the application needs to know."""
        return {
            "pages": PAGES,
            "prefix": self.place.prefix,
            "cookie_secret": self._secret or self.hub.cookie_secret,
            "bundle": self.bundle,
            # A page of another user's server may hold any answer of ours in a frame and read what cookies show to
            # scripts there. Our page is told it in its text, which no script can fetch.
            "xsrf_cookie_kwargs": {"httponly": True, "samesite": "Lax"},
        }

    def join(self, loop: Loop) -> None:
        """Say who the hub's users are, before anything is seen of them; and know what cookies are signed by."""
        self._secret = cookie_secret(Path(loop.broker_view().state_dir), self.hub.oauth_client_id)
        accounts = self.gate.accounts
        self._groups = Groups(loop, self.hub)
        loop.owners.of_account, loop.owners.may_run_as = accounts.owner_of_process, accounts.may_run_as
        loop.owners.groups = self._groups.known

    def begin(self, loop: Loop) -> None:
        """Look at the hub's servers, and at who is in which group, from now on."""
        self.hub.on_away = loop.count_renewals_anew
        self._servers = Servers(loop, self.hub)
        self._servers.begin()
        if self._groups is not None:
            self._groups.begin()

    async def close(self) -> None:
        """Ask the hub no more."""
        for part in (self._servers, self._groups):
            if part is not None:
                await part.close()
        await self.hub.close()


def _scopes(names: Sequence[str]) -> frozenset[Scope]:
    unknown = sorted(set(names) - set(Scope))
    if unknown:
        raise InvalidAsk(
            f"hub_socket_scopes: there is no scope {unknown[0]!r}.", hint=f"Give some of {', '.join(Scope)}."
        )
    return frozenset(map(Scope, names))
