"""The smallest broker that keeps its word: commits an attempt before it hands it over, and its end once it is seen.

    python stand_in_broker.py FOLDER JOBS [FIRST]

Each job does what the shell takes FIRST for, and appends "JOB ATTEMPT" to FOLDER/lines. What is lost is queued again
under the next number. May be killed at any moment and started again.
"""

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from jupyter_gpu.broker.engines.base import Attempt, Sighting, Stage
from jupyter_gpu.broker.engines.local import LocalEngine
from jupyter_gpu.model import EndReason, JobSpec

SLOTS = 8


class Broker:
    """Jobs in a table, at most eight at a time."""

    def __init__(self, root: Path, jobs: int, first: str) -> None:
        self.root, self.first = root, first
        self.store = sqlite3.connect(root / "store", isolation_level=None)
        self.store.execute("PRAGMA journal_mode=WAL")
        self.store.execute("CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, attempt INT, state TEXT)")
        self.store.executemany("INSERT OR IGNORE INTO jobs VALUES (?, 0, 'queued')", [(n,) for n in range(1, jobs + 1)])
        self.engine = LocalEngine(root / "attempts")
        self.seen: asyncio.Queue[Sighting] = asyncio.Queue()

    async def run(self) -> None:
        """Until every job has ended."""
        await self.engine.start(self.seen.put_nowait)
        self.tell()
        active = dict(self.store.execute("SELECT id, attempt FROM jobs WHERE state = 'active'"))
        for known in list(self.engine.inventory().values()):
            if active.get(known.workload) != known.attempt:  # ended, and killed before it was taken back
                await self.engine.take_back(known.workload, known.attempt)
        for job, attempt in active.items():
            await self.hand_over(job, attempt)
        while True:
            query = "SELECT id, attempt FROM jobs WHERE state = 'queued' LIMIT ?"
            free = self.store.execute(query, (SLOTS - len(active),))
            for job, attempt in free.fetchall():
                active[job] = attempt + 1
                self.store.execute("UPDATE jobs SET state = 'active', attempt = ? WHERE id = ?", (attempt + 1, job))
                await self.hand_over(job, attempt + 1)
            if not active:
                break
            sighting = await self.seen.get()
            self.tell()
            if sighting.stage is Stage.GONE and active.get(sighting.workload) == sighting.attempt:
                assert sighting.outcome
                state = "queued" if sighting.outcome.end is EndReason.LOST else sighting.outcome.end
                self.store.execute("UPDATE jobs SET state = ? WHERE id = ?", (state, sighting.workload))
                del active[sighting.workload]
                await self.engine.take_back(sighting.workload, sighting.attempt)
        await self.engine.close()

    def tell(self) -> None:
        """Say who the launcher is now, to whoever wants to kill it."""
        draft = self.root / "launcher.draft"
        draft.write_text(str(self.engine.launcher_pid or 0))
        draft.rename(self.root / "launcher")

    async def hand_over(self, job: int, attempt: int) -> None:
        """Start it, or find that it was started."""
        line = f"{self.first} echo {job} {attempt} >> lines"
        spec = JobSpec(argv=("sh", "-c", line), folder=str(self.root), environment={"PATH": os.environ["PATH"]})
        await self.engine.hand_over(
            Attempt(workload=job, attempt=attempt, name="", owner="anna", account="", spec=spec, devices=())
        )
        # It may have ended before this broker came: then its sighting was the first of all, and comes again here.
        known = self.engine.inventory().get(job)
        if known and known.stage is Stage.GONE:
            self.seen.put_nowait(known)


asyncio.run(Broker(Path(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[3:])).run())
