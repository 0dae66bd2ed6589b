"""Builds the stand-in's library with the system's C compiler, once per machine and state of its sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from ctypes.util import find_library
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).with_name("standin")
NAME = "libnvidia-ml.so.1"
_FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-pthread")


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc"))


@cache
def why_not() -> str | None:
    """Say why the stand-in cannot be built here, or None where it can."""
    if _compiler():
        return None
    return "needs a C compiler for the stand-in of NVML: install gcc and libc6-dev, or set CC"


#: For every test that uses a board.
needs_standin = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@cache
def library(without: tuple[str, ...] = ()) -> Path:
    """The folder of a library that lacks these symbols, like an older driver's. Parallel test runs share it."""
    compiler = _compiler()
    if compiler is None:
        raise RuntimeError(str(why_not()))
    sources = sorted(SOURCES.glob("*.[ch]"))
    recipe = (*_FLAGS, compiler, *sorted(without), *(it.read_text(encoding="ascii") for it in sources))
    folder = _own_folder() / hashlib.sha256("\0".join(recipe).encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / NAME).exists():
            _build(compiler, [it for it in sources if it.suffix == ".c"], folder, without)
    return folder


def empty_folder() -> Path:
    """A folder to look for the library in where there is none; a real one elsewhere must not be found instead."""
    folder = _own_folder() / "none"
    folder.mkdir(exist_ok=True)
    if find_library("nvidia-ml"):
        (folder / NAME).write_bytes(b"")  # the loader stops at what is no library
    return folder


def _build(compiler: str, sources: list[Path], folder: Path, without: tuple[str, ...]) -> None:
    script = folder / "symbols"
    local = "".join(f" {name};" for name in without)
    script.write_text(f"{{ global: nvml*; local:{local} *; }};\n", encoding="ascii")
    fresh = folder / f"{NAME}.new"
    command = [compiler, *_FLAGS, f"-Wl,--version-script={script}", f"-Wl,-soname,{NAME}", "-o", str(fresh)]
    subprocess.run([*command, *map(str, sources)], check=True, cwd=SOURCES)
    fresh.replace(folder / NAME)


def _own_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"jupyter-gpu-standin-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(f"{folder} is somebody else's. Set TMPDIR to a folder of your own.")
    return folder
