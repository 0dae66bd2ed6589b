"""The trainings of the stories keep their promise: each step once, and the same weights to the last bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "stories" / "scripts"


class Job:
    """Runs attempts of one script in a folder of its own, as a supervisor would."""

    def __init__(self, folder, script, *options):
        folder.mkdir()
        self.folder, self.script, self.options = folder, script, options
        self.attempt = 0

    def start(self):
        """Begin the next attempt."""
        self.attempt += 1
        self.notice = self.folder / f"notice.{self.attempt}.json"
        environment = os.environ | {
            "JUPYTER_GPU_JOB": "12",
            "JUPYTER_GPU_ATTEMPT": str(self.attempt),
            "JUPYTER_GPU_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
            "JUPYTER_GPU_NOTICE_FILE": str(self.notice),
        }
        command = [sys.executable, str(SCRIPTS / self.script), "--log", "log", "--ran", "ran", "--out", "out"]
        return subprocess.Popen(
            [*command, *self.options],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self):
        """Let an attempt come to its own end; answer its output."""
        process = self.start()
        output = process.communicate(timeout=50)[0]
        assert process.returncode == 0, output
        return output

    def stop(self, steps, *, notice=True, number=signal.SIGTERM):
        """Begin an attempt and stop it once `steps` steps have run in all; answer its exit code."""
        process = self.start()
        while len(self.read("ran")) < steps:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.01)
        if notice:
            self.notice.write_text(json.dumps({"reason": "preempted", "deadline": time.time() + 20}))
        process.send_signal(number)
        output = process.communicate(timeout=50)[0]
        return process.returncode, output

    def read(self, name):
        """Give (attempt, step) of each line of a log."""
        path = self.folder / name
        lines = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
        assert all(line["job"] == "12" for line in lines)
        return [(line["attempt"], line["step"]) for line in lines]

    def steps(self, name):
        """Give the steps alone."""
        return [step for _, step in self.read(name)]

    def sha256(self):
        """Give the digest of the result."""
        if (self.folder / "out.sha256").exists():
            return (self.folder / "out.sha256").read_text()
        return json.loads((self.folder / "out").read_text())["sha256"]


def test_digits_learns_and_gives_the_same_weights_twice(tmp_path):
    """Undisturbed, the training is deterministic, and a real one: it recognises most digits."""
    first, second = Job(tmp_path / "1", "train_digits.py"), Job(tmp_path / "2", "train_digits.py")
    output = first.run()
    assert float(output.rpartition("accuracy ")[2]) > 0.9
    second.run()
    assert first.sha256() == second.sha256()
    assert first.steps("log") == first.steps("ran") == list(range(1, 61))
    assert (first.folder / "checkpoints" / "finished.1").exists()


@pytest.mark.slow
def test_digits_stopped_twice_by_notice_runs_each_step_once_and_ends_with_the_same_weights(tmp_path):
    """Notice, save, yield, resume: nothing is repeated, nothing is lost, not a bit differs."""
    whole = Job(tmp_path / "whole", "train_digits.py")
    whole.run()
    job = Job(tmp_path / "job", "train_digits.py", "--step-seconds", "0.02")
    assert job.stop(15)[0] == 75
    assert job.stop(33)[0] == 75
    assert not list((job.folder / "checkpoints").glob("finished.*"))
    job.run()
    assert job.steps("log") == job.steps("ran") == list(range(1, 61))
    assert job.read("log") == job.read("ran")
    assert {attempt for attempt, _ in job.read("log")} == {1, 2, 3}
    assert job.sha256() == whole.sha256()


@pytest.mark.faults
def test_digits_killed_without_notice_repeats_only_what_was_not_saved(tmp_path):
    """After a kill -9 each step counts once all the same, and the weights are the same."""
    whole = Job(tmp_path / "whole", "train_digits.py", "--every", "7")
    whole.run()
    job = Job(tmp_path / "job", "train_digits.py", "--every", "7", "--step-seconds", "0.02")
    assert job.stop(25, notice=False, number=signal.SIGKILL)[0] == -signal.SIGKILL
    job.run()
    assert job.steps("log") == list(range(1, 61))
    assert 60 < len(job.steps("ran")) < 70
    assert job.sha256() == whole.sha256()


def test_a_script_that_knows_nothing_of_us_saves_on_sigterm_and_exits_with_0(tmp_path):
    """SIGTERM alone is enough: each step once, the same result."""
    whole = Job(tmp_path / "whole", "sigterm_only.py")
    whole.run()
    job = Job(tmp_path / "job", "sigterm_only.py", "--step-seconds", "0.02")
    assert job.stop(20)[0] == 0
    assert not (job.folder / "out").exists()
    job.run()
    assert job.steps("log") == job.steps("ran") == list(range(1, 61))
    assert {attempt for attempt, _ in job.read("log")} == {1, 2}
    assert job.sha256() == whole.sha256()
    assert "jupyter_gpu" not in (SCRIPTS / "sigterm_only.py").read_text().partition('"""\n')[2]


@pytest.mark.faults
def test_a_script_that_ignores_sigterm_loses_at_most_the_step_under_way(tmp_path):
    """Only SIGKILL ends it; each step counts once, and at most one was run twice."""
    whole = Job(tmp_path / "whole", "ignores_sigterm.py")
    whole.run()
    job = Job(tmp_path / "job", "ignores_sigterm.py", "--step-seconds", "0.02")
    process = job.start()
    while len(job.read("ran")) < 20:
        time.sleep(0.01)
    process.terminate()
    while len(job.read("ran")) < 25:
        time.sleep(0.01)
    assert process.poll() is None
    process.kill()
    process.communicate()
    job.run()
    assert job.steps("log") == list(range(1, 61))
    assert len(job.steps("ran")) in (60, 61)
    assert job.sha256() == whole.sha256()
