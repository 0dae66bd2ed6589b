"""How far an attempt says it is: a pipe that its user writes lines to, or the progress bar at the end of its log.

The pipe lies in the attempt's folder, where its user can neither replace nor remove it, and takes JSON lines from any
program: {"step": 5, "of": 10, "loss": 0.3}. It is looked at once a second and a bounded part of it, so whoever floods
it waits for us and never we for them; what is no report is passed over. Where nothing is reported, the bar that tqdm or
Keras draws is taken (nteract/papermill#765). The newest report and a curve of some hundred over the whole attempt are
kept as files; an attempt that says nothing, or is over within the second, leaves none. Standard library only, no
threads: it is part of the supervisor.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The longest line that is read; a write of so much to a pipe is never mixed with another.
LINE_BYTES = 4096
#: So much is read at a look, and of that so many lines, the newest.
_LOOK_BYTES = 256 * 1024
_LOOK_LINES = 256
#: The curve is thinned out to half when it has so many points; and it is written so often at most.
MOST_POINTS = 400
_CURVE_SECONDS = 10.0
_MOST_NUMBERS = 16
_LONGEST_NAME_BYTES = 32
#: What a browser still counts exactly.
_LARGEST_STEP = 2**53
_TAIL_BYTES = 2048
_LAST_LINES = 3
_NOT_NUMBERS = frozenset({"at", "attempt", "step", "of", "numbers"})
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAR = re.compile(
    r"""
    \d%\|[^|]*\|\s*(\d+(?:\.\d+)?)([kMGT]?)/(\d+(?:\.\d+)?)([kMGT]?)\s*\[     # tqdm: 45%|###   | 9/20 [00:01<
    | (?:^|\s)(\d+)/(\d+)\s+(?:it\s+)?(?:\[[=>.]|[\u2501\u2578\u257a\u2588-\u258f])   # Keras: 12/200 [====>
    """,
    re.VERBOSE,
)
_SCALE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Reports:
    """The reports of one attempt."""

    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self._folder, self._attempt = folder, spec["attempt"]
        self._pipe = _make_pipe(f"{folder}/{files.PROGRESS_PIPE}", spec)
        self._rest = b""
        #: The line that is being read is too long: it is passed over up to its end.
        self._is_too_long = False
        self._has_reported = False
        self._is_over = False
        self._newest: dict[str, Any] | None = None
        #: What its pace is counted from: an attempt that resumes does not begin at 0.
        self._first: dict[str, Any] | None = None
        self._points: list[dict[str, Any]] = []
        self._stride, self._count = 1, 0
        self._is_written = self._is_curve_written = True
        self._curve_due = 0.0
        self._bar = ""

    def look(self, tail: bytes) -> None:
        """Take what was said since the last look, `tail` being the end of the log; keep it. Never raises, or waits."""
        if self._is_over:  # what is left of its tree may still talk
            return
        for line in self._lines():
            found = parse(line)
            if found:
                self._has_reported = True
                self._take(found)
        if not self._has_reported:
            self._look_for_a_bar(tail)
        self._write(time.monotonic())

    def close(self, tail: bytes) -> None:
        """The attempt is over: take its last words, and take the pipe away."""
        if self._newest is None:  # a bar is read only while it moves: mostly there was none, and nothing is to be done
            tail = b""
        self._curve_due = 0.0
        self.look(tail)
        self._is_over = True
        if self._pipe >= 0:
            os.close(self._pipe)
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folder}/{files.PROGRESS_PIPE}")  # noqa: PTH108
            self._pipe = -1

    def _lines(self) -> list[bytes]:
        said = b""
        while self._pipe >= 0 and len(said) < _LOOK_BYTES:
            try:
                piece = os.read(self._pipe, _LOOK_BYTES)
            except OSError:  # nothing there now
                break
            if not piece:
                break
            said += piece
        if not said:
            return []
        if self._is_too_long:
            _, end, said = said.partition(b"\n")
            self._is_too_long = not end
        *lines, self._rest = (self._rest + said).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            self._rest, self._is_too_long = b"", True
        return lines[-_LOOK_LINES:]

    def _look_for_a_bar(self, tail: bytes) -> None:
        if not tail:
            return
        text = _ESCAPES.sub("", tail[-_TAIL_BYTES:].decode("utf-8", "replace"))
        lines = [line for line in re.split(r"[\r\n]", text) if line.strip()][-_LAST_LINES:]
        found = next(filter(None, map(read_bar, reversed(lines))), None)
        if found and str(found) != self._bar:
            self._bar = str(found)
            self._take(found)

    def _take(self, found: dict[str, Any]) -> None:
        self._newest = {"at": round(time.time(), 3), "attempt": self._attempt, **found}
        if self._first is None or found["step"] < self._first["step"]:  # it counts anew: another bar, another loop
            self._first = self._newest
        self._is_written = False
        if self._count % self._stride == 0:
            self._points.append(self._newest)
            self._is_curve_written = False
            if len(self._points) >= MOST_POINTS:
                self._points = self._points[::2]
                self._stride *= 2
        self._count += 1

    def _began(self) -> dict[str, Any]:
        first = self._first
        return {} if first is None or first is self._newest else {"from_at": first["at"], "from_step": first["step"]}

    def _write(self, now: float) -> None:
        """Bring the files up to date, the long one more rarely. What a full disk does not take is tried again."""
        with contextlib.suppress(OSError):
            if not self._is_written:
                files.write_whole(f"{self._folder}/{files.PROGRESS}", {**(self._newest or {}), **self._began()})
                self._is_written = True
            if not self._is_curve_written and now >= self._curve_due:
                files.write_whole(f"{self._folder}/{files.CURVE}", {"items": self._points})
                self._is_curve_written, self._curve_due = True, now + _CURVE_SECONDS


def parse(line: bytes) -> dict[str, Any] | None:
    """What a line reports; None where it is no report. Numbers stand beside `step` and `of`, or in `numbers`."""
    if len(line) > LINE_BYTES or not line.lstrip().startswith(b"{"):
        return None
    try:
        said = json.loads(line)
        step, of = _count(said["step"]), said.get("of")
        of = None if of is None else _count(of)
        numbers = said.get("numbers")
        numbers = (numbers if isinstance(numbers, dict) else {}) | {
            name: value for name, value in said.items() if name not in _NOT_NUMBERS
        }
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    named = [(name, value) for name, value in numbers.items() if _is_name(name) and _is_number(value)]
    return {"step": step, "of": of, "numbers": {name: _finite(value) for name, value in named[:_MOST_NUMBERS]}}


def read_bar(line: str) -> dict[str, Any] | None:
    """How far the progress bar on this line is, where there is one."""
    last = None
    for last in _BAR.finditer(line):  # noqa: B007 - the last one is what is wanted
        pass
    if last is None:
        return None
    step, step_scale, of, of_scale, plain_step, plain_of = last.groups()
    if plain_step is not None:
        done, whole = int(plain_step[:18]), int(plain_of[:18])
    else:
        done, whole = (int(float(text[:18]) * _SCALE[scale]) for text, scale in ((step, step_scale), (of, of_scale)))
    return {"step": done, "of": whole, "numbers": {}} if max(done, whole) < _LARGEST_STEP else None


def _count(value: Any) -> int:
    number = int(value) if type(value) in (int, float) else -1
    if not 0 <= number < _LARGEST_STEP:
        raise ValueError("no count of steps")
    return number


def _is_name(name: str) -> bool:
    """Whether it is a name that can be shown: whoever reads it may sit at a terminal."""
    return name.isprintable() and 0 < len(name.encode("utf-8", "replace")) <= _LONGEST_NAME_BYTES


def _is_number(value: Any) -> bool:
    return value is None or type(value) in (int, float)


def _finite(value: float | None) -> float | None:
    try:
        number = math.nan if value is None else float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _make_pipe(path: str, spec: dict[str, Any]) -> int:
    """Make the pipe for the attempt's user and open it; -1 where none can be made, and the job does without."""
    if spec["argv"] is None:  # a probe
        return -1
    try:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        if spec["uid"] is not None:
            os.chown(path, spec["uid"], spec["gid"])
        # For reading and writing: it has a reader for as long as we live, and never an end.
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
