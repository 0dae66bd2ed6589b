"""A process whose main thread has ended and whose others go on lives, whatever the letter that /proc shows for it.

With its threads go on its memory and all that it holds of a GPU.
"""

import os
import signal
import subprocess

import pytest

from jupyter_gpu.broker.engines import aftermath, holders, procs
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.model import EndReason, Holder
from tests.accounts import two_accounts
from tests.engines.bench import PYTHON, bench, kill, lives, scenario, until

#: Says its pid once its main thread has ended. `DEAF` heeds no SIGTERM.
HEADLESS = """
import ctypes, os, signal, threading, time
if os.environ.get("DEAF"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def work():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.005)
    os.write(1, b"pid %d\\n" % os.getpid())
    time.sleep(600)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
AS_A_CHILD = f"""
import os
if not os.fork():
    os.setsid()
    exec({HEADLESS!r})
while not os.path.exists("go"):
    __import__("time").sleep(0.01)
"""


@pytest.fixture
def headless():
    """One of them, started by us."""
    process = subprocess.Popen([*PYTHON, "-c", HEADLESS], stdout=subprocess.PIPE, env={"HEADLESS": "yes"})
    assert process.stdout.readline() == b"pid %d\n" % process.pid
    yield process
    process.kill()
    process.communicate()


def test_it_is_seen_whole(headless):
    """Among all, below its parent, by its variables; with its words, its users and the time of its start."""
    pid = headless.pid
    found = procs.find(pid)
    assert not found.zombie
    for those in (procs.everyone(), procs.descendants(os.getpid()), procs.tagged([b"HEADLESS=yes"])):
        assert those[pid].start_ticks == found.start_ticks
    assert procs.argv(pid) == [*PYTHON, "-c", HEADLESS]
    assert procs.environment(pid) == {b"HEADLESS=yes", b""}
    assert procs.users_of(pid) == {os.getuid()}


def test_it_is_signalled_and_when_it_has_ended_it_is_gone(headless):
    """By the same pidfd as any other; what then waits to be reaped is a zombie indeed."""
    was = procs.find(headless.pid)
    assert procs.send(was, signal.SIGTERM)
    os.waitid(os.P_PID, was.pid, os.WEXITED | os.WNOWAIT)
    assert procs.find(was.pid).zombie
    assert was.pid not in procs.everyone()
    assert procs.argv(was.pid) == []
    assert not procs.send(was, signal.SIGKILL)
    assert procs.open_pidfd(was.pid, was.start_ticks) is None


def test_a_holder_of_that_kind_holds_until_it_is_ended(headless):
    """A reservation is not over because its holder looks like a zombie."""
    proc = procs.find(headless.pid)
    holder = Holder(
        kind="command", name="x", pid=proc.pid, start_ticks=proc.start_ticks, boot_id=procs.boot_id(),
        keeper_pid=proc.pid, keeper_start_ticks=proc.start_ticks,
    )  # fmt: skip
    assert holders.is_alive(holder) is True
    assert holders.has_live_keeper(holder) is True
    assert holders.end(holder, by_force=False, uid=os.geteuid())
    assert headless.wait() == -signal.SIGTERM
    assert holders.is_alive(holder) is False


def test_a_user_that_only_its_threads_became_counts():
    """Its main thread's user is of when that ended: nobody is signalled for a user who may not."""
    with two_accounts() as (name, _):
        code = "import ctypes, os, pwd\nuid = pwd.getpwnam(os.environ['TO']).pw_uid\n"
        call = 'ctypes.CDLL(None).syscall({"x86_64": 117, "aarch64": 147}[os.uname().machine], uid, uid, uid)'
        code += HEADLESS.replace("def work():", f"def work():\n    {call}")
        words = [*PYTHON, "-c", code]
        with subprocess.Popen(words, stdout=subprocess.PIPE, env={"TO": name}) as process:
            assert process.stdout.readline()
            assert len(procs.users_of(process.pid)) == 2
            process.kill()


@pytest.mark.parametrize("deaf", ["", "yes"])
@scenario
async def test_a_job_is_ended_by_an_order(tmp_path, deaf):
    """By the notice where it heeds it, by SIGKILL where not; and it is on record which."""
    async with bench(tmp_path) as it:
        environment = {"PATH": os.environ["PATH"], "DEAF": deaf}
        await it.hand_over(*PYTHON, "-c", HEADLESS, environment=environment)
        [pid] = await it.pids(1)
        assert it.engine.inventory()[1].stage is Stage.STARTED
        await it.order(grace=0.2 if deaf else 20, kill_after=0)
        outcome = await it.end()
        assert not lives(pid)
        assert outcome.noticed
        assert outcome.signal == (signal.SIGKILL if deaf else signal.SIGTERM)
        assert [name.split()[-1] for name in outcome.forced] == ([f"({pid})"] if deaf else [])


@scenario
async def test_what_outlives_the_main_process_is_ended_after_it(tmp_path):
    """As any left-over is."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", AS_A_CHILD)
        [pid] = await it.pids(1)
        (it.work / "go").touch()
        outcome = await it.end()
        assert outcome.exit_code == 0
        assert not lives(pid)


@pytest.mark.parametrize("has_cgroup", [True, False])
@scenario
async def test_what_outlives_a_supervisor_is_found_and_ended(tmp_path, monkeypatch, has_cgroup):
    """By its cgroup or, where there is none, by its variables, which only its threads still tell."""
    async with bench(tmp_path) as it:
        if not has_cgroup:
            monkeypatch.setattr(it.engine._spool, "_cgroups", [])
        await it.hand_over(*PYTHON, "-c", AS_A_CHILD)
        [pid] = await it.pids(1)
        main = procs.find(pid).parent
        kill(it.engine.inventory()[1].holder.pid)  # the main process dies with it, at once or while it is looked for
        outcome = await it.end()
        assert outcome.end is EndReason.LOST
        assert not lives(pid)
        assert {f"({pid})"} <= {name.split()[-1] for name in outcome.forced} <= {f"({pid})", f"({main})"}


def test_a_supervisor_is_watched_by_the_same_rule(headless):
    """Whoever made the mark is not gone as long as any of its threads is there."""
    proc = procs.find(headless.pid)
    mark = {"pid": proc.pid, "start_ticks": proc.start_ticks, "boot_id": procs.boot_id()}
    os.close(aftermath.watch(mark))
    headless.kill()
    headless.wait()
    assert aftermath.watch(mark) is None


@scenario
async def test_one_who_ends_its_main_thread_late_is_waited_for(tmp_path):
    """A job is not over while any of its threads works: its outcome is that of the last."""
    async with bench(tmp_path) as it:
        code = HEADLESS.replace("    time.sleep(600)", "    while not os.path.exists('go'): time.sleep(0.01)")
        await it.hand_over(*PYTHON, "-c", code)
        [pid] = await it.pids(1)
        (it.work / "go").touch()
        outcome = await it.end()
        assert outcome.exit_code == 0
        await until(lambda: not lives(pid))
