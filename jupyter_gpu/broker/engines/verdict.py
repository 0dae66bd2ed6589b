"""What an ended attempt died of, from evidence: exit status, the log's end, the cgroup's own counter.

An exit code of 137 proves nothing (cortexlabs/cortex#1806): a program may return it itself. "Host out of
memory" is said only when the kernel counted a kill in the attempt's cgroup; "GPU out of memory", "device lost" and
"disk full" only when a failed attempt's last lines say so in the words of a framework. Where several are found the
last one counts. Everything else is plain failed, with the number told as what it is, and with a sentence on what to do
where the words are known. Pure; the launcher imports it.
"""

from __future__ import annotations

import re
import signal

from ...exits import describe
from . import shortage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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


# What only the hardware does. A failed launch, an illegal address or a failed assertion is the program's own doing,
# and so are Xids like 13 and 31.
_HARDWARE = re.compile(
    rb"""
    uncorrectable\ (?:ECC|NVLink)\ error\ (?:encountered|detected)               # the runtime: 214, 220
    | (?:CUDA_ERROR|cudaError)_?(?:ECC_?|NVLINK_?)UNCORRECTABLE
    | \bcu\w+\ returned\ error\ (?:214|220)\b                                   # compilers' runtimes
    | GPU\ (?:has\ )?fallen\ off\ the\ bus | GPU\ is\ lost
    | \bXid\b[^\n]{0,40}?:\ (?:48|74|79|94|95|119|120|140)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BUSY = re.compile(
    rb"CUDA-capable device(?:\(s\)|s)? (?:is/are|is|are) busy or unavailable"
    rb"|CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDevicesUnavailable",
    re.IGNORECASE,
)
# The runner of notebooks says it as its last words.
_KERNEL_GONE = re.compile(rb"^The kernel (?:died|ended) \([^\n]* in cell \d+ of \d+", re.MULTILINE)
_NO_KERNEL = re.compile(rb"^The kernel '[^\n]*' did not start", re.MULTILINE)
_READ_ONLY = re.compile(rb"Read-only file system|\[Errno 30\]|os error 30\b|\bEROFS\b", re.IGNORECASE)
_FORKED = re.compile(rb"Cannot re-initialize CUDA in forked subprocess")

# Colours and the like, also those that are titles and links.
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]")
#: Signals that nobody sends to himself.
_OF_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
EXIT_REQUEUE = 75
_QUOTE = "; the log ends with: "

_ENDS = (("gpu-oom", _GPU_OOM), ("disk-full", _DISK_FULL), ("device-lost", _HARDWARE))
_HINTS = {
    _BUSY: "the GPU let no further process in, and not for want of memory: its compute mode is prohibited, or exclusive"
    " and another process holds it (`nvidia-smi -q -d COMPUTE` names the mode)",
    _FORKED: "it used CUDA before it forked, so another run ends the same way: touch CUDA only in the workers, or start"
    " them with the spawn method",
    _READ_ONLY: "a disk that it writes to is read-only, so another run ends the same way: let it write elsewhere",
    _KERNEL_GONE: "the kernel of the notebook was gone while cells were left",
    _NO_KERNEL: "no cell of the notebook has run",
}


def judge(exit_code: int | None, signal_number: int | None, tail: bytes, host_oom_kills: int) -> tuple[str, str]:
    """Name the end of an attempt whose main process has run, as the model knows it, and say what that rests on."""
    how = describe(exit_code, signal_number)
    if exit_code == 0:
        return "succeeded", how
    if host_oom_kills:
        processes = "1 process" if host_oom_kills == 1 else f"{host_oom_kills} processes"
        return "host-oom", f"{how}; the kernel killed {processes} of it for want of host memory"
    tail = tail[-TAIL_BYTES:]
    found = {end: match for end, pattern in _ENDS if (match := _last(pattern, tail))}
    if "disk-full" in found and _NO_DISK.search(_line(tail, found["disk-full"]).encode()):
        del found["disk-full"]
    if not found:
        return "failed", how + (_hint(tail) or _last_words(exit_code, signal_number, tail))
    end = max(found, key=lambda each: found[each].start())
    more = shortage.describe(_whole_line(tail, found[end])) if end == "gpu-oom" else ""
    return end, f"{how}{more}{_QUOTE}{_line(tail, found[end])}"


def with_hint(detail: str, hint: str) -> str:
    """Say something more, before the log's own words."""
    how, quote, words = detail.partition(_QUOTE)
    return f"{how}; {hint}{quote}{words}"


def after_notice(exit_code: int | None, signal_number: int | None, detail: str, saved: dict[str, Any]) -> str:
    """What is said in the place of `detail` of one that has left since it was told to: that is no failure."""
    if exit_code == EXIT_REQUEUE:
        how = "it yielded"
    elif exit_code is not None:
        how = "it left after its notice"
    else:
        how = "it was ended by force" if signal_number == signal.SIGKILL else "its notice ended it"
    if saved.get("progressed"):
        how += f", saved up to step {saved['to_step']}"
    elif saved.get("from_step") is not None:
        how += f", with nothing newer than step {saved['from_step']}"
    return f"{how} ({detail})"


def _hint(tail: bytes) -> str:
    for pattern, what in _HINTS.items():
        match = _last(pattern, tail)
        if match:
            return f"; {what}{_QUOTE}{_line(tail, match)}"
    return ""


def _last_words(exit_code: int | None, signal_number: int | None, tail: bytes) -> str:
    """The last line of the log, mostly what Python says of an exception; whom others ended, or who yields, fell silent.

    Without what colours it or goes back in the line.
    """
    if exit_code == EXIT_REQUEUE or signal_number in _OF_OTHERS:
        return ""
    lines = (_ESCAPES.sub(b"", line).strip() for line in re.split(rb"[\r\n]", tail)[::-1])
    last = next(filter(None, lines), b"").decode("utf-8", "replace")
    return f"{_QUOTE}{last[:300]}" if last else ""


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


def _whole_line(text: bytes, match: re.Match[bytes]) -> str:
    """The line from what was found on: the sizes stand behind it, however long it is."""
    end = text.find(b"\n", match.end())
    return text[match.start() : end if end >= 0 else len(text)].decode("utf-8", "replace")
