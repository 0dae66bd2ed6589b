"""Anything may be killed at any moment: no attempt runs twice, and none that is called a success did not run."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import procs
from tests.engines.bench import kill

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
JOBS = 250
pytestmark = [pytest.mark.faults, pytest.mark.slow]


def begin(folder):
    """Start a broker over this folder, whatever an earlier one has left there."""
    words = [sys.executable, HERE / "stand_in_broker.py", folder, str(JOBS)]
    return subprocess.Popen(words, env={"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": "/usr/bin:/bin"})


def supervisors(launcher):
    """Supervisors, and between fork and exec the jobs themselves: a copy of the launcher that is not it."""
    words = procs.argv(launcher)
    everyone = procs.everyone() if words else {}
    return [pid for pid in everyone if pid != launcher and procs.argv(pid) == words]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2])
def test_kill_anything(tmp_path, seed):
    """Broker, launcher and supervisors are killed at random while 250 jobs pass through eight slots."""
    dice = random.Random(seed)
    broker, kills = begin(tmp_path), Counter()
    try:
        while broker.poll() is None:
            time.sleep(dice.uniform(0.02, 0.25))
            victim = dice.choice(["broker", "launcher", "supervisor", "supervisor"])
            if victim == "broker":
                if kills["broker"] < 6:
                    broker.kill()
                    broker.wait()
                    broker = begin(tmp_path)
                    kills[victim] += 1
                    time.sleep(0.3)  # to get as far as starting anything
                continue
            written = tmp_path / "launcher"
            launcher = int(written.read_text()) if written.exists() else 0
            pids = [launcher] if victim == "launcher" else supervisors(launcher)
            if launcher and pids:
                kill(dice.choice(pids))
                kills[victim] += 1
    finally:
        broker.send_signal(signal.SIGKILL)
        broker.wait()
    lines = Counter((tmp_path / "lines").read_text().splitlines())
    assert [line for line, times in lines.items() if times > 1] == []
    with contextlib.closing(sqlite3.connect(tmp_path / "store")) as store:
        jobs = store.execute("SELECT id, attempt, state FROM jobs").fetchall()
    assert len(jobs) == JOBS
    assert [job for job in jobs if job[2] == "succeeded" and f"{job[0]} {job[1]}" not in lines] == []
    # A job that was itself killed before its exec has failed by signal 9; all others came through.
    assert {job[2] for job in jobs} <= {"succeeded", "failed"}
    assert sum(job[2] == "failed" for job in jobs) <= kills["supervisor"]
    assert not list((tmp_path / "attempts" / "live").iterdir())
    assert len(kills) >= 2, "it was over too soon to show anything"
