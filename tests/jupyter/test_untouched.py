"""Nothing that we load into a kernel touches CUDA or a framework: seen by the interpreter itself, in a real kernel."""

import pytest

from tests.jupyter.notebook_ground import LOAD, a_lab, a_notebook

pytestmark = pytest.mark.timeout(120)

#: Python runs it at the start of every process here, before anything else: what is imported, loaded or opened is noted.
_WATCH = """
import os, sys
_out = os.open(os.environ["TOUCHED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
_MODULES = ("torch", "tensorflow", "jax", "jaxlib", "cupy", "numba", "cuda", "pynvml", "nvidia")
_FILES = ("libcuda", "libnvidia", "nvidia")

def _note(event, args):
    if event not in ("import", "ctypes.dlopen", "open"):
        return
    said = str(args[0])
    is_module = event == "import" and said.split(".")[0] in _MODULES
    if is_module or (event != "import" and os.path.basename(said).startswith(_FILES)):
        os.write(_out, f"{event} {said}\\n".encode())

sys.addaudithook(_note)
"""
#: As frameworks are: whoever imports it has looked at the devices.
_TORCH = """
class cuda:
    is_initialized = staticmethod(lambda: touched)
    device_count = staticmethod(lambda: globals().update(touched=True))
touched = False
"""


@pytest.fixture
def lab():
    """Give a broker with two GPUs."""
    with a_lab(devices=2) as made:
        yield made


def test_magics_and_widgets_touch_neither_cuda_nor_a_framework(lab):
    """After all that we do in a kernel `torch.cuda.is_initialized()` is False (huggingface/accelerate#940).

    A kernel that has touched CUDA before it forks its trainings loses them.
    """
    broker, folder = lab
    (folder / "sitecustomize.py").write_text(_WATCH)
    (folder / "torch.py").write_text(_TORCH)
    touched = folder / "touched"
    with a_notebook(broker, folder, load=False, PYTHONPATH=str(folder), TOUCHED=str(touched)) as notebook:
        cells = [
            LOAD,
            "%gpu",
            "%gpu reserve 1 --for 1h",
            "%gpu devices",
            "%gpu queue",
            "import jupyter_gpu; jupyter_gpu.GpuMonitor()",
            "jupyter_gpu.QuotaBar()",
            "job = %gpu submit --gpus 0 -- true",
            "jupyter_gpu.JobView(job)",
            "%gpu release",
        ]
        for cell in cells:
            assert notebook.run(cell).error is None, cell
        assert touched.read_text() == ""

        said = notebook.run("import torch; print(torch.cuda.is_initialized())").stdout
        assert said == "False\n"
        assert touched.read_text() == "import torch\n", "what watches would have seen it"
