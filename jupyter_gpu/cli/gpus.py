"""The list of GPUs in the terminal, with their UUIDs, and who is on them.

Pure: documents in, things that rich can show out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..model import CardView, DeviceView, UseKind, UseView
from ..units import MISSING, format_bytes
from .picture import in_rows
from .tables import make_table
from .text import CONDITIONS, note_text, part_text, safe, slowed_text, split_text

_UUID_CELLS = 40

_WHOSE = {
    UseKind.ASTRAY: "outside its reservation",
    UseKind.KERNEL: "a kernel without a lease",
    UseKind.CONTAINER: "a container without a lease",
    UseKind.USER: "without a lease",
    UseKind.SYSTEM: "the machine's own",
    UseKind.DEAD: "has ended, its memory is still counted",
    UseKind.UNKNOWN: "whose it is cannot be told here",
}


def list_devices(
    devices: Sequence[DeviceView], cards: Iterable[CardView], *, all_uses: bool = False
) -> Iterator[RenderableType]:
    """The list, and below it who is on the GPUs without a lease, or everybody who is on them."""
    table = make_table(">GPU", "UUID", "class", ">memory", last="state")
    for it in in_rows(devices, cards):
        if isinstance(it, CardView):
            number, kind, state, more = str(it.index), "", "MIG", _of_card(it, devices)
        else:
            number, kind, state, more = it.number, it.device_class, _state(it), ", ".join(_more(it))
        # What more there is to say is as wide as a UUID, so that the state has room beside it.
        named = Text.assemble(safe(it.uuid), "\n", ("\n".join(textwrap.wrap(more, _UUID_CELLS)), "dim"))
        table.add_row(number, named, Text(safe(kind)), format_bytes(it.memory_total_bytes), Text(safe(state)))
    yield table
    uses = [(device, use) for device in devices for use in device.uses if all_uses or use.foreign]
    if uses:
        yield ""
        yield uses_table(uses)
    elif all_uses:
        yield ""
        yield "Nobody is on the GPUs, as far as their processes can be listed."


def _of_card(card: CardView, devices: Iterable[DeviceView]) -> str:
    what = split_text(card, sum(it.card == card.uuid for it in devices))
    return what if card.temperature_celsius is None else f"{what}, {card.temperature_celsius}°C"


def _more(it: DeviceView) -> list[str]:
    """What more is known of a GPU, as far as it is."""
    more = [safe(it.name), f"pool {safe(it.pool)}"]
    more += ["SIMULATED"] if it.simulated else []
    more += [] if it.temperature_celsius is None else [f"{it.temperature_celsius}°C"]
    more += ["may be shared"] if it.shareable and (it.workloads or it.condition is not None) else []
    return [*more, *(told for told in (slowed_text(it.slowed_by), note_text(it)) if told)]


def _state(it: DeviceView) -> str:
    if it.condition is not None:
        return CONDITIONS[it.condition]
    if it.cordoned:
        return "cordoned"
    if it.workloads and it.memory_leased_bytes:
        return f"{part_text(it.memory_leased_bytes, it.memory_total_bytes)} leased, by {len(it.workloads)}"
    return "held" if it.workloads else "free"


def uses_table(uses: Iterable[tuple[DeviceView, UseView]]) -> Table:
    """One line per process: on which GPU, whose, how much of its memory it has, and by what right it is there."""
    table = make_table(">GPU", ">pid", "user", "what", ">memory", last="by what right")
    for device, use in uses:
        table.add_row(
            device.number,
            str(use.pid),
            Text(MISSING if use.user is None else safe(use.user)),
            Text(safe(use.name) or MISSING),
            format_bytes(use.memory_bytes),
            Text(whose(use), style="red" if use.foreign else ""),
        )
    return table


def whose(use: UseView) -> str:
    """Say by what right a process is on a GPU, or that it is there by none."""
    work = "" if use.workload is None else f"workload {use.workload}"
    if use.kind is UseKind.HOLDER:
        return f"holds it: {work}" if work else "holds it"
    where = safe(use.where)
    parts = [_WHOSE[use.kind], *(it for it in (work, where) if it)]
    return ": ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0]
