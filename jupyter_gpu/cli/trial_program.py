"""What `jupyter gpu doctor --trial` runs on one GPU: it computes for some seconds, checks, and says how fast that was.

A process of its own, run by its path with the caller's Python and pinned to the GPU. Standard library only, beside the
library that it tries. Its last line is a JSON document. Values are small integers, so that each result is exact in
whatever order and with whatever precision a card adds them up.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

#: Sides of the matrices; the largest that takes a small part of what is free.
_SIDES = (8192, 4096, 2048, 1024)
_BYTES_PER_ENTRY = 40
_PART_OF_FREE = 4
#: So many entries of a product are computed here too.
_SAMPLES = 48

_BLOCK_BYTES = 1 << 20
_MOST_BYTES = 1 << 30
_CHUNK_BYTES = 16 << 20
_COPIES_PER_STEP = 8
_WORD_BYTES = 4
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_LINE = 300


class UnusableError(Exception):
    """This library cannot use a GPU here, which says nothing about the GPU."""


class Work(NamedTuple):
    """What is repeated while the time lasts."""

    engine: str
    card: str
    #: What one step comes to; `unit` is so much a second.
    per_step: float
    unit: str
    #: Does one step and waits for its end.
    step: Callable[[], None]
    #: (values checked, values that were wrong).
    check: Callable[[], tuple[int, int]]


def main(argv: Sequence[str]) -> int:
    """Try the engines in turn until one can use a GPU, and say what was found."""
    names, seconds = argv[1].split(","), float(argv[2])
    _end_with(int(argv[3]) if len(argv) > 3 else os.getppid())  # noqa: PLR2004
    skipped: dict[str, str] = {}
    answer: dict[str, Any] = {}
    for name in names:
        try:
            answer = measured(_ENGINES[name](), seconds)
            break
        except UnusableError as why:
            skipped[name] = str(why)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            if "no kernel image" in str(error):
                skipped[name] = "it has no code for this GPU"
                continue
            answer = {"engine": name, "error": f"{type(error).__name__}: {error}".splitlines()[0][:_LINE]}
            break
    answer = answer or {"error": "nothing here can compute on a GPU", "has_no_engine": True}
    sys.stdout.write(json.dumps(answer | {"skipped": skipped}) + "\n")
    return 1 if "error" in answer else 0


def _end_with(parent: int) -> None:
    """Be killed when who waits for us ends, whatever of: the reservation was its own, and others have the GPU then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended before we could ask
        sys.exit(1)


def measured(work: Work, seconds: float) -> dict[str, Any]:
    """Repeat it while the time lasts; then look whether it was right."""
    work.step()  # what is loaded and compiled at first is not timed
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        work.step()
        steps += 1
    took = time.perf_counter() - begun
    checked, wrong = work.check()
    return {
        "engine": work.engine,
        "card": work.card,
        "unit": work.unit,
        "speed": round(work.per_step * steps / took, 3),
        "seconds": round(took, 2),
        "steps": steps,
        "checked": checked,
        "wrong": wrong,
    }


# -- matrices


def _left(place: int) -> int:
    return place * 7 % 17 - 8


def _right(place: int) -> int:
    return place * 5 % 13 - 6


def side_for(free_bytes: int) -> int:
    """The side of the matrices by what is free."""
    fits = (it for it in _SIDES if it * it * _BYTES_PER_ENTRY * _PART_OF_FREE <= free_bytes)
    return next(fits, _SIDES[-1])


def _products(
    engine: str,
    card: str,
    side: int,
    numbers: Any,
    multiply: Callable[[Any, Any], Any],
    *,
    as_float: Callable[[Any], Any],
    wait: Callable[[Any], None],
) -> Work:
    """Multiply two matrices again and again. `numbers` counts their entries as 32-bit integers, on the GPU."""
    left = as_float((numbers * 7 % 17 - 8).reshape(side, side))
    right = as_float((numbers * 5 % 13 - 6).reshape(side, side))
    products: list[Any] = []

    def step() -> None:
        found = multiply(left, right)
        wait(found)
        products[1:] = [found]
        if len(products) == 1:
            products.append(found)

    def check() -> tuple[int, int]:
        first, last = products
        wrong = int((first != last).sum())
        places = [(at * 7919 % side, at * 104_729 % side) for at in range(_SAMPLES)]
        wrong += sum(int(float(last[row, column]) != _entry(side, row, column)) for row, column in places)
        return side * side + len(places), wrong

    return Work(engine, card, 2 * side**3 / 1e12, "TFLOP/s", step, check)


def _entry(side: int, row: int, column: int) -> int:
    return sum(_left(row * side + at) * _right(at * side + column) for at in range(side))


def _torch() -> Work:
    torch = _module("torch")
    if not torch.cuda.is_available():
        raise UnusableError("it is built without CUDA, or finds no GPU")
    side = side_for(torch.cuda.mem_get_info()[0])
    return _products(
        f"PyTorch {torch.__version__}",
        torch.cuda.get_device_name(0),
        side,
        torch.arange(side * side, dtype=torch.int32, device="cuda"),
        torch.matmul,
        as_float=lambda it: it.to(torch.float32),
        wait=lambda _: torch.cuda.synchronize(),
    )


def _jax() -> Work:
    jax = _module("jax")
    numpy = _module("jax.numpy")
    try:
        gpus = [it for it in jax.devices() if it.platform in ("gpu", "cuda")]
    except RuntimeError as error:
        raise UnusableError(str(error)) from None
    if not gpus:
        raise UnusableError("it is built without CUDA, or finds no GPU")
    stats = gpus[0].memory_stats() or {}
    side = side_for(stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0))
    return _products(
        f"JAX {jax.__version__}",
        str(gpus[0].device_kind),
        side,
        numpy.arange(side * side, dtype=numpy.int32),
        jax.jit(lambda left, right: numpy.matmul(left, right, precision="highest")),
        as_float=lambda it: it.astype(numpy.float32),
        wait=lambda it: it.block_until_ready(),
    )


def _cupy() -> Work:
    cupy = _module("cupy")
    runtime = cupy.cuda.runtime
    try:
        runtime.getDeviceCount()
    except Exception as error:  # noqa: BLE001 - its errors can only be named once it is imported
        raise UnusableError(str(error)) from None
    side = side_for(runtime.memGetInfo()[0])
    name = runtime.getDeviceProperties(0)["name"]
    return _products(
        f"CuPy {cupy.__version__}",
        name.decode() if isinstance(name, bytes) else str(name),
        side,
        cupy.arange(side * side, dtype=cupy.int32),
        cupy.matmul,
        as_float=lambda it: it.astype(cupy.float32),
        wait=lambda _: cupy.cuda.Device().synchronize(),
    )


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a broken install may raise anything
        raise UnusableError(f"it cannot be imported: {error}") from None


# -- memory, by the driver alone


class CudaError(Exception):
    """A call of the driver failed."""


_INT, _SIZE, _POINTER, _ADDRESS = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (ctypes.POINTER(_INT), _INT),
    "cuDeviceGetName": (ctypes.c_char_p, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_POINTER), _INT),
    "cuDevicePrimaryCtxRelease_v2": (_INT,),
    "cuCtxSetCurrent": (_POINTER,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE)),
    "cuMemAlloc_v2": (ctypes.POINTER(_ADDRESS), _SIZE),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemsetD32_v2": (_ADDRESS, ctypes.c_uint, _SIZE),
    "cuMemcpyDtoD_v2": (_ADDRESS, _ADDRESS, _SIZE),
    "cuMemcpyDtoH_v2": (_POINTER, _ADDRESS, _SIZE),
    "cuGetErrorName": (_INT, ctypes.POINTER(ctypes.c_char_p)),
}


class _Driver:
    """libcuda, as far as it is called here."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise UnusableError(f"the driver's libcuda.so.1 cannot be loaded: {error}") from None
        for name, arguments in _CALLS.items():
            getattr(self._library, name).argtypes = arguments

    def __call__(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            said = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(said))
            raise CudaError(f"{name} failed with {(said.value or b'an unknown error').decode()} ({code})")


def _cuda() -> Work:
    call = _Driver()
    call("cuInit", 0)
    device, context, name = _INT(), _POINTER(), ctypes.create_string_buffer(256)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", name, len(name), device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    free, total = _SIZE(), _SIZE()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    size = min(_MOST_BYTES, free.value // 4) // _BLOCK_BYTES * _BLOCK_BYTES
    if not size:
        raise CudaError(f"only {free.value} bytes of its memory are free")
    one, other = _ADDRESS(), _ADDRESS()
    for address in (one, other):
        call("cuMemAlloc_v2", ctypes.byref(address), size)
    for block in range(size // _BLOCK_BYTES):
        place = one.value + block * _BLOCK_BYTES
        call("cuMemsetD32_v2", place, word_of(block), _BLOCK_BYTES // _WORD_BYTES)
    call("cuCtxSynchronize")
    addresses = [one.value, other.value]

    def step() -> None:
        # There and back: what a copy changes stays changed in all that follow.
        for _ in range(_COPIES_PER_STEP):
            call("cuMemcpyDtoD_v2", addresses[1], addresses[0], size)
            addresses.reverse()
        call("cuCtxSynchronize")

    def check() -> tuple[int, int]:
        wrong = sum(_wrong_words(data, at) for at, data in _read(call, addresses[0], size))
        for address in addresses:
            call("cuMemFree_v2", address)
        call("cuDevicePrimaryCtxRelease_v2", device)
        return size // _WORD_BYTES, wrong

    # Each byte is read and written.
    per_step = 2 * size * _COPIES_PER_STEP / 1e9
    return Work("CUDA driver, copies", name.value.decode("utf-8", "replace"), per_step, "GB/s", step, check)


def word_of(block: int) -> int:
    """What each word of a block is set to: all blocks differ, and half of the bits are set."""
    return (block + 1) * 0x9E3779B9 & 0xFFFFFFFF


def _read(call: _Driver, address: int, size: int) -> Iterator[tuple[int, bytes]]:
    buffer = ctypes.create_string_buffer(_CHUNK_BYTES)
    for at in range(0, size, _CHUNK_BYTES):
        count = min(_CHUNK_BYTES, size - at)
        call("cuMemcpyDtoH_v2", buffer, address + at, count)
        yield at, buffer.raw[:count]


def _wrong_words(data: bytes, at: int) -> int:
    blocks = range(at // _BLOCK_BYTES, (at + len(data)) // _BLOCK_BYTES)
    meant = b"".join(
        word_of(block).to_bytes(_WORD_BYTES, sys.byteorder) * (_BLOCK_BYTES // _WORD_BYTES) for block in blocks
    )
    if data == meant:
        return 0
    words = range(0, len(data), _WORD_BYTES)
    return sum(data[it : it + _WORD_BYTES] != meant[it : it + _WORD_BYTES] for it in words)


_ENGINES: dict[str, Callable[[], Work]] = {"torch": _torch, "jax": _jax, "cupy": _cupy, "cuda": _cuda}


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv))
