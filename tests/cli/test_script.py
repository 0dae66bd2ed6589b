"""From a command line to what a job runs: the arguments exactly, the script found, slips told at once."""

import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.cli.script import MOST_SCRIPT_BYTES, make_command, script_index
from jupyter_gpu.cli.text import command_line, unpacked
from jupyter_gpu.errors import InvalidAsk

ENVIRON = {"PATH": os.environ["PATH"]}

# What the operating system can put into one argument: any bytes but zero.
words = st.lists(st.binary(max_size=12).map(lambda raw: os.fsdecode(raw.replace(b"\0", b"-"))), max_size=5)


@pytest.fixture
def folder(tmp_path):
    """Give a folder with a script of each kind."""
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "two words.py").write_text("print(2)\n")
    for name, text in (("train.sh", "#!/bin/sh\necho 1\n"), ("binary", "\x7fELF"), ("noexec.sh", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
    for name in ("train.sh", "binary"):
        (tmp_path / name).chmod(0o755)
    return tmp_path


def make(*argv, folder, **more):
    """Read a command line there."""
    return make_command(argv, folder=str(folder), environ=ENVIRON, **more)


@given(words)
def test_the_job_gets_exactly_the_words_that_were_given(rest):
    """Arguments with blanks, quotes, line ends or bytes that are no UTF-8 arrive as they were (Nukesor/pueue#182)."""
    argv = ("true", *rest)

    spec = make_command(argv, folder="/", environ=ENVIRON).spec

    assert tuple(unpacked(word) for word in spec.argv) == argv


@given(words)
def test_what_is_shown_can_be_pasted_back(rest):
    """A shell that reads the shown line gets the same words, byte for byte (Nukesor/pueue#182)."""
    argv = ["printf", "%s\\0", *rest]

    shown = command_line(argv)
    pasted = subprocess.run(["bash", "-c", shown], capture_output=True, check=True, env={"LC_ALL": "C"}).stdout

    assert shown.isprintable()
    assert pasted == (b"".join(os.fsencode(word) + b"\0" for word in rest) or b"\0")


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        ("python train.py", 1),
        ("python3.11 train.py --lr 1", 1),
        (f"{sys.executable} train.py", 1),
        ("python -u -W ignore -X dev train.py", 6),
        ("python -Wignore -Xdev train.py", 3),
        ("python -OO -- train.py", 3),
        ("python -m train.py", None),
        ("python -um train.py", None),
        ("python -c train.py", None),
        ("python -", None),
        ("python", None),
        ("python gone.py", None),
        ("python .", None),
        ("bash train.sh", 1),
        ("bash -eux -o pipefail train.sh", 4),
        ("bash -c train.sh", None),
        ("sh -ec train.sh", None),
        ("./train.sh", 0),
        ("./binary", None),
        ("env A=1 B=2 python train.py", 4),
        ("nohup python train.py", 2),
        ("torchrun --nproc_per_node 2 train.py", 3),
        ("torchrun -m pkg.train train.py", None),
        ("accelerate launch --multi_gpu train.py", 3),
        ("cat train.py", None),
        ("black ./train.py", None),
    ],
)
def test_the_script_is_found(folder, argv, place):
    """The file that is run is copied; modules, text for a shell and files that are only read are not."""
    assert script_index(argv.split(), str(folder)) == place


def test_the_content_is_sent_as_it_is_now(folder):
    """The file's content goes along, so that an edit does not change a queued job."""
    command = make("python3", "train.py", folder=folder)
    (folder / "train.py").write_text("changed")

    assert command.spec.script_index == 1
    assert command.script.name == "train.py"
    assert command.script.content == b"print(1)\n"


def test_a_huge_script_stays_where_it_is(folder):
    """Over 16 MiB nothing is copied, and the one who submits is told what that means."""
    with (folder / "train.py").open("wb") as file:
        file.truncate(MOST_SCRIPT_BYTES + 1)

    command = make("python3", "train.py", folder=folder)

    assert command.script is None
    assert command.spec.script_index is None
    assert "an edit before the job starts changes what it runs" in command.notes[0]


def test_a_folder_may_have_any_name(tmp_path):
    """A folder whose name is no UTF-8 is packed and comes back byte for byte."""
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()

    spec = make("true", folder=odd).spec

    assert os.fsencode(unpacked(spec.folder)) == os.fsencode(odd)


def test_the_current_folder_is_where_it_runs(folder, monkeypatch):
    """Without --folder the job runs where it was submitted."""
    monkeypatch.chdir(folder)

    assert make_command(["true"], environ=ENVIRON).spec.folder == str(folder)


def test_a_folder_that_was_removed_is_a_sentence(tmp_path, monkeypatch):
    """Whoever stands in a removed folder is told so."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    shutil.rmtree(gone)

    with pytest.raises(InvalidAsk, match="does not exist any more"):
        make_command(["true"], environ=ENVIRON)


@pytest.mark.parametrize(
    ("argv", "said", "hint"),
    [
        (["pyhton", "train.py"], "no command 'pyhton' on your PATH", "spelling"),
        (["train.py"], "no command 'train.py'", "python train.py"),
        (["python a.py && python b.py"], "no command", "--shell"),
        (["./gone.sh"], "no file './gone.sh'", "as you would"),
        (["./noexec.sh"], "may not be executed", "chmod"),
        (["python3", "gone.py"], "no file 'gone.py'", "spelling"),
        (["env", "A=1", "python3", "-u", "-W", "ignore", "gone.py", "--lr", "1"], "no file 'gone.py'", "spelling"),
        (["bash", "./gone.sh"], "no file './gone.sh'", "spelling"),
        (["bash", "-e", "gone.sh"], "no file 'gone.sh'", "spelling"),
        ([""], "is empty", "what to run"),
    ],
)
def test_a_slip_is_told_now(folder, argv, said, hint):
    """What could not start is refused while somebody is there to read why."""
    with pytest.raises(InvalidAsk, match=said) as caught:
        make(*argv, folder=folder)

    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "argv",
    [
        ["python3", "-m", "gone"],
        ["python3", "-c", "print(1)"],
        ["python3", "."],
        ["python3", "--version"],
        ["bash", "-c", "gone.sh"],
        ["bash", "env"],
        ["cat", "gone.py"],
    ],
)
def test_what_may_be_found_is_not_refused(folder, argv):
    """Only where it is certain that a word is a script, and that nobody will find it, is it refused."""
    assert make(*argv, folder=folder).spec.argv == tuple(argv)


def test_the_path_goes_along_and_secrets_do_not(folder):
    """The job finds the same programs; what nobody named stays here, what was named goes along."""
    environ = ENVIRON | {"WANDB_API_KEY": "s3cret", "MINE": "1", "LANG": "C.UTF-8"}

    command = make_command(["true"], folder=str(folder), environ=environ, wanted=["MINE", "B=x=y"])

    assert command.spec.environment == ENVIRON | {"LANG": "C.UTF-8", "MINE": "1", "B": "x=y"}
    assert command.given == ()
    named = make_command(["true"], folder=str(folder), environ=environ, wanted=["WANDB_API_KEY"])
    assert named.spec.environment["WANDB_API_KEY"] == "s3cret"
    assert named.given == ("WANDB_API_KEY",)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("=x", "has no name"),
        ("", "has no name"),
        ("GONE", "is not set here"),
        ("CUDA_VISIBLE_DEVICES=0", "set anew for each attempt"),
        ("JUPYTER_GPU_JOB=1", "set anew for each attempt"),
    ],
)
def test_an_environment_entry_that_cannot_be_meant_is_refused(folder, entry, said):
    """What would be dropped or is missing is told."""
    with pytest.raises(InvalidAsk, match=said):
        make("true", folder=folder, wanted=[entry])
