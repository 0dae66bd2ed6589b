"""The adapters cost nobody anything who does not name one, and what they share needs no framework."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import jupyter_gpu.integrations
from jupyter_gpu.integrations.pace import Pace
from jupyter_gpu.integrations.randomness import random_state, set_random_state

FRAMEWORKS = {"torch", "lightning", "pytorch_lightning", "transformers", "keras", "tensorflow", "jax", "numpy"}


def test_no_framework_is_imported_before_its_adapter_is_named():
    """Neither jupyter_gpu nor the folder of the adapters, nor what they share, imports one."""
    code = "import json, sys, jupyter_gpu, jupyter_gpu.training, jupyter_gpu.integrations; "
    code += "import jupyter_gpu.integrations.pace, jupyter_gpu.integrations.randomness; "
    code += "print(json.dumps([name for name in sys.modules if '.' not in name]))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not FRAMEWORKS & set(loaded)


def test_its_docstring_names_every_adapter():
    """Who imports the folder finds all of them."""
    here = Path(jupyter_gpu.integrations.__file__).parent
    adapters = {path.stem for path in here.glob("*.py")} & FRAMEWORKS
    for name in adapters:
        assert f"jupyter_gpu.integrations.{name} import Resumable" in jupyter_gpu.integrations.__doc__


def test_random_numbers_go_on_where_they_were_by_way_of_json():
    """What was taken down is numbers only, so loading it can run no code; Python's and NumPy's go on."""
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - it is the global state that a training uses
    np.random.normal(), random.gauss()  # noqa: NPY002 - both keep half of a pair
    state = json.loads(json.dumps(random_state()))
    drawn = [random.gauss(), random.random(), np.random.normal(), np.random.random()]  # noqa: NPY002
    set_random_state(state)
    assert [random.gauss(), random.random(), np.random.normal(), np.random.random()] == drawn  # noqa: NPY002


def test_it_saves_by_steps_or_by_seconds_whichever_comes_first(monkeypatch):
    """Counted from the last save; without a rule it is never time."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = Pace(every_steps=10, every_seconds=60)
    pace.saved(5)
    assert [pace.is_due(step) for step in (14, 15)] == [False, True]
    now = 160.0
    assert pace.is_due(6)
    pace.saved(6)
    assert not pace.is_due(7)
    never = Pace(None, None)
    now = 1e9
    assert not never.is_due(10**9)


@pytest.mark.parametrize("rule", ["every_steps", "every_seconds"])
def test_a_pace_that_means_nothing_is_refused(rule):
    """The error names the rule and the way to have none."""
    with pytest.raises(ValueError, match=f"{rule} must be more than 0, or None"):
        Pace(**({"every_steps": None, "every_seconds": None} | {rule: 0}))
