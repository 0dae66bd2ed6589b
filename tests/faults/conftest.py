"""Each test of this folder breaks something on purpose: its marker says so, and no process outlives it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.house import House, Zygote


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them all."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.faults)


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The one process that forks brokers."""
    it = Zygote()
    yield it
    it.close()


@pytest.fixture
def make_house(zygote: Zygote) -> Iterator[Callable[..., House]]:
    """Make as many houses as a test needs; all are torn down."""
    houses: list[House] = []

    def make(**settings: Any) -> House:
        houses.append(House(zygote, **settings))
        return houses[-1]

    yield make
    for house in houses:
        house.close()


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    """One simulated device and quick rules."""
    return make_house()
