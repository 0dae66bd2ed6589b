"""The submitted script is a copy: an edit does not change a queued job, and the script notices nothing of it."""

import json
import sys
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines.command import argument_list
from jupyter_gpu.model import EndReason, JobSpec
from tests.engines.bench import bench, scenario

PROBE = """
import json, os, sys
def f(): pass
print(json.dumps({"which": WHICH, "argv": sys.argv, "path0": sys.path[0], "file": __file__, "name": __name__,
    "cwd": os.getcwd(), "main": sys.modules["__main__"].f is f, "left": sorted(n for n in globals() if n[0] != "_")}))
"""


def submit(it, name="train.py", text=PROBE, mode=0o644):
    """What the broker does at submission: keep a copy, away from the folder."""
    (it.work / name).parent.mkdir(exist_ok=True)
    copy = it.root / "kept" / "copy-of-it"
    copy.parent.mkdir()
    copy.write_text(text.replace("WHICH", "'copy'"))
    copy.chmod(mode)
    (it.work / name).write_text(text.replace("WHICH", "'edited since'"))
    return str(copy)


@scenario
async def test_the_copy_runs_and_sees_the_world_of_the_original(tmp_path):
    """sys.argv, sys.path[0], __file__, __main__ and the working folder are as with `python train.py`."""
    async with bench(tmp_path) as it:
        copy = submit(it)
        await it.run(sys.executable, "-u", "train.py", "--lr", "1 2", script_index=2, script_copy=copy)
        assert json.loads(it.log()) == {
            "which": "copy",
            "argv": ["train.py", "--lr", "1 2"],
            "path0": str(it.work),
            "file": str(it.work / "train.py"),
            "name": "__main__",
            "cwd": str(it.work),
            "main": True,
            "left": ["f", "json", "os", "sys"],
        }


@scenario
async def test_a_script_in_a_subfolder_still_finds_its_neighbours(tmp_path):
    """As with plain Python the script's own folder is first; the folder of submission stands behind it."""
    async with bench(tmp_path) as it:
        copy = submit(it, "scripts/train.py", "import sys, beside, above; print(sys.path[:2])")
        (it.work / "scripts" / "beside.py").write_text("")
        (it.work / "above.py").write_text("")
        await it.run(sys.executable, "scripts/train.py", script_index=1, script_copy=copy)
        assert it.log().decode().strip() == str([str(it.work / "scripts"), str(it.work)])


@scenario
async def test_a_traceback_shows_the_line_that_ran(tmp_path):
    """The failing line comes from the copy, even where the original has changed since; the name is the user's own."""
    async with bench(tmp_path) as it:
        copy = submit(it, text="1 / 0  # the line that ran: WHICH\n")
        outcome = await it.run(sys.executable, "train.py", script_index=1, script_copy=copy)
        assert outcome.exit_code == 1
        said = it.log().decode()
        assert "the line that ran: 'copy'" in said
        assert f'File "{it.work / "train.py"}", line 1, in <module>' in said
        assert said.count("File ") == 1
        assert outcome.detail == "exit code 1; the log ends with: ZeroDivisionError: division by zero"


@scenario
async def test_a_mistake_in_the_syntax_is_shown_as_the_scripts_own(tmp_path):
    """It is found before a line of it runs, and still no line of ours is in the way."""
    async with bench(tmp_path) as it:
        copy = submit(it, text="def f(:\n")
        await it.run(sys.executable, "train.py", script_index=1, script_copy=copy)
        said = it.log().decode()
        assert f'File "{it.work / "train.py"}", line 1\n' in said
        assert said.count("File ") == 1


@scenario
async def test_who_reads_the_source_of_a_function_reads_what_runs(tmp_path):
    """As compilers of kernels do: an edit since the submission must not be compiled into what runs."""
    text = "import inspect\ndef f():\n    return WHICH\nprint(inspect.getsource(f), f())\n"
    async with bench(tmp_path) as it:
        copy = submit(it, text=text)
        await it.run(sys.executable, "train.py", script_index=1, script_copy=copy)
        assert it.log().decode() == "def f():\n    return 'copy'\n copy\n"


@pytest.mark.parametrize(
    "argv", [["bash", "run.sh", "a b", "c"], ["bash", "-e", "run.sh", "a b", "c"], ["./run.sh", "a b", "c"]]
)
@scenario
async def test_a_shell_script_keeps_its_name_and_arguments(tmp_path, argv):
    """`cd "$(dirname "$0")"` is in every second script, so $0 stays the name that was given."""
    async with bench(tmp_path) as it:
        copy = submit(it, "run.sh", '#!/bin/bash\necho WHICH "$0" "$#" "$1"; exit 7\n', 0o755)
        index = next(place for place, word in enumerate(argv) if word.endswith("run.sh"))
        outcome = await it.run(*argv, script_index=index, script_copy=copy)
        assert it.log().decode() == f"copy {argv[index]} 2 a b\n"
        assert outcome.exit_code == 7


@scenario
async def test_a_script_that_is_itself_the_command_runs_by_its_first_line(tmp_path):
    """`./train.py` with `#!/usr/bin/env python` is a Python script like any other."""
    async with bench(tmp_path) as it:
        copy = submit(it, text=f"#!{sys.executable} -u\n{PROBE}", mode=0o755)
        outcome = await it.run("./train.py", "x", script_index=0, script_copy=copy)
        assert outcome.end is EndReason.SUCCEEDED, it.log()
        found = json.loads(it.log())
        assert (found["which"], found["argv"], found["path0"]) == ("copy", ["./train.py", "x"], str(it.work))


@pytest.mark.parametrize(
    ("argv", "index", "expected"),
    [
        (["python", "-m", "x"], None, ["python", "-m", "x"]),
        (["torchrun", "--nproc", "2", "t.py", "-a"], 3, ["torchrun", "--nproc", "2", "R", "/c", "/w", "t.py", "-a"]),
        (["env", "A=1", "python3.12", "t", "-a"], 3, ["env", "A=1", "python3.12", "R", "/c", "/w", "t", "-a"]),
        (["sh", "r.sh", ";rm x"], 1, ["sh", "-c", ". /c", "r.sh", ";rm x"]),
        (["python", "-m", "papermill", "a.ipynb", "o"], 3, ["python", "-m", "papermill", "/c", "o"]),
        (["Rscript", "m.R", "1"], 1, ["Rscript", "/c", "1"]),
    ],
)
def test_what_is_executed(argv, index, expected):
    """Launchers pass the words on to the Python they start; other languages simply get the copy."""
    spec = JobSpec(argv=tuple(argv), folder="/w", script_index=index, script_copy="/c" if index else None)
    assert argument_list(spec, "R", "")[0] == expected


def test_a_copy_with_an_odd_path_is_quoted():
    """The only text that we ever hand to a shell is the copy's own path, and it is quoted."""
    spec = JobSpec(argv=("sh", "r.sh"), folder="/w", script_index=1, script_copy="/a b/$(x)'y")
    assert argument_list(spec, "R", "")[0][2] == """. '/a b/$(x)'"'"'y'"""


def test_the_runner_imports_nothing_of_ours():
    """It is run by whatever Python the job uses."""
    from jupyter_gpu.broker.engines import command

    lines = Path(command.__file__).with_name("run_copy.py").read_text().splitlines()
    assert [line for line in lines if line.startswith(("import", "from"))] == [
        "import linecache",
        "import os",
        "import sys",
    ]
