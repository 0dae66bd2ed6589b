"""docs/training.md says what is so."""

import re
import subprocess
import sys
from pathlib import Path

from jupyter_gpu import training

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


# Before the example begins, somebody has already asked it to stop.
TOLD = """
import os, signal, jupyter_gpu.training
jupyter_gpu.training.should_stop()
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_the_example_runs_and_resumes(tmp_path):
    """The first example trains to its end outside of a job, and a second start finds nothing left to do."""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", EXAMPLES[0]], cwd=tmp_path, check=True, timeout=50)
    home = tmp_path / ".jupyter-gpu" / "local"
    assert (home / "step-000000001000" / "model.json").exists()
    assert (home / "step-000000000900" / "COMPLETE").exists()
    assert (home / "finished.0").exists()


def test_the_example_yields_and_goes_on(tmp_path):
    """Told to stop, it saves and exits with 75; the next start ends with the numbers of a whole run."""
    models = []
    for folder, stops in (("whole", 0), ("stopped", 1)):
        (tmp_path / folder).mkdir()
        for code, program in [(75, TOLD + EXAMPLES[0])] * stops + [(0, EXAMPLES[0])]:
            done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / folder, check=False, timeout=50)
            assert done.returncode == code
        models.append((tmp_path / folder / ".jupyter-gpu/local/step-000000001000/model.json").read_text())
    assert models[0] == models[1]


def test_every_example_is_python_and_every_name_is_documented():
    """Nobody can copy a typing error, and no public name is missing from the page."""
    for example in EXAMPLES:
        compile(example, "docs/training.md", "exec")
    for name in training.__all__:
        assert re.search(rf"\b{name}\b", PAGE), name
