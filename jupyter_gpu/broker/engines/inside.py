"""The last steps of a job's own process: try the nodes that are withheld from it, say what was found, exec.

    python -I -S inside.py REPORT_FD TASK_FD OPENING_FD

The supervisor's child calls these functions itself. Where bubblewrap is between the two, this file is what it runs:
then what is to be executed comes through TASK_FD, and so that nobody but the job's own user has to be able to read our
folders, the file itself and `opening`, which it tries the nodes with, are handed on as open ones. Standard library
only, and of that hardly anything.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


def probe(nodes: list[str], try_to_open: Callable[[str], str]) -> dict[str, list[str]]:
    """Try each: which did open, and which are not there. What is in neither list was refused."""
    found: dict[str, list[str]] = {"opened": [], "missing": []}
    for node in nodes:
        answer = try_to_open(node)
        if answer != "refused":
            found["missing" if answer == "missing" else "opened"].append(node)
    return found


def execute(argv: list[bytes], environment: dict[bytes, bytes]) -> NoReturn:
    """Search the job's own PATH; a file that may not be executed is told only if no other is found."""
    if b"/" in argv[0]:
        os.execve(argv[0], argv, environment)
    denied: OSError | None = None
    for folder in environment[b"PATH"].split(b":"):
        path = os.path.join(folder or b".", argv[0])  # noqa: PTH118
        try:
            os.execve(path, argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except PermissionError as error:
            # A folder that this user may not even look into (the broker's own) has nothing to say.
            denied = error if os.path.lexists(path) else denied
    raise denied or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def say(report: int, content: dict[str, Any]) -> None:
    """Tell the supervisor; one line, whole."""
    import json  # noqa: PLC0415 - it takes longer to import than all else here, and mostly is not needed inside

    _write(report, json.dumps(content).encode() + b"\n")


def say_found(report: int, found: dict[str, Any]) -> None:
    """Tell what a probe found, which mostly is nothing."""
    if found == {"opened": [], "missing": []}:
        _write(report, b'{"isolation": {"opened": [], "missing": []}}\n')
    else:
        say(report, {"isolation": found})


def pack(withheld: list[bytes], argv: list[bytes] | None, environment: dict[bytes, bytes]) -> bytes:
    """What is to be tried and what to be executed, such that it is read without any library."""
    variables = [name + b"=" + value for name, value in environment.items()]
    head = b"%d %d" % (len(withheld), -1 if argv is None else len(argv))
    return b"\0".join([head, *withheld, *(argv or []), *variables])


def unpack(packed: bytes) -> tuple[list[bytes], list[bytes] | None, dict[bytes, bytes]]:
    """The same, read again."""
    head, *words = packed.split(b"\0")
    nodes, length = (int(word) for word in head.split())
    argv = None if length < 0 else words[nodes : nodes + length]
    variables = [word.partition(b"=") for word in words[nodes + max(0, length) :]]
    return words[:nodes], argv, {name: value for name, _, value in variables}


def say_failed(report: int, step: str, error: BaseException) -> None:
    """Tell at which step it failed, and of what."""
    number = error.errno if isinstance(error, OSError) else None
    text = os.strerror(number) if number else f"{type(error).__name__}: {error}"
    say(report, {"step": step, "errno": number, "text": text})


def _write(report: int, line: bytes) -> None:
    try:
        os.write(report, line)
    except OSError:  # the supervisor is dead, and so are we in a moment
        return


def _whole(file: int) -> bytes:
    return os.read(file, os.fstat(file).st_size)


def _main() -> NoReturn:
    own, (report, task, opening) = sys.argv[0], (int(word) for word in sys.argv[1:])
    step = "prepare"
    try:
        for fd in (report, task, opening, int(own.rpartition("/")[2])):
            os.set_inheritable(fd, False)  # noqa: FBT003 - it takes no keyword
        withheld, argv, environment = unpack(_whole(task))
        names: dict[str, Any] = {}
        exec(_whole(opening), names)  # noqa: S102 - it is ours, from a folder that this user may not read
        say_found(report, probe([os.fsdecode(node) for node in withheld], names["try_to_open"]))
        if argv is None:
            os._exit(0)
        step = f"start {os.fsdecode(argv[0])}"
        execute(argv, environment)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the supervisor tells it better than a traceback
        say_failed(report, step, error)
    os._exit(127)


if __name__ == "__main__":
    _main()
