"""How many connections anybody may hold open: nobody locks the others out by opening more than there is room for.

Each account has a budget on the Unix socket, and each bearer of a token one on TCP, or where the socket cannot say who
it is: one person has accounts by the thousand in user namespaces of their own. Who has not said yet who they are
shares a small one, and is sent away unless a whole request comes soon, or when others come and there is no room: who
says nothing for longest goes first. So nobody shuts that door by standing in it, and who says at once who they are gets
through. What is admitted counts but is never cut: a stream may last for days. All together leave descriptors for the
broker's own files. Root and operators have no budget of their own, so there is always somebody who can look.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tornado.iostream import IOStream, SSLIOStream

from ..errors import LimitExceeded

MOST_OF_ONE = 256
#: Several times as many as are accepted before those who came are read: who speaks at once is heard.
MOST_STRANGERS = 256
#: A request's header comes within so long, or its connection is closed.
HEADER_SECONDS = 10.0
#: Descriptors that no visit gets: for the store, the supervisors, logs that are read, other programs' output.
KEPT_BACK = 256

_STRANGERS = ("not yet known",)
_UCRED = struct.Struct("3i")


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, as the kernel names it."""

    pid: int
    uid: int


def peer_of_socket(sock: socket.socket | None) -> Peer | None:
    """The process behind a connection; None where it did not come over a Unix socket."""
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid=pid, uid=uid)


def shares_our_users(pid: int) -> bool:
    """Whether a process counts its users as we do. One that cannot be looked at (or is gone) is a stranger."""
    try:
        return Path(f"/proc/{pid}/ns/user").samefile("/proc/self/ns/user")
    except OSError:
        return False


class Visit(IOStream):
    """One connection, counted until its descriptor is closed."""

    def __init__(self, sock: socket.socket, book: Book, key: Hashable, **words: Any) -> None:
        super().__init__(sock, **words)
        self.key = key
        #: Nothing but a token says who this is.
        self.is_strange = key is _STRANGERS
        self._book = book
        self._deadline: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            book.header_seconds, self.close
        )

    @contextlib.contextmanager
    def judged(self) -> Iterator[None]:
        """They have said who they are, and a hub may be asked about it: meanwhile they make room for nobody."""
        self._book.hear(self)
        try:
            yield
        finally:
            self._book.judge(self)

    def admitted(self, bearer: str | None = None) -> None:
        """A whole header has come, from somebody who is known; `bearer` names whom a token tells."""
        if bearer is not None and self.is_strange:
            self._book.move(self, ("bearer", bearer))
        self._no_deadline()

    def close_fd(self) -> None:
        """The end of it, however it comes."""
        self._no_deadline()
        self._book.leave(self)
        super().close_fd()

    def _no_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class SecretVisit(SSLIOStream, Visit):
    """One connection by TLS; its handshake is part of what must come soon."""


class Book:
    """Who holds how many connections."""

    def __init__(
        self,
        *,
        most_of_one: int = MOST_OF_ONE,
        most_strangers: int = MOST_STRANGERS,
        header_seconds: float = HEADER_SECONDS,
    ) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(files - KEPT_BACK, files // 2)
        self._most_of_one = min(most_of_one, self._most // 4)
        self._most_strangers = min(most_strangers, self._most // 8)
        self.header_seconds = header_seconds
        self._open: Counter[Hashable] = Counter()
        #: Strangers who have not said who they are, or did in vain, those who wait longest first.
        self._silent: dict[Visit, None] = {}
        #: Accounts without a budget; operators are known once they have asked something.
        self._free = {0}

    @property
    def open(self) -> int:
        """How many connections there are."""
        return self._open.total()

    def enter(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> Visit | None:
        """Let a new connection in; None, and it is closed with a word of why, where there is no room for it."""
        peer = peer_of_socket(sock)
        key: Hashable = peer.uid if peer is not None and shares_our_users(peer.pid) else _STRANGERS
        if key is _STRANGERS and not self._has_room(key):
            self._make_room()
        if not self._has_room(key):
            _tell(sock, _STRANGER if key is _STRANGERS else "account", is_secret=tls is not None)
            sock.close()
            return None
        if tls is None:
            visit = Visit(sock, self, key)
        else:
            secret = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            visit = SecretVisit(secret, self, key)
        self._open[key] += 1
        if key is _STRANGERS:
            self._silent[visit] = None
        return visit

    def _make_room(self) -> None:
        """Send away the stranger who says nothing for longest."""
        visit = next(iter(self._silent), None)
        if visit is not None:
            _tell(visit.socket, _STRANGER, is_secret=isinstance(visit, SecretVisit))
            visit.close()

    def hear(self, visit: Visit) -> None:
        """A stranger has said who they are; of very many of those some stay behind whoever is known at once."""
        if self._open[_STRANGERS] - len(self._silent) < self._most_strangers // 2:
            self._silent.pop(visit, None)

    def judge(self, visit: Visit) -> None:
        """It is known whether they are; who is still a stranger has said nothing."""
        if visit.key is _STRANGERS and not visit.closed():
            self._silent[visit] = None
        else:
            self._silent.pop(visit, None)

    def free(self, uid: int, *, is_free: bool) -> None:
        """Whether an account is an operator's, which needs no budget."""
        if is_free:
            self._free.add(uid)
        elif uid:
            self._free.discard(uid)

    def move(self, visit: Visit, key: Hashable) -> None:
        """A stranger is known by now. Raises LimitExceeded where they hold too many already."""
        if visit.key == key or visit.closed():
            return
        if not self._has_room(key):
            raise LimitExceeded(_TOO_MANY.format("bearer of a token"), hint=_HINT)
        self.leave(visit)
        visit.key = key
        self._open[key] += 1

    def leave(self, visit: Visit) -> None:
        """It is closed."""
        self._silent.pop(visit, None)
        self._open[visit.key] -= 1
        if not self._open[visit.key]:
            del self._open[visit.key]

    def _has_room(self, key: Hashable) -> bool:
        if key == 0:
            return True
        if key in self._free:
            return self.open < self._most
        most = self._most_strangers if key is _STRANGERS else self._most_of_one
        return self._open[key] < most and self.open < self._most


_STRANGER = "caller without a token that was read"
_TOO_MANY = "This {} holds as many connections to the broker as one may."
_HINT = "Close some; whoever holds them is shown by `ss -xp` or `ss -tp`."


def _tell(sock: socket.socket, who: str, *, is_secret: bool) -> None:
    """Say why they are sent away, where that could be read: not before a handshake."""
    if is_secret:
        return
    body = msgspec.json.encode(LimitExceeded(_TOO_MANY.format(who), hint=_HINT).to_body())
    head = f"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with contextlib.suppress(OSError):
        sock.send(f"{head}Connection: close\r\n\r\n".encode() + body, socket.MSG_DONTWAIT)


def visit_of(stream: object) -> Visit | None:
    """The visit that a request came by; None where somebody else listens, as in a test."""
    return stream if isinstance(stream, Visit) else None
