"""After any kill: adopted with log and outcome, or lost once its tree is gone; never started twice."""

import itertools
import json
import os
import signal
import subprocess
import time

import pytest

from jupyter_gpu.broker.engines import files, procs
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.model import EndReason
from tests.engines.bench import PYTHON, bench, kill, lives, scenario, until

SLEEPER = "import os,time; os.write(1, b'pid %d\\n' % os.getpid()); time.sleep(600)"
WAITER = "echo pid $$; echo begun >> lines; while [ ! -e go ]; do sleep 0.01; done; echo last words; exit 7"
pytestmark = pytest.mark.faults


def supervisor_of(it, workload=1):
    """Its pid, as the engine reports it."""
    return it.engine.inventory()[workload].holder.pid


@scenario
async def test_a_new_broker_adopts_what_runs(tmp_path):
    """The broker alone was ended: the job is adopted, log and exit code included (Nextdoor/ndscheduler#86)."""
    async with bench(tmp_path) as it:
        await it.hand_over("bash", "-c", WAITER)
        [pid] = await it.pids(1)
        before = supervisor_of(it)
        await it.anew()
        assert it.engine.inventory()[1].stage is Stage.STARTED
        assert supervisor_of(it) == before
        assert lives(pid)
        (it.work / "go").touch()
        assert (await it.end()).exit_code == 7
        assert b"last words" in it.log()
        assert (it.work / "lines").read_text() == "begun\n"


@scenario
async def test_what_ended_meanwhile_is_told(tmp_path):
    """An outcome waits on disk for the broker that comes next."""
    async with bench(tmp_path) as it:
        await it.hand_over("bash", "-c", WAITER)
        await it.pids(1)
        await it.engine.close()
        (it.work / "go").touch()
        await until(lambda: it.file("outcome.json"))
        it.seen.clear()
        await it.begin()
        assert (await it.end()).exit_code == 7
        assert [one.stage for one in it.seen if one.stage is not Stage.EXITED] == [Stage.STARTED, Stage.GONE]


@scenario
async def test_what_was_handed_over_and_never_began_begins_with_the_next_broker(tmp_path):
    """No mark: it was never started, so it is started now."""
    async with bench(tmp_path) as it:
        os.kill(it.engine.launcher_pid, signal.SIGSTOP)
        await it.hand_over("sh", "-c", "echo ran >> lines")
        kill(it.engine.launcher_pid)
        await it.anew()
        assert (await it.end()).end is EndReason.SUCCEEDED
        assert (it.work / "lines").read_text() == "ran\n"


@scenario
async def test_an_old_launcher_that_still_has_the_message_starts_nothing_twice(tmp_path):
    """The started mark decides between two launchers; the later one leaves without a word."""
    async with bench(tmp_path) as it:
        old = it.engine.launcher_pid
        os.kill(old, signal.SIGSTOP)
        await it.hand_over("bash", "-c", WAITER)
        process = it.engine._channel._process
        process.wait = lambda **_: None  # it is stopped: do not wait for it
        await it.anew()
        await it.pids(1)
        os.kill(old, signal.SIGCONT)
        _, process.returncode = os.waitpid(old, 0)  # noqa: ASYNC222 - it ends at once
        (it.work / "go").touch()
        assert (await it.end()).exit_code == 7
        assert (it.work / "lines").read_text() == "begun\n"


@scenario
async def test_when_the_launcher_is_killed_nothing_that_runs_notices(tmp_path):
    """A new launcher takes its place; the old one's supervisors report over their old socket."""
    async with bench(tmp_path) as it:
        await it.hand_over("bash", "-c", WAITER)
        [pid] = await it.pids(1)
        old = it.engine.launcher_pid
        kill(old)
        await until(lambda: it.engine.launcher_pid not in (None, old))
        assert lives(pid)
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED
        (it.work / "go").touch()
        assert (await it.end()).exit_code == 7


@pytest.mark.parametrize("with_cgroup", [True, False])
@scenario
async def test_when_the_supervisor_is_killed_its_tree_is_ended_before_it_is_lost(tmp_path, with_cgroup):
    """Found by cgroup, else by its variables, in whatever session: and only then it is lost."""
    async with bench(tmp_path) as it:
        if not with_cgroup:
            it.engine._spool._cgroups = []
        code = "import os\nos.fork() or os.setsid()\nos.fork()\n" + SLEEPER
        await it.hand_over(*PYTHON, "-c", code)
        pids = await it.pids(4)
        seen_alive = []
        it.engine._on_sighting = lambda one: (seen_alive.extend(filter(lives, pids)), it.seen.append(one))
        kill(supervisor_of(it))
        outcome = await it.end()
        assert outcome.end is EndReason.LOST
        assert not seen_alive
        assert not any(lives(pid) for pid in pids)
        # The kernel has ended the main process with its supervisor; the rest was ended by us and is named.
        assert {name.split()[-1] for name in outcome.forced} <= {f"({pid})" for pid in pids}
        assert it.file("outcome.json")["end"] == "lost"


@scenario
async def test_broker_and_supervisor_killed_together(tmp_path):
    """The next broker finds a mark without supervisor: what lives is ended, then it is lost (thieman/dagobah#1)."""
    async with bench(tmp_path) as it:
        code = "import os\nos.fork() or os.setsid()\n" + SLEEPER
        await it.hand_over(*PYTHON, "-c", code)
        pids = await it.pids(2)
        supervisor = supervisor_of(it)
        await it.engine.close()
        kill(supervisor)
        it.seen.clear()
        await it.begin()
        assert (await it.end()).end is EndReason.LOST
        assert not any(lives(pid) for pid in pids)


@scenario
async def test_a_job_of_the_same_number_of_another_broker_is_a_stranger(tmp_path):
    """Job numbers are only unique per broker; the tree is told by the path of its notice file too."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with bench(tmp_path / "a") as one, bench(tmp_path / "b") as other:
        for it in (one, other):
            await it.hand_over(*PYTHON, "-c", SLEEPER)
        [mine], [theirs] = await one.pids(1), await other.pids(1)
        kill(supervisor_of(one))
        assert (await one.end()).end is EndReason.LOST
        assert not lives(mine)
        assert lives(theirs)


@pytest.mark.parametrize("differs", ["boot_id", "start_ticks"])
@scenario
async def test_a_pid_alone_is_nobody(tmp_path, differs):
    """Another boot, or another start time: not adopted, no signal, lost (jhuckaby/Cronicle#789, tenzir/tenzir#2526)."""
    async with bench(tmp_path) as it:
        await it.hand_over("true")
        await it.end()
        await it.engine.close()
        stranger = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
        try:
            folder = it.engine.folder_of(1, 1)
            (folder / files.OUTCOME).unlink()
            mark = {
                "pid": stranger.pid, "start_ticks": procs.find(stranger.pid).start_ticks, "boot_id": procs.boot_id(),
            }  # fmt: skip
            mark[differs] = "0" * 36 if differs == "boot_id" else mark[differs] - 1
            (folder / files.MARK).write_text(json.dumps(mark))
            it.seen.clear()
            await it.begin()
            await it.order(0, 0)
            outcome = await it.end()
            assert outcome.end is EndReason.LOST
            assert ("restarted" in outcome.detail) == (differs == "boot_id")
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


@scenario
async def test_a_mark_that_a_power_cut_has_emptied_is_still_a_mark(tmp_path):
    """Marked means never start again, whatever is left of the mark's content."""
    async with bench(tmp_path) as it:
        await it.hand_over("sh", "-c", "echo ran >> lines")
        await it.end()
        await it.engine.close()
        folder = it.engine.folder_of(1, 1)
        (folder / files.OUTCOME).unlink()
        (folder / files.MARK).write_text("")
        it.seen.clear()
        await it.begin()
        assert (await it.end()).end is EndReason.LOST
        assert (it.work / "lines").read_text() == "ran\n"


@scenario
async def test_a_lost_device_lease_is_known_at_once(tmp_path):
    """`kill -9` of everything is noticed by pidfd, not by a time-out: russellb/canhazgpu#30."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", SLEEPER)
        [pid] = await it.pids(1)
        begin = time.monotonic()
        kill(supervisor_of(it))
        kill(pid)
        await it.end()
        assert time.monotonic() - begin < 5  # no poll of minutes: generous, as this is no benchmark


@scenario
async def test_what_was_taken_back_is_not_adopted_again(tmp_path):
    """An attempt that is over and taken back costs a later start nothing; log and outcome stay."""
    async with bench(tmp_path) as it:
        await it.run("echo", "hi")
        await it.engine.take_back(1, 1)
        await it.anew()
        assert dict(it.engine.inventory()) == {}
        assert it.log() == b"hi\n"
        assert it.file("outcome.json")["exit_code"] == 0


@scenario
async def test_a_launcher_that_cannot_live_is_not_restarted_in_a_hot_loop(tmp_path, monkeypatch):
    """Each try waits longer than the one before: ROCm/spur#520."""
    from jupyter_gpu.broker.engines import launcher

    async with bench(tmp_path) as it:
        tries = []
        monkeypatch.setattr(launcher, "command", lambda _: tries.append(time.monotonic()) or ["false"])
        kill(it.engine.launcher_pid)
        await until(lambda: len(tries) == 4)
        gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert gaps[2] > gaps[1] > gaps[0] >= 0.1
        monkeypatch.undo()
        assert (await it.run("true")).end is EndReason.SUCCEEDED
