"""The ranges are honest: on a real trace the start falls within as often as they claim, neither rarely nor always."""

from __future__ import annotations

import pytest

from tests.sim import foreseen, philly

pytestmark = [pytest.mark.sim, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("first", "count", "nodes", "every"),
    [
        pytest.param(20_000, 4_000, 48, 5, id="some days in October on 48 nodes"),
        pytest.param(45_000, 4_000, 56, 8, id="some days in November on 56 nodes"),
    ],
)
def test_four_of_five_that_wait_start_in_the_range_that_they_are_told(first, count, nodes, every):
    """75 to 90 % of them, on pools and days other than those that the width was chosen on, and not by being vague.

    `make bench ARGS=foresight` has the same of all of the trace.
    """
    found = foreseen.told(philly.pool_jobs()[first : first + count], (8,) * nodes, every)

    for team, (told, part) in foreseen.by_team(found).items():
        print(f"team {team}: {part:.0%} of {told} within")
    assert len(found) > 100
    assert 0.75 <= foreseen.coverage(found) <= 0.90, f"{foreseen.coverage(found):.1%}"
    assert foreseen.median_width(found) < 10
    assert all(it.expected.until_at is not None for it in found), "a busy trace has an end for all"
