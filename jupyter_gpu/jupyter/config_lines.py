"""Which line of a config file holds what cannot be meant."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple


class Caller(NamedTuple):
    """Where a function was called from: the file and the line."""

    file: str
    line: int

    def __str__(self) -> str:
        """As editors take it."""
        return f"{self.file}, line {self.line}"

    def item(self, keyword: str, number: int) -> Caller:
        """The line where an item of a list stands that was given by keyword; the call's own where it is not plain."""
        try:
            tree = ast.parse(Path(self.file).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):  # typed in somewhere, or generated
            return self
        calls = [it for it in ast.walk(tree) if isinstance(it, ast.Call) and self._holds(it)]
        # Where calls stand in each other, the innermost that takes such a keyword was meant.
        given = [arg.value for call in reversed(calls) for arg in call.keywords if arg.arg == keyword]
        items = _items(given[0], tree) if given else []
        return self._replace(line=items[number].lineno) if number < len(items) else self

    def _holds(self, call: ast.Call) -> bool:
        return call.lineno <= self.line <= (call.end_lineno or call.lineno)


def caller(depth: int = 1) -> Caller:
    """Who called the function that asks; deeper by one for each function between."""
    frame = sys._getframe(depth + 1)  # noqa: SLF001 - inspect reads the source of the whole stack
    return Caller(frame.f_code.co_filename, frame.f_lineno)


def _items(value: ast.expr, tree: ast.Module) -> list[ast.expr]:
    """What stands in a list, written there or under the name that stands there."""
    if isinstance(value, ast.Name):
        named = [
            it.value
            for it in tree.body
            if isinstance(it, ast.Assign)
            for target in it.targets
            if isinstance(target, ast.Name) and target.id == value.id
        ]
        value = named[-1] if named else value
    items = value.elts if isinstance(value, ast.List | ast.Tuple) else []
    return [] if any(isinstance(it, ast.Starred) for it in items) else items
