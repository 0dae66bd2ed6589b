"""Landlock: a process gives up rights to files, for itself and all that it will ever start, without being root.

Landlock knows only what is allowed, and allows whole folders. So all is allowed that is there now, save the way down to
the nodes that are to be withheld: on that way each entry by itself. What is made later right in a folder on the way
(that is "/", "/dev" and "/dev/nvidia-caps") cannot be opened, which for a device that is plugged in later, or a card
that is split anew, is as it should be; /dev/shm, /dev/pts and the like are folders beside the way. Only opening for
reading and writing is governed; and moving files between folders, which Landlock forbids unless it is asked, is
allowed. What it brings with it cannot be helped: no mounts, so no containers of the user's own; no looking into
processes outside; and for who is not root no setuid programs like sudo. Standard library only: the launcher imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _REFER = 1 << 1, 1 << 2, 1 << 13
_OF_A_FILE = _WRITE_FILE | _READ_FILE
_OF_A_FOLDER = _OF_A_FILE | _REFER
_PR_SET_NO_NEW_PRIVS = 38
#: The first that can be asked to let files be moved between folders.
_VERSION = 2
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Say why this kernel cannot do it; empty where it can."""
    try:
        version = _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    except OSError as error:
        off = error.errno == errno.EOPNOTSUPP
        return "it is switched off at the start of the kernel" if off else f"this kernel has none ({error.strerror})"
    return "" if version >= _VERSION else "this kernel's is too old to let files be moved between folders"


def withhold(nodes: list[str], folders: list[str]) -> None:
    """Give up these nodes, and what is made later in these folders, for good. OSError where that cannot be done."""
    closed = {os.path.realpath(node) for node in nodes}
    way = {"/"}
    for node in [*closed, *(os.path.join(os.path.realpath(folder), "*") for folder in folders)]:  # noqa: PTH118
        while (node := os.path.dirname(node)) not in way:  # noqa: PTH120
            way.add(node)
    asked = ctypes.create_string_buffer(struct.pack("=Q", _OF_A_FOLDER), 8)
    rules = _call(_CREATE_RULESET, asked, ctypes.c_size_t(8), ctypes.c_uint32(0))
    try:
        for folder in way:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    # What a link leads to is allowed, or not, where it lies.
                    if entry.path not in closed and entry.path not in way and not entry.is_symlink():
                        _allow(rules, entry.path, is_folder=entry.is_dir(follow_symlinks=False))
        _restrict(rules)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, *, is_folder: bool) -> None:
    with contextlib.suppress(OSError):  # it has just gone, or is of a kind that cannot be opened anyway
        beneath = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            rule = struct.pack("=Qi", _OF_A_FOLDER if is_folder else _OF_A_FILE, beneath)
            room = ctypes.create_string_buffer(rule, len(rule))
            _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_RULE_PATH_BENEATH), room, ctypes.c_uint32(0))
        finally:
            os.close(beneath)


def _restrict(rules: int) -> None:
    try:
        _call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
    except PermissionError:  # who is not root must give up setuid programs first
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))


def _call(number: int, *arguments: object) -> int:
    answer = _libc.syscall(ctypes.c_long(number), *arguments)
    if answer < 0:
        raise OSError(found := ctypes.get_errno(), os.strerror(found))
    return int(answer)
