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

from jupyter_gpu.broker.engines import files, procs
from tests.engines.bench import PATIENCE, kill

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
JOBS = 250
pytestmark = [pytest.mark.faults, pytest.mark.slow]


def begin(folder, first="", *, jobs=JOBS):
    """Start a broker over this folder, whatever an earlier one has left there; what its jobs do `first`."""
    words = [sys.executable, HERE / "stand_in_broker.py", folder, str(jobs), first]
    return subprocess.Popen(words, env={"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": "/usr/bin:/bin"})


def supervisors(root, launcher):
    """Supervisors, and between fork and exec the jobs themselves: copies of the launcher that are not it.

    Only this broker's, which its launcher has started or whose marks lie in its folders: on a machine with several
    brokers the command lines of all are alike.
    """
    words, everyone = procs.argv(launcher), procs.everyone()
    marks = [files.read(str(mark)) or {} for mark in root.glob(f"attempts/*/{files.MARK}")]
    live = ((it["pid"], it["start_ticks"]) for it in marks if it.get("pid") in everyone)
    ours = {launcher, *(pid for pid, start_ticks in live if everyone[pid].start_ticks == start_ticks)}
    below = ours.union(*(procs.descendants(pid, everyone) for pid in ours)) if words else set()
    return [pid for pid in below if pid != launcher and procs.argv(pid) == words]


def test_the_supervisors_of_another_broker_are_not_ours_to_kill(tmp_path):
    """Two brokers whose launchers have the same command line: each of them finds its own processes only."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    brokers = [begin(folder, "while ! test -e go; do sleep 0.02; done;", jobs=2) for folder in folders]
    try:
        found = [wait_for(lambda folder=folder: two_of(folder)) for folder in folders]
        launchers = [int((folder / "launcher").read_text()) for folder in folders]
        assert procs.argv(launchers[0]) == procs.argv(launchers[1])
        assert not set(found[0]) & set(found[1])
    finally:
        for folder in folders:
            (folder / "go").touch()
        ended = [broker.wait(30) for broker in brokers]
    assert ended == [0, 0]


def two_of(folder):
    """The supervisors of this broker's two jobs, once both run."""
    written = folder / "launcher"
    found = supervisors(folder, int(written.read_text())) if written.exists() else []
    return found if len(found) >= 2 else None


def wait_for(found):
    """Look until something is there."""
    by = time.monotonic() + PATIENCE
    while not (it := found()):
        assert time.monotonic() < by, "it never came"
        time.sleep(0.01)
    return it


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
            pids = [launcher] if victim == "launcher" else supervisors(tmp_path, launcher)
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
