"""What a store knows of the past: events and workloads, however long ago, as far as they are kept."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from ...core.events import DeviceAppeared, DeviceForgotten, Event
from ...core.past import OF_A_PAST, Life
from ...model import Kind, Policy, State, Workload
from .faults import said_plainly
from .rows import (
    Record,
    Touched,
    decode_event,
    decode_life,
    decode_policy,
    decode_workload,
    record_of,
    tag_of,
    workloads_of,
)

#: After these a listener shows all devices anew.
_WHICH_DEVICES = frozenset({tag_of(DeviceAppeared), tag_of(DeviceForgotten)})

_EVENTS_AFTER = "SELECT number, policy, body FROM events WHERE number > ? ORDER BY number LIMIT ?"
#: What is long in an event, a script or an environment, stays on the disk.
_TOUCHED_SINCE = """
    SELECT number, policy, kind, workload, CASE WHEN kind IN ('explained', 'reranked') THEN body END FROM events
    WHERE number >= ? ORDER BY number LIMIT ?
"""
_EVENTS_OF = "SELECT number, policy, body FROM events WHERE workload = ? AND number > ? ORDER BY number LIMIT ?"
#: As the index says it, so that it is used.
_OF_DEVICES = """
    SELECT number, policy, body FROM events
    WHERE kind IN ('device-appeared', 'device-forgotten', 'device-marked') AND number > ? ORDER BY number LIMIT ?
"""
_OWNERS = "SELECT id, owner FROM workloads WHERE id IN (SELECT value FROM json_each(?))"
#: A body stays on the disk where the workload is not of the window; there are far more of those.
_LIVES = """
    SELECT id, CASE WHEN submitted_at <= :end AND (ended_at IS NULL OR ended_at > :begin)
        AND (:owner IS NULL OR owner = :owner) THEN body END
    FROM workloads WHERE id > :after ORDER BY id LIMIT :most
"""
# Only names of kinds are put together here.
_PAST_OF = (
    "SELECT body FROM events WHERE workload = ? AND kind IN ("  # noqa: S608
    + ", ".join(f"'{tag_of(kind)}'" for kind in OF_A_PAST)
    + ") ORDER BY number"
)
#: So much is looked at in one turn at most, of which there are many: some ten milliseconds, and commits in between.
_LIVES_TOGETHER = 2_000
_LIVES_BYTES = 512 << 10


#: As `core.chains.is_lost` says it, of the columns first: a body is large.
_FIRST_LOST = """
    SELECT body FROM workloads WHERE id BETWEEN :first AND :last AND state = 'ended' AND CASE WHEN :ok
        THEN end <> 'succeeded'
        ELSE end IN ('cancelled', 'dependency-unmet') AND coalesce(json_extract(body, '$.attempt'), 0) = 0 END
    ORDER BY id LIMIT 1
"""


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

    def owners(self, ids: Iterable[int]) -> dict[int, str]:
        """Whose these workloads are or were, as far as they are kept."""
        asked = json.dumps(sorted(ids))
        with said_plainly(self.path):
            return dict(self._db.execute(_OWNERS, (asked,)).fetchall())

    def first_lost(self, first: int, last: int, *, ok: bool) -> Workload | None:
        """The first of an array that has ended in a way that does not meet a dependency on it."""
        asked = {"first": first, "last": last, "ok": ok}
        with said_plainly(self.path):
            row = self._db.execute(_FIRST_LOST, asked).fetchone()
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

    def of_devices(self, after: int = 0, limit: int = 1000) -> list[Record]:
        """When devices came, went or were marked, after event `after`, oldest first."""
        return self._records(_OF_DEVICES, (after, limit))

    def lives(
        self,
        after: int,
        take: Callable[[Life, list[Event]], None],
        *,
        begin: float,
        end: float,
        owner: str | None = None,
    ) -> int | None:
        """Give some of the workloads that were there in (begin, end], each with its past, by id from `after` on.

        The answer is where to go on; None at the end.
        """
        asked = {"begin": begin, "end": end, "owner": owner, "after": after, "most": _LIVES_TOGETHER}
        looked_at = size = 0
        with said_plainly(self.path), closing(self._db.execute(_LIVES, asked)) as rows:
            for last, body in rows:
                looked_at += 1
                if body is not None:
                    past = [text for (text,) in self._db.execute(_PAST_OF, (last,))]
                    take(decode_life(body), [decode_event(text) for text in past])
                    size += len(body) + sum(map(len, past))
                if size > _LIVES_BYTES or looked_at == _LIVES_TOGETHER:
                    return int(last)
        return None

    def policy(self, digest: str) -> Policy | None:
        """The rules that a digest on an event means, if this store has seen them."""
        with said_plainly(self.path):
            row = self._db.execute("SELECT body FROM policies WHERE digest = ?", (digest,)).fetchone()
            return None if row is None else decode_policy(row[0])
