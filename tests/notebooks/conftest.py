"""No attempt outlives its test."""

from collections.abc import Iterator

import pytest

from tests.notebooks.ground import STARTED


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()
