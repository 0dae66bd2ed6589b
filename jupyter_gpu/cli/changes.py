"""What `again` changes of a command: `--lr 0.01` in the place of `--lr 0.1`. Pure.

Only what is there is changed, and only where it is certain which words are meant: a job that runs with other words than
its person thinks costs a night.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import InvalidAsk
from .batch import INDEX
from .text import command_line

#: A word of an option. A number below zero is a value.
_OPTION = re.compile(r"-{1,2}[A-Za-z_].*", re.DOTALL)
_OVERRIDE = re.compile(r"(\+{0,2}[A-Za-z_][\w.@/-]*)=.*", re.DOTALL)


class Change(NamedTuple):
    """One option with the words that it is to have: `--lr`, or `lr` of a word lr=0.01; none for one without a value."""

    name: str
    values: tuple[str, ...]
    #: The value stands behind a sign of equality, in one word with the name.
    is_joined: bool


class Changed(NamedTuple):
    """The command and the parameters as they are now, what differs in words, and the values to be filled in."""

    argv: list[str]
    parameters: dict[str, Any]
    differs: list[str]
    texts: dict[str, str]


def read_changes(words: Sequence[str]) -> list[Change]:
    """Read `--lr 0.01 --layers 1 2 --epochs=3 model.dim=64`."""
    found: list[Change] = []
    for word in words:
        override = _OVERRIDE.fullmatch(word)
        name, equals, value = word.partition("=")
        if _OPTION.fullmatch(word):
            found.append(Change(name, (value,) if equals else (), bool(equals)))
        elif found and not found[-1].is_joined and not (found[-1].values and override is not None):
            found[-1] = found[-1]._replace(values=(*found[-1].values, word))
        elif override is not None:
            found.append(Change(override[1], (word.partition("=")[2],), is_joined=True))
        else:
            raise InvalidAsk(
                f"{word!r} is no change of an option.", hint="Write --NAME VALUE or NAME=VALUE, as the command has it."
            )
    return found


def change(
    argv: Sequence[str],
    parameters: Mapping[str, Any],
    changes: Sequence[Change],
    *,
    first: int,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Changed:
    """Put each change in the place of what is there; the command's own words begin at `first`.

    `texts` are values of an array, where the command has `{name}` for them: what stands in such a place is a change of
    the parameter, and so of every place that it stands in.
    """
    now, known, differs, filled = list(argv), dict(parameters), [], dict(texts)
    for it in changes:
        places = [place for place in range(first, len(now)) if _is_named(now[place], it.name)]
        parameter = it.name.lstrip("-")
        named = next((name for name in (parameter, parameter.replace("-", "_")) if name in known), None)
        if not places and named is not None and len(it.values) == 1:
            differs.append(set_parameter(known, filled, named, it.values[0]))
            continue
        if len(places) != 1:
            raise _not_certain(it, argv, known, len(places))
        before_words, words = _replaced(now, places[0], it)
        words, meant = _parameters_in(before_words, words, filled)
        differs += [set_parameter(known, filled, name, text) for name, text in meant]
        if words == before_words:
            continue
        now[places[0] : places[0] + len(before_words)] = words
        differs.append(f"{command_line(words)} instead of {command_line(before_words)}")
    return Changed(now, known, differs, filled)


def set_parameter(known: dict[str, Any], texts: dict[str, str], name: str, text: str) -> str:
    """Give a parameter another value, also where it is filled into words; say what differs."""
    from ..model import typed_value

    before = f" instead of {known[name]!r}" if name in known else ""
    known[name] = typed_value(text)
    if name in texts and name != INDEX:
        texts[name] = text
    return f"{name}: {known[name]!r}{before}"


def _parameters_in(
    before: Sequence[str], after: Sequence[str], texts: Mapping[str, str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Tell which new words are values of parameters, whose places stay; a value that is part of a word is refused."""
    words, found = list(after), []
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        names = [name for name in texts if name != INDEX and f"{{{name}}}" in old]
        if not names or old == new:
            continue
        head, _, tail = old.partition(f"{{{names[0]}}}")
        if len(names) > 1 or tail or (head and not (head.endswith("=") and new.startswith(head))):
            values = ", ".join(f"{name}={texts[name]}" for name in names)
            raise InvalidAsk(
                f"{old!r} was filled in with {values}, so it is not certain what {new!r} makes of that.",
                hint=f"Give the parameter another value: -p {names[0]}=VALUE.",
            )
        words[place] = old
        found.append((names[0], new.removeprefix(head)))
    return words, found


def _is_named(word: str, name: str) -> bool:
    if name.startswith("-"):
        return word == name or word.startswith(f"{name}=")
    return word.startswith(f"{name}=")


def _replaced(argv: Sequence[str], place: int, it: Change) -> tuple[list[str], list[str]]:
    """The words that are there for an option, and those that take their place."""
    word = argv[place]
    if "=" in word and word != it.name:
        if len(it.values) != 1:
            raise InvalidAsk(
                f"{word!r} has one value there, and {len(it.values)} are given.", hint=f"Write {it.name}=VALUE."
            )
        return [word], [f"{it.name}={it.values[0]}"]
    behind = 0
    while place + 1 + behind < len(argv) and not _OPTION.fullmatch(argv[place + 1 + behind]):
        behind += 1
    wanted = len(it.values)
    # One value replaces the next word. Several must be as many as there are: what follows them may be no value.
    if wanted == 0 or behind < wanted or (wanted > 1 and behind != wanted):
        raise InvalidAsk(
            f"{it.name} has {behind} words behind it there, and {wanted} are given: it is not certain which are meant.",
            hint=f"The command is: {command_line(argv)}",
        )
    before = list(argv[place : place + 1 + wanted])
    return before, [word, *it.values]


def _not_certain(it: Change, argv: Sequence[str], parameters: Mapping[str, Any], count: int) -> InvalidAsk:
    where = "is not in the command" if count == 0 else f"is {count} times in the command"
    known = f" Its parameters: {', '.join(parameters)}." if parameters else ""
    return InvalidAsk(
        f"{it.name} {where}, so it cannot be changed.", hint=f"The command is: {command_line(argv)}.{known}"
    )


def differing_files(then: bytes, now: bytes) -> list[str]:
    """Name the files of which two texts of `git diff` do not say the same."""
    before, after = ({part.partition(b"\n")[0]: part for part in _PARTS.split(it)[1:]} for it in (then, now))
    found = [name for name in before | after if before.get(name) != after.get(name)]
    return sorted(name.rpartition(b" b/")[2].decode("utf-8", "replace") for name in found)


_PARTS = re.compile(rb"^diff --git ", re.MULTILINE)
