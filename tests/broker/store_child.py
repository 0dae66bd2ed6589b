"""What the tests of the store do in processes of their own: die in the middle, fill a disk, hold a lock.

`python -m tests.broker.store_child VERB FOLDER`. What is printed is what the test reads.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.errors import GpuError
from jupyter_gpu.model import Kind, SeeDevices

from .store_play import DEVICES, POLICY, Play, differences, open_store


def say(*words: object) -> None:
    """Tell the test, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def make_base(folder: Path) -> None:
    """A store with a life: devices, a lease, a line, and a snapshot."""
    store = open_store(folder)
    play = Play(store).begin()
    play.submit(Kind.RESERVATION)
    play.commit()
    store.snapshot(play.world)
    for _ in range(4):
        play.submit()
    play.commit()
    store.close()


def next_commit(store: Store) -> Play:
    """The commit in whose middle things go wrong: it touches every table."""
    play = Play(store, store.load(POLICY))
    play.now += 100
    play.do(SeeDevices(pool="local", devices=DEVICES[1:]))
    for _ in range(30):
        play.submit(owner="bob", name="x" * 200)
    play.submit(Kind.RESERVATION, owner="cleo")
    return play


def crash(folder: Path) -> None:
    """Die by SIGKILL at the first, second, third ... statement of a commit, until one gets through."""
    make_base(folder / "base")
    for at in range(1, 1000):
        shutil.copytree(folder / "base", folder / str(at))
        child = os.fork()
        if child == 0:
            _die_at(folder / str(at), at)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            say(at)
            return


def _die_at(folder: Path, at: int) -> None:
    store = open_store(folder)
    play = next_commit(store)
    seen = 0

    def count(_statement: str) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    store._db.set_trace_callback(count)
    play.commit()
    os._exit(0)


def torn(folder: Path) -> None:
    """Die inside a write: the kernel ends a process whose file grows beyond its limit, wherever that falls."""
    make_base(folder / "base")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for at in range(1, 200):
        shutil.copytree(folder / "base", folder / str(at))
        child = os.fork()
        if child == 0:
            store = open_store(folder / str(at))
            play = next_commit(store)
            wal = store.path.with_name("broker.db-wal")
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + at * 1777, resource.RLIM_INFINITY))
            play.commit()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            say(at)
            return


def full(folder: Path) -> None:
    """Fill the disk of a store, commit, make room, commit again."""
    make_base(folder)
    store = open_store(folder)
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    before = store.load(POLICY)
    play = next_commit(store)
    try:
        play.commit()
    except GpuError as error:
        say(type(error).__name__, error.message, error.hint)
    assert differences(store.load(POLICY), before) == []
    ballast.unlink()
    next_commit(store).commit()
    assert differences(store.load(POLICY), store.replay(POLICY)) == []
    say("recovered", store.load(POLICY).check())


def read_only(folder: Path) -> None:
    """Open a store on a disk that cannot be written, empty or not."""
    for place in (folder / "there", folder / "new"):
        try:
            open_store(place)
        except GpuError as error:
            say(type(error).__name__, error.message, error.hint)


def base(folder: Path) -> None:
    """Make a store and leave."""
    make_base(folder)


def lock(folder: Path) -> None:
    """Hold the write lock until the standard input closes."""
    db = sqlite3.connect(folder / "broker.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    say("held")
    sys.stdin.read()


if __name__ == "__main__":
    {verb.__name__: verb for verb in (crash, torn, full, read_only, base, lock)}[sys.argv[1]](Path(sys.argv[2]))
