"""Ports that a test names before whoever is to listen there binds them, a second later or after a restart.

They lie below those that the system gives to whoever asks for any port, or connects to somewhere: it would give away
one that was seen to be free. And no two workers choose from the same.
"""

import itertools
import os
import random
import socket

_FIRST, _EACH, _WORKERS = 12_000, 2_000, 10


def _of_this_worker() -> list[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _FIRST + worker % _WORKERS * _EACH
    # Not always the same: somebody else may run these tests on this machine.
    begin = random.randrange(_EACH)
    return [first + (begin + step) % _EACH for step in range(_EACH)]


_ports = itertools.cycle(_of_this_worker())


def free_port(ip: str = "127.0.0.1") -> int:
    """A port that nobody listens on now, and that nobody else is told of."""
    for port in itertools.islice(_ports, _EACH):
        with socket.socket() as probe:
            try:
                probe.bind((ip, port))
            except OSError:
                continue
            return port
    raise OSError("no port of this worker is free")
