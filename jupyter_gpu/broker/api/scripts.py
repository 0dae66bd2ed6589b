"""The copies of submitted scripts: an edit after submission does not change what a queued job runs.

    <state>/scripts/<sha256 of name and content>-<uid>/<name>

The folder and the file belong to the account that runs them, and nobody else enters. What belongs to a user is never
written to as root: a copy is made in a folder of our own, given away when it is whole, and then renamed to its place.
Named by its content, so to submit the same script again costs nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Container
from pathlib import Path

from ...errors import InvalidAsk, StoreUnavailable
from ...model import Script
from .account import Account

LARGEST_BYTES = 16 << 20
_LONGEST_NAME = 100


def safe_name(name: str) -> str:
    """A file name that is only that; it shows in tracebacks, nothing depends on it."""
    base = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    clean = re.sub(r"[^\w.+-]", "_", base, flags=re.ASCII).lstrip(".-")
    return clean[-_LONGEST_NAME:].lstrip(".-") or "script"


def keep_script(state: Path, script: Script, account: Account) -> Path:
    """Keep a copy for an account and say where it is. Blocks: call it on a thread."""
    if len(script.content) > LARGEST_BYTES:
        raise InvalidAsk(
            f"The script has {len(script.content)} bytes; {LARGEST_BYTES} are the most that is copied.",
            hint="Submit a small script that reads the rest from its folder.",
        )
    name = safe_name(script.name)
    digest = hashlib.sha256(f"{name}\0".encode() + script.content).hexdigest()
    scripts = state / "scripts"
    place = scripts / f"{digest}-{account.uid}"
    try:
        if not _is_whole(place / name, script.content):
            if not scripts.is_dir():
                scripts.mkdir(exist_ok=True)
                scripts.chmod(0o711)  # whatever the umask says: others pass through, nobody looks around
            _make(scripts, place, name, script.content, account)
        # For whoever clears away what no job needs any more.
        os.utime(place)
    except OSError as error:
        raise StoreUnavailable(f"The script cannot be kept in {scripts}: {error.strerror or error}.") from error
    return place / name


def forget_scripts(state: Path, needed: Container[str], *, older_than_seconds: float) -> int:
    """Remove the copies that no job needs, once they are old enough that none is just being submitted."""
    gone = 0
    with contextlib.suppress(FileNotFoundError):
        for place in list((state / "scripts").iterdir()):
            with contextlib.suppress(OSError):
                is_needed = any(str(file) in needed for file in place.iterdir())
                if not is_needed and place.lstat().st_mtime < time.time() - older_than_seconds:
                    _remove(place)
                    gone += 1
    return gone


def _is_whole(file: Path, content: bytes) -> bool:
    """Whether the copy is there as it was made; its owner may have changed or removed it."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as opened:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size != len(content):
            return False
        return opened.read(len(content) + 1) == content


def _make(scripts: Path, place: Path, name: str, content: bytes, account: Account) -> None:
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=scripts))
    try:
        fd = os.open(draft / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            os.fchmod(fd, 0o400)
            if not account.is_us:
                os.fchown(fd, account.uid, account.gid)
        if not account.is_us:
            os.chown(draft, account.uid, account.gid)
        if os.path.lexists(place):
            _remove(place)
        draft.rename(place)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _remove(place: Path) -> None:
    """Away from its name first: in a folder of ours its owner cannot race with us."""
    away = Path(tempfile.mkdtemp(prefix=".old-", dir=place.parent))
    place.rename(away / "it")
    shutil.rmtree(away, ignore_errors=True)
