"""Which old checkpoints go: the last few stay, milestones stay, what is too old goes, the newest never does."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu import checkpoints, training, training_pruning
from jupyter_gpu.checkpoints import Writer, newest_complete

DAY = 86_400


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give the checkpoint folder of attempt 1 of a job."""
    folder = tmp_path / "checkpoints"
    monkeypatch.setenv("JUPYTER_GPU_CHECKPOINT_DIR", str(folder))
    monkeypatch.setenv("JUPYTER_GPU_ATTEMPT", "1")
    monkeypatch.setattr(checkpoints, "_warned", set())
    return folder


def save(step, **options):
    """Save a checkpoint of one small file."""
    with training.checkpoint(step, **options) as folder:
        (folder / "state").write_text("state")


def aged(home, step, days):
    """Let a checkpoint have been saved so long ago."""
    marker = home / f"step-{step:012d}" / "COMPLETE"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"at": time.time() - days * DAY}))


def steps(home):
    """Give the steps that are there."""
    return [training.step_of(path) for path in sorted(home.glob("step-*"))]


def test_every_so_many_steps_one_stays_for_good(home):
    """keep_every=10 keeps 10 and 20 beside the last two."""
    for step in range(1, 25):
        save(step, keep_every=10)
    assert steps(home) == [10, 20, 23, 24]


def test_what_is_older_than_the_age_goes_but_never_the_newest(home):
    """Of what the counts would keep, milestones included, the old ones go at the next save."""
    for step in (10, 20, 30):
        save(step, keep=None)
    aged(home, 10, 8)
    aged(home, 20, 6)
    save(40, keep=None, keep_every=10, max_age_seconds=7 * DAY)
    assert steps(home) == [20, 30, 40]
    aged(home, 40, 8)
    save(35, keep=None, max_age_seconds=7 * DAY)
    assert steps(home) == [20, 30, 35, 40], "40 is the newest: a training resumes from it"


def test_a_marker_without_a_time_is_as_old_as_its_folder(home):
    """A clock that is missing or no number must not make a checkpoint eternal, nor fail the save."""
    save(1, keep=None)
    marker = home / "step-000000000001" / "COMPLETE"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"at": "yesterday"}))
    save(2, keep=None, max_age_seconds=DAY)
    assert steps(home) == [1, 2]
    os.utime(home / "step-000000000001", (0, 0))
    save(3, keep=None, max_age_seconds=DAY)
    assert steps(home) == [2, 3]


@pytest.mark.parametrize("rule", [{"keep": 0}, {"keep_every": 0}, {"max_age_seconds": 0}, {"max_age_seconds": -1.0}])
def test_a_rule_that_means_nothing_is_refused_before_anything_is_written(home, rule):
    """The error names the rule."""
    with pytest.raises(ValueError, match=next(iter(rule))):
        save(1, **rule)
    assert not any(home.iterdir())


@given(
    saved=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    keep=st.none() | st.integers(1, 3),
    every=st.none() | st.integers(1, 4),
    old=st.sets(st.integers(0, 12)),
)
def test_no_rule_removes_the_newest_nor_what_was_just_saved(saved, keep, every, old):
    """For any order of steps, any ages and any rules: the highest and the last saved are there, and whole."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        home = Path(name)
        for i, step in enumerate(saved):
            with Writer(home, 1).checkpoint(step, keep, keep_every=every, max_age_seconds=DAY) as folder:
                (folder / "state").touch()
            if step in old:
                aged(home, step, 2)
            there = steps(home)
            highest = max(saved[: i + 1])
            assert training.step_of(newest_complete(home)[0]) == highest
            assert step in there
            assert {it for it in there if it in old} <= {highest, step}


def test_what_lies_there_is_listed_with_size_age_and_what_is_wrong(home):
    """The newest complete one is marked; what is half written is listed too, since it takes room."""
    for step in (1, 2, 3):
        save(step, keep=None)
    (home / "step-000000000003" / "COMPLETE").unlink()
    aged(home, 1, 3)
    found = training_pruning.listed(home)
    assert [(it.step, it.is_newest, it.fault) for it in found] == [
        (1, False, None),
        (2, True, None),
        (3, False, "it has no COMPLETE marker"),
    ]
    assert found[0].at == pytest.approx(time.time() - 3 * DAY, abs=60)
    assert found[0].size_bytes >= 5
    assert training_pruning.listed(home / "missing") == []


def test_the_reader_beside_each_job_does_without_it():
    """The engine only looks for the newest; that loads no rule of pruning."""
    code = "import sys; from jupyter_gpu import checkpoints; checkpoints.newest_name('/nowhere'); "
    code += "assert 'jupyter_gpu.training_pruning' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
