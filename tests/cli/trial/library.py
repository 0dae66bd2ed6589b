"""Builds the stand-in of the driver's libcuda.so.1 with the system's C compiler."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which(os.environ.get("CC", "cc"))
needs_compiler = pytest.mark.skipif(
    COMPILER is None, reason="needs a C compiler for the stand-in of CUDA: install gcc and libc6-dev, or set CC"
)


def build(folder: Path) -> Path:
    """Build it in a folder, and give that folder."""
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcuda.so.1"]
    command = [str(COMPILER), *flags, "-o", str(folder / "libcuda.so.1"), str(HERE / "libcuda.c")]
    subprocess.run(command, check=True)
    return folder
