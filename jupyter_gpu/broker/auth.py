"""Who calls: the peer of a Unix socket, or the bearer of a static token. Nobody is anonymous.

On the user's own socket only that user and root are admitted. On the machine's socket everybody is, as themselves:
the kernel says who is at the other end. It says so in our terms only for processes of our own user namespace; root of a
container is not our root, so containers bring tokens. On TCP there are tokens only, and the names by which we may be
called are known, so no web page reaches us by a name of its own (DNS rebinding) or in the name of its visitor.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import pwd
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from tornado.httputil import HTTPServerRequest

from ..errors import InvalidAsk, NotAllowed
from ..model import Caller, Scope
from .visits import Book, Peer, peer_of_socket, visit_of

#: What an account of this machine may do without being an operator.
USER_SCOPES = frozenset({Scope.READ, Scope.RESERVE, Scope.SUBMIT})
ALL_SCOPES = frozenset(Scope)
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})

_KEPT_SECONDS = 60.0
_TOKEN_HINT = "Send `Authorization: Bearer TOKEN`; an admin makes tokens (GpuBroker.tokens)."  # noqa: S105


class TokenRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the bearer of one token is and may do. Whoever starts work needs an account that it runs as."""

    name: str
    account: str = ""
    scopes: frozenset[Scope] = frozenset({Scope.READ})


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

    async def admit(self, request: HTTPServerRequest, operators: Collection[str] = ()) -> Caller:
        """Say who calls, or raise NotAllowed."""
        peer, visit = peer_of(request), visit_of(_stream(request))
        if peer is None:
            self._refuse_web_pages(request)
        # Who shows a token wants to be judged by it, even where the socket alone would do.
        shown = request.headers.get_list("Authorization")
        if shown:
            bearer = self._bearer(shown)
            if visit is not None:
                visit.admitted(bearer.name if peer is None else None)
            return bearer
        if peer is None:
            raise NotAllowed("Over TCP this broker answers only who brings a token.", hint=_TOKEN_HINT)
        if visit is not None:
            visit.admitted()
        return await self._account(peer, operators)

    def _bearer(self, shown: list[str]) -> Caller:
        scheme, _, token = shown[0].partition(" ")
        if len(shown) != 1 or scheme.lower() not in ("bearer", "token") or not token.strip():
            raise NotAllowed("The Authorization header holds no token.", hint=_TOKEN_HINT)
        digest = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
        # Every rule is compared in full, so the time it takes tells nothing about any of them.
        found = [rule for known, rule in self._rules.items() if hmac.compare_digest(known, digest)]
        if not found:
            raise NotAllowed("This token is not known here.", hint="It may be revoked: ask an admin for a new one.")
        rule = found[0]
        return Caller(name=rule.name, account=rule.account, scopes=rule.scopes)

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


def peer_of(request: HTTPServerRequest) -> Peer | None:
    """The process behind a request; None where it did not come over a Unix socket."""
    return peer_of_socket(getattr(_stream(request), "socket", None))


def _stream(request: HTTPServerRequest) -> object:
    return getattr(request.connection, "stream", None)


def shares_our_users(pid: int) -> bool:
    """Whether a process counts its users as we do. One that cannot be looked at (or is gone) is a stranger."""
    try:
        return Path(f"/proc/{pid}/ns/user").samefile("/proc/self/ns/user")
    except OSError:
        return False


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
