"""Where in a config file a setting of the policy stands, so that a fault is told with its line.

The file is Python and may do anything; what is written out in it, also by way of a name, is found, and of the rest the
nearest that is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

#: Like ("quotas", 1, "devices"); () is the policy itself.
Place = tuple[str | int, ...]


def where_in(files: Iterable[str | Path]) -> Callable[[str], str]:
    """A function that puts the file and the line before a fault; a fault that is found in none stays as it is."""
    known = [(Path(name).name, found) for name in files if (found := lines_of(Path(name)))]

    def where(problem: str) -> str:
        whole = _place_in(problem)
        for place in (whole[:length] for length in range(len(whole), 0, -1)):
            for name, lines in reversed(known):  # the last file that sets it counts
                if place in lines:
                    return f"{name}, line {lines[place]}: {problem}"
        return problem

    return where


def lines_of(path: Path) -> dict[Place, int]:
    """The line of each setting of the policy that is written out in a file."""
    found: dict[Place, int] = {}
    with suppress(OSError, SyntaxError, ValueError, RecursionError):  # whoever reads it in earnest says what is wrong
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            _record(_of_json(ast.parse(text.strip(), mode="eval").body), (), {}, found)
            return found
        assigned = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign)]
        names = {it.id: node.value for node in assigned for it in node.targets if isinstance(it, ast.Name)}
        for node in assigned:
            for target in node.targets:
                place = _place_of_target(target)
                if place is not None:
                    found[place] = node.lineno
                    _record(node.value, place, names, found)
    return found


def _of_json(node: ast.expr) -> ast.expr:
    """The policy itself, where the file is a whole config."""
    for name in ("GpuBroker", "policy"):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == name:
                node = value
    return node


def _place_of_target(node: ast.expr) -> Place | None:
    """() for c.GpuBroker.policy, ("quotas",) for c.GpuBroker.policy["quotas"]; None for what is no part of it."""
    place: Place = ()
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        if not isinstance(node.slice.value, str | int):
            return None
        place, node = (node.slice.value, *place), node.value
    is_policy = isinstance(node, ast.Attribute) and node.attr == "policy"
    if not (is_policy and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)):
        return None
    return place if node.value.attr == "GpuBroker" else None


def _record(node: ast.expr, place: Place, names: dict[str, ast.expr], found: dict[Place, int]) -> None:
    seen = set[str]()
    while isinstance(node, ast.Name) and node.id in names and node.id not in seen:
        seen.add(node.id)
        node = names[node.id]
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[*place, key.value] = key.lineno
                _record(value, (*place, key.value), names, found)
    elif isinstance(node, ast.List | ast.Tuple):
        for number, value in enumerate(node.elts):
            found[*place, number] = value.lineno
            _record(value, (*place, number), names, found)


def _place_in(problem: str) -> Place:
    """The place that a fault names: at its beginning, or as msgspec does at its end."""
    named = re.search(r"at `\$\.([^`]*)`", problem) or re.match(r"(\w+(?:\[\d+\]|\.\w+)*)", problem)
    if named is None:
        return ()
    place: Place = ()
    for name, number in re.findall(r"([A-Za-z_]\w*)|\[(\d+)\]", named[1]):
        place = (*place, int(number) if number else name)
    # "queues[1]: training.grace_seconds is -1": the setting within it.
    more = re.match(r": (?:\S+\.)?([a-z_]+) ", problem[named.end() :])
    return (*place, more[1]) if more and "`" not in named[0] else place
