"""Arrays: one ask for many jobs that differ in parameters. All of them enter the line in one step, or none does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from ..errors import Conflict, InvalidAsk
from ..model import (
    JobSpec,
    Kind,
    Member,
    State,
    Submit,
    Unfilled,
    Workload,
    World,
    cut,
    joined,
    placeholders,
    typed_value,
    unpack_bytes,
    values_of,
)  # fmt: skip

K = TypeVar("K", int, str)

#: The place of a job in its array, from 1: a placeholder beside those of its parameters.
INDEX = "index"
_INDEX = INDEX.encode()

#: What of the record is told apart as the words are: where a notebook's results go.
_NAMES_A_FILE = frozenset({"output_notebook"})
_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


def refuse_no_array(command: Submit) -> None:
    """Refuse an array that cannot be meant: of what runs nothing, of unequal names, of equal jobs."""
    if not command.array:
        if command.at_most is not None:
            raise InvalidAsk("at_most is for an array, and this is one job", hint="Leave it out.")
        return
    if command.kind is not Kind.JOB:
        raise InvalidAsk("an array is of jobs, not of reservations", hint="Ask for one reservation.")
    if command.at_most is not None and command.at_most < 1:
        raise InvalidAsk(f"{command.at_most} at once would never start", hint="Allow 1 or more, or leave it out.")
    names = command.array[0].keys()
    for name in names:
        if name == INDEX or not _NAME.fullmatch(name):
            raise InvalidAsk(
                f"an array's parameter cannot be called {name[:60]!a}",
                hint=f"Use letters, digits, _, . and -; {INDEX!r} is the place in the array.",
            )
    seen: dict[frozenset[tuple[str, str]], int] = {}
    for index, parameters in enumerate(command.array, 1):
        if parameters.keys() != names:
            raise InvalidAsk(
                f"the parameters of the array differ: the first has {', '.join(names) or 'none'}, number {index} has "
                f"{', '.join(parameters) or 'none'}",
                hint="Give each of them a value of every parameter.",
            )
        twin = seen.setdefault(frozenset(parameters.items()), index)
        if names and twin != index:
            said = ", ".join(f"{name}={text}" for name, text in parameters.items())[:200]
            raise InvalidAsk(f"numbers {twin} and {index} of the array are the same ({said})", hint="Leave one out.")


def members(it: Workload, command: Submit) -> Iterator[Workload]:
    """The jobs of an array, after the first of them: its ids follow, and a key is the first one's alone."""
    of = len(command.array)
    template = None if it.spec is None else Template(it.spec, command.array[0])
    for index, parameters in enumerate(command.array[: command.tried], 1):
        yield msgspec.structs.replace(
            it,
            id=it.id + index - 1,
            spec=None if template is None else template.filled(parameters, index),
            member=Member(array=it.id, index=index, of=of, at_most=command.at_most, parameters=parameters),
            idempotency_key=it.idempotency_key if index == 1 else None,
        )


def concerned(world: World, it: Workload, *, only_waiting: bool) -> list[Workload]:
    """Those of the array of a job that a word for all of it can concern, or a refusal; itself where it is of none."""
    if it.member is None:
        return [it]
    found = [other for id_ in it.member.ids if (other := world.workloads.get(id_)) is not None]
    found = [other for other in found if other.state is not State.ENDED]
    if only_waiting:
        found = [other for other in found if other.state is State.QUEUED]
    if not found:
        array = f"array {it.member.array}"
        waits = f"none of {array} waits: it runs or has ended"
        raise Conflict(waits if only_waiting else f"all of {array} has ended already")
    return found


def longest(array: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The longest value of each parameter: whatever fits with these fits for each of an array."""
    names = array[0] if array else ()
    return {name: max((it.get(name, "") for it in array), key=lambda text: len(text.encode())) for name in names}


def grown_bytes(spec: JobSpec, array: Sequence[Mapping[str, str]]) -> int:
    """By how much the longest of an array may outgrow what all of it has in common; nothing is filled in for it."""
    texts = [*spec.argv, *spec.environment.values(), spec.checkpoint_dir or ""]
    raws = [raw for raw in map(_raw, texts if array else ()) if b"{" in raw]
    sizes = {name.encode(): len(text.encode()) for name, text in longest(array).items()}
    filled = sum(raw.count(b"{" + name + b"}") * size for raw in raws for name, size in sizes.items())
    # And twice as they are: as the parameters that were typed, and as what these mean.
    return filled + 2 * sum(len(name) + size for name, size in sizes.items())


def made_words(spec: JobSpec, array: Sequence[Mapping[str, str]]) -> tuple[int, int]:
    """How many words and variables all of an array have, and how many of them are put together for one of it alone."""
    each = len(spec.argv) + len(spec.environment)
    try:
        places = Template(spec, array[0]).places
    except ValueError:  # no word at all, which is said where each is looked at
        places = 0
    return each * len(array), places * len(array)


def unfilled_bytes(spec: JobSpec, array: Sequence[Mapping[str, str]]) -> int:
    """What each of an array is kept with beside its own words: those that it was submitted with."""
    texts = [*spec.argv, *(text for text in spec.environment.values() if "{" in text)]
    return sum(map(len, texts)) if array else 0


def _raw(text: str) -> bytes:
    try:
        return unpack_bytes(text)
    except ValueError:  # no word at all, which is said where each is looked at
        return b""


def member_spec(spec: JobSpec, parameters: Mapping[str, str], index: int) -> JobSpec:
    """What one of an array runs; of many, see `Template`."""
    return Template(spec, parameters).filled(parameters, index)


class Template:
    """What all of an array have in common, with the places where they differ, found once.

    Values stand where `{name}` stood, in words and in values of variables. Only the array's own names are replaced,
    each once: other braces are the command's own (a shell's, a format's). What all would write to is told apart by its
    place: a checkpoint folder that names none of them gets it as a last part.
    """

    def __init__(self, spec: JobSpec, names: Iterable[str]) -> None:
        """`names` are those of the parameters."""
        self._spec = spec
        pattern = placeholders((*names, INDEX))
        self._argv = _cut(dict(enumerate(spec.argv)), pattern)
        self._environment = _cut(spec.environment, pattern)
        self._recorded = _cut({name: spec.recorded[name] for name in _NAMES_A_FILE & spec.recorded.keys()}, pattern)
        folder = spec.checkpoint_dir
        self._folder = None if folder is None else cut(folder, pattern) or [_raw(folder).rstrip(b"/") + b"/", _INDEX]
        #: As they were, shared by all.
        self._theirs = {name: spec.environment[name] for name in self._environment}

    @property
    def places(self) -> int:
        """How many words are made anew for each of the array."""
        return len(self._argv) + len(self._environment) + len(self._recorded) + (self._folder is not None)

    def filled(self, parameters: Mapping[str, str], index: int) -> JobSpec:
        """What one of the array runs. What has no places is the same object: thousands of copies would be kept."""
        spec, texts = self._spec, {**parameters, INDEX: str(index)}
        values = values_of(texts)
        argv = list(spec.argv)
        for place, parts in self._argv.items():
            argv[place] = joined(parts, values)
        is_same = not self._argv and not self._environment
        return msgspec.structs.replace(
            spec,
            argv=tuple(argv) if self._argv else spec.argv,
            environment=_filled(spec.environment, self._environment, values),
            checkpoint_dir=None if self._folder is None else joined(self._folder, values),
            parameters={**spec.parameters, **{name: typed_value(text) for name, text in parameters.items()}},
            recorded=_filled(spec.recorded, self._recorded, values),
            unfilled=None if is_same else Unfilled(argv=spec.argv, environment=self._theirs, texts=texts),
        )


def _cut(words: Mapping[K, str], pattern: re.Pattern[bytes]) -> dict[K, list[bytes]]:
    """Those words that have places, cut there."""
    return {key: parts for key, word in words.items() if (parts := cut(word, pattern)) is not None}


def _filled(words: dict[str, str], cuts: Mapping[str, list[bytes]], values: Mapping[bytes, bytes]) -> dict[str, str]:
    return {**words, **{name: joined(parts, values) for name, parts in cuts.items()}} if cuts else words
