"""Device rules for a cgroup of version 2: a program of a few instructions that the kernel asks at each open.

The program lives with its cgroup: it holds for every process inside and for all below, and goes when the cgroup is
removed, whoever is alive then. Only root may attach one. By bpf(2) itself: a library for it would not be light.
Standard library only: the launcher imports it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_PROG_TYPE_CGROUP_DEVICE = 15
_ATTACH_CGROUP_DEVICE = 6
#: Beside the programs of others (systemd's, say), all of which must allow.
_ALLOW_MULTI = 2
_NAME = b"jupyter_gpu"
_libc = ctypes.CDLL(None, use_errno=True)

_LOAD, _AND, _JUMP, _JUMP_UNLESS, _SET, _EXIT = 0x61, 0x54, 0x05, 0x55, 0xB7, 0x95
#: What a device is, to the kernel's question.
BLOCK, CHARACTER = 1, 2


def program(nodes: list[tuple[int, int, int]], whole: list[tuple[int, list[int]]]) -> bytes:
    """Write the instructions that refuse these (kind, major, minor) and allow all else.

    Of `whole` (major, minors) all character devices but those minors are refused, also those that come to be later.
    """
    steps = [
        (_LOAD, 0x12, 0, 0),  # r2 = what kind of access to what kind of device
        (_AND, 0x02, 0, 0xFFFF),  # only the latter
        (_LOAD, 0x13, 4, 0),  # r3 = major
        (_LOAD, 0x14, 8, 0),  # r4 = minor
    ]
    allow = len(steps) + 4 * len(nodes) + sum(3 + 2 * len(minors) for _, minors in whole)
    refuse = allow + 2
    for kind, major, minor in nodes:
        steps += [(_JUMP_UNLESS, 2, 3, kind), (_JUMP_UNLESS, 3, 2, major), (_JUMP_UNLESS, 4, 1, minor)]
        steps += [(_JUMP, 0, refuse - len(steps) - 1, 0)]
    for major, minors in whole:
        after = len(steps) + 3 + 2 * len(minors)
        steps += [(_JUMP_UNLESS, 2, after - len(steps) - 1, CHARACTER)]
        steps += [(_JUMP_UNLESS, 3, after - len(steps) - 1, major)]
        for minor in minors:
            steps += [(_JUMP_UNLESS, 4, 1, minor)]
            steps += [(_JUMP, 0, allow - len(steps) - 1, 0)]
        steps += [(_JUMP, 0, refuse - len(steps) - 1, 0)]
    steps += [(_SET, 0, 0, 1), (_EXIT, 0, 0, 0)]
    if nodes or whole:  # the kernel takes no program of which a part is never reached
        steps += [(_SET, 0, 0, 0), (_EXIT, 0, 0, 0)]
    return b"".join(struct.pack("=BBhi", *step) for step in steps)


def load(nodes: list[tuple[int, int, int]], whole: list[tuple[int, list[int]]]) -> int:
    """Give the program to the kernel; an fd of it. OSError where the kernel will not have it."""
    raw = program(nodes, whole)
    code, licence = ctypes.create_string_buffer(raw, len(raw)), ctypes.create_string_buffer(b"BSD")
    asked = struct.pack(
        "=IIQQIIQII16sII", _PROG_TYPE_CGROUP_DEVICE, len(raw) // 8, ctypes.addressof(code), ctypes.addressof(licence),
        0, 0, 0, 0, 0, _NAME, 0, _ATTACH_CGROUP_DEVICE,
    )  # fmt: skip
    return _bpf(_PROG_LOAD, asked)


def deny(folder: str, nodes: list[tuple[int, int, int]], whole: list[tuple[int, list[int]]]) -> None:
    """Refuse these nodes to whatever is in the cgroup, now or later. OSError where that cannot be done."""
    cgroup = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        loaded = load(nodes, whole)
        try:
            _bpf(_PROG_ATTACH, struct.pack("=IIII", cgroup, loaded, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI))
        finally:
            os.close(loaded)  # the cgroup holds it now
    finally:
        os.close(cgroup)


def _bpf(command: int, asked: bytes) -> int:
    number = _CALL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    room = ctypes.create_string_buffer(asked, len(asked))
    answer = _libc.syscall(ctypes.c_long(number), ctypes.c_int(command), room, ctypes.c_uint(len(asked)))
    if answer < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return int(answer)
