"""The pictures in the terminal: plain tables that are read from the left, in 80 columns and without colour.

Pure: documents in, things that rich can show out. Colour only repeats what the words say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..model import DeviceView, QuotaView, State, Status, WorkloadView
from ..units import MISSING, format_seconds, format_when
from .text import how_it_goes, memory_text, plural, safe, sentence, state_word

BAR_CELLS = 8
_STYLES = {
    "active": "green", "yielding": "yellow", "queued": "", "paused": "dim", "failed": "red", "gpu-oom": "red",
    "host-oom": "red", "disk-full": "red", "device-lost": "red", "hung": "red", "lost": "red", "launch-failed": "red",
}  # fmt: skip


def numbers(devices: Iterable[DeviceView], *, labelled: bool = False) -> dict[str, str]:
    """Map UUIDs to the numbers that people say; `labelled` where nothing else around says "simulated"."""
    label = " (simulated)" if labelled else ""
    return {device.uuid: f"{device.index}{label if device.simulated else ''}" for device in devices}


def status_picture(status: Status, *, note: str = "", fancy: bool = True) -> RenderableType:
    """Draw the one document: the GPUs, the caller's work, what is left of quota, and the lines."""
    known = numbers(status.devices)
    mine = [it for it in status.workloads if it.is_mine]
    parts: list[RenderableType] = [_headline(status, note)]
    parts += [Text(f"! {sentence(warning)}", style="yellow") for warning in status.warnings]
    if status.devices:
        parts += ["", devices_table(status.devices, status.workloads, status.at, fancy=fancy)]
    else:
        parts += ["", Text("No GPUs. `jupyter gpu doctor` says why.")]
    parts += ["", _heading("Your work")]
    parts += [_work_table(mine, known, status.at)] if mine else [_indented("Nothing runs and nothing waits.")]
    if status.quotas:
        parts += ["", _heading("Your quota"), quota_table(status.quotas, status.at)]
    lines = ", ".join(f"{safe(queue)} {count}" for queue, count in status.waiting.items())
    if lines:
        parts += ["", Text.assemble(("Waiting  ", "bold"), lines)]
    return Group(*parts)


def _headline(status: Status, note: str) -> Text:
    free = sum(1 for it in status.devices if not it.workloads and not it.cordoned and it.condition is None)
    parts = [f"{plural(len(status.devices), 'GPU')}, {free} free"]
    line = Text.assemble((parts[0], "bold"), (f"  {safe(status.caller)}, {format_when(status.at, status.at)}", "dim"))
    if status.simulated:
        line.append("  SIMULATED", style="bold magenta")
    if note:
        line.append(f"  {note}", style="yellow")
    return line


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _indented(text: str) -> Padding:
    return Padding(Text(text, style="dim"), (0, 0, 0, 2))


def make_table(*columns: str, last: str) -> Table:
    """Make a table of plain columns; the last one takes what is left and wraps, a `>` in front aligns right."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="dim", expand=False)
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    table.add_column(last, overflow="fold")
    return table


def devices_table(
    devices: Sequence[DeviceView], workloads: Iterable[WorkloadView], now: float, *, fancy: bool = True
) -> Table:
    """One line per GPU: what it is, how full, how busy, and who holds it until when."""
    by_id = {it.id: it for it in workloads}
    table = make_table(">GPU", "class", "memory", ">", ">load", last="held by")
    for device in devices:
        table.add_row(
            Text(str(device.index)),
            Text(clip(device.device_class, 14)),
            bar(device, fancy=fancy),
            Text(memory_text(device)),
            Text(MISSING if device.utilisation_percent is None else f"{device.utilisation_percent}%"),
            _held_by(device, by_id, now),
        )
    return table


def bar(device: DeviceView, *, fancy: bool = True) -> Text:
    """Draw how full the memory is. What is used at all shows; what is not full is not drawn full."""
    used, total = device.memory_used_bytes, device.memory_total_bytes
    full, empty = ("█", "░") if fancy else ("#", "-")
    if used is None or not total:
        return Text(" " * BAR_CELLS)
    cells = round(BAR_CELLS * used / total)
    # A card's own baseline is not worth a cell; a percent of it is.
    cells = max(cells, 1) if used * 100 > total else cells
    cells = min(cells, BAR_CELLS - 1 if used < total else BAR_CELLS)
    style = "red" if used * 10 >= total * 9 else "cyan"
    return Text.assemble((full * cells, style), (empty * (BAR_CELLS - cells), "dim"))


def _held_by(device: DeviceView, by_id: Mapping[int, WorkloadView], now: float) -> Text:
    if device.condition is not None:
        detail = f": {safe(device.condition_detail)}" if device.condition_detail else ""
        return Text(f"{device.condition}{detail}", style="red")
    parts = [_holder(device, place, by_id.get(number), number) for place, number in enumerate(device.workloads)]
    text = ", ".join(parts) or "free"
    overtime = any(by_id[number].overtime for number in device.workloads if number in by_id)
    if parts and overtime:
        text += ", in overtime"
    elif parts:
        text += _until(device, by_id, now)
    if device.cordoned:
        text = f"{text}, cordoned" if parts else "cordoned"
    return Text(text, style="" if parts else "yellow" if device.cordoned else "green")


def _until(device: DeviceView, by_id: Mapping[int, WorkloadView], now: float) -> str:
    """Say until when it is held: what was bought where one holds it, else what is expected."""
    alone = by_id.get(device.workloads[0]) if len(device.workloads) == 1 else None
    if alone is not None and alone.ends_at is not None:
        return f" until {format_when(alone.ends_at, now)}"
    return "" if device.free_at is None else f" until about {format_when(device.free_at, now)}"


def _holder(device: DeviceView, place: int, it: WorkloadView | None, number: int) -> str:
    kind = str(it.kind) if it is not None else "workload"
    # The names of others come only as far as the caller may see them.
    owner = it.owner if it is not None else None
    if owner is None and len(device.holders) == len(device.workloads):
        owner = device.holders[place]
    who = "you: " if it is not None and it.is_mine else f"{safe(owner)}: " if owner else ""
    return f"{who}{kind} {number}"


def _work_table(mine: Sequence[WorkloadView], known: Mapping[str, str], now: float) -> Group:
    rows: list[RenderableType] = []
    table = make_table(">ID", "state", "kind", "name", last="how it goes")
    for it in mine:
        word = state_word(it)
        table.add_row(
            str(it.id),
            Text(word, style=_STYLES.get(word, "")),
            str(it.kind),
            Text(clip(it.name or "", 20)),
            Text(how_it_goes(it, known, now)),
        )
    rows.append(table)
    rows += [
        Padding(Text(f"{it.id}: {sentence(it.reason)}", style="dim"), (0, 0, 0, 2))
        for it in mine
        if it.reason and (it.state is State.QUEUED or it.overtime or it.notice is not None)
    ]
    return Group(*rows)


def queue_table(items: Sequence[WorkloadView], known: Mapping[str, str], now: float) -> Table:
    """One line per workload, in the order in which they came."""
    table = make_table(">ID", "queue", "owner", ">GPUs", "state", "name", last="how it goes")
    for it in items:
        word = state_word(it)
        owner = "you" if it.is_mine else it.owner
        table.add_row(
            str(it.id),
            Text(clip(it.queue, 12)),
            Text(clip(owner or "-", 12)),
            str(it.ask.devices),
            Text(word, style=_STYLES.get(word, "")),
            Text(clip(it.name or "", 16)),
            Text(how_it_goes(it, known, now)),
        )
    return table


def quota_table(quotas: Sequence[QuotaView], now: float) -> Table:
    """One line per bound: what is held or used of it, and what is left."""
    table = make_table("rule", "used", last="left")
    for it in quotas:
        table.add_row(Text(clip(it.rule, 30)), Text(_used(it)), Text(_left(it, now)))
    return table


def _used(it: QuotaView) -> str:
    parts = []
    if it.devices_held is not None or it.devices_allowed is not None:
        allowed = "" if it.devices_allowed is None else f" of {it.devices_allowed}"
        parts.append(f"{MISSING if it.devices_held is None else it.devices_held}{allowed} GPUs")
    if it.used_ms is not None or it.allowed_ms is not None:
        allowed = "" if it.allowed_ms is None else f" of {_hours(it.allowed_ms)}"
        window = f" in {format_seconds(it.window_seconds)}" if it.window_seconds else ""
        parts.append(f"{_hours(it.used_ms)}{allowed} GPU-hours{window}")
    return ", ".join(parts) or MISSING


def _left(it: QuotaView, now: float) -> str:
    parts = []
    if it.devices_held is not None and it.devices_allowed is not None:
        parts.append(plural(max(0, it.devices_allowed - it.devices_held), "GPU"))
    if it.used_ms is not None and it.allowed_ms is not None:
        left = it.allowed_ms - it.used_ms
        # While something is left, nobody needs to know when there is more.
        if left <= 0 and it.available_again_at is not None:
            parts.append(f"none until {format_when(it.available_again_at, now)}")
        else:
            parts.append(f"{_hours(max(0, left))} GPU-hours")
    return ", ".join(parts)


def _hours(milliseconds: int | None) -> str:
    return MISSING if milliseconds is None else f"{milliseconds / 3_600_000:.1f}".removesuffix(".0")


def clip(text: str, cells: int) -> str:
    """Make a name safe to print and short enough for a table; what is cut says so."""
    from rich.cells import cell_len, set_cell_size

    text = safe(text)
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"
