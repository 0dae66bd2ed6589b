"""What a GPU out-of-memory line says beside the fact: how much was asked for and held, who else is there, whose limit.

Every framework says it in its own way, and none says all. Pure; the launcher imports it.
"""

from __future__ import annotations

import math
import re

#: "Tried to allocate 20.00 MiB": PyTorch, also on ROCm; "Cannot allocate 4.0GB memory": Paddle.
_ASKED = re.compile(r"(?:tried to|cannot) allocate ([\d.]+ ?[KMGT]?i?B)\b", re.IGNORECASE)
#: "allocate 4770354232 bytes": JAX and XLA; "allocating 805,306,368 bytes": CuPy.
_ASKED_BYTES = re.compile(r"allocat(?:e|ing) ([\d,]+) bytes", re.IGNORECASE)
#: "shape[8,64,224,224] and type float": TensorFlow, whose size is what that comes to.
_SHAPE = re.compile(r"shape ?\[([\d,]+)\] and type (\w+)")
_TYPE_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1, "int16": 2, "uint16": 2,
    "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
#: "Process 608946 has 14.91 GiB memory in use.": PyTorch, of everybody else on the card.
_OTHERS = re.compile(r"\bProcess (\d+) has [\d.]+ [KMGT]?i?B memory in use")
#: "limit set to: 1,073,741,824 bytes": CuPy's pool, which has a limit only where the program sets one.
_LIMIT = re.compile(r"limit set to: ([\d,]+) bytes")
#: "this process has 22.53 GiB memory in use" and before 2.1 "5.20 GiB already allocated": PyTorch; "allocated so far:
#: 536,870,912 bytes": CuPy. With what it asked for it is the least that it needs.
_HELD = re.compile(r"this process has ([\d.]+ [KMGT]?i?B) memory in use|; ([\d.]+ [KMGT]?i?B) already allocated")
_HELD_BYTES = re.compile(r"allocated so far: ([\d,]+) bytes")
_MOST_DIGITS = 20
_MOST_NAMED = 8


def describe(line: str) -> str:
    """Say what is known beyond the line's first words; each part begins with "; "."""
    asked, limit, others = _asked(line), _LIMIT.search(line), _OTHERS.findall(line)
    parts = []
    if asked:
        parts.append(f"it asked for {asked}")
    if limit and len(limit[1]) <= _MOST_DIGITS:
        parts.append(f"the limit was its own memory pool's, {_size(_number(limit[1]))}, not the GPU's")
    if others:
        who = "process" if len(others) == 1 else "processes"
        named = " and ".join(others) if len(others) <= 2 else ", ".join(others[:_MOST_NAMED])  # noqa: PLR2004 - two
        parts.append(f"it shared the GPU with {who} {named}")
    if held := _held(line):
        parts.append(f"it held {held} by then")
    return "".join(f"; {part}" for part in parts)


def _held(line: str) -> str | None:
    if told := _HELD.search(line):
        return told[1] or told[2]
    told = _HELD_BYTES.search(line)
    return _size(_number(told[1])) if told and len(told[1]) <= _MOST_DIGITS else None


def _asked(line: str) -> str | None:
    if told := _ASKED.search(line):
        return told[1]
    if (told := _ASKED_BYTES.search(line)) and len(told[1]) <= _MOST_DIGITS:
        return _size(_number(told[1]))
    told = _SHAPE.search(line)
    if told is None or told[2] not in _TYPE_BYTES:
        return None
    sides = [int(side[:_MOST_DIGITS]) for side in told[1].split(",") if side]
    return _size(math.prod(sides[:_MOST_NAMED]) * _TYPE_BYTES[told[2]])


def _number(text: str) -> int:
    return int(text.replace(",", "") or "0")


def _size(number: float) -> str:
    """The same units as everywhere; `units` itself is not light."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:  # noqa: PLR2004 - that is what the units are
            return f"{number:.0f} bytes" if unit == "bytes" else f"{number:.2f} {unit}"
        number /= 1024
    return f"{number:.2f} TiB"
