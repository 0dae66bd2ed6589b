"""The pictures in the terminal: plain tables that are read from the left, in 80 columns and without colour.

Pure: documents in, things that rich can show out. Colour only repeats what the words say.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..model import CardView, DeviceView, IsolationView, QuotaView, State, Status, WaitingReason, WorkloadView
from ..units import MISSING, bytes_apart, format_bytes, format_seconds, format_when
from .coming import coming_table, what_comes
from .fold import Row, fold, id_of, state_of
from .tables import cells_of, clip, make_table, work_table
from .text import (
    condition_text,
    cordon_text,
    in_order,
    memory_text,
    named,
    note_text,
    part_text,
    plural,
    safe,
    sentence,
    split_text,
)

BAR_CELLS = 8

# Reasons that are the same for all that wait so; where they stand in line, each row says.
_ALIKE = frozenset(
    {
        *(WaitingReason.DEVICES, WaitingReason.QUOTA, WaitingReason.BUDGET, WaitingReason.HOLD),
        *(WaitingReason.CLEARING, WaitingReason.DRIVER, WaitingReason.ENGINE),
    }
)


def numbers(devices: Iterable[DeviceView]) -> dict[str, str]:
    """Map UUIDs to the numbers that people say."""
    return {device.uuid: device.number for device in devices}


def status_picture(
    status: Status,
    *,
    note: str = "",
    fancy: bool = True,
    width: int = 80,
    height: int | None = None,
) -> RenderableType:
    """Draw the one document: the GPUs, the caller's work, what is left of quota, and the lines.

    With a `height` that it does not fit, what explains is left out, and then the work comes before the GPUs.
    """
    mine = fold(it for it in status.workloads if it.is_mine)
    head: list[RenderableType] = [_headline(status, note)]
    head += [Text(f"! {sentence(it)}", style="yellow") for it in (*status.warnings, *_alerts(status))]
    devices: list[RenderableType] = ["", _devices(status, fancy=fancy, width=width)]
    work: list[RenderableType] = ["", _heading("Your work"), *_work(status, mine, width)]
    reasons = _reasons(mine)
    rest = _rest(status)
    whole = Group(*head, *devices, *work, *reasons, *rest)
    if height is None or _lines(whole, width) <= height:
        return whole
    short = Group(*head, *devices, *work, *rest)
    if _lines(short, width) <= height:
        return short
    # The GPUs are cut below, by whoever draws this; of the work so much stays that some of them are seen.
    most = max(1, height // 2 - len(head) - 2)
    if len(mine) > most:
        more = _indented(f"{len(mine) - most} more: `jupyter gpu queue --mine` lists them.")
        work = ["", _heading("Your work"), *_work(status, mine[:most], width)[:1], more]
    return Group(*head, *work, *devices, *rest)


def _lines(picture: RenderableType, width: int) -> int:
    return len(Console(width=width, file=io.StringIO()).render_lines(picture))


def _alerts(status: Status) -> Iterator[str]:
    """What somebody should know, unless a warning says the same."""
    return (it.text for it in status.alerts if it.text not in status.warnings)


def _devices(status: Status, *, fancy: bool, width: int) -> RenderableType:
    if not status.devices and not status.cards:
        return Text("No GPUs. `jupyter gpu doctor` says why.")
    return devices_table(
        status.devices,
        status.workloads,
        status.at,
        cards=status.cards,
        told=frozenset(it.device for it in status.alerts if it.device is not None),
        fancy=fancy,
        width=width,
    )


def _rest(status: Status) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if rows := list(what_comes(status)):
        parts += ["", _heading("Coming"), coming_table(rows)]
    if status.quotas:
        parts += ["", _heading("Your quota"), quota_table(status.quotas, status.at)]
    lines = ", ".join(f"{safe(queue)} {count}" for queue, count in status.waiting.items())
    return [*parts, "", Text.assemble(("Waiting  ", "bold"), lines)] if lines else parts


def _headline(status: Status, note: str) -> Text:
    free = sum(1 for it in status.devices if not it.workloads and not it.cordoned and it.condition is None)
    parts = [f"{plural(len(status.devices), 'GPU')}, {free} free"]
    line = Text.assemble((parts[0], "bold"), (f"  {safe(status.caller)}, {format_when(status.at, status.at)}", "dim"))
    if status.simulated:
        line.append("  SIMULATED", style="bold magenta")
    elif status.isolation is not None and status.devices:
        line.append(f"  {badge(status.isolation)}", style="dim" if status.isolation.enforced else "yellow")
    if note:
        line.append(f"  {note}", style="yellow")
    return line


def badge(isolation: IsolationView) -> str:
    """Say in a few words whether jobs are kept from the GPUs of others."""
    if not isolation.enforced:
        return "isolation advisory"
    return "isolation enforced" + (f" ({safe(isolation.by)})" if isolation.by else "")


def own_text(isolation: IsolationView) -> Text:
    """Say whether the server that this runs in is kept from GPUs that are not its own, and if not, why."""
    why = "" if isolation.enforced else f": {safe(isolation.detail)}"
    return Text(f"This server: {badge(isolation)}{why}", style="dim" if isolation.enforced else "yellow")


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _indented(text: str) -> Padding:
    return Padding(Text(text, style="dim"), (0, 0, 0, 2))


def devices_table(
    devices: Sequence[DeviceView],
    workloads: Iterable[WorkloadView],
    now: float,
    *,
    cards: Iterable[CardView] = (),
    told: Collection[str] = (),
    fancy: bool = True,
    width: int = 80,
) -> Table:
    """One line per GPU: what it is, how full, how busy, and who holds it until when. MIG devices stand under theirs.

    Of those that are `told` of above, in an alert, what is wrong is only named.
    """
    by_id = {it.id: it for it in workloads}
    rows = in_rows(devices, cards)
    held = [
        _split(it, devices)
        if isinstance(it, CardView)
        else held_by_text(it, by_id, now, is_told=it.uuid in told or it.card in told) + _noted(it)
        for it in rows
    ]
    room = _room_for_class(rows, held, width)
    table = make_table(">GPU", "class", "memory", ">", ">load", last="held by")
    for it, said in zip(rows, held, strict=True):
        number, kind = (str(it.index), "") if isinstance(it, CardView) else (it.number, clip(it.device_class, room))
        load = MISSING if it.utilisation_percent is None else f"{it.utilisation_percent}%"
        table.add_row(Text(number), Text(kind), bar(it, fancy=fancy), Text(memory_text(it)), Text(load), said)
    return table


def _room_for_class(rows: Sequence[DeviceView | CardView], held: Sequence[Text], width: int) -> int:
    """So many cells the class gets: all that it wants, unless what is said of who holds it needs them more."""
    widest = min(max((it.cell_len for it in held), default=0), _HELD_CELLS)
    others = {
        ">GPU": [it.number if isinstance(it, DeviceView) else str(it.index) for it in rows],
        "memory": [" " * BAR_CELLS],
        ">": [memory_text(it) for it in rows],
        ">load": ["100%"],
    }
    return max(_CLASS_CELLS, width - cells_of(others) - widest)


#: The class is not cut below this, nor for what is said of who holds a GPU beyond that, which wraps.
_CLASS_CELLS = 14
_HELD_CELLS = 36


def in_rows(devices: Sequence[DeviceView], cards: Iterable[CardView]) -> list[DeviceView | CardView]:
    """The GPUs in the order of their numbers, and each that is split before its MIG devices."""
    pools = {pool: place for place, pool in enumerate(dict.fromkeys(it.pool for it in devices))}
    of_card = {it.card: it.pool for it in devices}

    def place(it: DeviceView | CardView) -> tuple[int, int, int]:
        if isinstance(it, CardView):
            return pools.get(of_card.get(it.uuid, ""), 0), it.index, -1
        return (pools[it.pool], *in_order(it.number))

    return sorted([*cards, *devices], key=place)


def _split(card: CardView, devices: Iterable[DeviceView]) -> Text:
    return Text(split_text(card, sum(it.card == card.uuid for it in devices)), style="dim")


def _noted(device: DeviceView) -> Text:
    note = note_text(device)
    return Text(f" ({note})" if note else "", style="dim")


def bar(device: DeviceView | CardView, *, fancy: bool = True) -> Text:
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


def held_by_text(device: DeviceView, by_id: Mapping[int, WorkloadView], now: float, *, is_told: bool = False) -> Text:
    """Say who holds a GPU until when, and what is wrong with it; only its name where `is_told` what that is."""
    held = _held(device, by_id, now)
    if device.condition is not None:
        # Of a GPU that works on, who is on it is told first.
        what = condition_text(device, with_detail=not is_told)
        return Text("; ".join([*([held] if held else []), what]), style="red")
    if device.cordoned:
        what = "cordoned" if is_told else cordon_text(device)
        return Text(f"{held}, {what}" if held else what, style="" if held else "yellow")
    return Text(held) if held else Text("free", style="green")


def _held(device: DeviceView, by_id: Mapping[int, WorkloadView], now: float) -> str:
    parts = [_holder(device, place, by_id.get(number), number) for place, number in enumerate(device.workloads)]
    if not parts:
        return ""
    if any(by_id[number].overtime for number in device.workloads if number in by_id):
        until = ", in overtime"
    else:
        until = _until(device, by_id, now)
    leased = device.memory_leased_bytes
    # Of a device that is leased in parts it counts how much is left of it.
    shared = "" if not leased else f"{part_text(leased, device.memory_total_bytes)} leased, by "
    return f"{shared}{', '.join(parts)}{until}"


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


def _work(status: Status, mine: Sequence[Row], width: int) -> list[RenderableType]:
    if not mine:
        return [_indented("Nothing runs and nothing waits.")]
    columns = {
        ">ID": [str(id_of(row)) for row in mine],
        "state": [state_of(row) for row in mine],
        "kind": [str(row[0].kind) for row in mine],
    }
    known, is_whole = numbers(status.devices), not status.more_of_mine
    table = work_table(mine, columns, spare=["kind"], known=known, now=status.at, width=width, is_whole=is_whole)
    parts: list[RenderableType] = [table]
    if status.more_of_mine:
        parts.append(_indented(f"{status.more_of_mine} more wait: `jupyter gpu queue --mine` lists them."))
    return parts


def _reasons(mine: Iterable[Row]) -> list[RenderableType]:
    """Why things are as they are, in sentences; what holds for many, or for all of an array, is said of the first."""
    said: set[object] = set()
    parts: list[RenderableType] = []
    for row, it in ((them, one) for them in mine for one in them):
        if not it.reason or not (it.state is State.QUEUED or it.overtime or it.notice is not None):
            continue
        if it.state is State.QUEUED:
            key = it.waiting if it.waiting in _ALIKE else (id_of(row), it.waiting)
            if key in said:
                continue
            said.add(key)
        # Under the number that its row has.
        of = f" (job {it.id} of it)" if id_of(row) != it.id else ""
        parts.append(_indented(f"{id_of(row)}{of}: {sentence(it.reason)}"))
    return parts


def queue_table(
    groups: Sequence[Row],
    known: Mapping[str, str],
    now: float,
    *,
    width: int = 80,
    is_whole: bool = True,
) -> Table:
    """One line per workload, or per array, in the order in which they came."""
    firsts = [group[0] for group in groups]
    columns = {
        ">ID": [str(id_of(group)) for group in groups],
        "queue": [clip(it.queue, 12) for it in firsts],
        "owner": [clip(("you" if it.is_mine else it.owner) or "-", 12) for it in firsts],
        ">GPUs": [str(it.ask.devices) for it in firsts],
        "state": [state_of(group) for group in groups],
    }
    spare = ["queue", ">GPUs", "owner"]
    return work_table(groups, columns, spare=spare, known=known, now=now, width=width, is_whole=is_whole)


def quota_table(quotas: Sequence[QuotaView], now: float) -> Table:
    """One line per bound: what is held or used of it, and what is left."""
    table = make_table("rule", "used", last="left")
    for it in quotas:
        table.add_row(Text(clip(it.rule, 30)), Text(used_text(it)), Text(left_text(it, now)))
    return table


def used_text(it: QuotaView) -> str:
    """Say what is held or used, and of how much."""
    parts = []
    if it.devices_held is not None or it.devices_allowed is not None:
        allowed = "" if it.devices_allowed is None else f" of {it.devices_allowed}"
        parts.append(named(f"{MISSING if it.devices_held is None else it.devices_held}{allowed}", "GPU"))
    if it.memory_allowed_bytes is not None:
        held, allowed = bytes_apart(it.memory_held_bytes or 0, it.memory_allowed_bytes)
        parts.append(f"{held} of {allowed} of shared GPUs")
    if it.used_ms is not None or it.allowed_ms is not None:
        allowed = "" if it.allowed_ms is None else f" of {_hours(it.allowed_ms)}"
        window = f" in {format_seconds(it.window_seconds)}" if it.window_seconds else ""
        parts.append(named(f"{_hours(it.used_ms)}{allowed}", "GPU-hour") + window)
    return ", ".join(parts) or MISSING


def left_text(it: QuotaView, now: float) -> str:
    """Say what is left, or when there is more."""
    parts = []
    if it.devices_held is not None and it.devices_allowed is not None:
        parts.append(plural(max(0, it.devices_allowed - it.devices_held), "GPU"))
    if it.memory_allowed_bytes is not None:
        parts.append(format_bytes(max(0, it.memory_allowed_bytes - (it.memory_held_bytes or 0))))
    if it.used_ms is not None and it.allowed_ms is not None:
        left = it.allowed_ms - it.used_ms
        # While something is left, nobody needs to know when there is more.
        if left <= 0 and it.available_again_at is not None:
            parts.append(f"none until {format_when(it.available_again_at, now)}")
        else:
            parts.append(named(_hours(max(0, left)), "GPU-hour"))
    return ", ".join(parts)


def _hours(milliseconds: int | None) -> str:
    return MISSING if milliseconds is None else f"{milliseconds / 3_600_000:.1f}".removesuffix(".0")
