"""docs/states.svg, from the table of the lifecycle and the three enums beside it.

One row of boxes. A step to the next box is a straight arrow, a longer way an arc above, a way back an arc below, and
what leaves the state as it is stands on a loop over its box.
"""

from dataclasses import dataclass
from html import escape

from jupyter_gpu.core.lifecycle import TABLE
from jupyter_gpu.model import EndReason, EvictionReason, State, WaitingReason

TARGET = "docs/states.svg"

ROW = (None, State.QUEUED, State.ACTIVE, State.YIELDING, State.ENDED)
#: Where the boxes stand, left to right; the first is a dot.
LEFT = {None: 40, State.QUEUED: 150, State.ACTIVE: 440, State.YIELDING: 730, State.ENDED: 1020}
WIDTH, HEIGHT, TOP = 150, 64, 250
MIDDLE = TOP + HEIGHT / 2
LISTS_TOP = TOP + HEIGHT + 150
PAGE_WIDTH = 1230
NOTE = ("¹ only work that an engine has", "already; then without a lease")

COLOURS = {
    State.QUEUED: ("#fff4d6", "#b7791f"),
    State.ACTIVE: ("#ddf3e4", "#2f855a"),
    State.YIELDING: ("#fde4dc", "#c05621"),
    State.ENDED: ("#e6e9ef", "#4a5568"),
}
SAYS = {
    State.QUEUED: "waits in line",
    State.ACTIVE: "holds its lease",
    State.YIELDING: "must leave, or is being cleared",
    State.ENDED: "over, for good",
}
LISTS = (
    (State.QUEUED, "waiting for", WaitingReason),
    (State.YIELDING, "evicted, the strongest first", EvictionReason),
    (State.ENDED, "ended", EndReason),
)

_STYLE = """\
  <style>
    text { font-family: system-ui, "Segoe UI", "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #1a202c; }
    .state { font-size: 19px; font-weight: 600; text-anchor: middle; }
    .says { font-size: 12px; text-anchor: middle; fill: #4a5568; }
    .event { font-size: 14px; text-anchor: middle; }
    .title { font-size: 13px; font-weight: 600; }
    .reason { font-size: 13px; fill: #2d3748; }
    .note { font-size: 12px; fill: #4a5568; }
    .way { fill: none; stroke: #4a5568; stroke-width: 1.6; marker-end: url(#tip); }
  </style>
  <defs>
    <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
      <path d="M 0 1 L 9 5 L 0 9 z" fill="#4a5568"/>
    </marker>
  </defs>
"""


@dataclass(frozen=True)
class Way:
    """All events that lead from one state to one other."""

    begin: State | None
    end: State
    events: tuple[str, ...]

    @property
    def steps(self) -> int:
        """How many boxes to the right."""
        return ROW.index(self.end) - ROW.index(self.begin)


def ways() -> list[Way]:
    """The rows of the table, those between the same two states together."""
    between: dict[tuple[State | None, State], list[str]] = {}
    for (begin, event), end in TABLE.items():
        between.setdefault((begin, end), []).append(event.__name__.lower())
    return [Way(begin, end, tuple(events)) for (begin, end), events in between.items()]


def render() -> str:
    """Draw the whole picture."""
    found = ways()
    lists = [_list(state, title, reasons) for state, title, reasons in LISTS]
    page_height = LISTS_TOP + 19 * max(len(reasons) for _, _, reasons in LISTS) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE_WIDTH} {page_height}" role="img">\n',
        "  <!-- Written by `make generate` from jupyter_gpu/core/lifecycle.py. -->\n",
        "  <title>The states of a workload and the events between them</title>\n",
        _STYLE,
        f'  <rect width="{PAGE_WIDTH}" height="{page_height}" rx="12" fill="#ffffff"/>\n',
        f'  <circle cx="{LEFT[None]}" cy="{MIDDLE:g}" r="9" fill="#4a5568"/>\n',
        *(_box(state) for state in State),
        *(_way(way) for way in found),
        *lists,
        *(
            f'  <text class="note" x="{LEFT[State.ACTIVE]}" y="{LISTS_TOP + 19 * place}">{line}</text>\n'
            for place, line in enumerate(NOTE)
        ),
        "</svg>\n",
    ]
    return "".join(parts)


def _box(state: State) -> str:
    fill, stroke = COLOURS[state]
    middle = LEFT[state] + WIDTH / 2
    return (
        f'  <rect x="{LEFT[state]}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" rx="10" fill="{fill}"'
        f' stroke="{stroke}" stroke-width="2"/>\n'
        f'  <text class="state" x="{middle:g}" y="{MIDDLE + 6:g}">{state.name}</text>\n'
        f'  <text class="says" x="{middle:g}" y="{TOP + HEIGHT + 18}">{escape(SAYS[state])}</text>\n'
    )


def _way(way: Way) -> str:
    if way.steps == 0:
        return _loop(way)
    if way.steps == 1:
        return _straight(way)
    return _arc(way)


def _straight(way: Way) -> str:
    begin = LEFT[way.begin] + (WIDTH if way.begin is not None else 12)
    end = LEFT[way.end] - 3
    return _path(f"M {begin} {MIDDLE:g} L {end} {MIDDLE:g}") + _label((begin + end) / 2, MIDDLE - 9, way.events)


def _loop(way: Way) -> str:
    """Over the right half of its box: arcs come and go on the left."""
    x = LEFT[way.end] + WIDTH - 50
    path = f"M {x - 22} {TOP} C {x - 46} {TOP - 50} {x + 46} {TOP - 50} {x + 22} {TOP - 3}"
    return _path(path) + _label(x, TOP - 46, way.events)


def _arc(way: Way) -> str:
    """Above where it leads forward, below where it leads back; the longer, the farther out."""
    if way.steps > 0:
        begin, end = LEFT[way.begin] + 44 - 8 * way.steps, LEFT[way.end] + 20
        begin_at, end_at, lift = TOP, TOP - 3, TOP - 70 - 60 * way.steps
    else:
        begin, end = LEFT[way.begin] + 40, LEFT[way.end] + WIDTH - 40
        begin_at = TOP + HEIGHT + 28
        end_at, lift = begin_at + 3, begin_at + 45 - 25 * way.steps
    path = f"M {begin} {begin_at} C {begin} {lift} {end} {lift} {end} {end_at}"
    middle_at = begin_at + (lift - begin_at) * 0.75 - 8
    note = "¹" if (way.begin, way.end) == (State.QUEUED, State.YIELDING) else ""
    return _path(path) + _label((begin + end) / 2, middle_at, tuple(event + note for event in way.events))


def _path(d: str) -> str:
    return f'  <path class="way" d="{d}"/>\n'


def _label(x: float, y: float, events: tuple[str, ...]) -> str:
    """One event a line, upwards from y."""
    lines = [
        f'  <text class="event" x="{x:g}" y="{y - 17 * place:g}">{escape(event)}</text>\n'
        for place, event in enumerate(reversed(events))
    ]
    return "".join(reversed(lines))


def _list(state: State, title: str, reasons: type[WaitingReason | EvictionReason | EndReason]) -> str:
    text = f'  <text class="title" x="{LEFT[state]}" y="{LISTS_TOP}">{title}</text>\n'
    for place, reason in enumerate(reasons, start=1):
        text += f'  <text class="reason" x="{LEFT[state]}" y="{LISTS_TOP + 19 * place}">{reason}</text>\n'
    return text
