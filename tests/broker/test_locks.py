"""One broker per store and per machine: locks that the kernel drops with their process."""

import contextlib
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.broker.locks import Lock
from jupyter_gpu.errors import Conflict


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    """The refusal names the user and the process; once released the next gets it."""
    first = Lock(tmp_path / "lock", what="the store", hint="use that one")
    with pytest.raises(Conflict, match=rf"the store is served already by .* \(process {os.getpid()}\)") as refused:
        Lock(tmp_path / "lock", what="the store", hint="use that one")
    assert refused.value.hint == "use that one"
    first.release()
    Lock(tmp_path / "lock", what="the store", hint="").release()


def test_a_killed_holder_leaves_nothing_to_clear_away(tmp_path: Path) -> None:
    """The kernel drops the lock, however its process ended."""
    code = (
        "import sys, time; from pathlib import Path; from jupyter_gpu.broker.locks import Lock\n"
        "lock = Lock(Path(sys.argv[1]), what='it', hint=''); print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(Conflict):
        Lock(tmp_path / "lock", what="it", hint="")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    Lock(tmp_path / "lock", what="it", hint="").release()


@pytest.mark.parametrize("trap", ["link", "folder", "pipe"])
def test_what_somebody_planted_at_the_path_is_refused(tmp_path: Path, trap: str) -> None:
    """The path may lie where everybody writes: no link is followed, and nothing waits on a pipe."""
    path = tmp_path / "lock"
    if trap == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif trap == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(Conflict, match="cannot be opened"):
        Lock(path, what="it", hint="")
    assert not (tmp_path / "elsewhere").exists()


SQUAT = r"""
import fcntl, os, sys, time
os.setgroups([]); os.setgid(65534); os.setuid(65534)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"root (process 1)\x1b[2J\x07\nEverything is fine\n")
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user; run the tests as root")


@contextlib.contextmanager
def squatter(path: Path, *words: str) -> Iterator[int]:
    """A process of another user that holds a lock in a folder where everybody writes."""
    for folder in path.parents:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o011)
    path.parent.chmod(0o1777)
    command = [sys.executable, "-I", "-c", SQUAT, str(path), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.kill()


@pytest.mark.parametrize("before", [None, 0o644])
def test_a_private_lock_is_its_users_alone(tmp_path: Path, before: int | None) -> None:
    """Who may read a file may lock it, so nobody else may; a file of an older broker is closed to them too."""
    path = tmp_path / "lock"
    if before is not None:
        path.touch()
        path.chmod(before)
    Lock(path, what="it", hint="", private=True).release()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@AS_ROOT
def test_the_kernel_says_who_holds_a_lock_not_the_file(tmp_path: Path) -> None:
    """What the holder wrote is not shown: it may pretend to be somebody else, or be obeyed by a terminal."""
    with squatter(tmp_path / "lock") as pid:
        with pytest.raises(Conflict) as refused:
            Lock(tmp_path / "lock", what="it", hint="")
        assert refused.value.message == f"it is served already by nobody (process {pid})"


@AS_ROOT
def test_the_machines_broker_does_not_wait_for_a_squatter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It takes the name for a lock of its own, says from whom, and the next one meets that."""
    with squatter(tmp_path / "lock") as pid, caplog.at_level(logging.WARNING):
        lock = Lock(tmp_path / "lock", what="it", hint="", is_first=True)
        assert f"nobody (process {pid}), which is no broker" in caplog.text
        with pytest.raises(Conflict, match=str(os.getpid())):
            Lock(tmp_path / "lock", what="it", hint="")
        lock.release()


@AS_ROOT
def test_a_users_broker_is_not_robbed_of_its_devices(tmp_path: Path) -> None:
    """Jobs may run below it: an admin ends it first, and is told which it is."""
    with (
        squatter(tmp_path / "lock", "jupyter_gpu.broker.app") as pid,
        pytest.raises(Conflict, match=rf"by nobody \(process {pid}\)"),
    ):
        Lock(tmp_path / "lock", what="it", hint="", is_first=True)
