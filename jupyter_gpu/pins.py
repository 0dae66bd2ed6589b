"""The variables that show a process its GPUs, written and read back. The only place that knows their values.

Devices are named by UUID: numbers mean other cards to CUDA than to the driver's tools (unslothai/unsloth#6352). No
device is said as such, since a variable that is not set shows all of them (flux-framework/flux-core#3154).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
CONTAINERS = "NVIDIA_VISIBLE_DEVICES"
#: The variables of a pin.
NAMES = (VISIBLE, ORDER, CONTAINERS)
#: What shows no device.
NO_DEVICES = "none"

#: Set for what runs in an attempt, under a reservation of its server or shell, and in a kernel of ours.
ATTEMPT = "JUPYTER_GPU_ATTEMPT"
RESERVATION = "JUPYTER_GPU_RESERVATION"
KERNEL = "JUPYTER_GPU_KERNEL"

_NUMBER = re.compile(r"[+-]?\d+")
_UUID_KINDS = ("GPU-", "MIG-")


def variables(uuids: Iterable[str]) -> dict[str, str]:
    """What shows a process exactly these devices; none of them is none at all."""
    named = ",".join(uuids) or NO_DEVICES
    return {VISIBLE: named, ORDER: "PCI_BUS_ID", CONTAINERS: named}


def under(reservation: int, uuids: Iterable[str]) -> dict[str, str]:
    """The pin of what is started under a reservation, and which one that is: kernels below keep the pin."""
    return variables(uuids) | {RESERVATION: str(reservation)}


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The pin that a process was started with, to be handed on as it is; explicitly none where it has none."""
    if VISIBLE not in environ:
        return variables(())
    return {name: environ[name] for name in NAMES if name in environ}


def read(value: str | None) -> tuple[int | str, ...] | None:
    """The devices that CUDA takes from a value, numbers or UUIDs; None for all of them.

    Not set is all, empty is none, a negative number or junk ends the list, a repeat empties it, and of a word that
    begins with digits the digits count (rstudio/tensorflow#434, pytorch/pytorch#92315). A UUID of either form of MIG
    device is a word like any other (vllm-project/vllm#41848).
    """
    if value is None:
        return None
    kind = next((kind for kind in _UUID_KINDS if value.strip().startswith(kind)), None)
    found: list[int | str] = []
    for part in value.split(","):
        word = _uuid(part.strip(), kind) if kind is not None else _number(part.strip())
        if word is None:
            break
        if word in found:
            return ()
        found.append(word)
    return tuple(found)


def visible(value: str | None, uuids: Sequence[str]) -> tuple[str, ...]:
    """Which of a machine's devices, in the order of their numbers, a value shows. UUIDs may be shortened."""
    words = read(value)
    if words is None:
        return tuple(uuids)
    found: list[str] = []
    for word in words:
        if isinstance(word, int):
            named = [uuids[word]] if word < len(uuids) else []
        else:
            named = [uuid for uuid in uuids if uuid.startswith(word)]
        if len(named) != 1:  # beyond the last, of another machine, or short for more than one: it ends the list
            break
        if named[0] in found:
            return ()
        found += named
    return tuple(found)


def _uuid(word: str, kind: str) -> str | None:
    return word if word.startswith(kind) else None


def _number(word: str) -> int | None:
    digits = _NUMBER.match(word)
    number = -1 if digits is None else int(digits[0])
    return number if number >= 0 else None
