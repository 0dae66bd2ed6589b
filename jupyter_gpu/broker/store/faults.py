"""What a failing disk, a foreign lock or a damaged file means, in sentences that say what, why and what now."""

from __future__ import annotations

import errno
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ...errors import InvalidAsk, StoreUnavailable

#: How long a lock that somebody else holds is waited for. Short: whoever asks gets an answer, the queue waits unharmed.
BUSY_SECONDS = 2.0

_WORK_GOES_ON = "Running work is not touched, and its end is recorded later."
_MOVE_ASIDE = "or set JUPYTER_GPU_STATE_DIR to a folder on another disk and restart the broker"

# SQLite's result codes; only the low byte says which kind it is. Spelt here since older sqlite3 modules lack the names.
_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26


@contextmanager
def said_plainly(path: Path) -> Iterator[None]:
    """Turn what the disk, SQLite or a damaged record raises inside into a StoreUnavailable, or else a GpuError.

    A broken constraint or a misused connection is a fault of ours, not of the disk: it passes as it is.
    """
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError):
        raise
    except sqlite3.Error as error:
        raise _of_sqlite(error, path) from error
    except OSError as error:
        raise _of_the_system(error, path) from error
    except (OverflowError, UnicodeEncodeError) as error:
        # The rim should have refused it; here it must at least fail as one command and not as the broker.
        raise InvalidAsk(
            f"What was asked cannot be recorded: {error}.",
            hint="Use smaller numbers, and text that is valid Unicode.",
        ) from error
    except msgspec.DecodeError as error:
        raise damaged(path, f"a record in it cannot be read: {error}") from error


def damaged(path: Path, evidence: str) -> StoreUnavailable:
    """The file is not what was written. It is never deleted: what is left of it may still be wanted."""
    return StoreUnavailable(
        f"The broker's store {path} is damaged ({evidence}). It was left as it is.",
        hint=f"Stop the broker and keep a copy of {path.parent}. Put a backup in its place, try "
        f"`sqlite3 {shlex.quote(str(path))} .recover`, or move the folder aside to begin with an empty queue.",
    )


def vanished(path: Path) -> StoreUnavailable:
    """The file was deleted, moved or replaced under a running broker: what is written now would be lost."""
    return StoreUnavailable(
        f"The broker's store {path} was deleted, moved or replaced while in use, so nothing can be recorded.",
        hint="Put the file back if you can, and restart the broker.",
    )


def _of_sqlite(error: sqlite3.Error, path: Path) -> StoreUnavailable:
    code = getattr(error, "sqlite_errorcode", None)
    kind = None if code is None else code & 0xFF
    why = getattr(error, "sqlite_errorname", None) or str(error)
    if kind == _FULL:
        return _full(path)
    if kind in (_BUSY, _LOCKED):
        return StoreUnavailable(
            f"Another process holds a lock on the broker's store {path} for more than {BUSY_SECONDS:g} s, "
            "so nothing can be recorded.",
            hint=f"Find it with `fuser -v {shlex.quote(str(path))}` (a backup, a second broker, an open sqlite3) and "
            f"try again. {_WORK_GOES_ON}",
        )
    if kind == _READONLY:
        return _read_only(path)
    if kind in (_CORRUPT, _NOTADB):
        return damaged(path, str(error))
    if kind == _CANTOPEN:
        return StoreUnavailable(
            f"The broker's store {path} cannot be opened.",
            hint=f"See that {path.parent} exists and belongs to the account of the broker, {_MOVE_ASIDE}.",
        )
    if kind == _IOERR:
        return StoreUnavailable(
            f"The disk that holds the broker's store {path} does not take or give data ({why}): it is over its quota "
            "or failing.",
            hint=f"Look with `df -h` and `quota`, make room, then try again; {_MOVE_ASIDE}. {_WORK_GOES_ON}",
        )
    return StoreUnavailable(
        f"The broker's store {path} failed: {error} ({why}).",
        hint=f"Try again, and report it if it comes back. {_WORK_GOES_ON}",
    )


def _of_the_system(error: OSError, path: Path) -> StoreUnavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(path)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return _read_only(path)
    return StoreUnavailable(
        f"The broker's store {path} cannot be used: {error.strerror or error}.",
        hint=f"See that {path.parent} is a folder that belongs to the account of the broker, {_MOVE_ASIDE}.",
    )


def _full(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"The disk that holds the broker's store {path} is full or over its quota, so nothing can be recorded.",
        hint=f"Free space on it, then try again; {_MOVE_ASIDE}. {_WORK_GOES_ON}",
    )


def _read_only(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"The broker's store {path} cannot be written: the file, its folder or its disk is read-only for this account.",
        hint=f"Give {path.parent} to the account of the broker, {_MOVE_ASIDE}. {_WORK_GOES_ON}",
    )
