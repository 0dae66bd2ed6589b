"""What is told at the next start of why a server was ended: others' doing, while it is news."""

import pytest

from jupyter_gpu.jupyter.last_end import NEWS_SECONDS, notice, told
from jupyter_gpu.model import EndReason
from tests.cli.fake import workload

NOW = 1_796_000_000.0


@pytest.mark.parametrize(
    ("end", "detail", "ended_at", "is_told"),
    [
        (EndReason.RELEASED, "idle since 13:50, and nobody said to keep it", NOW - 60, True),
        (EndReason.EXPIRED, "its time was over", NOW - 60, True),
        (EndReason.CANCELLED, "by olga", NOW - 60, True),
        (EndReason.RELEASED, "", NOW - 60, False),
        (EndReason.RELEASED, "the hub lists the server ana/ no more", NOW - 60, False),
        (EndReason.EXPIRED, "its time was over", NOW - NEWS_SECONDS - 1, False),
        (None, "", None, False),
    ],
)
def test_only_what_others_ended_lately_is_told(end, detail, ended_at, is_told):
    """Who stopped a server themselves knows."""
    text = told(workload(end=end, detail=detail, ended_at=ended_at), NOW)

    assert (detail in text) is is_told if is_told else text == ""


def test_of_a_server_that_never_had_gpus_nothing_is_told():
    """Nor is there a box for it."""
    assert (told(None, NOW), notice("")) == ("", "")


def test_what_is_told_is_text():
    """It may hold what people have typed."""
    assert "<b>" not in notice("<b>ana</b>")
