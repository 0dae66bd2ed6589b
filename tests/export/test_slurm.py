"""A batch script for Slurm does there what the job did here: its own sbatch takes it, and every byte arrives."""

import os
import re
import shlex
from pathlib import Path

import pytest

from jupyter_gpu.export import slurm
from jupyter_gpu.model import Ask, Dependency, pack_bytes

from .ground import HOSTILE, a_job, an_array, run, teller, told, work
from .slurm_ground import Slurm, a_slurm, needs_slurm

#: A stand-in of srun, which starts the command with the words and variables that it was given.
SRUN = '#!/bin/bash\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"\n'


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with the commands of Slurm that a script calls."""
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", SRUN), ("scontrol", f'#!/bin/bash\necho "$@" >> {shlex.quote(str(tmp_path))}/asked\n')):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def play(text: str, beside: Path, **environ: str):
    """Run a script with bash, as a node of Slurm does."""
    (beside / "job.sh").write_text(text)
    own = {"PATH": f"{beside / 'bin'}:/usr/bin:/bin", "SLURM_JOB_ID": "7", **environ}
    return run(["/bin/bash", "job.sh"], beside, own)


def options(text: str) -> list[str]:
    """What a script asks Slurm for."""
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def test_it_asks_for_what_the_job_asked_for():
    """GPUs, time, processors, memory; the word to yield, so many seconds before the end, and to be requeued."""
    assert options(slurm(work(a_job("python", "train.py", grace_seconds=300)))) == [
        "--job-name=digits-12",
        "--nodes=1",
        "--ntasks=1",
        "--gres=gpu:2",
        "--cpus-per-task=4",
        "--mem=16384M",
        "--time=0-08:00:00",
        "--signal=TERM@300",
        "--requeue",
        "--open-mode=append",
        "--export=NONE",
    ]
    assert "--gres=gpu:0" not in slurm(work(a_job("true", ask=Ask(devices=0))))


def test_an_array_is_one_with_its_bound():
    """The numbers are those of its jobs, and so many run at once."""
    assert "--array=1-5%2" in options(slurm(work(*an_array(5, "true", at_most=2))))
    assert "--array=1-3" in options(slurm(work(*an_array(3, "true"))))
    assert not any(line.startswith("--array") for line in options(slurm(work(an_array(3, "true")[1]))))


@pytest.mark.parametrize("word", HOSTILE)
def test_every_word_arrives_as_it_was(beside, word):
    """Whatever a shell would make of it: the script is run and the words are compared, byte for byte."""
    done = play(slurm(work(a_job(*teller(beside), word, "end", folder=str(beside)))), beside)
    assert done.returncode == 0, done.stderr
    assert told(done.stdout).words == [word.encode(), b"end"]
    assert not (beside / "sprung").exists()


def test_bytes_that_are_no_text_arrive_too(beside):
    """In words, variables and the name of the folder; the script itself stays readable."""
    odd = os.fsencode(beside) + b"/caf\xe9 'x\n"
    Path(os.fsdecode(odd)).mkdir()
    text = slurm(
        work(
            a_job(
                *teller(beside),
                b"\xff\xfe",
                folder=pack_bytes(odd),
                environment={"WHERE": "base64:/w=="},
            )
        )
    )
    text.encode("utf-8")
    found = told(play(text, beside).stdout)
    assert (found.words, found.folder, found.variables[b"WHERE"]) == ([b"\xff\xfe"], odd, b"\xff")


@pytest.mark.parametrize("value", HOSTILE)
def test_every_variable_arrives_as_it_was(beside, value):
    """Also under a name that a shell cannot set, or may not."""
    names = dict.fromkeys(("MINE", "odd.name", "UID", "RANDOM", "command"), value)
    found = told(play(slurm(work(a_job(*teller(beside), folder=str(beside), environment=names))), beside).stdout)
    assert {name: found.variables[name.encode()] for name in names} == dict.fromkeys(names, value.encode())


def test_no_variable_of_a_job_splits_its_words(beside):
    """A shell takes words apart where IFS says so, bytes of others in the middle among them."""
    names = {"IFS": b"\xff\xfe\x80$="}
    job = a_job(
        *teller(beside),
        "a=b",
        "$x",
        "\u202e",
        b"\xc3\xa9\xff",
        folder=str(beside),
        environment={"IFS": pack_bytes(names["IFS"])},
    )
    found = told(play(slurm(work(job)), beside).stdout)
    assert found.words == [b"a=b", b"$x", "\u202e".encode(), b"\xc3\xa9\xff"]
    assert found.variables[b"IFS"] == names["IFS"]


def test_the_jobs_of_an_array_run_their_own_commands(beside):
    """Each with its words, its parameters and its place; a number that is none of them runs nothing."""
    text = slurm(work(*an_array(3, *teller(beside), "--lr={index}", "$(x)", folder=str(beside))))
    for index in (1, 3):
        found = told(play(text, beside, SLURM_ARRAY_TASK_ID=str(index)).stdout)
        assert found.words == [f"--lr={index}".encode(), b"$(x)"]
        assert found.variables[b"JUPYTER_GPU_PARAMETERS"] == b'{"lr": %d}' % index
        assert found.variables[b"JUPYTER_GPU_ARRAY_INDEX"] == str(index).encode()


def test_checkpoints_stay_at_one_place_over_all_attempts(beside):
    """A requeued job of Slurm keeps its number; a folder that was asked for stays that one."""
    own = told(play(slurm(work(a_job(*teller(beside), folder=str(beside)))), beside, SLURM_RESTART_COUNT="2").stdout)
    assert own.variables[b"JUPYTER_GPU_CHECKPOINT_DIR"] == os.fsencode(beside) + b"/.jupyter-gpu/slurm-7"
    assert own.variables[b"JUPYTER_GPU_ATTEMPT"] == b"3"
    text = slurm(work(a_job(*teller(beside), folder=str(beside), checkpoint_dir="c k")))
    assert told(play(text, beside).stdout).variables[b"JUPYTER_GPU_CHECKPOINT_DIR"] == os.fsencode(beside) + b"/c k"


@pytest.mark.parametrize(
    ("code", "restarts", "retries", "again"),
    [
        (0, 0, 2, False),
        (1, 0, 2, True),
        (1, 2, 2, False),
        (1, 0, None, False),
        (75, 9, None, True),
        (75, 9, 2, True),
        (93, 0, 2, False),
    ],
)
def test_what_failed_is_tried_again_as_often_as_here(beside, code, restarts, retries, again):
    """And what asks for it by its exit code (75) always; the script ends with the command's own code."""
    text = slurm(work(a_job("sh", "-c", f"exit {code}", folder=str(beside), retries=retries)))
    done = play(text, beside, SLURM_RESTART_COUNT=str(restarts))
    assert done.returncode == code
    assert (beside / "asked").exists() == again
    if again:
        assert (beside / "asked").read_text() == "requeue 7\n"


def test_a_secret_is_passed_on_and_not_written_down():
    """Slurm takes it out of the surroundings of sbatch."""
    text = slurm(work(a_job("true", environment={"WANDB_API_KEY": "s3cret", "SEED": "1"})))
    assert "s3cret" not in text
    assert "--export=WANDB_API_KEY" in options(text)


def test_a_container_is_one_of_apptainer(beside):
    """With the GPUs, the folder and what was mounted."""
    (beside / "bin" / "apptainer").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    (beside / "bin" / "apptainer").chmod(0o755)
    text = slurm(work(a_job("python", "a b", folder=str(beside), image="lab/torch:2", mounts=("/data:/in:ro",))))
    assert play(text, beside).stdout.splitlines() == [
        *("exec", "--nv", "--bind", str(beside), "--pwd", str(beside), "--bind", "/data:/in:ro"),
        *("docker://lab/torch:2", "python", "a b"),
    ]


def test_its_head_says_where_it_is_from_and_no_name_gets_out_of_its_comment():
    """The commit, what it came after, and how to see the rest."""
    it = a_job(
        "python",
        "train.py",
        name="x\nrm -rf /\n#SBATCH --uid=0",
        script_index=1,
        after=(Dependency(workload=11, ok=True),),
        ask=Ask(devices=1, device_class="a\nb", memory_bytes=1 << 30, min_free_bytes=1 << 30),
        recorded={"git_commit": "abc", "git_branch": "m\nx", "git_dirty": "1 file, +1 -0 lines"},
    )
    text = slurm(work(it))
    head = text[: text.index("#SBATCH --nodes")]
    assert all(line.startswith("#") for line in head.splitlines())
    assert "# Commit abc of branch m\\nx." in head
    assert "`jupyter gpu show 12 --diff`" in head
    assert "# Submit it with: sbatch --dependency=afterok:ID_OF_11" in head
    assert options(text)[0] == "--job-name=x-rm-rf-sbatch-uid-0-12"


def test_what_bash_reads_is_whole():
    """For jobs of every kind here: nothing is left open."""
    for it in (work(a_job(*HOSTILE)), work(*an_array(3, *HOSTILE)), work(a_job("x", image="y", retries=3))):
        done = run(["/bin/bash", "-n", "-c", slurm(it)], Path("/"), {})
        assert (done.returncode, done.stderr) == (0, "")


# -- the real Slurm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A small Slurm of this machine, with GPUs that are none."""
    with a_slurm() as it:
        yield it


@needs_slurm
def test_sbatch_takes_it(cluster: Slurm, tmp_path):
    """By Slurm's own check, which submits nothing: plain, of an array, in a container, with a secret."""
    for it in (
        work(a_job("python", "train.py", retries=2, grace_seconds=30)),
        work(*an_array(4, "true", "{index}", at_most=2)),
        work(a_job("true", image="lab/torch:2", name="Größe \n x", ask=Ask(devices=0))),
        work(a_job(*HOSTILE, environment={"HF_TOKEN": "s", "A_TOKEN": "s"})),
    ):
        done = cluster.sbatch(slurm(it), "--test-only")
        assert done.returncode == 0, done.stderr
        assert re.search(r"to start at \S+ using \d+ processors", done.stderr)


@needs_slurm
@pytest.mark.slow
def test_slurm_runs_it_with_every_byte_and_its_gpus(cluster: Slurm, tmp_path):
    """Words and variables arrive, the GPUs are there, and of sbatch's own surroundings what was passed on."""
    out = tmp_path / "out"
    tell = ["sh", "-c", 'exec "$@" > out', "sh", *teller(tmp_path)]
    ask = Ask(devices=2, duration_seconds=600, cpus=1, host_memory_bytes=100 << 20)
    secret = {"MINE": "a\n$b", "HF_TOKEN": "s3cret"}
    job = a_job(*tell, *HOSTILE, folder=str(tmp_path), environment=secret, ask=ask)
    done = cluster.sbatch(slurm(work(job)), "--wait", HF_TOKEN="of-the-shell", OTHER="x")
    assert done.returncode == 0, done.stderr
    found = told(out.read_text())
    assert found.words == [word.encode() for word in HOSTILE]
    assert (found.variables[b"MINE"], found.variables[b"HF_TOKEN"]) == (b"a\n$b", b"of-the-shell")
    assert b"OTHER" not in found.variables
    assert found.variables[b"CUDA_VISIBLE_DEVICES"] == b"0,1"
