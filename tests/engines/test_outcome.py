"""The outcome: what the main process said, what the job saved, and on what evidence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import cgroup
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.exits import memory_kills
from jupyter_gpu.model import EndReason
from tests.engines.bench import PYTHON, bench, scenario, until

HERE = str(Path(__file__).parents[2])
TRAIN = f"import os, sys; sys.path.append({HERE!r}); from jupyter_gpu import training; "


@pytest.mark.parametrize(
    ("script", "code", "number", "detail"),
    [
        ("exit 0", 0, None, "exit code 0"),
        ("exit 75", 75, None, "exit code 75"),
        ("kill -9 $$", None, 9, "killed by signal 9"),
        ("exit 137", 137, None, "exit code 137 (looks like signal 9)"),
        ("exit 256", 0, None, "exit code 0"),
        ("kill -SEGV $$", None, 11, "segmentation fault (signal 11)"),
        ("(bash -c 'kill -9 $$'; exit $?) 2>/dev/null", 137, None, "exit code 137 (looks like signal 9)"),
    ],
)
@scenario
async def test_a_signal_and_an_exit_code_are_told_apart(tmp_path, script, code, number, detail):
    """137 is no success and no proof of anything: cortexlabs/cortex#1806."""
    async with bench(tmp_path) as it:
        outcome = await it.run("bash", "-c", script)
        assert (outcome.exit_code, outcome.signal, outcome.detail) == (code, number, detail)
        assert outcome.end is (EndReason.SUCCEEDED if code == 0 else EndReason.FAILED)


@scenario
async def test_the_logs_last_words_name_the_end(tmp_path):
    """Out of GPU memory and a full disk are told from the log of a job that failed."""
    async with bench(tmp_path) as it:
        for workload, (text, end) in enumerate(
            [("CUDA out of memory.", EndReason.GPU_OOM), ("Disk quota exceeded", EndReason.DISK_FULL)], start=1
        ):
            outcome = await it.run("bash", "-c", f"echo {text!r} >&2; exit 1", workload=workload)
            assert outcome.end is end
            assert text in outcome.detail


@scenario
async def test_finished_is_a_mark_of_this_attempt(tmp_path):
    """`training.finished()` counts for the attempt that called it, not for an earlier one's mark."""
    async with bench(tmp_path) as it:
        first = await it.run(sys.executable, "-c", TRAIN + "training.finished(); sys.exit(75)")
        assert first.finished
        second = await it.run("true", attempt=2)
        assert not second.finished


@scenario
async def test_progress_is_a_newer_complete_checkpoint(tmp_path):
    """An attempt resumes from the newest complete one, and has progressed if it left a newer one."""
    save = TRAIN + 'step = int(sys.argv[1]); exec(\'with training.checkpoint(step) as f: (f / "w").write_text("x")\')'
    async with bench(tmp_path) as it:
        home = it.work / ".jupyter-gpu" / "job-1"
        first = await it.run(sys.executable, "-c", save, "5")
        assert first.progressed, it.log()
        (home / "step-000000000009").mkdir()
        (home / "step-000000000009" / "w").write_text("half")
        second = await it.run("sh", "-c", "echo $JUPYTER_GPU_RESUME_FROM; exit 1", attempt=2)
        assert it.log(1, 2).decode().strip() == str(home / "step-000000000005")
        assert not second.progressed
        assert "step-000000000009" in it.file("outcome.json", 1, 2)["skipped_checkpoints"][0]
        third = await it.run(sys.executable, "-c", save, "7", attempt=3)
        assert third.progressed


@scenario
async def test_a_checkpoint_folder_of_ones_own_is_made_and_kept(tmp_path):
    """What the user named is the user's, even if it stays empty."""
    async with bench(tmp_path) as it:
        await it.run("sh", "-c", "echo $JUPYTER_GPU_CHECKPOINT_DIR", checkpoint_dir="runs/a")
        assert it.log().decode().strip() == str(it.work / "runs" / "a")
        assert (it.work / "runs" / "a").is_dir()


@scenario
async def test_a_folder_that_nobody_can_write_to_stops_no_job(tmp_path):
    """A job need not save anything."""
    async with bench(tmp_path) as it:
        (it.work / "plain").write_text("")
        outcome = await it.run("echo", "hi", checkpoint_dir="plain/below")
        assert (outcome.end, it.log()) == (EndReason.SUCCEEDED, b"hi\n")


@pytest.mark.faults
@scenario
async def test_host_memory_is_blamed_on_the_kernels_own_counter(tmp_path):
    """The cgroup counts what the kernel killed in it; nothing else says host-oom: cortexlabs/cortex#1806."""
    async with bench(tmp_path) as it:
        hog = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
        hog += "x = []\nwhile True: x.append(bytearray(1 << 20))"
        await it.hand_over(*PYTHON, "-c", hog)
        await it.says(b"ready")
        limits = [
            Path(folder) / name
            for folder in it.file("spec.json")["cgroups"]
            for name in ("memory.limit_in_bytes", "memory.max")
            if (Path(folder) / name).exists()
        ]
        if not limits:
            pytest.skip("no cgroup with a memory controller can be made here")
        for limit in limits:
            limit.write_text(str(64 << 20))
        (it.work / "go").touch()
        outcome = await it.end()
        assert (outcome.end, outcome.signal) == (EndReason.HOST_OOM, 9)
        assert "for want of host memory" in outcome.detail


def test_the_counter_is_read_in_both_versions(tmp_path):
    """memory.events of version 2, memory.oom_control of version 1; none of either is none."""
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert memory_kills([str(tmp_path / "2")]) == 2
    assert memory_kills([str(tmp_path / "1")]) == 1
    assert memory_kills([str(tmp_path), str(tmp_path / "none")]) == 0


@scenario
async def test_without_a_cgroup_all_else_is_the_same(tmp_path):
    """No root, no delegation: then there is none, and the tree is found all the same."""
    async with bench(tmp_path) as it:
        it.engine._spool._cgroups = ["/proc/no-such-place"]
        await it.hand_over("bash", "-c", "(setsid sleep 600 & echo pid $!); echo done; sleep 600")
        await it.says(b"done")
        await it.order(0, 0)
        await it.end()
        await until(lambda: it.engine.inventory()[1].stage is Stage.GONE)
        assert not list(it.work.iterdir())


def test_in_a_cgroup_that_systemd_gave_us_attempts_are_made_beside_the_broker(tmp_path):
    """With Delegate=yes the broker steps aside, so that memory is counted per attempt; never anywhere else."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    folder = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), tmp_path) / f"test-{os.getpid()}"
    try:
        folder.mkdir()
        os.setxattr(folder, "user.delegate", b"1")
        (folder / "cgroup.procs").stat()
    except OSError:
        pytest.skip("no cgroup of version 2 can be made here")
    code = "import os, sys; open(sys.argv[1] + '/cgroup.procs', 'w').write('0'); "
    code += "from jupyter_gpu.broker.engines import cgroup; print(cgroup.parents()); print(cgroup.parents())"
    try:
        words = [sys.executable, "-c", code, folder]
        told = subprocess.run(words, capture_output=True, text=True, check=True, cwd=HERE).stdout.splitlines()
        assert [str(folder) in line and f"{folder}/broker" not in line for line in told] == [True, True]
        assert (folder / "broker").is_dir()
    finally:
        cgroup.remove([str(folder)])
