"""What a process says of itself, in its name, command line, environment and cgroup: words of its user, mostly.

So they are read as words of an adversary: a little of them, once, in linear time, and shown only as far as they can be
printed. What they are believed is for who asks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .telemetry.clear import printable

#: How much of it is read: of a command line as much as the path of a connection file is far in, of an environment as
#: much as any login has.
COMMAND_LINE_BYTES = 4 << 10
ENVIRON_BYTES = 128 << 10
CGROUP_BYTES = 64 << 10
SHOWN_OF_ID = 12
#: Longer numbers count nothing here.
_MOST_DIGITS = 18
_MOST_THREADS = 8

_RUNTIME = re.compile(r"docker|libpod|podman|cri-containerd|crio|containerd|nerdctl|kubepods")
_ID = re.compile(r"[-/:]([0-9a-f]{64})(?![0-9a-f])")
_LXC = re.compile(r"/lxc(?:\.payload\.|/)([\w.-]{1,64})")
_KERNEL_MODULES = frozenset({"ipykernel", "ipykernel_launcher", "bash_kernel", "IRkernel::main()"})
_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


class Container(NamedTuple):
    """What the name of a cgroup says of a container."""

    runtime: str
    id: str
    #: The line of the cgroup that says so, like "0::/system.slice/docker-0123….scope".
    line: str

    @property
    def title(self) -> str:
        """Like "docker 0123456789ab"."""
        return f"{self.runtime} {printable(self.id)[:SHOWN_OF_ID]}"

    def is_made_by(self, uid: int) -> bool:
        """Whether the user of the process may have made that cgroup, and given it any name."""
        return is_made_by(self.line, uid)

    def is_roots(self, uid: int) -> bool:
        """Whether nobody but root can have made it, whoever the user of the process may be."""
        return not self.is_made_by(uid) and "/user.slice/" not in self.line


def is_made_by(line: str, uid: int) -> bool:
    """Whether a user may have made a cgroup, a line of `cgroup_of`: it lies in what is theirs, or is not root's.

    Where nobody can tell it counts as made by root, who runs containers.
    """
    _, controllers, path = line.split(":", 2)
    if f"/user-{uid}.slice/" in path or f"/user@{uid}.service/" in path:
        return True
    tops = (f"/sys/fs/cgroup/{controllers.removeprefix('name=')}",) if controllers else _MOUNTS
    return any(_owner_of(Path(f"{top}{path}")) not in (None, 0) for top in tops)


def container_of(cgroup: str) -> Container | None:
    """The container that a cgroup is named for."""
    for line in cgroup.splitlines():
        runtime = _RUNTIME.search(line) if line.count(":") > 1 else None
        id_ = None if runtime is None else _ID.search(line, runtime.end())
        if runtime is not None and id_ is not None:
            return Container(runtime[0], id_[1], line)
        lxc = _LXC.search(line)
        if lxc is not None and line.count(":") > 1:
            return Container("lxc", lxc[1], line)
    return None


def cgroup_of(pid: str) -> str:
    """The cgroups of a process, one a line; empty where they cannot be read."""
    try:
        return head(f"/proc/{pid}/cgroup", CGROUP_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def kernel_of(pid: int) -> str:
    """Like "kernel 3f2a91c0": which Jupyter kernel a process is, by its command line; empty where it is none."""
    words = first_words(pid)
    for word in words:
        name = word.rpartition("/")[2]
        if name.startswith("kernel-") and name.endswith(".json"):
            id_ = name.removeprefix("kernel-").removesuffix(".json").partition("-")[0]
            if id_.isascii() and id_.isalnum():
                return f"kernel {id_[:SHOWN_OF_ID]}"
    return "a kernel" if not _KERNEL_MODULES.isdisjoint(words) else ""


def first_words(pid: int) -> list[str]:
    """How the command line of a process begins; empty where it has none, or it cannot be read."""
    try:
        raw = _of_its_memory(pid, "cmdline", COMMAND_LINE_BYTES)
    except OSError:
        return []
    return [os.fsdecode(word) for word in raw.rstrip(b"\0").split(b"\0")] if raw else []


def variables_of(pid: int, names: Iterable[str]) -> dict[str, str]:
    """Some variables of a process as it was started. OSError where they cannot be read."""
    raw = b"\0" + _of_its_memory(pid, "environ", ENVIRON_BYTES) + b"\0"
    found = {}
    for name in names:
        mark = b"\0" + os.fsencode(name) + b"="
        begin = raw.find(mark)
        if begin >= 0:
            begin += len(mark)
            found[name] = os.fsdecode(raw[begin : raw.index(b"\0", begin)])
    return found


def pair(one: str, two: str) -> tuple[int, int] | None:
    """Two numbers; None where that is not what they are."""
    words = (one, two)
    if all(it.isascii() and it.isdecimal() and len(it) <= _MOST_DIGITS for it in words):
        return (int(one), int(two))
    return None


def head(path: str, most_bytes: int) -> bytes:
    """How a file of /proc begins: whatever more there is stays unread."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while len(found) < most_bytes and (piece := os.read(file, most_bytes - len(found))):
            found += piece
        return found
    finally:
        os.close(file)


def _of_its_memory(pid: int, what: str, most_bytes: int) -> bytes:
    """What the kernel reads from a process's memory, which its main thread lets go of when it ends before others."""
    raw = head(f"/proc/{pid}/{what}", most_bytes)
    if not raw:
        for thread in os.listdir(f"/proc/{pid}/task")[:_MOST_THREADS]:  # noqa: PTH208
            raw = raw or head(f"/proc/{pid}/task/{thread}/{what}", most_bytes)
    return raw


def _owner_of(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None
