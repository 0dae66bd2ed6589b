"""What signs the cookies of our page: random, made once, and kept in the broker's state folder for its account alone.

A hub gives its service a new token at each of its starts. What was signed by that would be void then, and every open
page would have to sign in again; so the secret is our own, and a restart of hub or service signs nobody out.

It opens nothing by itself. A cookie holds a token that the hub has given to this browser, and the hub is asked whose it
is as long as the cookie is used: whoever logs out, or whose token is revoked or expires, is out within
`hub_cache_seconds`, whatever the cookie's signature says. Who has stolen the state folder can sign a cookie, but has no
token to put in it. They can also make the X-XSRFToken of a session whose cookies they know, which whoever knows those
need not. What else lies in that folder is worth more. After a theft remove the file `cookie-secret` and restart the
service: all that was signed by it is void. So it is at the first start after a quarter of a year, too; open pages then
sign in again once.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import stat
import time
from pathlib import Path

log = logging.getLogger(__name__)

NAME = "cookie-secret"
BYTES = 32
#: Longer than any cookie lasts: tornado takes them for 31 days, and the hub's tokens in them are good for 14.
LASTS_SECONDS = 90 * 86_400


def cookie_secret(folder: Path, service: str, *, now: float | None = None) -> bytes | None:
    """What signs the cookies of this service; None where it can neither be read nor kept."""
    path = folder / NAME
    try:
        kept = _read(path, time.time() if now is None else now) or _make(path)
    except OSError as error:
        log.warning("%s cannot be kept, so open pages sign in again after a restart of the hub: %s", path, error)
        return None
    return hashlib.sha256(b"cookies of jupyter_gpu " + service.encode() + b" " + kept).digest()


def _read(path: Path, now: float) -> bytes | None:
    """None where there is none, or one that somebody else could know or has made, or that is old."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        is_whose = os.fstat(file)
        is_ours = stat.S_ISREG(is_whose.st_mode) and is_whose.st_uid == os.geteuid() and not is_whose.st_mode & 0o077
        if not is_ours or not is_whose.st_mtime <= now <= is_whose.st_mtime + LASTS_SECONDS:
            return None
        found = opened.read(BYTES + 1)
    return found if len(found) == BYTES else None


def _make(path: Path) -> bytes:
    """Beside it and then in its place, so that half of one is never read."""
    made, beside = secrets.token_bytes(BYTES), path.with_name(f"{NAME}.new")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as opened:
        os.fchmod(file, 0o600)
        opened.write(made)
        opened.flush()
        os.fsync(file)
    beside.replace(path)
    return made
