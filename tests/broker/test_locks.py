"""One broker per store and per machine: locks that the kernel drops with their process."""

import os
import subprocess
import sys
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
