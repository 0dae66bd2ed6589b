"""Which layer keeps jobs from the devices of others here, and whether it does: the broker's part of isolation.

The layers are tried in their order, each by a probe: a start like any other, through the launcher and as a user
without rights, that withholds every node there is and then tries to open each. The first whose probe is refused
everywhere is taken, and only then isolation is called enforced. It is called advisory again, with the reason, as
soon as any job's own probe gets in where it should not, and while a job runs as root, which no layer holds, or one
that began before a node was there and that its layer does not keep from it. Nodes that come, go or change, and mounts
that show them a second time, are tried anew. Where there is nothing to keep apart nothing is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...model import Device, IsolationView
from . import bpf, cgroup, containers, files, isolation, landlock, procs, reach
from .spool import PROBE, Spool, make_folder

log = logging.getLogger(__name__)

#: What each choice of the admin's tries, in this order.
LAYERS = {
    "auto": (isolation.CGROUP_2, isolation.CGROUP_1, isolation.LANDLOCK, isolation.BUBBLEWRAP),
    "cgroup": (isolation.CGROUP_2, isolation.CGROUP_1),
    "landlock": (isolation.LANDLOCK,),
    "bubblewrap": (isolation.BUBBLEWRAP,),
    "off": (),
}
_NOBODY = 65534
_TRIAL_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_LOOKS = 10
_AGAIN_SECONDS = 30.0
_MOST_NAMED = 4


class Guard:
    """The layer that is taken, and what the probes have said of it."""

    def __init__(self, choice: str, spool: Spool, ask: Callable[[str], bool]) -> None:
        if choice not in LAYERS:
            raise ValueError(f"isolation is one of {', '.join(LAYERS)}, not {choice!r}")
        self._choice, self._spool, self._ask = choice, spool, ask
        self._layer = ""
        self._program = ""
        self._nodes: frozenset[str] = frozenset()
        #: Where mounts show the same nodes again, and the list of mounts that says so.
        self._twins: dict[str, tuple[str, ...]] = {}
        self._mounts = b""
        #: What was there when it was last tried: the driver's helper makes nodes late, and anew.
        self._there: frozenset[reach.Node] = frozenset()
        #: Every node was tried with the layer, and each was refused.
        self._is_proven = False
        self._detail = ""
        #: What a job's own probe has found since.
        self._breach = ""
        #: Jobs that no layer holds, and why.
        self._loose: dict[tuple[int, int], str] = {}
        self._jobs: dict[tuple[int, int], reach.Job] = {}
        self._finding: asyncio.Task[None] | None = None
        self._heard: dict[str, asyncio.Event] = {}
        self._serial = 0

    @property
    def view(self) -> IsolationView:
        """What to tell of it."""
        by = self._layer if self._nodes else ""
        if not self._nodes:
            return IsolationView(enforced=False, detail="there are no device nodes to keep apart")
        if self._choice == "off":
            return IsolationView(enforced=False, detail="it is switched off by the broker's configuration")
        if self._breach:
            return IsolationView(enforced=False, by=by, detail=self._breach)
        if self._is_proven and self._loose:
            return IsolationView(enforced=False, by=by, detail=next(iter(self._loose.values())))
        return IsolationView(enforced=self._is_proven, by=by, detail=self._detail)

    async def begin(self) -> None:
        """Take the first layer that can be had, so that no job starts without one before there was a probe."""
        for folder in self._spool.left_probes():
            shutil.rmtree(folder, ignore_errors=True)
        for layer in LAYERS[self._choice]:
            if not await asyncio.to_thread(self._why_not, layer):
                self._layer = layer
                return

    def close(self) -> None:
        """Probe no more."""
        if self._finding:
            self._finding.cancel()

    def keep_apart(self, nodes: Iterable[str]) -> None:
        """Take the nodes of all devices; those that are new are tried."""
        wanted = frozenset(nodes)
        if wanted != self._nodes:
            self._try_anew(wanted)

    def look(self) -> None:
        """Try the nodes again where they are no longer what they were."""
        if self._nodes and (self._find_twins(self._nodes) or reach.nodes_at(self._paths()) != self._there):
            self._try_anew(self._nodes)

    def _try_anew(self, wanted: frozenset[str]) -> None:
        self._nodes, self._is_proven, self._breach = wanted, False, ""
        self._find_twins(wanted, anew=True)
        self._there = reach.nodes_at(self._paths())
        for key, job in self._jobs.items():
            if found := reach.late(job, self._there):
                self._loose.setdefault(key, f"job {key[0]} began before {_named(found)} came to be")
        self._detail = "not probed yet"
        if self._finding:
            self._finding.cancel()
            self._finding = None
        if wanted and LAYERS[self._choice]:
            self._finding = asyncio.get_running_loop().create_task(self._find(wanted))

    def _find_twins(self, nodes: frozenset[str], *, anew: bool = False) -> bool:
        """Look where else the nodes are shown, if the mounts have changed; whether that has."""
        try:
            mounts = procs.slurp("/proc/self/mountinfo")
        except OSError:
            return False
        if mounts == self._mounts and not anew:
            return False
        before = self._twins
        self._mounts, self._twins = mounts, reach.twins_of(nodes, mounts.decode("utf-8", "surrogateescape"))
        return before != self._twins

    def _paths(self) -> Iterable[str]:
        return {*self._nodes, *(twin for twins in self._twins.values() for twin in twins)}

    def fence(self, nodes: Iterable[str], devices: Sequence[Device] = (), engine: str = "") -> reach.Job:
        """What a spec says of it; no fence where there is nothing to withhold, or nothing to do so by.

        In a container only the rules of a cgroup can be had, and only where its engine leaves it in ours: Landlock lets
        nobody mount, and bubblewrap nobody who needs ids of others.
        """
        by_cgroup = self._layer in (isolation.CGROUP_1, isolation.CGROUP_2)
        if engine and nodes and not (engine == containers.APPTAINER and by_cgroup):
            is_closed = engine != containers.APPTAINER  # which shows the nodes of all
            fence: dict[str, Any] | None = {
                "by": isolation.CONTAINER, "engine": engine, "is_closed": is_closed, "withheld": sorted(nodes),
                "errands": self.for_errands(must_mount=True),
            }  # fmt: skip
        else:
            fence = self._fence(self._layer, sorted(nodes), devices) if self._layer and nodes else None
        return reach.Job(fence, reach.nodes_at(self._paths()))

    def for_errands(self, nodes: Iterable[str] = (), *, must_mount: bool = False) -> dict[str, Any]:
        """In what programs of users are run beside us: see `errand`. `must_mount`: as container engines must.

        `nodes`: what else is known, as of the broker before this one, until there was a look.
        """
        all_of_them = sorted({*self._nodes, *nodes})
        by_cgroup = self._layer in (isolation.CGROUP_1, isolation.CGROUP_2)
        may_be = bool(all_of_them) and (by_cgroup or (self._layer == isolation.LANDLOCK and not must_mount))
        return self._spool.for_errands(self._fence(self._layer, all_of_them) if may_be else None)

    def started(self, key: tuple[int, int], job: reach.Job, uid: int | None) -> None:
        """A job is about to run; `uid`: the user that it becomes, None where it stays who we are."""
        self._jobs[key] = job
        if job.fence and job.fence["by"] == isolation.CONTAINER:
            self._loose[key] = _of_container(key[0], job.fence)
        else:
            self._is_loose_as_root(key, job.fence, uid)

    def _is_loose_as_root(self, key: tuple[int, int], fence: dict[str, Any] | None, uid: int | None) -> None:
        if fence and (os.geteuid() if uid is None else uid) == 0:
            self._loose[key] = f"job {key[0]} runs as root, and root can leave every layer"

    def adopted(self, key: tuple[int, int], folder: str) -> None:
        """An earlier broker has started it."""
        spec = files.read(f"{folder}/{files.SPEC}") or {}
        job = reach.Job(spec.get("isolation"), frozenset(reach.Node(*node) for node in spec.get("nodes", ())))
        self.started(key, job, spec.get("uid"))
        if "nodes" not in spec:  # an earlier version has started it
            self._loose.setdefault(key, f"it is not on record what job {key[0]} is kept from")

    def ended(self, key: tuple[int, int], outcome: dict[str, Any]) -> None:
        """There is an outcome; its tree may still live."""
        if outcome.get("gone"):
            self._loose.pop(key, None)
            self._jobs.pop(key, None)
        self._blame(key, outcome.get("isolation"))

    def told(self, key: tuple[int, int], found: dict[str, Any]) -> None:
        """The probe of a job that runs has told: what it could open, and what was not there and so is not withheld."""
        missing = [node for node in found["missing"] if node in self._nodes]
        if missing and found["by"] != isolation.LANDLOCK:  # which withholds what is made later, too
            self._loose.setdefault(key, f"job {key[0]} began before {_named(missing)} came to be")
        self._blame(key, found)

    def _blame(self, key: tuple[int, int], found: dict[str, Any] | None) -> None:
        """What a job could open can be opened."""
        if found and found["opened"] and not self._breach:
            why = f" ({found['why']})" if found.get("why") else ""
            self._breach = f"job {key[0]} could open {_named(found['opened'])} in spite of it{why}"
            log.warning("isolation by %s is advisory only: %s", found["by"], self._breach)

    def heard(self, folder: str) -> bool:
        """A report of a probe has come; False where the folder is none of a probe."""
        if folder in self._heard:
            self._heard[folder].set()
        return os.path.basename(folder).startswith(PROBE)  # noqa: PTH119

    # --- finding a layer --------------------------------------------------------------------------

    async def _find(self, nodes: frozenset[str]) -> None:
        while True:
            said, answered, weak = dict[str, list[str]](), True, ""
            for layer in LAYERS[self._choice]:
                why = await asyncio.to_thread(self._why_not, layer)
                found = None if why else await self._probe(layer, sorted(nodes))
                answered = answered and (bool(why) or found is not None)
                trouble = why or _trouble(found)
                if not trouble:
                    self._take(
                        layer, f"a process like a job's tried all {len(nodes)} device nodes, and each was refused"
                    )
                    return
                said.setdefault(trouble, []).append(layer)
                if found and not found.get("failed"):
                    weak = weak or layer
                if found and found["missing"] and not found["opened"]:
                    said = {trouble: []}  # no other layer could try them either
                    break
            self._is_proven, self._detail = False, "; ".join(_of_layers(*each) for each in said.items())
            log.warning("isolation is advisory only: %s", self._detail)
            if answered:
                self._layer = weak  # it withholds some, and no job fails of it
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def _take(self, layer: str, detail: str) -> None:
        self._layer, self._is_proven, self._detail = layer, True, detail
        log.info("jobs are kept from the GPUs of others by %s: %s", layer, detail)

    async def _probe(self, layer: str, nodes: list[str]) -> dict[str, Any] | None:
        """Start one, and wait for what it found; None where it never told."""
        self._serial += 1
        folder = f"{self._spool.root}/{PROBE}{os.getpid()}-{self._serial}"
        heard = self._heard[folder] = asyncio.Event()
        outcome = None
        try:
            make_folder(folder)
            spec = self._spool.spec_of_a_probe(folder, self._fence(layer, nodes))
            files.write_spec(folder, spec | _user(nodes), {}, fresh=True)
            for _ in range(_LOOKS):
                if files.read(f"{folder}/{files.MARK}") is None:
                    self._ask(folder)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(heard.wait(), _LOOK_SECONDS)
                heard.clear()
                outcome = files.read(f"{folder}/{files.OUTCOME}")
                if outcome and outcome.get("gone"):
                    break
        except OSError as error:
            log.warning("isolation cannot be probed: %s", error)
        finally:
            del self._heard[folder]
            shutil.rmtree(folder, ignore_errors=True)
        if outcome is None:
            return None
        failed = {"opened": [], "missing": [], "why": outcome.get("detail", ""), "failed": True}
        return outcome.get("isolation") or failed

    def _fence(self, layer: str, nodes: list[str], devices: Sequence[Device] = ()) -> dict[str, Any]:
        fence: dict[str, Any] = {"by": layer, "withheld": nodes}
        if layer == isolation.CGROUP_2:
            fence["whole"] = self._whole(nodes, devices)
        if layer == isolation.LANDLOCK:
            fence["folders"] = reach.folders_of(self._nodes)
        if layer in (isolation.LANDLOCK, isolation.BUBBLEWRAP):  # which go by paths; numbers are the same everywhere
            fence["also"] = sorted({twin for node in nodes for twin in self._twins.get(node, ())} - set(nodes))
        if layer == isolation.BUBBLEWRAP:
            fence["program"] = self._program
        return fence

    def _whole(self, nodes: list[str], devices: Sequence[Device]) -> list[tuple[int, list[int]]]:
        """The majors that are refused as a whole; none where a node that the job needs might be among them.

        That is where its own are not all there yet, or a driver does not tell which they are.
        """
        own = {*self._nodes, *(node for device in devices for node in device.nodes)}.difference(nodes)
        untold = any(len(device.nodes) <= (device.card is not None) for device in devices)
        return [] if untold or len(reach.nodes_at(own)) < len(own) else reach.whole_of(own, reach.majors())

    def _why_not(self, layer: str) -> str:
        """Why this layer cannot be had here; empty where it can, as far as that shows without a probe."""
        if layer == isolation.LANDLOCK:
            return landlock.why_not()
        if layer == isolation.BUBBLEWRAP:
            self._program = shutil.which("bwrap") or ""
            return _try_bubblewrap(self._program) if self._program else "the program bwrap is not there"
        if os.geteuid() != 0:
            return "only root may set the rules of a cgroup"
        if layer == isolation.CGROUP_1:
            return "" if cgroup.parent_for_devices() else "there is no devices controller of version 1 that we may use"
        if not self._spool.has_cgroup_2:
            return "there is no cgroup of version 2 that we may make others in"
        try:
            os.close(bpf.load([], []))
        except OSError as error:
            return f"the kernel takes no program of ours ({error.strerror})"
        return ""


def _trouble(found: dict[str, Any] | None) -> str:
    """What is wrong with a layer by its probe; empty where every node was refused."""
    if found is None:
        return "the probe did not answer"
    why = f" ({found['why']})" if found.get("why") else ""
    if found["opened"]:
        return f"the probe could open {_named(found['opened'])}{why}"
    if found["missing"]:
        return f"it could not be tried where there is no such file: {_named(found['missing'])}"
    return found.get("why") or ""


def _of_container(workload: int, fence: dict[str, Any]) -> str:
    """What is known of what a job in a container can open: what its engine was told, and no more."""
    if not fence["is_closed"]:
        return f"job {workload} runs in {fence['engine']}, which shows it the nodes of all GPUs"
    return f"job {workload} is kept to its GPUs by its container ({fence['engine']}), and that was not probed"


def _of_layers(trouble: str, layers: list[str]) -> str:
    """The same trouble of several is told once; one that is of no layer, without them."""
    return f"{' and '.join(layers)}: {trouble}" if layers else trouble


def _named(nodes: list[str]) -> str:
    more = len(nodes) - _MOST_NAMED
    return ", ".join(nodes[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _user(nodes: list[str]) -> dict[str, Any]:
    """Who a probe runs as: where we are root a user without rights, but of every group that a node is open to."""
    if os.geteuid() != 0:
        return {"account": "", "uid": None, "gid": None, "groups": []}
    groups = set()
    for node in nodes:
        with contextlib.suppress(OSError):
            groups.add(os.stat(node).st_gid)  # noqa: PTH116
    try:
        who = pwd.getpwnam("nobody")
        uid, gid = who.pw_uid, who.pw_gid
    except KeyError:
        uid = gid = _NOBODY
    return {"account": "nobody", "uid": uid, "gid": gid, "groups": sorted(groups)}


def _try_bubblewrap(program: str) -> str:
    """Why it cannot be used; user namespaces may be forbidden."""
    words = [program, "--dev-bind", "/", "/", "--", "true"]
    who: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}
    try:
        done = subprocess.run(words, capture_output=True, timeout=_TRIAL_SECONDS, check=False, cwd="/", **who)
    except (OSError, subprocess.SubprocessError) as error:
        return f"it cannot be run: {error}"
    said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return "" if done.returncode == 0 else said or f"it ends with exit code {done.returncode}"
