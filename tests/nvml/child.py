"""Runs the body of a test in a process that sees a board: a library is chosen when a process begins, not later.

    @in_child(boards.one_a100)
    def test_something(board):
        ...  # runs in the child; `board` may be changed while NVML is read

What the test takes besides `board` comes from pytest in the parent and must be JSON.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .board import Board
from .library import needs_standin

ROOT = Path(__file__).parents[2]


def in_child(make: Callable[[Path], Board], *, counted: bool = False, seconds: float = 50) -> Callable[..., Any]:
    """Make a test of a body that takes a board of this making; `counted` has its calls written down."""

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        @needs_standin
        def test(tmp_path: Path, **arguments: object) -> None:
            place = (str(Path(inspect.getfile(body)).relative_to(ROOT)), body.__name__)
            what = json.dumps([*place, f"{make.__module__}:{make.__qualname__}", str(tmp_path), arguments])
            done = run([sys.executable, "-m", __name__, what], make(tmp_path), counted=counted, seconds=seconds)
            if done.returncode:
                pytest.fail(done.stdout[-4000:] + done.stderr[-12000:], pytrace=False)

        others = list(inspect.signature(body).parameters.values())[1:]
        parameters = [inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD), *others]
        test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
        test.__signature__ = inspect.Signature(parameters)
        test.body = body
        return test

    return decorate


def run(
    argv: list[str], board: Board, *, counted: bool = False, seconds: float = 50
) -> subprocess.CompletedProcess[str]:
    """Run a program that sees this board."""
    return subprocess.run(
        argv, env=os.environ | board.environment(counted=counted), cwd=ROOT, capture_output=True, text=True,
        timeout=seconds, check=False,
    )  # fmt: skip


def _main() -> None:
    file, name, make, folder, arguments = json.loads(sys.argv[1])
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    maker, _, function = make.partition(":")
    board = getattr(importlib.import_module(maker), function)(Path(folder))
    try:
        getattr(module, name).body(board, **arguments)
    except Exception as error:  # noqa: BLE001 - told whole to the parent
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        sys.exit(
            "".join(told.format()) if not isinstance(error, AssertionError) else f"{error}\n" + "".join(told.format())
        )


if __name__ == "__main__":
    _main()
