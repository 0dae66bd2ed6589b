"""Who work runs as, and whose processes are ended for whom."""

import os
import pwd
import subprocess
import sys

import pytest

from jupyter_gpu.broker.engines import accounts, holders, procs
from jupyter_gpu.model import Holder

USER = 65534


def test_a_number_that_nobody_is_called_is_never_root(monkeypatch):
    """In a container a number may stand for a user without a name; what comes from a caller must not stand for root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(LookupError, match="no account 0"):
        accounts._look_up("0")
    monkeypatch.setattr(os, "geteuid", lambda: 1234567)
    assert accounts._look_up("1234567") == accounts.Account(None, None, (), {})
    with pytest.raises(LookupError):
        accounts._look_up("0")


@pytest.mark.parametrize(
    ("ids", "is_ended"),
    [((USER, USER, USER), True), ((USER, 0, USER), False), ((0, USER, USER), False), ((USER, USER, 0), False)],
)
def test_only_a_process_that_is_the_users_through_and_through_is_ended(ids, is_ended):
    """One that runs a set-uid program is the same process, and somebody else's."""
    if os.geteuid() != 0:
        pytest.skip("only root may signal what is not its own: run the tests as root")
    code = f"import os, time; os.setresuid{ids}; print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = procs.find(process.pid)
        holder = Holder(kind="command", name="x", pid=found.pid, start_ticks=found.start_ticks, boot_id=procs.boot_id())
        assert not holders.end(holder, by_force=True, uid=pwd.getpwnam("root").pw_uid)
        assert not holders.end(holder, by_force=True, uid=None)
        assert holders.end(holder, by_force=True, uid=USER) is is_ended
        process.kill()
