"""`%%gpu submit --with a,b`: what of the kernel goes with a cell, what does not, and that CUDA is left alone."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from jupyter_gpu.errors import InvalidAsk, LimitExceeded
from jupyter_gpu.jupyter.taking import MOST_BYTES, read_names, take_along
from jupyter_gpu.model import Script
from tests.jupyter.notebook_ground import a_lab, a_notebook

#: As far as its users see it, and as little as this needs: it tells when it is asked for the GPU.
STAND_IN = '''
class Tensor:
    """A tensor on a GPU, or in main memory."""
    def __init__(self, device): self.device = device
    is_cuda = property(lambda self: self.device != "cpu")
    @property
    def __cuda_array_interface__(self):
        if not self.is_cuda: raise AttributeError("Can't get __cuda_array_interface__ on non-CUDA tensor type.")
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")
    def __reduce__(self):
        if self.is_cuda: cuda.init()
        return Tensor, (self.device,)
class cuda:
    state = False
    @staticmethod
    def init(): cuda.state = True
    @staticmethod
    def is_initialized(): return cuda.state
    is_available = device_count = current_device = init
'''


class Array:
    """As CuPy's, Numba's and JAX' arrays say that they lie on a GPU."""

    __cuda_array_interface__ = {"shape": (1,)}  # noqa: RUF012


def taken(cell: str, **names: object) -> Script:
    """The script of a cell that gets these."""
    return take_along(Script(name="cell-1.py", content=cell.encode()), list(names), names)[0]


def run(script: Script, folder: Path) -> str:
    """What it prints as a program of its own."""
    (folder / script.name).write_bytes(script.content)
    argv = [sys.executable, script.name]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else done.stderr


def test_the_cell_has_the_names_and_nothing_else(tmp_path):
    """What they are, what they share, and no trace of how they came."""
    shared = [1, 2]
    cell = "print(lr, many, one is many[0], text)\nprint(sorted(it for it in globals() if not it.startswith('__')))"

    said = run(taken(cell, lr=0.1, many=[shared], one=shared, text="“é”"), tmp_path)

    assert said.splitlines() == ["0.1 [[1, 2]] True “é”", "['lr', 'many', 'one', 'text']"]


def test_functions_and_classes_of_the_notebook_go_along(tmp_path):
    """They are in no module that the job could import, so they go as they are, with what they use."""
    space: dict[str, object] = {"__name__": "__main__"}
    exec("k = 3\nclass P:\n    x = 2\n    def f(self): return k * self.x\ndef g(p): return p.f() + 1\np = P()", space)  # noqa: S102

    said = run(taken("print(g(p), isinstance(p, P))", g=space["g"], p=space["p"], P=space["P"]), tmp_path)

    assert said == "7 True\n"


def test_an_error_shows_the_line_of_the_cell(tmp_path):
    """As if it stood there alone."""
    said = run(taken("def f():\n    return 1 / zero\n\nf()", zero=0), tmp_path)

    assert "return 1 / zero" in said
    assert said.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    "cell",
    [
        "from __future__ import annotations\ndef f(x: Never): return x\nprint(f(a))",
        '"""\u2028"""\nfrom __future__ import (\n    annotations,\n    division\n)\ndef f(x: X): return x\nprint(f(a))',
        "from __future__ import annotations; print(a)",
        "# é “\nprint(a) # \u2028 it's \\ {b}\n",
        "",
    ],
)
def test_any_cell_can_get_names(tmp_path, cell):
    """Also one that begins with what only the head of a file may have."""
    assert run(taken(cell, a=1), tmp_path) == ("1\n" if cell else "")


def test_what_is_not_there_is_named():
    """All of it at once, with what was meant."""
    with pytest.raises(InvalidAsk, match="no dta and no xyz") as found:
        take_along(Script(name="c", content=b""), ["dta", "xyz", "lr"], {"data": 1, "lr": 2})
    assert "Did you mean data" in found.value.hint


def test_what_cannot_be_pickled_is_named():
    """And why: a thread's lock, an open file, a generator."""
    for value in (threading.Lock(), Path(__file__).open("rb"), (it for it in ())):  # noqa: SIM115
        with pytest.raises(InvalidAsk, match=r"bad cannot be taken along: .*pickle"):
            taken("", good=1, bad=[value])
        if hasattr(value, "close"):
            value.close()


def test_what_is_too_large_is_named_and_never_copied_whole():
    """One that is, and several that are together; the way out is a file."""
    with pytest.raises(LimitExceeded, match="big takes more than 8MiB") as found:
        taken("", good=1, big=bytes(MOST_BYTES))
    assert "file" in found.value.hint
    with pytest.raises(LimitExceeded, match=r"more than 8MiB.*: a 5MiB, b 4MiB"):
        taken("", a=bytes(5 << 20), b=bytes(4 << 20))


@pytest.fixture
def torch():
    """Give a stand-in of what users call torch."""
    module = types.ModuleType("torch")
    exec(STAND_IN, module.__dict__)  # noqa: S102
    sys.modules["torch"] = module
    yield module
    del sys.modules["torch"]


def test_what_lies_on_a_gpu_is_refused_however_deep(torch):
    """The job may have no such GPU, and to copy it takes the kernel's; nothing of CUDA is touched to find out."""
    for value in (torch.Tensor("cuda:0"), {"layers": [torch.Tensor("cuda:0")]}):
        with pytest.raises(InvalidAsk, match="net lies on cuda:0") as found:
            taken("", lr=1, net=value)
        assert ".cpu()" in found.value.hint
    with pytest.raises(InvalidAsk, match="net lies on a GPU"):
        taken("", net=Array())
    assert taken("", net=[torch.Tensor("cpu")])
    assert not torch.cuda.is_initialized()


def test_names_are_read_with_commas_and_again():
    """Each once."""
    assert read_names(["a,b", " c , a"]) == ["a", "b", "c"]
    assert read_names([]) == []


@pytest.mark.timeout(180)
def test_a_cell_runs_with_names_of_the_notebook():
    """In a real kernel beside a real broker: what it takes is told, refused is what cannot be, CUDA stays untouched."""
    with a_lab(devices=1) as (broker, folder):
        (folder / "torch.py").write_text(STAND_IN)
        with a_notebook(broker, folder) as notebook:
            # huggingface/accelerate#940: neither the load of the magics nor the taking asks for the GPU.
            notebook.run("import sys; assert 'torch' not in sys.modules; import torch")
            notebook.run("lr, t, gpu_t = 0.1, torch.Tensor('cpu'), torch.Tensor('cuda:0')\ndef twice(x): return 2 * x")

            cell = notebook.run("%%gpu submit --with lr,twice --with t --gpus 0\nprint(twice(lr), t.device)\nlr = 5")
            ended = notebook.run("job = _; print(job.wait(60).end, job.log(), lr)", seconds=90)
            refused = notebook.run("%%gpu submit --with lr,gpu_t --gpus 0\n1")
            unknown = notebook.run("%%gpu submit --with lrr --gpus 0\n1")
            no_cell = notebook.run("%gpu submit --with lr --gpus 0 -- true")
            cuda = notebook.run("print(torch.cuda.is_initialized())")

            assert "gets lr, twice, t as they are now" in cell.text
            assert ended.stdout.split() == ["succeeded", "0.2", "cpu", "0.1"]
            assert "gpu_t lies on cuda:0" in refused.error["evalue"]
            assert "Did you mean lr?" in "".join(unknown.error["traceback"])
            assert "--with is for a cell" in no_cell.error["evalue"]
            assert cuda.stdout == "False\n"
