"""Who took a GPU out of use or ended somebody's work, and why: an operator says it, and whom it concerns reads it."""

import msgspec
import pytest

from jupyter_gpu.cli.doctor_devices import device_checks
from jupyter_gpu.cli.picture import held_by_text
from jupyter_gpu.cli.text import condition_text, cordon_text
from jupyter_gpu.model import Condition, EventView, EvictionReason, Notice, State
from tests.cli.conftest import Terminal
from tests.cli.fake import HOUR, NOW, FakeClient, device, workload

WHY = "node maintenance"
SAID = "cordoned by grace: node maintenance"


@pytest.fixture
def gpu() -> Terminal:
    """A terminal whose lab has GPU 2 cordoned."""
    client, more = FakeClient(), {"cordoned": True, "cordoned_by": "grace", "cordon_reason": WHY}
    first, second, third, *rest = client.lab.devices
    marked = (first, second, msgspec.structs.replace(third, **more), *rest)
    client.lab = msgspec.structs.replace(client.lab, devices=marked)
    return Terminal(client, width=120)


@pytest.mark.parametrize("words", [("cordon", "0"), ("drain", "0"), ("cancel", "14")])
def test_an_operator_says_why(gpu, words):
    """The reason goes with the command, and without one nothing is said."""
    assert gpu(*words, "--reason", WHY).code == 0
    assert gpu(*words).code == 0

    asked = [call for call in gpu.client.calls if call[0] == words[0]]
    assert [call[2:] for call in asked] == [(WHY,), ()]


def test_who_cordons_reads_how_it_is_shown(gpu):
    """With the name, and with what else there is to know; `already` only where nothing of it is new."""
    assert f"is {SAID}; what runs on it goes on" in gpu("cordon", "0", "--reason", WHY).out
    assert f"is {SAID}; the work on it has been asked" in gpu("drain", "0", "--reason", WHY).out
    assert f"is {SAID}; nothing runs on it" in gpu("cordon", "2", "--reason", WHY).out.replace(" already", "", 1)
    assert "already by grace: node maintenance" in gpu("cordon", "2", "--reason", WHY).out
    assert "already" not in gpu("cordon", "2", "--reason", "a new fan").out


def test_everybody_reads_who_cordoned_a_gpu_and_why(gpu):
    """In the picture, in the list, and from doctor."""
    assert SAID in gpu("status").out
    assert f"{SAID[0].upper()}{SAID[1:]}." in gpu("devices").out
    check = next(it for it in device_checks(gpu.client.lab) if it.name == "GPU 2")
    assert (check.state, check.text) == ("warn", SAID)
    assert "jupyter gpu uncordon 2" in check.remedy


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "cordoned"),
        ({"cordoned_by": "grace"}, "cordoned by grace"),
        ({"cordon_reason": WHY}, "cordoned: node maintenance"),
        ({"cordoned_by": "grace", "cordon_reason": "a\x1b[31m\nb"}, r"cordoned by grace: a\x1b[31m\nb"),
    ],
)
def test_it_is_said_as_far_as_it_is_told(more, said):
    """Names may be hidden, a reason may be missing, and neither steers a terminal."""
    one = device(0, cordoned=True, **more)
    assert cordon_text(one) == said
    assert held_by_text(one, {}, NOW).plain == said
    sick = msgspec.structs.replace(one, condition=Condition.HOT)
    assert condition_text(sick) == f"too hot; {said}"
    assert condition_text(sick, with_detail=False) == "too hot; cordoned"
    assert cordon_text(msgspec.structs.replace(one, cordoned=False)) == ""


def test_doctor_without_a_name_says_that_it_was_an_operator(gpu):
    """Where names are hidden."""
    lab = gpu.client.lab
    hidden = tuple(msgspec.structs.replace(it, cordoned_by=None) for it in lab.devices)
    checks = {it.name: it.text for it in device_checks(msgspec.structs.replace(lab, devices=hidden))}
    assert checks["GPU 2"] == "cordoned by an operator: node maintenance"


def test_who_must_leave_reads_it_with_the_work(gpu):
    """`show` says why it must yield, and its story tells it where it happened."""
    told = f"drained by grace: {WHY}"
    notice = Notice(reason=EvictionReason.DRAINED, yield_by=NOW + HOUR, detail=told)
    gpu.client.answers["workload 12"] = workload(12, state=State.YIELDING, notice=notice)
    assert f"({told})" in gpu("show", "12").out
    story = [EventView(number=1, at=NOW, event="evicted", note="drained", detail=told)]
    gpu.client.events = lambda _: iter(story)
    assert f"evicted (drained)  {told}" in gpu("events", "12").out
