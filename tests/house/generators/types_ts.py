"""labextension/src/types.ts, from the model's documents and those of the server extension.

An enum is a union of its words. A field that is left out of JSON where it has its default may be missing (`?`), and one
that may be None may be null; in a body that a page sends a field with a default may be left out.
"""

import enum
import inspect
import types
import typing
from collections.abc import Iterator

import msgspec

from jupyter_gpu import notebooks
from jupyter_gpu.jupyter import documents as ours
from jupyter_gpu.model import (
    bodies,
    devices,
    documents,
    histories,
    hold_views,
    jobs,
    nouns,
    prospects,
    quota_views,
    recurring,
    states,
)  # fmt: skip

TARGET = "labextension/src/types.ts"

_HEAD = """\
/**
 * What the broker and the server extension say, as JSON. Instants are Unix seconds; null and what is
 * missing mean "not known" and read "n/a", never 0.
 *
 * Written by `make generate` from jupyter_gpu/model and jupyter_gpu/jupyter/documents.py.
 */
"""
#: What a page sends or gets; all that these mention comes along.
ROOTS = (
    documents.Error, ours.Frame, ours.KernelList, ours.PinAnswer, ours.Hello, ours.FileJobView, ours.NotebookView,
    histories.AttemptPage, histories.ProgressPage, histories.RecurringPage,
)  # fmt: skip
BODIES = (ours.KernelAsk, ours.PinBody, ours.FileJob, bodies.SubmitBody, bodies.ExtendBody, bodies.ReleaseBody)

_MODULES = (
    states, jobs, nouns, devices, recurring, bodies, hold_views, prospects, quota_views, documents, histories,
    notebooks, ours,
)  # fmt: skip
_PLAIN = {str: "string", bytes: "string", int: "number", float: "number", bool: "boolean", types.NoneType: "null"}
_WIDTH = 100


def render() -> str:
    """Write each type once, in the order in which they are defined."""
    found: dict[type, None] = {}
    for root in (*ROOTS, *BODIES):
        _collect(root, found)
    order = {it: place for module in _MODULES for place, it in enumerate(_defined_in(module))}
    modules = [module.__name__ for module in _MODULES]
    chosen = sorted(found, key=lambda it: (modules.index(it.__module__), order[it]))
    written = [_enum(it) if issubclass(it, enum.Enum) else _struct(it) for it in chosen]
    return "\n".join([_HEAD, *written, _alias("Frame", ours.Frame)])


def _defined_in(module: types.ModuleType) -> Iterator[type]:
    return (it for it in vars(module).values() if isinstance(it, type) and it.__module__ == module.__name__)


def _collect(hint: object, found: dict[type, None]) -> None:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct | enum.Enum):
        if hint in found:
            return
        found[hint] = None
        if issubclass(hint, msgspec.Struct):
            for inner in typing.get_type_hints(hint).values():
                _collect(inner, found)
        return
    for inner in typing.get_args(hint):
        _collect(inner, found)


def _enum(it: type[enum.Enum]) -> str:
    return _comment(it) + _union(f"export type {it.__name__} =", [f"'{member.value}'" for member in it])


def _struct(it: type[msgspec.Struct]) -> str:
    config = it.__struct_config__
    may_be_missing = config.omit_defaults or it in BODIES
    lines = [f"  readonly {config.tag_field}: '{config.tag}';\n"] if config.tag is not None else []
    hints = typing.get_type_hints(it)
    for field in msgspec.structs.fields(it):
        mark = "?" if may_be_missing and not field.required else ""
        lines.append(f"  readonly {field.encode_name}{mark}: {_write(hints[field.name])};\n")
    return f"{_comment(it)}export interface {it.__name__} {{\n{''.join(lines)}}}\n"


def _comment(it: type) -> str:
    first = inspect.getdoc(it).split("\n\n")[0]
    return f"/** {' '.join(first.split())} */\n"


def _alias(name: str, hint: object) -> str:
    words = [_write(inner) for inner in typing.get_args(hint)]
    return "/** One message of the stream. */\n" + _union(f"export type {name} =", words)


def _union(begin: str, words: list[str]) -> str:
    line = f"{begin} {' | '.join(words)};\n"
    if len(line) <= _WIDTH + 1:
        return line
    second = f"  {' | '.join(words)};\n"
    if len(second) <= _WIDTH + 1:
        return f"{begin}\n{second}"
    return begin + "".join(f"\n  | {word}" for word in words) + ";\n"


def _write(hint: object) -> str:
    """One Python annotation as TypeScript."""
    if hint is typing.Any:
        return "unknown"
    if isinstance(hint, type) and hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct | enum.Enum):
        return hint.__name__
    arguments = typing.get_args(hint)
    match typing.get_origin(hint):
        case types.UnionType | typing.Union:
            return " | ".join(map(_write, arguments))
        case typing.Literal:
            return " | ".join(f"'{word}'" for word in arguments)
        case origin if origin is dict:
            return f"Readonly<Record<string, {_write(arguments[1])}>>"
        case origin if origin is tuple:
            return f"readonly {_write(arguments[0])}[]"
    raise TypeError(f"{hint!r} has no TypeScript yet; say here what it is")
