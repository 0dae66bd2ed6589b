"""The pictures of the widgets, as HTML that stands by itself: in a live page, in a saved notebook, in nbconvert's HTML.

Pure: documents in, text out. There is no style sheet to lose, so every style is inline; text has the page's own colour,
and what is coloured is a tone that reads on white and on black. What a colour or a line says is said in words too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from ..cli.gpus import owner_text, whose
from ..cli.picture import badge, held_by_text, in_rows, left_text, numbers, used_text
from ..cli.text import how_it_goes, memory_text, note_text, plural, safe, sentence, split_text, state_word, title
from ..model import CardView, DeviceView, QuotaView, State, Status, UseView, WorkloadView
from ..units import MISSING, format_bytes, format_when
from .faces import spoken_here

#: So many readings make a sparkline; at one a second, a minute.
MOST_POINTS = 60

_TYPED = re.compile("`([^`]*)`")

_FONT = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);line-height:1.4"
)
_BOX = f"{_FONT};color:inherit;background:transparent;max-width:900px;margin:2px 0;overflow-x:auto"
_SOFT = "opacity:.72"
_LINE = "1px solid rgba(127,127,127,.35)"
_CELL = "padding:3px 14px 3px 0;text-align:left;vertical-align:middle;white-space:nowrap;border:0;background:none"
_WIDE = "padding:3px 0;text-align:left;vertical-align:middle;white-space:normal;min-width:14em;border:0;background:none"
_MEMORY = "var(--jp-info-color1,#2a9db0)"
_LOAD = "#9b6fe0"
_FULL = "var(--jp-error-color1,#d9534f)"
_GOOD = "var(--jp-success-color1,#3a9a4b)"
_WARN = "var(--jp-warn-color1,#b8860b)"
_WIDTH, _HEIGHT = 120, 22
_NEARLY_FULL = 90
_WHOLE = 100


class Trace(NamedTuple):
    """What a device showed lately, in percent, oldest first; None where nothing could be read."""

    memory: Sequence[float | None] = ()
    load: Sequence[float | None] = ()


def percent_of_memory(device: DeviceView | CardView) -> float | None:
    """How full it is; None where either number is missing."""
    if device.memory_used_bytes is None or not device.memory_total_bytes:
        return None
    return min(100.0, 100 * device.memory_used_bytes / device.memory_total_bytes)


def monitor(status: Status | None, traces: Mapping[str, Trace], mine: WorkloadView | None, note: str = "") -> str:
    """Draw the devices: how full and how busy, lately too, and who holds them until when. MIG devices below theirs."""
    if status is None:
        return _box("GPUs", _quiet(note or "Waiting for the broker."))
    head = f"<div>{_headline(status, note)}</div>{_told(status)}"
    if not status.devices and not status.cards:
        return _box("GPUs", head + _quiet("No GPUs. `%gpu doctor` says why."))
    by_id = {it.id: it for it in status.workloads}
    rows = "".join(
        _card(it, traces.get(it.uuid, Trace()), status.devices)
        if isinstance(it, CardView)
        else _device(it, traces.get(it.uuid, Trace()), by_id, mine, status.at)
        for it in in_rows(status.devices, status.cards)
    )
    table = _table(("GPU", "class", "memory", "load", "lately", "held by"), rows)
    return _box("GPUs", f"{head}{table}{_of_this_kernel(mine, status)}")


def _headline(status: Status, note: str) -> str:
    free = sum(1 for it in status.devices if not it.workloads and not it.cordoned and it.condition is None)
    head = f"<strong>{plural(len(status.devices), 'GPU')}, {free} free</strong>"
    if status.simulated:
        head += f' <span style="color:{_WARN}">simulated</span>'
    elif status.isolation is not None:
        look = _SOFT if status.isolation.enforced else f"color:{_WARN}"
        why = escape(safe(status.isolation.detail))
        head += f' <span style="{look}" title="{why}">{escape(badge(status.isolation))}</span>'
    return head + f' <span style="{_SOFT}">{_clock(status)}</span>{_noted(note)}'


def _told(status: Status) -> str:
    """What somebody should know; what stands there twice is said once."""
    texts = dict.fromkeys((*status.warnings, *(it.text for it in status.alerts)))
    return "".join(f'<div style="color:{_WARN}">{_said(sentence(it))}</div>' for it in texts)


def _of_this_kernel(mine: WorkloadView | None, status: Status) -> str:
    if mine is None:
        return ""
    return _quiet(f"This kernel: reservation {mine.id}, {how_it_goes(mine, numbers(status.devices), status.at)}.")


def _card(card: CardView, trace: Trace, devices: Iterable[DeviceView]) -> str:
    """A GPU in MIG mode: what it reads, and that it is none that anybody can hold."""
    what = split_text(card, sum(it.card == card.uuid for it in devices))
    more = [] if card.temperature_celsius is None else [f"{card.temperature_celsius}°C"]
    more += [] if card.power_watts is None else [f"{card.power_watts:.0f} W"]
    cells = (_cell(str(card.index)), _cell(""), *_readings(card, trace, str(card.index)))
    last = f'<td style="{_WIDE};{_SOFT}">{escape(", ".join([what, *more]))}</td>'
    return f'<tr data-uuid="{escape(safe(card.uuid))}" style="border-top:{_LINE}">{"".join(cells)}{last}</tr>'


def _device(
    device: DeviceView, trace: Trace, by_id: Mapping[int, WorkloadView], mine: WorkloadView | None, now: float
) -> str:
    is_mine = mine is not None and device.uuid in mine.devices
    held = held_by_text(device, by_id, now).plain
    if is_mine and mine is not None:
        held = held.replace(f"you: {mine.kind} {mine.id}", f"this kernel: {mine.kind} {mine.id}")
    colour = _FULL if device.condition else _GOOD if held == "free" else "inherit"
    number = escape(device.number)
    tag = f'<strong style="color:{_LOAD}" title="This kernel holds it">&#9679; {number}</strong>'
    indent = "padding-left:14px;" if device.card else ""
    note = note_text(device)
    soft = f' <span style="{_SOFT}">({escape(note)})</span>' if note else ""
    cells = (
        f'<td style="{_CELL};{indent}">{tag if is_mine else number}</td>',
        _cell(escape(safe(device.device_class)), title=safe(device.name)),
        *_readings(device, trace, device.number),
        f'<td style="{_WIDE}"><span style="color:{colour}">{_said(held)}</span>{soft}{_foreign(device)}</td>',
    )
    weight = "font-weight:600" if is_mine else "font-weight:inherit"
    return f'<tr data-uuid="{escape(safe(device.uuid))}" style="border-top:{_LINE};{weight}">{"".join(cells)}</tr>'


def _readings(it: DeviceView | CardView, trace: Trace, number: str) -> tuple[str, str, str]:
    used = percent_of_memory(it)
    load = MISSING if it.utilisation_percent is None else f"{it.utilisation_percent}%"
    colour = _FULL if used is not None and used >= _NEARLY_FULL else _MEMORY
    return _cell(f"{bar(used, colour)} {memory_text(it)}"), _cell(load), _cell(sparkline(trace, f"GPU {number}"))


def _foreign(device: DeviceView) -> str:
    """Who is on it without a lease, a line each."""
    return "".join(f'<div style="color:{_FULL}">{escape(_use(it))}</div>' for it in device.uses if it.foreign)


def _use(it: UseView) -> str:
    who = [f"process {it.pid}", *(safe(text) for text in (it.name, owner_text(it)) if text)]
    return ", ".join([*who, format_bytes(it.memory_bytes), whose(it)])


def quota(status: Status | None, note: str = "") -> str:
    """Draw every bound that concerns the caller: what is held or used of it, and what is left."""
    if status is None:
        return _box("Quota", _quiet(note or "Waiting for the broker."))
    head = f"<div><strong>Quota of {escape(safe(status.caller))}</strong>{_noted(note)}</div>"
    if not status.quotas:
        return _box("Quota", head + _quiet("No quota concerns you: you may hold what is free."))
    rows = "".join(_rule(it, status.at) for it in status.quotas)
    return _box("Quota", head + _table(("rule", "", "used", "left"), rows))


def _rule(it: QuotaView, now: float) -> str:
    shares = [
        _share(it.devices_held, it.devices_allowed),
        _share(it.memory_held_bytes, it.memory_allowed_bytes),
        _share(it.used_ms, it.allowed_ms),
    ]
    known = [share for share in shares if share is not None]
    drawn = bar(max(known), _FULL if max(known) >= _WHOLE else _MEMORY) if known else ""
    cells = (
        _cell(escape(safe(it.rule))),
        _cell(drawn),
        _cell(escape(used_text(it))),
        f'<td style="{_WIDE}">{escape(left_text(it, now))}</td>',
    )
    return f'<tr style="border-top:{_LINE}">{"".join(cells)}</tr>'


def _share(part: int | None, whole: int | None) -> float | None:
    if part is None or whole is None:
        return None
    return 100.0 if whole == 0 else min(100.0, 100 * part / whole)


def job(
    number: int,
    it: WorkloadView | None,
    *,
    log: str = "",
    numbers: Mapping[str, str] | None = None,
    now: float,
    note: str = "",
) -> str:
    """Draw one job: how it stands and why, its attempts, and the end of what it printed."""
    if it is None:
        return _box(f"Job {number}", f"<div><strong>Job {number}</strong></div>" + _quiet(note or "Asking the broker."))
    word = state_word(it)
    colour = {"active": _MEMORY, "succeeded": _GOOD, "queued": "inherit", "paused": "inherit"}.get(
        word, _WARN if it.end is None or it.end in ("cancelled", "released") else _FULL
    )
    head = (
        f'<div><strong>{escape(title(it))}</strong> <span style="color:{colour};font-weight:600">{escape(word)}</span>'
        f'{_attempts(it)} <span style="{_SOFT}">{escape(how_it_goes(it, numbers or {}, now))}</span>'
        f"{_noted(note)}</div>"
    )
    why = sentence(it.detail if it.end is not None else it.reason)
    parts = [head]
    if it.command:
        parts.append(f'<div style="{_SOFT}"><code style="background:none">{escape(safe(it.command))}</code></div>')
    if why:
        parts.append(f"<div>{escape(why)}</div>")
    if log:
        parts.append(
            f'<pre style="margin:4px 0 0;padding:6px 8px;border:{_LINE};border-radius:3px;background:none;'
            "color:inherit;white-space:pre-wrap;overflow-wrap:anywhere;font-size:var(--jp-code-font-size,12px);"
            f'line-height:1.35" aria-label="The end of what it printed">{escape(log)}</pre>'
        )
    return _box(title(it), "".join(parts))


def _attempts(it: WorkloadView) -> str:
    said = [f"attempt {it.attempt}"] if it.attempt > 1 else []
    said += [f"preempted {it.preemptions}x"] if it.preemptions else []
    said += [f"failed {it.failures}x"] if it.failures and it.end is None else []
    return f' <span style="{_SOFT}">({", ".join(said)})</span>' if said else ""


def bar(percent: float | None, colour: str) -> str:
    """Draw how full something is. What is not full is not drawn full; what is unknown is drawn empty and striped."""
    label = MISSING if percent is None else f"{percent:.0f}%"
    # A card's own baseline is not worth a stroke; a percent of it is.
    width = 0.0 if percent is None or percent < 1 else percent if percent == _WHOLE else min(99.0, max(3.0, percent))
    dashes = 'stroke-dasharray="3 3"' if percent is None else ""
    return (
        f'<svg width="72" height="10" viewBox="0 0 72 10" role="img" aria-label="{label}" '
        f'style="vertical-align:middle"><title>{label}</title><rect x=".5" y=".5" width="71" height="9" rx="2" '
        f'fill="none" stroke="currentColor" stroke-opacity=".4" {dashes}></rect>'
        f'<rect x="1" y="1" width="{0.7 * width:.1f}" height="8" rx="1.5" style="fill:{colour}"></rect></svg>'
    )


def sparkline(trace: Trace, what: str) -> str:
    """Draw the readings of late: load as a line over memory as an area. Where nothing was read is a gap."""
    label = f"{what}: memory {_last(trace.memory)}, load {_last(trace.load)}; the last {len(trace.load)} readings"
    area = "".join(
        f'<path d="{_path(run)}L{run[-1][0]:.0f} {_HEIGHT}L{run[0][0]:.0f} {_HEIGHT}Z" '
        f'style="fill:{_MEMORY};fill-opacity:.3;stroke:none"></path>'
        for run in _runs(trace.memory)
    )
    line = "".join(
        f'<path d="{_path(run)}" style="fill:none;stroke:{_LOAD};stroke-width:1.4"></path>' for run in _runs(trace.load)
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}" style="vertical-align:middle"><title>{escape(label)}</title>'
        f'<path d="M0 {_HEIGHT - 0.5}H{_WIDTH}" style="stroke:currentColor;stroke-opacity:.3;fill:none"></path>'
        f"{area}{line}</svg>"
    )


def _last(values: Sequence[float | None]) -> str:
    return MISSING if not values or values[-1] is None else f"{values[-1]:.0f}%"


def _runs(values: Sequence[float | None]) -> Iterable[list[tuple[float, float]]]:
    """Split into stretches without a gap, as points; the newest reading stands at the right edge."""
    step = _WIDTH / (MOST_POINTS - 1)
    run: list[tuple[float, float]] = []
    for place, value in enumerate(values):
        if value is None:
            if run:
                yield run
            run = []
            continue
        x = _WIDTH - (len(values) - 1 - place) * step
        run.append((x, _HEIGHT - 1 - (value / 100) * (_HEIGHT - 2)))
    if run:
        yield run


def _path(run: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in run)


def _table(heads: Iterable[str], rows: str) -> str:
    cells = "".join(
        f'<th scope="col" style="{_CELL};{_SOFT};font-weight:normal"{_explained(it)}>{escape(it)}</th>' for it in heads
    )
    return (
        f'<table style="border-collapse:collapse;border:0;margin:2px 0;table-layout:auto"><thead><tr>{cells}</tr>'
        f"</thead><tbody>{rows}</tbody></table>"
    )


def _explained(head: str) -> str:
    return ' title="The line is the load, the area the memory, for a minute"' if head == "lately" else ""


def _cell(html: str, *, title: str = "") -> str:
    said = f' title="{escape(title)}"' if title else ""
    return f'<td style="{_CELL}"{said}>{html}</td>'


def _quiet(text: str) -> str:
    return f'<div style="{_SOFT}">{_said(text)}</div>'


def _said(text: str) -> str:
    """A sentence of the broker: what stands between backticks is to be typed, here as `%gpu`."""
    return _TYPED.sub(r'<code style="background:none">\1</code>', escape(spoken_here(text)))


def _noted(note: str) -> str:
    return f' <span role="status" style="color:{_WARN}">{escape(sentence(note))}</span>' if note else ""


def _clock(status: Status) -> str:
    return escape(f"{safe(status.caller)}, {format_when(status.at, status.at)}")


def _box(label: str, html: str) -> str:
    # The classes keep a page from taking what stands between two dollars for mathematics.
    return (
        f'<div class="tex2jax_ignore mathjax_ignore" role="group" aria-label="{escape(label)}" style="{_BOX}">'
        f"{html}</div>"
    )


def is_live(it: WorkloadView | None) -> bool:
    """Whether there is something left to cancel."""
    return it is not None and it.state in (State.QUEUED, State.ACTIVE) and it.notice is None
