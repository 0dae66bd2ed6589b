"""The copies of submitted scripts: an edit after submission does not change what a queued job runs.

    <state>/scripts/<sha256 of name and content>-<uid>/<name>

The file belongs to the account that runs it, and nobody else reads it. Its folder stays ours: the account can rewrite
its own copy, but neither swap nor nest anything there, so nothing that a user made is ever walked through as root. The
copy is named by its content, so to submit the same script again costs nothing, and one that was changed is made anew.
What all the copies of one account take is bounded; those of jobs that are over go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Container
from pathlib import Path

from ...errors import InvalidAsk, LimitExceeded, StoreUnavailable
from ...model import Script, pack_bytes
from .account import Account

log = logging.getLogger(__name__)

MOST_BYTES_OF_ONE = 1 << 30
LARGEST_BYTES = 16 << 20
_LONGEST_NAME = 100


def safe_name(name: str) -> str:
    """A file name that is only that; it shows in tracebacks, nothing depends on it."""
    base = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    clean = re.sub(r"[^\w.+-]", "_", base, flags=re.ASCII).lstrip(".-")
    return clean[-_LONGEST_NAME:].lstrip(".-") or "script"


class Scripts:
    """The copies of one broker. Its calls block: make them on a thread.

    `needed` says which copies (packed) the jobs that are not over run. It is asked under the lock and only of copies
    that no submission is just using, so what was committed a moment ago is among them.
    """

    def __init__(
        self, state: Path, needed: Callable[[], Container[str]], *, most_bytes: int = MOST_BYTES_OF_ONE
    ) -> None:
        self._folder = state / "scripts"
        self._needed = needed
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._in_use: Counter[Path] = Counter()
        #: Account -> its copies and their sizes; read from the folder when first needed.
        self._sizes: dict[int, dict[Path, int]] | None = None

    def keep(self, script: Script, account: Account) -> Path:
        """Keep a copy for an account and say where it is. It stays at least until `done` is called with it."""
        if len(script.content) > LARGEST_BYTES:
            raise InvalidAsk(
                f"The script has {len(script.content)} bytes; {LARGEST_BYTES} are the most that is copied.",
                hint="Submit a small script that reads the rest from its folder.",
            )
        name = safe_name(script.name)
        digest = hashlib.sha256(f"{name}\0".encode() + script.content).hexdigest()
        place = self._folder / f"{digest}-{account.uid}"
        self._enter(place, account.uid, len(script.content))
        try:
            if not _is_whole(place / name, script.content):
                _make(place, name, script.content, account)
            # For whoever clears away what no job needs any more.
            os.utime(place)
        except BaseException as error:
            self.done(place / name, may_go=True)
            if isinstance(error, OSError):
                trouble = error.strerror or error
                raise StoreUnavailable(f"The script cannot be kept in {self._folder}: {trouble}.") from error
            raise
        return place / name

    def done(self, copy: Path, *, may_go: bool) -> None:
        """A submission is over; a copy that came to nothing goes, unless another job needs it."""
        place = copy.parent
        with self._lock:
            self._in_use[place] -= 1
            if not self._in_use[place]:
                del self._in_use[place]
                if may_go and _packed(copy) not in self._needed():
                    self._remove(place)

    def sweep(self, *, older_than_seconds: float) -> int:
        """Remove the copies that no job needs, once they are old enough; how many went."""
        with self._lock:
            needed = self._needed()
            return sum(self._forget(place, needed, time.time() - older_than_seconds) for place in _places(self._folder))

    def _enter(self, place: Path, uid: int, size: int) -> None:
        with self._lock:
            mine = self._known().setdefault(uid, {})
            if place not in mine and sum(mine.values()) + size > self._most_bytes:
                needed = self._needed()
                for other in list(mine):
                    self._forget(other, needed, float("inf"))
                mine = self._known().setdefault(uid, {})
                if (held := sum(mine.values())) + size > self._most_bytes:
                    raise LimitExceeded(
                        f"The scripts of your jobs that are not over have {held} bytes; with this one they would have "
                        f"more than {self._most_bytes}.",
                        hint="Let some jobs end, or submit a small script that reads the rest from its folder.",
                    )
            mine[place] = size
            self._in_use[place] += 1

    def _known(self) -> dict[int, dict[Path, int]]:
        if self._sizes is None:
            self._sizes = {}
            for place in _places(self._folder):
                with contextlib.suppress(OSError, ValueError):
                    uid = int(place.name.rpartition("-")[2])
                    self._sizes.setdefault(uid, {})[place] = sum(it.lstat().st_size for it in place.iterdir())
        return self._sizes

    def _forget(self, place: Path, needed: Container[str], before: float) -> bool:
        """Remove one, if it may go; whatever stands in its way, the others are looked at too."""
        try:
            if place in self._in_use or place.lstat().st_mtime >= before:
                return False
            if any(_packed(file) in needed for file in place.iterdir()):
                return False
            return self._remove(place)
        except OSError:
            return False

    def _remove(self, place: Path) -> bool:
        try:
            _clear(place)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("the script copy %s cannot be removed: %s", place, error)
            return False
        for mine in ({} if self._sizes is None else self._sizes).values():
            mine.pop(place, None)
        return True


def _places(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _packed(copy: Path) -> str:
    return pack_bytes(os.fsencode(copy))


def _clear(place: Path) -> None:
    """Remove a folder of ours. Only we write into it, so it holds files and nothing below."""
    for file in place.iterdir():
        file.unlink()
    place.rmdir()


def _is_whole(file: Path, content: bytes) -> bool:
    """Whether the copy is there as it was made; its owner may have changed it."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as opened:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size != len(content):
            return False
        return opened.read(len(content) + 1) == content


def _make(place: Path, name: str, content: bytes, account: Account) -> None:
    """Whole or not at all: written beside its name and given away, then renamed to it."""
    for folder in (place.parent, place):
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            folder.chmod(0o711)  # whatever the umask says: others pass through, nobody looks around
    fd, draft = tempfile.mkstemp(prefix=".draft-", dir=place)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(fd, 0o400)
            if not account.is_us:
                os.fchown(fd, account.uid, account.gid)
        Path(draft).rename(place / name)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
