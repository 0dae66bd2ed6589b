"""The story of a result that somebody asks about later: what ran, once more with another value, and elsewhere."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.model import EndReason

from .scene import Broker, a_broker

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

POLICY: dict[str, object] = {
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {"name": "training", "priority": 50, "kinds": ["job"]},
    ]
}
TRAIN = """\
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--out")
args = parser.parse_args()
json.dump({"lr": args.lr, "text": TEXT, "seed": os.environ.get("SEED")}, open(args.out, "w"))
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A lab of one GPU."""
    with a_broker(tmp_path / "b", devices=1, policy=POLICY) as found:
        yield found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with a training, of which one line is not committed, and a token in its remote's address."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text(TRAIN.replace("TEXT", "'committed'"))
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@lab", "commit", "-q", "-m", "as it is")
    git(folder, "remote", "add", "origin", "https://ada:s3cret@git.lab/work.git")
    (folder / "train.py").write_text(TRAIN.replace("TEXT", "'edited'"))
    return folder


def git(folder: Path, *words: str) -> str:
    """Run git there."""
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_what_ran_is_told_and_runs_once_more(broker: Broker, work: Path, tmp_path: Path) -> None:
    """The file is edited before the job is submitted again: its copy runs, with the value that was given."""
    out = tmp_path / "out.json"
    command = [sys.executable, "train.py", "--lr", "0.1", "--out", str(out)]
    broker.cli("submit", "--wait", "--folder", str(work), "--env", "SEED=7", "--name", "digits", "--", *command)
    assert json.loads(out.read_text()) == {"lr": 0.1, "text": "edited", "seed": "7"}

    shown = broker.cli("show", "1")
    assert f"{git(work, 'rev-parse', 'HEAD')[:12]} of main, https://git.lab/work.git" in shown
    assert "1 file, +1 -1 lines" in shown
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in shown
    assert '+json.dump({"lr": args.lr, "text": \'edited\'' in broker.cli("show", "1", "--diff")
    assert "\nmsgspec==" in broker.cli("show", "1", "--packages")
    assert "s3cret" not in broker.cli("show", "1", "--json") + broker.cli("show", "1", "--diff")

    (work / "train.py").write_text("raise SystemExit(1)\n")
    broker.cli("again", "--wait", "1", "--lr", "0.01")
    assert json.loads(out.read_text()) == {"lr": 0.01, "text": "edited", "seed": "7"}
    second = broker.client.workload(2)
    assert (second.end, second.name, second.spec is not None and second.spec.recorded["again"]) == (
        EndReason.SUCCEEDED,
        "digits",
        "1",
    )
    assert broker.cli("show", "2", "--script") == TRAIN.replace("TEXT", "'edited'")

    # Twice with one key is once.
    for _ in range(2):
        told = json.loads(broker.cli("again", "--json", "--key", "k", "1"))
        assert told["id"] == 3

    script = broker.cli("export", "1", "--to", "slurm")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert f"# Commit {git(work, 'rev-parse', 'HEAD')} of branch main, https://git.lab/work.git." in script
    assert "export SEED=7" in script
