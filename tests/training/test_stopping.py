"""should_stop, time_left, report, finished and yield_now."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from jupyter_gpu import checkpoints, training


@pytest.fixture
def notice(tmp_path, monkeypatch):
    """Give the path where a notice will appear, in a process that knows of none yet."""
    path = tmp_path / "notice.json"
    monkeypatch.setenv("JUPYTER_GPU_NOTICE_FILE", str(path))
    monkeypatch.setenv("JUPYTER_GPU_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("JUPYTER_GPU_ATTEMPT", "3")
    monkeypatch.setattr(training, "_watch", training._Watch())
    monkeypatch.setattr(training, "_reports", training._Reports())
    monkeypatch.setattr(checkpoints, "_warned", set())
    before = signal.getsignal(signal.SIGTERM)
    yield path
    signal.signal(signal.SIGTERM, before)


def lines(name="progress.3.jsonl"):
    """Read what was reported."""
    path = training.checkpoint_dir() / name
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def test_a_notice_file_asks_to_stop(notice, monkeypatch):
    """False until it appears, true from then on, even when it goes away again."""
    monkeypatch.setattr(training, "_LOOK_EVERY", 0)
    assert not training.should_stop()
    notice.write_text("{}")
    assert training.should_stop()
    notice.unlink()
    assert training.should_stop()


def test_sigterm_asks_to_stop_at_once(notice):
    """A SIGTERM counts without waiting for the next look, and ends nothing."""
    assert not training.should_stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert training.should_stop()


def test_a_handler_that_was_there_still_runs(notice):
    """Ours is put before the user's, not in its place."""
    seen = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    assert not training.should_stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert training.should_stop()
    assert seen == [signal.SIGTERM]


def test_a_thread_may_ask(notice, monkeypatch):
    """Another thread sees the notice; the handler waits for the first call of the main thread."""
    monkeypatch.setattr(training, "_LOOK_EVERY", 0)
    before = signal.getsignal(signal.SIGTERM)
    answers = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: answers.append(training.should_stop()))
        thread.start()
        thread.join()
        notice.write_text("{}")
    assert answers == [False, True]
    assert signal.getsignal(signal.SIGTERM) == before


def test_asking_often_looks_seldom(notice, monkeypatch):
    """Ten thousand calls within one interval touch the disk once."""
    monkeypatch.setattr(training, "_LOOK_EVERY", 3600)
    looks = []
    look = training._Watch.look
    monkeypatch.setattr(training._Watch, "look", lambda self: looks.append(1) or look(self))
    assert not any(training.should_stop() for _ in range(10_000))
    assert len(looks) == 1


def test_a_forked_worker_still_dies_of_sigterm():
    """Closing a pool of data loaders sends SIGTERM to forked children: they must die of it as ever."""
    code = """
import multiprocessing, os, signal, time
from jupyter_gpu import training
training.should_stop()
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
worker.start()
worker.terminate()
worker.join(20)
assert worker.exitcode == -signal.SIGTERM, worker.exitcode
assert not training.should_stop()
os.kill(os.getpid(), signal.SIGTERM)
assert training.should_stop()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=40)


def test_time_left_is_the_sooner_deadline(notice, monkeypatch):
    """None without any; the job's; the notice's where that is sooner; never negative; damage is ignored."""
    assert training.time_left() is None
    monkeypatch.setenv("JUPYTER_GPU_DEADLINE", str(time.time() + 1000))
    assert 900 < training.time_left() <= 1000
    notice.write_text(json.dumps({"reason": "preempted", "deadline": time.time() + 100}))
    assert 50 < training.time_left() <= 100
    notice.write_text('{"deadl')
    assert training.time_left() > 900
    monkeypatch.setenv("JUPYTER_GPU_DEADLINE", "1")
    assert training.time_left() == 0


def test_report_is_limited_and_the_last_word_is_kept(notice):
    """The first at once, then one a second; the last is written when the training leaves."""
    for step in range(1, 500):
        training.report(step, of=1000, loss=1 / step)
    assert [line["step"] for line in lines()] == [1]
    with pytest.raises(SystemExit):
        training.yield_now()
    assert [line["step"] for line in lines()] == [1, 499]
    assert lines()[-1] | {"at": 0} == {
        "at": 0,
        "attempt": 3,
        "step": 499,
        "of": 1000,
        "numbers": {"loss": 1 / 499},
    }


def test_report_writes_the_last_step_at_once(notice):
    """Step n of n is never held back."""
    for step in (1, 2, 3):
        training.report(step, of=3)
    assert [line["step"] for line in lines()] == [1, 3]


def test_report_takes_any_librarys_numbers_and_never_raises(notice, monkeypatch, capsys):
    """A scalar of numpy or torch is a number, NaN is null, nonsense is a warning, a full disk too."""

    class Scalar:
        def __float__(self):
            return 0.5

    monkeypatch.setattr(training, "_REPORT_EVERY", 0)
    training.report(1, loss=Scalar(), lr=float("nan"), best=float("inf"), epoch=2)
    assert lines()[0]["numbers"] == {"loss": 0.5, "lr": None, "best": None, "epoch": 2}
    training.report(2, loss="low")
    training.report("three", of="many")
    monkeypatch.setenv("JUPYTER_GPU_CHECKPOINT_DIR", "/proc/no/such/place")
    training.report(4)
    assert capsys.readouterr().err.count("could not report progress") == 3


def test_finished_leaves_its_mark(notice):
    """The marker is named for the attempt."""
    training.finished()
    assert "at" in json.loads((training.checkpoint_dir() / "finished.3").read_text())


def test_finished_does_not_fail_a_training_that_is_done(notice, monkeypatch, capsys):
    """Where the marker cannot be written, that is a warning."""
    training.checkpoint_dir()
    monkeypatch.setattr(os, "write", lambda *_args: (_ for _ in ()).throw(OSError(28, "full")))
    training.finished()
    assert "could not mark" in capsys.readouterr().err
    assert [entry.name for entry in training.checkpoint_dir().iterdir()] == []


def test_yield_now_exits_with_75(notice):
    """The two exit codes are part of the contract."""
    with pytest.raises(SystemExit) as caught:
        training.yield_now()
    assert (caught.value.code, training.EXIT_REQUEUE, training.EXIT_DO_NOT_RETRY) == (75, 75, 93)
