"""What NVML must be able to tell before anything else in this folder means something."""

import pynvml
import pytest


@pytest.fixture(autouse=True)
def _nvml():
    pynvml.nvmlInit()
    yield
    pynvml.nvmlShutdown()


def test_a_card_says_who_it_is_and_how_much_it_holds():
    """Every card has a UUID of its own, a name and memory: what a lease and a fit are made of."""
    cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    uuids = [pynvml.nvmlDeviceGetUUID(card) for card in cards]

    assert len(set(uuids)) == len(cards) > 0
    assert all(uuid.startswith("GPU-") for uuid in uuids)
    assert all(pynvml.nvmlDeviceGetName(card) for card in cards)
    assert all(pynvml.nvmlDeviceGetMemoryInfo(card).total > 0 for card in cards)
