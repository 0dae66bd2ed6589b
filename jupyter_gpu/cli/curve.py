"""A curve in one line of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_SIGNS = "_.-=+*%#"


def sparkline(values: Sequence[float | None], *, fancy: bool = True, cells: int = 40) -> str:
    """Draw numbers as blocks from the lowest to the highest; a gap where there was none, and a middle where all agree.

    Where they are more than the cells, each cell is the mean of its neighbours.
    """
    shown = [_mean(values[begin:end]) for begin, end in _parts(len(values), cells)]
    known = [value for value in shown if value is not None]
    if not known:
        return " " * len(shown)
    signs = _BLOCKS if fancy else _SIGNS
    low, high = min(known), max(known)
    return "".join(" " if value is None else signs[_height(value, low, high, len(signs))] for value in shown)


def _height(value: float, low: float, high: float, steps: int) -> int:
    if high <= low:
        return steps // 2 - 1
    return min(steps - 1, int((value - low) / (high - low) * steps))


def _parts(count: int, cells: int) -> list[tuple[int, int]]:
    """Part a row into so many pieces of about one size, or into single ones where they are few."""
    pieces = min(count, cells)
    return [(place * count // pieces, (place + 1) * count // pieces) for place in range(pieces)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
