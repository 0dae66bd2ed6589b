"""Devices, what is wrong with them, and one reading of them: what telemetry sees and the core places on.

Like all nouns these are frozen, instants are Unix seconds, and None is "not known", shown as "n/a", never zero.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Condition(StrEnum):
    """What is wrong with a device, the gravest first: of several at once the gravest is told."""

    #: It has gone from the bus or from the inventory; what ran there is lost.
    LOST = "lost"
    #: Its hardware has failed: an uncorrectable memory error, a grave Xid, work that died of it again and again.
    FAULTY = "faulty"
    #: It works on, but a repair that it has noted (a row remap, a retired page) waits for a reset.
    RESET_NEEDED = "reset-needed"
    #: Its compute mode forbids every CUDA process.
    PROHIBITED = "prohibited"
    #: It cannot be read, so nothing is known of it.
    UNREADABLE = "unreadable"
    #: Hotter than it may be, or slowed down by heat or by want of power.
    HOT = "hot"
    #: It shows load although nobody is on it.
    SUSPECT = "suspect"
    #: What was left on it after its last lease.
    NOT_CLEAR = "not-clear"
    #: Somebody is on it who has no lease.
    FOREIGN = "foreign"

    def is_graver_than(self, other: Condition | None) -> bool:
        """Say whether this goes before `other`; any condition goes before none."""
        return other is None or _GRAVITY[self] < _GRAVITY[other]


_GRAVITY = {condition: place for place, condition in enumerate(Condition)}


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a device by its newest reading. An observation, never an event."""

    condition: Condition
    detail: str = ""


class UseKind(StrEnum):
    """Whose a process on a device is, as far as that is certain."""

    #: Of a workload that holds this device.
    HOLDER = "holder"
    #: Of a workload that holds other devices, or none: it left its pin.
    ASTRAY = "astray"
    #: Of a Jupyter kernel without a lease.
    KERNEL = "kernel"
    #: In a container that is none of ours.
    CONTAINER = "container"
    #: Of a known account, and nothing of ours.
    USER = "user"
    #: The machine's own, which the policy ignores: a display, a monitor.
    SYSTEM = "system"
    #: It has ended, and the driver still counts its memory.
    DEAD = "dead"
    #: Its pid cannot be looked up here, or is not certain.
    UNKNOWN = "unknown"


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU in MIG mode: no device itself, but what its MIG devices are parts of."""

    uuid: str
    index: int
    name: str
    memory_bytes: int | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be leased: a whole GPU or one MIG device, named by its NVML UUID."""

    uuid: str
    #: Its number to NVML; of a MIG device one that no whole GPU has. It may change at a reboot.
    index: int
    name: str
    device_class: str
    memory_bytes: int | None = None
    pool: str = "local"
    node: str = ""
    link_group: str | None = None
    #: Parts of its memory may be leased: what the policy says of it.
    shareable: bool = False
    simulated: bool = False
    #: Of a MIG device: the GPU that it is a part of, and its number there.
    card: Card | None = None
    slot: int | None = None
    #: The device nodes that whoever does not hold it must not open, like /dev/nvidia0; those that all use are not here.
    nodes: tuple[str, ...] = ()
    #: CUDA lets one process in at a time, so its memory cannot be shared.
    exclusive: bool = False
    #: Its memory is the machine's own, so no part of it can be leased (wookayin/gpustat#179).
    shares_host_memory: bool = False
    cordoned: bool = False
    #: Who did that, and what they said why; empty while it is not cordoned.
    cordoned_by: str = ""
    cordon_reason: str = ""
    #: Set by the broker for a stated fault; no lease while it lasts.
    condition: Condition | None = None
    condition_detail: str = ""
    condition_since: float | None = None

    @property
    def title(self) -> str:
        """How people read it: "GPU 0", and "GPU 0:1" for a MIG device, as container tools number them."""
        return f"GPU {self.number}"

    @property
    def is_well(self) -> bool:
        """Whether new leases may be placed on it."""
        return not self.cordoned and self.condition is None

    @property
    def number(self) -> str:
        """The same without the word: "0", "0:1"."""
        return str(self.index) if self.card is None else f"{self.card.index}:{self.slot}"


class Vitals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a card says of its own health. It is asked less often than its memory; None is "not offered"."""

    #: default, exclusive-process or prohibited.
    compute_mode: str | None = None
    #: Why it is slower than it could be, of what is a fault: hw-thermal, sw-thermal, power-brake, hw-slowdown.
    slowed_by: tuple[str, ...] = ()
    #: It slows itself down from this temperature on.
    slowdown_celsius: int | None = None
    #: Uncorrectable memory errors since the driver was loaded or the card reset.
    ecc_uncorrected: int | None = None
    #: A row remap or a page retirement waits for a reset.
    repair_pending: bool | None = None
    #: There is no spare row left: it must be replaced.
    repair_failed: bool | None = None
    #: What the driver itself asks for: none, reset, reboot, drain-p2p or drain-and-reset.
    recovery_action: str | None = None
    drives_display: bool | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device, or the card of MIG devices, at one instant. What could not be read is None and shown as "n/a"."""

    uuid: str
    at: float
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    #: What the driver keeps for itself, beside what is used; where the memory is the machine's own, what all else uses.
    memory_reserved_bytes: int | None = None
    utilisation_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    #: (pid, memory_used_bytes) of each process on the device; None where they cannot be listed.
    processes: tuple[tuple[int, int | None], ...] | None = None
    #: Those of them that only draw: a display, not CUDA.
    drawing_pids: tuple[int, ...] = ()
    vitals: Vitals | None = None
    #: Why the device could not be read at all.
    fault: str | None = None

    @property
    def memory_free_bytes(self) -> int | None:
        """Free memory, or None where either number is unknown."""
        if self.memory_used_bytes is None or self.memory_total_bytes is None:
            return None
        return max(0, self.memory_total_bytes - self.memory_used_bytes - (self.memory_reserved_bytes or 0))


class Use(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process on a device, and whose it is as far as that is certain. An observation, never an event."""

    pid: int
    kind: UseKind
    memory_bytes: int | None = None
    #: The process by name; empty where it cannot be looked up.
    name: str = ""
    #: The account whose process it is, only where that is certain.
    user: str | None = None
    #: Whose it is, by the name that they have as an owner here, only where that is certain. Without a hub that is the
    #: account; under one an account may be that of many, and a container's is nobody's.
    owner: str | None = None
    #: In which of its owner's servers it is, as people call that; empty is their usual one, None is not known.
    server: str | None = None
    #: The notebook of the kernel that it is of, by its owner's own word.
    notebook: str = ""
    #: Whose it says it is, where that is not certain: its own word, which decides nothing.
    claim: str = ""
    #: Of HOLDER and ASTRAY: the workload.
    workload: int | None = None
    #: Of KERNEL and CONTAINER: which one, in words.
    where: str = ""
    #: With the pid this tells the process from a later one; None where it cannot be looked up.
    start_ticks: int | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether it is on the device without a lease of it."""
        return self.kind not in (UseKind.HOLDER, UseKind.SYSTEM)


class CardEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An Xid that the driver reported of a GPU or a MIG device, by the UUID of that."""

    uuid: str
    xid: int
    at: float


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of all the devices of a pool, and of their cards; `fault` says why there is none."""

    at: float
    readings: tuple[Reading, ...] = ()
    #: What the driver reported since the sample before.
    events: tuple[CardEvent, ...] = ()
    fault: str | None = None
