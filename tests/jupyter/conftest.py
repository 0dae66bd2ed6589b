"""What every test of kernels may rely on: nobody else takes the ports that a kernel was told."""

import contextlib
import itertools
import os
import random
import socket
from collections.abc import Iterator

import pytest
from jupyter_client.connect import LocalPortCache

# Below those that the system gives to whoever asks for any port, and enough for a worker's kernels.
_FIRST, _EACH, _WORKERS = 12_000, 2_000, 10


@pytest.fixture(scope="session", autouse=True)
def _ports_of_this_worker() -> Iterator[None]:
    """A kernel takes its ports a second after they were seen to be free: so no two workers choose from the same."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _FIRST + worker % _WORKERS * _EACH
    # Not always the same: somebody else may run these tests on this machine.
    begin = random.randrange(_EACH)
    ports = itertools.cycle([first + (begin + step) % _EACH for step in range(_EACH)])

    def find_available_port(_cache: LocalPortCache, ip: str) -> int:
        for port in itertools.islice(ports, _EACH):
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind((ip, port))
                return port
        raise OSError("no port of this worker is free")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalPortCache, "find_available_port", find_available_port)
        yield
