"""`%%gpu submit --with a,b`: names of the kernel go with a cell, as they are now (docs/decisions/0016).

They are pickled into the script, above the cell: so they are kept with it, submitted again with it, and written out
with it. Nothing is imported for this but what pickles: what a value is made of, its own module has loaded already.
"""

from __future__ import annotations

import ast
import base64
import difflib
import io
import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
import msgspec

from ..errors import InvalidAsk, LimitExceeded
from ..model import Script
from ..units import format_bytes

#: As pickled. A script of it stays well below what is copied of one.
MOST_BYTES = 8 << 20
_TO_A_FILE = "Save it to a file, and read that in the cell."
#: Its lines stand above the cell, and leave nothing behind but the names.
_ABOVE = """\
{future}# From the notebook, as it was when this was submitted: {names}. The cell stands below.
import base64 as _base64, pickle as _pickle, zlib as _zlib
_taken = "{taken}"
globals().update(_pickle.loads(_zlib.decompress(_base64.b64decode(_taken))))
del _base64, _pickle, _zlib, _taken
"""


def read_names(words: Sequence[str]) -> list[str]:
    """Read `--with a,b --with c`: each name once."""
    return list(dict.fromkeys(name for word in words for it in word.split(",") if (name := it.strip())))


def take_along(cell: Script, names: Sequence[str], namespace: Mapping[str, Any]) -> tuple[Script, str]:
    """Make a script of a cell and the names that it gets, with a sentence on these for who submits."""
    missing = [name for name in names if name not in namespace]
    if missing:
        raise InvalidAsk(f"This kernel has no {' and no '.join(missing)}.", hint=_meant(missing, namespace))
    values = {name: namespace[name] for name in names}
    try:
        taken = _pickled(values)
    except Exception as error:  # noqa: BLE001 - a value's own way to be pickled may raise anything
        raise _blame(values, error) from None
    source = cell.content.decode()
    future, below = _without_future(source)
    packed = base64.b64encode(zlib.compress(taken)).decode("ascii")
    above = _ABOVE.format(future=future, names=", ".join(names), taken=packed)
    told = f"the job gets {', '.join(names)} as they are now ({format_bytes(len(taken))})"
    return msgspec.structs.replace(cell, content=(above + below).encode()), told


class _TooLargeError(Exception):
    """More than goes with a cell."""


class _OnDeviceError(Exception):
    """What lies in the memory of a GPU, and where."""


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > MOST_BYTES:
            raise _TooLargeError
        return super().write(data)


class _Pickler(cloudpickle.Pickler):
    """Stops at what lies on a GPU, however deep: to copy it here would take time, and the job may have no such GPU."""

    def persistent_id(self, value: Any) -> None:
        where = _device_of(value)
        if where is not None:
            raise _OnDeviceError(where)


def _device_of(value: Any) -> str | None:
    """The GPU that a value lies on, by its own word. Only what its type says is asked: nothing is made for it."""
    kind = type(value)
    if getattr(kind, "is_cuda", None) is not None and value.is_cuda is True:
        return str(value.device)
    if hasattr(kind, "__cuda_array_interface__"):
        try:
            return "a GPU" if isinstance(value.__cuda_array_interface__, dict) else None
        except (AttributeError, RuntimeError, TypeError):  # it lies in main memory
            return None
    return None


def _pickled(values: Mapping[str, Any]) -> bytes:
    """All in one, so that what two names share they share again."""
    room = _Bounded()
    _Pickler(room, protocol=pickle.DEFAULT_PROTOCOL).dump(dict(values))
    return room.getvalue()


def _blame(values: Mapping[str, Any], error: Exception) -> Exception:
    """Say which of the names it is, and what helps."""
    sizes: dict[str, int] = {}
    for name, value in values.items():
        try:
            sizes[name] = len(_pickled({name: value}))
        except _TooLargeError:
            return LimitExceeded(
                f"{name} takes more than {format_bytes(MOST_BYTES)}, the most that goes with a cell.", hint=_TO_A_FILE
            )
        except _OnDeviceError as found:
            return InvalidAsk(
                f"{name} lies on {found}, and the memory of a GPU does not go with a cell.",
                hint="Copy it to main memory first (`.cpu()`), or save it to a file and read that in the cell.",
            )
        except Exception as found:  # noqa: BLE001 - as above
            return InvalidAsk(
                f"{name} cannot be taken along: {found}.", hint="Make it in the cell, from names that can."
            )
    if not isinstance(error, _TooLargeError):  # it was so a moment ago
        return InvalidAsk(f"The names cannot be taken along: {error}.", hint="Submit once more.")
    shown = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
    return LimitExceeded(
        f"Together they take more than {format_bytes(MOST_BYTES)}, the most that goes with a cell: {shown}.",
        hint="Save the largest to a file, and read that in the cell.",
    )


def _meant(missing: Sequence[str], namespace: Mapping[str, Any]) -> str:
    near = [found for name in missing for found in difflib.get_close_matches(name, list(namespace), n=1)]
    return f"Did you mean {', '.join(near)}?" if near else "Run the cell that makes them first."


def _without_future(source: str) -> tuple[str, str]:
    """Take `from __future__` out of a cell, which only the head of a file may have; its lines stay where they were."""
    lines = source.split("\n")
    wanted: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            wanted += [it.name for it in node.names]
            _blank(lines, node)
    return f"from __future__ import {', '.join(wanted)}\n" if wanted else "", "\n".join(lines)


def _blank(lines: list[str], node: ast.stmt) -> None:
    """Put nothing where a statement stands: what follows it in its line stays."""
    for place in _lines_of(node):
        raw = lines[place].encode()
        start = node.col_offset if place == node.lineno - 1 else 0
        end = (node.end_col_offset or 0) if place == (node.end_lineno or 0) - 1 else len(raw)
        lines[place] = (raw[:start] + b"pass" * (place == node.lineno - 1) + raw[end:]).decode()


def _lines_of(node: ast.stmt) -> Iterator[int]:
    yield from range(node.lineno - 1, node.end_lineno or node.lineno)
