"""What people see: plain, in 80 columns, without colour, and harmless whatever the names are."""

import io
import re
import shlex
import subprocess

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from jupyter_gpu.cli.picture import bar, left_text, status_picture, used_text
from jupyter_gpu.cli.text import short_of, why
from jupyter_gpu.model import Ask, EventView, Kind, QuotaView, SoonerView, State, Status, WaitingReason
from tests.cli.conftest import Terminal
from tests.cli.fake import GIB, HOUR, NOW, FakeClient, device, ended, holder, lab, spec, workload

STATUS = """\
4 GPUs, 1 free  ada, 14:05

GPU  class      memory                load  held by
  0  a100-80gb  ██████░░  61.2/80GiB   97%  you: job 12 until 16:05
  1  a100-80gb  ████░░░░    40/80GiB    3%  bob: reservation 9 until 14:35
  2  a100-80gb  ░░░░░░░░   0.5/80GiB    0%  free
  3  a100-80gb                   n/a   n/a  lost: it fell off the bus

Your work
ID  state   kind  name     how it goes
12  active  job   digits   GPU 0, attempt 2, until 16:05
14  queued  job   sweep 3  no GPU is free, first in line, about 16:05
  14: No GPU is free: GPU 0 runs job 12 until 16:05, GPU 1 is reserved by bob
  until 14:35, GPU 3 is lost. You are first in queue training. Leave the line
  with `jupyter gpu cancel 14`.

Your quota
rule                      used                      left
devices per user          1 of 2 GPUs               1 GPU
GPU-hours of team vision  15 of 40 GPU-hours in 7d  25 GPU-hours

Waiting  interactive 0, training 3, deferred 1
"""

QUEUE = """\
ID  owner  GPUs  state   name     how it goes
 9  bob       1  active           GPU 1, until 14:35
12  you       1  active  digits   GPU 0, attempt 2, until 16:05
14  you       2  queued  sweep 3  no GPU is free, first in line, about 16:05
"""

EVENTS = """\
14:05:00  submitted
14:05:01  granted
14:05:02  started (1)
14:05:03  evicted (preempted)
14:05:04  released
14:05:05  requeued
14:05:06  granted
14:05:07  started (2)
14:05:08  released
14:05:09  ended (succeeded)
"""

SHOW = """\
Job 14: sweep 3
  No GPU is free: GPU 0 runs job 12 until 16:05, GPU 1 is reserved by bob until
  14:35, GPU 3 is lost. You are first in queue training. Leave the line with
  `jupyter gpu cancel 14`.

  state      queued
  expected   about 16:05
  owner      you
  team       vision
  queue      training, priority 50
  asked for  2 GPUs, 8h
  submitted  13:05:00
  command    python 'my train.py' --name 'it'"'"'s'
  folder     '/home/ada/two words'
  script     'my train.py', as it was when it was submitted

What you can do
  jupyter gpu pause 14            keep it from starting
  jupyter gpu cancel 14           leave the line
  jupyter gpu events 14           its story
"""

DEVICES = """\
GPU  UUID                                      class      memory  state
  0  GPU-0aaaaaaa-0000-4000-8000-000000000000  a100-80gb   80GiB  held
     NVIDIA A100-SXM4-80GB, pool local, 61°C
  1  GPU-1aaaaaaa-0000-4000-8000-000000000001  a100-80gb   80GiB  held
     NVIDIA A100-SXM4-80GB, pool local, 61°C
  2  GPU-2aaaaaaa-0000-4000-8000-000000000002  a100-80gb   80GiB  free
     NVIDIA A100-SXM4-80GB, pool local, 61°C
  3  GPU-3aaaaaaa-0000-4000-8000-000000000003  a100-80gb     n/a  lost
     NVIDIA A100-SXM4-80GB, pool local
     It fell off the bus.
"""

QUOTA = """\
rule                      used                      left
devices per user          1 of 2 GPUs               1 GPU
GPU-hours of team vision  15 of 40 GPU-hours in 7d  25 GPU-hours
"""


def relabelled(**more) -> Status:
    """Give the lab with simulated devices."""
    found = lab()
    return msgspec.structs.replace(
        found,
        simulated=True,
        devices=tuple(msgspec.structs.replace(it, simulated=True) for it in found.devices),
        **more,
    )


def named(name: str, **more) -> FakeClient:
    """Give a lab with one job of this name."""
    return FakeClient(msgspec.structs.replace(lab(), workloads=(workload(14, name=name, **more),)))


@pytest.mark.parametrize(
    ("command", "picture"),
    [("status", STATUS), ("queue", QUEUE), ("events 12", EVENTS), ("quota", QUOTA), ("devices", DEVICES)],
)
def test_the_pictures(gpu, command, picture):
    """The main pictures, to the letter."""
    result = gpu(*command.split())

    assert result.out == picture
    assert (result.code, result.err) == (0, "")


def test_one_workload_with_all_that_is_known(gpu):
    """`show` says how it stands, what it asked for, and how to go on; its command can be pasted (Nukesor/pueue#182)."""
    waiting = gpu.client.lab.workloads[2]
    job = spec("python", "my train.py", "--name", "it's", folder="/home/ada/two words", script_index=1)
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, workloads=(msgspec.structs.replace(waiting, spec=job),))

    assert gpu("show", "14").out == SHOW


@pytest.mark.parametrize("command", ["status", "queue", "show 14", "devices", "quota", "events 14", "doctor"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(command, width):
    """Nothing is broken by the terminal, however narrow it is."""
    terminal = Terminal(tty=True, width=width)

    lines = terminal(*command.split()).out.splitlines()

    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("command", ["status", "queue", "show 12", "devices", "doctor", "broker", "reserve"])
def test_simulated_devices_are_called_so(command):
    """Wherever simulated devices are shown, a label says so."""
    terminal = Terminal(client=FakeClient(relabelled()))

    assert "simulated" in terminal(*command.split()).out.lower()


HARD_NAMES = [
    "[red]not red[/red]",
    "[/]",
    "two words",
    'it\'s "quoted"',
    "a/b\\c",
    ":smile:",
    "训练 グラフ",
    "e\u0301tude 👩\u200d🔬",
    "\x1b[31mred\x1b[0m\x07",
    "line\nbreak\r\ttab",
    "\u202egnp.txt",
    "x" * 500,
]


@pytest.mark.parametrize("name", HARD_NAMES)
@pytest.mark.parametrize("command", ["status", "queue", "show 14", "cancel 14"])
def test_a_name_is_only_shown(name, command):
    """A name is text: no markup, no emoji code, no escape acts, and a table keeps its lines."""
    plain, colourful = Terminal(client=named(name)), Terminal(client=named(name), tty=True, colours=True)

    shown = plain(*command.split())
    colours = colourful(*command.split())

    assert shown.code == 0
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x9b\u202e]", shown.out)
    # Only our own colours are left.
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x9b\u202e]", re.sub(r"\x1b\[[\d;]*m", "", colours.out))
    if name.isprintable() and len(name) < 16:
        assert name in shown.out


def test_missing_readings_are_not_zero():
    """What could not be read is n/a, and its bar is empty of both signs."""
    unread = device(0, memory_used_bytes=None, memory_total_bytes=None, utilisation_percent=None)

    assert bar(unread).plain.strip() == ""


@pytest.mark.parametrize(
    ("used", "drawn"),
    [
        (0, "░░░░░░░░"),
        (GIB // 2, "░░░░░░░░"),
        (2 * GIB, "█░░░░░░░"),
        (40 * GIB, "████░░░░"),
        (80 * GIB - 1, "███████░"),
        (80 * GIB, "████████"),
        (90 * GIB, "████████"),
    ],
)
def test_a_bar_says_neither_empty_nor_full_too_early(used, drawn):
    """What is used shows, and only what is full is drawn full."""
    assert bar(device(0, memory_used_bytes=used)).plain == drawn


def test_a_terminal_without_blocks_gets_signs(gpu):
    """Where blocks cannot be encoded, bars are drawn with ASCII."""
    assert bar(device(0), fancy=False).plain == "####----"


def test_others_names_are_shown_only_as_far_as_the_broker_shows_them():
    """Who may not be known is not invented."""
    found = lab()
    hidden = msgspec.structs.replace(found.workloads[1], owner=None, name=None, team=None)
    devices = tuple(msgspec.structs.replace(it, holders=()) for it in found.devices)
    found = msgspec.structs.replace(found, workloads=(hidden,), devices=devices)
    terminal = Terminal(client=FakeClient(found))

    assert "reservation 9 until 14:35" in terminal("status").out
    assert "bob" not in terminal("status").out
    assert " -  " in terminal("queue").out


def test_an_empty_lab_says_what_to_do():
    """No GPU, no work, no quota: each is a sentence."""
    empty = msgspec.structs.replace(
        lab(), devices=(), workloads=(), quotas=(), waiting={}, warnings=("there is no driver",)
    )
    terminal = Terminal(client=FakeClient(empty))

    shown = terminal("status").out

    assert "! There is no driver." in shown
    assert "No GPUs. `jupyter gpu doctor` says why." in shown
    assert "Nothing runs and nothing waits." in shown
    assert terminal("queue").out == "Nothing runs and nothing waits.\n"
    assert terminal("quota").out == "No quota concerns you: you may hold what is free.\n"
    assert terminal("devices").out == "No GPUs. `jupyter gpu doctor` says why.\n"


def test_a_spent_budget_says_when_there_is_more(gpu):
    """Only who has nothing left needs to know when that changes."""
    spent = msgspec.structs.replace(
        gpu.client.lab.quotas[1], used_ms=40 * 3_600_000, available_again_at=NOW + 20 * HOUR
    )
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, quotas=(spent,))

    assert gpu("quota").out.endswith("none until tomorrow 10:05\n")


def test_without_colours_nothing_is_escaped(monkeypatch, capsys):
    """NO_COLOR and a pipe get plain text."""
    from jupyter_gpu.cli import run

    monkeypatch.setenv("NO_COLOR", "1")
    code = run(["status"], client=FakeClient())

    assert code == 0
    assert "\x1b" not in capsys.readouterr().out


WIDE_QUEUE = """\
ID  queue        owner  GPUs  state   name     how it goes
 9  interactive  bob       1  active           GPU 1, until 14:35
12  training     you       1  active  digits   GPU 0, attempt 2, until 16:05
14  training     you       2  queued  sweep 3  no GPU is free, first in line, about 16:05
"""


def test_a_wide_terminal_gets_every_column():
    """What is left out at 80 columns is there at 120; how it goes is there in both."""
    assert Terminal(width=120)("queue").out == WIDE_QUEUE


def test_a_job_without_a_name_is_called_by_its_command():
    """The script and what differs are seen, at any width."""
    line = ("/usr/bin/python", "src/train.py", "--data", "/data/imagenet/shards/1k", "--seed", "5")
    command = spec(*line, script_index=1).brief()
    job = workload(5, name="", command=command, waiting=WaitingReason.DEVICES, ahead=5)
    for width, shown in (
        (80, "5  queued  job   train.py …imagenet/shards/1k --seed 5  no GPU is free, 5 ahead"),
        (120, "5  queued  job   train.py --data /data/imagenet/shards/1k --seed 5  no GPU is free, 5 ahead"),
    ):
        terminal = Terminal(client=FakeClient(msgspec.structs.replace(lab(), workloads=(job,))), width=width)

        assert shown in terminal("status").out
        assert "train.py" in terminal("queue").out


def test_a_reservation_that_nobody_holds_says_until_when(gpu):
    """The line of a list says that it must be taken, and by when."""
    it = workload(5, kind=Kind.RESERVATION, name="", state=State.ACTIVE, attach_by=NOW + 300, ends_at=NOW + HOUR)
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, workloads=(it,))

    assert "no GPU, take it by 14:10" in gpu("status").out


def test_a_paragraph_that_holds_for_many_is_said_once():
    """Each row says where it stands; why nothing is free, the first one says."""
    why = "No GPU is free: GPU 0 runs job 12 until 16:05."
    jobs = tuple(workload(it, waiting=WaitingReason.DEVICES, ahead=it, reason=why) for it in range(20, 25))
    paused = workload(30, waiting=WaitingReason.PAUSED, paused=True, reason="It is paused.")
    found = msgspec.structs.replace(lab(), workloads=(*jobs, paused), more_of_mine=300)

    shown = Terminal(client=FakeClient(found))("status").out

    assert shown.count(why) == 1
    assert "  20: No GPU" in shown
    assert "  30: It is paused." in shown
    assert "300 more wait: `jupyter gpu queue --mine` lists them." in shown


def test_few_rows_show_the_work_first():
    """Where not all fits, sentences go first; then the work stands above the GPUs, which are cut below."""
    found = lab()

    def lines(height):
        console = Console(width=80, file=io.StringIO())
        console.print(status_picture(found, height=height))
        return console.file.getvalue().splitlines()

    whole = len(lines(None))
    assert len(lines(whole)) == whole
    assert "sweep 3" in "\n".join(lines(whole - 1))
    assert "Leave the line" not in "\n".join(lines(whole - 1))
    few = lines(8)
    assert few[2] == "Your work"
    assert "1 more: `jupyter gpu queue --mine` lists them." in few[5]
    assert few[7].startswith("GPU  class")


GPUS = ("GPU-5111a341-c901-450a-8cda-000000000000", "MIG-9a1b/7/0")


@pytest.mark.parametrize(("tty", "width"), [(True, 40), (False, 80)])
def test_what_is_to_be_pasted_is_never_broken(tty, width):
    """The line that pins a shell and the command of a job stand in one piece, at a terminal and in a pipe."""
    terminal = Terminal(tty=tty, width=width)
    held = workload(5, kind=Kind.RESERVATION, state=State.ACTIVE, devices=GPUS, holder=holder())
    argv = ("python", "train.py", "--note", "it's " * 20)
    terminal.client.answers |= {"workload 5": held, "workload 6": workload(6, spec=spec(*argv))}

    export = next(line for line in terminal("show", "5").out.splitlines() if "CUDA_VISIBLE" in line)
    command = next(line for line in terminal("show", "6").out.splitlines() if line.startswith("  command"))

    pasted = subprocess.run(
        ["bash", "-c", f"{export}; echo $CUDA_VISIBLE_DEVICES"], capture_output=True, text=True, check=True
    ).stdout
    assert pasted == f"{GPUS[0]},{GPUS[1]}\n"
    assert shlex.split(command)[1:] == list(argv)


def test_a_reservation_that_nobody_holds_can_be_taken(gpu):
    """`show` says until when, and how."""
    gpu.client.answers["workload 5"] = workload(
        5, kind=Kind.RESERVATION, state=State.ACTIVE, devices=GPUS[:1], attach_by=NOW + 290
    )

    shown = gpu("show", "5").out

    assert "attach by  14:09:50" in shown
    assert "jupyter gpu wait 5 " in shown
    assert "export" not in shown


def test_short_work_is_told_to_the_second(gpu):
    """When it started, when it ended and how long it took; what is not of today has its day."""
    gpu.client.answers["workload 5"] = ended(5, started_at=NOW - 192, preemptions=1)

    shown = gpu("show", "5").out

    assert "started    14:01:48" in shown
    assert "ended      14:05:00" in shown
    assert "took       3m12s" in shown
    assert "so far     1 preemption, 0 failures" in shown
    gpu.client.answers["workload 5"] = ended(5, started_at=NOW - 30 * HOUR)
    assert "started    yesterday 08:05" in gpu("show", "5").out


def test_simulated_is_said_once(gpu):
    """Four GPUs, one label."""
    gpu.client.lab = relabelled()
    uuids = tuple(it.uuid for it in gpu.client.lab.devices)
    gpu.client.answers["workload 5"] = workload(5, state=State.ACTIVE, devices=uuids)

    assert "holds      GPU 0, 1, 2, 3 (simulated)\n" in gpu("show", "5").out


def test_an_event_says_nothing_twice():
    """A detail that only repeats the note or the event before is left out."""
    terminal = Terminal()
    story = [("requeued", "", "preempted"), ("evicted", "drained", "drained"), ("ended", "failed", "exit code 3")]
    terminal.client.events = lambda _: (
        EventView(number=at, at=NOW, event=event, note=note, detail=detail)
        for at, (event, note, detail) in enumerate(story)
    )

    assert terminal("events", "5").out == (
        "14:05:00  requeued  preempted\n14:05:00  evicted (drained)\n14:05:00  ended (failed)  exit code 3\n"
    )


def test_an_expected_end_is_not_told_as_a_promise(gpu):
    """What was bought is an end; the end of a job without a limit is only expected."""
    job = msgspec.structs.replace(gpu.client.lab.workloads[0], ends_at=None)
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, workloads=(job,))

    assert "you: job 12 until about 16:05" in gpu("status").out


@pytest.mark.parametrize(
    ("devices", "reason", "told"),
    [
        (3, "2 of the 3 GPUs it wants are free: GPU 0 runs job 12.", "2 of the 3 GPUs it wants are free"),
        (3, "No GPU is free: GPU 0 runs job 12.", "no GPU is free"),
        (3, "", "too few GPUs are free"),
        (1, "", "no GPU is free"),
    ],
)
def test_who_wants_several_is_not_told_that_none_is_free(devices, reason, told):
    """The few words of a list say the same as the sentence."""
    it = workload(5, state=State.QUEUED, waiting=WaitingReason.DEVICES, reason=reason, ask=Ask(devices=devices))

    assert short_of(it) == told


def test_who_let_only_some_run_at_once_is_told_of_no_quota():
    """That many of the array run is their own word, and nobody's bound."""
    own = "2 of array 5 run, the most that was asked for at once. It starts when one of them has ended."
    it = workload(7, state=State.QUEUED, waiting=WaitingReason.QUOTA, reason=own)

    assert short_of(it) == "as many run as you asked for"
    assert short_of(workload(7, state=State.QUEUED, waiting=WaitingReason.QUOTA)) == "quota is held"


def test_the_way_out_of_one_of_an_array_is_left_out_like_any_other():
    """Where a better one is told."""
    reason = "No GPU is free. Leave the line with `jupyter gpu cancel 7` (with `--array` all of array 5)."
    assert why(workload(7, state=State.QUEUED, reason=reason)) == "No GPU is free."


def test_a_quota_of_one_is_no_many():
    """One GPU, and one GPU-hour of which half is left."""
    rule = QuotaView(rule="r", devices_held=0, devices_allowed=1, used_ms=1_800_000, allowed_ms=3_600_000)

    assert used_text(rule) == "0 of 1 GPU, 0.5 of 1 GPU-hour"
    assert left_text(rule, NOW) == "1 GPU, 0.5 GPU-hours"


def test_a_range_is_told_in_the_line_and_what_would_be_sooner_in_full(gpu):
    """The line has the range, a look at one has also which other ask would start sooner, a line for each."""
    gpu.client.answers["workload 5"] = workload(
        5,
        waiting=WaitingReason.DEVICES,
        ahead=2,
        expected_start_at=NOW + 3 * HOUR,
        expected_start_from=NOW + 2 * HOUR,
        expected_start_until=NOW + 4 * HOUR,
        sooner=(
            SoonerView(devices=2, expected_start_from=NOW, expected_start_until=NOW),
            SoonerView(queue="deferred", expected_start_from=NOW + HOUR, expected_start_until=NOW + 2 * HOUR),
            SoonerView(device_class="", expected_start_from=NOW + HOUR, expected_start_until=NOW + HOUR),
        ),
    )

    shown = gpu("show", "5").out

    assert "expected   16:05 to 18:05\n" in shown
    assert "sooner     with 2 GPUs, at once\n             in queue deferred, 15:05 to 16:05\n" in shown
    assert "of any class, about 15:05\n" in shown
