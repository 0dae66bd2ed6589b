"""Opening a store: its folder, the file system below it, whose it is, and whether this version can read it."""

from __future__ import annotations

import os
import shlex
import sqlite3
import stat
import uuid
from pathlib import Path

import sqlite_utils

from ...errors import Conflict, NotFound
from .faults import BUSY_SECONDS, damaged
from .migrations import MIGRATIONS, known_names

FILE_NAME = "broker.db"

#: Checking every page of a larger file would delay each start; damage there is met, and said, on reading.
CHECKED_BYTES = 64 << 20


def make_folder(folder: Path) -> None:
    """Make the folder if need be; nobody but its owner may look inside.

    Passing through stays as it was: jobs of a shared broker read their own attempt's files below it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o066:
        folder.chmod(mode & ~0o066)


def connect(path: Path, *, make: bool) -> sqlite3.Connection:
    """Open the file, made if it may be, readable by its owner only."""
    if not path.exists():
        if not make:
            raise NotFound(f"there is no store in {path.parent}", hint="A broker makes one when it starts there.")
        # Made here, since SQLite would let the umask decide who may read it; its -wal and -shm follow the file.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(
        path,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions begin where we say so
        check_same_thread=False,  # the loop keeps one thread for the store, which is not the one that opened it
    )


def admit(db: sqlite3.Connection, path: Path, machine_id: str) -> None:
    """Refuse what is not ours to write, before anything is written."""
    if path.stat().st_size <= CHECKED_BYTES:
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise damaged(path, verdict.splitlines()[-1])
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return
    if MIGRATIONS.migrations_table not in tables:
        raise Conflict(
            f"{path} is a database, but no store of jupyter_gpu; it was not touched.",
            hint="Move it aside, or set JUPYTER_GPU_STATE_DIR to another folder.",
        )
    known = known_names()
    newer = [row.name for row in MIGRATIONS.applied(_wrapped(db)) if row.name not in known]
    if newer:
        raise Conflict(
            f"The broker's store {path} was written by a newer version of jupyter_gpu ({newer[-1]}); "
            "it was not touched.",
            hint="Install that version again, or set JUPYTER_GPU_STATE_DIR to another folder.",
        )
    if "identity" in tables:
        _admit_machine(db, path, machine_id)


def _admit_machine(db: sqlite3.Connection, path: Path, machine_id: str) -> None:
    row = db.execute("SELECT machine_id FROM identity").fetchone()
    if row is not None and row[0] != machine_id:
        adopt = f"UPDATE identity SET machine_id = '{machine_id}'"  # noqa: S608 - a text for people to run
        raise Conflict(
            f"The broker's store {path} belongs to another machine ({row[0]}); this one is {machine_id}. "
            "Its devices and processes are not here, so it was not touched.",
            hint="Is the folder shared between machines? Then set JUPYTER_GPU_STATE_DIR to a folder of this machine "
            "alone. If it is the same machine with a new id (reinstalled, cloned), make the store its own: "
            f"`sqlite-utils query {shlex.quote(str(path))} {shlex.quote(adopt)}`.",
        )


def set_up(db: sqlite3.Connection, *, has_wal: bool) -> None:
    """How it is written: every commit is on the disk before it is answered."""
    # Without WAL the mode is the old one, a rollback journal, whose locks a network file system may at least know.
    db.execute(f"PRAGMA journal_mode = {'WAL' if has_wal else 'DELETE'}")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA journal_size_limit = 67108864")
    db.execute("PRAGMA temp_store = MEMORY")


def migrate(db: sqlite3.Connection, *, machine_id: str, now: float) -> str:
    """Bring the tables up to this version, all or nothing, and give the store's id."""
    wrapped = _wrapped(db)
    # Immediate, so that of two brokers that start at once the second waits and then finds nothing left to do.
    db.execute("BEGIN IMMEDIATE")
    try:
        MIGRATIONS.apply(wrapped)
        row = db.execute("SELECT store_id FROM identity").fetchone()
        if row is None:
            row = (str(uuid.uuid4()),)
            db.execute("INSERT INTO identity VALUES (?, ?, ?)", (*row, machine_id, now))
            db.execute("INSERT INTO counters VALUES ('revision', 0), ('last_id', 0)")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return str(row[0])


def _wrapped(db: sqlite3.Connection) -> sqlite_utils.Database:
    # Plugins of sqlite-utils that happen to be installed have no business in the broker.
    return sqlite_utils.Database(db, execute_plugins=False, recursive_triggers=False)


def network_warning(folder: Path, kind: str) -> str:
    """What an operator should know of a store on a shared disk."""
    return (
        f"The broker's store lies in {folder} on a network file system ({kind}): its locks are slow and may fail, so "
        "answers can be late or refused. Set JUPYTER_GPU_STATE_DIR to a folder on a local disk and restart the broker."
    )
