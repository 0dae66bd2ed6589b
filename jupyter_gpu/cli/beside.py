"""What a job is submitted with beside its command: parameters, a container, who is told, when it hangs, its record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidAsk

if TYPE_CHECKING:
    from ..model import JobSpec, Script

#: What `--mount` may say of what it mounts.
_MODES = ("ro", "rw")


def read_parameters(files: Sequence[str], pairs: Sequence[str]) -> dict[str, Any]:
    """Read parameters: those of files, of which the later ones win, and those by name, which win over all."""
    from ..model import typed_value

    found: dict[str, Any] = {}
    for file in files:
        found |= _of_file(file)
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise InvalidAsk(f"The parameter {pair!r} has no value.", hint="Write -p NAME=VALUE, such as -p lr=0.1.")
        found[name] = typed_value(text)
    return found


def _of_file(file: str) -> dict[str, Any]:
    from .script import read_file

    path = os.path.expanduser(file)  # noqa: PTH111 - a word of the command line, as the others
    try:
        content = read_file(path, MOST_FILE_BYTES)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidAsk(f"The parameters in {file!r} cannot be read: {why}.", hint="Check its name.") from None
    if len(content) > MOST_FILE_BYTES:
        raise InvalidAsk(f"{file!r} is too large for parameters.", hint="Let the job read it as its data.")
    try:
        return msgspec.convert(msgspec.yaml.decode(content), dict[str, Any])
    except (msgspec.MsgspecError, ValueError) as error:
        said = " ".join(str(error).split())
        raise InvalidAsk(
            f"{file!r} holds no parameters: {said}.", hint="Write YAML or JSON: names with their values."
        ) from None


MOST_FILE_BYTES = 1 << 20


def mount(text: str, folder: str) -> str:
    """Write a mount with the whole path of what is mounted, as every engine of containers reads it."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target.startswith("/") or mode not in ("", *_MODES):
        raise InvalidAsk(f"The mount {text!r} cannot be meant.", hint="Write SOURCE:TARGET, or SOURCE:TARGET:ro.")
    place = os.path.normpath(os.path.join(folder, os.path.expanduser(source)))  # noqa: PTH111, PTH118
    if not os.path.exists(place):  # noqa: PTH110
        raise InvalidAsk(
            f"There is no {source!r} to mount.", hint="Name a folder or a file of this machine before the colon."
        )
    return ":".join(filter(None, (place, target, mode)))


def with_wishes(spec: JobSpec, words: Mapping[str, Any], environ: Mapping[str, str]) -> JobSpec:
    """Add to what a job runs where it runs and who is told of it."""
    from .script import pack
    from .text import unpacked

    told = _told(words, environ)
    if words["image"] is None and (words["mount"] or words["container_engine"]):
        raise InvalidAsk(
            "Without an image there is no container.", hint="Name one with --image, or leave the other options out."
        )
    return msgspec.structs.replace(
        spec,
        image=words["image"],
        mounts=tuple(pack(mount(text, unpacked(spec.folder))) for text in words["mount"]),
        container_engine=words["container_engine"],
        hang_seconds=words["hang"],
        notify=told[0],
        notify_on=told[1],
    )


def _told(words: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Whom a job tells and of what: as it is said here, else as the user's own file says."""
    from ..notifying import check, check_found, wishes

    to, on = tuple(words["notify"]), tuple(it for text in words["notify_on"] for it in text.split(","))
    if words["no_notify"]:
        if to or on:
            raise InvalidAsk("--no-notify tells nobody.", hint="Leave it out, or leave --notify out.")
        return (), ()
    usual = wishes(environ)
    to, on = to or usual.to, on or usual.on
    if words["notify_on"] and not to:
        raise InvalidAsk("--notify-on names nobody to tell.", hint="Name them with --notify URL or --notify COMMAND.")
    check(to, on)
    check_found(to, environ)
    return to, on if to else ()


def with_record(spec: JobSpec, environ: Mapping[str, str]) -> tuple[JobSpec, tuple[Script, ...]]:
    """Write down with a job what its command depends on here and now."""
    from ..recording import record
    from .text import unpacked

    found = record(unpacked(spec.folder), [unpacked(word) for word in spec.argv], environ)
    return msgspec.structs.replace(spec, recorded=spec.recorded | found.words), found.record
