"""Who of a tree gets the notice: the topmost processes that are not mere wrappers.

A training saves when SIGTERM reaches it. `bash run.sh`, torchrun or srun above it would only die of the signal (or pass
it on twice), and its own data-loader workers below it would die before the save. So the notice descends
through wrappers and stops at the first process of substance on each branch. A shell that catches SIGTERM itself
has something to do with it and is no mere wrapper. Filters at the end of a pipe (`train.py | tee log`) are
passed over: without them the training would die of SIGPIPE at its next line. Pure; the launcher imports it.
"""

from __future__ import annotations

import os
import re

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "busybox", "fish", "csh", "tcsh"})
_WRAPPERS = SHELLS | {
    "Apptainer runtime parent", "accelerate", "appinit", "apptainer", "bwrap", "catatonit", "catchsegv", "chrt",
    "colossalai", "conda", "conmon", "cpulimit", "crun", "deepspeed", "doas", "docker", "docker-init", "dumb-init",
    "env", "fakeroot", "firejail", "gosu", "horovodrun", "ionice", "jupyter-gpu", "mamba", "micromamba", "mpiexec",
    "mpirun", "nice", "nohup", "nsys", "numactl", "orterun", "pipenv", "pixi", "podman", "podman-init", "poetry",
    "prlimit", "prterun", "runc", "runuser", "script", "setpriv", "setsid", "singularity", "srun", "starter",
    "starter-suid", "stdbuf", "strace", "su", "sudo", "taskset", "time", "timeout", "tini", "torchrun", "unbuffer",
    "unshare", "uv", "xargs",
}  # fmt: skip
_WRAPPER_MODULES = frozenset({
    "accelerate.commands.launch", "colossalai.cli", "deepspeed.launcher.launch", "deepspeed.launcher.runner",
    "horovod.runner.launch", "torch.distributed.launch", "torch.distributed.run",
})  # fmt: skip
_FILTERS = frozenset({
    "awk", "cat", "cut", "gawk", "grep", "gzip", "head", "less", "logger", "mawk", "more", "pv", "sed", "sort", "tail",
    "tee", "tr", "ts", "uniq", "wc",
})  # fmt: skip
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
# Options of Python that take a value of their own as the next word.
_VALUED = ("-W", "-X", "--check-hash-based-pycs")


class Candidate:
    """What must be known of a process to judge it."""

    __slots__ = ("argv", "catches_term", "parent", "pid")

    def __init__(self, pid: int, parent: int, argv: tuple[str, ...], catches_term: bool = False) -> None:  # noqa: FBT001, FBT002
        self.pid, self.parent, self.argv, self.catches_term = pid, parent, argv, catches_term


def program(argv: tuple[str, ...]) -> str:
    """What a command line runs: the program's name or, where Python runs it, the script's or module's."""
    if not argv:
        return ""
    name = os.path.basename(argv[0]).lstrip("-")  # noqa: PTH119 - a login shell is called "-bash"
    if not _PYTHON.fullmatch(name):
        return name
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            return "-m " + next(words, "")
        if word in _VALUED:
            next(words, None)
        elif word == "-c" or not word.startswith("-"):
            return os.path.basename(word) if word != "-c" else name  # noqa: PTH119
    return name


def is_wrapper(candidate: Candidate) -> bool:
    """Whether it only starts others, and has nothing of its own to save."""
    name = program(candidate.argv)
    if name.startswith("-m "):
        return name[3:] in _WRAPPER_MODULES
    return name in _WRAPPERS and not (name in SHELLS and candidate.catches_term)


def targets(root: int, tree: list[Candidate]) -> list[int]:
    """Who below `root` gets the notice, topmost first. Where only wrappers are found, the innermost."""
    children: dict[int, list[Candidate]] = {}
    for candidate in tree:
        children.setdefault(candidate.parent, []).append(candidate)
    found: list[Candidate] = []
    innermost: list[Candidate] = []
    line = list(children.get(root, []))
    for candidate in line:
        if not is_wrapper(candidate):
            found.append(candidate)
        elif below := children.get(candidate.pid):
            line.extend(below)
        else:
            innermost.append(candidate)
    of_substance = [one for one in found if program(one.argv) not in _FILTERS]
    return [one.pid for one in of_substance or found or innermost]
