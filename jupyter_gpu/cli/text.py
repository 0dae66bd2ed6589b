"""Text for people: names that cannot act on a terminal, commands that can be pasted back, words for states.

Pure. Whatever comes from elsewhere (names, reasons, logs of others) passes through `safe` before it is shown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime

from ..model import Ask, CardView, Condition, DeviceView, Progress, State, WaitingReason, WorkloadView, readable
from ..units import MISSING, format_at, format_bytes, format_seconds, format_span, format_when

# Joiners of emoji and of scripts such as Persian; all other invisible characters are shown as what they are.
_JOINERS = "\u200c\u200d"

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

WAITS = {
    WaitingReason.DEVICES: "no GPU is free",
    WaitingReason.QUOTA: "quota is held",
    WaitingReason.BUDGET: "GPU-hours are used",
    WaitingReason.HOLD: "GPUs are on hold",
    WaitingReason.PAUSED: "paused",
    WaitingReason.DEPENDENCY: "waits for other work",
    WaitingReason.NOT_BEFORE: "not yet its time",
    WaitingReason.BACK_OFF: "failed, tries again",
    WaitingReason.CLEARING: "a GPU is being made free",
    WaitingReason.ENGINE: "no such GPU now",
    WaitingReason.DRIVER: "no GPU can be read",
}

CONDITIONS = {
    Condition.LOST: "lost",
    Condition.FAULTY: "faulty",
    Condition.RESET_NEEDED: "needs a reset",
    Condition.PROHIBITED: "closed to CUDA",
    Condition.UNREADABLE: "cannot be read",
    Condition.HOT: "too hot",
    Condition.SUSPECT: "busy with nobody on it",
    Condition.NOT_CLEAR: "not clear",
    Condition.FOREIGN: "used without a lease",
}

_SLOWED_BY = {
    "hw-thermal": "heat",
    "sw-thermal": "heat",
    "power-brake": "the power brake of its supply",
    "hw-slowdown": "its hardware",
}

#: How the reason begins where some are free.
#: What the reason says where no quota but the array's own `--at-most` is what is waited for.
_OF_ITS_ARRAY = "the most that was asked for at once"
_WAY_OUT = re.compile(r" Leave the line with `[^`]*`( \([^)]*\))?\.")
_SOME_FREE = re.compile(r"\d+ of the \d+ GPUs it wants (is|are) free\b")


def safe(text: str) -> str:
    """Make text that stays on its line and cannot steer a terminal; what is escaped can still be recognised."""
    if text.isprintable():
        return text
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char.isprintable() or char in _JOINERS:
        return char
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def sentence(text: str, *, name: str = "") -> str:
    """Begin with a capital and end with a full stop, since some texts of the broker are parts of sentences.

    `name` is somebody's: where the text begins with it, it stays as it is spelt.
    """
    text = safe(" ".join(text.split())) if "\n" in text else safe(text)
    if not text:
        return text
    begins = text[0] if name and text.startswith(f"{name} ") else text[0].upper()
    return begins + text[1:] + ("" if text[-1] in ".!?:`" else ".")


def why(it: WorkloadView) -> str:
    """Say why it waits or how it stands, without the way out: for those who say a better one."""
    return sentence(_WAY_OUT.sub("", it.reason))


def short_of(it: WorkloadView) -> str:
    """Say in a few words what it waits for; where some GPUs are free but too few, how many, as its reason says it."""
    if it.waiting is None:
        return ""
    if it.waiting is WaitingReason.DEVICES and it.ask.devices > 1 and not it.reason.startswith("No GPU is free"):
        some = _SOME_FREE.match(it.reason)
        return "too few GPUs are free" if some is None else some[0]
    if it.waiting is WaitingReason.QUOTA and _OF_ITS_ARRAY in it.reason:
        return "as many run as you asked for" if it.is_mine else "as many run as were asked for"
    return WAITS[it.waiting]


def title(it: WorkloadView) -> str:
    """Name a workload at the start of a sentence: "Job 12 (digits)", "Job 14 (digits, 3 of 5 of array 12)"."""
    said = ", ".join(filter(None, (safe(it.name or ""), place_text(it))))
    return f"{str(it.kind).capitalize()} {it.id}" + (f" ({said})" if said else "")


def place_text(it: WorkloadView) -> str:
    """Say which of an array it is; empty where it is of none."""
    return "" if it.member is None else f"{it.member.index} of {it.member.of} of array {it.member.array}"


def ids_of(it: WorkloadView) -> range:
    """Give the numbers of all that were asked for as one: of an array all of it."""
    return range(it.id, it.id + 1) if it.member is None else it.member.ids


def end_text(it: WorkloadView) -> str:
    """Say how it ended and why, once: "cancelled by ada", "failed (exit code 3)"."""
    end, detail = str(it.end), safe(it.detail).rstrip(".")
    if detail in ("", end) or (end == "succeeded" and detail == "exit code 0"):
        return end
    return detail if detail.startswith(f"{end} ") else f"{end} ({detail})"


def shell_word(word: str) -> str:
    """Quote one word such that a shell reads exactly it.

    What cannot be printed (a line end, an escape, a byte that is no UTF-8) is written as $'...', which bash, zsh,
    ksh and POSIX of 2024 read.
    """
    if word.isprintable():
        return shlex.quote(word)
    shown = []
    for byte in word.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        if char in "'\\":
            shown.append("\\" + char)
        else:
            shown.append(char if char.isascii() and char.isprintable() else f"\\x{byte:02x}")
    return f"$'{''.join(shown)}'"


def command_line(argv: Iterable[str]) -> str:
    """Write an argument list as a line that gives the same list when it is pasted into a shell."""
    return " ".join(shell_word(word) for word in argv)


def unpacked(text: str) -> str:
    """Undo the packing of the model; bytes that are no UTF-8 become surrogates, as in os.fsdecode."""
    return readable(text)


def state_word(it: WorkloadView) -> str:
    """Say where a workload stands, in one word."""
    if it.state is State.QUEUED and it.paused:
        return "paused"
    return str(it.end or it.state)


def in_order(number: str) -> tuple[int, int]:
    """Order numbers of GPUs, those of MIG devices (1:0) among them."""
    card, _, slot = number.partition(":")
    return int(card), int(slot) if slot else 0


def gpus_text(uuids: Iterable[str], numbers: Mapping[str, str], *, simulated: bool = False) -> str:
    """Name devices as people do, like "GPU 0, 2"; one without a number here is named by its UUID.

    `simulated` where nothing else around says so.
    """
    known = sorted((numbers[uuid] for uuid in uuids if uuid in numbers), key=in_order)
    strange = [safe(uuid) for uuid in uuids if uuid not in numbers]
    parts = ([f"GPU {', '.join(known)}"] if known else []) + strange
    return (", ".join(parts) or "no GPU") + (" (simulated)" if simulated else "")


def held_text(it: WorkloadView, numbers: Mapping[str, str], *, simulated: bool = False) -> str:
    """Name what a workload holds, like "GPU 0, 2", or "20GiB of GPU 0" where that is a part of it."""
    part = f"{format_bytes(it.ask.memory_bytes)} of " if it.devices and it.ask.memory_bytes is not None else ""
    return part + gpus_text(it.devices, numbers, simulated=simulated)


def how_it_goes(it: WorkloadView, numbers: Mapping[str, str], now: float) -> str:
    """Say in a few words what a table has room for: what it has until when, why it waits, when it ended."""
    if it.state is State.ENDED:
        return f"ended {format_when(it.ended_at, now)}"
    if it.state is State.QUEUED:
        return _waits(it, now)
    parts = [held_text(it, numbers)]
    if it.notice is not None:
        return f"{parts[0]}, must yield ({it.notice.reason}) by {format_when(it.notice.yield_by, now)}"
    if it.state is State.YIELDING:
        return f"{parts[0]}, being cleared"
    if it.attempt > 1:
        parts.append(f"attempt {it.attempt}")
    if far := progress_text(it, now):
        parts.append(far)
    if it.overtime:
        parts.append("in overtime")
    elif it.attach_by is not None and it.holder is None and it.is_mine:
        parts.append(f"take it by {format_when(it.attach_by, now)}")
    elif it.ends_at is not None:
        parts.append(f"until {format_when(it.ends_at, now)}")
    return ", ".join(parts)


def _waits(it: WorkloadView, now: float) -> str:
    if it.paused:
        why = WAITS[WaitingReason.PAUSED]
    elif it.waiting is WaitingReason.NOT_BEFORE and it.not_before is not None:
        return f"not before {format_when(it.not_before, now)}"
    elif it.waiting is WaitingReason.BACK_OFF and it.back_off_until is not None:
        return f"failed, again {format_at(it.back_off_until, now)}"
    elif it.waiting is WaitingReason.DEPENDENCY and it.unmet:
        return f"waits for {', '.join(map(str, it.unmet))}"
    else:
        why = short_of(it) or "waits"
    if it.ahead is not None and not it.paused:
        why += ", first in line" if it.ahead == 0 else f", {it.ahead} ahead"
    if when := expected_text(it, now):
        why += f", {when}"
    return why


def expected_text(it: WorkloadView, now: float) -> str:
    """When it is expected to start: "14:05 to 16:30", "about 14:05"; empty where nobody knows until when."""
    if it.expected_start_until is not None:
        return format_span(it.expected_start_from, it.expected_start_until, now)
    return "" if it.expected_start_at is None else f"about {format_when(it.expected_start_at, now)}"


def progress_text(it: WorkloadView, now: float) -> str:
    """Say how far a job that runs is: "step 12/50, 24 %, about 3h left, loss 0.31"; empty where it does not say."""
    found = it.progress
    if found is None or not it.attempt or found.attempt != it.attempt:
        return ""
    parts = [step_text(found)]
    since_at, since = found.from_at, found.from_step or 0
    if since_at is None and it.attempt == 1:  # one word alone; only of a first attempt it is known that it began at 0
        since_at = it.started_at
    # What waits in line, or is leaving, makes no way: its estimate would count down to nothing.
    if it.state is State.ACTIVE and found.of and since_at is not None and since < found.step < found.of:
        seconds = (found.at - since_at) * (found.of - found.step) / (found.step - since) - (now - found.at)
        parts.append(f"about {roughly(seconds)} left")
    parts += [number_text(name, value) for name, value in list(found.numbers.items())[:_MOST_NUMBERS]]
    return ", ".join(parts)


def step_text(found: Progress) -> str:
    """Say at which step it is: "step 12/50, 24 %"."""
    if not found.of:
        return f"step {found.step}"
    return f"step {found.step}/{found.of}, {min(100, found.step * 100 // found.of)} %"


def number_text(name: str, value: float | None) -> str:
    """Write one of the numbers that a job reports; what was no finite number is n/a."""
    return f"{safe(name)} {MISSING if value is None else f'{value:.3g}'}"


def roughly(seconds: float) -> str:
    """Write a length that is an estimate: no finer than anybody can know."""
    step = next((step for most, step in _ROUGHLY if seconds < most), 86_400)
    return format_seconds(max(step, round(seconds / step) * step))


#: Below this it is said in steps of that.
_ROUGHLY = ((60, 10), (2 * 3600, 60), (2 * 86_400, 3600))
#: A list has room for so many of the numbers that a job reports.
_MOST_NUMBERS = 2


def moment(when: float, now: float) -> str:
    """Write an instant that has been: to the second while it is of today, since short work is over within a minute."""
    then, today = datetime.fromtimestamp(when), datetime.fromtimestamp(now)  # noqa: DTZ006 - the reader's own clock
    return f"{then:%H:%M:%S}" if then.date() == today.date() else format_when(when, now)


def took(seconds: float) -> str:
    """Write how long something took."""
    return "less than a second" if seconds < 1 else format_seconds(seconds)


def ask_text(ask: Ask) -> str:
    """Write the ask in one line: "2 GPUs, a100-80gb, 20GiB of each, 8h"."""
    parts = [plural(ask.devices, "GPU")]
    if ask.device_class:
        parts.append(safe(ask.device_class))
    if ask.memory_bytes is not None:
        parts.append(f"{format_bytes(ask.memory_bytes)} of a shared one")
    if ask.min_free_bytes is not None:
        parts.append(f"at least {format_bytes(ask.min_free_bytes)} free")
    if ask.duration_seconds is not None:
        parts.append(format_seconds(ask.duration_seconds))
    if ask.pool:
        parts.append(f"pool {safe(ask.pool)}")
    return ", ".join(parts)


def memory_text(device: DeviceView | CardView) -> str:
    """Write used and total memory in the unit of the total, "61.2/80GiB"; a reading that is missing is n/a."""
    return part_text(device.memory_used_bytes, device.memory_total_bytes, "/")


def part_text(part: int | None, whole: int | None, between: str = " of ") -> str:
    """Write a part of an amount of memory in the unit of the whole: "20 of 80GiB"."""
    if whole is None:
        return format_bytes(part)
    total = format_bytes(whole)
    unit = total.lstrip("0123456789.")
    if part is None:
        return f"{MISSING}{between}{total}"
    amount = part / 1024 ** _UNITS.index(unit)
    return f"{amount:.1f}".removesuffix(".0") + f"{between}{total}"


def condition_text(device: DeviceView, *, with_detail: bool = True) -> str:
    """Say what is wrong with a device, and on what evidence; empty where nothing is.

    "used without a lease: process 815 (python) holds 2GiB; cordoned"
    """
    if device.condition is None:
        return ""
    why = evidence(device)[0] if with_detail else ""
    cordoned = "" if not device.cordoned else f"; {cordon_text(device)}" if with_detail else "; cordoned"
    return CONDITIONS[device.condition] + (f": {why}" if why else "") + cordoned


def cordon_text(device: DeviceView) -> str:
    """Say who took a device out of use and why, as far as it is told: "cordoned by grace: node maintenance"."""
    if not device.cordoned:
        return ""
    by = f" by {safe(device.cordoned_by)}" if device.cordoned_by else ""
    return f"cordoned{by}" + (f": {safe(device.cordon_reason)}" if device.cordon_reason else "")


def evidence(device: DeviceView) -> tuple[str, str]:
    """On what evidence a device is not well, and what else the broker says of it: the first sentence, and the rest."""
    why, _, more = safe(device.condition_detail).strip().rstrip(".").partition(". ")
    if device.condition is Condition.LOST and why.startswith(_SAYS_LOST):
        why = why.removeprefix(_SAYS_LOST).lstrip(": ")  # its condition says that already
    return why, more


#: How the detail of a lost device may begin.
_SAYS_LOST = "The GPU is lost"


def slowed_text(reasons: Iterable[str]) -> str:
    """Say what makes a device slower than it could be; empty where nothing is known to."""
    causes = dict.fromkeys(_SLOWED_BY.get(it, safe(it)) for it in reasons)
    return f"slowed down by {' and '.join(causes)}" if causes else ""


def note_text(device: DeviceView) -> str:
    """Say what is no fault and good to know: that it drives a display, that it may be shared."""
    notes = [safe(device.note).rstrip(".")] if device.note else []
    if device.shares_host_memory and not any(_HOST_MEMORY in note for note in notes):
        notes.append(f"memory {_HOST_MEMORY}")
    if device.shareable and not device.workloads and device.condition is None:
        notes.append("may be shared")
    return "; ".join(note[0].lower() + note[1:] for note in notes)


_HOST_MEMORY = "shared with system memory"


def split_text(card: CardView, parts: int) -> str:
    """Say what a GPU in MIG mode is: no device itself."""
    if not parts:
        return f"{safe(card.name)}, in MIG mode without MIG devices: nothing to lease"
    return f"{safe(card.name)}, split into {plural(parts, 'MIG device')}"


def named(said: str, word: str) -> str:
    """Name what is counted already: "1 GPU-hour", "0.5 GPU-hours", "0 of 1 GPU"."""
    return f"{said} {word}" + ("" if said.rpartition(" ")[2] == "1" else "s")


def plural(count: int, word: str) -> str:
    """Count things: "1 GPU", "2 GPUs"."""
    return f"{count} {word}" + ("" if count == 1 else "s")
