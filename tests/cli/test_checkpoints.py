"""`jupyter gpu checkpoints`: what is there is shown, what may go is shown before it goes, the newest never does."""

import json

import msgspec
import pytest

from jupyter_gpu import checkpoints
from jupyter_gpu.checkpoints import Writer
from jupyter_gpu.cli.checkpoints import FoldersDocument
from jupyter_gpu.model import EndReason, JobSpec, Kind
from tests.cli.fake import NOW, ended, workload

DAY = 86_400


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Stand in a folder of submission."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(home, step, *, days, size=1 << 20):
    """Save a checkpoint as it was done so many days ago."""
    home.mkdir(parents=True, exist_ok=True)
    with Writer(home, 1).checkpoint(step, None) as folder:
        (folder / "model").write_bytes(b"x" * size)
    marker = home / f"step-{step:012d}" / "COMPLETE"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"at": NOW - days * DAY}))


def known(gpu, folder, *, number=12, over=False, **spec):
    """Let a job of the caller's be known that was submitted from this folder."""
    spec = JobSpec(argv=("true",), folder=str(folder), **spec)
    it = ended(number, EndReason.SUCCEEDED, spec=spec) if over else workload(number, spec=spec)
    gpu.client.answers[f"workload {number}"] = msgspec.structs.replace(it, is_mine=True, kind=Kind.JOB)
    return folder / ".jupyter-gpu" / f"job-{number}"


def steps(home):
    """Give the steps that are there."""
    return sorted(int(path.name.removeprefix("step-")) for path in home.glob("step-*"))


def test_of_a_job_each_checkpoint_is_listed_with_size_and_time(gpu, here):
    """The newest complete one is named, and what is wrong with another."""
    home = known(gpu, here)
    for step, days in ((100, 3), (200, 2), (300, 1)):
        save(home, step, days=days)
    (home / "step-000000000300" / "COMPLETE").unlink()
    result = gpu("checkpoints", "12")
    assert result.code == 0
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[0] == [str(home)]
    assert lines[3][0] == "200"
    assert " ".join(lines[3]).endswith("the newest: a training resumes from it")
    assert " ".join(lines[4]).endswith("it has no COMPLETE marker")
    assert lines[-1][:2] == ["3", "checkpoints,"]


def test_without_a_number_all_jobs_and_this_folder_are_shown_one_line_each(gpu, here):
    """Also what a training outside of any job has saved here."""
    save(here / ".jupyter-gpu" / "local", 7, days=1)
    other = here / "elsewhere"
    save(known(gpu, other, over=True), 100, days=40)
    result = gpu("checkpoints", "--json")
    items = msgspec.json.decode(result.out, type=FoldersDocument).items
    found = [(it.workload, it.state, [one.step for one in it.checkpoints]) for it in items]
    assert found == [(12, "succeeded", [100]), (None, None, [7])]
    shown = gpu("checkpoints").out.splitlines()
    assert shown[1].split()[:4] == ["12", "succeeded", "1", "100"]
    assert shown[-1] == "2 checkpoints, 2MiB."


def test_nothing_goes_before_clean_is_said(gpu, here):
    """--older-than lists what may go; with --clean it is gone, and said."""
    home = known(gpu, here, over=True)
    for step, days in ((100, 60), (200, 40), (300, 1)):
        save(home, step, days=days)
    result = gpu("checkpoints", "12", "--older-than", "30d")
    assert "Say --clean as well to remove them." in result.out
    assert steps(home) == [100, 200, 300]
    result = gpu("checkpoints", "12", "--older-than", "30d", "--clean")
    assert result.out.splitlines()[-1].startswith("Removed: 2 checkpoints")
    assert steps(home) == [300]
    assert gpu("checkpoints", "--older-than", "30d", "--clean").out == "Nothing so old that may go.\n"


def test_the_newest_of_a_job_that_is_not_over_stays_however_old(gpu, here):
    """A paused job may wait for months; of one that is over all may go."""
    home = known(gpu, here)
    for step in (100, 200):
        save(home, step, days=400)
    assert gpu("checkpoints", "--older-than", "30d", "--clean").code == 0
    assert steps(home) == [200]
    known(gpu, here, over=True)
    assert gpu("checkpoints", "12", "--older-than", "30d", "--clean").code == 0
    assert steps(home) == []


def test_the_newest_of_a_folder_that_no_job_is_known_of_stays(gpu, here):
    """It may be a training outside of a job, or the job 99 of another machine that shares this disk."""
    for name in ("local", "job-99"):
        save(here / ".jupyter-gpu" / name, 1, days=400)
        save(here / ".jupyter-gpu" / name, 2, days=400)
    gpu("checkpoints", "--older-than", "30d", "--clean")
    assert [steps(here / ".jupyter-gpu" / name) for name in ("local", "job-99")] == [[2], [2]]


def test_a_folder_that_two_jobs_share_is_in_use_as_long_as_one_of_them_is(gpu, here):
    """The members of an array may save to one place."""
    shared = here / "shared"
    known(gpu, here, number=12, over=True, checkpoint_dir="shared")
    known(gpu, here, number=14, checkpoint_dir=str(shared))
    save(shared, 100, days=400)
    gpu("checkpoints", "12", "14", "--older-than", "30d", "--clean")
    assert steps(shared) == [100]


def test_what_could_not_be_removed_is_told(gpu, here, monkeypatch):
    """Another's files, or a disk that is read-only: the exit code says so, and the rest is gone."""
    home = known(gpu, here, over=True)
    for step in (100, 200):
        save(home, step, days=400)
    real = checkpoints.discard
    monkeypatch.setattr(checkpoints, "discard", lambda path: None if path.name.endswith("100") else real(path))
    result = gpu("checkpoints", "12", "--older-than", "30d", "--clean")
    assert result.code == 3
    assert "Removed: 1 checkpoint," in result.out
    assert f"1 checkpoint could not be removed whole, the first of them {home}/step-000000000100" in result.err
    assert steps(home) == [100]


def test_clean_needs_an_age(gpu):
    """All that may go is never meant by saying nothing."""
    result = gpu("checkpoints", "--clean")
    assert result.code == 2
    assert "--older-than 30d --clean" in result.err


def test_what_cannot_save_is_named(gpu):
    """A reservation, or a job of somebody else."""
    result = gpu("checkpoints", "9")
    assert result.code == 2
    assert "9 is no job of yours that could save" in result.err
