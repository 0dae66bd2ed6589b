"""Hears out a short program: what it writes, up to a bound, and no longer than a deadline.

Whoever runs a program of somebody else's must not keep all that it writes: a gigabyte of nothing is one line of shell.
Of each pipe the first and the last part are kept and what stood between them is let go; one that never stops is not
heard out. Standard library only: the engines' light processes use it too.
"""

from __future__ import annotations

import os
import selectors
import time
from typing import cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

    Pipes = tuple[IO[bytes] | None, IO[bytes] | None, IO[bytes] | None]

#: So much is kept of each pipe.
KEPT_BYTES = 1 << 20
#: Who writes more than this was not meant to be heard.
MOST_BYTES = 64 << 20
_PART_BYTES = 1 << 16


class Heard:
    """One pipe's words: their beginning and their end."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._half = max(1, kept_bytes // 2)
        self._first, self._last = bytearray(), bytearray()
        self.total = 0

    def take(self, part: bytes) -> None:
        """Keep of it what is to be kept."""
        self.total += len(part)
        room = self._half - len(self._first)
        self._first += part[:room]
        self._last += part[max(0, room) :]
        if len(self._last) > 2 * self._half:
            del self._last[: -self._half]

    def whole(self) -> bytes:
        """What was kept, with a line where something is left out."""
        left_out = self.total - len(self._first) - min(len(self._last), self._half)
        if left_out <= 0:
            return bytes(self._first + self._last)
        return bytes(self._first) + b"\n... %d bytes left out ...\n" % left_out + bytes(self._last[-self._half :])


def hear_out(pipes: Pipes, text: bytes, deadline: float, kept_bytes: int = KEPT_BYTES) -> tuple[bytes, bytes, str]:
    """Give a process its input and take what it writes; the last says why it was not heard out, empty where it was.

    Its standard input, output and errors are closed then; whether it has ended is another question.
    """
    stdin, stdout, stderr = pipes
    heard = {it: Heard(kept_bytes) for it in (stdout, stderr) if it is not None}
    why = ""
    with selectors.DefaultSelector() as open_ones:
        for it in heard:
            open_ones.register(it, selectors.EVENT_READ)
        if stdin is not None:
            os.set_blocking(stdin.fileno(), False)
            open_ones.register(stdin, selectors.EVENT_WRITE)
        rest = memoryview(text)
        while open_ones.get_map() and not why:
            left = deadline - time.monotonic()
            if left <= 0:
                why = "did not end in time"
            for key, _ in open_ones.select(max(0.0, left)):
                pipe = cast("IO[bytes]", key.fileobj)
                if pipe is stdin:
                    rest = rest[_give(pipe, rest) :]
                    is_over = not rest
                else:
                    part = os.read(pipe.fileno(), _PART_BYTES)
                    heard[pipe].take(part)
                    is_over = not part
                    if heard[pipe].total > MOST_BYTES:
                        why = f"wrote more than {MOST_BYTES >> 20} MiB"
                if is_over:
                    open_ones.unregister(pipe)
                    pipe.close()
    for each in (stdin, *heard):
        if each is not None:
            each.close()
    output, errors = (b"" if it is None else heard[it].whole() for it in (stdout, stderr))
    return output, errors, why


def _give(pipe: IO[bytes], rest: memoryview) -> int:
    """Write some of it; all counts as written to who reads no more."""
    try:
        return os.write(pipe.fileno(), rest[:_PART_BYTES])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(rest)
