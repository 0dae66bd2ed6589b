"""What every test of kernels may rely on: nobody else takes the ports that a kernel was told."""

from collections.abc import Iterator

import pytest
from jupyter_client.connect import LocalPortCache

from tests.ports import free_port


@pytest.fixture(scope="session", autouse=True)
def _ports_of_this_worker() -> Iterator[None]:
    """A kernel takes its ports a second after they were seen to be free."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalPortCache, "find_available_port", lambda _cache, ip: free_port(ip))
        yield
