"""What an event says to people: what changed, and nothing twice."""

import pytest

from jupyter_gpu.broker.api.views import event_view
from jupyter_gpu.broker.store.rows import Record
from jupyter_gpu.core.events import Amended, Moved, Overdue, Requeued, Submitted
from jupyter_gpu.model import Ask, Holder, Kind, Workload
from jupyter_gpu.units import format_when

AT = 1_772_460_300.0
LATE = Workload(
    id=1,
    kind=Kind.JOB,
    owner="ada",
    team="everyone",
    queue="training",
    name="",
    ask=Ask(),
    submitted_at=AT,
    detail="1h late",
)


@pytest.mark.parametrize(
    ("event", "note", "detail"),
    [
        (Amended(at=AT, workload=1, paused=True), "paused", ""),
        (Amended(at=AT, workload=1, paused=False), "let go", ""),
        (Amended(at=AT, workload=1, priority=70), "priority 70", ""),
        (Amended(at=AT, workload=1, ends_at=AT + 60), f"until {format_when(AT + 60, AT)}", ""),
        (Amended(at=AT, workload=1, lifted=True), "waited past its limit", ""),
        (Overdue(at=AT, workload=1), "", "the grace is over; ended by force"),
        (Moved(at=AT, workload=1, holder=Holder(kind="shell", name="bash")), "", "to the shell bash"),
        (Submitted(at=AT, it=LATE), "", "1h late"),
        (Requeued(at=AT, workload=1, cause="preempted"), "", "preempted"),
        (Requeued(at=AT, workload=1, cause="preempted", detail="preempted"), "", "preempted"),
        (Requeued(at=AT, workload=1, cause="failed", detail="exit code 3"), "", "failed: exit code 3"),
    ],
)
def test_the_words_of_an_event(event, note, detail):
    """Each says what it changed; the reason of a return to the line stands once."""
    shown = event_view(Record(number=1, event=event, digest=""), knows_all=True)

    assert (shown.note, shown.detail) == (note, detail)
    assert event_view(Record(number=1, event=event, digest=""), knows_all=False).detail == ""
