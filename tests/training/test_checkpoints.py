"""Checkpoints: whole or absent, the newest never lost, a late attempt refused."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu import checkpoints, training
from jupyter_gpu.checkpoints import Writer, newest_complete

from . import crash

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give the checkpoint folder of attempt 1 of a job."""
    folder = tmp_path / "checkpoints"
    monkeypatch.setenv("JUPYTER_GPU_CHECKPOINT_DIR", str(folder))
    monkeypatch.setenv("JUPYTER_GPU_ATTEMPT", "1")
    monkeypatch.setattr(checkpoints, "_warned", set())
    return folder


def save(step, text="state", **options):
    """Save a checkpoint of one small file."""
    with training.checkpoint(step, **options) as folder:
        (folder / "state").write_text(text)


def folders(home):
    """Name the folders that are there."""
    return sorted(entry.name for entry in home.iterdir() if entry.is_dir())


def test_a_saved_checkpoint_is_the_latest_and_its_marker_names_step_attempt_time_and_sizes(home):
    """COMPLETE holds step, attempt, at and the size of each file, those in sub-folders included."""
    assert training.latest() is None
    with training.checkpoint(42) as folder:
        assert training.latest() is None
        (folder / "rank").mkdir()
        (folder / "rank" / "0").write_bytes(b"12345")
        (folder / "empty").touch()
    assert training.latest() == home / "step-000000000042"
    marker = json.loads((home / "step-000000000042" / "COMPLETE").read_text())
    assert marker["files"] == {"rank/0": 5, "empty": 0}
    assert (marker["step"], marker["attempt"]) == (42, 1)
    assert isinstance(marker["at"], float)


def test_step_of_gives_where_to_go_on(home):
    """The step of a checkpoint, 0 for none; another folder is a mistake that is named."""
    save(7)
    assert training.step_of(training.latest()) == 7
    assert training.step_of(None) == 0
    with pytest.raises(ValueError, match="no checkpoint folder"):
        training.step_of(home)


@pytest.mark.parametrize("step", [-1, 10**12, 1.5, "7"])
def test_a_step_is_a_whole_number_of_at_most_twelve_digits(home, step):
    """A bad step is refused before anything is written."""
    with pytest.raises((ValueError, TypeError)):
        save(step)
    assert not any(home.iterdir())


def test_without_any_environment_it_is_a_local_helper(tmp_path, monkeypatch):
    """Outside of a job checkpoints lie in ./.jupyter-gpu/local and stay out of git."""
    monkeypatch.chdir(tmp_path)
    save(3)
    assert training.latest() == tmp_path / ".jupyter-gpu" / "local" / "step-000000000003"
    assert (tmp_path / ".jupyter-gpu" / ".gitignore").read_text() == "*\n"


# --- whatever happens ---------------------------------------------------------------------------------


def _template(folder, scenario):
    """Lay out what lies there before; answer the step to save, and as which attempt."""
    home = folder / "template"
    home.mkdir(parents=True)
    for step in (10, 20):
        with Writer(home, 1).checkpoint(step, keep=None) as draft:
            crash.write(draft, "old", step)
    if scenario == "truncated":
        with Writer(home, 1).checkpoint(30, keep=None) as draft:
            crash.write(draft, "old", 30)
        os.truncate(home / "step-000000000030" / "weights", 3)
        return 30, 1
    if scenario == "same step":
        return 20, 1
    return 30, 1 if scenario == "next step" else 2


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["kill", "cut", "undo"])
@pytest.mark.parametrize("scenario", ["next step", "same step", "truncated", "next attempt"])
def test_death_at_any_file_operation_leaves_the_old_or_the_new_one(tmp_path, scenario, mode):
    """A kill or a power cut at every moment of a save: latest is whole, and the next save cleans up."""
    step, attempt = _template(tmp_path, scenario)
    command = [sys.executable, "-m", "tests.training.crash", str(tmp_path), str(step), str(attempt), mode]
    subprocess.run(command, cwd=ROOT, check=True, timeout=50)
    homes = [entry for entry in tmp_path.iterdir() if entry.name.isdecimal()]
    assert len(homes) > 40
    versions = set()
    for home in homes:
        found, _ = newest_complete(home)
        assert found is not None, home.name
        version = (found / "rank" / "0").read_text().split()[0]
        versions.add(version)
        assert training.step_of(found) == (step if version == "new" else 20), home.name
        for name, content in crash.contents(version, training.step_of(found)).items():
            assert (found / name).read_bytes() == content, home.name
    assert versions == {"old", "new"}
    for home in homes:
        with Writer(home, attempt).checkpoint(40, keep=1) as draft:
            crash.write(draft, "next", 40)
        assert folders(home) == ["step-000000000040"]
        assert not [entry for entry in home.iterdir() if entry.name.startswith(".tmp-")]


def test_half_written_checkpoints_are_skipped_and_named(home, capsys):
    """Without a marker, with half of one, a missing or truncated file: skipped, and stderr says which."""
    for step in (1, 2, 3, 4, 5):
        save(step, keep=None)
    (home / "step-000000000005" / "COMPLETE").unlink()
    (home / "step-000000000004" / "COMPLETE").write_text('{"step": 4, "fi')
    (home / "step-000000000003" / "state").unlink()
    os.truncate(home / "step-000000000002" / "state", 2)
    (home / ".tmp-step-000000000006.0.1.1.0.elsewhere").mkdir()
    assert training.latest() == home / "step-000000000001"
    told = capsys.readouterr().err
    for text in (
        "step-000000000005: it has no COMPLETE marker",
        "step-000000000004: its COMPLETE marker cannot be read",
        "step-000000000003: state is missing",
        "step-000000000002: state has 2 of 5 bytes",
        ".tmp-step-000000000006.0.1.1.0.elsewhere: its writer died",
    ):
        assert text in told
    training.latest()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "marker",
    [b"", b"null", b"[]", b'{"step": 1}', b'{"step": 1, "files": 3}', b'{"step": 2, "files": {}}', b"\xff"],
)
def test_a_damaged_marker_never_raises(home, marker):
    """Whatever bytes stand in COMPLETE, that checkpoint is only skipped."""
    save(1)
    (home / "step-000000000001" / "COMPLETE").write_bytes(marker)
    assert training.latest() is None


@pytest.mark.parametrize("name", ["COMPLETE", "../.fence"])
def test_nothing_in_the_folder_makes_a_reader_wait(home, name):
    """A pipe, a link to an endless file, or absurd JSON in place of a small file: read at once, as damage."""
    save(1)
    path = home / "step-000000000001" / name
    absurd = b"[" * 100_000, b'{"attempt": Infinity, "step": 1, "files": {"\\u0000": 1}}'
    for put in (
        lambda: os.mkfifo(path),
        lambda: path.write_bytes(absurd[0]),
        lambda: path.write_bytes(absurd[1]),
    ):
        path.unlink()
        put()
        newest_complete(home)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert (newest_complete(home)[0] is None) == (name == "COMPLETE")


def test_a_draft_under_way_is_no_half_written_checkpoint(home, capsys):
    """What a living process writes just now is neither named nor removed."""
    save(1)
    with training.checkpoint(2) as folder:
        (folder / "state").touch()
        assert training.step_of(training.latest()) == 1
        save(3)
        assert folder.exists()
    assert "half-written" not in capsys.readouterr().err


@pytest.mark.faults
@pytest.mark.parametrize("failing", ["write", "fsync", "rename", "mkdir"])
def test_a_full_disk_leaves_the_previous_one_and_says_what_to_do(home, monkeypatch, failing):
    """ENOSPC at any operation of a save: the error comes out, with a note; the previous checkpoint stays."""
    save(1)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(OSError, match="No space left") as caught:
            save(2)
    note = "".join(caught.value.__notes__)
    assert "step 2 was not saved" in note
    assert str(home / "step-000000000001") in note
    assert "keep=1" in note
    assert folders(home) == ["step-000000000001"]
    assert (training.latest() / "state").read_text() == "state"


def test_an_error_inside_the_block_saves_nothing(home):
    """The block's own error comes out unchanged, with a note, and the draft is gone."""
    with pytest.raises(RuntimeError, match="out of ideas") as caught, training.checkpoint(2):
        raise RuntimeError("out of ideas")
    assert "There is none yet" in caught.value.__notes__[0]
    assert folders(home) == []


def test_an_empty_checkpoint_is_a_mistake(home):
    """A library that writes later, in the background, would leave nothing to resume from."""
    with pytest.raises(ValueError, match="nothing was written"), training.checkpoint(1):
        pass
    assert training.latest() is None


def test_a_failed_replacement_puts_the_old_one_back(home, monkeypatch):
    """Saving a step again whose rename fails leaves the first save."""
    save(1, "first")
    rename = Path.rename

    def fail(self, target):
        if self.name.startswith(".tmp-step-"):
            raise OSError(errno.EIO, "broken")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="broken"):
            save(1, "second")
    assert (home / "step-000000000001" / "state").read_text() == "first"


def test_saving_a_step_again_replaces_it(home):
    """The last save of a step counts."""
    save(1, "first")
    save(1, "second")
    assert (training.latest() / "state").read_text() == "second"
    assert folders(home) == ["step-000000000001"]


# --- keep ---------------------------------------------------------------------------------------------


def test_the_last_two_stay_unless_told_otherwise(home):
    """keep=2 by default, 1 on demand, None keeps all; fewer than one is refused."""
    for step in (1, 2, 3):
        save(step)
    assert folders(home) == ["step-000000000002", "step-000000000003"]
    save(4, keep=None)
    save(5, keep=None)
    assert len(folders(home)) == 4
    save(6, keep=1)
    assert folders(home) == ["step-000000000006"]
    with pytest.raises(ValueError, match="keep"):
        save(7, keep=0)


def test_a_save_below_the_newest_keeps_both_and_warns(home, capsys):
    """Starting over in a full folder: nothing of the old is lost, and the way out is said."""
    save(100)
    save(10, keep=1)
    assert folders(home) == ["step-000000000010", "step-000000000100"]
    assert "use an empty folder" in capsys.readouterr().err


@given(steps=st.lists(st.integers(0, 9), min_size=1, max_size=8), keep=st.integers(1, 3))
def test_keep_never_removes_the_newest_nor_what_was_just_saved(steps, keep):
    """For any order of steps: the highest and the last saved are there, and at most one beyond `keep`."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        home = Path(name)
        for i, step in enumerate(steps):
            with Writer(home, 1).checkpoint(step, keep) as folder:
                (folder / "state").touch()
            there = folders(home)
            assert f"step-{step:012d}" in there
            assert len(there) <= keep + 1
            found, _ = newest_complete(home)
            assert training.step_of(found) == max(steps[: i + 1])


# --- attempts -----------------------------------------------------------------------------------------


def test_a_writer_of_an_earlier_attempt_is_refused(home, monkeypatch):
    """Once attempt 2 has looked for its checkpoint, attempt 1 can change nothing."""
    save(1)
    monkeypatch.setenv("JUPYTER_GPU_ATTEMPT", "2")
    assert training.step_of(training.latest()) == 1
    monkeypatch.setenv("JUPYTER_GPU_ATTEMPT", "1")
    before = sorted(home.rglob("*"))
    with pytest.raises(training.StaleAttempt, match=r"Attempt 2 .* so attempt 1 may not save there"):
        save(2)
    monkeypatch.delenv("JUPYTER_GPU_ATTEMPT")
    with pytest.raises(training.StaleAttempt, match="outside of any attempt"):
        save(2)
    assert sorted(home.rglob("*")) == before


def test_a_writer_overtaken_while_it_writes_is_refused(home, monkeypatch):
    """The fence is asked again just before the checkpoint begins to exist."""
    draft = training.checkpoint(2)
    (draft.__enter__() / "state").touch()
    Writer(home, 2).claim()
    with pytest.raises(training.StaleAttempt):
        draft.__exit__(None, None, None)
    assert folders(home) == []


def test_a_damaged_fence_does_not_stop_a_training(home):
    """An unreadable fence counts as none, and is written anew."""
    save(1)
    (home / ".fence").write_text("{")
    save(2)
    assert json.loads((home / ".fence").read_text())["attempt"] == 1


def test_the_checkpoint_to_resume_from_counts_while_there_is_no_own_one(home, tmp_path, monkeypatch, capsys):
    """JUPYTER_GPU_RESUME_FROM is where to begin; an own checkpoint is newer; a damaged one is named."""
    save(5)
    other = tmp_path / "other" / "step-000000000005"
    other.parent.mkdir()
    shutil.move(home / other.name, other)
    monkeypatch.setenv("JUPYTER_GPU_RESUME_FROM", str(other))
    assert training.latest() == other
    save(1)
    assert training.latest() == home / "step-000000000001"
    shutil.rmtree(home)
    (other / "state").unlink()
    assert training.latest() is None
    assert f"{other}: state is missing" in capsys.readouterr().err


def test_it_needs_only_the_standard_library():
    """A training pays for nothing else: no module from outside, none of ours beyond these two."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import jupyter_gpu.training;"
        "names = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names);"
        "ours = [name for name in sys.modules if name.startswith('jupyter_gpu.')];"
        "print(sorted(names - {'__main__'}), sorted(ours))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['jupyter_gpu'] ['jupyter_gpu.checkpoints', 'jupyter_gpu.training']"
