"""Whose each process on a device is, as far as that is certain.

A holder is known by pid, start time and descent, which the kernel keeps and nobody can make up; a job also by its
cgroup, and by the variables that it was given. Both of the last a user may imitate, so they count only where the
process is that of the workload's own account: nobody passes as the holder of somebody else's device. A number alone
proves nothing: inside a container the driver lists pids that are not ours, and the process of that number here may be
any other (wookayin/gpustat#117).

Whose it is by name, under a hub (`owners`):

    certain   the workload that it holds for or left; else an account that is one user's alone; else, where an account
              is that of many, the server that it descends from, and runs as the user of; in a container, the one that
              the hub said it started, in a cgroup that only root can have made
    a hint    its environment. Its server and its notebook are shown by that, where its owner is certain and it names
              no other; whose it says it is, to operators and as its own word. Nothing is decided by it

Where an account is that of many, neither a variable nor the account makes a process a holder's: anybody of it could
pass as all others. Who breaks into somebody's server there is in that server, as in all else.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from ..model import Kind, Reading, Use, UseKind, Workload, World
from . import marks
from .attempts import attempt_of
from .engines import procs
from .engines.spool import cgroup_name
from .owners import Owners, ProcessKey, Server
from .people import People, is_of_a_person
from .shield import Shield
from .telemetry.clear import is_of_the_system, printable, process_has_ended

_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_ANCESTORS = 16
#: So many processes of one device are known at most, the largest; the others are not known.
_MOST_KNOWN = 256
#: So many new ones are looked at for one sample; the others are not known until the next.
_MOST_NEW = 32
#: The kernel cuts the name of a process to so many bytes.
_NAME_BYTES = 15
_HUB_USER, _HUB_SERVER, _NOTEBOOK = "JUPYTERHUB_USER", "JUPYTERHUB_SERVER_NAME", "JPY_SESSION_NAME"
_PLACE, _JOB, _ATTEMPT = "JUPYTER_GPU_NOTICE_FILE", "JUPYTER_GPU_JOB", "JUPYTER_GPU_ATTEMPT"


class Known(NamedTuple):
    """What was found out once of one process, told from later ones of its number by its start."""

    name: str
    #: Its user, where real, effective and saved are one.
    uid: int | None
    #: Itself and those above it, nearest first.
    line: tuple[ProcessKey, ...]
    #: The jobs and attempts that its cgroup and its environment name; and whether more than its word says so.
    marks: tuple[tuple[tuple[int, int], bool], ...]
    #: The container that it is in, if any; empty where that may be another.
    container: marks.Container | None
    #: The kernel that it is of, in words; empty for none.
    kernel: str
    #: Its own user may have made the cgroup that is named for a container.
    is_own_cgroup: bool = False
    #: By its own word: the user of the hub, the server of that, and the path of the notebook.
    says: Mapping[str, str] = MappingProxyType({})


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

    def __init__(self, people: People, owners: Owners | None = None, *, attempts: str = "") -> None:
        """`attempts` is the folder of the attempts: every process of a job is told its place in there."""
        self._people, self._owners = people, owners or Owners()
        self._attempts = attempts
        name = re.escape(cgroup_name(attempts))
        self._cgroup = re.compile(rf"/{name}-([0-9]{{1,18}})\.([0-9]{{1,18}})(?:/|$)", re.MULTILINE)
        self._known: dict[ProcessKey, Known] = {}
        #: Device -> pid -> when it was first listed there without a break, in ticks since boot.
        self._listed: dict[str, dict[int, int]] = {}
        #: Device -> the pids that were listed at the last reading although no process has them.
        self._gone: dict[str, set[int]] = {}
        self._own_cgroup = marks.cgroup_of("self")
        self._shield = Shield()
        #: How many more may be looked at for this sample.
        self._may_look_at = _MOST_NEW
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
        for pid, used in _largest(listed):
            use = Use(pid=pid, kind=UseKind.UNKNOWN, memory_bytes=used)
            with self._shield.around(f"process {pid}"):
                use = self._use(look, use)
            if use.kind is UseKind.DEAD:
                self._gone[reading.uuid].add(pid)
            if use.kind is not UseKind.DEAD or pid in was_gone:
                uses.append(use)
        known = {use.pid for use in uses} | self._gone[reading.uuid]
        uses += [Use(pid=pid, kind=UseKind.UNKNOWN, memory_bytes=used) for pid, used in listed if pid not in known]
        return tuple(uses)

    def sweep(self, uses: dict[str, tuple[Use, ...]]) -> None:
        """End a sample: keep only what is known of processes that are in use."""
        self._may_look_at = _MOST_NEW
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
            if proc.zombie:  # nobody has taken note of its end yet
                return _as(use, UseKind.DEAD)
            known = self._known.get((proc.pid, proc.start_ticks))
            if known is None and self._may_look_at > 0:
                self._may_look_at -= 1
                known = self._look_at(proc)
        except OSError:  # it cannot be looked at now, which says nothing
            return use
        if known is None:
            return use
        self._known[proc.pid, proc.start_ticks] = known
        return self._of(look, _as(use, use.kind, name=known.name, start_ticks=proc.start_ticks), known)

    def _of(self, look: _Look, use: Use, known: Known) -> Use:
        user = None if known.uid is None else self._people.name_of(known.uid)
        server = self._server(known, user)
        found = [*self._workloads(look, known)]
        holder = next((it for it, holds in found if holds), None)
        strays = [it for it, _ in found]
        if holder is None and not any(it.kind is Kind.JOB for it in strays):
            holder = self._reserved(look, known, server)
        if holder is not None:
            return self._named(use, UseKind.HOLDER, known, holder.owner, server, user=user, workload=holder.id)
        if strays:
            return self._named(use, UseKind.ASTRAY, known, strays[0].owner, server, user=user, workload=strays[0].id)
        if self._is_systems(look, use):
            return _as(use, UseKind.SYSTEM, user=user)
        owner = None if server is None else server.owner
        if known.container is not None and self._is_in_container(known):
            return self._named(use, UseKind.CONTAINER, known, owner, server, where=known.container.title)
        if user is None or known.uid is None:  # it may change users, or there is no such account
            return use
        kind = UseKind.KERNEL if known.kernel else UseKind.USER
        owner = self._owners.of_account(user, known.uid) or owner
        return self._named(use, kind, known, owner, server, user=user, where=known.kernel)

    def _server(self, known: Known, user: str | None) -> Server | None:
        """The server of a hub that it is certainly in. Of another user's process in it that is not certain."""
        if self._is_in_container(known):
            it, uid = known.container, -1 if known.uid is None else known.uid
            return self._owners.of_container(it.id) if it is not None and it.is_roots(uid) else None
        server = self._owners.of_line(known.line)
        if server is None or known.uid is None:
            return None
        owner = None if user is None else self._owners.of_account(user, known.uid)
        return server if owner == server.owner or (owner is None and server.uid == known.uid) else None

    def _named(
        self, use: Use, kind: UseKind, known: Known, owner: str | None, server: Server | None, **more: object
    ) -> Use:
        """With the names of people that are certain, and what it says of itself where that can harm nobody else."""
        says = known.says
        if owner is None:
            return _as(use, kind, claim=self._claim(known, more.get("user")), **more)
        named: dict[str, object] = {"owner": owner, "notebook": says.get(_NOTEBOOK, "") if known.kernel else ""}
        if server is not None and server.owner == owner:
            named["server"] = server.called
        elif self._owners.has_hub and says.get(_HUB_USER) == owner:
            named["server"] = says.get(_HUB_SERVER, "")
        return _as(use, kind, **named, **more)

    def _claim(self, known: Known, account: object) -> str:
        """Whose it says it is, where that may be."""
        says, server = known.says.get(_HUB_USER, ""), known.says.get(_HUB_SERVER, "")
        may_be = self._is_in_container(known) or self._owners.may_run_as(says, str(account or ""))
        if not (says and self._owners.has_hub and may_be):
            return ""
        return f"{says}, server {server}" if server else says

    def _is_in_container(self, known: Known) -> bool:
        """A name that a person may have given to a cgroup of their own makes no container of it."""
        is_theirs = known.is_own_cgroup and known.uid is not None and self._people.name_of(known.uid) is not None
        return known.container is not None and not is_theirs

    def _workloads(self, look: _Look, known: Known) -> Iterator[tuple[Workload, bool]]:
        """The workloads that it is of, by descent, then by its marks; and whether each holds this device."""
        for above in known.line:
            for id_ in look.holders.get(above, ()):
                it = look.world.workloads[id_]
                # Only our own engine names the holder of a job; that of a reservation is what its client says.
                if it.kind is Kind.JOB or self._is_theirs(it, known):
                    yield it, _holds(it, look.reading.uuid)
        for (id_, attempt), is_sure in known.marks:
            marked = look.world.workloads.get(id_)
            if marked is None or marked.kind is not Kind.JOB or not self._is_theirs(marked, known):
                continue
            if is_sure or not self._is_of_many(marked, known):
                # What an earlier attempt has left is the job's, and holds nothing.
                yield marked, attempt == attempt_of(marked) and _holds(marked, look.reading.uuid)

    def _is_theirs(self, it: Workload, known: Known) -> bool:
        return known.uid is not None and known.uid == self._people.uid_of(it.account)

    def _is_of_many(self, it: Workload, known: Known) -> bool:
        """Whether the account of a workload, which a process is of, may be that of others too."""
        return known.uid is None or self._owners.of_account(it.account, known.uid) is None

    def _reserved(self, look: _Look, known: Known, server: Server | None) -> Workload | None:
        """A reservation of the same person: who has reserved a device may use it from wherever they like."""
        for it in look.world.holders_of(look.reading.uuid):
            if it.kind is Kind.RESERVATION and self._is_of_owner(it, known, server):
                return it
        return None

    def _is_of_owner(self, it: Workload, known: Known, server: Server | None) -> bool:
        if server is not None:
            return server.owner == it.owner
        return not self._is_in_container(known) and self._is_theirs(it, known) and not self._is_of_many(it, known)

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
        uid = uids.pop() if len(uids) == 1 else None
        cgroup = marks.cgroup_of(str(proc.pid))
        container = marks.container_of(cgroup)
        if container is not None and container.id in self._own_cgroup:
            container = None  # what is in the same container as we are is no stranger for that
        kernel = next(filter(None, (marks.kernel_of(pid) for pid, _ in line)), "")
        told = _told(proc.pid)
        known = Known(
            name=printable(proc.name),
            uid=uid,
            line=line,
            marks=tuple(filter(None, (self._grouped(cgroup, uid), self._marked(told)))),
            container=container,
            kernel=kernel,
            is_own_cgroup=container is not None and is_of_a_person(uid) and container.is_made_by(uid),
            says=_said(told),
        )
        after = procs.find(proc.pid)
        return known if after is not None and after.start_ticks == proc.start_ticks else None

    def _grouped(self, cgroup: str, uid: int | None) -> tuple[tuple[int, int], bool] | None:
        """The job and attempt that its cgroup names; certain where nobody but root can have made that."""
        for line in cgroup.splitlines():
            found = self._cgroup.search(line)
            pair = marks.pair(*found.groups()) if found and line.count(":") > 1 else None
            if pair is not None:
                return pair, uid is not None and not marks.is_made_by(line, uid)
        return None

    def _marked(self, told: Mapping[str, str]) -> tuple[tuple[int, int], bool] | None:
        """The job and attempt that its environment names, where that is a job of ours and of no other broker's."""
        if not told.get(_PLACE, "").startswith(f"{self._attempts}/"):
            return None
        pair = marks.pair(told.get(_JOB, ""), told.get(_ATTEMPT, ""))
        return None if pair is None else (pair, False)


def _told(pid: int) -> dict[str, str]:
    """Of its environment what may say whose it is."""
    try:
        return marks.variables_of(pid, (_PLACE, _JOB, _ATTEMPT, _HUB_USER, _HUB_SERVER, _NOTEBOOK))
    except OSError:  # another user's, where we are not root
        return {}


def _said(told: Mapping[str, str]) -> Mapping[str, str]:
    """As it may be shown; of a notebook its file."""
    shown = {name: printable(told[name]) for name in (_HUB_USER, _HUB_SERVER) if name in told}
    notebook = PurePath(told.get(_NOTEBOOK, "")).name
    return shown | ({_NOTEBOOK: printable(notebook)} if notebook else {})


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


def _largest(listed: tuple[tuple[int, int | None], ...]) -> list[tuple[int, int | None]]:
    """Those that are looked at, of however many: in the order of the list unless they are too many."""
    if len(listed) <= _MOST_KNOWN:
        return list(listed)
    return sorted(listed, key=lambda it: (-(it[1] or 0), it[0]))[:_MOST_KNOWN]


def _ticks_now() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)
