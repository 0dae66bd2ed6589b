"""Full disks, foreign locks, kills and damage: all of a commit or nothing, a plain text, and it goes on afterwards."""

import errno
import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpu.broker.store.faults import BUSY_SECONDS, said_plainly
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.errors import StoreUnavailable

from .store_child import make_base, next_commit
from .store_play import POLICY, differences, open_store

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.faults


@pytest.fixture
def store(tmp_path):
    """A store with a life."""
    make_base(tmp_path / "state")
    store = open_store(tmp_path / "state")
    yield store
    store.close()


def child(*command):
    """Run one verb of `store_child` in a process of its own."""
    return subprocess.run(
        [*command[:-2], sys.executable, "-m", "tests.broker.store_child", command[-2], str(command[-1])],
        cwd=ROOT, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip


def is_sound(store: Store) -> bool:
    """The tables and the log agree, and every invariant holds."""
    world = store.load(POLICY)
    return world.check() == [] and differences(world, store.replay(POLICY)) == []


class FailingAt:
    """A connection whose N-th statement fails, each row of a batch counted for itself."""

    def __init__(self, db: sqlite3.Connection, at: int, *, after: bool = False) -> None:
        self.db, self.left, self.after = db, at, after

    def __getattr__(self, name: str):
        return getattr(self.db, name)

    def execute(self, query: str, *values):
        """Fail when the count is down, and never when things are taken back."""
        if query == "ROLLBACK":
            return self.db.execute(query)
        self.left -= 1
        if self.left == 0 and not self.after:
            raise sqlite3.OperationalError("disk I/O error")
        result = self.db.execute(query, *values)
        if self.left == 0:
            raise sqlite3.OperationalError("disk I/O error")
        return result

    def executemany(self, query: str, rows):
        """Row by row, so that each may be the one that fails."""
        for row in rows:
            self.execute(query, row)


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
def test_a_failure_at_any_statement_leaves_the_world_as_it_was(store, after):
    """Whichever statement of a commit fails, the file holds the old world, and the same commit works afterwards."""
    old = store.load(POLICY)
    db = store._db
    for at in range(1, 1000):
        play = next_commit(store)
        store._db = FailingAt(db, at, after=after)
        try:
            play.commit()
        except StoreUnavailable:
            is_through = False
        else:
            is_through = True
        finally:
            store._db = db
        now = store.load(POLICY)
        assert not db.in_transaction
        if is_through or now.revision == play.world.revision:
            break  # the latter after the COMMIT: the answer was lost, not the commit
        assert differences(now, old) == []
    assert at > 40, "devices, workloads, events, use and counters were all among them"
    assert differences(now, play.world) == []
    assert is_sound(store)


def test_a_kill_at_any_statement_leaves_all_or_nothing(tmp_path):
    """Kill -9 between any two statements: the next start finds the world before, whole."""
    result = child("crash", tmp_path)
    assert result.returncode == 0, result.stderr
    through = int(result.stdout)
    _check_the_dead(tmp_path, through)
    assert through > 40


def test_a_kill_inside_a_write_leaves_all_or_nothing(tmp_path):
    """Half a write is on the disk when the process dies: the half is not believed."""
    result = child("torn", tmp_path)
    assert result.returncode == 0, result.stderr
    through = int(result.stdout)
    _check_the_dead(tmp_path, through)
    assert through > 5


def _check_the_dead(folder: Path, through: int) -> None:
    base = open_store(folder / "base")
    old = base.load(POLICY)
    base.close()
    for at in range(1, through + 1):
        store = open_store(folder / str(at))
        new = store.load(POLICY)
        if at < through:
            assert differences(new, old) == [], f"killed at {at}"
        else:
            assert new.revision > old.revision, "this one got through"
        assert is_sound(store)
        store.close()


# -- foreign locks --


@contextmanager
def locked(store: Store):
    """Another process holds the write lock."""
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.broker.store_child", "lock", str(store.path.parent)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.communicate(timeout=30)


def test_a_lock_held_by_another_process_is_an_answer_within_seconds(store):
    """jupyter/nbformat#52: "database is locked" hung for 45 s. Here it is said after two, and later commits work."""
    before = store.load(POLICY)
    play = next_commit(store)
    with locked(store):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="Another process holds a lock") as caught:
            play.commit()
        waited = time.monotonic() - began
        assert differences(store.load(POLICY), before) == [], "what is there can still be read"

    assert BUSY_SECONDS <= 3
    assert waited < BUSY_SECONDS + 3
    assert "fuser" in caught.value.hint
    play.commit()
    assert is_sound(store)


def test_a_lock_at_the_start_is_an_answer_too(store):
    """A broker that starts beside a locked store says so and does not hang."""
    with locked(store), pytest.raises(StoreUnavailable, match="Another process holds a lock"):
        open_store(store.path.parent)

    open_store(store.path.parent).close()


def test_a_reader_in_the_way_of_a_rollback_journal_is_an_answer(tmp_path, monkeypatch):
    """Without WAL a reader can stop the COMMIT itself; then too all is taken back, and later commits work."""
    monkeypatch.setattr("jupyter_gpu.disks.network_file_system", lambda _folder: "nfs4")
    make_base(tmp_path)
    store = open_store(tmp_path)
    store._db.execute("PRAGMA busy_timeout = 50")
    play = next_commit(store)
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM counters").fetchall()

    with pytest.raises(StoreUnavailable, match="Another process"):
        play.commit()
    assert not store._db.in_transaction
    reader.close()

    play.commit()
    assert is_sound(store)
    store.close()


# -- full disks --


def test_a_full_file_refuses_the_commit_wherever_it_strikes(store):
    """bghira/SimpleTuner#2353: the last page is gone in the middle. Old world, plain text, and it recovers."""
    old = store.load(POLICY)
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    said = []
    for more in range(200):
        store._db.execute(f"PRAGMA max_page_count = {pages + more}")
        play = next_commit(store)
        try:
            play.commit()
        except StoreUnavailable as error:
            said.append(f"{error.message} {error.hint}")
            assert differences(store.load(POLICY), old) == []
        else:
            break
    assert len(said) >= 3
    assert all("is full" in text and "Free space" in text for text in said), said
    assert is_sound(store)
    assert store.load(POLICY).revision == play.world.revision


def test_a_write_that_the_system_refuses_is_an_answer_and_it_recovers(store):
    """Over quota (EDQUOT) or over a limit (EFBIG), SQLite says only "disk I/O error"; the text says what that is."""
    play = next_commit(store)
    old = store.load(POLICY)
    grown = store.path.with_name("broker.db-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for more in (0, 1000, 10_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (grown + more, hard))
        try:
            with pytest.raises(StoreUnavailable, match="over its quota") as caught:
                play.commit()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert differences(store.load(POLICY), old) == []
        assert "make room" in caught.value.hint

    play.commit()
    assert is_sound(store)


def in_own_mounts():
    """A command prefix with mounts of its own, which vanish with it; skips where the system allows none."""
    for prefix in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        try:
            if subprocess.run([*prefix, "true"], capture_output=True, timeout=20, check=False).returncode == 0:
                return prefix
        except FileNotFoundError:
            break
    pytest.skip("needs `unshare --mount`")
    return []


def test_a_full_disk_is_said_and_it_recovers_when_space_is_back(tmp_path):
    """bghira/SimpleTuner#2353: a real disk with no byte left."""
    mount = f"mount -t tmpfs -o size=1m none '{tmp_path}' && exec \"$@\""
    result = child(*in_own_mounts(), "sh", "-c", mount, "sh", "full", tmp_path)

    assert result.returncode == 0, result.stderr
    refused, recovered = result.stdout.splitlines()
    assert refused.startswith("StoreUnavailable The disk that holds the broker's store")
    assert "is full" in refused
    assert "Free space" in refused
    assert recovered == "recovered []"


def test_a_read_only_disk_is_said(tmp_path):
    """Neither an old store nor a new one can be used there; the text names the folder and what to do."""
    make_base(tmp_path / "there")
    (tmp_path / "new").mkdir()
    mount = f"mount --bind '{tmp_path}' '{tmp_path}' && mount -o remount,bind,ro '{tmp_path}' && exec \"$@\""
    result = child(*in_own_mounts(), "sh", "-c", mount, "sh", "read_only", tmp_path)

    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("StoreUnavailable The broker's store"), line
        assert "JUPYTER_GPU_STATE_DIR" in line


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "full or over its quota"),
        (errno.EDQUOT, "full or over its quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "read-only"),
        (errno.ENOTDIR, "Not a directory"),
    ],
)
def test_what_the_system_says_becomes_what_to_do(number, says):
    """An errno is for programs; people get what, why and what now."""
    with pytest.raises(StoreUnavailable, match=says) as caught, said_plainly(Path("/state/broker.db")):
        raise OSError(number, "Not a directory" if number == errno.ENOTDIR else "x")

    assert "JUPYTER_GPU_STATE_DIR" in caught.value.hint


def test_a_fault_of_ours_is_not_blamed_on_the_disk():
    """A broken constraint means a wrong program, and passes as it is."""
    with pytest.raises(sqlite3.IntegrityError), said_plainly(Path("/state/broker.db")):
        raise sqlite3.IntegrityError("UNIQUE constraint failed")


# -- the file itself --


@pytest.mark.parametrize("deed", ["deleted", "replaced"])
def test_a_file_that_is_gone_takes_no_commits(store, deed):
    """Writing on into a deleted file would succeed and be lost; so it is refused, with what to do."""
    play = next_commit(store)
    aside = store.path.rename(store.path.with_name("aside"))
    if deed == "replaced":
        store.path.write_bytes(aside.read_bytes())

    with pytest.raises(StoreUnavailable, match="deleted, moved or replaced"):
        play.commit()

    aside.rename(store.path)
    play.commit()
    assert is_sound(store)


def test_damage_met_while_running_is_said(store):
    """A page that rots under a running broker is a sentence, and the file is left as it is."""
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store._db.execute("PRAGMA cache_size = 0")
    content = bytearray(store.path.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 16] = b"\xff" * 16
    with store.path.open("r+b") as file:
        file.write(content)
    fresh = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    store._db.close()
    store._db = fresh

    with pytest.raises(StoreUnavailable, match="is damaged"):
        store.load(POLICY)

    assert store.path.read_bytes() == bytes(content)
