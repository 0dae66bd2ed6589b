"""%gpu in this process: what it loads, what it says, how it fails. The broker is a lab of documents."""

import atexit
import functools
import io
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import jupyter_gpu
from jupyter_gpu import own_reach, pins
from jupyter_gpu.cli import VERBS
from jupyter_gpu.errors import Conflict, GpuError, InvalidAsk, NotFound
from jupyter_gpu.jupyter import faces, magics
from jupyter_gpu.jupyter.here import kernel_holder
from jupyter_gpu.model import WaitingReason
from tests.cli.fake import FakeClient, workload


@pytest.fixture
def client(monkeypatch):
    """Answer every command from documents."""
    fake = FakeClient()
    monkeypatch.setattr(faces.KernelFace, "connect", lambda _self, **_: fake)
    return fake


@pytest.fixture(scope="module")
def plain_shell(tmp_path_factory):
    """Give a plain IPython that leaves nothing behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        made = InteractiveShell()
    made.history_manager.enabled = False
    yield made
    atexit.unregister(made.atexit_operations)
    made.atexit_operations()


@pytest.fixture
def shell(plain_shell, monkeypatch):
    """Give it with our magics."""
    monkeypatch.setattr(magics, "get_ipython", lambda: plain_shell)
    jupyter_gpu.load_ipython_extension(plain_shell)
    return plain_shell


def sent(client):
    """Give the body that was submitted."""
    return next(call[1] for call in client.calls if call[0] == "submit")


def run(shell, code):
    """Run a cell; give what it printed and the error."""
    with capture_output() as seen:
        result = shell.run_cell(code)
    return seen.stdout, result


def test_it_is_light_and_touches_no_cuda():
    """The load imports nothing heavy and nothing of CUDA (huggingface/accelerate#940): a kernel's start pays for it."""
    code = (
        "import IPython.core.completer, IPython.core.interactiveshell, sys; before = set(sys.modules)\n"
        "import jupyter_gpu; from jupyter_gpu.jupyter.magics import load\n"
        "print(*sorted({n.split('.')[0] for n in set(sys.modules) - before}))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout

    assert set(said.split()) <= {"jupyter_gpu"}


def test_loading_twice_is_loading_once(shell):
    """A provisioner loads it, and then the first cell of an old notebook does: nothing doubles, nothing is said."""
    count = len(shell.Completer.custom_matchers)

    for line in ("%load_ext jupyter_gpu", "%load_ext jupyter_gpu", "%reload_ext jupyter_gpu"):
        _, result = run(shell, line)
        assert result.success

    assert len(shell.Completer.custom_matchers) == count == 1


@pytest.mark.parametrize("verb", [verb for verbs in VERBS.values() for verb in verbs])
def test_every_verb_is_there_and_explains_itself(shell, client, verb):
    """%gpu VERB --help is about %gpu; what only a shell can do is left out of it."""
    said, result = run(shell, f"%gpu {verb} --help")

    assert result.success
    assert said.startswith(f"Usage: %gpu {verb}")
    assert client.calls == []


def test_the_options_are_those_of_the_terminal(shell, client):
    """The words mean what they mean to `jupyter gpu`, quotes and variables included (ipython/ipython#12729)."""
    shell.user_ns.update(lr=0.1, what="it's ok")
    line = """%gpu submit --name='a b' --gpus 2 --time 8h -- echo "my file.py" --note "{what}" --lr {lr} '{"a": 1}'"""

    _, result = run(shell, line)

    body = sent(client)
    assert result.success
    assert (body.name, body.ask.devices, body.ask.duration_seconds) == ("a b", 2, 8 * 3600)
    assert body.spec.argv == ("echo", "my file.py", "--note", "it's ok", "--lr", "0.1", '{"a": 1}')


def test_a_report_is_read_in_a_notebook(shell, client):
    """The same lines as in a terminal, its tables too, and what is not in it aside."""
    said, result = run(shell, "%gpu report --since 7d")

    assert result.success
    assert "GPUs          4: 400 of 672 GPU-hours leased (60 %)" in said
    assert "training" in said
    assert client.calls[0][:2] == ("report", 7 * 86_400)


def test_names_of_a_function_count(shell, client):
    """Inside a function its own variables are meant, as with every line magic."""
    run(shell, "def f(run):\n    %gpu submit -- echo {run}\nf('inner')")

    assert sent(client).spec.argv == ("echo", "inner")


def test_a_cell_arrives_byte_for_byte(shell, client):
    """Quotes, braces, odd characters and escapes of a cell are not touched (ipython/ipython#7058)."""
    text = 'x = {"a": "“é” 😀 \\n"}\nprint(f\'{x["a"]} it\'\'s $HOME {{y}}\')\t# \\\n'

    _, result = run(shell, f"%%gpu submit --name cell -- --lr 1\n{text}")

    body = sent(client)
    assert result.success
    assert body.script.content == text.encode()
    assert body.spec.argv == (sys.executable, body.script.name, "--lr", "1")
    assert body.spec.script_index == 1
    assert body.spec.folder == os.getcwd()  # noqa: PTH109


def test_no_secret_of_the_kernel_goes_along(shell, client, monkeypatch):
    """A cell runs with what finds its packages, and with nothing else that the kernel knows (PmagPy/PmagPy#919)."""
    monkeypatch.setenv("MY_API_KEY", "s3cret")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "s3cret")
    monkeypatch.setenv("MY_SETTING", "s3cret")

    run(shell, "%%gpu submit\nprint(1)")

    environment = sent(client).spec.environment
    assert "PATH" in environment
    assert "s3cret" not in environment.values()


def test_python_is_this_kernels_own(shell, client, monkeypatch):
    """Jupyter is often started from an environment that is not activated, where PATH leads to another Python."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run(shell, "%gpu submit -- python -V")
    spec = sent(client).spec
    assert spec.environment["PATH"].split(":") == [str(Path(sys.executable).parent), "/usr/bin", "/bin"]
    assert spec.recorded["program"].startswith(str(Path(sys.executable).parent))


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("x = (", "line 1"),
        ("await x", "asyncio.run"),
        ("!ls", "no !commands"),
        ("%matplotlib inline", "no %magics"),
    ],
)
def test_a_cell_that_is_no_script_is_refused_at_once(shell, client, cell, said):
    """What Python could not read is told now, and not when the job starts at night."""
    _, result = run(shell, f"%%gpu submit\n{cell}\n")

    assert isinstance(result.error_in_exec, InvalidAsk)
    assert said in f"{result.error_in_exec} {result.error_in_exec.hint}"
    assert client.calls == []


def test_only_submit_takes_a_cell(shell, client):
    """%%gpu with another verb would leave the cell out silently."""
    _, result = run(shell, "%%gpu status\nprint(1)")

    assert isinstance(result.error_in_exec, InvalidAsk)


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("%gpu submit -- echo 'a", InvalidAsk, "a quote is opened and not closed"),
        ("%gpu statsu", InvalidAsk, "Did you mean status"),
        ("%gpu log x", InvalidAsk, "no number of a workload"),
        ("%gpu reserve --export", InvalidAsk, "--export"),
        ("%gpu submit", InvalidAsk, "no command to run"),
        ("%gpu show 99", NotFound, "99"),
    ],
)
def test_an_error_is_a_sentence_and_stops_run_all(shell, client, line, kind, said):
    """A failure raises the error of the tree, shown without a traceback; so the cells below do not run."""
    out, result = run(shell, line)

    assert type(result.error_in_exec) is kind
    assert said in str(result.error_in_exec)
    assert "Traceback" not in out
    assert out.count("\n") <= 2
    assert said in out


def test_an_error_can_be_caught(shell, client):
    """Code around a magic may handle the very error that the client raises."""
    _, result = run(
        shell, "from jupyter_gpu.errors import NotFound\ntry:\n    %gpu show 99\nexcept NotFound:\n    print('caught')"
    )

    assert result.success


def test_who_does_not_wait_is_not_stopped(shell, client):
    """--no-wait that stays in line is no failure, although a terminal ends with 7."""
    client.answers["submit"] = lambda body: workload(
        15, kind=body.kind, waiting=WaitingReason.DEVICES, reason="No GPU is free.", holder=body.holder
    )

    out, result = run(shell, "%gpu reserve --no-wait")

    assert result.success
    assert "Reservation 15 stays in line for this kernel. No GPU is free." in out
    assert "`%gpu release` leaves the line" in out


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("reserve 1 --for 2h", "nothing is reserved"),
        ("release", "they go back when the job ends"),
        ("keep", "they go back when the job ends"),
        ("pin", "it is pinned to them"),
    ],
)
def test_within_a_job_nothing_is_reserved(shell, client, monkeypatch, words, what):
    """A notebook that runs as a job has its GPUs, and goes on: what it says at its top is for other kernels."""
    monkeypatch.setenv("JUPYTER_GPU_ATTEMPT", "1")
    monkeypatch.setenv("JUPYTER_GPU_JOB", "12")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-of-the-job")

    out, result = run(shell, f"%gpu {words}\nprint('on')")

    assert result.success
    assert out == f"This kernel runs in job 12 and has its GPUs; {what}.\non\n"
    assert client.calls == []
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-of-the-job"


def test_watching_is_left_to_the_widget(client, monkeypatch):
    """In a notebook --watch would keep the kernel busy; it says what does not."""
    face = faces.Page({})
    monkeypatch.setattr(sys, "stdout", io.StringIO())

    from jupyter_gpu.cli import run as run_words

    assert run_words(["status", "--watch"], face=face) == InvalidAsk.exit_code
    assert "GpuMonitor" in face.told[0].lines[0]


def test_a_kernel_names_itself_and_its_keeper(monkeypatch):
    """The holder is the kernel, by the id that its server knows; who started it is its keeper."""
    monkeypatch.setenv("JUPYTER_GPU_KERNEL", "0-1-2")

    holder = kernel_holder()

    assert (holder.kind, holder.name, holder.pid, holder.keeper_pid) == ("kernel", "0-1-2", os.getpid(), os.getppid())


def test_a_process_without_a_server_has_no_keeper():
    """Nobody starts an IPython of a terminal anew, so its reservation ends with it."""
    holder = kernel_holder()

    assert (holder.kind, holder.pid, holder.keeper_pid) == ("kernel", os.getpid(), None)


def test_help_is_useful(shell):
    """%gpu? shows what can be done, and that a cell sees nothing of other cells."""
    text = shell.object_inspect_mime("%gpu")["text/plain"]

    for word in ("%gpu reserve 1 --for 2h", "%%gpu submit", "what other cells defined or", "_.wait()"):
        assert word in text


def test_html_can_be_read_on_light_and_dark():
    """Colours are variables of the page with a tone in the middle; no terminal codes, no markup of others."""
    from rich.text import Text

    html, text = faces.draw(Text.assemble(("<b>x</b>", "bold red"), " `jupyter gpu wait 7`"))

    assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert "var(--jp-error-color1,#d9534f)" in html
    assert "\x1b" not in html + text
    assert text == "<b>x</b> `%gpu wait 7`"


def test_dollars_are_no_mathematics():
    """Pages typeset what stands between two dollars, save in <pre>: a shell line must stay as it is."""
    from rich.text import Text

    html, _ = faces.draw(Text("It runs: sh -c 'for i in $(seq 9); do echo $i'"))

    assert html.startswith("<pre ")
    assert html.endswith("</pre>")
    assert "white-space:pre-wrap" in html


def test_an_unforeseen_error_keeps_its_traceback(shell, client):
    """A fault of ours is no sentence: it shows where it happened."""
    client.errors["status"] = ZeroDivisionError("ours")

    _, result = run(shell, "%gpu status")

    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert not isinstance(result.error_in_exec, GpuError)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("refused", "This server: isolation enforced (systemd)"),
        ("opened", "This server: isolation advisory: it could open /dev/nvidia1, which is not its own"),
    ],
)
def test_in_a_hubs_server_status_says_whether_it_is_kept_from_other_gpus(shell, client, monkeypatch, answer, said):
    """The kernel stands where its server stands; it is tried once, and not with every look (nor outside of a hub)."""
    tried = []
    cards = tuple(msgspec.structs.replace(it, nodes=(f"/dev/nvidia{n}",)) for n, it in enumerate(client.lab.devices))
    held = msgspec.structs.replace(client.lab.workloads[0], id=7, devices=(cards[0].uuid,))
    client.lab = msgspec.structs.replace(client.lab, devices=cards, workloads=(held,))
    monkeypatch.setattr(own_reach, "surroundings", lambda: own_reach.Surroundings(0, "0::/x.service", False))
    find_out = functools.lru_cache(lambda asked: own_reach.find_out(asked, lambda node: tried.append(node) or answer))
    monkeypatch.setattr(faces, "_find_out_once", find_out)

    before, _ = run(shell, "%gpu status")
    for name, value in ({"JUPYTERHUB_USER": "ada"} | pins.under(7, held.devices)).items():
        monkeypatch.setenv(name, value)
    seen, _ = run(shell, "%gpu status")
    count = len(tried)
    run(shell, "%gpu status")

    assert "This server" not in before
    assert said in " ".join(seen.split())
    assert len(tried) == count > 0


def test_a_kernel_in_a_server_that_can_open_no_gpu_is_told_and_not_pinned(shell, client, monkeypatch, tmp_path):
    """In a container without GPUs, `%gpu reserve` says so before it asks for one."""
    cards = tuple(msgspec.structs.replace(it, nodes=(f"{tmp_path}/nvidia9{it.index}",)) for it in client.lab.devices)
    client.lab = msgspec.structs.replace(client.lab, devices=cards)
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    monkeypatch.delenv(pins.VISIBLE, raising=False)

    _, result = run(shell, "%gpu reserve 1")

    assert isinstance(result.error_in_exec, Conflict)
    assert "This server can open no GPU" in str(result.error_in_exec)
    assert "submit" not in [name for name, *_ in client.calls]
    assert pins.VISIBLE not in os.environ
