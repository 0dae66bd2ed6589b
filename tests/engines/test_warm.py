"""A supervisor takes one attempt after another, and nothing of one is seen by the next or survives its own end."""

import os
import pwd
import signal
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import files, launcher, procs
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.model import EndReason
from tests.engines.bench import PYTHON, bench, kill, lives, scenario, until

#: What a process is born with, save what names its attempt, and SigQ: how many signals wait for all of its user's.
SHOW = """
import os, resource, signal
print(os.getcwd(), oct(os.umask(0)), os.getuid(), os.getgid(), os.getgroups(), resource.getrlimit(resource.RLIMIT_CORE))
print(sorted(name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)))
about = ("SigPnd", "SigBlk", "SigIgn", "SigCgt", "Cap", "Seccomp", "NoNew")
print([line for line in open("/proc/self/status") if line.startswith(about)])
print({name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER_GPU_", "MASTER_PORT"))})
"""


def holder_of(it, workload):
    """The pid of the supervisor that the engine reports."""
    return next(one.holder.pid for one in it.seen if one.workload == workload and one.holder)


async def idle(pid):
    """Wait until a supervisor waits for its next attempt: it holds its marks, its three pipes, the channel, 0 to 2."""
    await until(lambda: len(list(Path(f"/proc/{pid}/fd").iterdir())) == 9, "it never came to rest")


@scenario
async def test_the_next_attempt_begins_as_the_first_did(tmp_path):
    """The same supervisor, and a job that cannot tell; not even after one that wore other rights, limits and words."""
    async with bench(tmp_path) as it:
        await it.run(*PYTHON, "-c", SHOW, workload=1)
        await idle(holder_of(it, 1))
        as_other = {"account": pwd.getpwuid(65534).pw_name} if os.geteuid() == 0 else {}
        secret = {"PATH": os.environ["PATH"], "SECRET": "of another"}
        await it.run("sh", "-c", "exit 3", workload=2, environment=secret, core_dumps=True, folder="/", **as_other)
        await idle(holder_of(it, 1))
        await it.run(*PYTHON, "-c", SHOW, workload=3)
        assert holder_of(it, 1) == holder_of(it, 2) == holder_of(it, 3)
        assert it.log(3) == it.log(1)
        await idle(holder_of(it, 1))
        assert b"of another" not in (it.engine.folder_of(2, 1) / files.SPEC).read_bytes()


@scenario
async def test_marks_of_one_supervisor_are_one_file_and_each_decides(tmp_path):
    """A second start of the same folder finds its mark, whoever made it."""
    async with bench(tmp_path) as it:
        for workload in (1, 2):
            await it.run("sh", "-c", "echo ran >> lines", workload=workload)
            await idle(holder_of(it, 1))
        assert it.file("started", 1) == it.file("started", 2)
        it.engine._channel.start(str(it.engine.folder_of(1, 1)))
        assert (await it.run("true", workload=3)).end is EndReason.SUCCEEDED
        assert (it.work / "lines").read_text() == "ran\nran\n"


@scenario
async def test_an_idle_supervisor_that_is_killed_is_not_missed(tmp_path):
    """The launcher sees it and forks another; what it has done stays done."""
    async with bench(tmp_path) as it:
        await it.run("true", workload=1)
        await idle(holder_of(it, 1))
        kill(holder_of(it, 1))
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED
        assert holder_of(it, 2) != holder_of(it, 1)
        assert it.engine.inventory()[1].outcome.end is EndReason.SUCCEEDED


@scenario
async def test_a_folder_that_dies_with_an_idle_supervisor_is_asked_for_again(tmp_path):
    """Killed between the message and the mark: begun once, by another."""
    async with bench(tmp_path) as it:
        await it.run("true", workload=1)
        await idle(holder_of(it, 1))
        os.kill(holder_of(it, 1), signal.SIGSTOP)
        await it.hand_over("sh", "-c", "echo ran >> lines", workload=2)
        kill(holder_of(it, 1))
        assert (await it.end(2)).end is EndReason.SUCCEEDED
        assert (it.work / "lines").read_text() == "ran\n"


@scenario
async def test_a_supervisor_killed_at_its_second_attempt_loses_only_that(tmp_path):
    """The mark of the first names the same process; its outcome is looked at first."""
    async with bench(tmp_path) as it:
        await it.run("sh", "-c", "exit 7", workload=1)
        await idle(holder_of(it, 1))
        await it.hand_over("sh", "-c", "echo pid $$; sleep 600; true", workload=2)
        [pid] = await it.pids(1, workload=2)
        assert holder_of(it, 2) == holder_of(it, 1)
        kill(holder_of(it, 2))
        assert (await it.end(2)).end is EndReason.LOST
        assert not lives(pid)
        assert it.engine.inventory()[1].outcome.exit_code == 7
        assert it.file("outcome.json", 1)["exit_code"] == 7


@scenario
async def test_a_new_broker_is_not_misled_by_a_supervisor_that_has_moved_on(tmp_path):
    """It lives, and sees to another attempt: the earlier one is over all the same, and is not ordered about."""
    async with bench(tmp_path) as it:
        await it.run("sh", "-c", "exit 7", workload=1)
        await idle(holder_of(it, 1))
        await it.hand_over("sh", "-c", "trap '' TERM; echo pid $$; while :; do sleep 0.02; done", workload=2)
        [pid] = await it.pids(1, workload=2)
        await it.anew()
        assert it.engine.inventory()[1].stage is Stage.GONE
        assert it.engine.inventory()[2].stage is Stage.STARTED
        await it.order(0, 0, workload=1)
        await it.engine.take_back(1, 1)
        assert lives(pid)
        await it.order(0, 0, workload=2)
        assert (await it.end(2)).signal == signal.SIGKILL
        assert not lives(pid)


@scenario
async def test_what_could_not_write_its_last_word_takes_no_other_attempt(tmp_path):
    """The outcome does not say that the tree is gone, so the supervisor leaves, and its end says it."""
    async with bench(tmp_path) as it:
        block = "outcome=$(dirname $JUPYTER_GPU_NOTICE_FILE)/outcome.json; me=$PPID; "
        block += "(trap '' TERM; while [ ! -e $outcome ]; do sleep 0.01; done; mkdir $outcome.$me) >/dev/null 2>&1 &"
        outcome = await it.run("bash", "-c", block, workload=1)
        assert outcome.end is EndReason.SUCCEEDED
        await until(lambda: not lives(holder_of(it, 1)))
        assert it.file("outcome.json", 1)["gone"]
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED


@scenario
async def test_idle_supervisors_leave_with_their_launcher(tmp_path):
    """Killed or let go, it leaves nobody behind who waits for ever."""
    async with bench(tmp_path) as it:
        await it.run("true", workload=1)
        await idle(holder_of(it, 1))
        kill(it.engine.launcher_pid)
        await until(lambda: not lives(holder_of(it, 1)))
        await it.run("true", workload=2)
        await it.engine.close()
        await until(lambda: not lives(holder_of(it, 2)))


@scenario
async def test_so_many_are_idle_and_no_more(tmp_path):
    """After a burst the rest leaves at once."""
    async with bench(tmp_path) as it:
        many = range(1, launcher._IDLE_MOST + 5)
        for workload in many:
            await it.hand_over("sh", "-c", "while [ ! -e go ]; do sleep 0.01; done", workload=workload)
        for workload in many:
            await it.sighting(Stage.STARTED, workload)
        (it.work / "go").touch()
        for workload in many:
            await it.end(workload)
        pids = {holder_of(it, workload) for workload in many}
        assert len(pids) == len(many)
        await until(lambda: sum(lives(pid) for pid in pids) == launcher._IDLE_MOST)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP])
@scenario
async def test_a_signal_that_comes_late_harms_no_idle_supervisor(tmp_path, number):
    """A poke for the attempt before, or a signal to the whole group, is not for it."""
    async with bench(tmp_path) as it:
        await it.run("true", workload=1)
        await idle(holder_of(it, 1))
        os.kill(holder_of(it, 1), number)
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED
        assert holder_of(it, 1) == holder_of(it, 2)
        assert procs.find(holder_of(it, 2))
