"""The look at what a job has saved: as its user, by a process of its own, and over in seconds whatever lies there."""

import json
import os
import time
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import saved
from jupyter_gpu.checkpoints import Writer
from jupyter_gpu.model import EndReason
from tests.engines.bench import bench, scenario

USER = 65534


def spec(home, *, own=False, uid=None):
    """As much of a spec as the look needs."""
    return {
        "checkpoint_dir": str(home), "own_checkpoint_dir": own, "attempt": 1, "cgroups": [], "core_dumps": False,
        "uid": uid, "gid": uid, "groups": [],
    }  # fmt: skip


def save(home, step):
    """One complete checkpoint."""
    home.mkdir(exist_ok=True)
    with Writer(home, 1).checkpoint(step, keep=None) as draft:
        (draft / "w").write_text("x")


def look(spec, before=None, *, ran_seconds=100.0, ended_at=None):
    """What the supervisor asks at the end of an attempt of 100 seconds."""
    return saved.look(spec, before, ran_seconds=ran_seconds, ended_at=time.time() if ended_at is None else ended_at)


def fork_forbidden():
    """Stands in for os.fork."""
    raise AssertionError("no process is needed for this")


@pytest.fixture(autouse=True)
def only_local_disks(monkeypatch):
    """Whatever this machine has mounted."""
    monkeypatch.setattr(saved, "_may_wait_for_others", lambda: False)


def test_progress_is_more_than_there_was_before(tmp_path):
    """The newest complete one against the one that the attempt began with; and the mark of this attempt."""
    save(tmp_path, 5)
    found = look(spec(tmp_path))
    assert (found["finished"], found["progressed"]) == (False, True)
    assert look(spec(tmp_path), f"{tmp_path}/step-000000000005")["progressed"] is False
    (tmp_path / "finished.1").touch()
    assert look(spec(tmp_path))["finished"]


def test_what_was_not_saved_is_counted_from_the_newest_checkpoint(tmp_path):
    """From when it was complete; without a newer one than it began with, all that the attempt has worked is lost."""
    save(tmp_path, 5)
    at = json.loads((tmp_path / "step-000000000005" / "COMPLETE").read_text())["at"]
    before = f"{tmp_path}/step-000000000003"
    found = look(spec(tmp_path), before, ended_at=at + 7)
    assert (found["from_step"], found["to_step"]) == (3, 5)
    assert found["unsaved_seconds"] == pytest.approx(7)
    found = look(spec(tmp_path), f"{tmp_path}/step-000000000005", ended_at=at + 7)
    assert (found["from_step"], found["to_step"], found["unsaved_seconds"]) == (5, 5, 100.0)


@pytest.mark.parametrize(
    ("at", "unsaved"), [(0, 100.0), ("soon", 100.0), (float("nan"), 100.0), (None, 100.0), (4e9, 0.0), (-1e300, 100.0)]
)
def test_a_marker_makes_no_more_of_the_time_than_there_was(tmp_path, at, unsaved):
    """It is the user's, and clocks jump."""
    save(tmp_path, 5)
    marker = tmp_path / "step-000000000005" / "COMPLETE"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"at": at}))
    assert look(spec(tmp_path))["unsaved_seconds"] == unsaved


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_where_nothing_was_saved_no_process_is_made(tmp_path, monkeypatch, there, own):
    """So it is with most jobs; our own empty folder is taken away, the user's stays."""
    home = tmp_path / "around" / "home"
    if there:
        home.mkdir(parents=True)
    monkeypatch.setattr(os, "fork", fork_forbidden)
    nothing = {"finished": False, "progressed": False, "from_step": None, "unsaved_seconds": 100.0}
    assert look(spec(home, own=own)) == nothing
    assert home.exists() == (there and not own)


def test_a_file_system_that_may_wait_for_others_is_never_touched_by_the_supervisor(tmp_path, monkeypatch):
    """Not even to see whether the folder is empty: a user's own file system answers when it likes."""
    monkeypatch.setattr(saved, "_may_wait_for_others", lambda: True)
    monkeypatch.setattr(os, "rmdir", fork_forbidden)
    monkeypatch.setattr(os, "scandir", fork_forbidden)
    assert look(spec(tmp_path))["progressed"] is False


def test_a_look_that_does_not_end_is_ended(tmp_path, monkeypatch):
    """What it would have found is unknown, and that is told; nobody is left behind."""
    save(tmp_path, 5)
    monkeypatch.setattr(saved, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(saved, "newest_name", lambda _: time.sleep(600))
    fork, forked = os.fork, []
    monkeypatch.setattr(os, "fork", lambda: forked.append(fork()) or forked[-1])
    began = time.monotonic()
    said = look(spec(tmp_path))
    assert time.monotonic() - began < 5
    why = "its checkpoints could not be looked at in time"
    assert said == {"finished": False, "progressed": False, "from_step": None, "why": why}
    (looker,) = forked
    with pytest.raises(ChildProcessError):
        os.waitpid(looker, os.WNOHANG)


def test_a_look_for_which_there_is_no_process_is_unknown(tmp_path, monkeypatch):
    """Too many processes end no supervisor."""
    save(tmp_path, 5)

    def fail():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fail)
    assert "why" in look(spec(tmp_path))


def test_the_look_is_done_as_the_user_for_good(tmp_path, monkeypatch):
    """Real, effective and saved; and nobody of that user may trace it."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes somebody else: run the tests as root")
    said, end = os.pipe()

    def tell(_):
        status = Path("/proc/self/status").read_text().splitlines()
        lines = [line for line in status if line.startswith(("Uid", "Gid", "Groups"))]
        owner = Path("/proc/self/environ").stat().st_uid
        os.write(end, json.dumps([*(line.split()[1:] for line in lines), owner]).encode())
        return None, []

    monkeypatch.setattr(saved, "newest_name", tell)
    look(spec(tmp_path, uid=USER), None)
    *ids, owner = json.loads(os.read(said, 4096))
    os.close(said)
    os.close(end)
    assert ids == [[str(USER)] * 4, [str(USER)] * 4, []]
    assert owner == 0  # what cannot be traced is root's in /proc


@scenario
async def test_markers_that_are_slow_to_check_hold_up_no_end(tmp_path, monkeypatch):
    """Countless names behind links upon links: the outcome comes all the same, and says what it could not see."""
    monkeypatch.undo()
    async with bench(tmp_path) as it:
        home = it.work / "ready"
        deep = home / "/".join(["d"] * 200)
        deep.mkdir(parents=True)
        (home / "l").symlink_to("/".join(["d"] * 200) + "/" + "/".join([".."] * 200))
        slow = "../" + "/".join(["l"] * 30) + "/x"
        marker = {"files": {f"{slow}{number}": 0 for number in range(10_000)} | {"missing": 1}}
        for number in range(10_000):
            (home / f"x{number}").touch()
        for step in range(1, 41):
            (home / f"step-{step:012d}").mkdir()
            (home / f"step-{step:012d}" / "COMPLETE").write_text(json.dumps({"step": step, **marker}))
        outcome = await it.run("sh", "-c", "rmdir mine && mv ready mine", checkpoint_dir="mine")
        assert outcome.end is EndReason.SUCCEEDED, it.log()
        assert outcome.detail == "exit code 0; its checkpoints could not be looked at in time"
