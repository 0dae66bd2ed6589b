"""What lies in a user's folder is the user's: nobody waits for it, is led elsewhere by it, or drowns in it."""

import json
import os
import socket

import pytest

from jupyter_gpu import checkpoints
from jupyter_gpu.broker.engines import files, procs
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.broker.engines.spool import _first_line
from jupyter_gpu.checkpoints import Writer, newest_name
from jupyter_gpu.model import EndReason
from tests.engines.bench import attempt, bench, scenario


def first_line(path):
    """What the engine sees of a script's copy."""
    return _first_line(attempt("script", script_index=0, script_copy=str(path)))


def test_the_first_line_is_read_of_a_plain_file(tmp_path):
    """Up to the end of the line, and of a long one no more than the kernel would read."""
    copy = tmp_path / "copy"
    copy.write_bytes(b"#!/bin/sh -e\necho hi\n")
    assert first_line(copy) == "#!/bin/sh -e"
    copy.write_bytes(b"#!" + b"x" * 100_000)
    assert len(first_line(copy)) == 4096
    copy.write_bytes(b"")
    assert first_line(copy) == ""


@pytest.mark.parametrize("what", ["pipe", "link", "folder", "socket", "nothing"])
def test_anything_else_in_its_place_has_no_first_line(tmp_path, what):
    """A pipe would hold the broker for ever, a link would show root's files."""
    secret, copy = tmp_path / "secret", tmp_path / "copy"
    secret.write_text("#!secret\n")
    if what == "pipe":
        os.mkfifo(copy)
    elif what == "link":
        copy.symlink_to(secret)
    elif what == "folder":
        copy.mkdir()
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(copy))
    assert first_line(copy) == ""


@scenario
async def test_a_job_whose_copy_became_a_pipe_ends_and_holds_nobody_up(tmp_path):
    """It cannot be started as it is; the next one can."""
    async with bench(tmp_path) as it:
        os.mkfifo(tmp_path / "copy")
        outcome = await it.run("train.sh", script_index=0, script_copy=str(tmp_path / "copy"))
        assert outcome.end is EndReason.LAUNCH_FAILED
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED


def a_checkpoint(home, step, marker):
    """A folder of a checkpoint with this in its marker."""
    folder = home / f"step-{step:012d}"
    folder.mkdir(parents=True)
    (folder / "COMPLETE").write_text(marker)
    return folder


def test_a_marker_is_read_and_quoted_in_bounds(tmp_path):
    """One of many megabytes is a fault, and what stands in it is told shortly or not at all."""
    a_checkpoint(tmp_path, 1, json.dumps({"step": "x" * 1000, "files": {}}))
    a_checkpoint(tmp_path, 2, json.dumps({"step": 2, "files": {"y" * 1000: 1}}))
    a_checkpoint(tmp_path, 3, json.dumps({"step": 3, "files": {}}) + " " * (1 << 20))
    a_checkpoint(tmp_path, 4, json.dumps({"step": int("9" * 4000), "files": {}}))
    newest, skipped = newest_name(tmp_path)
    assert newest is None
    assert all(len(text) <= 200 for text in skipped)
    assert "x" not in skipped[-1]
    assert skipped[1] == "step-000000000003: its COMPLETE marker cannot be read"


def test_of_many_that_are_skipped_some_are_named_and_the_rest_is_counted(tmp_path):
    """Twenty reasons are enough for anybody."""
    for step in range(1, 31):
        (tmp_path / f"step-{step:012d}").mkdir()
    a_checkpoint(tmp_path, 31, "{")
    newest, skipped = newest_name(tmp_path)
    assert newest is None
    assert len(skipped) == 21
    assert skipped[0].startswith("step-000000000031")
    assert skipped[-1] == "and 11 more"


def test_a_folder_of_countless_names_takes_bounded_time(tmp_path, monkeypatch):
    """So many names are read, and of them the highest so many looked into."""
    monkeypatch.setattr(checkpoints, "_MOST_NAMES", 50)
    monkeypatch.setattr(checkpoints, "_MOST_LOOKED_AT", 30)
    looked_at = []
    monkeypatch.setattr(checkpoints, "fault", lambda path: looked_at.append(path) or "no")
    for step in range(70):
        (tmp_path / f"step-{step:012d}").mkdir()
    newest_name(tmp_path)
    assert len(looked_at) == 30
    assert looked_at == sorted(looked_at, reverse=True)


def test_a_checkpoint_whose_marker_nobody_would_read_is_not_saved(tmp_path, monkeypatch):
    """The writer says so at once, not the next attempt by beginning from nothing."""
    monkeypatch.setattr(checkpoints, "_LARGEST_MARKER", 200)

    def save(files):
        with Writer(tmp_path, 1).checkpoint(1, keep=None) as draft:
            for number in range(files):
                (draft / f"{number:050d}").write_text("")

    save(1)
    with pytest.raises(ValueError, match="files are too many"):
        save(10)
    assert newest_name(tmp_path)[0] == "step-000000000001"


@scenario
async def test_an_outcome_is_small_and_read_once(tmp_path, monkeypatch):
    """However much a job leaves to be told; while something of it lives, what has not changed is not read again."""
    async with bench(tmp_path) as it:
        a_checkpoint(it.work / "mine", 1, json.dumps({"step": "x" * 900_000}))
        await it.hand_over(
            "bash", "-c", "(trap '' TERM; while :; do sleep 0.05; done) & echo pid 1; exit 3",
            checkpoint_dir="mine", leftover_seconds=600,
        )  # fmt: skip
        await it.sighting(Stage.EXITED)
        outcome = it.engine.folder_of(1, 1) / "outcome.json"
        assert outcome.stat().st_size < 10_000
        reads = []
        slurp = procs.slurp
        monkeypatch.setattr(procs, "slurp", lambda path, *more: reads.append(path) or slurp(path, *more))
        for _ in range(3):
            for entry in it.engine._entries.values():
                it.engine._settle(entry)
        assert str(outcome) not in reads


def test_what_is_read_whole_is_bounded_and_linear(tmp_path):
    """A file beyond its bound is an error, an outcome beyond its bound is none."""
    (tmp_path / "big").write_bytes(b"x" * 100_000)
    assert procs.slurp(str(tmp_path / "big")) == b"x" * 100_000
    with pytest.raises(OSError, match="File too large"):
        procs.slurp(str(tmp_path / "big"), 50_000)
    (tmp_path / "outcome.json").write_text(json.dumps({"end": "succeeded", "detail": "x" * (2 << 20)}))
    assert files.read(str(tmp_path / "outcome.json")) is None
