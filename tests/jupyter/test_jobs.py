"""A script or notebook of the file browser as a job: by the right program, byte for byte, and never hanging."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import nbformat
import pytest
from jupyter_server.services.contents.filemanager import AsyncFileContentsManager, FileContentsManager
from jupyter_server.services.contents.manager import ContentsManager

from jupyter_gpu.cli import script
from jupyter_gpu.cli.script import MOST_SCRIPT_BYTES
from jupyter_gpu.client import AsyncClient
from jupyter_gpu.errors import InvalidAsk, LimitExceeded, NotFound
from jupyter_gpu.jupyter.documents import FileJob
from jupyter_gpu.jupyter.jobs import submit_file
from jupyter_gpu.model import Kind, State, WorkloadView, unpack_bytes
from jupyter_gpu.notebooks import Names
from tests.stories.scene import a_broker, until

#: jupyter-server/jupyter-scheduler#353, and what papermill itself would fill in.
ODD_NAMES = [
    "foo bar.ipynb",
    'Untitled "x".ipynb',
    "résultat 😀.ipynb",
    "100% done.ipynb",
    "a#b?.ipynb",
    "-rf.ipynb",
    "{x} {}.ipynb",
    "“curly” $HOME `id` \\n.ipynb",
    "x" * 244 + ".ipynb",
    "é" * 122 + ".ipynb",
]


class Asked:
    """A client that keeps what it is asked."""

    def __init__(self):
        self.bodies = []

    async def submit(self, body, _key=None, *, keep=()):
        self.kept = keep
        self.bodies.append(body)
        return WorkloadView(
            id=1, kind=Kind.JOB, state=State.QUEUED, owner="ada", team="lab", queue="training", name=body.name,
            ask=body.ask, submitted_at=0.0, priority=0,
        )  # fmt: skip


def a_notebook(*cells: str, kernel: str | None = "python3") -> str:
    """The text of a notebook."""
    metadata = {} if kernel is None else {"kernelspec": {"name": kernel, "display_name": kernel}}
    return nbformat.writes(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(it) for it in cells], metadata=metadata)
    )


def sent(folder: Path, manager: type[ContentsManager] = AsyncFileContentsManager, **words: object):
    """What a file of a folder is submitted as."""
    client = Asked()
    contents = manager(root_dir=str(folder))
    asyncio.run(submit_file(FileJob(**words), contents, client))
    return client.bodies[0]


def words_of(body) -> list[str]:
    """The command of a job."""
    return [unpack_bytes(word).decode() for word in body.spec.argv]


@pytest.mark.parametrize("manager", [FileContentsManager, AsyncFileContentsManager])
def test_a_script_runs_by_the_python_of_the_server(tmp_path, manager):
    """In its own folder, with its arguments as they are, and copied, so that an edit does not change it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text("print(1)")

    body = sent(tmp_path, manager, path="sub/train.py", arguments=("--lr", "0.1 '$x'"), devices=0, queue="deferred")

    assert words_of(body) == [sys.executable, "train.py", "--lr", "0.1 '$x'"]
    assert body.spec.folder == str(tmp_path / "sub")
    assert (body.script.content, body.spec.script_index, body.name) == (b"print(1)", 1, "train.py")
    assert (body.ask.devices, body.queue) == (0, "deferred")


def test_what_a_file_depends_on_is_written_down(tmp_path):
    """As of what is submitted from a terminal: the repository, and the packages of the Python that runs it."""
    (tmp_path / "train.py").write_text("print(1)")
    subprocess.run(["git", "init", "-q", "-b", "mine", str(tmp_path)], check=True)

    body = sent(tmp_path, path="train.py")

    assert body.spec.recorded["git_branch"] == "mine"
    assert body.spec.recorded["python"] == sys.executable
    assert [it.name for it in body.record] == ["diff", "packages"]


def test_a_shell_script_runs_by_bash(tmp_path):
    """Executable or not."""
    (tmp_path / "-go.sh").write_text("true")

    assert words_of(sent(tmp_path, path="-go.sh")) == ["bash", "./-go.sh"]


def test_a_notebook_runs_into_a_new_one(tmp_path):
    """Beside it, saved as it goes; the notebook is copied as a script is, and no module of the folder is in the way."""
    (tmp_path / "a.ipynb").write_text(a_notebook("1"))

    body = sent(tmp_path, path="a.ipynb", name="mine")

    words = words_of(body)
    assert words[:-2] == [sys.executable, "-P", "-m", "jupyter_gpu.notebook_job", "--kernel", "python3", "--"]
    assert words[-2:] == ["a.ipynb", body.spec.recorded["output_notebook"]]
    assert words[body.spec.script_index] == "a.ipynb"
    assert body.script.content == (tmp_path / "a.ipynb").read_bytes()
    assert (body.name, body.spec.folder) == ("mine", str(tmp_path))


def test_a_notebook_that_names_no_kernel_gets_pythons(tmp_path):
    """As JupyterLab's own new notebooks before they are saved once."""
    (tmp_path / "a.ipynb").write_text(a_notebook("1", kernel=None))

    words = words_of(sent(tmp_path, path="a.ipynb"))

    assert words[words.index("--kernel") + 1] == "python3"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.ipynb", a_notebook("1", kernel="ir-of-mars"), "ir-of-mars"),
        ("a.ipynb", "{", "no notebook"),
        ("a.ipynb", '{"worksheets": []}', "no notebook"),
        ("a.ipynb", '{"cells": [], "metadata": {"kernelspec": {"name": 3}}}', "no notebook"),
        ("a.ipynb", '{"cells": [], "metadata": {"kernelspec": "x"}}', "no notebook"),
        ("a.ipynb", '{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}", "no notebook"),
        ("a.txt", "", "neither"),
        ("a", "", "neither"),
    ],
)
def test_what_could_not_run_is_refused_now(tmp_path, name, content, said):
    """Not at night: another kernel, no notebook, no script."""
    (tmp_path / name).write_text(content)

    with pytest.raises(InvalidAsk, match=said) as found:
        sent(tmp_path, path=name)
    assert found.value.hint


@pytest.mark.parametrize("named", ["null", "{}", '{"name": null}', '{"name": ""}'])
def test_no_kernel_is_named_in_many_ways(tmp_path, named):
    """All of them are no reason to refuse it."""
    (tmp_path / "a.ipynb").write_text(f'{{"cells": [], "metadata": {{"kernelspec": {named}}}}}')

    words = words_of(sent(tmp_path, path="a.ipynb"))

    assert words[words.index("--kernel") + 1] == "python3"


def test_a_notebook_that_is_too_large_is_not_read_whole(tmp_path):
    """A hole of 3 GB costs nobody's memory, and the answer says how large one may be."""
    with (tmp_path / "a.ipynb").open("wb") as file:
        file.truncate(3 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match="16MiB"):
            sent(tmp_path, path="a.ipynb")
        assert tracemalloc.get_traced_memory()[1] < 3 * MOST_SCRIPT_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.ipynb", "a.py", "a.sh"])
def test_what_became_a_fifo_keeps_nobody(tmp_path, monkeypatch, name):
    """A file that is swapped after the look at it: nobody ever writes to it, and no thread waits for that."""
    os.mkfifo(tmp_path / name)
    monkeypatch.setattr(AsyncFileContentsManager, "file_exists", lambda *_: True)
    monkeypatch.setattr(script, "_is_file", lambda *_: True)

    with pytest.raises(InvalidAsk, match="no plain file"):
        sent(tmp_path, path=name)


def test_the_same_key_makes_the_same_command(tmp_path):
    """Whenever it is sent again; another key makes another notebook, and none is a plain time."""
    (tmp_path / "a.ipynb").write_text(a_notebook("1"))
    client, contents = Asked(), AsyncFileContentsManager(root_dir=str(tmp_path))

    for key in ("one", "one", "two", None):
        asyncio.run(submit_file(FileJob(path="a.ipynb"), contents, client, key=key))

    outputs = [body.spec.recorded["output_notebook"] for body in client.bodies]
    assert outputs[:2] == [f"a-{hashlib.sha256(b'one').hexdigest()[:8]}.ipynb"] * 2
    assert client.bodies[0] == client.bodies[1]
    assert len(set(outputs)) == 3


def test_a_notebook_takes_no_arguments(tmp_path):
    """They would go nowhere."""
    (tmp_path / "a.ipynb").write_text(a_notebook("1"))

    with pytest.raises(InvalidAsk, match="arguments"):
        sent(tmp_path, path="a.ipynb", arguments=("x",))


@pytest.mark.parametrize(
    "path", ["../out.py", "a/../../out.py", "/../out.py", ".hidden.py", "none.py", "folder.py", ""]
)
def test_what_the_file_browser_does_not_show_is_not_found(tmp_path, path):
    """Outside of its root, hidden, a folder, or not there: the answer is the same."""
    root = tmp_path / "root"
    (root / "folder.py").mkdir(parents=True)
    (tmp_path / "out.py").write_text("")
    (root / ".hidden.py").write_text("")

    with pytest.raises(NotFound):
        sent(root, path=path)


def test_files_that_lie_in_no_folder_are_refused(tmp_path):
    """A contents manager may keep them anywhere; a job could not read them."""
    with pytest.raises(InvalidAsk, match="no folder"):
        asyncio.run(submit_file(FileJob(path="a.py"), ContentsManager(), Asked()))


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere; run as a user to see this")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    """The results would have no place."""
    (tmp_path / "a.ipynb").write_text(a_notebook("1"))
    tmp_path.chmod(0o500)

    with pytest.raises(InvalidAsk, match="cannot be written"):
        sent(tmp_path, path="a.ipynb")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_arrive_as_they_are(tmp_path, name):
    """jupyter-server/jupyter-scheduler#353: nothing is quoted, split or lost, and the list can show it."""
    (tmp_path / name).write_text(a_notebook("1"))

    body = sent(tmp_path, path=name)

    assert unpack_bytes(body.script.name).decode() == name
    assert len(body.name) <= 200
    output = unpack_bytes(body.spec.recorded["output_notebook"])
    assert len(output) <= 255
    assert output.endswith(b".ipynb")


def test_no_name_is_given_twice(tmp_path):
    """Two jobs of one second, and files that are there already, even as dangling links."""
    names, place = Names(), tmp_path / "a.ipynb"
    first = names.beside(place, now=1000.0)
    (tmp_path / first.replace(".ipynb", "-2.ipynb")).symlink_to("nowhere")

    assert names.beside(place, now=1000.0) == first.replace(".ipynb", "-3.ipynb")
    assert names.beside(place, now=1001.0) != first
    assert Names().beside(place, now=1000.0) == first


@contextlib.contextmanager
def a_queue(tmp_path, root):
    """A real broker, and a way to submit a file of `root` to it."""
    with a_broker(tmp_path, devices=1, policy={}) as broker:

        def submit(path: str):
            async def story():
                async with AsyncClient(environ=broker.environment) as client:
                    return await submit_file(FileJob(path=path), AsyncFileContentsManager(root_dir=str(root)), client)

            return asyncio.run(story())

        yield broker.client, submit


@pytest.mark.story
@pytest.mark.timeout(300)
def test_odd_names_run(tmp_path, tmp_runtime, monkeypatch):
    """DataBiosphere/leonardo#350, ipython/ipython#7058: in the C locale, with curly quotes in name and cell."""
    monkeypatch.setenv("LC_ALL", "C")
    root = tmp_path / "root"
    root.mkdir()
    names = [*ODD_NAMES[:6], "{x} {}.ipynb", "x" * 244 + ".ipynb"]
    for name in names:
        (root / name).write_text(a_notebook("print('“é” ' + 'done')"), encoding="utf-8")

    with a_queue(tmp_runtime.runtime_dir.parent / "b", root) as (client, submit):
        jobs = [submit(name) for name in names]
        assert [client.workload(it.id).name for it in jobs[:-1]] == names[:-1]
        for it in jobs:
            ended = client.wait(it.id, until="ended", timeout_seconds=200)
            assert ended.end == "succeeded", client.log(it.id).decode(errors="replace")
            output = root / unpack_bytes(client.workload(it.id).spec.recorded["output_notebook"]).decode()
            cell = nbformat.read(output, as_version=4).cells[0]
            assert cell.outputs[0].text == "“é” done\n"
            assert "“é” done" in client.log(it.id).decode()
    # What was there is there by the very same bytes, and the results beside it.
    left = {os.fsencode(it.name) for it in root.iterdir()}
    assert {os.fsencode(name) for name in names} <= left
    assert len(left - {b".jupyter-gpu"}) == 2 * len(names)


@pytest.mark.story
@pytest.mark.timeout(120)
def test_a_killed_kernel_ends_its_job(tmp_path, tmp_runtime):
    """nteract/papermill#125: failed within seconds, not hanging, with the cells that were finished saved."""
    root = tmp_path / "root"
    root.mkdir()
    cells = ("print('first')", "import os, time; open('pid', 'w').write(str(os.getpid()))", "time.sleep(10**6)")
    (root / "a.ipynb").write_text(a_notebook(*cells))

    with a_queue(tmp_runtime.runtime_dir.parent / "b", root) as (client, submit):
        it = submit("a.ipynb")
        output = root / client.workload(it.id).spec.recorded["output_notebook"]

        def runs_the_last_cell() -> bool:
            if not output.exists():
                return False
            with contextlib.suppress(nbformat.reader.NotJSONError):
                return nbformat.read(output, as_version=4).cells[2].metadata.papermill.status == "running"
            return False

        until(runs_the_last_cell, "the last cell runs", seconds=60)
        os.kill(int((root / "pid").read_text()), signal.SIGKILL)
        ended = client.wait(it.id, until="ended", timeout_seconds=30)

        log = client.log(it.id).decode(errors="replace")
        assert (ended.end, ended.outcome.exit_code) == ("failed", 128 + signal.SIGKILL), log
        assert "The kernel died (signal 9) in cell 3 of 3" in log
        assert nbformat.read(output, as_version=4).cells[0].outputs[0].text == "first\n"
        assert all(not device.workloads for device in client.devices().items)
