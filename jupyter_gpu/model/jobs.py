"""What a job runs: the command with its folder, environment, copies and wishes."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec


class Unfilled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a member of an array was submitted as, where values of its own stand in its words now."""

    #: With `{name}` in place of the values; of the variables only those whose values had some.
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    #: The values, as they were written.
    texts: dict[str, str] = {}


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job runs. Text that is no UTF-8 is packed by `pack_bytes`, so argv arrives byte for byte."""

    argv: tuple[str, ...]
    #: The folder of submission: working folder and first on sys.path.
    folder: str
    #: Only what the user asked for and what the scrubbing let through; never secrets.
    environment: dict[str, str] = {}
    #: The place in argv of the submitted script, whose copy runs instead.
    script_index: int | None = None
    #: Where the copy lies, readable by the account that runs it.
    script_copy: str | None = None
    checkpoint_dir: str | None = None
    #: How many failed attempts are repeated; None leaves it to the policy's rule.
    retries: int | None = None
    grace_seconds: int | None = None
    log_limit_bytes: int = 1 << 30
    core_dumps: bool = False
    #: What outlives the main process gets SIGTERM, and SIGKILL so much later.
    leftover_seconds: int = 5
    #: What a notebook's parameters, and of an array's member its place in it, come to: JSON values by name.
    parameters: dict[str, Any] = {}
    #: A container image to run in, what of this machine it sees ("SOURCE:TARGET[:ro]"), and by which program.
    image: str | None = None
    mounts: tuple[str, ...] = ()
    container_engine: str | None = None
    #: No report, no log and idle GPUs for so long: it hangs, and is started anew from its checkpoint.
    hang_seconds: int | None = None
    #: Who is told of it, by URL or command, and of what ("ended", "failed", ...); nothing named is all.
    notify: tuple[str, ...] = ()
    notify_on: tuple[str, ...] = ()
    #: Markers of reproducibility: git commit, interpreter; recorded, never used.
    recorded: dict[str, str] = {}
    #: What of it is too long for a word (the git diff, the list of packages): by name, where its copy lies.
    kept: dict[str, str] = {}
    #: So that it can be submitted again with another value; None where nothing was filled in.
    unfilled: Unfilled | None = None

    @property
    def weight(self) -> int:
        """About how much of memory and store it takes, in characters; an empty word has a place of its own too."""
        had = self.unfilled or _NOTHING
        of_words = (
            *(self.argv, self.environment, self.environment.values(), self.recorded, self.recorded.values()),
            *(had.argv, had.environment, had.environment.values(), had.texts.values()),
        )
        own = len(self.folder) + sum(sum(map(len, words)) + len(words) * WORD_WEIGHT for words in of_words if words)
        return own + (weight_of(self.parameters) if self.parameters else 0)

    def brief(self) -> str:
        """What tells a job from its neighbours in one line: the script without its folder, and the arguments."""
        argv = [readable(word, "replace")[:_BRIEF_CHARACTERS] for word in self.argv[:_BRIEF_WORDS]]
        if len(argv) == _SHELL_WORDS and argv[0].endswith("sh") and argv[1] == "-c":
            return argv[-1][:_BRIEF_CHARACTERS]
        first = min(self.script_index or 0, len(argv) - 1)
        return shlex.join([argv[first].rpartition("/")[2] or argv[first], *argv[first + 1 :]])[:_BRIEF_CHARACTERS]


class Dependency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job comes after. An array is named by its first member's id, and means all of it."""

    workload: int
    #: It must have succeeded; else any end will do, save one before it ever began.
    ok: bool = False


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a job in an array: jobs that were submitted as one and differ in parameters."""

    #: The id of the first of them; the others have the ids that follow.
    array: int
    #: Counted from 1.
    index: int
    of: int
    #: So many of them run at once; None for as many as there is room.
    at_most: int | None = None
    #: What tells it from the others, as text.
    parameters: dict[str, str] = {}

    @property
    def ids(self) -> range:
        """The ids of the whole array."""
        return range(self.array, self.array + self.of)


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an attempt says it is. Observed: no fact of the log, like a reading of a device."""

    at: float
    attempt: int
    step: int
    of: int | None = None
    #: What else it reported: loss, accuracy. None is what was no finite number.
    numbers: dict[str, float | None] = {}
    #: The first word of the same attempt, which may go on where another ended: what its pace is counted from.
    from_at: float | None = None
    from_step: int | None = None


_NOTHING = Unfilled()

#: What a word takes beside its characters: its place in a list, its quotes and comma in the log.
WORD_WEIGHT = 16
#: So deep may lists and objects in a parameter lie in each other: what reads and writes them goes down as deep.
DEEPEST = 32

_BRIEF_CHARACTERS = 200
_BRIEF_WORDS = 50
#: A shell, -c, and its text.
_SHELL_WORDS = 3

_PACKED = "base64:"


def placeholders(names: Iterable[str]) -> re.Pattern[bytes]:
    """What finds `{name}` of these names, and of no others."""
    return re.compile(rb"\{(" + b"|".join(re.escape(name.encode()) for name in names) + rb")\}")


def cut(text: str, pattern: re.Pattern[bytes]) -> list[bytes] | None:
    """A packed word around its placeholders: what stands before one, its name, and so on; None where there is none."""
    if "{" not in text and not text.startswith(_PACKED):
        return None
    parts = pattern.split(unpack_bytes(text))
    return parts if len(parts) > 1 else None


def joined(parts: Sequence[bytes], values: Mapping[bytes, bytes]) -> str:
    """The packed word with values in the place of the names; what a value says is not looked at again."""
    return pack_bytes(b"".join(values[part] if place % 2 else part for place, part in enumerate(parts)))


def values_of(texts: Mapping[str, str]) -> dict[bytes, bytes]:
    """What stands where `{name}` stood, as bytes."""
    return {name.encode(): text.encode("utf-8") for name, text in texts.items()}


def filler(texts: Mapping[str, str]) -> Callable[[str], str]:
    """What puts texts where `{name}` stands in a packed word: of these names only, and each once."""
    pattern, values = placeholders(texts), values_of(texts)

    def filled(text: str) -> str:
        parts = cut(text, pattern)
        return text if parts is None else joined(parts, values)

    return filled


def typed_value(text: str) -> Any:
    """What a parameter's text means: a number, true, false, null, a list or object, or "quoted" as JSON; else itself.

    Not as YAML, whose `1e-3` is a text and whose `no` is false. Nor what lies deeper in itself than anybody means.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return text if is_deep(value) else value


def is_deep(value: Any) -> bool:
    """Whether lists and objects in it lie deeper in each other than DEEPEST."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        level = [
            inner
            for it in level
            if isinstance(it, dict | list)
            for inner in (it.values() if isinstance(it, dict) else it)
        ]
        depth += 1
    return bool(level)


def weight_of(value: Any) -> int:
    """About how many characters a JSON value takes, however deep it is."""
    weight, left = 0, [value]
    while left:
        it = left.pop()
        weight += WORD_WEIGHT
        if isinstance(it, str):
            weight += len(it)
        elif isinstance(it, int):
            weight += it.bit_length() // 3
        elif isinstance(it, dict):
            weight += sum(map(len, it))
            left.extend(it.values())
        elif isinstance(it, list | tuple):
            left.extend(it)
    return weight


def pack_bytes(raw: bytes) -> str:
    """Write bytes as text that JSON can carry: UTF-8 as it is, all else (and the prefix itself) as "base64:..."."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = _PACKED
    if text.startswith(_PACKED):
        return _PACKED + base64.b64encode(raw).decode("ascii")
    return text


def unpack_bytes(text: str) -> bytes:
    """Read back what `pack_bytes` wrote, byte for byte; ValueError where it did not write that."""
    if text.startswith(_PACKED):
        return base64.b64decode(text[len(_PACKED) :], validate=True)
    return text.encode("utf-8")


def readable(text: str, errors: str = "surrogateescape") -> str:
    """A packed text for reading, bytes that are no UTF-8 as surrogates; what is no packed text stands for itself."""
    try:
        return unpack_bytes(text).decode("utf-8", errors)
    except ValueError:
        return text
