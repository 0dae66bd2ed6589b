"""An attempt's log: every byte as it came, at the offset where it came, and bounded.

Offsets never change, so whoever follows the log resumes by offset for ever. The bound is kept by giving the middle
back to the file system (a hole): the first half of the limit stays, and the newest part. A disk that is full
does not stop the job (bghira/SimpleTuner#2353): what could not be written becomes a gap too, the offsets go
on, and writing resumes when there is space. Gaps stand in `log.gaps` as [from, to, why], and a line of text
stands where each begins. Where holes cannot be made, writing pauses at the limit and the last part is kept in
memory until the end. Standard library only: the launcher imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from . import files
from .verdict import TAIL_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BLOCK = 4096
_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02
_libc = ctypes.CDLL(None, use_errno=True)


class JobLog:
    """The one writer of a log."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = max(limit_bytes, 16 * _BLOCK)
        self._file = os.open(f"{folder}/{files.LOG}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = 0
        #: What was lost: [from, to, why]; the two numbers are offsets in the log.
        self.gaps: list[list[Any]] = []
        self._can_punch = True
        self._tail = bytearray()

    @property
    def tail(self) -> bytes:
        """The last bytes, whether or not they could be written."""
        return bytes(self._tail)

    def write(self, data: bytes) -> None:
        """Take what the job has said. Never raises."""
        self._tail += data
        del self._tail[:-TAIL_BYTES]
        offset = self.size
        self.size += len(data)
        if not self._can_punch and self.size > self._limit:
            self._lose(offset, self.size, "limit")
            return
        done = 0
        while done < len(data):
            try:
                done += os.pwrite(self._file, data[done:], offset + done)
            except OSError as error:
                self._lose(offset + done, self.size, os.strerror(error.errno or 0))
                return
        if self.size > self._limit:
            self._bound()

    def close(self) -> None:
        """Write what is still owed: the last part, the true size, the gaps."""
        with contextlib.suppress(OSError):
            if self.gaps and not self._can_punch and self.gaps[-1][1] == self.size:
                begin = max(self.size - len(self._tail), self.gaps[-1][0])
                os.pwrite(self._file, self._tail[begin - self.size :], begin)
                self.gaps[-1][1] = begin
            os.ftruncate(self._file, self.size)
        self._note()
        os.close(self._file)

    def _bound(self) -> None:
        """Give back the middle, in steps of a quarter of the limit, so that head, tail and step fit in the limit."""
        head, quarter = self._limit // 2 // _BLOCK * _BLOCK, self._limit // 4 // _BLOCK * _BLOCK
        hole = next((gap for gap in self.gaps if gap[2] == "limit"), None)
        begin = hole[1] if hole else head
        end = (self.size - quarter) // _BLOCK * _BLOCK
        if end - begin < quarter:
            return
        if _libc.fallocate(self._file, _KEEP_SIZE_PUNCH_HOLE, ctypes.c_longlong(begin), ctypes.c_longlong(end - begin)):
            self._can_punch = False
            return
        if hole:
            hole[1] = end
        else:
            self.gaps.append([head, end, "limit"])
        # What a full disk had lost in the part that is gone now needs no word of its own any more.
        self.gaps = sorted(gap for gap in self.gaps if gap[2] == "limit" or gap[1] <= head or gap[0] >= end)
        self._note()

    def _lose(self, begin: int, end: int, why: str) -> None:
        if self.gaps and self.gaps[-1][1] == begin and self.gaps[-1][2] == why:
            self.gaps[-1][1] = end
        else:
            self.gaps.append([begin, end, why])
        with contextlib.suppress(OSError):  # it speaks, so it does not hang: that is read from the time of the file
            os.utime(self._file)

    def _note(self) -> None:
        """Tell of the gaps, in the log and beside it; on a full disk the outcome tells of them."""
        with contextlib.suppress(OSError):
            for begin, end, why in self.gaps:
                text = f"\n[jupyter_gpu: {end - begin} bytes of output are left out here ({why})]\n".encode()
                if len(text) <= end - begin:
                    os.pwrite(self._file, text, begin)
            if self.gaps:
                files.write_whole(f"{self._folder}/{files.GAPS}", {"gaps": self.gaps})
