"""Whose a store is, who may read it, which versions can, and what happens where it cannot be used."""

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import pytest
import sqlite_utils

from jupyter_gpu import disks
from jupyter_gpu.broker.store.migrations import MIGRATIONS, known_names
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.broker.store.store import opening as store_opening
from jupyter_gpu.errors import Conflict, NotFound, StoreUnavailable
from jupyter_gpu.model import EndReason, Kind, State
from jupyter_gpu.model.habits import Habits

from .make_store_fixture import FIXTURES, live, main
from .store_play import BEGIN, MACHINE, POLICY, Play, differences, open_store


@pytest.fixture
def folder(tmp_path):
    """A store with one workload, closed."""
    folder = tmp_path / "state"
    store = open_store(folder)
    play = Play(store).begin()
    play.submit(paused=True)
    play.commit()
    store.close()
    return folder


def tables_of(path: Path) -> dict[str, str]:
    """The tables and indices of a file, with how they are made."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT name, coalesce(sql, '') FROM sqlite_master ORDER BY name").fetchall())


def mode(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


# -- who may read it --


def test_nobody_but_the_owner_may_look_inside(tmp_path):
    """Folder 0700, files 0600, whatever the umask; the -wal and -shm beside the file too."""
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "a" / "state")
        Play(store).begin()
    finally:
        os.umask(before)

    assert mode(store.path.parent) == 0o700
    assert {path.name: mode(path) for path in store.path.parent.iterdir()} == {
        "broker.db": 0o600,
        "broker.db-wal": 0o600,
        "broker.db-shm": 0o600,
    }
    store.close()


def test_a_folder_that_was_open_to_others_is_closed(tmp_path):
    """A state folder that somebody made by hand is nobody else's to read; passing through it is the broker's choice.

    On a shared machine the jobs of others read their own attempt's files below it.
    """
    tmp_path.chmod(0o755)

    open_store(tmp_path).close()

    assert mode(tmp_path) == 0o711


# -- whose it is --


def test_each_store_has_an_id_of_its_own_that_stays(tmp_path):
    """With it an event number means one event in the world; a new store begins a new count under a new id."""
    one, two = open_store(tmp_path / "one"), open_store(tmp_path / "two")
    again = open_store(tmp_path / "one", now=BEGIN + 5)

    assert one.store_id == again.store_id != two.store_id
    for store in (one, two, again):
        store.close()


def test_another_machines_store_is_refused_with_what_to_do(folder):
    """A home shared by several machines must not make one broker act on another's leases."""
    before = (folder / "broker.db").read_bytes()

    with pytest.raises(Conflict, match="belongs to another machine") as caught:
        open_store(folder, machine_id="f" * 32)

    assert MACHINE in caught.value.message
    assert "JUPYTER_GPU_STATE_DIR" in caught.value.hint
    assert (folder / "broker.db").read_bytes() == before


def test_the_advice_for_a_machine_with_a_new_id_works(folder):
    """What the text tells people to run makes the store this machine's own."""
    with pytest.raises(Conflict) as caught:
        open_store(folder, machine_id="f" * 32)
    command = caught.value.hint.split("`")[1].replace("sqlite-utils", f"'{sys.executable}' -m sqlite_utils", 1)

    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=30)  # noqa: S602 - it is for a shell

    open_store(folder, machine_id="f" * 32).close()


def test_a_store_is_made_only_where_that_is_asked_for(tmp_path):
    """Who only wants to read finds nothing and makes nothing."""
    with pytest.raises(NotFound, match="no store"):
        open_store(tmp_path / "state", make=False)

    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_there_is_opened_without_making(folder):
    """`make=False` opens what is there."""
    store = open_store(folder, make=False)

    assert store.load(POLICY).last_id == 1
    store.close()


# -- which versions --


def test_a_newer_store_is_refused_and_left_alone(folder):
    """An old version must not write into tables it does not know; the text names what is newer."""
    db = sqlite_utils.Database(folder / "broker.db")
    db["_sqlite_migrations"].insert({"migration_set": "jupyter_gpu", "name": "m999_later", "applied_at": "then"})
    db["later"].insert({"a": 1})
    db.close()
    before = (folder / "broker.db").read_bytes()

    with pytest.raises(Conflict, match=r"newer version of jupyter_gpu \(m999_later\)") as caught:
        open_store(folder)

    assert "Install that version again" in caught.value.hint
    assert (folder / "broker.db").read_bytes() == before


def test_an_older_store_is_migrated_all_or_nothing(folder, monkeypatch):
    """A migration that fails leaves the file at the old version, and the next start tries again."""
    later = sqlite_utils.Migrations("jupyter_gpu")
    later._migrations = list(MIGRATIONS._migrations)
    fails = [True]

    @later()
    def m002_notes(db):
        db.conn.execute("CREATE TABLE notes (a)")
        if fails[0]:
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(store_opening, "MIGRATIONS", later)
    monkeypatch.setattr(store_opening, "known_names", lambda: {*known_names(), "m002_notes"})

    with pytest.raises(StoreUnavailable):
        open_store(folder)
    assert "notes" not in tables_of(folder / "broker.db")
    fails[0] = False
    store = open_store(folder)

    assert store.load(POLICY).last_id == 1
    assert "notes" in tables_of(folder / "broker.db")
    store.close()


def test_a_start_that_died_halfway_is_made_good(tmp_path):
    """An empty file, as a crash between making it and its tables leaves it, is a new store."""
    (tmp_path / "broker.db").touch()

    store = open_store(tmp_path)

    assert store.load(POLICY).revision == 0
    store.close()


def test_a_database_of_something_else_is_left_alone(tmp_path):
    """A file of the same name with other tables is not ours to write."""
    db = sqlite_utils.Database(tmp_path / "broker.db")
    db["trees"].insert({"kind": "oak"})
    db.close()
    before = (tmp_path / "broker.db").read_bytes()

    with pytest.raises(Conflict, match="no store of jupyter_gpu"):
        open_store(tmp_path)

    assert (tmp_path / "broker.db").read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "header", "pages", "short"])
def test_a_damaged_store_is_refused_and_kept(folder, damage):
    """What is left of a damaged file may still be wanted: it is named, with what to do, and never deleted."""
    path = folder / "broker.db"
    content = path.read_bytes()
    spoilt = {
        "text": b"this was a database" * 400,
        "header": b"\0" * 100 + content[100:],
        "pages": content[:4096] + b"\xff" * (len(content) - 4096),
        "short": content[: len(content) // 2],
    }[damage]
    path.write_bytes(spoilt)

    with pytest.raises(StoreUnavailable, match="is damaged") as caught:
        open_store(folder)

    assert ".recover" in caught.value.hint
    assert path.read_bytes() == spoilt


def test_a_file_where_the_folder_should_be_is_said(tmp_path):
    """Not a traceback: the path, and that it is no folder."""
    (tmp_path / "state").touch()

    with pytest.raises(StoreUnavailable, match="cannot be used"):
        open_store(tmp_path / "state")


def test_a_folder_where_the_file_should_be_is_said(tmp_path):
    """A wrong thing of the right name is refused in a sentence too."""
    (tmp_path / "broker.db").mkdir()

    with pytest.raises(StoreUnavailable, match=r"broker\.db"):
        open_store(tmp_path)


# -- network file systems --


class Mount(NamedTuple):
    """What psutil says of a mount, as far as we look at it."""

    mountpoint: str
    fstype: str


@pytest.mark.parametrize(
    ("mounts", "kind"),
    [
        ([("/", "ext4")], None),
        ([("/", "nfs4")], "nfs4"),
        ([("/", "ext4"), ("{home}", "nfs")], "nfs"),
        ([("/", "nfs4"), ("{home}", "xfs")], None),
        ([("{home}", "nfs"), ("/", "ext4")], "nfs"),
        ([("{home}", "autofs"), ("{home}", "cifs")], "cifs"),
        ([("/", "ext4"), ("{home}x", "nfs")], None),
        ([("{home}", "fuse.sshfs")], "fuse.sshfs"),
        ([("{home}", "fuse.mergerfs")], None),
        ([("{home}", "fuseblk")], None),
        ([("{home}", "lustre")], "lustre"),
        ([("{home}", "gpfs")], "gpfs"),
        ([], None),
    ],
)
def test_the_file_system_below_a_folder_is_found(tmp_path, monkeypatch, mounts, kind):
    """The longest mount point counts, of equal ones the last; what only looks alike does not."""
    home = tmp_path.resolve()
    found = [Mount(point.format(home=home), fstype) for point, fstype in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: found)

    assert disks.network_file_system(home / "state") == kind


def test_on_a_network_file_system_there_is_no_wal_and_a_warning(tmp_path, monkeypatch):
    """jupyter/nbformat#52: SQLite's log needs memory that other machines do not share; the text says where to go."""
    monkeypatch.setattr(disks, "network_file_system", lambda _folder: "nfs4")

    store = open_store(tmp_path)
    play = Play(store).begin()
    play.submit()
    play.commit()

    (warning,) = store.warnings
    assert "network file system (nfs4)" in warning
    assert "JUPYTER_GPU_STATE_DIR" in warning
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert differences(store.load(POLICY), store.replay(POLICY)) == []
    store.close()


def test_a_store_that_moved_to_a_network_file_system_gives_up_its_wal(folder, monkeypatch):
    """The mode stands in the file, so it must be changed where the file moved."""
    monkeypatch.setattr(disks, "network_file_system", lambda _folder: "nfs4")

    store = open_store(folder)

    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert store.load(POLICY).last_id == 1
    store.close()


def test_on_a_local_disk_there_is_nothing_to_warn_of(folder):
    """No warning where nothing is wrong."""
    if disks.network_file_system(folder) is not None:
        pytest.skip("the tests themselves run on a network file system")
    store = open_store(folder)

    assert store.warnings == ()
    store.close()


# -- old releases --


def forget_how_long_it_ran(world):
    """What an early release did not write down, and its log tells all the same."""
    for it in list(world.workloads.values()):
        if it.state is State.ENDED:
            world.workloads[it.id] = msgspec.structs.replace(it, worked_seconds=0.0)
        elif it.worked_seconds:
            world.put_workload(msgspec.structs.replace(it, worked_seconds=0.0))
    world.habits = Habits()


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("store-*.db")), ids=lambda path: path.stem)
def test_what_a_release_wrote_is_read_for_ever(tmp_path, fixture):
    """Tables and log of every release load, agree with each other and break no invariant."""
    shutil.copyfile(fixture, tmp_path / "broker.db")

    store = open_store(tmp_path)
    world = store.load(POLICY)
    replayed = store.replay(POLICY)
    store._db.execute("DELETE FROM snapshots")
    from_the_first = store.replay(POLICY)
    store.close()

    assert world.check() == []
    for each in (world, replayed, from_the_first):
        forget_how_long_it_ran(each)
    assert differences(world, replayed) == []
    assert differences(world, from_the_first) == []


def test_what_0_1_0_wrote_says_what_it_said(tmp_path):
    """The facts of the kept file, told in today's words."""
    shutil.copyfile(FIXTURES / "store-0.1.0.db", tmp_path / "broker.db")
    store = open_store(tmp_path)
    world = store.load(POLICY)

    digits = next(it for it in world.workloads.values() if it.name == "digits")
    assert (digits.kind, digits.state, digits.owner, digits.end) == (Kind.JOB, State.ENDED, "ada", EndReason.SUCCEEDED)
    assert digits.attempt == 2
    assert len(digits.preempted_at) == 1
    life = [type(record.event).__name__ for record in store.events_of(digits.id)]
    assert [step for step in life if step != "Amended"] == [
        "Submitted", "Granted", "Started", "Evicted", "Overdue", "Released", "Requeued",
        "Granted", "Started", "Released", "Ended",
    ]  # fmt: skip
    assert store.policy(store.events_since(world.revision - 1)[0].digest).failures == 5
    assert len({type(record.event) for record in store.events_since(0, 1000)}) == 14, "each kind of event is in it"
    store.close()


def test_the_store_of_this_version_is_still_the_one_that_is_kept(tmp_path):
    """Who changes a table adds a migration: the tables made today are those of the file that was kept."""
    store = open_store(tmp_path / "new")
    live(store)
    store.close()

    if known_names() == {"m001_initial"}:
        assert tables_of(tmp_path / "new" / "broker.db") == tables_of(FIXTURES / "store-0.1.0.db")


def test_a_kept_store_is_never_made_anew(tmp_path, monkeypatch):
    """What a release wrote is evidence; the command makes it once and then refuses to replace it."""
    monkeypatch.setattr("tests.broker.make_store_fixture.FIXTURES", tmp_path)
    main()
    (made,) = tmp_path.iterdir()
    before = made.read_bytes()

    with pytest.raises(SystemExit, match="stays as that release wrote it"):
        main()

    assert made.read_bytes() == before


def test_the_library_is_kept_out_of_the_way(folder, monkeypatch):
    """Plugins of sqlite-utils that happen to be installed do not run inside the broker."""
    monkeypatch.setattr(sqlite_utils.db, "ensure_plugins_loaded", lambda: pytest.fail("plugins were loaded"))

    Store.open(folder, machine_id=MACHINE, now=BEGIN).close()
