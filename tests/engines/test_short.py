"""Short of files or memory, the broker knows less. What it cannot see is not gone, and nothing ends because of it."""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import cgroup, holders, procs
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.model import EndReason, Holder
from tests.engines.bench import bench, kill, lives, scenario

LOOP = ("sh", "-c", "echo pid $$; while :; do sleep 0.02; done")


@contextlib.contextmanager
def no_files_left() -> Iterator[None]:
    """Every file that this process may open is open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(2)]
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(2))
        yield
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_cannot_be_looked_at_is_not_gone():
    """Only "no such process" means gone."""
    me = procs.find(os.getpid())
    holder = Holder(kind="kernel", name="k", pid=me.pid, start_ticks=me.start_ticks, boot_id=procs.boot_id())
    asked = (
        lambda: procs.find(me.pid),
        lambda: procs.open_pidfd(me.pid, me.start_ticks),
        procs.everyone,
        lambda: procs.tagged([b"A=b"]),
        lambda: cgroup.members(["/sys"]),
    )
    with no_files_left():
        errors = []
        for ask in asked:
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is looked at below
                ask()
            errors.append(caught.value.errno)
        alive, ended = holders.is_alive(holder), holders.end(holder, by_force=True, uid=os.geteuid())
    assert errors == [errno.EMFILE] * len(asked)
    assert alive is None
    assert not ended
    assert holders.is_alive(holder) is True


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOMEM, errno.ENFILE])
def test_nor_is_one_that_is_hidden_or_for_which_there_is_no_memory(monkeypatch, number):
    """Any other error says nothing about the process."""

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(procs, "slurp", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        procs.find(os.getpid())
    with pytest.raises(OSError, match=os.strerror(number)):
        procs.open_pidfd(os.getpid(), 1)


def test_one_that_is_gone_is_gone():
    """A number that nobody has."""
    assert procs.find(2**22 + 1) is None
    assert procs.open_pidfd(2**22 + 1, 1) is None


@scenario
async def test_a_job_goes_on_while_the_broker_has_no_files_left(tmp_path):
    """Neither its supervisor nor its tree counts as dead, and afterwards all is seen as it is."""
    async with bench(tmp_path) as it:
        await it.hand_over(*LOOP)
        [pid] = await it.pids(1)
        await it.sighting(Stage.STARTED)
        entry = it.engine._entries[1, 1]
        with no_files_left():
            it.engine._supervisor_has_ended(entry.supervisor)
            it.engine._look_around()
            assert entry.clearing is None
        it.engine._look_around()
        assert entry.supervisor
        assert lives(pid)
        assert it.engine.inventory()[1].stage is Stage.STARTED
        kill(entry.supervisor[0])
        assert (await it.end()).end is EndReason.LOST


@scenario
async def test_a_launcher_that_cannot_be_started_for_want_of_files_is_started_later(tmp_path):
    """The socket pair is the first that fails."""
    async with bench(tmp_path) as it:
        await it.run("true", workload=1)
        old = it.engine.launcher_pid
        with no_files_left():
            kill(old)
            os.waitid(os.P_PID, old, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it has just been killed
            it.engine._channel._has_died()
            it.engine._channel._restart.cancel()
            it.engine._channel.open()
            assert it.engine.launcher_pid is None
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED


@scenario
async def test_jobs_may_open_as_many_files_as_if_the_broker_had_not_asked_for_more(tmp_path, monkeypatch):
    """The broker raises its own limit; what it starts has the one that the broker was born with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    procs.first_file_limit.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        async with bench(tmp_path) as it:
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
            await it.run("sh", "-c", "ulimit -Sn; ulimit -Hn")
            assert it.log().split() == [b"300", str(hard).encode()]
    finally:
        procs.first_file_limit.cache_clear()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
