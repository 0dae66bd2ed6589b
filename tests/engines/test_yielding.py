"""Trainings as people write them, and their notice: torchrun, data loaders, slow saves, full disks, cut checkpoints."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import jupyter_gpu
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.model import EndReason
from tests.engines.bench import bench, lives, scenario, until

ROOT = str(Path(jupyter_gpu.__file__).parents[1])
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": ROOT}
#: What torchrun does: one Python for each rank, watched; SIGTERM to it would be passed on to all of them.
TORCHRUN = """
import os, signal, subprocess, sys
def told(number, frame):
    os.write(1, b"TERM of torchrun\\n")
    for rank in ranks: rank.terminate()
signal.signal(signal.SIGTERM, told)
count, script = int(sys.argv[1].partition("=")[2]), sys.argv[2]
ranks = [
    subprocess.Popen([sys.executable, "-u", script], env={**os.environ, "RANK": str(n), "WORLD_SIZE": str(count)})
    for n in range(count)
]
failed = [code for code in [rank.wait() for rank in ranks] if code]
os.write(1, b"torchrun is done\\n")
sys.exit(1 if failed else 0)
"""
#: Ranks with data-loader workers: rank 0 saves, all leave by exit code 75; a worker would tell of a SIGTERM.
RANK = """
import multiprocessing, os, signal, sys, time
from jupyter_gpu import training

def work(ready):
    signal.signal(signal.SIGTERM, lambda number, frame: os.write(1, b"TERM of a worker\\n"))
    ready.release()
    time.sleep(600)

if __name__ == "__main__":
    here = multiprocessing.get_context(os.environ.get("METHOD", "fork"))
    ready = here.Semaphore(0)
    workers = [here.Process(target=work, args=(ready,), daemon=False) for _ in range(2)]
    for worker in workers: worker.start()
    for worker in workers: ready.acquire()
    rank = os.environ.get("RANK", "0")
    training.should_stop()
    os.write(1, b"pid %d rank %s\\n" % (os.getpid(), rank.encode()))
    while not training.should_stop(): time.sleep(0.01)
    os.write(1, b"stops rank %s\\n" % rank.encode())
    if rank == "0":
        with training.checkpoint(7) as folder: (folder / "state").write_text("7")
    for worker in workers: worker.kill()
    for worker in workers: worker.join()
    training.yield_now()
"""


def checkpoints(it, number=1):
    """Where the job's checkpoints lie."""
    return it.work / ".jupyter-gpu" / f"job-{number}"


@contextlib.contextmanager
def mounted(where, size, *, read_only=False):
    """A disk of this size."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    where.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", where], check=False).returncode:
        pytest.skip("no mounts here")
    if read_only:
        subprocess.run(["mount", "-o", "remount,ro", where], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", where], check=True)


# --- who gets the notice ---------------------------------------------------------------------------


@scenario
async def test_of_a_torchrun_tree_each_rank_gets_the_notice_and_nobody_else(tmp_path):
    """Neither torchrun, which would pass it on a second time, nor the ranks' own data-loader workers."""
    async with bench(tmp_path) as it:
        (it.work / "torchrun").write_text(TORCHRUN)
        (it.work / "train.py").write_text(RANK)
        words = f"{sys.executable} torchrun --nproc=2 train.py; exit $?"
        await it.hand_over("bash", "-c", words, environment=ENVIRONMENT)
        ranks = await it.pids(2)
        await it.order(grace=60)
        outcome = await it.end()
        log = it.log()
        assert b"TERM of" not in log
        assert log.count(b"stops rank 0") == log.count(b"stops rank 1") == 1
        told = it.file("outcome.json")["noticed_processes"]
        assert sorted(int(text.split("(")[1].rstrip(")")) for text in told) == sorted(ranks)
        # The ranks ask to be requeued, and all that torchrun says of it is 1: the notice counts, whatever the code.
        assert (outcome.exit_code, outcome.noticed, outcome.to_step) == (1, True, 7)
        assert outcome.forced == ()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@scenario
async def test_data_loader_workers_get_no_notice_however_they_were_started(tmp_path, method):
    """They would be gone before the training has saved; the helpers of multiprocessing are no trainings either."""
    async with bench(tmp_path) as it:
        (it.work / "train.py").write_text(RANK)
        words = ("timeout", "600", sys.executable, "train.py")
        await it.hand_over(*words, environment=ENVIRONMENT | {"METHOD": method})
        [pid] = await it.pids(1)
        await it.order(grace=60)
        outcome = await it.end()
        assert b"TERM of" not in it.log()
        assert [text.split("(")[1] for text in it.file("outcome.json")["noticed_processes"]] == [f"{pid})"]
        assert (outcome.exit_code, outcome.noticed, outcome.to_step) == (75, True, 7)
        assert outcome.detail == "it yielded, saved up to step 7 (exit code 75)"


# --- saves -----------------------------------------------------------------------------------------

SLOW = """
import os, signal, sys, time
from jupyter_gpu import training
found = training.latest()
os.write(1, b"resumes from %d\\n" % training.step_of(found))
if found: sys.exit(0)
with training.checkpoint(1) as folder: (folder / "state").write_text("1")
training.should_stop()
os.write(1, b"pid %d\\n" % os.getpid())
while not training.should_stop(): time.sleep(0.01)
with training.checkpoint(2) as folder:
    (folder / "state").write_text("half")
    os.write(1, b"saving\\n")
    while True: time.sleep(1)
"""


@scenario
async def test_a_checkpoint_that_takes_longer_than_the_grace_is_skipped_and_the_one_before_is_used(tmp_path):
    """It is ended by force in the middle of its save; the next attempt is told what was skipped."""
    async with bench(tmp_path) as it:
        await it.hand_over(sys.executable, "-c", SLOW, environment=ENVIRONMENT)
        [pid] = await it.pids(1)
        await it.order(grace=1, kill_after=1)
        await it.says(b"saving")
        outcome = await it.end()
        assert (outcome.signal, outcome.noticed, outcome.to_step) == (signal.SIGKILL, True, 1)
        assert [text.split()[1] for text in outcome.forced] == [f"({pid})"]
        # Its grace begins with the order, and the notice reaches it a moment later.
        assert round(outcome.yield_seconds, 1) >= 2
        await it.run(sys.executable, "-c", SLOW, attempt=2, environment=ENVIRONMENT)
        log = it.log(1, 2)
        assert b"resumes from 1\n" in log
        assert b"skipped a half-written checkpoint" in log
        [skipped] = it.file("outcome.json", 1, 2)["skipped_checkpoints"]
        assert "its writer died before it was complete" in skipped


@scenario
async def test_the_time_from_the_notice_to_the_exit_is_measured(tmp_path):
    """So that its owner sees how much of the grace the save needs; without a notice there is none."""
    async with bench(tmp_path) as it:
        (it.work / "train.py").write_text(RANK)
        await it.hand_over(sys.executable, "train.py", environment=ENVIRONMENT)
        await it.pids(1)
        await it.order(grace=60)
        outcome = await it.end()
        full = it.file("outcome.json")
        assert 0 < outcome.yield_seconds <= full["ended_at"] - full["order"]["ordered_at"] + 0.1
        assert (await it.run("true", workload=2)).yield_seconds is None


@pytest.mark.parametrize("cut", ["truncated", "emptied", "no marker"])
@scenario
async def test_after_a_power_cut_a_damaged_checkpoint_is_skipped_and_named(tmp_path, cut):
    """A disk may have lost what lay there: a file behind the marker, all of it, or the marker itself."""
    script = textwrap.dedent("""
        from jupyter_gpu import training
        for step in (1, 2):
            with training.checkpoint(step) as folder:
                (folder / "state").write_text("state")
    """)
    async with bench(tmp_path) as it:
        assert (await it.run(sys.executable, "-c", script, environment=ENVIRONMENT)).to_step == 2
        newest = checkpoints(it) / "step-000000000002"
        what = {"truncated": "state has 2 of 5 bytes", "emptied": "marker cannot be read", "no marker": "no COMPLETE"}
        if cut == "truncated":
            os.truncate(newest / "state", 2)
        elif cut == "emptied":
            for path in newest.iterdir():
                os.truncate(path, 0)
        else:
            (newest / "COMPLETE").unlink()
        outcome = await it.run("sh", "-c", "echo $JUPYTER_GPU_RESUME_FROM", attempt=2)
        assert it.log(1, 2).decode().strip() == str(checkpoints(it) / "step-000000000001")
        assert (outcome.from_step, outcome.to_step) == (1, 1)
        [skipped] = it.file("outcome.json", 1, 2)["skipped_checkpoints"]
        assert what[cut] in skipped


FILLS = """
import os, sys
from jupyter_gpu import training
for step in range(1, 9):
    with training.checkpoint(step, keep=1) as folder:
        (folder / "state").write_bytes(b"x" * step * 50_000)
"""


@pytest.mark.faults
@scenario
async def test_a_disk_that_is_full_while_it_saves_is_told_as_such_and_costs_no_older_checkpoint(tmp_path):
    """bghira/SimpleTuner#2353, open-mmlab/mmdetection#12069: days of training must not end with no checkpoint."""
    with mounted(tmp_path / "work" / "small", "512k"):
        async with bench(tmp_path) as it:
            outcome = await it.run(
                sys.executable, "-c", FILLS, checkpoint_dir="small/checkpoints", environment=ENVIRONMENT
            )
            home = it.work / "small" / "checkpoints"
            assert outcome.end is EndReason.DISK_FULL, it.log()
            assert "No space left on device" in outcome.detail
            assert b"was not saved. The newest complete one is intact" in it.log()
            assert outcome.progressed
            left = home / f"step-{outcome.to_step:012d}"
            assert json.loads((left / "COMPLETE").read_text())["step"] == outcome.to_step
            assert not [path for path in home.iterdir() if path.name.startswith(".tmp-")]


SAYS_ONLY = "import sys; sys.stderr.write('RuntimeError: File work_dirs/epoch_9.pth cannot be opened.\\n'); sys.exit(1)"


@pytest.mark.faults
@scenario
async def test_a_failure_beside_a_full_disk_says_that_it_is_full(tmp_path):
    """The words may be only "cannot be opened": no proof but a hint: open-mmlab/mmdetection#12069, Sachini/ronin#51."""
    with mounted(tmp_path / "work" / "small", "128k") as disk:
        async with bench(tmp_path) as it:
            (disk / "checkpoints").mkdir()
            with contextlib.suppress(OSError):
                (disk / "checkpoints" / "weights").write_bytes(b"x" * (1 << 20))
            failed = await it.run(sys.executable, "-c", SAYS_ONLY, checkpoint_dir="small/checkpoints")
            assert failed.end is EndReason.FAILED
            assert failed.detail.startswith("exit code 1; the disk that its checkpoints lie on is full; the log ends")
            done = await it.run("true", checkpoint_dir="small/checkpoints", workload=2)
            assert done.detail == "exit code 0"


@pytest.mark.faults
@scenario
async def test_a_home_that_nobody_may_write_to_stops_no_job_and_its_save_says_why(tmp_path):
    """A folder for checkpoints cannot be made on a disk that is read-only: the job runs, and a save tells its cause."""
    with mounted(tmp_path / "work" / "home", "512k", read_only=True) as home:
        async with bench(tmp_path) as it:
            folder = str(home)
            assert (await it.run("echo", "runs", folder=folder)).end is EndReason.SUCCEEDED
            assert it.log() == b"runs\n"
            script = "from jupyter_gpu import training\ntraining.report(1, of=2)\nprint('goes on', flush=True)\n"
            script += "with training.checkpoint(1) as folder: pass\n"
            outcome = await it.run(sys.executable, "-c", script, workload=2, folder=folder, environment=ENVIRONMENT)
            assert outcome.exit_code == 1
            assert b"could not report progress: [Errno 30] Read-only file system" in it.log(2)
            assert b"goes on" in it.log(2)
            assert b"OSError: [Errno 30] Read-only file system" in it.log(2)
            assert it.file("progress.json", 2)["step"] == 1


@scenario
async def test_a_supervisor_that_was_suspended_with_its_job_goes_on_where_it_was(tmp_path):
    """As when the machine sleeps: the grace that is left is kept, and nothing is ended or lost by the gap."""
    async with bench(tmp_path) as it:
        (it.work / "train.py").write_text(RANK)
        await it.hand_over(sys.executable, "train.py", environment=ENVIRONMENT)
        [pid] = await it.pids(1)
        supervisor = (await it.sighting(Stage.STARTED)).holder.pid
        for one in (pid, supervisor):
            os.kill(one, signal.SIGSTOP)
        await it.order(grace=60)
        await until(lambda: Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        assert lives(pid)
        for one in (supervisor, pid):
            os.kill(one, signal.SIGCONT)
        outcome = await it.end()
        assert (outcome.exit_code, outcome.noticed, outcome.to_step) == (75, True, 7)
