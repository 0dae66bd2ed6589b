"""The last steps of a job's own process: try the nodes that are withheld from it, say what was found, exec.

    python -I -S inside.py REPORT_FD TASK_FD

The supervisor's child calls these functions itself. Where bubblewrap is between the two, this file is what it runs:
then what is to be executed comes through TASK_FD, and so that nobody but the job's own user has to be able to read our
folders, the file itself is handed on as an open one. Standard library only, and of that hardly anything.
"""

from __future__ import annotations

import errno
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_REFUSED = (errno.EPERM, errno.EACCES)
_MISSING = (errno.ENOENT, errno.ENOTDIR)


def probe(nodes: list[str]) -> dict[str, list[str]]:
    """Try to open each: which did open, and which are not there. Any answer but a refusal means that one can get in.

    Never of a device that is leased: to open it powers a card up.
    """
    found: dict[str, list[str]] = {"opened": [], "missing": []}
    for node in nodes:
        try:
            os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            if error.errno in _REFUSED:
                continue
            found["missing" if error.errno in _MISSING else "opened"].append(node)
        else:
            found["opened"].append(node)
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
    try:
        os.write(report, json.dumps(content).encode() + b"\n")
    except OSError:  # it is dead, and so are we in a moment
        return


def say_failed(report: int, step: str, error: BaseException) -> None:
    """Tell at which step it failed, and of what."""
    number = error.errno if isinstance(error, OSError) else None
    text = os.strerror(number) if number else f"{type(error).__name__}: {error}"
    say(report, {"step": step, "errno": number, "text": text})


def _main() -> NoReturn:
    own, (report, task) = sys.argv[0], (int(word) for word in sys.argv[1:])
    step = "prepare"
    try:
        for fd in (report, task, int(own.rpartition("/")[2])):
            os.set_inheritable(fd, False)  # noqa: FBT003 - it takes no keyword
        with os.fdopen(task, "rb") as file:
            given = json.loads(file.read())
        say(report, {"isolation": probe(given["withheld"])})
        if given["argv"] is None:
            os._exit(0)
        step = f"start {given['argv'][0]}"
        raw = {os.fsencode(name): os.fsencode(value) for name, value in given["environment"].items()}
        execute([os.fsencode(word) for word in given["argv"]], raw)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the supervisor tells it better than a traceback
        say_failed(report, step, error)
    os._exit(127)


if __name__ == "__main__":
    _main()
