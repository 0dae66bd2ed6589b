"""Plain tables that are read from the left, and lists of workloads that give the name all the room there is.

Pure: words in, tables out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from .fold import Row, how_they_go, name_of
from .text import safe

#: A name gets so much before a column that can be spared is left out, and never less than the second.
WANTED_CELLS = 16
LEAST_CELLS = 8
# Where one line says a lot, it wraps; the others do not lose their columns for it.
_MOST_SAID = 46
GAP = 2
_STYLES = {
    "active": "green", "yielding": "yellow", "queued": "", "paused": "dim", "failed": "red", "gpu-oom": "red",
    "host-oom": "red", "disk-full": "red", "device-lost": "red", "hung": "red", "lost": "red", "launch-failed": "red",
    "above-share": "red",
}  # fmt: skip


def make_table(*columns: str, last: str) -> Table:
    """Make a table of plain columns; the last one takes what is left and wraps, a `>` in front aligns right."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_edge=False, header_style="dim", expand=False)
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    table.add_column(last, overflow="fold")
    return table


def work_table(
    groups: Sequence[Row],
    columns: Mapping[str, Sequence[str]],
    *,
    spare: Sequence[str],
    known: Mapping[str, str],
    now: float,
    width: int,
    is_whole: bool = True,
) -> Table:
    """List workloads, or arrays of them, one line each: the columns, then the name (or the command) and how it goes.

    `spare` are the columns that are left out, in this order, where the name would else have no room.
    """
    said = [how_they_go(group, known, now, is_whole=is_whole) for group in groups]
    names = [safe(name_of(group)) for group in groups]
    widest = min(_widest("how it goes", said), _MOST_SAID)
    wanted = _widest("name", names)
    shown = dict(columns)
    for name in spare:
        if width - widest - cells_of(shown) >= min(wanted, WANTED_CELLS):
            break
        shown.pop(name, None)
    room = min(wanted, max(width - widest - cells_of(shown), LEAST_CELLS))
    table = make_table(*shown, "name", last="how it goes")
    for row, (it, *_) in enumerate(groups):
        cells = [Text(column[row], style=_style(name, column[row])) for name, column in shown.items()]
        cut = clip(names[row], room) if it.name else clip_command(names[row], room)
        table.add_row(*cells, Text(cut), Text(said[row]))
    return table


def _style(column: str, word: str) -> str:
    return _STYLES.get(word, "") if column == "state" else ""


def _widest(title: str, cells: Iterable[str]) -> int:
    return max(map(cell_len, (title.lstrip(">"), *cells)))


def cells_of(columns: Mapping[str, Sequence[str]]) -> int:
    """How many cells the columns take, with the gap behind each and behind one more."""
    return sum(_widest(name, cells) + GAP for name, cells in columns.items()) + GAP


def clip(text: str, cells: int) -> str:
    """Make a name safe to print and short enough for a table; what is cut says so."""
    text = safe(text)
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def clip_command(text: str, cells: int) -> str:
    """Cut a command such that what differs stays: the script at its beginning, and the last of its arguments."""
    if cell_len(text) <= cells:
        return text
    script = text.partition(" ")[0]
    kept = f"{script} " if cell_len(script) <= cells // 2 else ""
    tail = text[len(kept) :]
    while tail and cell_len(kept) + cell_len(tail) + 1 > cells:
        tail = tail[1:]
    # Half a word says little; it goes where enough whole ones are left.
    whole = tail.partition(" ")[2]
    return f"{kept}…{whole if cell_len(whole) * 2 >= cell_len(tail) else tail}"
