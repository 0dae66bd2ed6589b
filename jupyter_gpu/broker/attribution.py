"""Whose each process on a device is, as far as that is certain.

A holder is known by pid, start time and descent, which the kernel keeps and nobody can make up; a job also by its
cgroup, and by the variables that it was given. Both of the last a user may imitate, so they count only where the
process is that of the workload's own account: nobody passes as the holder of somebody else's device. A number alone
proves nothing: inside a container the driver lists pids that are not ours, and the process of that number here may be
any other (wookayin/gpustat#117).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from ..model import Kind, Reading, Use, UseKind, Workload, World
from .attempts import attempt_of
from .engines import procs
from .engines.spool import cgroup_name
from .people import People
from .telemetry.clear import is_of_the_system, process_has_ended

_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_ANCESTORS = 64
_ENVIRON_BYTES = 4 << 20
#: The kernel cuts the name of a process to so many bytes.
_NAME_BYTES = 15
_CONTAINER = re.compile(
    r"(docker|libpod|podman|cri-containerd|crio|containerd|nerdctl|kubepods)[^\n]*?[-/:]([0-9a-f]{64})(?![0-9a-f])"
    r"|/(lxc)(?:\.payload\.|/)([\w.-]+)"
)
_SHOWN_OF_ID = 12
_CONNECTION_FILE = re.compile(r"kernel-([0-9A-Za-z]+)[0-9A-Za-z-]*\.json$")
_KERNEL_MODULES = frozenset({"ipykernel", "ipykernel_launcher", "bash_kernel", "IRkernel::main()"})

#: A pid and when its process began, in ticks since boot.
ProcessKey = tuple[int, int]


class Known(NamedTuple):
    """What was found out once of one process, told from later ones of its number by its start."""

    name: str
    #: Its user, where real, effective and saved are one.
    uid: int | None
    #: Itself and those above it, nearest first.
    line: tuple[ProcessKey, ...]
    #: The jobs and attempts that its cgroup and its environment name.
    marks: tuple[tuple[int, int], ...]
    #: The container or the kernel that it is in, in words; empty for none.
    container: str
    kernel: str


class Rules(NamedTuple):
    """What one sample is attributed by."""

    #: Whether pids in readings may be looked up here.
    has_local_pids: bool
    ignored_names: tuple[str, ...] = ()
    drawing_bytes: int = 0
    #: Whether a process that bears an ignored name is the machine's own.
    is_systems: Callable[[int], bool] = is_of_the_system


class _Look(NamedTuple):
    """One reading, and who holds what meanwhile."""

    world: World
    reading: Reading
    rules: Rules
    holders: dict[ProcessKey, list[int]]


class Attribution:
    """Finds out whose the processes of a reading are. It asks /proc only for those that it does not know yet."""

    def __init__(self, people: People, *, attempts: str = "") -> None:
        """`attempts` is the folder of the attempts: every process of a job is told its place in there."""
        self._people = people
        self._attempts = attempts
        self._cgroup = re.compile(rf"/{re.escape(cgroup_name(attempts))}-(\d+)\.(\d+)(?:/|$)", re.MULTILINE)
        self._known: dict[ProcessKey, Known] = {}
        #: Device -> pid -> when it was first listed there without a break, in ticks since boot.
        self._listed: dict[str, dict[int, int]] = {}
        #: Device -> the pids that were listed at the last reading although no process has them.
        self._gone: dict[str, set[int]] = {}
        self._own_cgroup = _cgroup_of("self")
        #: Who holds by which process, as of a revision of a world: the same for all devices of a sample.
        self._holders: tuple[World | None, int, dict[ProcessKey, list[int]]] = (None, 0, {})

    def attribute(self, world: World, reading: Reading, rules: Rules) -> tuple[Use, ...]:
        """The processes of one device, and whose they are. One that has just ended is left out."""
        listed = reading.processes or ()
        if not rules.has_local_pids or not listed:
            self._listed.pop(reading.uuid, None)
            self._gone.pop(reading.uuid, None)
            return tuple(Use(pid=pid, kind=UseKind.UNKNOWN, memory_bytes=used) for pid, used in listed)
        before, now = self._listed.get(reading.uuid, {}), _ticks_now()
        self._listed[reading.uuid] = {pid: before.get(pid, now) for pid, _ in listed}
        was_gone = self._gone.get(reading.uuid, set())
        self._gone[reading.uuid] = set()
        if self._holders[0] is not world or self._holders[1] != world.revision:
            self._holders = (world, world.revision, _holders(world))
        look = _Look(world, reading, rules, self._holders[2])
        uses = []
        for pid, used in listed:
            use = self._use(look, Use(pid=pid, kind=UseKind.UNKNOWN, memory_bytes=used))
            if use.kind is UseKind.DEAD:
                self._gone[reading.uuid].add(pid)
            if use.kind is not UseKind.DEAD or pid in was_gone:
                uses.append(use)
        return tuple(uses)

    def sweep(self, uses: dict[str, tuple[Use, ...]]) -> None:
        """Keep only what is known of processes that are in use."""
        live = {(use.pid, use.start_ticks) for of_one in uses.values() for use in of_one}
        self._known = {key: known for key, known in self._known.items() if key in live}

    def _use(self, look: _Look, use: Use) -> Use:
        try:
            proc = procs.find(use.pid)
            if proc is None:  # /proc may hide what is another user's; the kernel answers all the same
                return _as(use, UseKind.DEAD) if process_has_ended(use.pid) else use
            # One that is younger than the entry in the list is another process of that number.
            if proc.start_ticks > self._listed[look.reading.uuid][use.pid] + 1:
                return use
            known = self._known.get((proc.pid, proc.start_ticks)) or self._look_at(proc)
        except OSError:  # it cannot be looked at now, which says nothing
            return use
        if known is None:
            return use
        self._known[proc.pid, proc.start_ticks] = known
        return self._of(look, _as(use, use.kind, name=known.name, start_ticks=proc.start_ticks), known)

    def _of(self, look: _Look, use: Use, known: Known) -> Use:
        user = None if known.uid is None else self._people.name_of(known.uid)
        found = [*self._workloads(look, known)]
        holder = next((it for it, holds in found if holds), None)
        strays = [it for it, _ in found]
        if holder is None and not any(it.kind is Kind.JOB for it in strays):
            holder = self._reserved(look, known)
        if holder is not None:
            return _as(use, UseKind.HOLDER, user=user, workload=holder.id)
        if strays:
            return _as(use, UseKind.ASTRAY, user=user, workload=strays[0].id)
        if self._is_systems(look, use):
            return _as(use, UseKind.SYSTEM, user=user)
        if known.container:
            return _as(use, UseKind.CONTAINER, where=known.container)
        if user is None:  # it may change users, or there is no such account: nothing here is certain
            return use
        kind = UseKind.KERNEL if known.kernel else UseKind.USER
        return _as(use, kind, user=user, where=known.kernel)

    def _workloads(self, look: _Look, known: Known) -> Iterator[tuple[Workload, bool]]:
        """The workloads that it is of, by descent, then by its marks; and whether each holds this device."""
        for above in known.line:
            for id_ in look.holders.get(above, ()):
                it = look.world.workloads[id_]
                # Only our own engine names the holder of a job; that of a reservation is what its client says.
                if it.kind is Kind.JOB or self._is_theirs(it, known):
                    yield it, _holds(it, look.reading.uuid)
        for id_, attempt in known.marks:
            marked = look.world.workloads.get(id_)
            if marked is not None and marked.kind is Kind.JOB and self._is_theirs(marked, known):
                # What an earlier attempt has left is the job's, and holds nothing.
                yield marked, attempt == attempt_of(marked) and _holds(marked, look.reading.uuid)

    def _is_theirs(self, it: Workload, known: Known) -> bool:
        return known.uid is not None and known.uid == self._people.uid_of(it.account)

    def _reserved(self, look: _Look, known: Known) -> Workload | None:
        """A reservation of the same person: who has reserved a device may use it from wherever they like."""
        for it in look.world.holders_of(look.reading.uuid):
            if it.kind is Kind.RESERVATION and not known.container and self._is_theirs(it, known):
                return it
        return None

    def _is_systems(self, look: _Look, use: Use) -> bool:
        rules = look.rules
        if use.pid in look.reading.drawing_pids and (use.memory_bytes or 0) <= rules.drawing_bytes:
            return True
        is_cut = len(use.name) >= _NAME_BYTES
        is_named = any(use.name == it or (is_cut and it.startswith(use.name)) for it in rules.ignored_names)
        return is_named and rules.is_systems(use.pid)

    # -- one look at /proc

    def _look_at(self, proc: procs.Proc) -> Known | None:
        """All that has to be known of one process; None where it ended meanwhile."""
        uids = procs.users_of(proc.pid)
        line = _line_of(proc)
        cgroup = _cgroup_of(str(proc.pid))
        grouped = self._cgroup.search(cgroup)
        known = Known(
            name=proc.name,
            uid=uids.pop() if len(uids) == 1 else None,
            line=line,
            marks=tuple(filter(None, (_pair(*grouped.groups()) if grouped else None, self._told(proc.pid)))),
            container=self._container(cgroup),
            kernel=next(filter(None, (_kernel(pid) for pid, _ in line)), ""),
        )
        after = procs.find(proc.pid)
        return known if after is not None and after.start_ticks == proc.start_ticks else None

    def _told(self, pid: int) -> tuple[int, int] | None:
        """The job and attempt that its environment names, where that is a job of ours and of no other broker's."""
        try:
            words = procs.slurp(f"/proc/{pid}/environ", _ENVIRON_BYTES).split(b"\0")
        except OSError:  # another user's, where we are not root
            return None
        told = {name: value for name, _, value in (word.partition(b"=") for word in words)}
        if not told.get(b"JUPYTER_GPU_NOTICE_FILE", b"").startswith(os.fsencode(self._attempts) + b"/"):
            return None
        return _pair(*(os.fsdecode(told.get(name, b"")) for name in (b"JUPYTER_GPU_JOB", b"JUPYTER_GPU_ATTEMPT")))

    def _container(self, cgroup: str) -> str:
        found = _CONTAINER.search(cgroup)
        if found is None:
            return ""
        runtime, id_ = (found[1], found[2]) if found[1] else (found[3], found[4])
        # What is in the same container as we are is no stranger for that.
        return "" if id_ in self._own_cgroup else f"{runtime} {id_[:_SHOWN_OF_ID]}"


def _holders(world: World) -> dict[ProcessKey, list[int]]:
    """The processes that hold devices, by pid and start."""
    found: dict[ProcessKey, list[int]] = {}
    for it in world.holders():
        holder = it.holder
        if holder is None or holder.pid is None or holder.start_ticks is None:
            continue
        if holder.boot_id in (None, procs.boot_id()):
            found.setdefault((holder.pid, holder.start_ticks), []).append(it.id)
    return found


def _holds(it: Workload, uuid: str) -> bool:
    return it.is_live and it.lease is not None and uuid in it.lease.devices


def _as(use: Use, kind: UseKind, **more: object) -> Use:
    return msgspec.structs.replace(use, kind=kind, **more)


def _line_of(proc: procs.Proc) -> tuple[ProcessKey, ...]:
    """A process and those above it, up to the first of all."""
    line: list[ProcessKey] = []
    above: procs.Proc | None = proc
    while above is not None and above.pid > 1 and len(line) < _MOST_ANCESTORS:
        line.append((above.pid, above.start_ticks))
        above = procs.find(above.parent) if above.parent else None
    return tuple(line)


def _cgroup_of(pid: str) -> str:
    try:
        return procs.slurp(f"/proc/{pid}/cgroup").decode("utf-8", "replace")
    except OSError:
        return ""


def _pair(one: str, two: str) -> tuple[int, int] | None:
    return (int(one), int(two)) if one.isdecimal() and two.isdecimal() else None


def _kernel(pid: int) -> str:
    """Like "kernel 3f2a91c0": which Jupyter kernel a process is, by its command line; empty where it is none."""
    words = procs.argv(pid)
    for word in words:
        found = _CONNECTION_FILE.search(word)
        if found is not None:
            return f"kernel {found[1]}"
    return "a kernel" if not _KERNEL_MODULES.isdisjoint(words) else ""


def _ticks_now() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)
