"""Accounts of the machine for tests that need several real users, and what is done as one of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PATIENCE_SECONDS = 30.0
_PR_SET_DUMPABLE = 4


@contextlib.contextmanager
def two_accounts() -> Iterator[tuple[str, str]]:
    """Two real accounts, removed afterwards; a skip where they cannot be made."""
    if os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root may make system users")
    names = (f"jgt{os.getpid() % 100000}a", f"jgt{os.getpid() % 100000}b")
    made = []
    try:
        for name in names:
            _patiently("useradd", "--no-create-home", "--shell", "/bin/sh", name)
            made.append(name)
        yield names
    finally:
        for name in made:
            _patiently("userdel", name)


def as_account(account: str, call: Callable[[], None], cgroup: Path | None = None) -> int:
    """Do it in a process of this account, in this cgroup if any is given; its exit code."""
    pid = os.fork()
    if not pid:
        try:
            if cgroup is not None:
                (cgroup / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
            become(account)
            call()
        except BaseException:  # noqa: BLE001 - told by the exit code
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def become(account: str) -> None:
    """Give up all that root has, for good."""
    who = pwd.getpwnam(account)
    os.setgroups([])
    os.setgid(who.pw_gid)
    os.setuid(who.pw_uid)
    # As after an exec: others of this account may look at us, which is how their broker learns where we live.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _patiently(*words: str) -> None:
    """Run it again while another test holds the lock of the list of accounts."""
    by = time.monotonic() + _PATIENCE_SECONDS
    while (done := subprocess.run(words, check=False, capture_output=True, text=True)).returncode:
        assert "lock" in done.stderr, done.stderr
        assert time.monotonic() < by, done.stderr
        time.sleep(0.05)
