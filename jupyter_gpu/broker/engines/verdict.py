"""What an ended attempt died of, from evidence: exit status, the log's end, the cgroup's own counter.

An exit code of 137 proves nothing (cortexlabs/cortex#1806): a program may return it itself. "Host out of
memory" is said only when the kernel counted a kill in the attempt's cgroup; "GPU out of memory" and "disk
full" only when a failed attempt's last lines say so in the words of a framework. Where both are found the later
one counts. Everything else is plain failed, with the number told as what it is. Pure; the launcher imports it.
"""

from __future__ import annotations

import re
import signal

#: How much of the log's end is read. An out-of-memory error that was caught and survived lies further up.
TAIL_BYTES = 16 * 1024

_GPU_OOM = re.compile(
    rb"""
    CUDA\ out\ of\ memory | HIP\ out\ of\ memory | XPU\ out\ of\ memory        # PyTorch
    | torch\.(?:cuda\.)?OutOfMemoryError
    | OOM\ when\ allocating\ tensor(?![^\n]*device:CPU)                         # TensorFlow, Keras
    | failed\ to\ allocate\ memory\b(?=[^\n]*\bGPU)
    | RESOURCE_EXHAUSTED:\ (?:Out\ of\ memory|Failed\ to\ allocate)             # JAX, XLA
    | cupy(?:\.cuda|_backends)?[\w.]*\.OutOfMemoryError                         # CuPy
    | Out\ of\ memory\ error\ on\ GPU                                           # Paddle
    | cudaMalloc(?:Async)?\ (?:retry\ )?failed:\ out\ of\ memory                # MXNet, llama.cpp
    | CUDA_ERROR_OUT_OF_MEMORY | cudaErrorMemoryAllocation                      # CUDA itself, Numba
    | CUDA\ (?:runtime\ )?error[^\n]{0,40}out\ of\ memory
    | CU(?:BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED
    """,
    re.VERBOSE | re.IGNORECASE,
)
_DISK_FULL = re.compile(
    rb"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]|os error (?:28|122)\b|\b(?:ENOSPC|EDQUOT)\b",
    re.IGNORECASE,
)
# The same error number, another shortage: watches are counted, not stored.
_NO_DISK = re.compile(rb"inotify|watch(?:es|ers)?\b", re.IGNORECASE)


def judge(exit_code: int | None, signal_number: int | None, tail: bytes, host_oom_kills: int) -> tuple[str, str]:
    """Name the end of an attempt whose main process has run, as the model knows it, and say what that rests on."""
    how = describe(exit_code, signal_number)
    if exit_code == 0:
        return "succeeded", how
    if host_oom_kills:
        processes = "1 process" if host_oom_kills == 1 else f"{host_oom_kills} processes"
        return "host-oom", f"{how}; the kernel killed {processes} of it for want of host memory"
    tail = tail[-TAIL_BYTES:]
    gpu, disk = _last(_GPU_OOM, tail), _last(_DISK_FULL, tail)
    if disk and _NO_DISK.search(_line(tail, disk).encode()):
        disk = None
    if gpu and (not disk or gpu.start() > disk.start()):
        return "gpu-oom", f"{how}; the log ends with: {_line(tail, gpu)}"
    if disk:
        return "disk-full", f"{how}; the log ends with: {_line(tail, disk)}"
    return "failed", how


def describe(exit_code: int | None, signal_number: int | None) -> str:
    """Tell a status for people, an exit code and a signal never mixed up."""
    if signal_number == signal.SIGSEGV:
        return f"segmentation fault (signal {signal_number})"
    if signal_number is not None:
        return f"killed by signal {signal_number}"
    text = f"exit code {exit_code}"
    if exit_code is not None and exit_code - 128 in _NUMBERS:
        text += f" (looks like signal {exit_code - 128})"
    return text


_NUMBERS = frozenset(int(number) for number in signal.Signals)


def _last(pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one is what is wanted
        pass
    return last


def _line(text: bytes, match: re.Match[bytes]) -> str:
    """The line that was found, at most 300 characters of it."""
    start = max(text.rfind(b"\n", 0, match.start()), text.rfind(b"\r", 0, match.start())) + 1
    end = text.find(b"\n", match.end())
    line = text[max(start, match.start() - 100) : end if end >= 0 else len(text)]
    return line.decode("utf-8", "replace").strip()[:300]
