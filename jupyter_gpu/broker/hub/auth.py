"""Who calls, where a hub knows: the bearer of one of its tokens, or the visitor of our page by its cookie.

A caller may do what the custom scopes of the token say, and nothing without one of them. The hub's proxy brings callers
under names that are not known here, so the Host header decides nothing; it need not, since no request is answered for
merely coming from this machine. A page of another site has neither a token nor our cookie's _xsrf, whatever name it
gives itself, and every request by cookie needs both, those that only read too: pages of other users' servers may share
the origin with us, and could read what a mere cookie opens.
"""

from __future__ import annotations

import hmac
import time
import urllib.parse
from collections.abc import Collection, Mapping
from typing import Any

from jupyterhub.services.auth import HubOAuthenticated
from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

from ...errors import NotAllowed
from ...model import Caller, Scope
from ..api.bounds import is_plain
from ..auth import Gate, TokenRule
from ..visits import Book, Peer
from .accounts import Accounts
from .asking import Hub, Known
from .place import Place

SCOPE_PREFIX = "custom:jupyter-gpu:"
#: What somebody may do with what is their own; of a scope that is bound to its own bearer no other means anything.
_OWN_SCOPES = frozenset({Scope.RESERVE, Scope.SUBMIT})
#: A stream's listener is looked at anew after so many times what the hub's word is kept: the hub is asked about each.
AGAIN_TIMES = 4
_AT_LEAST_SECONDS = 1.0
#: For so long the hub's word is good enough for who says that they live: every holder does so several times a minute,
#: and a hub with hundreds of them has other things to do.
KEEPS_SECONDS = 300.0


_ELSEWHERE = (
    "A server of the hub has all that is needed. Elsewhere make a token on the hub's page Token, and set "
    "JUPYTER_GPU_URL to the service's address and JUPYTER_GPU_TOKEN to the token; an admin may open the socket to "
    "accounts with GpuBroker.hub_socket_scopes."
)


class SignInAgain(NotAllowed):
    """There is no cookie, or the hub does not know it any more: a page tells it from what its user may not do."""

    answered = 401


class HubGate(Gate):
    """Admits whom the hub knows. On the Unix socket callers are known by their account, as far as that says enough."""

    def __init__(
        self,
        place: Place,
        hub: Hub,
        accounts: Accounts,
        *,
        system: bool,
        tokens: Mapping[str, Any] | None = None,
        socket_scopes: frozenset[Scope] = frozenset(),
        uid: int | None = None,
        book: Book | None = None,
    ) -> None:
        spawner = {place.spawner_digest: TokenRule(name="spawner", scopes=frozenset(), for_others=True)}
        super().__init__(
            system=system, tokens={**(tokens or {}), **(spawner if place.spawner_digest else {})}, uid=uid, book=book
        )
        self.place, self.hub, self.accounts = place, hub, accounts
        self._socket_scopes = socket_scopes
        #: Names of tokens that are no user's.
        self._taken = {rule.name for rule in self._rules.values() if not rule.for_others}
        self.again_seconds = max(_AT_LEAST_SECONDS, AGAIN_TIMES * hub.cache_seconds)

    # -- by token

    async def _bearer(self, token: str, handler: RequestHandler) -> Caller:
        if self._rule_of(token) is not None:
            return await super()._bearer(token, handler)
        bears_seconds = KEEPS_SECONDS if getattr(handler, "only_keeps", False) else 0.0
        if (known := await self.hub.whois(token, bears_seconds=bears_seconds)) is None:
            raise NotAllowed(
                "Neither JupyterHub nor this broker knows this token.",
                hint="It may have expired or been revoked. A server gets a new one when it is started again; others "
                "are made on the hub's page Token.",
            )
        # Whoever speaks for others is known by now; all others may not.
        self.refuse_for_others(handler.request.headers)
        return await self.caller_of(known)

    async def caller_of(self, known: Known) -> Caller:
        """Whom a token of the hub makes of its bearer, or NotAllowed where it has none of our scopes."""
        model = known.model
        is_service = model.get("kind") == "service"
        scopes = scopes_of(model)
        if not scopes:
            raise no_scope(model)
        if is_service:
            # A user's name never holds a slash, so no service is taken for a user.
            return Caller(name=f"services/{model['name']}", account="", scopes=scopes, groups_at=known.at)
        return await self._user(model["name"], scopes, tuple(sorted(model.get("groups") or ())), known.at)

    async def user(self, name: str, scopes: frozenset[Scope], groups: tuple[str, ...]) -> Caller:
        """The user for whom the spawner asks."""
        return await self._user(name, scopes, groups, time.time())

    async def _user(self, name: str, scopes: frozenset[Scope], groups: tuple[str, ...], at: float) -> Caller:
        if name in self._taken or "/" in name:
            raise NotAllowed(
                f"The name {name!r} is that of a token of this broker, so no user of the hub can have it here.",
                hint="An admin names the token otherwise in GpuBroker.tokens.",
            )
        if not is_plain(name):
            # Others read it in tables, logs and messages.
            raise NotAllowed(
                f"The name {name[:80]!a} holds control characters, so it can be nobody's here.",
                hint="An admin of the hub renames the user.",
            )
        runs_as = await self.accounts.of(name)
        return Caller(
            name=name,
            account=runs_as.account,
            scopes=scopes,
            groups=groups,
            groups_at=at,
            shares_account=runs_as.is_shared,
        )

    # -- by cookie

    async def _visitor(self, handler: RequestHandler) -> Caller:
        visitor = Visitor(handler, self.hub)
        if (token := visitor.token()) is None:
            raise SignInAgain("Nobody has signed in here.", hint="Reload the page, or send a token of the hub.")
        visitor.must_be_our_page()
        if (known := await self.hub.whois(token)) is None:
            self.hub.clear_cookie(handler)
            raise SignInAgain("You were signed out, or your session has ended.", hint="Reload the page.")
        return await self.caller_of(known)

    def _refuse_web_pages(self, request: HTTPServerRequest) -> None:
        """Nobody by the Host: see above. What a browser says to come from another site is refused all the same."""
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site == "cross-site" and "Authorization" not in request.headers:
            raise NotAllowed("Pages of other sites may not ask this broker.", hint="Ask through JupyterLab.")

    # -- by account

    async def _account(self, peer: Peer, operators: Collection[str]) -> Caller:
        """Who comes over the socket: root, operators, and all others as far as an admin let them, as nobody else."""
        caller = await super()._account(peer, operators)
        owner = self.accounts.owner_of(caller.account)
        if peer.uid == 0:
            # Whoever calls themselves root at the hub is not this one.
            return Caller(name=owner or f"local/{caller.account}", account=caller.account, scopes=caller.scopes)
        if owner is None:
            raise NotAllowed(f"The account {caller.account} does not say which user of the hub asks.", hint=_ELSEWHERE)
        scopes = caller.scopes if caller.is_operator else self._socket_scopes
        if not scopes:
            # The hub's roles say who may do what, and the kernel says only which account it is.
            raise NotAllowed("Here JupyterHub says who may do what, so its users bring a token.", hint=_ELSEWHERE)
        return Caller(name=owner, account=caller.account, scopes=scopes)


class Visitor(HubOAuthenticated):
    """A handler of ours as jupyterhub's way with cookies wants to see it; the handler itself stays as it is."""

    def __init__(self, handler: RequestHandler, hub: Hub) -> None:
        self._handler = handler
        self.hub_auth = hub

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    def token(self) -> str | None:
        """What the cookie holds that we gave, if it is ours."""
        found: str | None = self.hub_auth.get_token(self, in_cookie=True)
        return found or None

    def must_be_our_page(self) -> None:
        """Refuse who has the cookie and cannot read it: only our own page can."""
        headers = self._handler.request.headers
        shown = headers.get("X-XSRFToken") or headers.get("X-CSRFToken") or ""
        meant = self.xsrf_token
        meant = meant if isinstance(meant, bytes) else meant.encode()
        if not hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), meant):
            if shown:
                # Whoever signs out at the hub, or in as somebody else, makes void what an open page was told.
                raise NotAllowed(
                    "This page is of a login that is over: the header X-XSRFToken does not fit the cookie.",
                    hint="Reload the page.",
                )
            raise NotAllowed(
                "The cookie alone is not enough: the header X-XSRFToken is missing.",
                hint="Reload the page. A program sends `Authorization: token TOKEN` instead.",
            )


def scopes_of(model: Mapping[str, Any]) -> frozenset[Scope]:
    """Our scopes among those of a token. One that is bound to its bearer allows only what concerns their own."""
    found = set()
    for scope in model.get("scopes") or ():
        name, _, bound_to = str(scope).removeprefix(SCOPE_PREFIX).partition("!")
        if not str(scope).startswith(SCOPE_PREFIX) or name not in set(Scope):
            continue
        is_own = bound_to == f"user={model['name']}" and model.get("kind") != "service"
        if not bound_to or (is_own and name in _OWN_SCOPES):
            found.add(Scope(name))
    return frozenset(found)


def no_scope(model: Mapping[str, Any]) -> NotAllowed:
    """What somebody lacks, and how an admin gives it."""
    kind, name = model.get("kind", "user"), str(model["name"])
    return NotAllowed(
        f"The hub's {kind} {name} has none of the scopes that this broker goes by.",
        # Not a line to copy: `load_roles = ` after setup_hub would take the place of all roles that it made.
        hint="An admin gives them in jupyterhub_config.py, by a name in setup_hub(c, researchers=...), or by a role "
        f"with the scopes {SCOPE_PREFIX}read, {SCOPE_PREFIX}reserve and {SCOPE_PREFIX}submit. A server that runs has "
        "them when it is started again.",
    )


def escaped(name: str) -> str:
    """A name as one part of a path of the hub's API."""
    return urllib.parse.quote(name, safe="")
