"""The frameworks themselves, where they are installed: `make test-frameworks`. The examples of the docs, run."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training.md").read_text()
#: What each example needs, and the file in which it leaves what was learnt.
EXAMPLES = {
    "torch": (("torch",), "model.pt"),
    "lightning": (("torch", "lightning"), "model.pt"),
    "transformers": (("torch", "transformers", "accelerate"), "model.pt"),
    "keras": (("torch", "keras"), "model.weights.h5"),
}
ENVIRONMENT = {
    "KERAS_BACKEND": "torch",
    "PYTHONPATH": str(ROOT),
    # Nothing here needs a GPU or a network, and two cores do more with one thread each.
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


def needs(*modules):
    """Skip where one is missing, and say how to have it."""
    missing = [name for name in modules if find_spec(name) is None]
    why = f"needs {', '.join(missing)}: `make test-frameworks` installs it and runs this"
    return pytest.mark.skipif(bool(missing), reason=why)


def example(framework):
    """Give the example of a framework as it stands in the docs."""
    code = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    marker = f"from jupyter_gpu.integrations.{framework} import"
    return next(text for text in code if marker in text)


# Put before an example: each step is noted at the moment it has run, and what `at` says happens at one of them.
WATCHED = """
import json, os, signal, time
from jupyter_gpu import training
_report, _noted, _at = training.report, [0], json.loads(os.environ.get("TEST_AT", "{}"))
_pause = float(os.environ.get("TEST_STEP_SECONDS", "0"))

def _watched(step, of=None, **numbers):
    _report(step, of, **numbers)
    if step == _noted[0]:
        return
    _noted[0] = step
    with open("ran", "a") as file:
        print(step, file=file)
    time.sleep(_pause)
    what = _at.get(str(step))
    if what == "notice":
        with open(os.environ["JUPYTER_GPU_NOTICE_FILE"], "w") as file:
            json.dump({"reason": "preempted", "deadline": time.time() + 300}, file)
        training._watch.look_at = 0
    elif what:
        os.kill(os.getpid(), getattr(signal, what))

training.report = _watched
"""


class Example:
    """One training in a folder of its own, run attempt by attempt as a supervisor would."""

    def __init__(self, folder, framework, code=None):
        folder.mkdir()
        self.folder, self.framework = folder, framework
        self.code = WATCHED + (example(framework) if code is None else code)
        self.attempt = 0
        self.output = ""

    def run(self, **at):
        """Run an attempt, `step_77="notice"` giving notice after step 77; answer its exit code."""
        self.attempt += 1
        environment = os.environ | ENVIRONMENT | {
            "TEST_AT": json.dumps({name.removeprefix("step_"): what for name, what in at.items()}),
            "JUPYTER_GPU_JOB": "12",
            "JUPYTER_GPU_ATTEMPT": str(self.attempt),
            "JUPYTER_GPU_CHECKPOINT_DIR": str(self.home),
            "JUPYTER_GPU_NOTICE_FILE": str(self.folder / f"notice.{self.attempt}"),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", self.code],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=110,
            check=False,
        )
        self.output = done.stdout
        return done.returncode

    @property
    def home(self):
        """Where its checkpoints lie."""
        return self.folder / "checkpoints"

    def ran(self):
        """Give every step in the order in which they ran."""
        return [int(text) for text in (self.folder / "ran").read_text().split()]

    def saved(self):
        """Give the steps of its complete checkpoints."""
        return sorted(int(path.parent.name.removeprefix("step-")) for path in self.home.glob("step-*/COMPLETE"))

    def learnt(self):
        """Give what it left behind in the end, number by number."""
        return learnt(self.folder / EXAMPLES[self.framework][1])


def learnt(path):
    """Give the numbers of a file of weights."""
    if path.suffix == ".h5":
        import h5py

        found = {}
        with h5py.File(path) as file:
            file.visititems(lambda name, it: found.update({name: it[()].tolist()}) if hasattr(it, "shape") else None)
        return found
    import torch

    return {name: value.tolist() for name, value in torch.load(path, weights_only=True).items()}
