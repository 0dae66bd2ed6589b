"""Save a checkpoint and die at the N-th file operation, for every N; run as a program by test_checkpoints.

`python -m tests.training.crash FOLDER STEP ATTEMPT MODE` copies FOLDER/template to FOLDER/0, FOLDER/1, ...
and in each copy lets a forked child die one operation later than in the one before, until a child survives.

MODE `kill` is a kill -9. `cut` is a power cut that loses every byte nobody has synced. `undo` loses, beyond
that, the renames that no sync of the folder has made durable, but keeps the removals: the worst a disk may
do.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_gpu.checkpoints import Writer

OPERATIONS = (
    *("open", "write", "fsync", "close", "mkdir", "rename", "replace", "unlink", "rmdir"),
    *("stat", "lstat", "scandir", "listdir"),
)


def contents(version: str, step: int) -> dict[str, bytes]:
    """What a checkpoint of this version holds: two files, one of them in a folder of its own."""
    return {
        "weights": f"{version} {step} ".encode() * 500,
        "rank/0": f"{version} {step} rank 0".encode(),
    }


def write(folder: Path, version: str, step: int) -> None:
    """Write it in small bites, as a library would."""
    for name, content in contents(version, step).items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for start in range(0, len(content), 2000):
            os.write(file, content[start : start + 2000])
        os.close(file)


class Disk:
    """Counts file operations, remembers what is durable, and breaks down at the N-th."""

    def __init__(self, home: Path, last: int, mode: str) -> None:
        self.home, self.left, self.mode = home, last, mode
        self.real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in OPERATIONS}
        self.durable = {path.stat().st_ino for path in home.rglob("*")}
        self.renames: list[tuple[str, str]] = []
        for name in OPERATIONS:
            setattr(os, name, self.wrapped(name))

    def wrapped(self, name: str) -> Callable[..., Any]:
        """Give the operation, counted."""

        def operation(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                self.break_down()
            if name == "fsync":  # no need to wait for the real disk
                self.durable.add(os.fstat(args[0]).st_ino)
                if Path(f"/proc/self/fd/{args[0]}").readlink() == self.home:
                    self.renames.clear()
                return None
            answer = self.real[name](*args, **kwargs)
            if name in ("rename", "replace"):
                self.renames.append((str(args[0]), str(args[1])))
            return answer

        return operation

    def break_down(self) -> None:
        """Leave the disk as the mode says, and be gone."""
        for name, function in self.real.items():
            setattr(os, name, function)
        if self.mode != "kill":
            for path in self.home.rglob("*"):
                if path.is_file() and path.stat().st_ino not in self.durable:
                    os.truncate(path, 0)
        if self.mode == "undo":
            for before, after in reversed(self.renames):
                if os.path.lexists(after) and not os.path.lexists(before):
                    Path(after).rename(before)
        os._exit(9)


def dies(home: Path, step: int, attempt: int, last: int, mode: str) -> bool:
    """Save in a child that breaks down after `last` operations; False once it came through."""
    pid = os.fork()
    if pid == 0:
        try:
            Disk(home, last, mode)
            with Writer(home, attempt).checkpoint(step, keep=1) as folder:
                write(folder, "new", step)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, 9):
        sys.exit(f"the save failed by itself after {last} operations")
    return code == 9


def main() -> None:
    """Break down at each operation in turn."""
    folder, step, attempt, mode = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    last, alive = 0, True
    while alive:
        home = folder / str(last)
        shutil.copytree(folder / "template", home)
        alive = dies(home, step, attempt, last, mode)
        last += 1


if __name__ == "__main__":
    main()
