"""What a store knows of the past: events and workloads, however long ago, as far as they are kept."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...core.events import DeviceAppeared, DeviceForgotten
from ...model import Kind, Policy, State, Workload
from .faults import said_plainly
from .rows import Record, Touched, decode_policy, decode_workload, record_of, tag_of, workloads_of

#: After these a listener shows all devices anew.
_WHICH_DEVICES = frozenset({tag_of(DeviceAppeared), tag_of(DeviceForgotten)})

_EVENTS_AFTER = "SELECT number, policy, body FROM events WHERE number > ? ORDER BY number LIMIT ?"
#: What is long in an event, a script or an environment, stays on the disk.
_TOUCHED_SINCE = """
    SELECT number, policy, kind, workload, CASE kind WHEN 'explained' THEN body END FROM events
    WHERE number >= ? ORDER BY number LIMIT ?
"""
_EVENTS_OF = "SELECT number, policy, body FROM events WHERE workload = ? AND number > ? ORDER BY number LIMIT ?"


class History:
    """The half of a store that only reads, and only what is over."""

    _db: sqlite3.Connection
    path: Path

    def events_of(self, workload_id: int, after: int = 0, limit: int = 100) -> list[Record]:
        """The life of one workload after event `after`, oldest first."""
        return self._records(_EVENTS_OF, (workload_id, after, limit))

    def events_since(self, number: int, limit: int = 100) -> list[Record]:
        """What happened after an event, oldest first."""
        return self._records(_EVENTS_AFTER, (number, limit))

    def touched_since(self, number: int, most: int) -> Touched | None:
        """Which workloads the events after one were about.

        None where their names do not say it all: the event is not there, devices came or went since, other rules hold
        by now, or `most` events or workloads are not enough.
        """
        with said_plainly(self.path):
            rows = self._db.execute(_TOUCHED_SINCE, (number, most + 2))
            begun = rows.fetchone()
            if begun is None or begun[0] != number:
                return None
            newest, touched = begun, set[int]()
            for newest in rows:
                last, _, kind, workload, body = newest
                touched.update(workloads_of(workload, body))
                if kind in _WHICH_DEVICES or last > number + most or len(touched) > most:
                    return None
            last, rules, *_ = newest
            return Touched(touched, last) if rules == begun[1] else None

    def _records(self, query: str, values: tuple[int, ...]) -> list[Record]:
        with said_plainly(self.path):
            return [record_of(row) for row in self._db.execute(query, values)]

    def workload(self, workload_id: int) -> Workload | None:
        """One workload, however long ago it ended."""
        with said_plainly(self.path):
            row = self._db.execute("SELECT body FROM workloads WHERE id = ?", (workload_id,)).fetchone()
            return None if row is None else decode_workload(row[0])

    def workloads(
        self,
        owner: str | None = None,
        state: State | None = None,
        kind: Kind | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Workload]:
        """A page of workloads, newest first. `after` is the last id of the page before; 0 begins at the newest."""
        asked = {"owner": owner, "state": state, "kind": kind}
        values = {column: str(value) for column, value in asked.items() if value is not None}
        which = ["id < :after"] * bool(after) + [f"{column} = :{column}" for column in values]
        where = "WHERE " + " AND ".join(which) if which else ""
        # Only names of columns are put together here; what was asked is bound.
        query = f"SELECT body FROM workloads {where} ORDER BY id DESC LIMIT :limit"  # noqa: S608
        with said_plainly(self.path):
            rows = self._db.execute(query, {**values, "after": after, "limit": limit})
            return [decode_workload(body) for (body,) in rows]

    def policy(self, digest: str) -> Policy | None:
        """The rules that a digest on an event means, if this store has seen them."""
        with said_plainly(self.path):
            row = self._db.execute("SELECT body FROM policies WHERE digest = ?", (digest,)).fetchone()
            return None if row is None else decode_policy(row[0])
