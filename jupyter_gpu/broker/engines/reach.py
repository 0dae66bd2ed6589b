"""Where device nodes stand, and which of those that come to be later a job that already runs is still kept from.

A node may be shown a second time: the /dev of a chroot is mounted from ours. And one may be made when a job has long
begun: a card is split anew, a module is loaded again. A layer either holds these from the start, or is not said to.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import isolation, procs

#: The kernel's names for what makes the nodes of single GPUs, and the minors there that are everybody's: nvidia-modeset
#: and nvidiactl; of MIG's capabilities, those to configure and to monitor.
DRIVERS = {"nvidia": (254, 255), "nvidia-frontend": (254, 255), "nvidia-caps": (1, 2)}
CAPS = "nvidia-caps"
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Node(NamedTuple):
    """What stood at a path, and who might open it: a node that was made anew is another, also with the old number."""

    path: str
    number: int
    inode: int
    mode: int


class Job(NamedTuple):
    """A job that runs: what its layer withholds, and what of the nodes that were known was there when it began.

    Both are in its spec. When a node came to be would tell a later broker less: times are no finer than the kernel's
    tick, and one that was there but unknown was not withheld either.
    """

    fence: dict[str, Any] | None
    nodes: frozenset[Node] = frozenset()


def nodes_at(paths: Iterable[str]) -> frozenset[Node]:
    """What stands at these paths."""
    found = set()
    for path in paths:
        with contextlib.suppress(OSError):
            seen = os.stat(path)  # noqa: PTH116
            found.add(Node(path, seen.st_rdev, seen.st_ino, seen.st_mode))
    return frozenset(found)


def late(job: Job, now: Iterable[Node]) -> list[str]:
    """The nodes that have come to be since it began, and that its layer does not keep it from."""
    then = {node[:3] for node in job.nodes}
    withheld = () if job.fence is None else job.fence["withheld"]
    refused = {node.number for node in job.nodes if node.path in withheld}
    own = {node.number for node in job.nodes} - refused  # wherever else it stands, and if it is made anew
    return sorted(
        node.path
        for node in now
        if node[:3] not in then and node.number not in own and not _is_held(job.fence, node, refused)
    )


def _is_held(fence: Mapping[str, Any] | None, node: Node, refused: set[int]) -> bool:
    if fence is None:
        return False
    if fence["by"] == isolation.LANDLOCK:
        return os.path.dirname(os.path.realpath(node.path)) in fence.get("folders", ())  # noqa: PTH120
    if fence["by"] == isolation.BUBBLEWRAP:
        return False
    if fence["by"] == isolation.CONTAINER:
        return bool(fence["is_closed"])
    major, minor = os.major(node.number), os.minor(node.number)
    return node.number in refused or (
        fence["by"] == isolation.CGROUP_2
        and stat.S_ISCHR(node.mode)
        and any(major == whole and minor not in open_ for whole, open_ in fence.get("whole", ()))
    )


# --- what is withheld before it is there ----------------------------------------------------------


def whole_of(own: Iterable[str], majors: Mapping[str, int]) -> list[tuple[int, list[int]]]:
    """The majors that are refused but for these nodes and those that are everybody's: so later ones are refused too."""
    mine = nodes_at(own)
    found: dict[int, set[int]] = {}
    for name, everybodys in DRIVERS.items():
        if name in majors:
            minors = found.setdefault(majors[name], set(everybodys))
            minors.update(os.minor(node.number) for node in mine if os.major(node.number) == majors[name])
    return sorted((major, sorted(minors)) for major, minors in found.items())


def majors() -> dict[str, int]:
    """The major numbers of the character devices that the kernel knows, by name."""
    try:
        lines = procs.slurp("/proc/devices").decode("utf-8", "replace").partition("Block")[0].splitlines()
    except OSError:
        return {}
    words = (line.split(None, 1) for line in lines)
    return {it[1]: int(it[0]) for it in words if len(it) > 1 and it[0].isdigit()}


def folders_of(paths: Iterable[str]) -> list[str]:
    """Where such nodes are made, now or later: the folders of these, and the one of MIG's capabilities beside them."""
    folders = {os.path.dirname(os.path.realpath(path)) for path in paths}  # noqa: PTH120
    beside = {os.path.join(folder, CAPS) for folder in folders if os.path.basename(folder) != CAPS}  # noqa: PTH118, PTH119
    return sorted(folders | beside)


# --- second paths ---------------------------------------------------------------------------------


class _Mount(NamedTuple):
    number: str
    parent: str
    device: str
    root: str
    point: str


def twins_of(paths: Iterable[str], mountinfo: str) -> dict[str, tuple[str, ...]]:
    """Of each node that has any, the other paths at which mounts show the same one. Nothing there is touched."""
    mounts = _mounts(mountinfo)
    found = {}
    for path in paths:
        real = os.path.realpath(path)
        here = _shown_by(real, mounts)
        if here is None:
            continue
        inner = _joined(here.root, real, here.point)
        others = {
            _joined(it.point, inner, it.root) for it in mounts if it.device == here.device and _is_below(inner, it.root)
        }
        twins = [it for it in others - {real, path} if (by := _shown_by(it, mounts)) and by.device == here.device]
        if twins:
            found[path] = tuple(sorted(twins))
    return found


def _mounts(mountinfo: str) -> list[_Mount]:
    found = []
    for line in mountinfo.splitlines():
        words = line.split(" ")
        if len(words) > 4:  # noqa: PLR2004
            root, point = (_ESCAPED.sub(lambda it: chr(int(it[1], 8)), word) for word in words[3:5])
            found.append(_Mount(words[0], words[1], words[2], root, point))
    return found


def _shown_by(path: str, mounts: list[_Mount]) -> _Mount | None:
    """The mount that one sees at a path: what is mounted over another, or over a folder above, hides it."""
    numbers = {it.number for it in mounts}
    now = next((it for it in mounts if it.parent not in numbers and _is_below(path, it.point)), None)
    while now is not None:
        over = [it for it in mounts if it.parent == now.number and it is not now and _is_below(path, it.point)]
        if not over:
            return now
        now = min(over, key=lambda it: len(it.point))
    return None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _joined(folder: str, path: str, above: str) -> str:
    """The same way below `folder` as `path` is below `above`."""
    way = path[len(above.rstrip("/")) :].strip("/")
    return f"{folder.rstrip('/')}/{way}" if way else folder
