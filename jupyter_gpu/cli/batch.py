"""Many jobs by one command, and jobs after others: `--array lr=0.1,0.01 seed=1..5`, `--after 12,13`.

Pure. Values stay text: what a number is, and what of the command they stand in for, the broker says of each job.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidAsk

if TYPE_CHECKING:
    from ..model import Dependency

#: More than anybody means. What a lab bears the broker says; this only keeps a slip from filling our memory.
MOST_JOBS = 100_000

#: The place of a job in its array, which is no parameter and has a placeholder.
INDEX = "index"

_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
#: A word behind --array that is one more parameter of it: no command begins so.
AXIS = re.compile(rf"{_NAME.pattern}=.*", re.ASCII | re.DOTALL)
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(-?\d{1,18}))?", re.ASCII)
_VALUE = re.compile(r'(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>(?:[^",][^,]*)?))(?P<end>,|\Z)', re.DOTALL)
#: A shell's ${NAME}, a list in braces and JSON are no placeholders.
_PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][\w.-]*)\}", re.ASCII)


def read_array(words: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Give each job's parameters: every value of each with every value of the others."""
    axes: dict[str, Sequence[str]] = {}
    jobs = 1
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals):
            raise InvalidAsk(f"{word!r} gives no values.", hint="Write NAME=VALUE,VALUE or NAME=1..5.")
        if name == INDEX or not _NAME.fullmatch(name):
            raise InvalidAsk(
                f"{name!r} cannot be a parameter of an array.",
                hint=f"Use letters, digits, _, . and -; {{{INDEX}}} is the place in the array, and always there.",
            )
        if name in axes:
            raise InvalidAsk(f"{name!r} is given twice.", hint=f"Write {name}=VALUE,VALUE once.")
        ranges = list(_values(name, text))
        jobs *= sum(map(len, ranges))
        if jobs > MOST_JOBS:
            raise InvalidAsk(f"That makes {jobs} jobs, so it is taken for a slip.", hint=f"{MOST_JOBS} are the most.")
        axes[name] = _each_once(name, [value for values in ranges for value in values])
    if not axes:
        return ()
    return tuple(dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


def _each_once(name: str, values: Sequence[str]) -> Sequence[str]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise InvalidAsk(f"{name!r} has {value!r} twice.", hint="Leave one out: two jobs would be the same.")
        seen.add(value)
    return values


class _Range(Sequence[str]):
    """Whole numbers as text, made when they are wanted; with a zero in front all are as wide."""

    def __init__(self, numbers: range, width: int) -> None:
        self._numbers = numbers
        self._width = width

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return f"{self._numbers[place]:0{self._width}d}"


def _values(name: str, text: str) -> Iterator[Sequence[str]]:
    """Read the values of one parameter: plain ones, quoted ones, and ranges."""
    place, more = 0, True
    while more:
        found = _VALUE.match(text, place)
        if found is None:
            raise InvalidAsk(
                f"The values of {name!r} have a quote that does not fit: {text[place : place + 40]!r}.",
                hint='Write a value with commas as "a,b", and a quote in it twice.',
            )
        quoted, plain = found["quoted"], found["plain"]
        yield _range(plain) or [plain] if quoted is None else [quoted.replace('""', '"')]
        place, more = found.end(), bool(found["end"])


def _range(text: str) -> Sequence[str] | None:
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    step = 1 if found[3] is None else abs(int(found[3]))
    if step == 0:
        raise InvalidAsk(f"{text!r} makes no step.", hint="Write FIRST..LAST, or FIRST..LAST..STEP such as 0..10..5.")
    way = 1 if last >= first else -1
    is_padded = any(word.lstrip("-").startswith("0") and len(word.lstrip("-")) > 1 for word in found.group(1, 2))
    return _Range(range(first, last + way, way * step), max(map(len, found.group(1, 2))) if is_padded else 0)


def dependencies(after: Iterable[str], after_ok: Iterable[str]) -> tuple[Dependency, ...]:
    """Read what a job comes after: numbers, several with commas. Who must succeed must end, so it counts once."""
    from ..model import Dependency

    wanted: dict[int, bool] = {}
    for texts, ok in ((after, False), (after_ok, True)):
        for text in texts:
            for word in text.split(","):
                number = _number(word)
                wanted[number] = wanted.get(number, False) or ok
    return tuple(Dependency(workload=number, ok=ok) for number, ok in wanted.items())


def _number(word: str) -> int:
    text = word.strip().removeprefix("#")
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
        raise InvalidAsk(
            f"{word!r} is no number of a job.",
            hint="Write --after 12, or --after 12,13; `jupyter gpu queue` lists them.",
        )
    return int(text)


def notes_of_array(names: Iterable[str], argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Tell of parameters that nothing uses, and of what looks like a placeholder and is none."""
    known = [*names, INDEX]
    texts = [*argv, *environment.values()]
    notes = [
        f"the parameter {name} is used nowhere in the command: write {{{name}}} where it belongs, or read it from "
        "JUPYTER_GPU_PARAMETERS"
        for name in known[:-1]
        if not any(f"{{{name}}}" in text for text in texts)
    ]
    strange = dict.fromkeys(name for word in argv for name in _PLACEHOLDER.findall(word) if name not in known)
    shown = ", ".join(f"{{{name}}}" for name in known)
    return notes + [
        f"{{{name}}} is no parameter of the array, so it stays as it is; those are {shown}" for name in strange
    ]


def numbers_text(ids: range) -> str:
    """Say which numbers jobs have: "numbers 12 to 21"."""
    first, last = ids[0], ids[-1]
    if first == last:
        return f"number {first}"
    return f"numbers {first} and {last}" if last == first + 1 else f"numbers {first} to {last}"
