"""Where the broker is: as told, else the machine's shared one, else this user's own, else a new one.

Whoever may write to a shared folder could put a socket there and hear everything, so a socket counts only where it and
its folder belong to this user or to root. Names may change hands between two looks, so in the end the kernel says of
each connection who is at its other end, before anything is sent.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from .. import paths
from ..errors import BrokerUnavailable, InvalidAsk, NotAllowed
from ..spawn import start_broker

API = "/api/v1"
_CONNECT_SECONDS = 5.0
_UCRED = struct.Struct("3i")


class Place(NamedTuple):
    """Where to send what: a Unix socket or a URL, and the token to show."""

    #: Like "http://127.0.0.1:8790/api/v1"; for a socket the host means nothing.
    url: str
    uds: str | None = None
    token: str | None = None
    #: Found by ourselves, so that it may be looked for again when it is gone.
    is_found: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether words leave this machine, where a proxy of the environment may be meant."""
        return self.uds is None and urlsplit(self.url).hostname not in ("127.0.0.1", "localhost", "::1")

    def __str__(self) -> str:
        """For people: without the token, and of a URL scheme, host and port only, since the rest may hold one."""
        return self.uds or shown(self.url)


def shown(url: str) -> str:
    """What of a URL may be said aloud, in errors, logs and documents: scheme, host and port."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the URL"
    if not parts.scheme or not parts.netloc:
        return "the URL"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def find_broker(
    url: str | None = None,
    *,
    token: str | None = None,
    environ: Mapping[str, str] = os.environ,
    start: bool = True,
) -> Place:
    """Find the broker, or start one. Blocks for as long as a start takes; BrokerUnavailable says what to do."""
    told = url or environ.get("JUPYTER_GPU_URL")
    if told:
        named = read_url(told, token or environ.get("JUPYTER_GPU_TOKEN"))
        if named.token is None and named.uds is None and not url:
            # In a server of a hub the environment names the hub's service, which knows its user by this token.
            return named._replace(token=environ.get("JUPYTERHUB_API_TOKEN"))
        return named
    # JUPYTER_GPU_TOKEN goes with JUPYTER_GPU_URL: nobody here is shown what is meant for a broker elsewhere.
    place = running_broker(environ, token)
    if place is None and start:
        start_broker(environ=environ, is_there=lambda: running_broker(environ, token) is not None)
        place = running_broker(environ, token)
    if place is None:
        places = dict.fromkeys((paths.user_socket(environ), paths.system_socket(environ)))
        raise BrokerUnavailable(f"No broker runs at {' or '.join(map(str, places))}.")
    return place


def read_url(text: str, token: str | None = None) -> Place:
    """Read what people write: http://host:port/prefix, https://..., unix:///path or a path."""
    if text.startswith("/"):
        return _at(Path(text), token)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise InvalidAsk(f"What is given as {_given(text)} is no URL.", hint=_URLS) from None
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return _at(Path(unquote(parts.path)), token)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise InvalidAsk(f"What is given as {_given(text)} is no URL of a broker.", hint=_URLS)
    path = parts.path.rstrip("/")
    return Place(f"{parts.scheme}://{parts.netloc}{path if path.endswith(API) else path + API}", token=token)


def _given(text: str) -> str:
    """What was given, as far as no secret can be in it."""
    return repr(shown(text)[:100]) if "://" in text else "the broker's URL"


_URLS = (
    "Write http://127.0.0.1:8790, https://host/prefix or unix:///path/broker.sock; a token goes into JUPYTER_GPU_TOKEN."
)


def running_broker(environ: Mapping[str, str] = os.environ, token: str | None = None) -> Place | None:
    """The broker that answers now, the machine's before this user's; None where there is none."""
    for path in dict.fromkeys((paths.system_socket(environ), paths.user_socket(environ))):
        if is_trusted(path) and answers(path):
            return _at(path, token)._replace(is_found=True)
    return None


def is_trusted(path: Path) -> bool:
    """Whether a socket stands there that is ours or root's; NotAllowed where it is somebody else's."""
    try:
        # A link counts as its maker's: in a shared folder anybody leads others where they like.
        found, name, folder = path.lstat(), path.parent.lstat(), path.parent.stat()
    except OSError:
        return False
    owners = {found.st_uid, name.st_uid, folder.st_uid}
    if not stat.S_ISSOCK(found.st_mode) or not owners <= {os.geteuid(), 0}:
        raise _stranger(path, max(owners - {os.geteuid(), 0}, default=found.st_uid))
    return True


def answers(path: Path) -> bool:
    """Whether somebody listens; a socket outlives a broker that was killed. NotAllowed where it is a stranger."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
        check_peer(probe, path)
    return True


def check_peer(connected: socket.socket, path: object) -> None:
    """Raise NotAllowed where who listens at the other end is neither this user nor root."""
    _, uid, _ = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if uid not in (os.geteuid(), 0):
        raise _stranger(path, uid)


def _stranger(path: object, uid: int) -> NotAllowed:
    return NotAllowed(
        f"What stands at {path} belongs to user {uid} and is no broker of yours.",
        hint="Tell an admin; to use another place meanwhile, set JUPYTER_GPU_RUNTIME_DIR.",
    )


def _at(path: Path, token: str | None) -> Place:
    return Place(f"http://broker{API}", uds=os.fspath(paths.fitting(path)), token=token)
