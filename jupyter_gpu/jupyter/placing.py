"""What each kind of spawner must be told so that a server gets the devices of its lease, and no others.

Pure: from how the spawner's traits stand, and what was leased, to the traits to set. What the admin has set stays; only
what would hand out GPUs beside the lease gives way to it, and is named.

    local process, systemd, docker, swarm   the pin by UUID: the devices are those of the broker's own machine
    systemd                                 and DeviceAllow, so that no other card can be opened
    docker                                  and a device request by UUID, or none
    kubernetes                              a resource limit: the cluster chooses, and numbers what it gave from 0
    batch systems                           what their template has a place for; the batch system sets the pin
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from inspect import isawaitable
from typing import Any, NamedTuple

from .. import pins
from ..errors import InvalidAsk
from ..model import DeviceView


class Where(StrEnum):
    """What a spawner starts servers with, as far as it matters for devices."""

    LOCAL = "LocalProcessSpawner"
    SYSTEMD = "SystemdSpawner"
    DOCKER = "DockerSpawner"
    SWARM = "SwarmSpawner"
    KUBERNETES = "KubeSpawner"
    SLURM = "SlurmSpawner"
    PBS = "PBSSpawner"
    TORQUE = "TorqueSpawner"
    GRID_ENGINE = "GridengineSpawner"
    CONDOR = "CondorSpawner"
    LSF = "LsfSpawner"
    BATCH = "BatchSpawnerBase"
    #: None that is known here: it gets the pin, which most hand on.
    OTHER = ""

    @property
    def is_batch(self) -> bool:
        """Whether a batch system starts the server, on a machine and with GPUs of its own choice."""
        return self in _BATCH


_BATCH = frozenset(
    {Where.SLURM, Where.PBS, Where.TORQUE, Where.GRID_ENGINE, Where.CONDOR, Where.LSF, Where.BATCH}
)  # fmt: skip


class Share(NamedTuple):
    """What a server may use."""

    devices: tuple[DeviceView, ...] = ()
    reservation: int | None = None
    #: Whether its kernels reserve for themselves on the same machine, so that the server must not be fenced in.
    kernels_reserve: bool = True


class Placed(NamedTuple):
    """The traits to set, the options of a user that may not speak for them any more, and what gave way."""

    traits: dict[str, Any]
    settled: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def where(spawner_class: type) -> Where:
    """Which kind a spawner is: the nearest of its ancestors that is known."""
    known = {kind.value: kind for kind in Where if kind is not Where.OTHER}
    return next((known[it.__name__] for it in spawner_class.__mro__ if it.__name__ in known), Where.OTHER)


def wanted(kind: Where) -> tuple[str, ...]:
    """The traits that `place` looks at."""
    return ("environment", *(_BATCH_TRAITS if kind.is_batch else _TRAITS.get(kind, ())))


_TRAITS = {
    Where.SYSTEMD: ("unit_extra_properties", "isolate_devices"),
    Where.DOCKER: ("extra_host_config",),
    Where.KUBERNETES: ("extra_resource_limits", "extra_resource_guarantees"),
}
_BATCH_TRAITS = ("batch_script", "req_gres", "req_ngpus", "req_options", "req_nprocs")


def place(kind: Where, now: Mapping[str, Any], share: Share, names: Mapping[str, str] | None = None) -> Placed:
    """What to set. `names` has what a cluster calls a device class: its resource, or its type of GPU."""
    environment = dict(now.get("environment") or {})
    lost = [name for name in pins.NAMES if name in environment]
    pin = _pin(kind, share)
    notes = [f"environment: {name} is what the lease says" for name in lost if name in pin]
    traits: dict[str, Any] = {"environment": environment | pin}
    match kind:
        case Where.SYSTEMD:
            more = _systemd(now.get("unit_extra_properties") or {}, share, hides=bool(now.get("isolate_devices")))
        case Where.DOCKER:
            more = _docker(now.get("extra_host_config") or {}, share)
        case Where.KUBERNETES:
            more = _kubernetes(now, share, names or {})
        case _ if kind.is_batch:
            more = _batch(kind, now, share, names or {})
        case _:
            more = Placed({})
    return Placed(traits | more.traits, more.settled, (*notes, *more.notes))


def _pin(kind: Where, share: Share) -> dict[str, str]:
    """The variables that show the server its GPUs, explicitly none where it has none."""
    count, mine = len(share.devices), {} if share.reservation is None else {pins.RESERVATION: str(share.reservation)}
    if not count:
        return pins.variables(())
    if kind.is_batch:
        return mine
    if kind is Where.KUBERNETES:
        # The cluster gives which it likes and shows the container only those, so there they count from 0.
        return mine | {pins.VISIBLE: ",".join(map(str, range(count))), pins.ORDER: "PCI_BUS_ID"}
    return mine | pins.variables(it.uuid for it in share.devices)


# -- systemd

#: What all who use any GPU open.
_COMMON_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
#: All of that, and every card, also those that come later: a group of systemd's, by the kernel's names.
_ALL_NODES = "char-nvidia* rw"
_GPU_NODE = re.compile(r"(/dev/nvidia\d|/dev/nvidia-caps|char-nvidia(-frontend|-caps|\*|\s|$))")


class Lines(list[str]):
    """Several entries of one property. systemdspawner takes lists, but fills in each value as if it were a text."""

    def format(self, *values: Any, **words: Any) -> Lines:
        """Fill in each entry."""
        return Lines(it.format(*values, **words) for it in self)


def _systemd(before: Mapping[str, Any], share: Share, *, hides: bool) -> Placed:
    """Let the unit open the cards of its lease alone. With a DeviceAllow, systemd closes all other devices."""
    allowed = before.get("DeviceAllow", [])
    entries = [allowed] if isinstance(allowed, str) else list(allowed)
    kept = [it for it in entries if not _GPU_NODE.match(it)]
    notes = tuple(f"unit_extra_properties: DeviceAllow={it} gives way to the lease" for it in entries if it not in kept)
    nodes = dict.fromkeys(node for it in share.devices for node in it.nodes)
    if nodes and hides:
        raise InvalidAsk(
            "SystemdSpawner.isolate_devices gives the server a /dev without any GPU.",
            hint="An admin sets it to False: DeviceAllow keeps all other devices from a server with GPUs.",
        )
    if nodes:
        lines = Lines([*kept, *(f"{node} rw" for node in (*_COMMON_NODES, *nodes))])
        return Placed({"unit_extra_properties": {**before, "DeviceAllow": lines}}, notes=notes)
    if share.devices:  # simulated ones have no nodes
        return Placed({})
    if share.kernels_reserve:
        # They run in the unit of their server, and may hold any card later: an admin's list for something else, or a
        # policy, would close them all.
        is_closed = bool(entries) or before.get("DevicePolicy", "auto") != "auto"
        lines = Lines(dict.fromkeys([*entries, _ALL_NODES]))
        return Placed({"unit_extra_properties": {**before, "DeviceAllow": lines}} if is_closed else {})
    closed = {"DevicePolicy": "closed"} | {name: it for name, it in before.items() if name != "DeviceAllow"}
    return Placed({"unit_extra_properties": closed | ({"DeviceAllow": Lines(kept)} if kept else {})}, notes=notes)


# -- docker

_HostConfig = Mapping[str, Any]


def _docker(before: _HostConfig | Callable[[Any], Any], share: Share) -> Placed:
    """A request for these devices by UUID beside the admin's other requests; the admin's may come of a function."""
    uuids = [it.uuid for it in share.devices]
    mine = [{"driver": "nvidia", "device_ids": uuids, "capabilities": [["gpu"]]}] if uuids else []
    if callable(before):
        return Placed({"extra_host_config": _later(before, mine)})
    config, lost = _with_requests(before, mine)
    notes = ("extra_host_config: its own request of GPUs gives way to the lease",) if lost else ()
    return Placed({"extra_host_config": config}, notes=notes)


def _later(before: Callable[[Any], Any], mine: list[dict[str, Any]]) -> Callable[[Any], Awaitable[_HostConfig]]:
    async def extra_host_config(spawner: Any) -> _HostConfig:
        found = before(spawner)
        return _with_requests((await found if isawaitable(found) else found) or {}, mine)[0]

    return extra_host_config


def _with_requests(before: _HostConfig, mine: list[dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    asked = list(before.get("device_requests") or ())
    kept = [it for it in asked if not _is_of_gpus(it)]
    rest = {name: it for name, it in before.items() if name != "device_requests"}
    return rest | ({"device_requests": kept + mine} if kept or mine else {}), len(kept) < len(asked)


def _is_of_gpus(request: Mapping[str, Any]) -> bool:
    """Whether a device request, by docker's names or its library's, hands out GPUs: by driver, capability or CDI."""
    words = {name.lower().replace("_", ""): it for name, it in request.items()}
    capabilities = {word for group in words.get("capabilities") or () for word in group}
    ids = words.get("deviceids") or ()
    return words.get("driver") == "nvidia" or "gpu" in capabilities or any("/gpu=" in str(it) for it in ids)


# -- kubernetes


def resource_of(device_class: str, names: Mapping[str, str]) -> str:
    """What a cluster calls a device class; MIG devices have names of their own to NVIDIA's plugin."""
    return names.get(device_class) or f"nvidia.com/{device_class if device_class.startswith('mig-') else 'gpu'}"


def _kubernetes(now: Mapping[str, Any], share: Share, names: Mapping[str, str]) -> Placed:
    """The limits; a guarantee of the same resource must be equal to it, and is where it is left out."""
    counts = Counter(resource_of(it.device_class, names) for it in share.devices)
    traits, lost = {}, set()
    for trait in ("extra_resource_limits", "extra_resource_guarantees"):
        before = dict(now.get(trait) or {})
        mine = {name for name in before if name in counts or name in names.values() or _is_gpu_resource(name)}
        lost |= {f"{trait}: {name} is what the lease says" for name in mine}
        traits[trait] = {name: it for name, it in before.items() if name not in mine}
    traits["extra_resource_limits"] |= {name: str(count) for name, count in counts.items()}
    return Placed(traits, notes=tuple(sorted(lost)))


def _is_gpu_resource(name: str) -> bool:
    vendor, _, resource = name.partition("/")
    return vendor in ("nvidia.com", "amd.com", "gpu.intel.com") and not resource.startswith(("hostdev", "rdma"))


# -- batch systems


def _batch(kind: Where, now: Mapping[str, Any], share: Share, names: Mapping[str, str]) -> Placed:
    """Fill what the template has for GPUs: its own place for them, else its other options."""
    count, script = len(share.devices), str(now.get("batch_script") or "")
    traits: dict[str, Any] = {}
    if _has_place(script, "gres"):
        traits["req_gres"] = _gres(now.get("req_gres") or "", share.devices, names)
    if _has_place(script, "ngpus"):
        traits["req_ngpus"] = str(count)
    if not traits and count:
        traits = _by_other_options(kind, now, share, names, script)
    # Options of a user go into the template before ours, so a user could otherwise ask the batch system for more.
    settled = {"gres", "ngpus", *(name.removeprefix("req_") for name in traits)}
    return Placed(traits, frozenset(settled))


def _has_place(script: str, name: str) -> bool:
    return re.search(r"\{[^{}]*\b" + name + r"\b[^{}]*\}", script) is not None


def _gres(before: str, devices: Iterable[DeviceView], names: Mapping[str, str]) -> str:
    """Generic resources as Slurm writes them, "gpu:a100:2"; the admin's type of GPU stays where no other is named."""
    parts = [it for it in before.split(",") if it]
    gpus = [it for it in parts if it.split(":")[0] == "gpu"]
    typed = next((words[1] for it in gpus if len(words := it.split(":")) > 1 and not words[1].isdigit()), "")
    counts = Counter(names.get(it.device_class, typed) for it in devices)
    mine = [f"gpu:{name}:{count}" if name else f"gpu:{count}" for name, count in counts.items()]
    return ",".join([*(it for it in parts if it not in gpus), *mine])


def _by_other_options(
    kind: Where, now: Mapping[str, Any], share: Share, names: Mapping[str, str], script: str
) -> dict[str, Any]:
    count = len(share.devices)
    options, cores = str(now.get("req_options") or ""), str(now.get("req_nprocs") or "") or "1"
    per_node = {Where.TORQUE: f"{cores}:gpus={count}", Where.PBS: f"{cores}:ngpus={count}"}
    if kind in per_node and _has_place(script, "nprocs"):  # "nodes=1:ppn=4:gpus=2": of each node, beside its cores
        return {"req_nprocs": per_node[kind]}
    words = {
        Where.SLURM: f"--gres={_gres('', share.devices, names)}",
        Where.GRID_ENGINE: f"-l gpu={count}",
        Where.CONDOR: f"request_gpus = {count}",
        Where.LSF: f'-gpu "num={count}"',
    }
    if kind in words and _has_place(script, "options"):
        between = "\n" if kind is Where.CONDOR else " "
        return {"req_options": between.join(filter(None, (options, words[kind])))}
    raise InvalidAsk(
        f"The batch_script of this {kind or 'spawner'} has no place for GPUs, so the server would get none.",
        hint="An admin puts {ngpus} into the batch_script, where the batch system reads how many are wanted.",
    )


def fits_container(found: Mapping[str, Any], share: Share) -> bool:
    """Whether a container that docker shows was made with these devices and no others."""
    requests = (found.get("HostConfig") or {}).get("DeviceRequests") or ()
    ids = {str(it) for request in requests if _is_of_gpus(request) for it in request.get("DeviceIDs") or ("all",)}
    return ids == {it.uuid for it in share.devices}
