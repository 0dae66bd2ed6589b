"""The ports of a kernel that starts anew: Jupyter keeps them, so one that is taken meanwhile would fail each restart.

And what counts a kernel's activity listens where the kernel was. Where its ports have changed nothing is heard of it
any more, so it would seem idle while it computes (jupyter-server/jupyter_server#481).
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from jupyter_client.connect import LocalPortCache, port_names


def of(manager: Any) -> tuple[int, ...]:
    """The ports of a kernel; none where it has other ways."""
    if manager is None or getattr(manager, "transport", None) != "tcp":
        return ()
    return tuple(getattr(manager, name) for name in port_names)


def leave_taken(provisioner: Any) -> bool:
    """Let a kernel whose process is gone have other ports, if somebody else listens at one of its own."""
    manager = provisioner.parent
    ports = of(manager)
    if not any(_is_taken(manager.ip, port) for port in ports):
        return False
    for name, port in zip(port_names, ports, strict=True):
        LocalPortCache.instance().return_port(port)
        setattr(manager, name, 0)
    manager.cleanup_connection_file()  # it is written anew, with the ports that are chosen next
    provisioner.ports_cached = False
    return True


def watch_anew(manager: Any, kernel_id: str) -> None:
    """Let a Jupyter server listen where its kernel is now."""
    kernels: Any = getattr(manager, "parent", None)
    if hasattr(kernels, "start_watching_activity") and kernel_id in kernels:
        kernels.stop_watching_activity(kernel_id)
        kernels.start_watching_activity(kernel_id)


def _is_taken(ip: str, port: int) -> bool:
    if port <= 0:
        return False
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a kernel does: one of before may linger
        try:
            probe.bind((ip, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
