"""The console program: quick, quiet in a pipe, and never a traceback for what can be expected."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.fake import FakeClient

PROGRAM = [sys.executable, "-c", "from jupyter_gpu.cli import main; main()"]
# A lab behind the program, in a process of its own.
_LAB = """
from jupyter_gpu import cli
from jupyter_gpu.cli import base
from tests.cli.fake import FakeClient
client = FakeClient()
client.log_chunks = [b'line\\n' * 100_000]
client.part_bytes = 10_000
base.Face.connect = lambda self, start: client
cli.main()
"""
LAB = [sys.executable, "-c", _LAB]


def start(program, *args, **more):
    """Run a program with arguments."""
    words = {"capture_output": True, "text": True, "timeout": 30}
    return subprocess.run([*program, *args], check=False, **words | more)


def test_help_imports_nothing_that_it_does_not_need():
    """`--help` answers at once: neither the client nor rich nor the documents are imported for it."""
    code = "import sys; from jupyter_gpu.cli import run; run(['--help']); print(*sorted(sys.modules))"

    loaded = set(start([sys.executable, "-c", code]).stdout.split())

    assert "click" in loaded
    assert not loaded & {
        "httpx",
        "rich",
        "msgspec",
        "jupyter_gpu.model",
        "jupyter_gpu.client",
        "asyncio",
        "jupyter_core",
    }


def test_help_and_version():
    """The program introduces itself."""
    assert "Share the GPUs of a lab" in start(PROGRAM, "--help").stdout
    assert start(PROGRAM, "--version").stdout.startswith("jupyter gpu, version 0.")


def test_a_usage_error_is_2():
    """What cannot be read ends with 2, and stdout stays empty."""
    found = start(PROGRAM, "statsu")

    assert (found.returncode, found.stdout) == (2, "")
    assert "Did you mean status?" in found.stderr


@pytest.mark.parametrize("command", [("log", "12"), ("log", "12", "--raw"), ("log", "12", "--follow"), ("status",)])
def test_a_closed_pipe_is_quiet(command):
    """`| head` ends the program without a word."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        found = start(LAB, *command, capture_output=False, stdout=out, stderr=subprocess.PIPE)

    assert found.stderr == ""
    assert found.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [("log", "12"), ("status",), ("status", "--json")])
def test_a_full_disk_is_a_sentence(command):
    """What cannot be written is told, without a traceback."""
    with Path("/dev/full").open("w") as out:
        found = start(LAB, *command, capture_output=False, stdout=out, stderr=subprocess.PIPE)

    assert found.returncode == 1
    assert "No space left on device" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_poor_terminal_gets_signs_and_no_traceback():
    """Where the encoding lacks a character, it is written as its number; bars are drawn with ASCII."""
    found = start(LAB, "status", env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "COLUMNS": "80"})

    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.isascii()
    assert "######--" in found.stdout


def test_arguments_are_bytes():
    """A file name that is no UTF-8 reaches the submission, and its line can be shown."""
    found = start(LAB, "submit", "--", "echo", os.fsdecode(b"caf\xe9"))

    assert found.returncode == 0
    assert "It runs: echo $'caf\\xe9'" in found.stdout


def test_names_are_text(tmp_runtime):
    """A name that is no UTF-8 cannot travel; that is told, without a traceback and before anything is queued."""
    url = "http://127.0.0.1:9"

    found = start(PROGRAM, "--url", url, "submit", "--name", os.fsdecode(b"caf\xe9"), "--", "true")

    assert (found.returncode, found.stdout) == (2, "")
    assert "no UTF-8" in found.stderr


def test_a_broker_elsewhere_that_does_not_answer():
    """A URL where nobody listens is 8, and the sentence names it."""
    found = start(PROGRAM, "--url", "http://127.0.0.1:9", "status")

    assert (found.returncode, found.stdout) == (8, "")
    assert "http://127.0.0.1:9" in found.stderr


def test_completion_through_the_shells_protocol():
    """The shell asks by variables and gets verbs; nothing is written to stderr."""
    asked = {"_JUPYTER_GPU_COMPLETE": "bash_complete", "COMP_WORDS": "jupyter-gpu re", "COMP_CWORD": "1"}

    found = start(PROGRAM, env=os.environ | asked)

    assert found.stdout.split() == ["plain,reserve", "plain,recurring", "plain,report", "plain,release"]
    assert found.stderr == ""


def test_nothing_is_started_for_completion(tmp_runtime):
    """The Tab key never starts a broker."""
    asked = {"_JUPYTER_GPU_COMPLETE": "bash_complete", "COMP_WORDS": "jupyter-gpu show ", "COMP_CWORD": "2"}

    found = start(PROGRAM, env=os.environ | asked)

    assert (found.stdout.strip(), found.stderr) == ("", "")
    assert list(tmp_runtime.runtime_dir.iterdir()) == []


def test_a_command_takes_the_programs_place():
    """The command keeps the pid of the holder, sees only its GPUs, and its exit code is ours."""
    code = "import os; print(os.getpid(), os.environ['CUDA_VISIBLE_DEVICES']); raise SystemExit(9)"
    process = subprocess.Popen(
        [*LAB, "reserve", "--", sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, _ = process.communicate(timeout=30)

    assert out.split() == [str(process.pid), FakeClient().lab.devices[2].uuid]
    assert process.returncode == 9
