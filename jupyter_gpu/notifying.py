"""Whom a job tells of its life, and the short process of its user that tells them.

    ~/.config/jupyter-gpu/notify.toml

    default = ["chat"]              # of every job whose submission says nothing else
    on = ["ended", "preempted"]     # and of this only; all of it where it is not said
    [targets]
    chat = "https://chat.example.org/hooks/5d41402a"
    mail = "mail -s jupyter-gpu ada@example.org"

A submission names targets of that file, or an address or a command itself. Addresses of hooks are secrets mostly, so
the names alone are kept with the job, and what they mean is read when there is something to tell, by a process of the
user: the broker itself opens no address that a user names. A command gets the same document on its standard input.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from . import spawn
from .errors import InvalidAsk

#: What a job may tell of.
MOMENTS = ("started", "starts-soon", "preempted", "hung", "ended", "failed", "left-out")
MOST_TARGETS = 5
LONGEST_TARGET = 2000
MOST_FILE_BYTES = 64 << 10
LONGEST_VARIABLE_BYTES = 64 << 10
#: One try may take so long; then it is tried again after these pauses.
TRY_SECONDS = 15.0
PAUSES_SECONDS = (2.0, 8.0)
_ADDRESS = ("http://", "https://")


class News(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a workload."""

    #: The store's id and the event's number: the same news told twice has the same.
    id: str
    at: float
    what: str
    #: The job, or the recurring job.
    workload: int
    name: str
    owner: str
    text: str
    end: str | None = None
    attempt: int = 0


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a target gets, as JSON. `text` alone is what most chats show."""

    text: str
    news: tuple[News, ...]


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What the process that tells is asked to do."""

    to: str
    message: Message


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a user's jobs tell when a submission says nothing else."""

    to: tuple[str, ...] = ()
    on: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    default: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    targets: dict[str, str] = {}


def check(to: Sequence[str], on: Sequence[str]) -> None:
    """Refuse what could tell nobody."""
    if len(to) > MOST_TARGETS:
        raise InvalidAsk(f"{len(to)} are to be told; {MOST_TARGETS} are the most.", hint="Let one pass it on.")
    for moment in on:
        if moment not in MOMENTS:
            raise InvalidAsk(
                f"A job does not tell when it {moment[:40]!r}.", hint=f"Use some of: {', '.join(MOMENTS)}."
            )
    for target in to:
        _check_target(target)


def _check_target(target: str) -> None:
    if not target.strip() or len(target) > LONGEST_TARGET or not target.isprintable():
        raise InvalidAsk(
            f"Nobody can be told by {target[:40]!r}.", hint="Name a target of your notify.toml, a URL or a command."
        )
    if target.startswith(_ADDRESS):
        try:
            place = urlsplit(target)
            is_meant = bool(place.hostname) and place.port != 0
        except ValueError:
            place, is_meant = urlsplit(""), False
        if not is_meant or place.username is not None:
            raise InvalidAsk(
                "That is no address that can be kept with a job.",
                hint=f"Write it into {file_of({})} under a name, and give the name: it may hold a secret.",
            )
        return
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise InvalidAsk(f"The command {target[:80]!r} has {error}.", hint="Quote it as for a shell.") from None
    if not words:
        raise InvalidAsk("There is nobody to tell.", hint="Name a target of your notify.toml, a URL or a command.")


def check_found(to: Sequence[str], environ: Mapping[str, str]) -> None:
    """Refuse at the submission, while somebody is there to mend it, whom nobody would be found by at night."""
    named = _read(environ).targets if to else {}
    for target in to:
        means = named.get(target, target)
        _check_target(means)
        if not means.startswith(_ADDRESS):
            _check_program(target, shlex.split(means)[0], environ)


def _check_program(target: str, program: str, environ: Mapping[str, str]) -> None:
    # It runs in no folder of its user's, so a path that begins here would be another one there.
    is_seen_from_here = "/" in program and not program.startswith("/")
    if not is_seen_from_here and shutil.which(program, path=environ.get("PATH", os.defpath)) is not None:
        return
    place = file_of(environ)
    if target != program or "/" in program:
        raise InvalidAsk(
            f"Nobody would be told by {target[:80]!r}: "
            + (
                f"{program[:80]!r} does not begin with a slash."
                if is_seen_from_here
                else f"there is no command {program[:80]!r}."
            ),
            hint="Write the whole path of the command: it is run in no folder of yours.",
        )
    raise InvalidAsk(
        f"There is no target {target[:80]!r} in {place}, and no command of that name on your PATH.",
        hint=f'Write it there, below a line [targets]: {target[:80]} = "https://...", or name a URL or a command.',
    )


def file_of(environ: Mapping[str, str]) -> Path:
    """Where a user says how they want to be told."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or "~", ".config")  # noqa: PTH118
    return Path(base, "jupyter-gpu", "notify.toml")


def wishes(environ: Mapping[str, str]) -> Wishes:
    """What the user's file says of jobs whose submission says nothing; InvalidAsk where it cannot be meant."""
    kept = _read(environ)
    check(kept.default, kept.on)
    return Wishes(to=kept.default, on=kept.on)


def _read(environ: Mapping[str, str]) -> _File:
    place = file_of(environ)
    try:
        with place.open("rb") as file:
            return msgspec.convert(tomllib.loads(file.read(MOST_FILE_BYTES).decode()), _File)
    except (FileNotFoundError, NotADirectoryError):
        return _File()
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise InvalidAsk(
            f"{place} cannot be read: {error}.", hint="docs/notifications.md shows what stands in it."
        ) from None


# -- the process that tells


def main() -> int:
    """Do one errand, given on standard input; 0 once somebody was told."""
    errand = msgspec.json.decode(sys.stdin.buffer.read(), type=Errand)
    try:
        target = _read(os.environ).targets.get(errand.to, errand.to)
        _check_target(target)
    except InvalidAsk as error:
        return _failed(error.message)
    trouble = ""
    for pause_seconds in (0.0, *PAUSES_SECONDS):
        time.sleep(pause_seconds)
        trouble, is_final = _tell(target, errand.message)
        if not trouble:
            return 0
        if is_final:
            break
    return _failed(trouble)


def _failed(trouble: str) -> int:
    sys.stderr.write(trouble.strip()[:500] + "\n")
    return 1


def _tell(target: str, message: Message) -> tuple[str, bool]:
    """Why it could not be told, empty where it was; and whether another try is of no use."""
    if target.startswith(_ADDRESS):
        return _post(target, message)
    text = msgspec.json.encode(message).decode() + "\n"
    newest = message.news[-1]
    # The kernel takes no longer variable than 128 KiB; the document on standard input is whole.
    words_said = message.text.encode("utf-8", "replace")[:LONGEST_VARIABLE_BYTES].decode("utf-8", "ignore")
    said: dict[str, Any] = {"TEXT": words_said, "WHAT": newest.what, "WORKLOAD": newest.workload}
    environ = {**os.environ, **{f"JUPYTER_GPU_NEWS_{name}": str(value) for name, value in said.items()}}
    words = shlex.split(target)
    done = spawn.run(words, TRY_SECONDS, text=text, environ=environ)
    if done.exit_code == 0:
        return "", True
    if done.exit_code == spawn.NOT_FOUND:
        return f"there is no command {words[0]!r}", True
    # One that hangs may have told somebody already, and hangs again.
    how = "did not end in time" if done.exit_code is None else f"ended with {done.exit_code}: {done.errors}"
    return f"{words[0]} {how}", done.exit_code is None


def _post(url: str, message: Message) -> tuple[str, bool]:
    import httpx  # noqa: PLC0415 - a command needs none of it

    place = urlsplit(url).hostname or ""
    try:
        # The answer's words are let go unread: they may have no end.
        with httpx.stream(
            "POST",
            url,
            content=msgspec.json.encode(message),
            headers={"Content-Type": "application/json", "User-Agent": "jupyter-gpu"},
            timeout=TRY_SECONDS,
        ) as answer:
            pass
    except httpx.HTTPError as error:
        return f"{place} cannot be reached: {str(error) or type(error).__name__}", False
    if answer.is_success:
        return "", True
    # The rest of the address may be a secret, and this goes to a log.
    return f"{place} answered {answer.status_code}", answer.is_client_error and answer.status_code != _TOO_MANY


_TOO_MANY = 429


if __name__ == "__main__":
    sys.exit(main())
