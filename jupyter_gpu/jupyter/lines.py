"""From the text after `%gpu` to words: split as a POSIX shell would, with the notebook's variables put in.

`{name}` and `$name` are IPython's own spelling, and mean the same here with two differences. What names none of the
user's variables stays as it is, so JSON, awk programs and `${HOME}` arrive intact (IPython formats the whole line or
none of it). And a value inside quotes stays one word, whatever it holds: `--note "{note}"`. Without quotes a value is
read as if it stood in the line. In single quotes only `{name}` is put in, as in IPython. `{{name}}` and `$$name` are
for the braces and the dollar themselves.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

_DOLLAR = re.compile(r"\$(\$?)([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*)")
_FIELD = re.compile(r"(?P<expression>.+?)(?:!(?P<conversion>[rsa]))?(?::(?P<format>[^\s{}][^{}]*))?", re.DOTALL)
_STARTS = re.compile(r"[A-Za-z_]")
_CONVERT: Mapping[str | None, Callable[[Any], Any]] = {"r": repr, "s": str, "a": ascii, None: lambda it: it}
#: Nobody writes longer expressions into a line; what is longer is data.
_LONGEST_FIELD = 500


class UnbalancedError(ValueError):
    """A quote is opened and not closed."""


def split(line: str, names: Mapping[str, Any]) -> list[str]:
    """Give the words of a line, as a POSIX shell would, after its variables were put in."""
    try:
        return shlex.split(expand(line, names))
    except ValueError:
        quote = "a backslash ends the line" if line.rstrip(" ").endswith("\\") else "a quote is opened and not closed"
        raise UnbalancedError(quote) from None


def expand(line: str, names: Mapping[str, Any]) -> str:
    """Put the variables in, such that what is split afterwards keeps each quoted value whole."""
    done: list[str] = []
    quote, at = "", 0
    while at < len(line):
        char = line[at]
        if char == "\\" and quote != "'":
            done.append(line[at : at + 2])
            at += 2
            continue
        text, length = "", 0
        if char == "{":
            text, length = _braces(line, at, names)
        elif char == "$" and quote != "'":
            text, length = _dollar(line, at, names)
        elif char == "~" and not quote and _begins_a_word(done):
            text, length = _home(line, at)
        if length:
            done.append(_quoted(text, quote))
            at += length
            continue
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        done.append(char)
        at += 1
    return "".join(done)


def _begins_a_word(done: list[str]) -> bool:
    return not done or done[-1][-1:].isspace()


def _home(line: str, at: int) -> tuple[str, int]:
    """What a shell makes of a lonely ~ or of ~/ at the beginning of a word."""
    if line[at + 1 : at + 2] not in ("", "/", " "):
        return "", 0
    return shlex.quote(os.path.expanduser("~")), 1  # noqa: PTH111 - a Path would be made text again


def _quoted(value: str, quote: str) -> str:
    """Write a value such that it is itself within the quotes around it."""
    if quote == "'":
        return value.replace("'", "'\"'\"'")
    if quote == '"':
        return value.replace("\\", "\\\\").replace('"', '\\"')
    return value


def _braces(line: str, at: int, names: Mapping[str, Any]) -> tuple[str, int]:
    """The value of `{expression}` and how much of the line it takes; nothing where it names no variable."""
    doubled = line.startswith("{{", at)
    begin = at + 1 + doubled
    if not _STARTS.match(line, begin):
        return "", 0
    end = line.find("}", begin)
    while 0 <= end <= begin + _LONGEST_FIELD:
        found = _field(line[begin:end], names)
        if found is not None:
            if not doubled:
                return found, end + 1 - at
            return (line[at + 1 : end + 1], end + 2 - at) if line.startswith("}}", end) else ("", 0)
        end = line.find("}", end + 1)
    return "", 0


def _field(text: str, names: Mapping[str, Any]) -> str | None:
    parts = _FIELD.fullmatch(text)
    whole = _value(text, names)
    if whole is not None:
        return format(whole[0])
    if parts is None or parts["expression"] == text:
        return None
    value = _value(parts["expression"], names)
    if value is None:
        return None
    try:
        return format(_CONVERT[parts["conversion"]](value[0]), parts["format"] or "")
    except (ValueError, TypeError):
        return None


def _value(text: str, names: Mapping[str, Any]) -> tuple[Any] | None:
    """Evaluate what reads as an expression of the user's variables; None for all else."""
    try:
        code = compile(text.strip(), "<gpu>", "eval")
        if not any(name in names for name in code.co_names):
            return None
        return (eval(code, dict(names)),)  # noqa: S307 - the user's own expression, as IPython evaluates it
    except Exception:  # noqa: BLE001 - whatever it raises, it is then no expression to put in
        return None


def _dollar(line: str, at: int, names: Mapping[str, Any]) -> tuple[str, int]:
    """The value of `$name` or `$name.attribute`; `$$name` is the text `$name`."""
    found = _DOLLAR.match(line, at)
    if found is None or found[2] not in names:
        return "", 0
    if found[1]:
        return found[0][1:], len(found[0])
    value, length = names[found[2]], len(found[2]) + 1
    for attribute in found[3].split(".")[1:]:
        try:
            value, length = getattr(value, attribute), length + len(attribute) + 1
        except AttributeError:
            break
    return str(value), length
