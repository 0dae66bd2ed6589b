"""Whether a hub's server can open the GPUs that its kernels and shells reserve. One in a container without any cannot.

It would hold for nothing what others wait for. So it is told before it asks where it can open none of all GPUs, and
else when it is granted what it cannot open, which then goes back. Told is only what was tried, by a process that stands
where the server stands: a GPU of whose nodes the broker does not tell, as of simulated ones, may be what it can open,
and so may one that gives no answer in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import Conflict, GpuError
from .opening import MISSING, OPENED, try_to_open
from .own_reach import DEADLINE_SECONDS, Asking, Question, is_closed_by_mode, is_in_a_server, standing, surroundings

if TYPE_CHECKING:
    from .client import AsyncClient, Client
    from .model import DeviceView, WorkloadView

HINT = (
    "Start a server with GPUs in the hub's control panel. "
    'Admins: "for_kernels": False in a profile without GPUs keeps its kernels from asking.'
)
#: Where the nodes of a GPU are for who uses it; a broker in a container may see them in another folder.
DEV = Path("/dev")

_Open = Callable[[str], str]


def why_none(devices: Sequence[DeviceView], open_: _Open = try_to_open) -> str:
    """Why this server can open no GPU at all; empty where it can, or where that is not known of each of them."""
    found: dict[str, str] = {}
    for device in devices:
        answers = _refused(device, open_)
        if not answers:
            return ""
        found |= answers
    return f"This server can open no GPU: {_why(found)}." if found else ""


def why_not(devices: Iterable[DeviceView], open_: _Open = try_to_open) -> str:
    """Why this server cannot open some of these GPUs; empty where it can open each, or where that is not known."""
    shut = {device.number: answers for device in devices if (answers := _refused(device, open_))}
    if not shut:
        return ""
    found = {node: answer for answers in shut.values() for node, answer in answers.items()}
    return f"This server cannot open GPU {', '.join(shut)}: {_why(found)}."


def _refused(device: DeviceView, open_: _Open) -> dict[str, str]:
    """What the kernel answered of each node of a GPU, where none of them can be opened; else nothing."""
    if device.simulated or not device.nodes:
        return {}
    nodes = tuple(dict.fromkeys(place for node in device.nodes for place in _places(node)))
    asking = Asking(Question(nodes), open_)
    with contextlib.suppress(TimeoutError):
        asking.done.result(DEADLINE_SECONDS)
    answers = asking.answers
    return answers if len(answers) == len(nodes) and OPENED not in answers.values() else {}


def _places(node: str) -> tuple[str, str]:
    path = Path(node)
    folder = DEV / path.parent.name if path.parent.name == "nvidia-caps" else DEV
    return node, str(folder / path.name)


def _why(answers: Mapping[str, str]) -> str:
    """In words, as far as it shows; what is not there was left out by what started the server."""
    refused = [node for node, answer in answers.items() if answer != MISSING]
    where = standing(surroundings())
    if not refused:
        return f"its {where} has none of the device nodes" if where else "the device nodes are not there"
    if all(is_closed_by_mode(node) for node in refused):
        return f"the permissions of {refused[0]} keep its account out"
    return f"its {where} does not allow it" if where else f"{refused[0]} is refused to it"


# --- before the ask, and at the grant -------------------------------------------------------------


def refuse_in_vain(client: Client, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse an ask that could only hold what nobody here can use."""
    if is_in_a_server(environ):
        _refuse(why_none(_known(client)))


def refuse_granted(client: Client, it: WorkloadView, environ: Mapping[str, str] = os.environ) -> None:
    """Give back what was granted and cannot be opened here, and say so."""
    if not is_in_a_server(environ) or not it.devices:
        return
    why = why_not(_of(it, _known(client)))
    if why:
        with contextlib.suppress(GpuError):
            client.release(it.id)
        _refuse(f"{why} Reservation {it.id} is given back.")


def _known(client: Client) -> Sequence[DeviceView]:
    """The GPUs; none where they cannot be asked for, which is no reason to refuse anything."""
    with contextlib.suppress(GpuError):
        return client.devices().items
    return ()


async def refuse_in_vain_for(client: AsyncClient, environ: Mapping[str, str] = os.environ) -> None:
    """As `refuse_in_vain`, of a Jupyter server for its kernels."""
    if is_in_a_server(environ):
        _refuse(await asyncio.to_thread(why_none, await _known_to(client)))


async def why_in_vain(client: AsyncClient, it: WorkloadView, environ: Mapping[str, str] = os.environ) -> str:
    """Why a server cannot open what a kernel of it was granted; empty where it can, or where that is not known."""
    if not is_in_a_server(environ) or not it.devices:
        return ""
    return await asyncio.to_thread(why_not, _of(it, await _known_to(client)))


async def refuse_granted_for(client: AsyncClient, it: WorkloadView) -> None:
    """As `refuse_granted`, of a Jupyter server for its kernels."""
    why = await why_in_vain(client, it)
    if why:
        with contextlib.suppress(GpuError):
            await client.release(it.id)
        _refuse(f"{why} Reservation {it.id} is given back.")


async def _known_to(client: AsyncClient) -> Sequence[DeviceView]:
    with contextlib.suppress(GpuError):
        return (await client.devices()).items
    return ()


def _of(it: WorkloadView, devices: Iterable[DeviceView]) -> list[DeviceView]:
    return [device for device in devices if device.uuid in it.devices]


def _refuse(why: str) -> None:
    if why:
        raise Conflict(why, hint=HINT)
