"""Who calls: the peer of a Unix socket, or the bearer of a static token. Nobody is anonymous.

On the user's own socket only that user and root are admitted. On the machine's socket everybody is, as themselves:
the kernel says who is at the other end. It says so in our terms only for processes of our own user namespace; root of a
container is not our root, so containers bring tokens. On TCP there are tokens only, and the names by which we may be
called are known, so no web page reaches us by a name of its own (DNS rebinding) or in the name of its visitor.

One token may speak for others: that of the hub's spawner, which reserves for users whose servers are about to start. It
names them in headers that are refused from everybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import pwd
import time
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import RequestHandler

from ..errors import InvalidAsk, NotAllowed
from ..model import Caller, Scope
from .visits import Book, Peer, peer_of_socket, shares_our_users, visit_of

#: What an account of this machine may do without being an operator.
USER_SCOPES = frozenset({Scope.READ, Scope.RESERVE, Scope.SUBMIT})
ALL_SCOPES = frozenset(Scope)
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})

#: For whom the bearer of a token `for_others` asks, and which groups they are in: percent-encoded, UTF-8.
FOR_HEADER, GROUPS_HEADER = "X-Jupyter-Gpu-For", "X-Jupyter-Gpu-Groups"
#: What is done for others is to see and to reserve; their work is started by nobody but themselves.
OTHERS_SCOPES = frozenset({Scope.READ, Scope.RESERVE})
LONGEST_NAME = 255
MOST_GROUPS = 1000

_KEPT_SECONDS = 60.0
_TOKEN_HINT = "Send `Authorization: Bearer TOKEN`; an admin makes tokens (GpuBroker.tokens)."  # noqa: S105

_SPAWNER_HINT = "setup_hub gives its token to the hub's spawners alone."


class TokenRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the bearer of one token is and may do. Whoever starts work needs an account that it runs as."""

    name: str
    account: str = ""
    scopes: frozenset[Scope] = frozenset({Scope.READ})
    #: It asks for those whom it names, and never for itself.
    for_others: bool = False


class Gate:
    """Admits callers. `tokens` maps the sha256 of each token to a TokenRule; the token itself is written nowhere."""

    def __init__(
        self,
        *,
        system: bool,
        tokens: Mapping[str, Any] | None = None,
        hosts: Collection[str] = (),
        uid: int | None = None,
        book: Book | None = None,
    ) -> None:
        self._book = book
        self._system = system
        self._rules = read_tokens(tokens or {})
        self._hosts = LOCAL_HOSTS | {host.lower() for host in hosts}
        self._uid = os.geteuid() if uid is None else uid
        self._names: dict[int, tuple[float, str]] = {}

    #: How often somebody who stays is looked at anew; None where who was admitted once may stay.
    again_seconds: float | None = None

    async def admit(self, handler: RequestHandler, operators: Collection[str] = ()) -> Caller:
        """Say who calls, or raise NotAllowed."""
        request = handler.request
        peer = peer_of(request)
        if peer is None:
            self._refuse_web_pages(request)
        # Who shows a token wants to be judged by it, even where the socket alone would do.
        shown = request.headers.get_list("Authorization")
        if not shown:
            self.refuse_for_others(request.headers)
        if shown or peer is None:
            with self.judging(request):
                caller = await (self._bearer(token_of(shown), handler) if shown else self._visitor(handler))
                self.let_in(request, caller)
            return caller
        visit = visit_of(_stream(request))
        if visit is not None and not visit.is_strange:  # whose connections are nobody's are refused, and may not last
            visit.admitted()
        return await self._account(peer, operators)

    @staticmethod
    def judging(request: HTTPServerRequest) -> contextlib.AbstractContextManager[None]:
        """While it is found out who it is, maybe by asking a hub, this connection makes room for nobody."""
        visit = visit_of(_stream(request))
        return contextlib.nullcontext() if visit is None else visit.judged()

    @staticmethod
    def let_in(request: HTTPServerRequest, caller: Caller) -> None:
        """Whoever this connection is of is known: it is counted as theirs from now on, and may last."""
        visit = visit_of(_stream(request))
        if visit is not None:
            visit.admitted(caller.name)

    async def _visitor(self, handler: RequestHandler) -> Caller:
        """Who comes over TCP without a token."""
        del handler
        raise NotAllowed("Over TCP this broker answers only who brings a token.", hint=_TOKEN_HINT)

    async def _bearer(self, token: str, handler: RequestHandler) -> Caller:
        headers = handler.request.headers
        rule = self._rule_of(token)
        if rule is None:
            raise NotAllowed("This token is not known here.", hint="It may be revoked: ask an admin for a new one.")
        if rule.for_others:
            return await self._for_other(headers)
        self.refuse_for_others(headers)
        return Caller(name=rule.name, account=rule.account, scopes=rule.scopes)

    def _rule_of(self, token: str) -> TokenRule | None:
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        # Every rule is compared in full, so the time it takes tells nothing about any of them.
        found = [rule for known, rule in self._rules.items() if hmac.compare_digest(known, digest)]
        return found[0] if found else None

    async def _for_other(self, headers: HTTPHeaders) -> Caller:
        names = headers.get_list(FOR_HEADER)
        if len(names) != 1:
            raise InvalidAsk(
                "This token speaks for others only, and does not say for whom.", hint=f"Send one header {FOR_HEADER}."
            )
        groups = [_decoded(it) for it in ",".join(headers.get_list(GROUPS_HEADER)).split(",") if it.strip()]
        if len(groups) > MOST_GROUPS:
            raise InvalidAsk(f"{len(groups)} groups are more than {MOST_GROUPS}.", hint="Send those that are teams.")
        return await self.user(_decoded(names[0]), OTHERS_SCOPES, tuple(groups))

    def must_be_the_spawner(self, request: HTTPServerRequest) -> None:
        """Refuse whoever does not ask for others: what the hub says of its servers, nobody else may."""
        shown = request.headers.get_list("Authorization")
        rule = self._rule_of(token_of(shown)) if shown else None
        if rule is None or not rule.for_others:
            raise NotAllowed("Only the hub's spawner may say where servers run.", hint=_SPAWNER_HINT)

    @staticmethod
    def refuse_for_others(headers: HTTPHeaders) -> None:
        """Nobody but the spawner names somebody else."""
        if FOR_HEADER in headers or GROUPS_HEADER in headers:
            raise NotAllowed("Only the hub's spawner may ask for others.", hint=f"Leave {FOR_HEADER} out.")

    async def user(self, name: str, scopes: frozenset[Scope], groups: tuple[str, ...]) -> Caller:
        """Somebody whom we know by the word of somebody else, who said it just now."""
        return Caller(name=name, account=name, scopes=scopes, groups=groups, groups_at=time.time())

    async def _account(self, peer: Peer, operators: Collection[str]) -> Caller:
        if not self._system and peer.uid not in (self._uid, 0):
            raise NotAllowed(
                f"This broker belongs to user {self._uid} and answers nobody else.",
                hint="Ask an admin for a shared one: docs/admin.md.",
            )
        if not shares_our_users(peer.pid):
            raise NotAllowed(
                "The caller lives in another user namespace, like a container's, so the kernel cannot say who it is.",
                hint=_TOKEN_HINT,
            )
        name = await self._name_of(peer.uid)
        # An embedded broker serves one user, who is its operator too.
        is_operator = peer.uid == 0 or name in operators or (not self._system and peer.uid == self._uid)
        if self._book is not None:
            self._book.free(peer.uid, is_free=is_operator)
        return Caller(name=name, account=name, scopes=ALL_SCOPES if is_operator else USER_SCOPES)

    async def _name_of(self, uid: int) -> str:
        """Asked on a thread and kept for a while: a name service may hang on its network."""
        kept = self._names.get(uid)
        if kept is None or time.monotonic() > kept[0]:
            name = await asyncio.to_thread(account_name, uid)
            kept = self._names[uid] = (time.monotonic() + _KEPT_SECONDS, name)
        return kept[1]

    def _refuse_web_pages(self, request: HTTPServerRequest) -> None:
        host = _host_of(f"//{request.host}")
        if host not in self._hosts:
            raise NotAllowed(
                f"This broker is not called {(host or request.host)[:100]!r}.",
                hint="Call it by 127.0.0.1, or have an admin name the host in its configuration.",
            )
        origin = request.headers.get("Origin")
        site = request.headers.get("Sec-Fetch-Site", "none")
        if (origin is not None and _host_of(origin) != host) or site not in ("none", "same-origin"):
            raise NotAllowed("Pages of other sites may not ask this broker.", hint="Ask through JupyterLab.")


def read_tokens(tokens: Mapping[str, Any]) -> dict[str, TokenRule]:
    """Check what was configured; InvalidAsk names the entry that cannot be meant."""
    rules = {}
    for digest, rule in tokens.items():
        known = str(digest).lower()
        if len(known) != hashlib.sha256().digest_size * 2 or not set(known) <= set("0123456789abcdef"):
            raise InvalidAsk(
                f"tokens: {str(digest)[:8]}... is no sha256 in hex",
                hint="Write what `printf %s TOKEN | sha256sum` prints, never the token itself.",
            )
        try:
            rules[known] = rule if isinstance(rule, TokenRule) else msgspec.convert(dict(rule), TokenRule)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise InvalidAsk(f"tokens: the entry {known[:8]}... cannot be meant: {error}") from None
    return rules


def token_of(shown: list[str]) -> str:
    """The token in an Authorization header."""
    scheme, _, token = shown[0].partition(" ")
    if len(shown) != 1 or scheme.lower() not in ("bearer", "token") or not token.strip():
        raise NotAllowed("The Authorization header holds no token.", hint=_TOKEN_HINT)
    return token.strip()


def _decoded(text: str) -> str:
    """A name as it was before it was percent-encoded."""
    try:
        name = unquote(text.strip(), errors="strict")
    except UnicodeDecodeError:
        name = ""
    if not 0 < len(name) <= LONGEST_NAME or any(ord(sign) < ord(" ") for sign in name):
        raise InvalidAsk(
            f"{text[:80]!a} is no name of somebody.", hint="Send it percent-encoded, as urllib.parse.quote does."
        )
    return name


def peer_of(request: HTTPServerRequest) -> Peer | None:
    """The process behind a request; None where it did not come over a Unix socket."""
    return peer_of_socket(getattr(_stream(request), "socket", None))


def _stream(request: HTTPServerRequest) -> object:
    return getattr(request.connection, "stream", None)


def account_name(uid: int) -> str:
    """The name of an account; a container's user may be a mere number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
