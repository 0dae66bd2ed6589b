"""What `make test-gpu` asks of a real card is asked of the stand-in too, as far as that is honest: not to compute."""

import sys

import pytest

from . import boards
from .child import run
from .library import needs_standin


@needs_standin
@pytest.mark.parametrize("make", ["four_lab_cards", "a100_in_slices"])
def test_the_tests_of_real_cards_hold_of_what_nvml_tells(tmp_path, make):
    """Those that only read pass; those that compute skip where there is no CUDA, and none fails."""
    board = boards.ALL[make](tmp_path)

    files = [f"tests/gpu/{it}.py" for it in ("test_card", "test_real_card")]
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], board)

    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0, done.stdout[-4000:]
    assert "2 passed" in last
    assert "5 skipped" in last
    assert "libcuda" in done.stdout
