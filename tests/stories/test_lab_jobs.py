"""Jobs in JupyterLab, as a person meets them who sends work and closes the page: a real server and a real browser."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from jupyter_gpu.model import Ask, Dependency, JobSpec, Kind, RecurringBody, SubmitBody, WorkloadView, unpack_bytes

from .lab import CHROMIUM, NO_CHROMIUM, STEP_MS, Lab, a_browser, a_lab_server, pictures_of
from .scene import Broker, a_broker, until

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
]

POLICY: dict[str, object] = {
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {"name": "training", "priority": 50, "kinds": ["job"], "preemptible": True},
    ],
}
#: Says how far it is for as long as a file is there, and ends well without.
REPORTS = """
import pathlib, sys, time
from jupyter_gpu.training import report
for step in range(1, 13):
    report(step, 50, loss=2.4 / step, accuracy=step / 50)
while pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
    report(12, 50, loss=0.2, accuracy=0.24)
"""
#: Prints a line whenever it is told to by a line in a pipe, so that a test decides what is printed while nobody looks.
PRINTS = """
import sys
number = 0
with open(sys.argv[1]) as told:
    for words in told:
        for _ in range(int(words)):
            number += 1
            print(f"line {number}", flush=True)
"""


class House:
    """A broker, a JupyterLab and a browser for one test."""

    def __init__(self, root: Path, stack: ExitStack, *, devices: int = 2) -> None:
        self._stack = stack
        self.root = root
        self.broker: Broker = stack.enter_context(a_broker(root / "b", devices=devices, policy=POLICY))
        self.server = stack.enter_context(a_lab_server(self.broker, root))

    def open(self, notebook: str = "") -> Lab:
        """Open Lab in a browser, with the panel."""
        lab: Lab = self._stack.enter_context(a_browser(self.server, self.broker.client, notebook=notebook))
        lab.command("gpu:open-panel")
        lab.part("device").first.wait_for()
        return lab

    def body(self, code: str, *words: str, name: str = "digits", **more: object) -> SubmitBody:
        """What asks for a job that runs some Python."""
        argv = (sys.executable, "-c", code, *words)
        spec = JobSpec(argv=argv, folder=str(self.root), environment={"PATH": "/usr/bin:/bin"})
        return SubmitBody(kind=Kind.JOB, name=name, spec=spec, ask=Ask(devices=1), **more)  # type: ignore[arg-type]

    def submit(self, code: str, *words: str, **more: object) -> WorkloadView:
        """Send it to the queue."""
        return self.broker.client.submit(self.body(code, *words, **more))  # type: ignore[arg-type]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What a test opens is closed, the last first."""
    with ExitStack() as stack:
        yield stack


def write_notebook(path: Path, *cells: nbformat.NotebookNode) -> None:
    """A notebook of Python: one that names no kernel asks for one when it is opened."""
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells), metadata=about), path)


def row(lab: Lab, what: str, id_: int) -> Locator:
    """The row of a workload, an array or a recurring job."""
    return lab.page.locator(f'[data-gpu="{what}"][data-id="{id_}"]')


def test_how_far_a_job_is_and_its_curves(tmp_path: Path, stack: ExitStack) -> None:
    """A bar that moves without a reload, and on demand a curve for each number and a line for each attempt."""
    house = House(tmp_path, stack)
    going = tmp_path / "going"
    going.touch()
    job = house.submit(REPORTS, str(going))
    lab = house.open()

    bar = row(lab, "workload", job.id).get_by_role("progressbar", name="Progress of digits")
    expect(bar).to_have_attribute("aria-valuenow", "24", timeout=STEP_MS)
    expect(bar).to_have_attribute("aria-valuetext", "step 12 of 50, 24 %")
    expect(row(lab, "workload", job.id).locator('[data-gpu="progress"]')).to_contain_text("loss 0.2 · accuracy 0.24")

    row(lab, "workload", job.id).get_by_text("Curves and attempts").click()
    curve = row(lab, "workload", job.id).locator('[data-gpu="curve"]')
    expect(curve).to_have_count(2, timeout=STEP_MS)
    expect(curve.first).to_contain_text("0.2 (0.2 to 2.4)")
    assert "L" in (curve.first.locator("svg path").get_attribute("d") or "")
    expect(row(lab, "workload", job.id).locator('[data-gpu="attempt"]')).to_contain_text("on GPU ")
    pictures_of(lab, "progress")

    going.unlink()
    lab.page.get_by_text(f"Job {job.id} (digits) ended: succeeded.").wait_for()
    assert lab.faults == []


def test_an_array_is_one_row_and_is_cancelled_as_one(tmp_path: Path, stack: ExitStack) -> None:
    """Folded, with what tells its jobs apart inside; asked first; its hundred ends are one notice."""
    house = House(tmp_path, stack)
    going = tmp_path / "going"
    going.touch()
    array = [{"lr": rate, "seed": str(seed)} for rate in ("0.1", "0.01") for seed in range(15)]
    first = house.submit(REPORTS, str(going), array=array)
    after = house.submit("", name="summary", after=(Dependency(workload=first.id, ok=True),))
    lab = house.open()

    text = row(lab, "array", first.id).locator('[data-gpu="array-text"]')
    expect(text).to_have_text("2 run, 28 wait of 30", timeout=STEP_MS)
    assert row(lab, "workload", first.id).count() == 0, "its jobs are folded"
    expect(row(lab, "workload", after.id)).to_contain_text(f"Waits for {first.id}.")
    row(lab, "workload", after.id).get_by_text("Why it waits").click()
    expect(lab.part("job-why")).to_contain_text(f"array {first.id}, of which 0 of 30 have ended", timeout=STEP_MS)
    text.click()
    expect(row(lab, "workload", first.id)).to_contain_text("lr 0.1, seed 0")
    expect(row(lab, "workload", first.id).get_by_role("progressbar")).to_have_attribute("aria-valuenow", "24")
    expect(row(lab, "workload", first.id + 29)).to_contain_text("lr 0.01, seed 14")
    pictures_of(lab, "array")

    row(lab, "array", first.id).get_by_role("button", name="Cancel all").click()
    question = lab.page.get_by_role("dialog")
    expect(question).to_contain_text("All of it ends, 2 of them while running.")
    question.get_by_role("button", name="Keep it").click()
    assert not house.broker.client.workload(first.id).end
    row(lab, "array", first.id).get_by_role("button", name="Cancel all").click()
    lab.page.get_by_role("dialog").get_by_role("button", name="Cancel all").click()
    lab.page.get_by_text(f"30 jobs of array {first.id} (digits) cancelled.").wait_for()
    row(lab, "array", first.id).wait_for(state="detached")
    ends = {house.broker.client.wait(first.id + place, timeout_seconds=60).end for place in range(30)}
    assert ends == {"cancelled"}
    expect(lab.part("ended-array")).to_contain_text("30 cancelled")
    assert lab.faults == []


def test_the_ends_of_an_array_are_one_notice(tmp_path: Path, stack: ExitStack) -> None:
    """Whatever becomes of each: nobody puts thirty notices away."""
    house = House(tmp_path, stack)
    lab = house.open()
    array = [{"code": str(int(number % 10 == 0)), "seed": str(number)} for number in range(30)]
    first = house.submit("import sys; sys.exit(int(sys.argv[1]))", "{code}", array=array)
    said = f"Array {first.id} (digits) of 30 jobs: "
    toasts = lab.page.locator(".Toastify__toast")
    toasts.get_by_text(re.compile(rf"{re.escape(said)}.*3 failed")).wait_for()
    for place in range(30):
        house.broker.client.wait(first.id + place, timeout_seconds=90)
    toasts.get_by_text(re.compile(rf"{re.escape(said)}.*27 succeeded")).wait_for()
    assert toasts.count() == 1
    assert lab.faults == []


def test_the_parameters_of_a_notebook_are_typed_as_values(tmp_path: Path, stack: ExitStack) -> None:
    """Fields with the defaults; 1.0 stays a float, "0.1" a text, and what was left empty is the notebook's own."""
    house = House(tmp_path, stack)
    cell = nbformat.v4.new_code_cell("lr = 0.1  # the step\nname = 'a'\nseed = 7", metadata={"tags": ["parameters"]})
    wrote = tmp_path / "wrote"
    says = nbformat.v4.new_code_cell(f"import json; open({str(wrote)!r}, 'w').write(json.dumps([lr, name, seed]))")
    name = 'Untitled "x" 100% a#b? 😀.ipynb'
    write_notebook(house.server.root / name, cell, says)
    lab = house.open()
    # On a busy machine a page is not idle for long, and nobody who types then may lose the rest of it to another field.
    lab.page.evaluate("() => { window.requestIdleCallback = () => 0; }")

    lab.command("gpu:submit-file", path=name)
    fields = lab.part("submit-parameter")
    expect(fields).to_have_count(3, timeout=STEP_MS)
    expect(lab.part("submit-devices")).to_be_focused(timeout=STEP_MS)
    assert fields.nth(0).get_attribute("placeholder") == "0.1"
    lab.type(fields.nth(0), "1.0")
    lab.type(fields.nth(1), '"0.1"')
    expect(lab.part("submit-parameters")).to_contain_text("text")
    pictures_of(lab, "parameters")
    lab.page.get_by_role("button", name="Send to queue").click()
    lab.part("workload").first.wait_for()
    job = int(lab.part("workload").first.get_attribute("data-id") or 0)

    assert house.broker.client.wait(job, timeout_seconds=120).end == "succeeded", house.broker.client.log(job)
    assert wrote.read_text() == '[1.0, "0.1", 7]'
    spec = house.broker.client.workload(job).spec
    assert spec is not None
    results = Path(spec.folder) / unpack_bytes(spec.recorded["output_notebook"]).decode()
    assert results.parent == house.server.root
    assert json.loads(results.read_text())["cells"]
    assert lab.faults == []


@pytest.mark.parametrize("name", ["foo bar.ipynb", "résultat 😀.ipynb", "-rf.ipynb", "é" * 122 + ".ipynb"])
def test_odd_names_go_through_the_dialog(tmp_path: Path, stack: ExitStack, name: str) -> None:
    """jupyter-server/jupyter-scheduler#353: the name is kept byte for byte, and what no cell takes is warned of."""
    house = House(tmp_path, stack, devices=1)
    cell = nbformat.v4.new_code_cell("print('“é”')")
    write_notebook(house.server.root / name, cell)
    lab = house.open()

    lab.command("gpu:submit-file", path=name)
    lab.part("submit-note").get_by_text("No cell of it is tagged").wait_for()
    lab.type(lab.part("submit-more"), "alpha=0.1")
    lab.page.get_by_role("button", name="Send to queue").click()
    notes = lab.page.get_by_role("dialog")
    expect(notes).to_contain_text("No cell of", timeout=STEP_MS)
    expect(notes).to_contain_text("uses alpha.")
    notes.get_by_role("button", name="Let it run").click()
    lab.page.locator(".Toastify__toast").get_by_text("is in queue training").wait_for()
    (it,) = house.broker.client.workloads(mine=True)
    spec = house.broker.client.workload(it.id).spec
    assert spec is not None
    assert spec.script_index is not None
    assert unpack_bytes(spec.argv[spec.script_index]).decode() == name
    assert spec.parameters == {"alpha": 0.1}
    assert lab.faults == []


def test_recurring_jobs_are_listed_only_where_there_are_any(tmp_path: Path, stack: ExitStack) -> None:
    """Made in a terminal; run once more, paused, let go, and removed after a question."""
    house = House(tmp_path, stack)
    lab = house.open()
    assert lab.part("recurring-jobs").count() == 0
    made = house.broker.client.add_recurring(
        RecurringBody(cron="30 2 * * *", timezone="Europe/Amsterdam", job=house.body("print('swept')", name="nightly"))
    )
    lab.page.reload()
    lab.page.wait_for_function("() => window.jupyterapp?.restored")
    lab.page.evaluate("() => jupyterapp.restored.then(() => null)")
    lab.command("gpu:open-panel")
    it = row(lab, "recurring", made.id)
    expect(it).to_contain_text("next", timeout=STEP_MS)
    expect(it).to_contain_text("It has not come yet.")

    it.get_by_role("button", name="Run now").click()
    until(lambda: [*house.broker.client.workloads(mine=True)], "it has led to a job")
    (job,) = house.broker.client.workloads(mine=True)
    assert house.broker.client.wait(job.id, timeout_seconds=60).end == "succeeded"
    expect(it).to_contain_text(f"job {job.id}, succeeded", timeout=STEP_MS)
    it.get_by_role("button", name="Pause").click()
    expect(it.locator('[data-gpu="recurring-state"]')).to_have_text("paused", timeout=STEP_MS)
    assert house.broker.client.recurring()[0].paused
    it.get_by_role("button", name="Let go").click()
    expect(it.locator('[data-gpu="recurring-state"]')).to_contain_text("next", timeout=STEP_MS)

    it.get_by_role("button", name="Remove").click()
    lab.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    it.wait_for(state="detached")
    assert not house.broker.client.recurring()
    assert lab.faults == []


def test_the_menu_of_a_notebook_says_where_output_is_kept(tmp_path: Path, stack: ExitStack) -> None:
    """jupyter/jupyter#83: what a page that is closed would have shown is lost, and a job's output is not."""
    house = House(tmp_path, stack)
    write_notebook(house.server.root / "a.ipynb", nbformat.v4.new_code_cell("1"))
    lab = house.open(notebook="a.ipynb")
    lab.wait_for_kernel()
    lab.part("toolbar").click()
    lab.page.get_by_role("menuitem", name="Run as GPU job: output is kept").click()
    lab.page.get_by_role("button", name="Send to queue").wait_for()
    assert lab.faults == []


def test_a_log_goes_on_where_it_was_after_the_connection_broke(tmp_path: Path, stack: ExitStack) -> None:
    """jupyterlab/jupyterlab#2833, #4237, #6545, jupyter/jupyter#83: each line that came meanwhile once."""
    house = House(tmp_path, stack)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    job = house.submit(PRINTS, str(pipe))
    tell = stack.enter_context(pipe.open("w", buffering=1))
    lab = house.open()
    lab.command("gpu:show-log", workload=job.id)
    print("10", file=tell)
    log = lab.part("log")
    log.get_by_text("line 10").wait_for()

    lab.page.context.set_offline(True)
    print("500", file=tell)
    until(lambda: b"line 510\n" in house.broker.client.log(job.id), "it was printed while nobody was there")
    expect(lab.page.locator(".jp-Gpu-logHead")).to_contain_text(re.compile("fetch|reach|answer"), timeout=STEP_MS)
    assert "line 11" not in log.inner_text()
    lab.page.context.set_offline(False)
    log.get_by_text("line 510").wait_for()
    print("5", file=tell)
    log.get_by_text("line 515").wait_for()
    assert (log.text_content() or "").split("\n")[:515] == [f"line {number}" for number in range(1, 516)]
    tell.close()
    assert house.broker.client.wait(job.id, timeout_seconds=60).end == "succeeded"
