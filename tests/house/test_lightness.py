"""Importing the package costs nothing until a name is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_gpu

ROOT = Path(jupyter_gpu.__file__).parents[1]


def run_alone(code: str) -> str:
    """Run a snippet in an interpreter that knows this package and nothing else that is installed."""
    # -I ignores the environment and the user's packages, -S leaves site-packages out.
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def test_a_training_needs_only_the_standard_library():
    """A script may import jupyter_gpu.training where none of our dependencies is installed."""
    code = "import jupyter_gpu.training; print(*sorted({name.split('.')[0] for name in sys.modules}))"

    loaded = set(run_alone(code).split())

    assert "jupyter_gpu" in loaded
    assert loaded - sys.stdlib_module_names - {"jupyter_gpu", "__main__"} == set()


def test_the_package_alone_loads_no_module_of_its_own():
    """`import jupyter_gpu` loads nothing of the house; the public names come on first use."""
    code = "import jupyter_gpu; print(*[name for name in sys.modules if name.startswith('jupyter_gpu')])"

    assert run_alone(code).split() == ["jupyter_gpu"]


@pytest.mark.parametrize("name", jupyter_gpu.__all__)
def test_each_public_name_is_there(name):
    """What __all__ and dir() promise can be had."""
    assert getattr(jupyter_gpu, name) is not None
    assert name in dir(jupyter_gpu)


def test_a_wrong_name_is_refused_like_any_other():
    """An unknown name is an AttributeError, so hasattr and `from ... import` behave."""
    with pytest.raises(AttributeError, match="no attribute 'reserv'"):
        _ = jupyter_gpu.reserv
