"""Whether a hub's server can open GPUs that are not its own: what a process of it finds when it tries.

What starts a server may keep it from the other cards (DeviceAllow of systemd, a container), or only tell it which are
its own. The process that asks stands where the server stands, in its cgroup, mounts and account, and tries every other
node. It stops at the first that opens, so no more than one strange card is touched. What is found is the server's own
word, for who uses it: they could have it say anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from . import pins
from .model import IsolationView, Status, WorkloadView
from .opening import MISSING, OPENED, REFUSED, try_to_open

#: A driver that hangs holds up a thread for so long, and nothing else.
DEADLINE_SECONDS = 10.0
#: What all who use any GPU open has no number; of MIG's capabilities the first two are for who configures and watches.
_NODE = re.compile(r"nvidia\d+|nvidia-cap(?![12]$)\d+")
#: What a process may stand in besides a container.
UNIT = "systemd unit"
#: The innermost of what a cgroup belongs to.
_UNIT = re.compile(r"/[^/\n]+\.service$", re.MULTILINE)
_CONTAINER = re.compile(r"docker|kubepods|containerd|libpod|crio|lxc")
_CAP_SYS_ADMIN, _CAP_MKNOD = 1 << 21, 1 << 27
_MOST_NAMED = 3


class Question(NamedTuple):
    """What is to be tried, and what is known before."""

    #: Every node that is not the server's own.
    others: tuple[str, ...]
    #: Whether the server itself has a lease; else its kernels reserve, if they may.
    has_lease: bool = False
    #: Why nothing can be tried.
    why_not: str = ""


def is_in_a_server(environ: Mapping[str, str]) -> bool:
    """Whether a process is a hub's server, or was started in one; a job has a probe of its own."""
    return "JUPYTERHUB_USER" in environ and pins.ATTEMPT not in environ


def question(
    status: Status, environ: Mapping[str, str], kernels: Collection[str] = (), folder: Path = Path("/dev")
) -> Question | None:
    """What to ask, given the kernels that stand in the server; None where there is nothing to keep apart."""
    if status.simulated or not is_in_a_server(environ):
        return None
    number = environ.get(pins.RESERVATION, "")
    lease = next((it for it in status.workloads if str(it.id) == number), None)
    held = {uuid for it in status.workloads if it is lease or _is_of(it, kernels) for uuid in it.devices}
    own = [node for it in status.devices if it.uuid in held for node in it.nodes]
    listed = {node for it in status.devices for node in it.nodes}
    others = _without([*listed, *_there(folder)], own)
    if not (others or own):
        return None
    return Question(others, bool(number), _why_not(status, number, lease, environ))


def _is_of(it: WorkloadView, kernels: Collection[str]) -> bool:
    return it.holder is not None and it.holder.kind == "kernel" and it.holder.name in kernels


def _without(nodes: Iterable[str], own: Iterable[str]) -> tuple[str, ...]:
    """By name: a broker in a container may see them in another folder than the server does."""
    mine = {Path(node).name for node in own}
    return tuple(sorted({node for node in nodes if Path(node).name not in mine}))


def _there(folder: Path) -> list[str]:
    """The nodes of single GPUs that the process sees, also those that the broker does not tell of."""
    found = [*folder.glob("nvidia*"), *folder.glob("nvidia-caps/nvidia-cap*")]
    return [str(it) for it in found if _NODE.fullmatch(it.name)]


def _why_not(status: Status, number: str, lease: WorkloadView | None, environ: Mapping[str, str]) -> str:
    """Why it is not known which nodes are its own; empty where it is."""
    if not number:
        return ""
    if lease is None:
        return f"the broker does not know its reservation {number}"
    named = pins.read(environ.get(pins.VISIBLE)) or ()
    if not set(lease.devices) <= set(named):
        return "a cluster gave it its GPUs, and which those are is not known here"
    known = {it.uuid for it in status.devices if it.nodes}
    return "" if set(lease.devices) <= known else "the broker does not tell which device nodes are its own"


# --- the answer -----------------------------------------------------------------------------------


class Surroundings(NamedTuple):
    """What a process sees of where it stands."""

    capabilities: int
    cgroups: str
    in_container: bool


def surroundings(root: Path = Path("/")) -> Surroundings:
    """Those of this process."""
    status, cgroups = (_read(root / f"proc/self/{name}") for name in ("status", "cgroup"))
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    marks = any((root / it).exists() for it in (".dockerenv", "run/.containerenv"))
    return Surroundings(int(found[1], 16) if found else 0, cgroups, marks or bool(_CONTAINER.search(cgroups)))


def verdict(asked: Question, answers: Mapping[str, str], here: Surroundings) -> IsolationView:
    """What the answers mean. Enforced only where each of the others has one, and none of them opened."""
    if asked.why_not:
        return _not_probed(asked.why_not)
    opened = [node for node in asked.others if answers.get(node) == OPENED]
    if opened:
        return IsolationView(enforced=False, detail=_could_open(opened[0], has_lease=asked.has_lease))
    untold = [node for node in asked.others if answers.get(node) not in (REFUSED, MISSING)]
    if untold:
        return _not_probed(f"{untold[0]} gave no answer in time")
    if not asked.others:
        return _not_probed("there is no GPU but its own that could be tried")
    refused = [node for node in asked.others if answers[node] == REFUSED]
    missing = len(asked.others) - len(refused)
    if here.capabilities & _CAP_SYS_ADMIN:
        return IsolationView(
            enforced=False, detail="it runs with the rights of root, which can leave all that keeps it"
        )
    if missing and here.capabilities & _CAP_MKNOD:
        return IsolationView(
            enforced=False, detail=f"it may make device nodes itself, and {_nodes(missing)} could not be tried"
        )
    told = [f"{len(refused)} refused"] * bool(refused) + [f"{missing} not there"] * bool(missing)
    said = f"a process of it tried {_nodes(len(asked.others))} of other GPUs: {' and '.join(told)}"
    return IsolationView(enforced=True, by=_by_what(refused, here), detail=said)


def _not_probed(why: str) -> IsolationView:
    return IsolationView(enforced=False, detail=f"not probed: {why}")


def _could_open(node: str, *, has_lease: bool) -> str:
    why = "" if has_lease else "; its kernels reserve for themselves, and are told which GPUs are theirs"
    return f"it could open {node}, which is not its own{why}"


def _nodes(count: int) -> str:
    return f"{count} device node" + ("s" if count > 1 else "")


def _by_what(refused: Sequence[str], here: Surroundings) -> str:
    """What keeps it, as far as that shows; nothing where it does not."""
    if refused and all(is_closed_by_mode(node) for node in refused):
        return "file permissions"
    where = standing(here)
    return "systemd" if where == UNIT else where


def standing(here: Surroundings) -> str:
    """In what a process stands; empty where that does not show."""
    return UNIT if _UNIT.search(here.cgroups) else "container" if here.in_container else ""


def is_closed_by_mode(node: str | Path) -> bool:
    """Whether the node's own permissions keep this process out, whatever else does; a node that is gone is not."""
    try:
        found = os.stat(node)  # noqa: PTH116
    except OSError:
        return False
    me, mine = os.geteuid(), {os.getegid(), *os.getgroups()}
    wanted = 0o600 if found.st_uid == me else 0o060 if found.st_gid in mine else 0o006
    return me != 0 and found.st_mode & wanted != wanted


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


# --- asking ---------------------------------------------------------------------------------------


class Asking:
    """A question on its way, on a thread of its own that nobody has to wait for, not even the end of the process."""

    def __init__(self, asked: Question, open_: Callable[[str], str] = try_to_open) -> None:
        self.asked, self._open = asked, open_
        self._answers: dict[str, str] = {}
        self.done: Future[None] = Future()
        self.done.set_running_or_notify_cancel()
        threading.Thread(target=self._try, name="jupyter-gpu-reach", daemon=True).start()

    def _try(self) -> None:
        # Whatever goes wrong, a node without an answer is told as such.
        with contextlib.suppress(Exception):
            for node in () if self.asked.why_not else self.asked.others:
                self._answers[node] = self._open(node)
                if self._answers[node] == OPENED:
                    break
        self.done.set_result(None)

    @property
    def answers(self) -> dict[str, str]:
        """What each node answered by now; after the first that opens none is tried."""
        return dict(self._answers)

    @property
    def view(self) -> IsolationView:
        """What is known by now."""
        return verdict(self.asked, self.answers, surroundings())


def find_out(asked: Question, open_: Callable[[str], str] = try_to_open) -> IsolationView:
    """Try, and wait for it no longer than the deadline."""
    asking = Asking(asked, open_)
    with contextlib.suppress(TimeoutError):
        asking.done.result(DEADLINE_SECONDS)
    return asking.view
