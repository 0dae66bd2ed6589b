"""How a job is kept from the device nodes that are not its own: the supervisor's and the job's own part of it.

There are four layers, and the broker says in the spec which one is to hold (see `guard`): device rules of the
attempt's cgroup, of version 2 or 1; Landlock; bubblewrap. Each withholds just the nodes named, and leaves all else as
it was. What cannot be set up stops no job: the pin holds, and the probe, made by the very process that becomes the job,
tells what is open to it. Standard library only: the launcher imports it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from ... import opening
from . import bpf, inside, landlock, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

CGROUP_2 = "cgroup v2"
CGROUP_1 = "cgroup v1"
LANDLOCK = "landlock"
BUBBLEWRAP = "bubblewrap"
#: No layer of ours: what a container engine shows of devices is what there is, and no process of ours tries it.
CONTAINER = "container"

_PYTHONS = (sys.executable, "/usr/bin/python3")


def prepare(spec: dict[str, Any]) -> None:
    """Set up, before the fork, what needs no process: the rules of the attempt's cgroup."""
    fence = spec.get("isolation")
    if not fence:
        return
    try:
        if fence["by"] == CGROUP_2:
            whole = [(major, minors) for major, minors in fence.get("whole", ())]
            bpf.deny(_folder_with(spec["cgroups"], "cgroup.controllers"), _numbers(fence["withheld"]), whole)
        elif fence["by"] == CGROUP_1:
            _deny(_folder_with(spec["cgroups"], "devices.deny"), _numbers(fence["withheld"]))
        elif fence["by"] == BUBBLEWRAP:
            # While we are still who can read them.
            fence["inside"], fence["opening"] = procs.slurp(inside.__file__), procs.slurp(opening.__file__)
    except OSError as error:
        fence["why"] = f"its rules could not be set: {error.strerror}"


def give_up(spec: dict[str, Any]) -> None:
    """Give up the nodes in the process that becomes the job, while it still has all its rights."""
    fence = spec.get("isolation")
    if fence and fence["by"] == LANDLOCK:
        try:
            landlock.withhold(fence["withheld"], fence.get("folders", []))
        except OSError as error:
            fence["why"] = f"its rules could not be set: {error.strerror}"


def become(spec: dict[str, Any], environment: dict[str, str], report: int) -> NoReturn:
    """Try what is withheld, tell what was found, and be the job. OSError where it cannot be started.

    Where there is no command, all was done only to see what the probe finds.
    """
    fence = spec.get("isolation")
    argv = None if spec["argv"] is None else [os.fsencode(word) for word in spec["argv"]]
    raw = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    if fence and fence["by"] == BUBBLEWRAP and "why" not in fence:
        _go_inside(spec, inside.pack([os.fsencode(node) for node in _tried(fence)], argv, raw), report)
    if fence and fence["by"] != CONTAINER:
        why = {"why": fence["why"]} if "why" in fence else {}
        inside.say_found(report, inside.probe(_tried(fence), opening.try_to_open) | why)
    if argv is None:
        os._exit(0)
    inside.execute(argv, raw)


def found(spec: dict[str, Any], findings: dict[str, Any]) -> dict[str, Any] | None:
    """What the probe found, of the nodes that it was to try; whatever else was said is nothing to go by."""
    fence, told = spec.get("isolation"), findings.get("isolation")
    if fence is None or fence["by"] == CONTAINER or not isinstance(told, dict):
        return None
    said = {name: told.get(name) for name in ("opened", "missing")}
    lists = {
        name: [node for node in _tried(fence) if isinstance(nodes, list) and node in nodes]
        for name, nodes in said.items()
    }
    return {"by": fence["by"], "why": str(told.get("why", ""))[:300], **lists}


def never_got_inside(spec: dict[str, Any], findings: dict[str, Any]) -> bool:
    """Whether bubblewrap failed before anything of the job began."""
    fence = spec.get("isolation")
    return fence is not None and fence["by"] == BUBBLEWRAP and "why" not in fence and "isolation" not in findings


def failed(said: bytes) -> dict[str, Any]:
    """Make the outcome of that, which is no fault of the job's."""
    why = said.strip().rpartition(b"\n")[2].decode("utf-8", "replace")[:300]
    return {"end": "launch-failed", "detail": f"could not start it in bubblewrap: {why}", "engine_fault": True}


def _tried(fence: dict[str, Any]) -> list[str]:
    """The nodes that are withheld, and the other paths at which these stand."""
    return [*fence["withheld"], *fence.get("also", ())]


def _folder_with(folders: list[str], file: str) -> str:
    """The attempt's cgroup of the right kind."""
    for folder in folders:
        if os.path.exists(f"{folder}/{file}"):  # noqa: PTH110
            return folder
    raise OSError(errno.ENOENT, "its cgroup could not be made")


def _numbers(nodes: list[str]) -> list[tuple[int, int, int]]:
    """The kernel's numbers of those that are there and are devices."""
    found = set()
    for node in nodes:
        try:
            seen = os.stat(node)  # noqa: PTH116
        except OSError:
            continue
        kind = bpf.CHARACTER if stat.S_ISCHR(seen.st_mode) else bpf.BLOCK if stat.S_ISBLK(seen.st_mode) else None
        if kind:
            found.add((kind, os.major(seen.st_rdev), os.minor(seen.st_rdev)))
    return sorted(found)


def _deny(folder: str, nodes: list[tuple[int, int, int]]) -> None:
    file = os.open(f"{folder}/devices.deny", os.O_WRONLY | os.O_CLOEXEC)
    try:
        for kind, major, minor in nodes:  # one at a time: that is how it is read
            os.write(file, f"{'c' if kind == bpf.CHARACTER else 'b'} {major}:{minor} rwm".encode())
    finally:
        os.close(file)


def _go_inside(spec: dict[str, Any], packed: bytes, report: int) -> None:
    """Let bubblewrap run `inside`, with a node that cannot be opened in place of each; return if that cannot be."""
    fence = spec["isolation"]
    python = next((each for each in _PYTHONS if os.access(each, os.X_OK)), None)
    if python is None:
        fence["why"] = f"there is no Python that {spec['account']} may run"
        return
    words = [fence["program"], "--die-with-parent", "--dev-bind", "/", "/"]
    for node in {os.path.realpath(node) for node in _tried(fence)}:
        if os.path.exists(node):  # noqa: PTH110
            words += ["--ro-bind", os.devnull, node]  # such a mount opens no devices, whatever they are
    # Open files, so that bubblewrap and Python run in an environment of ours, whatever the job's says of libraries.
    script, tool, task = _memory_file(fence["inside"]), _memory_file(fence["opening"]), _memory_file(packed)
    os.set_inheritable(report, True)  # noqa: FBT003 - it takes no keyword
    words += ["--", python, "-I", "-S", "-X", "utf8", f"/proc/self/fd/{script}", str(report), str(task), str(tool)]
    try:
        os.execv(words[0], words)  # with the launcher's own environment
    except OSError as error:
        fence["why"] = f"{words[0]} could not be run: {error.strerror}"
    os.set_inheritable(report, False)  # noqa: FBT003
    for file in (script, tool, task):
        os.close(file)


def _memory_file(content: bytes) -> int:
    file = os.memfd_create("jupyter-gpu", 0)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
