"""docs/errors.md, from the error tree."""

import inspect
import re

from jupyter_gpu.errors import TREE, GpuError

TARGET = "docs/errors.md"

_HEAD = """\
# Errors

<!-- Written by `make generate` from jupyter_gpu/errors.py. -->

The broker answers an error as `{"code", "message", "hint"}` with the status below; the message says what
happened and why, the hint what to do now. The command line prints both and ends with the exit code. In Python
each code is a class of `jupyter_gpu.errors`, and all of them are a `GpuError`.

Being over quota is no error: such an ask is accepted (202) and waits, with its reason.

| code | class | status | exit | means |
|---|---|---|---|---|
"""


def render() -> str:
    """Write one row per class, in the order of the tree."""
    return _HEAD + "".join(map(_row, TREE))


def _row(kind: type[GpuError]) -> str:
    means = re.sub(r"\s+", " ", inspect.getdoc(kind).split("\n\n")[0])
    return f"| `{kind.code}` | `{kind.__name__}` | {kind.http_status} | {kind.exit_code} | {means} |\n"
