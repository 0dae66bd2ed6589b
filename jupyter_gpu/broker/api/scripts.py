"""The copies of submitted scripts and of their records: a later edit changes neither what runs nor what is told of it.

    <state>/scripts/<sha256 of name and content>-<uid>/<name>

The file belongs to the account that runs it, and nobody else reads it. Its folder stays ours: the account can rewrite
its own copy, but neither swap nor nest anything there, so nothing that a user made is ever walked through as root. The
copy is named by its content, so to submit the same script again costs nothing, and one that was changed is made anew.
What all the copies of one account take is bounded; those of jobs that are over stay for a while, so that a job can be
submitted again as it was, and the oldest of them go first.
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
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import NamedTuple

from ...errors import GpuError, InvalidAsk, LimitExceeded, StoreUnavailable
from ...model import JobSpec, Script, pack_bytes, unpack_bytes
from .account import Account

log = logging.getLogger(__name__)

MOST_BYTES_OF_ONE = 1 << 30
#: Of that, what jobs need that are over.
MOST_PAST_BYTES_OF_ONE = 256 << 20
LARGEST_BYTES = 16 << 20
#: By this name the script itself is asked for.
SCRIPT = "script"
MOST_RECORDS = 8
MOST_RECORD_BYTES = 2 << 20
_LONGEST_NAME = 100
_RECORD_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class Kept(NamedTuple):
    """Where the copies of one submission lie, and the names of what was left out for want of room."""

    script: Path | None
    record: dict[str, Path]
    left_out: tuple[str, ...]


def safe_name(name: str) -> str:
    """A file name that is only that; it shows in tracebacks, nothing depends on it."""
    base = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    clean = re.sub(r"[^\w.+-]", "_", base, flags=re.ASCII).lstrip(".-")
    return clean[-_LONGEST_NAME:].lstrip(".-") or "script"


def check_record(record: Iterable[Script]) -> None:
    """Refuse what no face sends: odd names, one name twice, more than anybody reads."""
    names = [it.name for it in record]
    for name in names:
        if _RECORD_NAME.fullmatch(name) is None or name == SCRIPT or names.count(name) > 1:
            raise InvalidAsk(
                f"record: {name[:60]!a} cannot be the name of a part.",
                hint='Use short words such as "diff", each once.',
            )
    size = sum(len(it.content) for it in record)
    if len(names) > MOST_RECORDS or size > MOST_RECORD_BYTES:
        raise LimitExceeded(
            f"record has {len(names)} parts of {size} bytes; {MOST_RECORDS} and {MOST_RECORD_BYTES} are the most.",
            hint="Keep longer texts in files of your own.",
        )


def copies_of(spec: JobSpec | None) -> tuple[str, ...]:
    """All copies of a job, packed."""
    if spec is None:
        return ()
    return (*(() if spec.script_copy is None else (spec.script_copy,)), *spec.kept.values())


def read_copy(packed: str) -> Script | None:
    """A copy as it was kept; None where it was cleared away, or its owner has changed it since."""
    copy = Path(os.fsdecode(unpack_bytes(packed)))
    try:
        fd = os.open(copy, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as opened:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        content = opened.read(LARGEST_BYTES + 1)
    is_same = copy.parent.name.rpartition("-")[0] == _digest(copy.name, content)
    return Script(name=copy.name, content=content) if is_same else None


def check_script(script: Script) -> None:
    """Refuse one that is too large to be copied."""
    if len(script.content) > LARGEST_BYTES:
        raise InvalidAsk(
            f"The script has {len(script.content)} bytes; {LARGEST_BYTES} are the most that is copied.",
            hint="Submit a small script that reads the rest from its folder.",
        )


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
        #: Of these the places that a submission has made, and not found.
        self._fresh: set[Path] = set()
        #: Account -> its copies and their sizes; read from the folder when first needed.
        self._sizes: dict[int, dict[Path, int]] | None = None

    def keep(self, script: Script, account: Account) -> Path:
        """Keep a copy for an account and say where it is. It stays at least until `done` is called with it."""
        check_script(script)
        name = safe_name(script.name)
        place = self._folder / f"{_digest(name, script.content)}-{account.uid}"
        self._enter(place, account.uid, len(script.content))
        try:
            if not _is_whole(place / name, script.content):
                _make(place, name, script.content, account)
            # For whoever clears away what no job needs any more.
            os.utime(place)
        except BaseException as error:
            self.done((place / name,), may_go=True)
            if isinstance(error, OSError):
                trouble = error.strerror or error
                raise StoreUnavailable(f"The script cannot be kept in {self._folder}: {trouble}.") from error
            raise
        return place / name

    def keep_all(self, script: Script | None, record: Iterable[Script], account: Account) -> Kept:
        """Keep all of one submission. A script that cannot be kept refuses it; a record is left out, and told."""
        copy = None if script is None else self.keep(script, account)
        kept, left_out = {}, []
        for it in record:
            try:
                kept[it.name] = self.keep(it, account)
            except GpuError:
                left_out.append(it.name)
        return Kept(copy, kept, tuple(left_out))

    def done(self, copies: Iterable[Path], *, may_go: bool) -> None:
        """A submission is over; copies that came to nothing go, unless another job needs them."""
        with self._lock:
            unused = []
            for copy in copies:
                self._in_use[copy.parent] -= 1
                if not self._in_use[copy.parent]:
                    del self._in_use[copy.parent]
                    if copy.parent in self._fresh:  # else it was there for a job before
                        self._fresh.discard(copy.parent)
                        unused.append(copy)
            needed = self._needed() if unused and may_go else ()
            for copy in unused:
                if may_go and _packed(copy) not in needed:
                    self._remove(copy.parent)

    def sweep(self, *, older_than_seconds: float, most_bytes: int = MOST_PAST_BYTES_OF_ONE) -> int:
        """Remove copies that no job has needed for so long, and the oldest of an account's where these are too many.

        How many went is the answer. What a job needs is young again, so that its age counts from the job's end.
        """
        with self._lock:
            needed, now = self._needed(), time.time()
            gone = sum(self._forget(place, needed, now - older_than_seconds) for place in _places(self._folder))
            for mine in self._known().values():
                past = {place: size for place, size in mine.items() if not self._is_needed(place, needed)}
                gone += self._trim(past, sum(past.values()) - most_bytes, needed)
        return gone

    def _enter(self, place: Path, uid: int, size: int) -> None:
        with self._lock:
            mine = self._known().setdefault(uid, {})
            if place not in mine and (beyond := sum(mine.values()) + size - self._most_bytes) > 0:
                self._trim(dict(mine), beyond, self._needed())
                if (held := sum(mine.values())) + size > self._most_bytes:
                    raise LimitExceeded(
                        f"The scripts of your jobs that are not over have {held} bytes; with this one they would have "
                        f"more than {self._most_bytes}.",
                        hint="Let some jobs end, or submit a small script that reads the rest from its folder.",
                    )
            if place not in mine:
                self._fresh.add(place)
            mine[place] = size
            self._in_use[place] += 1

    def _trim(self, sizes: dict[Path, int], beyond: int, needed: Container[str]) -> int:
        """Remove the oldest that may go, until so many bytes are gone; how many went."""
        gone = 0
        for place in sorted(sizes, key=_age):
            if beyond <= 0:
                break
            if self._forget(place, needed, float("inf")):
                beyond, gone = beyond - sizes[place], gone + 1
        return gone

    def _is_needed(self, place: Path, needed: Container[str]) -> bool:
        """Whether a submission or a job has it; then it is young again."""
        with contextlib.suppress(OSError):
            if place in self._in_use:
                return True
            if any(_packed(file) in needed for file in place.iterdir()):
                os.utime(place)
                return True
        return False

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
            if self._is_needed(place, needed) or place.lstat().st_mtime >= before:
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


def _age(place: Path) -> float:
    try:
        return place.lstat().st_mtime
    except OSError:
        return 0.0


def _digest(name: str, content: bytes) -> str:
    return hashlib.sha256(f"{name}\0".encode() + content).hexdigest()


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
