"""Boards: what the stand-in for NVML shows, changed while it is read.

A board is written to a file, whole or not at all, and the library reads it anew at the next call after each change.
Nothing shows before `write()`, so several changes are seen at once:

    board = boards.four_lab_cards(tmp_path)
    subprocess.Popen([...], env={**os.environ, **board.environment()})
    board.cards[2].lose()
    board.write()

What a card has no value for, it answers with "not supported". Calls are named as the C library names them
("nvmlDeviceGetMemoryInfo_v2"); "*" at the end stands for any rest. A rule of the board holds for every call, one of a
card or a MIG device for calls about that, and for those that look it up.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .library import empty_folder, library

MIB, GIB = 1 << 20, 1 << 30
#: What drivers write where they have no number.
ALL_ONES, ALL_ONES_32 = 2**64 - 1, 2**32 - 1

TEMPERATURE = "temperature.0"
SHUTDOWN_AT, SLOWDOWN_AT = "threshold.0", "threshold.1"
#: Uncorrectable memory errors since the driver was loaded, and in the card's life.
ECC, ECC_EVER = "ecc.1.0", "ecc.1.1"
RECOVERY_ACTION = "field.230"
#: Bits of "slowed".
IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 1, 4, 8, 0x20, 0x40, 0x80
XID = 8
#: Links of NVLink that are known at most, and what `p2p` answers of a pair that has none.
LINKS, P2P_OK, P2P_NOT_SUPPORTED = 18, 0, 5
_P2P_NVLINK = "p2p.2"


@dataclass(frozen=True)
class Process:
    """One process on a device: compute, graphics or MPS by the first letter."""

    pid: int
    used_bytes: int = 0
    kind: str = "c"
    name: str = "python"
    sm_percent: int = 0
    #: Of a MIG device.
    gpu_instance: int = ALL_ONES_32
    compute_instance: int = ALL_ONES_32


@dataclass
class Answers:
    """What the system, a card or a MIG device answers: values by key, and rules about calls."""

    values: dict[str, int | str] = field(default_factory=dict)
    #: Call -> nvmlReturn_t.
    fails: dict[str, int] = field(default_factory=dict)
    #: Call -> how long it takes more, in milliseconds.
    slow: dict[str, int] = field(default_factory=dict)
    #: Calls that return only once they are taken from here.
    hangs: set[str] = field(default_factory=set)
    processes: list[Process] = field(default_factory=list)

    def __getitem__(self, key: str) -> int | str:
        return self.values[key]

    def __setitem__(self, key: str, value: int | str) -> None:
        self.values[key] = value

    def __delitem__(self, key: str) -> None:
        self.values.pop(key, None)

    def hold(self, pid: int, used_bytes: int, *, kind: str = "c", name: str = "python") -> None:
        """Let a process hold memory here."""
        self.processes.append(Process(pid, used_bytes, kind, name))
        self["memory_used"] = int(self["memory_used"]) + used_bytes

    def release(self, pid: int) -> None:
        """Let a process end, and its memory be free."""
        gone = [it for it in self.processes if it.pid == pid]
        self.processes = [it for it in self.processes if it.pid != pid]
        self["memory_used"] = int(self["memory_used"]) - sum(it.used_bytes for it in gone)

    def lose(self, code: int = 15) -> None:
        """Fall off the bus: every call about it fails."""
        self.fails["*"] = code

    def come_back(self) -> None:
        """Answer again as before."""
        self.fails.pop("*", None)

    def lines(self) -> list[str]:
        """This part of the scenario file."""
        return [
            *(f"set {key} {value}" for key, value in self.values.items()),
            *(f"fail {call} {code}" for call, code in self.fails.items()),
            *(f"slow {call} {ms}" for call, ms in self.slow.items()),
            *(f"hang {call}" for call in sorted(self.hangs)),
            *(
                f"process {it.kind} {it.pid} {it.used_bytes} {it.gpu_instance} {it.compute_instance} "
                f"{it.sm_percent} 0 {it.name}"
                for it in self.processes
            ),
        ]


@dataclass
class Mig(Answers):
    """A MIG device."""

    @property
    def uuid(self) -> str:
        """Its UUID."""
        return str(self["uuid"])


@dataclass
class Card(Answers):
    """A GPU; in MIG mode with MIG devices in some of its slots. Its number here stays its own when indices move."""

    number: int = 0
    slots: dict[int, Mig] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """Its UUID."""
        return str(self["uuid"])

    def lose(self, code: int = 15) -> None:
        """Fall off the bus, and its MIG devices with it."""
        super().lose(code)
        for mig in self.slots.values():
            mig.lose(code)

    def come_back(self) -> None:
        """Answer again as before, and its MIG devices too."""
        super().come_back()
        for mig in self.slots.values():
            mig.come_back()

    def lines(self) -> list[str]:
        """This part of the scenario file; whoever is on a MIG device is also on its card."""
        slots = {slot: _placed(mig) for slot, mig in sorted(self.slots.items())}
        whole = replace(self, processes=[*self.processes, *(it for mig in slots.values() for it in mig.processes)])
        return [
            f"card {self.number}",
            *Answers.lines(whole),
            *(line for slot, mig in slots.items() for line in (f"mig {self.number} {slot}", *mig.lines())),
        ]


def _placed(mig: Mig) -> Mig:
    instances = int(mig.values.get("gpu_instance", ALL_ONES_32)), int(mig.values.get("compute_instance", ALL_ONES_32))
    return replace(
        mig,
        processes=[replace(it, gpu_instance=instances[0], compute_instance=instances[1]) for it in mig.processes],
    )


class Tally:
    """The calls that processes with a counted environment have made."""

    def __init__(self, folder: Path) -> None:
        self.calls_path = folder / "board.calls"

    def count_in(self, variables: MutableMapping[str, str]) -> None:
        """Have the calls of a process with this environment written down."""
        variables["NVML_STANDIN_CALLS"] = str(self.calls_path)

    @contextlib.contextmanager
    def counting(self, variables: MutableMapping[str, str]) -> Iterator[None]:
        """Count the calls that are made within the block, and no others."""
        self.forget_calls()
        self.count_in(variables)
        try:
            yield
        finally:
            del variables["NVML_STANDIN_CALLS"]

    def made(self) -> Counter[tuple[str, int, int]]:
        """How often each call was made since `forget_calls`: its name, card and slot (-1: of no card, of no slot)."""
        if not self.calls_path.exists():
            return Counter()
        lines = (line.split() for line in self.calls_path.read_text(encoding="ascii").splitlines())
        return Counter((name, int(card), int(slot)) for _, name, card, slot in lines)

    def calls(self) -> Counter[str]:
        """The same by name alone, of all processes with a counted environment."""
        names: Counter[str] = Counter()
        for (name, *_), count in self.made().items():
            names[name] += count
        return names

    def forget_calls(self) -> None:
        """Begin to count anew."""
        self.calls_path.unlink(missing_ok=True)


class Board(Answers, Tally):
    """All the cards of a machine, and its driver. Cards stand in the order of their indices."""

    def __init__(self, folder: Path, *cards: Card, without: tuple[str, ...] = (), has_library: bool = True) -> None:
        Tally.__init__(self, folder)
        super().__init__(values={"driver": "580.95.05", "nvml": "13.580.95.05", "cuda": 13000})
        self.path = folder / "board.scenario"
        self.cards = list(cards)
        #: Symbols that this driver's library does not have.
        self.without = without
        self.has_library = has_library
        self._events: list[str] = []
        self.write()

    def write(self) -> None:
        """Show what the board has become."""
        lines = [*self.lines(), *self._events, *(line for card in self.cards for line in card.lines())]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
        fresh.replace(self.path)

    def report(self, card: Card, xid: int, *, mig: Mig | None = None, event_type: int = XID) -> None:
        """Let the driver report an Xid of a card, or of a MIG device of it, to those who have registered for it."""
        values: Mapping[str, int | str] = {} if mig is None else mig.values
        gpu, compute = (values.get(key, ALL_ONES_32) for key in ("gpu_instance", "compute_instance"))
        self._events.append(f"event {len(self._events) + 1} {card.number} {event_type} {xid} {gpu} {compute}")
        self.write()

    def environment(self, *, counted: bool = False) -> dict[str, str]:
        """What a process needs in its environment to see this board, and, where asked for, to write down its calls."""
        folder = library(self.without) if self.has_library else empty_folder()
        paths = [str(folder), *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]
        variables = {"LD_LIBRARY_PATH": ":".join(paths), "NVML_STANDIN_BOARD": str(self.path)}
        if counted:
            self.count_in(variables)
        return variables


def uuid_of(prefix: str, *parts: object) -> str:
    """A UUID that is the same in every run."""
    return f"{prefix}-{uuid.uuid5(uuid.NAMESPACE_OID, repr(parts))}"


def data_centre_card(number: int, name: str, memory_bytes: int, *, reserved_bytes: int = 500 * MIB) -> Card:
    """A card that offers everything, at rest."""
    values: dict[str, int | str] = {
        **_identity(number, name, memory_bytes, reserved_bytes),
        **_rest(celsius=31, milliwatts=62_000, most_milliwatts=400_000),
        "persistence": 1,
        "architecture": 9 if "H100" in name else 7,
        "capability_major": 9 if "H100" in name else 8,
        "ecc_mode": 1,
        "remapped_corrected": 0,
        "remapped_uncorrected": 0,
        "remap_pending": 0,
        "remap_failed": 0,
        "remap_banks": 640,
        RECOVERY_ACTION: 0,
        "mig_mode": 0,
        "mig_slots": 7,
        "events": 0x1F | XID,
    }
    for kind in (0, 1):
        values |= {f"ecc.{kind}.0": 0, f"ecc.{kind}.1": 0, f"field.{3 + kind}": 0}
    return Card(values, number=number)


def consumer_card(number: int, name: str, memory_bytes: int) -> Card:
    """A card that offers little: no ECC, no remapping, no MIG, no Xid counters, no topology."""
    values: dict[str, int | str] = {
        **_identity(number, name, memory_bytes, 300 * MIB),
        **_rest(celsius=38, milliwatts=21_000, most_milliwatts=450_000),
        "fan": 30,
        "persistence": 0,
        "capability_major": 8,
        "events": XID,
    }
    return Card(values, number=number)


def mig_device(card: Card, slot: int, profile: str, *, memory_bytes: int, gpu_instance: int, compute: int = 0) -> Mig:
    """Make a MIG device in a slot of a card, which is in MIG mode from then on and offers no load of its own."""
    card["mig_mode"] = 1
    del card["utilisation"], card["memory_utilisation"]
    slices = int(profile.partition("g.")[0])
    mig = Mig(
        {
            "uuid": uuid_of("MIG", card.uuid, gpu_instance, compute),
            "name": f"{card['name']} MIG {profile}",
            "minor": card["minor"],
            "bus_id": card["bus_id"],
            "memory_total": memory_bytes,
            "memory_used": 0,
            "memory_reserved": 0,
            "gpu_instance": gpu_instance,
            "compute_instance": compute,
            "multiprocessors": 14 * slices,
            "gpu_slices": slices,
            "compute_slices": slices,
            "compute_mode": 0,
            "events": 0,
        }
    )
    card.slots[slot] = mig
    return mig


def join(*cards: Card, by_switch: bool) -> None:
    """Join these by NVLink: each with each through switches, or in pairs by bridges."""
    for card in cards:
        for link in range(LINKS if by_switch else 4):
            card[f"nvlink.{link}"] = 1
            card[f"nvlink_version.{link}"] = 4
            card[f"nvlink_remote_type.{link}"] = 2 if by_switch else 0
            peer = next(it for it in cards if it is not card)
            card[f"nvlink_remote.{link}"] = "00000000:86:00.0" if by_switch else peer["bus_id"]
        card["field.91"] = LINKS if by_switch else 4
        for other in cards:
            if other is not card:
                card[f"{_P2P_NVLINK}.{other.number}"] = P2P_OK


def _identity(number: int, name: str, memory_bytes: int, reserved_bytes: int) -> dict[str, int | str]:
    return {
        "name": name,
        "uuid": uuid_of("GPU", number, name),
        "serial": f"15625{number:08d}",
        "minor": number,
        "bus_id": f"{number // 8:08X}:{0x18 + 0x10 * (number % 8):02X}:00.0",
        "brand": 14,
        "memory_total": memory_bytes,
        "memory_used": 0,
        "memory_reserved": reserved_bytes,
        "bar1_total": 256 * MIB,
        "bar1_used": 2 * MIB,
        "virtualization": 0,
        "addressing": 0,
        "compute_mode": 0,
        "display_active": 0,
        "display_mode": 0,
        f"{_P2P_NVLINK}.all": P2P_NOT_SUPPORTED,
        "p2p.0.all": P2P_OK,
        "topology.all": 40,
    }


def _rest(*, celsius: int, milliwatts: int, most_milliwatts: int) -> dict[str, int | str]:
    return {
        "utilisation": 0,
        "memory_utilisation": 0,
        "encoder": 0,
        "decoder": 0,
        TEMPERATURE: celsius,
        SHUTDOWN_AT: 95,
        SLOWDOWN_AT: 90,
        "threshold.3": 87,
        "power": milliwatts,
        "power_limit": most_milliwatts,
        "performance_state": 0,
        "slowed": IDLE,
        "slowed_supported": 0x1FF,
        **{f"clock.{which}": 210 for which in range(4)},
        **{f"max_clock.{which}": 1980 for which in range(4)},
        "capability_minor": 0,
    }
