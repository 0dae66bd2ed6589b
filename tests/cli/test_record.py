"""What was recorded of a job is shown, given back byte for byte, and written for other systems."""

from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.cli.export import ExportDocument
from jupyter_gpu.errors import Conflict, NotFound
from jupyter_gpu.model import (
    AttemptView,
    Dependency,
    EndReason,
    EvictionReason,
    LearntGrace,
    Member,
    Outcome,
    State,
)
from jupyter_gpu.notebooks import BY_JOB
from tests.cli.fake import HOUR, NOW, recorded_job, workload


def shown(gpu, **more) -> str:
    """What `show` writes of a job, in a wide terminal."""
    gpu.width = 200
    gpu.client.answers["workload 7"] = recorded_job(**more)
    result = gpu("show", "7")
    assert result.code == 0, result.err
    return result.out


def row(out: str, name: str) -> str:
    """The value of one row."""
    (found,) = (line.split(maxsplit=1)[1] for line in out.splitlines() if line.strip().startswith(f"{name} "))
    return found.removeprefix("after").strip()


def test_show_tells_what_was_recorded(gpu):
    """The commit and what differed from it, the Python and its packages, the system, the variables."""
    out = shown(gpu)
    assert row(out, "commit") == "0123456789ab of main, https://git.lab/lab.git"
    assert row(out, "changes") == "2 files, +3 -1 lines: `jupyter gpu show 7 --diff`"
    assert row(out, "Python") == "/venv/bin/python, 3.11.7, 182 packages"
    assert row(out, "system") == "Linux 6.1 x86_64"
    assert row(out, "variables") == "PATH, SEED"


def test_show_does_not_call_it_a_failure_that_a_job_has_left_because_it_was_told_to(gpu):
    """Its exit code is how it said so; of one that failed by itself the end is named."""
    yielded = Outcome(end=EndReason.FAILED, exit_code=75, noticed=True, detail="it yielded (exit code 75)")
    assert row(shown(gpu, outcome=yielded), "last") == "attempt  it yielded (exit code 75)"
    failed = Outcome(end=EndReason.FAILED, exit_code=1, detail="exit code 1; the log ends with: KeyError: 'a'")
    assert row(shown(gpu, outcome=failed), "last") == "attempt  failed, exit code 1; the log ends with: KeyError: 'a'"


def test_show_tells_what_the_job_was_given(gpu):
    """Parameters, a container with its mounts, its place in an array, what it comes after, which may be an array."""
    spec = {"parameters": {"lr": 0.1}, "image": "lab/torch", "mounts": ("/d:/in:ro",), "notify": ("mail",)}
    member = Member(array=6, index=2, of=3, at_most=1, parameters={"lr": "0.1"})
    after = (Dependency(workload=4, ok=True), Dependency(workload=5))
    gpu.client.answers["workload 4"] = workload(4, member=Member(array=4, index=1, of=9))
    gpu.client.errors["workload 5"] = NotFound("it is forgotten")
    out = shown(gpu, spec=spec, member=member, after=after, unmet=(4,))
    assert row(out, "parameters") == "lr=0.1"
    assert row(out, "image") == "lab/torch, with /d:/in:ro"
    assert row(out, "array") == "2 of 3 of array 6, at most 1 at once: lr=0.1"
    assert row(out, "comes") == "array 4 (must succeed), not over, job 5"
    assert row(out, "tells") == "mail"


@pytest.mark.parametrize(
    ("option", "name"), [([], "out.ipynb"), ([BY_JOB], "out-7.ipynb"), ([], "sub/out.ipynb"), ([], "/data/out.ipynb")]
)
def test_show_tells_where_the_results_of_a_notebook_are(gpu, option, name):
    """With the job's number where a calendar makes them, and seen from anywhere."""
    argv = ("python", "-m", "jupyter_gpu.notebook_job", *option, "--", "train.ipynb", "out.ipynb")
    output = name.replace("-7", "")
    out = shown(gpu, spec={"argv": argv, "recorded": {"output_notebook": output}})
    assert row(out, "results") == (name if name.startswith("/") else f"/no/such/folder/{name}")


def test_show_tells_that_nobody_could_be_told(gpu):
    """Else its owner waits for a word that does not come."""
    out = shown(gpu, untold="by chat: there is no command 'chat'")
    assert row(out, "not").split(maxsplit=1) == ["told", "by chat: there is no command 'chat', the last time"]


@pytest.mark.parametrize(
    ("stated", "seconds", "known", "said"),
    [
        (300, 300, None, "5m, as stated"),
        (None, 120, None, "2m, as usual in its queue"),
        (None, 138, LearntGrace(seconds=138, attempt=2, needed_seconds=110.0), "2m18s, learnt: attempt 2 needed 1m50s"),
        (None, 240, LearntGrace(seconds=240, attempt=1), "4m, learnt: attempt 1 was ended by force"),
        (
            None,
            200,
            LearntGrace(seconds=240, attempt=1),
            "3m20s, the longest that there is, learnt: attempt 1 was ended by force",
        ),
        (None, 400, LearntGrace(seconds=240, attempt=1), "6m40s, as usual in its queue"),
        (
            None,
            120,
            LearntGrace(seconds=0, attempt=3),
            "2m, as usual in its queue: even the longest was not enough for attempt 3",
        ),
    ],
)
def test_show_tells_how_long_its_grace_is_and_where_that_comes_from(gpu, stated, seconds, known, said):
    """Stated, the usual, or learnt from how an attempt of it left."""
    out = shown(gpu, spec={"grace_seconds": stated}, grace_seconds=seconds, learnt_grace=known)

    assert row(out, "grace") == said


def test_show_says_nothing_of_a_grace_that_the_broker_does_not_tell(gpu):
    """An older one."""
    assert not [line for line in shown(gpu).splitlines() if line.strip().startswith("grace ")]


def test_show_tells_each_attempt_with_the_work_that_was_done_again(gpu):
    """Where there was more than one; what became of each, for whom it left, and how long it was."""
    gpu.client.answers["attempts"] = (
        AttemptView(
            attempt=1,
            started_at=NOW - 2 * HOUR,
            ended_at=NOW - HOUR,
            eviction=EvictionReason.PREEMPTED,
            evicted_for=9,
        ),
        AttemptView(
            attempt=2,
            started_at=NOW - HOUR,
            ended_at=NOW - 600,
            outcome=Outcome(end=EndReason.FAILED),
            repeated_seconds=90,
        ),
        AttemptView(attempt=3, started_at=NOW - 300),
    )
    out = shown(gpu, attempt=3, state=State.ACTIVE, repeated_seconds=90.0)
    assert [line.strip() for line in out.splitlines() if line.strip()[:1].isdecimal()] == [
        "1  12:05:00  preempted for 9 after 1h",
        "2  13:05:00  failed after 50m; repeated 1m30s of work",
        "3  14:00:00  runs for 5m",
    ]
    assert "1m30s of work done again" in row(out, "so")


def test_an_older_broker_that_tells_no_attempts_is_no_fault(gpu):
    """The rest is shown."""
    gpu.client.errors["attempts"] = NotFound("there is no such page")
    assert "Attempts" not in shown(gpu, attempt=3, state=State.ACTIVE)


def test_nothing_recorded_steers_a_terminal(gpu):
    """A branch may be named anything."""
    out = shown(gpu, spec={"recorded": {"git_commit": "abc", "git_branch": "\x1b[2J\nx", "git_note": "\x07"}})
    assert "\x1b" not in out
    assert "\x07" not in out


@pytest.mark.parametrize("name", ["script", "diff", "packages"])
def test_what_was_kept_is_written_byte_for_byte(gpu, name):
    """And nothing else, so that it can be piped."""
    gpu.client.answers[f"record {name}"] = b"\xff\x00\r\nprint(1)"
    assert gpu("show", "7", f"--{name}").raw == b"\xff\x00\r\nprint(1)"
    assert gpu("show", "7", f"--{name}", "--json").code == 2


def test_what_was_not_kept_is_said(gpu):
    """By the broker's own words."""
    result = gpu("show", "7", "--diff")
    assert (result.code, result.out) == (NotFound.exit_code, "")


# -- export


@pytest.mark.parametrize(
    ("to", "word"), [("slurm", "#SBATCH --gres=gpu:2"), ("kubernetes", "kind: Job"), ("dockerfile", "CMD [")]
)
def test_export_writes_the_text(gpu, to, word):
    """To where it can be piped from, or as a document."""
    result = gpu("export", "7", "--to", to)
    assert (result.code, result.err) == (0, "")
    assert word in result.out
    document = msgspec.json.decode(gpu("export", "7", "--to", to, "--json").out, type=ExportDocument)
    assert document == ExportDocument(workload=7, to=to, text=result.out)


def test_export_takes_the_packages_that_were_kept(gpu):
    """Where they are gone that is said, and the rest is written."""
    assert "list of packages is missing" in gpu("export", "7", "--to", "dockerfile", "--packages").err
    gpu.client.answers["record packages"] = b"# of x\ntorch==2.3.1\n"
    assert "torch==2.3.1" in gpu("export", "7", "--to", "dockerfile", "--packages").out
    assert "torch" not in gpu("export", "7", "--to", "dockerfile").out
    assert gpu("export", "7", "--to", "slurm", "--packages").code == 2


def test_export_writes_no_file_over(gpu, tmp_path: Path):
    """Into a new file, and only a new one."""
    place = tmp_path / "job.sh"
    result = gpu("export", "7", "--to", "slurm", "-o", str(place))
    assert (result.code, result.out) == (0, "")
    assert place.read_text().startswith("#!/bin/bash\n")
    place.write_text("mine")
    assert gpu("export", "7", "--to", "slurm", "-o", str(place)).code == Conflict.exit_code
    assert place.read_text() == "mine"


def test_export_takes_one_job_or_the_whole_array(gpu):
    """Each of its jobs is asked for; a job of none has no array."""
    for number in (5, 6, 7):
        member = Member(array=5, index=number - 4, of=3)
        gpu.client.answers[f"workload {number}"] = recorded_job(number=number, member=member)
    assert "--array" not in gpu("export", "6", "--to", "slurm").out
    assert "#SBATCH --array=1-3" in gpu("export", "6", "--to", "slurm", "--array").out
    gpu.client.answers["workload 7"] = recorded_job()
    assert gpu("export", "7", "--to", "slurm", "--array").code == 2


def test_what_runs_nothing_is_not_exported(gpu):
    """A reservation."""
    assert gpu("export", "9", "--to", "slurm").code == 2
