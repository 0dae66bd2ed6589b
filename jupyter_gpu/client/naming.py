"""GPUs as people name them, "2", "0:1" or a UUID, as the UUIDs that an ask has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import NotFound
from ..model import DeviceView


def uuids_of(names: Iterable[str], devices: Sequence[DeviceView]) -> tuple[str, ...]:
    """The UUIDs of what is named, each once. NotFound where a name means none of them, or more than one."""
    return tuple(dict.fromkeys(_uuid_of(name.strip(), devices) for name in names))


def _uuid_of(name: str, devices: Sequence[DeviceView]) -> str:
    found = [it for it in devices if name in (it.uuid, it.number)]
    if len(found) == 1:
        return found[0].uuid
    parts = [f"GPU {it.number}" for it in devices if it.number.startswith(f"{name}:")]
    if not found and parts:
        raise NotFound(
            f"GPU {name} is split into MIG devices, so it is none itself.", hint=f"Name one of {', '.join(parts)}."
        )
    why = "there is no" if not found else "several pools have a"
    raise NotFound(f"{why} GPU {name[:80]!a}", hint="`jupyter gpu devices` lists them with their UUIDs.")
