"""The tables of the store, release by release. A migration that was released is never edited: add the next one.

Only plain SQL of SQLite 3.24, the oldest that Python 3.11 is built on in the field: no STRICT tables, no RETURNING.
Each noun's columns are what people query; `body` is the whole noun as JSON and what the broker reads.
"""

from __future__ import annotations

import sqlite_utils

MIGRATIONS = sqlite_utils.Migrations("jupyter_gpu")


@MIGRATIONS()
def m001_initial(db: sqlite_utils.Database) -> None:
    """0.1.0: the log, the tables, snapshots, and the policies that explain old events."""
    for statement in _M001:
        db.conn.execute(statement)


@MIGRATIONS()
def m002_recurring(db: sqlite_utils.Database) -> None:
    """Recurring jobs."""
    db.conn.execute(
        "CREATE TABLE recurring (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, next_at REAL, body TEXT NOT NULL)"
    )


@MIGRATIONS()
def m003_of_devices(db: sqlite_utils.Database) -> None:
    """Which devices there were when is found without a look at every event; they are few among many."""
    db.conn.execute(
        "CREATE INDEX events_of_devices ON events (number) "
        "WHERE kind IN ('device-appeared', 'device-forgotten', 'device-marked')"
    )


@MIGRATIONS()
def m004_holds(db: sqlite_utils.Database) -> None:
    """Holds that operators put by a word."""
    db.conn.execute("CREATE TABLE holds (id INTEGER PRIMARY KEY, name TEXT NOT NULL, body TEXT NOT NULL)")


def known_names() -> set[str]:
    """The migrations of this version; a file that has more is newer."""
    empty = sqlite_utils.Database(memory=True, execute_plugins=False)
    try:
        return {migration.name for migration in MIGRATIONS.pending(empty)}
    finally:
        empty.close()


_M001 = (
    # One row: whose store it is.
    """CREATE TABLE identity (
        store_id TEXT NOT NULL,
        machine_id TEXT NOT NULL,
        created_at REAL NOT NULL
    )""",
    # revision: the number of the last event; last_id: of the last workload.
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        workload INTEGER,
        policy TEXT NOT NULL,
        body TEXT NOT NULL
    )""",
    "CREATE INDEX events_of_workload ON events (workload) WHERE workload IS NOT NULL",
    # changed: the last event that touched it. In this order the world puts them back exactly as they were.
    """CREATE TABLE workloads (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        owner TEXT NOT NULL,
        team TEXT NOT NULL,
        queue TEXT NOT NULL,
        name TEXT NOT NULL,
        submitted_at REAL NOT NULL,
        ended_at REAL,
        end TEXT,
        changed INTEGER NOT NULL,
        body TEXT NOT NULL
    )""",
    "CREATE INDEX workloads_of_owner ON workloads (owner)",
    "CREATE INDEX workloads_in_state ON workloads (state)",
    "CREATE INDEX workloads_ended ON workloads (changed) WHERE state = 'ended'",
    # place: the order of appearance. A key of its own, since VACUUM may renumber hidden ones.
    """CREATE TABLE devices (
        place INTEGER PRIMARY KEY,
        uuid TEXT NOT NULL UNIQUE,
        device_class TEXT NOT NULL,
        pool TEXT NOT NULL,
        node TEXT NOT NULL,
        cordoned INTEGER NOT NULL,
        condition TEXT,
        body TEXT NOT NULL
    )""",
    """CREATE TABLE usage (
        owner TEXT NOT NULL,
        team TEXT NOT NULL,
        queue TEXT NOT NULL,
        device_class TEXT NOT NULL,
        bucket INTEGER NOT NULL,
        device_ms INTEGER NOT NULL,
        PRIMARY KEY (owner, team, queue, device_class, bucket)
    ) WITHOUT ROWID""",
    "CREATE TABLE snapshots (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE policies (digest TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
)
