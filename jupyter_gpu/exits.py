"""How a process ended, in words, and what proves that it was killed for want of host memory.

Of attempts and of kernels alike. Standard library only: the launcher imports it.
"""

from __future__ import annotations

#: Numbers of signals; from 128 on shells count them into exit codes.
_SIGNALS = range(1, 65)
_SEGMENTATION_FAULT = 11


def describe(exit_code: int | None, signal_number: int | None) -> str:
    """Tell a status for people, an exit code and a signal never mixed up."""
    if signal_number == _SEGMENTATION_FAULT:
        return f"segmentation fault (signal {signal_number})"
    if signal_number is not None:
        return f"killed by signal {signal_number}"
    text = f"exit code {exit_code}"
    if exit_code is not None and exit_code - 128 in _SIGNALS:
        text += f" (looks like signal {exit_code - 128})"
    return text


def own_cgroups() -> list[tuple[str, str]]:
    """The cgroups that we are in: ("2", folder), and of version 1 the memory and the devices controller's."""
    own = {}
    for line in _read("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        own["2" if number == "0" else controllers] = path
    found = []
    for line in _read("/proc/self/mountinfo").splitlines():
        mount, _, kind = line.partition(" - ")
        root, point = mount.split()[3:5]
        what, options = kind.split()[0], kind.split()[-1].split(",")
        kinds = [name for name in ("memory", "devices") if what == "cgroup" and name in options]
        key = "2" if what == "cgroup2" else "".join(kinds)
        if key in own and (own[key] + "/").startswith(root.rstrip("/") + "/"):
            below = own[key][len(root.rstrip("/")) :].strip("/")
            found.append((key, f"{point}/{below}".rstrip("/")))
    return found


def memory_kills(cgroups: list[str]) -> int:
    """How many processes the kernel has killed in these cgroups for want of host memory."""
    most = 0
    for folder in cgroups:
        for name in ("memory.events", "memory.oom_control"):
            for line in _read(f"{folder}/{name}").splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill" and value.isdecimal():
                    most = max(most, int(value))
    return most


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - pathlib is a megabyte
            return file.read()
    except OSError:
        return ""
