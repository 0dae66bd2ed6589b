"""What the numbers of the driver's error reports mean for a card."""

import pytest

from jupyter_gpu.broker.xids import XIDS, XidKind, describe, kind_of


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (XidKind.LOST, [79]),
        (XidKind.FAILED, [62, 64, 95, 119, 120, 140, 143]),
        (XidKind.MEMORY, [48]),
        (XidKind.RESET, [46, 74, 109, 149]),
        (XidKind.REPAIR, [63, 156]),
        (XidKind.CONTAINED, [94]),
        (XidKind.ACTION, [154]),
        (XidKind.WORN, [92]),
        (XidKind.WORK, [13, 31, 43, 45, 68, 69]),
        (None, [0, 1, 14, 9999]),
    ],
)
def test_each_number_is_of_the_kind_that_the_catalogue_makes_it(kind: XidKind | None, numbers: list[int]) -> None:
    """What asks to restart the application leaves the card in use; what asks for a reset does not."""
    assert [kind_of(number) for number in numbers] == [kind] * len(numbers)


def test_every_number_is_told_in_words_and_by_number() -> None:
    """People search for the number, and understand the words; one that is unknown is told too."""
    for number in (*XIDS, 9999):
        assert describe(number).endswith(f"(Xid {number})")
        assert len(describe(number)) > len(f"(Xid {number})") + 5
