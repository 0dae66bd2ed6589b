"""Bytes that a job printed -> text that a terminal may be given.

Pure. A log is decoded leniently, so that one bad byte hides nothing (hail-is/hail#12614, Nukesor/pueue#41); what a
progress bar wrote over and over is shown once; nothing in it can steer the terminal, colours aside.
"""

from __future__ import annotations

import codecs
import re

#: An unfinished line longer than this is shown in parts; holding it back would hide a job that prints no line end.
MOST_HELD_CHARS = 1 << 16

# Colour and weight, and nothing else that ends in m.
_COLOUR = re.compile(r"\x1b\[[\d;:]*m")
# Whole sequences: CSI (7-bit and 8-bit), strings such as titles and clipboards up to their end, two-letter ones.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
_UNFINISHED = re.compile(r"(?:\x1b|\x9b|\x9d|\x90|\x98|\x9e|\x9f)[^\n]{0,256}\Z")
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
_CONTROLS |= {0x7F: "\u2421"} | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
_RESET = "\x1b[0m"


class LogText:
    """The reader of one log: bytes go in as they come, whole lines come out."""

    def __init__(self, *, colours: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._colours = colours
        self._held = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Take bytes and give the lines that are complete. A cut character or line waits for the rest."""
        # What was held is not decoded again, and a long line does not make this quadratic: it is bounded.
        text = self._held + self._decoder.decode(data, final)
        whole, newline, self._held = text.rpartition("\n")
        lines = [self._line(line) for line in whole.split("\n")] if newline else []
        shown = "".join(f"{line}\n" for line in lines)
        self._held = _last_written(self._held)
        if final:
            shown, self._held = shown + self._line(self._held), ""
        elif len(self._held) > MOST_HELD_CHARS:
            shown += self._part()
        return shown

    @property
    def unfinished(self) -> str:
        """The line that is not complete yet, as far as it goes: what a progress bar shows now."""
        return self._line(_UNFINISHED.sub("", self._held))

    def _part(self) -> str:
        # Not in the middle of a sequence: its second half would be text.
        cut = _UNFINISHED.search(self._held)
        at = cut.start() if cut and cut.start() else len(self._held)
        part, self._held = self._held[:at], self._held[at:]
        return self._line(part)

    def _line(self, line: str) -> str:
        return neutral(_last_written(line).removesuffix("\r"), colours=self._colours)


def _last_written(line: str) -> str:
    """Keep what stood in the line last: a carriage return writes over it."""
    if "\r" not in line:
        return line
    # One at the end may be half of a line end, or announce the next drawing, which is not there yet.
    ends = "\r" if line.endswith("\r") else ""
    parts = [part for part in line.split("\r") if part]
    return (parts[-1] if parts else "") + ends


def neutral(text: str, *, colours: bool) -> str:
    """Take away what would steer a terminal; colours stay where they are wanted, and end with the line."""
    if text.isprintable():
        return text
    parts, at, coloured = [], 0, False
    for found in _SEQUENCE.finditer(text):
        parts.append(text[at : found.start()].translate(_CONTROLS))
        if colours and _COLOUR.fullmatch(found[0]):
            parts.append(found[0])
            coloured = found[0] not in (_RESET, "\x1b[m")
        at = found.end()
    parts.append(text[at:].translate(_CONTROLS))
    return "".join(parts) + (_RESET if coloured else "")
