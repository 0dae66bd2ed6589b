"""The store: every event, and the world that follows from them, in one SQLite file. The only module with SQL.

Two ways lead to one truth. The tables hold the world as it is (`load`); the log holds how it came about, and folding it
from the newest snapshot gives the same world (`replay`). Both are written by `commit` in one transaction, so a crash at
any point leaves all of it or nothing.

A Store is used by one thread at a time; the loop keeps a thread for it. It keeps what it is given as it is given: what
must not be on a disk (tokens, secrets) is scrubbed before an event is made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ... import disks
from ...core.events import DeviceAppeared, OfWorkload, Submitted
from ...core.lifecycle import evolve
from ...errors import StoreUnavailable
from ...model import KEPT_ENDED, KEPT_ENDED_CHARACTERS, Device, Hold, Policy, Recurring, Workload, World
from . import opening
from .faults import damaged, said_plainly, vanished
from .history import History
from .rows import (
    Record,
    Row,
    Snapshot,
    Usage,
    changed_usage,
    decode_device,
    decode_hold,
    decode_recurring,
    decode_snapshot,
    decode_workload,
    device_row,
    encode,
    encode_snapshot,
    event_row,
    forgotten_devices,
    hold_rows,
    recurring_rows,
    snapshot_of,
    touched_devices,
    touched_workloads,
    workload_of,
    workload_row,
    world_of,
)

__all__ = ["SNAPSHOTS_KEPT", "SNAPSHOT_EVERY", "Record", "Store"]

#: So many events lie between two snapshots; the loop counts.
SNAPSHOT_EVERY = 1000
SNAPSHOTS_KEPT = 3
#: So many workloads are let go of in one transaction, so that nobody waits for it.
RETIRED_TOGETHER = 500
REASONS_TOGETHER = 5_000
_NO_LIMIT = -1

_ADD_EVENT = "INSERT INTO events (number, at, kind, workload, policy, body) VALUES (?, ?, ?, ?, ?, ?)"
_PUT_WORKLOAD = """
    INSERT INTO workloads
        (id, kind, state, owner, team, queue, name, submitted_at, ended_at, end, changed, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        kind = excluded.kind, state = excluded.state, owner = excluded.owner, team = excluded.team,
        queue = excluded.queue, name = excluded.name, submitted_at = excluded.submitted_at,
        ended_at = excluded.ended_at, end = excluded.end, changed = excluded.changed, body = excluded.body
"""
_PUT_DEVICE = """
    INSERT INTO devices (uuid, device_class, pool, node, cordoned, condition, body) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (uuid) DO UPDATE SET
        device_class = excluded.device_class, pool = excluded.pool, node = excluded.node,
        cordoned = excluded.cordoned, condition = excluded.condition, body = excluded.body
"""
_FORGET_DEVICE = "DELETE FROM devices WHERE uuid = ?"
_PUT_USAGE = """
    INSERT INTO usage (owner, team, queue, device_class, bucket, device_ms) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, team, queue, device_class, bucket) DO UPDATE SET device_ms = excluded.device_ms
"""
_FORGET_USAGE = "DELETE FROM usage WHERE owner = ? AND team = ? AND queue = ? AND device_class = ? AND bucket = ?"
_PUT_RECURRING = "INSERT OR REPLACE INTO recurring (id, owner, next_at, body) VALUES (?, ?, ?, ?)"
_FORGET_RECURRING = "DELETE FROM recurring WHERE id = ?"
_PUT_HOLD = "INSERT OR REPLACE INTO holds (id, name, body) VALUES (?, ?, ?)"
_FORGET_HOLD = "DELETE FROM holds WHERE id = ?"
_FORGET_SNAPSHOTS = """
    DELETE FROM snapshots WHERE number NOT IN (SELECT number FROM snapshots ORDER BY number DESC LIMIT ?)
"""
_TO_RETIRE = """
    SELECT id FROM workloads WHERE state = 'ended' AND ended_at < ? AND changed < ? ORDER BY changed LIMIT ?
"""
_RETIRE_REASONS = """
    DELETE FROM events WHERE number IN (
        SELECT number FROM events WHERE number < ? AND kind IN ('explained', 'reranked') LIMIT ?
    )
"""
_LIVING = "SELECT body FROM workloads WHERE state IN ('queued', 'active', 'yielding') ORDER BY changed, id"
_NEWEST_ENDED = "SELECT body FROM workloads WHERE state = 'ended' ORDER BY changed DESC LIMIT ?"


class Store(History):
    """One open store file."""

    def __init__(self, db: sqlite3.Connection, path: Path, *, store_id: str, warnings: tuple[str, ...] = ()) -> None:
        """Wrap a file that is open and migrated; `Store.open` is the way to one."""
        self._db = db
        self.path = path
        #: Made with the file and never changed: with it an event number is one in the world.
        self.store_id = store_id
        #: What an operator should know of where the file lies.
        self.warnings = warnings
        self._file = _file_of(path)
        #: The use as the file has it, so that a commit writes only the buckets that changed.
        self._usage = self._read_usage()

    @classmethod
    def open(cls, folder: Path, *, machine_id: str, now: float, make: bool = True) -> Store:
        """Open the store of a folder, made or migrated if need be.

        StoreUnavailable where the disk or the file does not allow it, Conflict where the file is another machine's,
        another program's or a newer version's, NotFound where there is none and `make` is false. Whatever is refused
        stays as it is.
        """
        path = folder / opening.FILE_NAME
        with said_plainly(path):
            if make:
                opening.make_folder(folder)
            shared = disks.network_file_system(folder)
            db = opening.connect(path, make=make)
            try:
                opening.admit(db, path, machine_id)
                opening.set_up(db, has_wal=shared is None)
                store_id = opening.migrate(db, machine_id=machine_id, now=now)
                warnings = () if shared is None else (opening.network_warning(folder, shared),)
                return cls(db, path, store_id=store_id, warnings=warnings)
            except BaseException:
                db.close()
                raise

    def close(self) -> None:
        """Close the file; what was committed is on the disk already."""
        self._db.close()

    # -- writing --

    def commit(self, records: Sequence[Record], world: World) -> None:
        """Write events and what they changed, all or nothing. `world` is the world after the last of them.

        StoreUnavailable leaves the file as it was: the caller goes back to that world with `load`, and may try again.
        """
        if not records:
            return
        first, last = records[0].number, records[-1].number
        if [record.number for record in records] != list(range(first, world.revision + 1)):
            message = f"events {first} to {last} do not lead to a world of revision {world.revision}"
            raise ValueError(message)
        with said_plainly(self.path):
            events = [event_row(record) for record in records]
            workloads = self._workload_rows(records, world)
            devices = [device_row(world.devices[uuid]) for uuid in touched_devices(records)]
            gone = [(uuid,) for uuid in forgotten_devices(records)]
            used, forgotten = changed_usage(self._usage, world.usage)
            recurring, removed = recurring_rows(records, world.recurring)
            holds, over = hold_rows(records, world.holds)
            with self._transaction():
                self._expect_revision(first - 1)
                self._db.executemany(_ADD_EVENT, events)
                self._db.executemany(_PUT_WORKLOAD, workloads)
                self._db.executemany(_FORGET_DEVICE, gone)
                self._db.executemany(_PUT_DEVICE, devices)
                self._db.executemany(_PUT_USAGE, used)
                self._db.executemany(_FORGET_USAGE, forgotten)
                self._db.executemany(_PUT_RECURRING, recurring)
                self._db.executemany(_FORGET_RECURRING, removed)
                self._db.executemany(_PUT_HOLD, holds)
                self._db.executemany(_FORGET_HOLD, over)
                self._count(world)
            self._usage = dict(world.usage)

    def snapshot(self, world: World) -> None:
        """Keep the whole world as it is now, so that `replay` need not begin at the first event."""
        with said_plainly(self.path):
            body = encode_snapshot(snapshot_of(world))
            with self._transaction():
                self._expect_revision(world.revision)
                self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (world.revision, body))
                self._db.execute(_FORGET_SNAPSHOTS, (SNAPSHOTS_KEPT,))

    def remember_policy(self, policy: Policy) -> None:
        """Keep a policy under the digest that stands on its events, so that old decisions can be explained."""
        with said_plainly(self.path), self._transaction():
            row = (policy.digest(), encode(policy))
            self._db.execute("INSERT OR IGNORE INTO policies VALUES (?, ?)", row)

    def retire(self, *, before: float, known: Container[int], most: int = RETIRED_TOGETHER) -> int:
        """Let go of some workloads that ended before an instant, with their lives; how much went, 0 once all has.

        Not of one that the world (`known`) or a replay still needs: nothing after the oldest snapshot goes. Of what is
        before it, reasons of waiting go too, whosever they are: nobody lists them, and they are most of a log.
        """
        with said_plainly(self.path):
            (oldest,) = self._db.execute("SELECT min(number) FROM snapshots").fetchone()
            if oldest is None:
                return 0
            rows = self._db.execute(_TO_RETIRE, (before, oldest, most))
            gone = [(id_,) for (id_,) in rows if id_ not in known]
            with self._transaction():
                self._db.executemany("DELETE FROM events WHERE workload = ?", gone)
                self._db.executemany("DELETE FROM workloads WHERE id = ?", gone)
                reasons = self._db.execute(_RETIRE_REASONS, (oldest, REASONS_TOGETHER)).rowcount
            return len(gone) + reasons

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # SQLite would go on writing into a file that nobody will ever open again.
        if _file_of(self.path) != self._file:
            raise vanished(self.path)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A full disk ends the transaction by itself, a foreign lock at COMMIT does not.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _expect_revision(self, revision: int) -> None:
        there = self._counters()["revision"]
        if there != revision:
            raise StoreUnavailable(
                f"The broker's store {self.path} stands at event {there}, this broker at {revision}: "
                "somebody else wrote to it.",
                hint="See that only one broker uses this folder, then restart it.",
            )

    def _count(self, world: World) -> None:
        counters = [(world.revision, "revision"), (world.last_id, "last_id")]
        self._db.executemany("UPDATE counters SET value = ? WHERE name = ?", counters)

    def _workload_rows(self, records: Sequence[Record], world: World) -> list[Row]:
        rows = []
        for id_, changed in touched_workloads(records).items():
            it = world.workloads.get(id_) or self._forgotten(id_, records, world)
            rows.append(workload_row(it, changed))
        return rows

    def _forgotten(self, id_: int, records: Sequence[Record], world: World) -> Workload:
        """One that ended so long before others, in this same commit, that the world keeps it no more."""
        alone = World(world.policy)
        # Also those that were forgotten since, in this same commit.
        alone.devices = {device.uuid: device for device in self._devices()} | world.devices
        before = self.workload(id_)
        if before is not None:
            alone.put_workload(before)
        for record in records:
            event = record.event
            if isinstance(event, DeviceAppeared) or (
                isinstance(event, OfWorkload | Submitted) and workload_of(event) == id_
            ):
                evolve(alone, event)
        return alone.workloads[id_]

    # -- the world --

    def load(self, policy: Policy) -> World:
        """The world as the tables have it, with the ended workloads that a world keeps."""
        with said_plainly(self.path):
            ended = self._newest_ended()
            living = [body for (body,) in self._db.execute(_LIVING)]
            self._usage = self._read_usage()
            counters = self._counters()
            return world_of(
                Snapshot(
                    revision=counters["revision"],
                    last_id=counters["last_id"],
                    workloads=(*reversed(ended), *map(decode_workload, living)),
                    devices=self._devices(),
                    usage=tuple(self._usage.items()),
                    recurring=self._recurring(),
                    holds=self._holds(),
                ),
                policy,
            )

    def _newest_ended(self) -> list[Workload]:
        """As many as a world keeps, the newest first; of heavy jobs they are fewer."""
        found: list[Workload] = []
        weight = 0
        for (body,) in self._db.execute(_NEWEST_ENDED, (KEPT_ENDED,)):
            found.append(it := decode_workload(body))
            weight += it.weight
            if weight > KEPT_ENDED_CHARACTERS:
                break
        return found

    def _devices(self) -> tuple[Device, ...]:
        rows = self._db.execute("SELECT body FROM devices ORDER BY place")
        return tuple(decode_device(body) for (body,) in rows)

    def _recurring(self) -> tuple[Recurring, ...]:
        return tuple(decode_recurring(body) for (body,) in self._db.execute("SELECT body FROM recurring ORDER BY id"))

    def _holds(self) -> tuple[Hold, ...]:
        return tuple(decode_hold(body) for (body,) in self._db.execute("SELECT body FROM holds ORDER BY id"))

    def replay(self, policy: Policy) -> World:
        """The world as the log has it: the newest snapshot that can be read, and the events after it."""
        with said_plainly(self.path):
            world = world_of(self._newest_snapshot(), policy)
            for record in self.events_since(world.revision, _NO_LIMIT):
                if record.number != world.revision + 1:
                    raise damaged(self.path, f"event {world.revision + 1} is missing in the log")
                evolve(world, record.event)
            return world

    def _newest_snapshot(self) -> Snapshot:
        rows = self._db.execute("SELECT body FROM snapshots ORDER BY number DESC")
        for (body,) in rows:
            try:
                return decode_snapshot(body)
            except msgspec.DecodeError:
                continue  # of an older version, or damaged: the log before it tells the same
        return Snapshot(revision=0, last_id=0, workloads=(), devices=(), usage=())

    def _counters(self) -> dict[str, int]:
        return dict(self._db.execute("SELECT name, value FROM counters"))

    def _read_usage(self) -> Usage:
        usage: Usage = {}
        for *key, bucket, used in self._db.execute("SELECT * FROM usage"):
            usage.setdefault(tuple(key), {})[bucket] = used
        return usage

    def mark(self, name: str) -> int | None:
        """How far somebody came in the log, by what they call it; None where they never said."""
        with said_plainly(self.path):
            return self._counters().get(name)

    def set_mark(self, name: str, number: int) -> None:
        """Remember how far somebody came in the log."""
        with said_plainly(self.path), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, number))


def _file_of(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to now; None where it leads nowhere."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
