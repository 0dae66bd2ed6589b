"""Which room may import what, and how big a thing may grow: the rules of the house as one pure function.

`faults(path, source)` reads one module (its path is relative to the package) and answers what is wrong with
it, in sentences. It runs nothing and opens nothing, so its own test can feed it bad modules.
"""

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch

PACKAGE = "jupyter_gpu"

FUNCTION_LINES = 50
MODULE_LINES = 400
HANDLER_LINES = 10

WORDS = ("model", "errors", "units")

# What the core may use of the standard library: everything here gives the same answer for the same
# arguments, on every day and on every machine. Anything else is refused, so a new module is a decision.
PURE = {
    *(
        "__future__",
        "abc",
        "base64",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
    ),
    *(
        "decimal",
        "enum",
        "fractions",
        "functools",
        "graphlib",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
    ),
    *("difflib", "numbers", "operator", "re", "statistics", "string", "textwrap", "types", "typing"),
    "msgspec",  # not of the standard library, but the nouns are made of it
}

# A module and the only places that may import it.
ONLY_IN = {
    "pynvml": ("broker/telemetry/*",),
    "cronsim": ("broker/recurring.py",),
    "sqlite3": ("broker/store/*",),
    "sqlite_utils": ("broker/store/*",),
    "subprocess": ("broker/engines/*", "spawn.py"),
    "multiprocessing": ("broker/engines/*", "spawn.py"),
    "pty": ("broker/engines/*", "spawn.py"),
    "signal": ("broker/engines/*", "spawn.py", "broker/app.py", "training.py", "notebook_job.py", "notebook_kernel.py"),
}

# The same doors by other names: a call of one of these starts a process too.
_STARTS = {
    "os": ("fork", "forkpty", "popen", "posix_spawn", "posix_spawnp", "system"),
    "asyncio": ("create_subprocess_exec", "create_subprocess_shell"),
}
_STARTS_PREFIX = {"os": ("exec", "spawn")}

# What a training imports stands alone, so that it works in any environment, ours not installed.
ALONE = ("training.py", "training_*.py", "checkpoints.py")

_VERBS = {"get", "post", "put", "patch", "delete", "head", "options"}
_CLOCKS = {"now", "today", "utcnow"}
_IO = {"open", "print", "input"}


def faults(path: str, source: str) -> list[str]:
    """Say what is wrong with the module at `path`; nothing, if the list is empty."""
    tree = ast.parse(source)
    return [f"{path}:{line}: {what}" for line, what in (*_doors(path, tree), *_sizes(path, source, tree))]


def _doors(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    room = _room(path)
    for line, name in imports(path, tree):
        top = name.split(".")[0]
        inside = name.removeprefix(f"{PACKAGE}.").split(".")[0] if top == PACKAGE else None
        if top in ONLY_IN and not _is_any(path, ONLY_IN[top]):
            yield line, f"imports {top}, which only {' and '.join(ONLY_IN[top])} may"
        if room == "core" and not (inside in ("core", *WORDS) or top in PURE):
            yield line, f"imports {name}, but the core only decides: no I/O, no clock, no randomness"
        if room == "words" and inside and inside not in WORDS:
            yield line, f"imports {name}, but {', '.join(WORDS)} import nobody here but each other"
        if room == "face" and inside == "broker":
            yield line, f"imports {name}, but a face asks the broker over its socket"
        if room == "broker" and inside in ("cli", "client", "jupyter", "training"):
            yield line, f"imports {name}, but the broker knows no face"
        if _is_any(path, ALONE) and not (top in sys.stdlib_module_names or _is_any(f"{inside}.py", ALONE)):
            yield line, f"imports {name}, but what a training imports needs only the standard library"
    yield from _calls(path, room, tree)


def _calls(path: str, room: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Find the doors that need no import of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rsplit(".", 1)[-1]
            starts = node.attr in _STARTS.get(owner, ()) or node.attr.startswith(_STARTS_PREFIX.get(owner, ()))
            if starts and not _is_any(path, ONLY_IN["subprocess"]):
                yield (
                    node.lineno,
                    f"{owner}.{node.attr} starts a process, which only the engines and spawn.py do",
                )
            if room == "core" and owner in ("datetime", "date") and node.attr in _CLOCKS:
                yield node.lineno, f"{owner}.{node.attr} reads a clock, but in the core `now` is an argument"
        called = node.func if isinstance(node, ast.Call) else None
        if room == "core" and isinstance(called, ast.Name) and called.id in _IO:
            yield called.lineno, f"{called.id}() is I/O, and the core does none"


def _sizes(path: str, source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    lines = len(source.splitlines())
    if lines > MODULE_LINES:
        yield 1, f"has {lines} lines; {MODULE_LINES} are the ceiling: split it by noun"
    is_api = path.startswith("broker/api/") or path == "jupyter/handlers.py"
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES:
            yield node.lineno, f"{node.name} has {length} lines; {FUNCTION_LINES} are the ceiling"
        if is_api and node.name in _VERBS and _body_lines(node) > HANDLER_LINES:
            yield (
                node.lineno,
                f"handler {node.name} has {_body_lines(node)} lines; {HANDLER_LINES} are the ceiling",
            )


def imports(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Name what is imported in full: `from ..errors import Conflict` is jupyter_gpu.errors.Conflict."""
    package = [PACKAGE, *path.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            for alias in node.names:
                yield node.lineno, ".".join([*base, *filter(None, [node.module]), alias.name])


def _room(path: str) -> str:
    first = path.split("/", maxsplit=1)[0].removesuffix(".py")
    if first in WORDS:
        return "words"
    return first if first in ("core", "broker") else "face"


def _is_any(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count what a handler does; saying why costs nothing."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
