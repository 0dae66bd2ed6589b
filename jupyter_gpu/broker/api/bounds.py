"""How long, large and many the words and numbers of a caller may be.

So that nothing odd reaches a store, a terminal or a calendar, and nobody's ask takes time or memory from the others:
a body is judged by its size and its number of words before it is decoded, and what an owner has waiting by its sum.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ... import notifying
from ...core.arrays import grown_bytes, made_words, unfilled_bytes
from ...environment import MOST_TOTAL_BYTES, unpacked
from ...errors import InvalidAsk, LimitExceeded
from ...model import DEEPEST, Dependency, JobSpec, SubmitBody, World, is_deep
from ...units import MAX_SECONDS

#: All of a body but its script: twice what Linux hands to a program, and the rest.
MOST_BYTES = 3 << 20
#: What one caller may be sending and taking at a time: a few scripts of the largest size, or parts of logs.
MOST_HELD_BYTES = 128 << 20
#: Quotes in it: a hundred thousand words are decoded in some hundredths of a second, meanwhile nobody is served.
MOST_QUOTES = 200_000
MOST_VARIABLES = 10_000
MOST_RECORDED = 64
MOST_RECORDED_BYTES = 16 << 10
MOST_LOG_BYTES = 16 << 30
LONGEST_PATH_BYTES = 4096
#: What all the waiting jobs of one owner may weigh, and from where on a job counts for that.
MOST_QUEUED_BYTES = 256 << 20
LIGHT_BYTES = 8 << 10
#: One job comes after so many others or arrays, and one array has so many jobs and of each so many parameters.
MOST_AFTER = 100
MOST_MEMBERS = 5_000
#: All of an array together: so many words and variables, and so many that are put together for one of it alone.
MOST_MEMBERS_WORDS = 2_000_000
MOST_MADE_WORDS = 100_000
MOST_PARAMETERS = 64
LONGEST_PARAMETER = 4096
LONGEST_WORD = 200
MOST_KEY_CHARACTERS = 200
#: Integers above this are not the same in every JSON reader.
LARGEST_NUMBER = 2**53
#: Beyond this Python's calendar and SQLite's functions may fail, and nobody means it.
LATEST_INSTANT = 7_258_118_400

# The last ones turn the direction of a line: what is shown would not be what stands there.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class _Outline(msgspec.Struct):
    """A body of which only the place of the script is read; all else is passed by."""

    script: msgspec.Raw = msgspec.Raw()


def check_size(raw: bytes) -> None:
    """Refuse a body that would take long to decode: too large without its script, or of too many words."""
    rest = len(raw)
    if rest > MOST_BYTES:
        rest -= len(msgspec.json.decode(raw, type=_Outline).script)
    if rest > MOST_BYTES:
        raise LimitExceeded(
            f"The ask has {rest} bytes without its script; {MOST_BYTES} are the most.", hint="Put them into a file."
        )
    if (quotes := raw.count(b'"')) > MOST_QUOTES:
        raise LimitExceeded(f"The ask has {quotes // 2} words; {MOST_QUOTES // 2} are the most.", hint="Use a file.")


def too_much(name: str) -> LimitExceeded:
    """Of one who sends or takes more at a time than is kept for one."""
    return LimitExceeded(
        f"{name} sends or takes more than {MOST_HELD_BYTES} bytes at once.", hint="Do one after the other."
    )


def check_spec(spec: JobSpec) -> None:
    """Refuse what is no path, and more variables, remarks or log than anybody means."""
    for what, path in (("folder", spec.folder), ("checkpoint_dir", spec.checkpoint_dir)):
        raw = b"" if path is None else unpacked(path, what)
        if b"\0" in raw:
            raise InvalidAsk(f"{what} holds a zero byte, which no path can.", hint="Remove it.")
        if len(raw) >= LONGEST_PATH_BYTES:
            raise InvalidAsk(f"{what} has {len(raw)} bytes; Linux takes {LONGEST_PATH_BYTES - 1}.", hint="Shorten it.")
    if (variables := len(spec.environment)) > MOST_VARIABLES:
        raise LimitExceeded(f"The ask has {variables} variables; {MOST_VARIABLES} are the most.")
    if any(is_deep(value) for value in spec.parameters.values()):
        raise InvalidAsk(
            f"spec.parameters: lists and objects lie more than {DEEPEST} deep in each other.",
            hint="Put it into a file.",
        )
    for what, text in _packed(spec):
        unpacked(text, what)
    notifying.check(spec.notify, spec.notify_on)
    size = sum(len(name) + len(text) for name, text in spec.recorded.items())
    if len(spec.recorded) > MOST_RECORDED or size > MOST_RECORDED_BYTES:
        raise LimitExceeded(
            f"recorded has {len(spec.recorded)} entries of {size} characters; {MOST_RECORDED} of together "
            f"{MOST_RECORDED_BYTES} are the most.",
            hint="Keep longer remarks in a file.",
        )
    if spec.log_limit_bytes > MOST_LOG_BYTES:
        raise LimitExceeded(
            f"log_limit_bytes: {spec.log_limit_bytes} is beyond {MOST_LOG_BYTES}, which is the most.",
            hint="Let the job write large outputs into files of its own.",
        )


def _packed(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """What is read back as bytes and looked at nowhere else, by name."""
    yield from ((f"recorded.{name}", text) for name, text in spec.recorded.items())
    yield from (("mounts", text) for text in spec.mounts)
    if spec.image is not None:
        yield "image", spec.image
    if (had := spec.unfilled) is not None:
        yield from (("unfilled", text) for text in (*had.argv, *had.environment, *had.environment.values()))


def check_batch(body: SubmitBody) -> None:
    """Refuse more to come after, and larger arrays, than anybody means; and values that would break a terminal."""
    check_after(body.after)
    if len(body.array) > MOST_MEMBERS:
        raise LimitExceeded(
            f"The array has {len(body.array)} jobs; {MOST_MEMBERS} are the most.", hint="Submit several arrays."
        )
    if body.spec is not None and body.array:
        _check_members_words(body.spec, body.array)
    if body.spec is not None and (grown := grown_bytes(body.spec, body.array)) > MOST_TOTAL_BYTES:
        raise LimitExceeded(
            f"One of the array would have {grown} bytes more than what they have in common; {MOST_TOTAL_BYTES} are the "
            "most that Linux hands to a program.",
            hint="Name a parameter less often, or let the job read a file by its index.",
        )
    for parameters in body.array:
        if len(parameters) > MOST_PARAMETERS:
            raise LimitExceeded(
                f"The array has {len(parameters)} parameters; {MOST_PARAMETERS} are the most.",
                hint="Put them into a file that the job reads by its index.",
            )
        for name, text in parameters.items():
            check_word("array", name)
            if len(text) > LONGEST_PARAMETER:
                raise LimitExceeded(
                    f"The array's {name} has {len(text)} characters; {LONGEST_PARAMETER} are the most.",
                    hint="Put it into a file that the job reads.",
                )
            if not is_plain(text):
                raise InvalidAsk(
                    f"The array's {name} holds control characters: {text[:60]!a}.", hint="Put it into a file."
                )


def _check_members_words(spec: JobSpec, array: Sequence[Mapping[str, str]]) -> None:
    words, made = made_words(spec, array)
    if words > MOST_MEMBERS_WORDS:
        raise LimitExceeded(
            f"All of the array would have {words} words and variables; {MOST_MEMBERS_WORDS} are the most.",
            hint="Pass long lists in a file, or submit a smaller array.",
        )
    if made > MOST_MADE_WORDS:
        raise LimitExceeded(
            f"All of the array would have {made} words and variables with values of their own; {MOST_MADE_WORDS} are "
            "the most.",
            hint="Name parameters in fewer words, let the job read a file by its index, or submit a smaller array.",
        )


def check_after(after: Sequence[Dependency]) -> None:
    """Refuse more to come after than anybody means: each of them is looked up, and told while it is waited for."""
    if len(after) > MOST_AFTER:
        raise LimitExceeded(
            f"A job can come after {MOST_AFTER} others, not after {len(after)}.",
            hint="Come after an array as a whole, by its first, or after one job that comes after some of them.",
        )


def check_queued(world: World, owner: str, spec: JobSpec, array: Sequence[Mapping[str, str]] = ()) -> None:
    """Refuse large jobs where the owner's waiting ones weigh too much already: all of them are kept in memory."""
    each = spec.weight + grown_bytes(spec, array) + unfilled_bytes(spec, array)
    if (mine := each * max(1, len(array))) <= LIGHT_BYTES:
        return
    waiting = (it.spec for it in world.queued() if it.owner == owner)
    if (total := mine + sum(it.weight for it in waiting if it is not None)) > MOST_QUEUED_BYTES:
        raise LimitExceeded(
            f"Your waiting jobs would have {total} bytes of commands and variables; {MOST_QUEUED_BYTES} are the most.",
            hint="Pass large inputs in files, or wait until some have run.",
        )


def check_words(body: SubmitBody) -> None:
    """Refuse words that would break a table or a terminal, and numbers that no calendar has."""
    for what, word in (
        ("name", body.name),
        ("queue", body.queue),
        ("team", body.team),
        ("profile", body.profile),
        ("ask.device_class", body.ask.device_class),
        ("ask.pool", body.ask.pool),
    ):
        check_word(what, word)
    for what, number in _numbers(body):
        most = MAX_SECONDS if what.endswith("_seconds") else LARGEST_NUMBER
        if not math.isfinite(number) or abs(number) > most:
            raise InvalidAsk(f"{what}: {number} is beyond {most}, which is the most.", hint="Ask for less.")
        if number < 0:
            raise InvalidAsk(f"{what}: {number} is below zero.", hint="Leave it out, or give something above zero.")
    if body.not_before is not None and body.not_before > LATEST_INSTANT:
        raise InvalidAsk("not_before lies beyond the year 2200.", hint="Give Unix seconds.")


def check_word(what: str, word: str | None) -> None:
    """Refuse one word that is too long or holds what a terminal would obey."""
    if word is None:
        return
    if len(word) > LONGEST_WORD:
        raise InvalidAsk(f"{what} has {len(word)} characters; {LONGEST_WORD} are the most.", hint="Shorten it.")
    if not is_plain(word):
        raise InvalidAsk(f"{what} holds control characters: {word[:60]!a}.", hint="Use letters, digits and signs.")


def is_plain(word: str) -> bool:
    """Whether it holds nothing that a terminal would obey, or that shows as something else than it is."""
    return _CONTROL.search(word) is None


def as_reason(text: str) -> str:
    """What was said why, as the end of a sentence."""
    check_word("reason", text)
    return text.strip().rstrip(".")


def check_key(key: str | None) -> None:
    """An idempotency key is a word, not a text."""
    if key is not None and not (0 < len(key) <= MOST_KEY_CHARACTERS and key.isascii() and key.isprintable()):
        raise InvalidAsk(
            f"The Idempotency-Key must have 1 to {MOST_KEY_CHARACTERS} printable characters.", hint="A UUID will do."
        )


def _numbers(body: SubmitBody) -> Iterator[tuple[str, int | float]]:
    """Every number of an ask with its name; the texts, which may be many, are passed by."""
    parts: tuple[tuple[str, msgspec.Struct | None], ...] = (
        ("", body),
        ("ask.", body.ask),
        ("spec.", body.spec),
        ("holder.", body.holder),
    )
    for prefix, part in parts:
        if part is not None:
            for name in part.__struct_fields__:
                value = getattr(part, name)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    yield prefix + name, value
