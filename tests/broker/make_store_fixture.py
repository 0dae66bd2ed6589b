"""Keeps one store as this release writes it, for ever: `python -m tests.broker.make_store_fixture`.

Run once before a release that changes the tables or the nouns. A file that is there is never made anew: it is what
that release wrote, and later ones must read it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from jupyter_gpu import __version__
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.core.events import Overdue
from jupyter_gpu.model import (
    Ask,
    Cancel,
    Condition,
    EndReason,
    Extend,
    Holder,
    Kind,
    LoadPolicy,
    Move,
    Outcome,
    Policy,
    Release,
    SeeCondition,
    SeeExited,
    SeeProbe,
    SeeStarted,
)

from .store_play import Play, open_store

FIXTURES = Path(__file__).parents[1] / "fixtures"


def live(store: Store) -> Play:
    """A short life of a lab in which every kind of event happens once or more."""
    play = Play(store).begin()
    store.remember_policy(play.world.policy)
    held = [play.submit(Kind.RESERVATION, owner="bob", name="lecture", ask=Ask(devices=1)) for _ in range(2)]
    play.do(Move(workload=held[0].id, by="bob", holder=Holder(kind="kernel", name="notebook")))
    play.do(Extend(workload=held[0].id, by="bob", seconds=600))
    job = play.submit(owner="ada", name="digits", ask=Ask(memory_bytes=1 << 30), idempotency_key="k1")
    play.do(SeeStarted(workload=job.id, attempt=1, holder=Holder(kind="attempt", name="attempt 1", pid=4242)))
    play.commit()
    play.now += 3_600.5
    _preempt_and_resume(play, job.id)
    store.snapshot(play.world)
    play.do(Cancel(workload=play.submit(owner="ada", paused=True).id, by="ada"))
    play.submit(owner="cleo", name="waits", ask=Ask(devices=3))
    play.do(SeeCondition(device="GPU-1", condition=Condition.FOREIGN, detail="python3 (pid 7)"))
    play.do(Release(workload=held[1].id, by="bob"))
    play.do(LoadPolicy(policy=Policy(failures=5)))
    store.remember_policy(play.world.policy)
    play.commit()
    return play


def _preempt_and_resume(play: Play, job: int) -> None:
    asked = play.submit(Kind.RESERVATION, owner="cleo", name="urgent")
    play.now += 200
    play.record([Overdue(at=play.now, workload=job)])
    noticed = Outcome(end=EndReason.SUCCEEDED, exit_code=0, noticed=True, progressed=True, ended_at=play.now)
    play.do(SeeExited(workload=job, attempt=1, outcome=noticed, clear=True))
    play.now += 0.25
    play.do(Release(workload=asked.id, by="cleo"))
    play.do(SeeProbe(workload=asked.id))
    play.do(SeeStarted(workload=job, attempt=2, holder=Holder(kind="attempt", name="attempt 2", number=2, pid=4343)))
    done = Outcome(end=EndReason.SUCCEEDED, exit_code=0, ended_at=play.now)
    play.do(SeeExited(workload=job, attempt=2, outcome=done, clear=True))
    play.commit()


def main() -> None:
    """Write the fixture of this version, unless it is there."""
    target = FIXTURES / f"store-{__version__}.db"
    if target.exists():
        sys.exit(f"{target} is there and stays as that release wrote it")
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder))
        live(store)
        store.close()
        FIXTURES.mkdir(exist_ok=True)
        shutil.copyfile(store.path, target)


if __name__ == "__main__":
    main()
