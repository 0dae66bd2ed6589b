"""The list of GPUs in the terminal, with their UUIDs, and who is on them.

Pure: documents in, things that rich can show out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..model import CardView, DeviceView, UseKind, UseView
from ..units import MISSING, format_bytes, format_when
from .picture import in_rows
from .tables import GAP, cells_of, make_table
from .text import condition_text, cordon_text, evidence, note_text, part_text, safe, sentence, slowed_text, split_text

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
    devices: Sequence[DeviceView], cards: Iterable[CardView], now: float, *, all_uses: bool = False, width: int = 80
) -> Iterator[RenderableType]:
    """The list, and below it who is on the GPUs without a lease, or everybody who is on them."""
    rows = in_rows(devices, cards)
    columns = {
        ">GPU": [it.number if isinstance(it, DeviceView) else str(it.index) for it in rows],
        "UUID": [safe(it.uuid) for it in rows],
        "class": [safe(it.device_class) if isinstance(it, DeviceView) else "" for it in rows],
        ">memory": [format_bytes(it.memory_total_bytes) for it in rows],
        "state": [_state(it) if isinstance(it, DeviceView) else _of_card(it, devices) for it in rows],
    }
    shown = _fitting(columns, width)
    widths = {name: max(map(cell_len, (name.lstrip(">"), *cells))) for name, cells in shown.items()}
    yield Text(_line(widths, {name: name.lstrip(">") for name in shown}), style="dim")
    for row, it in enumerate(rows):
        yield Text(_line(widths, {name: cells[row] for name, cells in shown.items()}))
        spared = [cells[row] for name, cells in columns.items() if name not in shown and cells[row]]
        more = _more(it, devices, now)
        below = (", ".join([*spared, *more[:1]]), *more[1:])
        yield Padding(Text("\n".join(below), style="dim"), (0, 0, 0, widths[">GPU"] + GAP))
    # In the same order: a MIG device stands with its GPU.
    uses = [(it, use) for it in rows if isinstance(it, DeviceView) for use in it.uses if all_uses or use.foreign]
    if uses:
        yield ""
        yield uses_table(uses)
    elif all_uses:
        yield ""
        yield "Nobody is on the GPUs, as far as their processes can be listed."


def _fitting(columns: Mapping[str, Sequence[str]], width: int) -> dict[str, Sequence[str]]:
    """Of the columns as many as fit on a line; what is spared is told on the next one."""
    shown = dict(columns)
    for name in (">memory", "class"):
        # There is a gap behind each but the last.
        if cells_of(shown) - 2 * GAP <= width:
            break
        del shown[name]
    return shown


def _line(widths: Mapping[str, int], cells: Mapping[str, str]) -> str:
    parts = []
    for name, cell in cells.items():
        blank = " " * (widths[name] - cell_len(cell))
        parts.append(blank + cell if name.startswith(">") else cell + blank)
    return (" " * GAP).join(parts).rstrip()


def _of_card(card: CardView, devices: Iterable[DeviceView]) -> str:
    return "MIG" if any(it.card == card.uuid for it in devices) else "MIG, empty"


def _more(it: DeviceView | CardView, devices: Iterable[DeviceView], now: float) -> list[str]:
    """What more is known of a GPU, as far as it is: a line of what it is, and one of what is wrong with it."""
    heat = [] if it.temperature_celsius is None else [f"{it.temperature_celsius}°C"]
    if isinstance(it, CardView):
        return [", ".join([split_text(it, sum(one.card == it.uuid for one in devices)), *heat])]
    more = [safe(it.name), f"pool {safe(it.pool)}"]
    more += ["SIMULATED"] if it.simulated else []
    more += heat
    more += ["may be shared"] if it.shareable and (it.workloads or it.condition is not None) else []
    more += [told for told in (slowed_text(it.slowed_by), note_text(it)) if told]
    told = cordon_text(it)
    return [", ".join(more), *_evidence(it, now), *([sentence(told)] if told not in ("", "cordoned") else [])]


def _evidence(it: DeviceView, now: float) -> list[str]:
    """Since when it is not well, and on what evidence."""
    if it.condition is None:
        return []
    since = "" if it.condition_since is None else f"since {format_when(it.condition_since, now)}"
    why, more = evidence(it)
    said = ": ".join(part for part in (since, why) if part)
    parts = [sentence(part) for part in (said, more) if part]
    return [" ".join(parts)] if parts else []


def _state(it: DeviceView) -> str:
    if it.condition is not None:
        return condition_text(it, with_detail=False)
    if it.workloads and it.memory_leased_bytes:
        held = f"{part_text(it.memory_leased_bytes, it.memory_total_bytes)} leased, by {len(it.workloads)}"
    else:
        held = "held" if it.workloads else ""
    if it.cordoned:
        return f"{held}; cordoned" if held else "cordoned"
    return held or "free"


def uses_table(uses: Iterable[tuple[DeviceView, UseView]]) -> Table:
    """One line per process: on which GPU, whose, how much of its memory it has, and by what right it is there."""
    table = make_table(">GPU", ">pid", "user", "what", ">memory", last="by what right")
    for device, use in uses:
        table.add_row(
            device.number,
            str(use.pid),
            Text(safe(owner_text(use)) or MISSING),
            Text(safe(use.name) or MISSING),
            format_bytes(use.memory_bytes),
            Text(whose(use), style="red" if use.foreign else ""),
        )
    return table


def whose(use: UseView) -> str:
    """Say by what right a process is on a GPU, or that it is there by none."""
    work = "" if use.workload is None else f"workload {use.workload}"
    if use.kind is UseKind.HOLDER:
        return _with(["holds it"], [work, *_places(use)])
    return _with([_WHOSE[use.kind]], [work, safe(use.where), *_places(use)])


def _with(head: list[str], more: Iterable[str]) -> str:
    said = ", ".join(it for it in more if it)
    return ": ".join([*head, said] if said else head)


def _places(use: UseView) -> list[str]:
    """Under a hub, where it is: its owner's usual server is not worth a word."""
    return [
        f"server {safe(use.server)}" if use.server else "",
        f"notebook {safe(use.notebook)}" if use.notebook else "",
        f"by its own word of {safe(use.claim)}" if use.claim else "",
    ]


def owner_text(use: UseView) -> str:
    """Whose it is: its owner, else the account that it runs as; empty where neither is known."""
    return use.owner or use.user or ""
