"""What the tests of who is on a device share: accounts that are known at once, and real processes of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

from jupyter_gpu.broker.engines import procs
from jupyter_gpu.broker.people import People
from jupyter_gpu.model import Holder

#: Users of tests: numbers that no account of this machine has, among those of people.
ADA, GRACE = 41001, 41002
ME = os.geteuid()
NAMES = {ADA: "ada", GRACE: "grace", 0: "root", 999: "daemon", 65534: "nobody", 61200: "dynamic"} | {ME: "me"}
SLEEP = "import time; time.sleep(600)"


class Known(People):
    """Knows the accounts of the tests, and nobody else."""

    def uid_of(self, account: str) -> int | None:
        return ME if not account else {name: uid for uid, name in NAMES.items()}.get(account)

    def name_of(self, uid: int) -> str | None:
        return NAMES.get(uid)


@contextlib.contextmanager
def a_process(
    *argv: str, uid: int | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives for as long as it is needed, or until it is ended; ready when it is given."""
    # An interpreter in somebody's home cannot be run by others; `sleep` can, and says nothing.
    says_ready = bool(argv) or uid is None
    words = argv or ((sys.executable, "-S", "-c", f"print(flush=True); {SLEEP}") if uid is None else ("sleep", "600"))
    process = subprocess.Popen(words, stdout=subprocess.PIPE, user=uid, env=None if environ is None else dict(environ))
    assert process.stdout is not None
    if says_ready:
        process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def a_holder(pid: int, kind: str = "attempt", number: int = 1) -> Holder:
    """A process as a holder."""
    found = procs.find(pid)
    assert found is not None
    return Holder(kind=kind, name="it", number=number, pid=pid, start_ticks=found.start_ticks, boot_id=procs.boot_id())
