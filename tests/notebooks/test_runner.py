"""The runner of notebooks, with real kernels: parameters, results, progress, and each way in which it may end."""

from __future__ import annotations

import json
import os
import signal
import sys

import nbformat
import pytest

from jupyter_gpu.broker.engines import procs
from jupyter_gpu.broker.engines.verdict import judge
from jupyter_gpu.notebook_job import EXIT_NO_KERNEL
from jupyter_gpu.training import EXIT_DO_NOT_RETRY, EXIT_REQUEUE
from tests.notebooks.ground import Attempt, a_cell, a_run, write_notebook
from tests.stories.scene import until

VALUES = {
    "real": 0.1,
    "text": "0.1",
    "nothing": None,
    "many": [1, "two", None, 3.5],
    "nested": {"a": {"b": [True, False]}},
    "word": "résultat 😀 “curly” it's \\ \"",
    "whole": 2**60,
}
_NAMES = ", ".join(VALUES)
#: The runner, which saves within a cell each 10 seconds, at a quicker pace.
SAVES_OFTEN = "import jupyter_gpu.notebook_job as job; job.AUTOSAVE_SECONDS = 0.1; job.main()"


def test_values_arrive_as_what_they_are(tmp_path):
    """nteract/papermill#637, #84: cells that have no tags run, and no value becomes another on its way."""
    tagged = a_cell("real = text = nothing = many = nested = word = whole = 'default'", "parameters")

    it = a_run(tmp_path, "early = 1", tagged, f"import json; print(json.dumps([{_NAMES}]))", parameters=VALUES)

    assert it.process.returncode == 0, it.log
    assert json.loads(it.printed()[-1]) == list(VALUES.values())
    assert [cell.metadata.tags for cell in it.output.cells[1:3]] == [["parameters"], ["injected-parameters"]]


def test_without_a_cell_of_parameters_they_stand_on_top(tmp_path):
    """nteract/papermill#245: what the notebook sets itself comes later, as the warning says."""
    it = a_run(tmp_path, "print(alpha)", "alpha = 2", "print(alpha)", parameters={"alpha": 0.1})

    assert it.printed() == ["", "0.1\n", "", "2\n"]


def test_of_two_cells_of_parameters_the_first_counts(tmp_path):
    """The values stand below it, and above the second."""
    tagged = [a_cell("alpha = 1", "parameters"), "print(alpha)", a_cell("alpha = 3", "parameters"), "print(alpha)"]

    it = a_run(tmp_path, *tagged, parameters={"alpha": 2})

    assert [text for text in it.printed() if text] == ["2\n", "3\n"]


def test_names_of_the_folder_are_in_nobodys_way(tmp_path):
    """A user's own queue.py or papermill.py beside the notebook is not what the runner imports."""
    for name in ("queue.py", "papermill.py", "msgspec.py", "selectors.py"):
        (tmp_path / name).write_text("raise RuntimeError('taken for another')")

    it = a_run(tmp_path, "print(1)")

    assert (it.process.returncode, it.printed()) == (0, ["1\n"])


def test_each_cell_is_a_line_of_the_log_and_a_step(tmp_path):
    """The log is told by cells, and so is the progress; text and empty cells are none."""
    cells = [
        "1 + 1",
        nbformat.v4.new_markdown_cell("# text"),
        "  ",
        "import time; time.sleep(1.1)",
        "print('“é”', end='')",
    ]

    it = a_run(tmp_path, *cells, LC_ALL="C")

    assert it.log.splitlines()[-5:] == [
        "[cell 1 of 3] 1 + 1",
        "2",
        "[cell 2 of 3] import time; time.sleep(1.1)",
        "[cell 3 of 3] print('“é”', end='')",
        "“é”",
    ]
    told = [json.loads(line) for line in (tmp_path / "checkpoints" / "progress.1.jsonl").read_text().splitlines()]
    assert [(line["step"], line["of"]) for line in told] == [(0, 3), (2, 3), (3, 3)]


def test_whoever_is_killed_leaves_a_whole_notebook(tmp_path):
    """Kill -9 at any moment: what lies there was always whole, and has the cells that were finished."""
    cells = [f"print({number} * 'x' * 20000)" for number in range(200)]
    write_notebook(tmp_path / "in.ipynb", *cells)
    it = Attempt(tmp_path)

    until((tmp_path / "out.ipynb").exists, "results are there")
    while True:
        printed = it.printed()  # which raises where the file is half of one
        if sum(map(bool, printed)) >= 40:
            break
        assert it.process.poll() is None, it.log
    it.process.kill()
    it.wait()

    assert sum(map(bool, it.printed())) >= 40


def test_a_long_cell_is_saved_meanwhile(tmp_path):
    """The results of a cell that takes long are there before it ends."""
    write_notebook(tmp_path / "in.ipynb", "import time\nfor i in range(10**6): print(i, flush=True); time.sleep(0.05)")
    it = Attempt(tmp_path, program=("-c", SAVES_OFTEN))
    try:
        until(lambda: (tmp_path / "out.ipynb").exists() and it.printed()[0], "it is saved within the cell")
    finally:
        it.process.terminate()
        it.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_kernel_that_dies_is_named_with_its_signal(tmp_path, number):
    """nteract/papermill#125, jupyter/nbclient#88, nteract/papermill#776: noticed at once, results saved, not a hang."""
    write_notebook(
        tmp_path / "in.ipynb",
        "print('first')",
        "import os, time; open('pid', 'w').write(str(os.getpid()))",
        "print('third', flush=True); time.sleep(10**6)",
        "print('never')",
    )
    it = Attempt(tmp_path)
    until(lambda: "third\n" in it.log, "the third cell runs")

    os.kill(int((tmp_path / "pid").read_text()), number)

    assert it.wait(20) == 128 + number
    assert it.log.splitlines()[-1] == (
        f"The kernel died (signal {number}) in cell 3 of 4; what it had done is in out.ipynb."
    )
    assert it.printed() == ["first\n", "", "third\n", ""]
    status = [cell.metadata.papermill.status for cell in it.cells]
    assert status == ["completed", "completed", "failed", "pending"]
    end, detail = judge(it.process.returncode, None, it.log_file.read_bytes(), 0)
    assert end == "failed"
    assert f"The kernel died (signal {number}) in cell 3 of 4" in detail


def test_a_kernel_that_ends_itself_is_no_success(tmp_path):
    """Cells were left; where it was the last one, all is well."""
    for name, cells in {"middle": ["import os; os._exit(3)", "1"], "last": ["1", "exit()"]}.items():
        (tmp_path / name).mkdir()
        it = a_run(tmp_path / name, *cells)
        assert it.process.returncode == (3 if name == "middle" else 0), it.log
        assert ("The kernel ended (exit code 3) in cell 1 of 2" in it.log) == (name == "middle")


def test_a_kernel_that_does_not_start_is_its_own_kind(tmp_path):
    """nteract/papermill#776: no cell has run, and what the kernel wrote stands in the log."""
    spec = tmp_path / "kernels" / "broken"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-c", "import sys; sys.exit('no module named torch-of-mars')", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "broken", "language": "python"}))
    for kernel, said in (("broken", "died before"), ("of-mars", "No such kernel")):
        write_notebook(tmp_path / "in.ipynb", "1", kernel=kernel)
        it = Attempt(tmp_path, JUPYTER_PATH=str(tmp_path))

        assert it.wait() == EXIT_NO_KERNEL
        assert said in it.log.splitlines()[-1]
        assert it.log.splitlines()[-1].endswith("No cell has run.")
        assert "Traceback" not in it.log
        assert ("torch-of-mars" in it.log) == (kernel == "broken")


def test_the_error_of_a_cell_ends_the_log_as_plain_text(tmp_path):
    """So that the kinds of failure are told apart as with a script, and a person reads what happened."""
    it = a_run(tmp_path, "1", "raise RuntimeError('CUDA out of memory. Tried to allocate 20.00 GiB')", "print('never')")

    assert it.process.returncode == 1
    assert it.log.splitlines()[-1] == "RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB"
    assert "\x1b" not in it.log
    assert "Failed in cell 2 of 3" in it.log
    assert judge(1, None, it.log_file.read_bytes(), 0)[0] == "gpu-oom"
    assert "never" not in it.log


@pytest.mark.parametrize(
    ("words", "code"),
    [("0", 0), ("", 0), ("75", EXIT_REQUEUE), ("93", EXIT_DO_NOT_RETRY), ("3", 3), ("'why'", 1)],
)
def test_whoever_leaves_by_sys_exit_says_the_exit_code(tmp_path, words, code):
    """As in a script; no further cell runs."""
    it = a_run(tmp_path, f"import sys; sys.exit({words})", "print('never')")

    assert it.process.returncode == code
    assert "never" not in it.printed()[-1]


TRAINS = """
from jupyter_gpu import training
import time
for step in range(10**6):
    print('step', flush=True)
    if training.should_stop():
        with training.checkpoint(step + 1) as folder:
            (folder / 'weights').write_text('w')
        break
    time.sleep(0.05)
"""
CATCHES = """
import signal, sys, time
def leave(*_):
    print('child saved', flush=True); sys.exit(75)
signal.signal(signal.SIGTERM, leave)
print('ready', flush=True)
time.sleep(10**6)
"""


@pytest.mark.parametrize(
    ("cell", "begun", "saved"),
    [
        (TRAINS, "step", "checkpoints/1/weights"),
        (TRAINS + "training.yield_now()", "step", "checkpoints/1/weights"),
        ("import time\nprint('begun')\ntry: time.sleep(10**6)\nfinally: open('saved', 'w')", "begun", "saved"),
        (
            f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CATCHES!r}]); open('saved', 'w')",
            "",
            "saved",
        ),
    ],
    ids=["should_stop", "yield_now", "an interrupt", "what it runs"],
)
def test_a_notice_reaches_what_the_cell_runs(tmp_path, cell, begun, saved):
    """It saves and leaves; no further cell begins; the results are there, and the exit code asks to be requeued."""
    write_notebook(tmp_path / "in.ipynb", "print('first')", cell, "print('never')")
    it = Attempt(tmp_path)
    until(lambda: "[cell 2 of 3]" in it.log and f"{begun}\n" in it.log.partition("[cell 2 of 3]")[2], "the cell runs")
    if not begun:
        until(lambda: _waits_for_sigterm(it.process.pid), "what the cell runs is ready")

    it.process.terminate()

    assert it.wait() == EXIT_REQUEUE, it.log
    found = list(tmp_path.glob(saved)) or list(tmp_path.glob("checkpoints/*/weights"))
    assert found, sorted(tmp_path.rglob("*"))
    assert it.log.splitlines()[-1].startswith("Told to yield in cell 2 of 3;")
    assert it.printed()[0] == "first\n"
    assert it.printed()[2] == ""
    assert it.cells[2].metadata.papermill.status in ("skipped", "pending")


def _waits_for_sigterm(runner: int) -> bool:
    tree = procs.descendants(runner)
    return any(procs.catches(pid, signal.SIGTERM) for pid in tree)


def test_a_bar_of_progress_is_drawn_over_in_the_results(tmp_path):
    """nteract/papermill#765, biorack/metatlas#658: the last state in the notebook, each state in the log as it came."""
    cell = "import sys\nfor i in range(1, 200_001): sys.stdout.write(f'\\r{i}/200000 it ████')"

    it = a_run(tmp_path, cell)

    assert it.printed() == ["200000/200000 it ████"]
    assert it.log.count("\r") == 200_000
    assert (tmp_path / "out.ipynb").stat().st_size < 5000


def test_what_is_printed_without_end_is_cut_in_the_results_alone(tmp_path):
    """The log has all, within its own limit; the notebook can still be opened."""
    it = a_run(tmp_path, "for i in range(40): print('x' * 250_000)", "print('next')")

    first, second = it.printed()
    assert len(first) < 5 << 20
    assert first.endswith("the log of the job has all.\n")
    assert second == "next\n"
    assert it.log.count("x" * 250_000) == 40


def test_results_that_cannot_be_saved_end_no_cell(tmp_path):
    """A folder that is gone, a full disk: told, and only at the end of the cell it counts, in the system's words."""
    cell = """
import os, time
os.rename('results', 'away')
while 'could not save' not in open('log').read(): print('.', end='', flush=True); time.sleep(0.05)
{back}
print('end')
"""
    for back, code in (("os.rename('away', 'results')", 0), ("", 1)):
        folder = tmp_path / str(code)
        (folder / "results").mkdir(parents=True)
        write_notebook(folder / "in.ipynb", cell.format(back=back))
        it = Attempt(folder, "in.ipynb", "results/out.ipynb", program=("-c", SAVES_OFTEN))
        assert it.wait() == code, it.log
        assert "end\n" in it.log
        assert "could not save the results meanwhile" in it.log
        assert ("No such file or directory" in it.log.splitlines()[-1]) == bool(code)
        assert (folder / "results" / "out.ipynb").exists() == (not code)


def test_what_recurs_has_the_number_of_its_job_in_its_results(tmp_path):
    """No night takes the place of another."""
    write_notebook(tmp_path / "in.ipynb", "print(1)")

    it = Attempt(tmp_path, "--by-job", "--kernel", "python3", "--", "in.ipynb", "out.ipynb")

    assert it.wait() == 0
    assert nbformat.read(tmp_path / "out-12.ipynb", as_version=4).cells[0].outputs[0].text == "1\n"
    assert not (tmp_path / "out.ipynb").exists()
