"""The pictures of the widgets: everything is said in words, nothing is made up, and names cannot act."""

import re

import msgspec
import pytest

from jupyter_gpu.jupyter import drawings
from jupyter_gpu.jupyter.drawings import Trace
from jupyter_gpu.model import (
    AlertView,
    CardView,
    Condition,
    EvictionReason,
    IsolationView,
    Kind,
    Notice,
    State,
    UseKind,
    UseView,
)
from tests.cli.fake import GIB, NOW, device, ended, lab, workload


def words_of(html):
    """Give what a person reads, without the pictures."""
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<title>.*?</title>", "", html)).split())


def test_the_monitor_says_what_the_other_faces_say():
    """One picture, several frames: figures, holders and ends are those of `jupyter gpu status`."""
    text = words_of(drawings.monitor(lab(), {}, None))

    assert "4 GPUs, 1 free" in text
    assert "0 a100-80gb 61.2/80GiB 97% you: job 12 until" in text
    assert "2 a100-80gb 0.5/80GiB 0% free" in text


def test_what_could_not_be_read_is_not_available():
    """A card that is lost has no figures: n/a in words, an empty bar, never 0 (rapidsai/jupyterlab-nvdashboard#114)."""
    html = drawings.monitor(lab(), {}, None)
    row = html[html.index("GPU-3aaaaaaa") :]

    assert "n/a n/a" in words_of(row)
    assert 'aria-label="n/a"' in row
    assert "it fell off the bus" in row
    assert "0%" not in row


def board(**more):
    """Give a lab with a card in MIG mode, two MIG devices of it and a GPU that is shared."""
    card = CardView(
        uuid="GPU-card", index=0, name="NVIDIA A100-SXM4-40GB", memory_total_bytes=40 * GIB, memory_used_bytes=8 * GIB,
        temperature_celsius=44, power_watts=120.4,
    )  # fmt: skip
    parts = [
        device(7 + slot, uuid=f"MIG-{slot}", number=f"0:{slot}", device_class="1g.5gb", card=card.uuid,
               memory_total_bytes=5 * GIB, memory_used_bytes=GIB, utilisation_percent=None)
        for slot in (0, 2)
    ]  # fmt: skip
    shared = device(1, shareable=True, workloads=(9,), holders=("bob",), memory_leased_bytes=20 * GIB, **more)
    status = msgspec.structs.replace(lab(), cards=(card,), devices=(shared, *parts))
    return status, card


def test_mig_devices_stand_under_their_card_which_is_none_to_hold():
    """By the numbers that people say, "0:2"; a card has no load of its own and is not free."""
    status, card = board()
    html = drawings.monitor(status, {card.uuid: Trace((50.0,), (None,))}, None)
    text = words_of(html)

    assert "0 8/40GiB n/a NVIDIA A100-SXM4-40GB, split into 2 MIG devices, 44°C, 120 W 0:0 1g.5gb" in text
    assert "0:2 1g.5gb 1/5GiB n/a free" in text
    assert text.index("0:2 1g.5gb") < text.index("1 a100-80gb 40/80GiB 97% 20 of 80GiB leased, by bob: reservation 9")
    assert "3 GPUs, 2 free" in text

    mine = workload(5, kind=Kind.RESERVATION, state=State.ACTIVE, devices=("MIG-2",), ends_at=NOW + 60)
    assert "This kernel: reservation 5, GPU 0:2" in words_of(drawings.monitor(status, {}, mine))


def test_a_card_without_mig_devices_is_seen_and_says_so():
    """No GPU can be had of it, and it is not as if there were none."""
    status, card = board()
    text = words_of(drawings.monitor(msgspec.structs.replace(status, devices=()), {}, None))

    assert card.name in text
    assert "without MIG devices: nothing to lease" in text
    assert "No GPUs." not in text


def test_who_is_on_a_device_without_a_lease_stands_in_words():
    """Which process, whose, how much memory; what is not known is n/a, and who holds it is not told twice."""
    stranger = UseView(pid=4711, kind=UseKind.USER, foreign=True, memory_bytes=3 * GIB, name="python", user="eve")
    hidden = UseView(pid=12, kind=UseKind.UNKNOWN, foreign=True)
    own = UseView(pid=13, kind=UseKind.HOLDER, foreign=False, workload=9)
    kernel = UseView(
        pid=14, kind=UseKind.KERNEL, foreign=True, user="lab", owner="ana", server="big", notebook="a.ipynb"
    )
    status, _ = board(
        uses=(stranger, hidden, own, kernel), condition=Condition.FOREIGN, condition_detail="process 4711 of eve"
    )
    text = words_of(drawings.monitor(status, {}, None))

    assert "used without a lease: process 4711 of eve" in text
    assert "process 4711, python, eve, 3GiB, without a lease" in text
    assert "process 14, ana, n/a, a kernel without a lease: server big, notebook a.ipynb" in text
    assert "process 12, n/a, whose it is cannot be told here" in text
    assert "process 13" not in text


def test_notes_alerts_and_isolation_are_told():
    """A display is no fault; an alert is said once; the badge says on what evidence."""
    status, _ = board(note="drives a display, 150MiB in use")
    alerts = (AlertView(key="a", since=NOW, text="GPU 1 is too hot"), AlertView(key="b", since=NOW, text="one disk"))
    isolation = IsolationView(enforced=False, detail="no rights to <shut> devices")
    html = drawings.monitor(
        msgspec.structs.replace(status, alerts=alerts, warnings=("one disk",), isolation=isolation), {}, None
    )
    text = words_of(html)

    assert "(drives a display, 150MiB in use)" in text
    assert text.count("GPU 1 is too hot.") == text.count("One disk.") == 1
    assert "isolation advisory" in text
    typed = msgspec.structs.replace(status, warnings=("no GPU; `jupyter gpu doctor` says why",))
    assert '<code style="background:none">%gpu doctor</code> says why.' in drawings.monitor(typed, {}, None)
    assert 'title="no rights to &lt;shut&gt; devices"' in html
    simulated = msgspec.structs.replace(status, isolation=isolation, simulated=True)
    assert "isolation" not in words_of(drawings.monitor(simulated, {}, None))


def test_this_kernels_own_is_marked_in_words_too():
    """What a colour says is said in words: this kernel."""
    mine = workload(5, kind=Kind.RESERVATION, state=State.ACTIVE, devices=(device(2).uuid,), ends_at=NOW + 60)
    status = lab()
    cards = tuple(
        msgspec.structs.replace(it, workloads=(5,)) if it.uuid in mine.devices else it for it in status.devices
    )
    status = msgspec.structs.replace(status, devices=cards, workloads=(*status.workloads, mine))

    text = words_of(drawings.monitor(status, {}, mine))

    assert "this kernel: reservation 5 until" in text
    assert "This kernel: reservation 5, GPU 2" in text


def test_a_gap_stays_a_gap():
    """Where nothing was read the line is broken, and the newest reading stands at the right edge."""
    html = drawings.sparkline(Trace(memory=(10, None, 20), load=(None, 50.0, 100.0)), "GPU 0")

    assert html.count("<path") == 1 + 2 + 1
    assert "120 1" in html
    assert "GPU 0: memory 20%, load 100%; the last 3 readings" in html
    assert "NaN" not in html + drawings.sparkline(Trace(), "GPU 1")


@pytest.mark.parametrize(("percent", "width"), [(0, 0), (0.4, 0), (1, 3), (50, 50), (99.9, 99), (100, 100)])
def test_what_is_not_full_is_not_drawn_full(percent, width):
    """A baseline draws nothing, a percent shows, and only what is full is drawn full."""
    assert f'width="{0.7 * width:.1f}"' in drawings.bar(percent, "red")


@pytest.mark.parametrize("text", ["<img src=x onerror=alert(1)>", '"><script>', "a\x1b[31mb\nc"])
def test_names_cannot_act(text):
    """Names, reasons and logs of others are text, in every picture."""
    status = msgspec.structs.replace(
        lab(),
        caller=text,
        warnings=(text,),
        devices=(
            device(
                0,
                name=text,
                device_class=text,
                condition_detail=text,
                note=text,
                uses=(UseView(pid=1, kind=UseKind.CONTAINER, foreign=True, name=text, user=text, where=text),),
            ),
        ),
        cards=(CardView(uuid=text, index=1, name=text),),
        alerts=(AlertView(key=text, since=NOW, text=text),),
        isolation=IsolationView(enforced=True, by=text, detail=text),
    )
    job = workload(1, name=text, reason=text, command=text)
    pictures = (
        drawings.monitor(status, {}, None, text),
        drawings.quota(status, text),
        drawings.job(1, job, log="<img>", now=NOW, note=text),
    )

    for html in pictures:
        assert "<img" not in html
        assert "<script" not in html
        assert "\x1b" not in html


def test_quota_says_what_is_left():
    """Each bound: what is held or used, and what is left or when there is more."""
    text = words_of(drawings.quota(lab()))

    assert "devices per user 1 of 2 GPUs 1 GPU" in text
    assert "15 of 40 GPU-hours in 7d 25 GPU-hours" in text
    assert "you may hold what is free" in words_of(drawings.quota(msgspec.structs.replace(lab(), quotas=())))


def test_a_job_says_how_it_stands_and_why():
    """State, attempts, reason and the end of the log."""
    waiting = next(it for it in lab().workloads if it.id == 14)
    text = words_of(drawings.job(14, waiting, now=NOW))
    assert "Job 14 (sweep 3) queued" in text
    assert "You are first in queue training" in text

    running = words_of(
        drawings.job(12, workload(12, state=State.ACTIVE, attempt=2, preemptions=1), log="a <b>", now=NOW)
    )
    assert "active (attempt 2, preempted 1x)" in running
    assert "a &lt;b&gt;" in running

    assert "succeeded" in words_of(drawings.job(1, ended(1), now=NOW))
    assert "Asking the broker." in words_of(drawings.job(1, None, now=NOW))


def test_only_what_lives_can_be_cancelled():
    """The button is there while there is something to cancel."""
    notice = Notice(reason=EvictionReason.CANCELLED, yield_by=NOW)

    assert drawings.is_live(workload(1))
    assert not drawings.is_live(workload(1, state=State.YIELDING, notice=notice))
    assert not drawings.is_live(ended(1))
    assert not drawings.is_live(None)


def test_a_picture_stands_by_itself():
    """No style sheet, no script and no fixed ink: it reads on light and dark, and in nbconvert's HTML."""
    html = drawings.monitor(lab(), {device(0).uuid: Trace((1.0, 2.0), (3.0, 4.0))}, None)

    assert "<style" not in html
    assert set(re.findall(r'class="([^"]*)"', html)) == {"tex2jax_ignore mathjax_ignore"}, "dollars are no mathematics"
    assert not re.search(r"var\(--[\w-]+\)", html), "every variable has a tone to fall back to"
    assert not re.search(r"(?<![-\w])color:(#000|#fff|black|white)", html)
