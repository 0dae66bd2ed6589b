"""GPUs that are split, shared, sick, watched by nobody or used by strangers, as people see them."""

import re

import msgspec
import pytest
from rich.cells import cell_len

from jupyter_gpu.cli.picture import badge, held_by_text
from jupyter_gpu.cli.text import CONDITIONS, condition_text, memory_text
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import (
    AlertView,
    Ask,
    CardView,
    Condition,
    DevicePage,
    DeviceView,
    IsolationView,
    Kind,
    State,
    Status,
    UseKind,
    UseView,
)
from tests.cli.conftest import Terminal
from tests.cli.fake import GIB, HOUR, NOW, FakeClient, device, lab, workload

CARD = CardView(
    uuid="GPU-c0000000-0000-4000-8000-00000000000c",
    index=0,
    name="NVIDIA A100-SXM4-40GB",
    memory_total_bytes=40 * GIB,
    memory_used_bytes=14 * GIB,
    temperature_celsius=48,
    sampled_at=NOW,
)


def slice_of(card: CardView, slot: int, **more) -> DeviceView:
    """Make one MIG device. It has memory of its own, and no load, which NVML does not offer of it."""
    words = {
        "uuid": f"MIG-{slot}bbbbbbb-0000-5000-8000-00000000000{slot}",
        "number": f"{card.index}:{slot}",
        "name": f"{card.name} MIG 3g.20gb",
        "device_class": "mig-3g.20gb",
        "card": card.uuid,
        "memory_total_bytes": 20 * GIB,
        "memory_used_bytes": GIB,
        "utilisation_percent": None,
        "temperature_celsius": None,
    }
    return device(1000 + slot, **words | more)


def split_lab(**more) -> Status:
    """Make a lab of one GPU with two MIG devices, at slots 0 and 2, and one that is whole."""
    words = {
        "devices": (device(1), slice_of(CARD, 0, workloads=(12,)), slice_of(CARD, 2)),
        "cards": (CARD,),
        "quotas": (),
        "waiting": {},
        "workloads": (
            workload(12, state=State.ACTIVE, devices=(slice_of(CARD, 0).uuid,), ends_at=NOW + 3600, attempt=1),
        ),
    }
    return msgspec.structs.replace(lab(), **words | more)


SPLIT = """\
3 GPUs, 2 free  ada, 14:05

GPU  class        memory              load  held by
  0               ███░░░░░  14/40GiB   n/a  NVIDIA A100-SXM4-40GB, split into 2
                                            MIG devices
0:0  mig-3g.20gb  █░░░░░░░   1/20GiB   n/a  you: job 12 until 15:05
0:2  mig-3g.20gb  █░░░░░░░   1/20GiB   n/a  free
  1  a100-80gb    ████░░░░  40/80GiB   97%  free

Your work
ID  state   kind  name    how it goes
12  active  job   digits  GPU 0:0, until 15:05
"""


def test_mig_devices_stand_under_their_card():
    """The card has its memory and n/a for its load, each MIG device its line (XuehaiPan/nvitop#5)."""
    assert Terminal(client=FakeClient(split_lab()))("status").out == SPLIT


def test_the_list_has_the_card_too():
    """`devices` has the UUIDs of the card and of its MIG devices, in the order of their numbers."""
    lines = Terminal(client=FakeClient(split_lab()), width=100)("devices").out.splitlines()

    assert [line.split()[:2] for line in lines if line[:3].strip()] == [
        ["GPU", "UUID"],
        ["0", CARD.uuid],
        ["0:0", slice_of(CARD, 0).uuid],
        ["0:2", slice_of(CARD, 2).uuid],
        ["1", device(1).uuid],
    ]
    assert "NVIDIA A100-SXM4-40GB, split into 2 MIG devices, 48°C" in " ".join(" ".join(lines).split())


def test_the_list_keeps_its_columns_whatever_there_is_to_say():
    """What more is known of a GPU stands below it, so that number, UUID and state are on one line in 80 columns."""
    gpu = device(0, name="NVIDIA H100 80GB HBM3 MIG 3g.40gb", note="drives a display, 153MiB in use", shareable=True)
    found = msgspec.structs.replace(lab(), devices=(gpu,), workloads=())

    lines = Terminal(client=FakeClient(found))("devices").out.splitlines()

    assert lines[1] == f"  0  {gpu.uuid}  a100-80gb   80GiB  free"
    assert all(line.startswith("     ") for line in lines[2:])
    assert len(lines) == 4


def test_a_card_without_mig_devices_says_that_there_is_nothing_to_lease():
    """It is no device; it is shown, and why nothing of it can be had."""
    empty = split_lab(devices=(), workloads=())

    shown = " ".join(Terminal(client=FakeClient(empty))("status").out.split())

    assert "in MIG mode without MIG devices: nothing to lease" in shown
    assert "0 GPUs, 0 free" in shown
    listed = Terminal(client=FakeClient(empty))("devices").out.splitlines()
    assert listed[1].split() == ["0", CARD.uuid, "40GiB", "MIG,", "empty"]
    assert "MIG mode" in listed[2]
    assert Terminal(client=FakeClient(split_lab()))("devices").out.splitlines()[1].endswith("  MIG")


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain", "forget"])
def test_a_mig_device_is_named_by_its_number(verb):
    """`0:2` is what people read, so it is what they may write."""
    terminal = Terminal(client=FakeClient(split_lab()))

    result = terminal(verb, "0:2")

    assert (verb, "0:2") in terminal.client.calls
    assert result.out.startswith("GPU 0:2 (MIG-2bbbbbbb")


def test_a_split_gpu_is_all_its_parts():
    """Who cordons GPU 0 means what is on it; each part is told, in a document too."""
    terminal = Terminal(client=FakeClient(split_lab()))

    lines = terminal("cordon", "0").out.splitlines()
    document = msgspec.json.decode(terminal("cordon", "0", "--json").out, type=DevicePage)

    assert [line.split()[1] for line in lines] == ["0:0", "0:2"]
    assert "what runs on it goes on (workload 12)" in lines[0]
    assert lines[1].endswith("is cordoned; nothing runs on it.")
    assert [it.number for it in document.items] == ["0:0", "0:2"]


def test_a_shared_device_says_how_much_of_it_is_leased():
    """What is leased of it is told apart from what is used of it."""
    works = tuple(
        workload(number, state=State.ACTIVE, owner=owner, is_mine=owner == "ada", devices=(device(0).uuid,))
        for number, owner in ((12, "ada"), (13, "bob"))
    )
    gpu = device(0, shareable=True, memory_leased_bytes=20 * GIB, workloads=(12, 13), holders=("ada", "bob"))
    found = msgspec.structs.replace(lab(), devices=(gpu,), workloads=works)

    assert (
        "20 of 80GiB leased, by you: job 12, bob: job 13" in Terminal(client=FakeClient(found), width=120)("status").out
    )
    assert "20 of 80GiB leased, by 2" in Terminal(client=FakeClient(found), width=120)("devices").out


def test_who_holds_a_part_is_told_how_much():
    """What was got of a shared device is said wherever it is said what is held."""
    terminal = Terminal(client=FakeClient(lab()))
    it = workload(5, state=State.ACTIVE, devices=(device(0).uuid,), ask=Ask(memory_bytes=20 * GIB), attempt=1)
    terminal.client.answers["workload 5"] = it
    terminal.client.lab = msgspec.structs.replace(lab(), workloads=(it,))

    assert "holds      20GiB of GPU 0\n" in terminal("show", "5").out
    assert "digits  20GiB of GPU 0\n" in terminal("status").out


def test_notes_are_no_faults():
    """A card that drives a display is free, with a note (russellb/canhazgpu#5); so is one that may be shared."""
    found = msgspec.structs.replace(
        lab(),
        devices=(device(0, note="Drives a display, 153MiB already used."), device(1, shareable=True)),
        workloads=(),
    )
    shown = Terminal(client=FakeClient(found), width=120)("status").out

    assert "free (drives a display, 153MiB already used)" in shown
    assert "free (may be shared)" in shown
    assert "2 GPUs, 2 free" in shown
    assert "drives a display" in Terminal(client=FakeClient(found), width=120)("devices").out


def test_unified_memory_says_whose_it_is():
    """Of a board whose memory is the machine's own it is said so, and nothing is invented (wookayin/gpustat#179)."""
    board = device(0, shares_host_memory=True, memory_total_bytes=121 * GIB, memory_used_bytes=0)
    found = msgspec.structs.replace(lab(), devices=(board,), workloads=())

    shown = Terminal(client=FakeClient(found), width=120)("status").out

    assert "0/121GiB" in shown
    assert "free (memory shared with system memory)" in shown


def test_what_slows_a_gpu_is_listed():
    """Heat and want of power are told while they last, before they are a condition."""
    found = msgspec.structs.replace(lab(), devices=(device(0, slowed_by=("hw-thermal", "power-brake")),))

    shown = " ".join(Terminal(client=FakeClient(found))("devices").out.split())

    assert "slowed down by heat and the power brake of its supply" in shown


@pytest.mark.parametrize("condition", Condition)
def test_each_condition_has_words(condition):
    """A condition is told in words, with its evidence, and who is on the GPU is told beside it."""
    hot = device(0, condition=condition, condition_detail="it shows 97°C.", workloads=(12,))
    work = workload(12, state=State.ACTIVE, devices=(hot.uuid,), ends_at=NOW + 3600)

    assert condition_text(hot) == f"{CONDITIONS[condition]}: it shows 97°C"
    assert (
        held_by_text(hot, {12: work}, NOW).plain == f"you: job 12 until 15:05; {CONDITIONS[condition]}: it shows 97°C"
    )
    assert held_by_text(device(0, condition=condition), {}, NOW).plain == CONDITIONS[condition]


STRANGER = UseView(pid=815, kind=UseKind.USER, foreign=True, memory_bytes=2 * GIB, name="python", user="bob")
DEAD = UseView(pid=816, kind=UseKind.DEAD, foreign=True, memory_bytes=2 * GIB)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_list_says_why_a_gpu_gets_no_work_and_since_when(width):
    """As alerts and docs/recovery.md promise; the state is never broken, whatever has to go below for it."""
    words = {"condition_detail": "process 815 (python) holds 2GiB.", "condition_since": NOW - HOUR, "cordoned": True}
    gpu = device(0, condition=Condition.FOREIGN, device_class="rtx-2080-super-11gb", **words)
    found = msgspec.structs.replace(lab(), devices=(gpu,), workloads=())

    lines = Terminal(client=FakeClient(found), width=width)("devices").out.splitlines()

    assert lines[1].startswith(f"  0  {gpu.uuid}  ")
    assert lines[1].endswith("  used without a lease; cordoned")
    assert lines[3] == "     Since 13:05: process 815 (python) holds 2GiB."
    assert len(lines) == 4
    known = " ".join(lines[1:3])
    assert "rtx-2080-super-11gb" in known
    assert "80GiB" in known
    assert ("rtx-2080-super-11gb" in lines[1]) is (width > 80)


def test_uses_stand_in_the_order_of_the_list():
    """By node, card and slot: 0:2 is listed before 1 there, so it is here."""
    devices = (device(1, uses=(STRANGER,)), slice_of(CARD, 2, uses=(DEAD,)))

    listed = Terminal(client=FakeClient(split_lab(devices=devices)), width=100)("devices").out

    assert listed.index("0:2  816") < listed.index("  1  815")


@pytest.mark.parametrize(
    ("uses", "said"),
    [
        ((), "nothing runs on it"),
        ((STRANGER,), "no workload holds it, and a process runs on it without a lease (pid 815, python)"),
        (
            (STRANGER, msgspec.structs.replace(STRANGER, pid=7, name="")),
            "no workload holds it, and 2 processes run on it without a lease (pid 815, python, pid 7)",
        ),
        ((DEAD,), "no workload holds it, and memory of a process that has ended is still counted on it"),
    ],
)
@pytest.mark.parametrize("verb", ["cordon", "drain"])
def test_nothing_runs_only_where_nobody_is_seen(verb, uses, said):
    """Who has no lease computes all the same."""
    terminal = Terminal(client=FakeClient(split_lab(devices=(device(1, uses=uses),))))

    assert terminal(verb, "1").out == f"GPU 1 ({device(1).uuid}) is cordoned; {said}.\n"


def test_who_runs_on_a_leased_gpu_without_a_lease_is_told_too():
    """Beside whom the cordon leaves alone, and whom a drain asks to go."""
    terminal = Terminal(client=FakeClient(split_lab(devices=(device(1, uses=(STRANGER,), workloads=(12,)),))))

    strange = "and a process runs on it without a lease (pid 815, python).\n"
    assert terminal("cordon", "1").out.endswith(f"is cordoned; what runs on it goes on (workload 12), {strange}")
    assert terminal("drain", "1").out.endswith(f"has been asked to yield (workload 12), {strange}")


def test_what_is_wrong_is_told_once():
    """Where an alert tells it above, the table has its name alone; to who gets no such alert it tells why."""
    sick = device(
        0, condition=Condition.FAULTY, condition_detail="the driver reported Xid 79", cordoned=True, workloads=(12,)
    )
    work = workload(12, state=State.ACTIVE, devices=(sick.uuid,), ends_at=NOW + HOUR)
    quiet = msgspec.structs.replace(lab(), devices=(sick,), workloads=(work,))
    alert = AlertView(key="k", since=NOW, text="GPU 0 is faulty: the driver reported Xid 79", device=sick.uuid)
    loud = msgspec.structs.replace(quiet, alerts=(alert,))

    shown = [Terminal(client=FakeClient(it), width=120)("status").out for it in (quiet, loud)]

    assert [it.count("Xid 79") for it in shown] == [1, 1]
    assert "you: job 12 until 15:05; faulty: the driver reported Xid 79; cordoned\n" in shown[0]
    assert "you: job 12 until 15:05; faulty; cordoned\n" in shown[1]


@pytest.mark.parametrize(("width", "shown"), [(80, "gtx-1080-ti-11gb"), (120, "rtx-2080-super-11gb")])
def test_a_class_is_not_cut_while_there_is_room(width, shown):
    """What is said of the holders keeps its room first."""
    gpu = device(0, device_class=shown)
    found = msgspec.structs.replace(lab(), devices=(gpu,), workloads=())

    assert f"  0  {shown}  " in Terminal(client=FakeClient(found), width=width)("status").out

    told = msgspec.structs.replace(gpu, condition=Condition.HOT, condition_detail="it shows 97 °C; " * 9)
    narrow = Terminal(client=FakeClient(msgspec.structs.replace(found, devices=(told,))))("status").out
    assert f"  0  {shown[:13]}…  " in narrow


USES = (
    UseView(
        pid=4711, kind=UseKind.HOLDER, foreign=False, memory_bytes=12 * GIB, name="python", user="ada", workload=12
    ),
    UseView(pid=815, kind=UseKind.KERNEL, foreign=True, memory_bytes=2 * GIB, name="python", user="bob", where="k-7"),
    UseView(pid=28290, kind=UseKind.UNKNOWN, foreign=True),
    UseView(pid=900, kind=UseKind.ASTRAY, foreign=True, name="train", user="eve", workload=9, where="GPU 2"),
)


def test_who_is_on_a_gpu_without_a_lease_is_listed():
    """`devices` names the foreign, `--uses` everybody; what is not known reads n/a (justanhduc/task-spooler#73)."""
    found = msgspec.structs.replace(lab(), devices=(device(0, uses=USES), device(1)))
    terminal = Terminal(client=FakeClient(found), width=120)

    few, all_of_them = terminal("devices").out, terminal("devices", "--uses").out

    assert "815  bob   python    2GiB  a kernel without a lease: k-7" in few
    assert "28290  n/a   n/a        n/a  whose it is cannot be told here" in few
    assert "900  eve   train      n/a  outside its reservation: workload 9, GPU 2" in few
    assert "4711" not in few
    assert "4711  ada   python   12GiB  holds it: workload 12" in all_of_them


def test_under_a_hub_a_process_is_named_by_owner_server_and_notebook():
    """The account tells little there; what a process says of itself is marked as that."""
    of_ana = {"user": "lab", "owner": "ana", "name": "python"}
    uses = (
        UseView(
            pid=1, kind=UseKind.KERNEL, foreign=True, where="kernel 3f", server="big", notebook="a.ipynb", **of_ana
        ),
        UseView(pid=2, kind=UseKind.USER, foreign=True, server="", **of_ana),
        UseView(pid=3, kind=UseKind.USER, foreign=True, user="lab", name="python", claim="ben, server b\x1b[2J"),
        UseView(pid=4, kind=UseKind.HOLDER, foreign=False, workload=9, server="big", **of_ana),
    )
    found = msgspec.structs.replace(lab(), devices=(device(0, uses=uses),))

    lines = Terminal(client=FakeClient(found), width=120)("devices", "--uses").out.splitlines()

    assert [re.split(r"  +", line.strip())[1:] for line in lines[-4:]] == [
        ["1", "ana", "python", "n/a", "a kernel without a lease: kernel 3f, server big, notebook a.ipynb"],
        ["2", "ana", "python", "n/a", "without a lease"],
        ["3", "lab", "python", "n/a", "without a lease: by its own word of ben, server b\\x1b[2J"],
        ["4", "ana", "python", "n/a", "holds it: workload 9, server big"],
    ]


def test_names_of_processes_are_only_shown():
    """A process may call itself anything."""
    use = UseView(pid=5, kind=UseKind.USER, foreign=True, name="\x1b[31mbad\x1b[0m", user="e\nve")
    found = msgspec.structs.replace(lab(), devices=(device(0, uses=(use,), note="\x1b[2J"),))

    for command in ("devices", "status"):
        assert "\x1b" not in Terminal(client=FakeClient(found))(command).out


def test_without_processes_uses_says_so():
    """Silence would look as if nobody had looked."""
    assert "Nobody is on the GPUs, as far as" in Terminal()("devices", "--uses").out


def test_alerts_are_shown_once():
    """What somebody should know stands on top, and a warning that says the same is not repeated."""
    alerts = tuple(AlertView(key=key, since=NOW, text=f"{key} is lost") for key in ("GPU 2", "GPU 3"))
    found = msgspec.structs.replace(lab(), alerts=alerts, warnings=("GPU 2 is lost",))

    lines = Terminal(client=FakeClient(found))("status").out.splitlines()

    assert lines[1:3] == ["! GPU 2 is lost.", "! GPU 3 is lost."]
    assert lines[3] == ""


@pytest.mark.parametrize(
    ("isolation", "said"),
    [
        (IsolationView(enforced=True, by="cgroup v2"), "isolation enforced (cgroup v2)"),
        (IsolationView(enforced=False, detail="not root"), "isolation advisory"),
    ],
)
def test_the_badge_of_isolation(isolation, said):
    """Enforced only where the probe says so; simulated GPUs have nothing to keep apart, so they have no badge."""
    found = msgspec.structs.replace(lab(), isolation=isolation)

    assert badge(isolation) == said
    assert said in Terminal(client=FakeClient(found))("status").out
    assert "isolation" not in Terminal(client=FakeClient(msgspec.structs.replace(found, simulated=True)))("status").out


def test_nothing_that_is_not_known_reads_zero():
    """A MIG device without readings has n/a for each, and its card too."""
    card = CardView(uuid=CARD.uuid, index=0, name="GPU")
    unread = slice_of(CARD, 0, memory_total_bytes=None, memory_used_bytes=None)
    found = split_lab(devices=(unread,), cards=(card,), workloads=())

    lines = Terminal(client=FakeClient(found))("status").out.splitlines()

    rows = [line for line in lines if line.startswith(("  0 ", "0:0"))]
    assert [row.count("n/a") for row in rows] == [2, 2]
    assert (memory_text(card), memory_text(unread)) == ("n/a", "n/a")


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("command", ["status", "devices", "devices --uses"])
def test_narrow_terminals_hold(command, width):
    """No line is wider than the terminal, with everything that there can be."""
    found = split_lab(
        devices=(device(1, uses=USES, condition=Condition.FOREIGN, note="Drives a display."), slice_of(CARD, 0)),
        isolation=IsolationView(enforced=True, by="bubblewrap"),
        alerts=(AlertView(key="k", since=NOW, text="GPU 1 is used without a lease " * 4),),
    )

    lines = Terminal(client=FakeClient(found), tty=True, width=width)(*command.split()).out.splitlines()

    assert max(map(cell_len, lines)) <= width


def test_a_kind_without_a_name_is_still_a_workload():
    """A workload of another that may not be seen is called that, on a shared device too."""
    gpu = device(0, memory_leased_bytes=GIB, workloads=(9,), holders=())
    it = workload(9, kind=Kind.RESERVATION, owner=None, is_mine=False)

    assert held_by_text(gpu, {9: it}, NOW).plain == "1 of 80GiB leased, by reservation 9"


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("reserve --on 0:2", ("MIG-2bbbbbbb-0000-5000-8000-000000000002",)),
        ("reserve 2 --on 1 --on 0:0", (device(1).uuid, "MIG-0bbbbbbb-0000-5000-8000-000000000000")),
        ("submit --on 1 -- true", (device(1).uuid,)),
        ("submit -- true", ()),
    ],
)
def test_on_places_by_hand(command, asked):
    """A GPU is named as it is read; the ask has its UUID."""
    terminal = Terminal(client=FakeClient(split_lab()))

    assert terminal(*command.split()).code == 0
    assert [call[1].ask.on for call in terminal.client.calls if call[0] == "submit"] == [asked]


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("reserve --on 0 --on 3", 2),
        ("reserve --on 0 --on 0", 1),
        ("reserve 1 --on 0 --on 3", 1),
        ("submit --on 0 --on 3 -- true", 2),
        ("submit --gpus 1 --on 0 --on 3 -- true", 1),
        ("submit --gpus 0 -- true", 0),
        ("submit -- true", 1),
        ("reserve", 1),
    ],
)
def test_who_names_gpus_wants_all_of_them(command, count):
    """One of several is what somebody gets who says the number."""
    terminal = Terminal()

    assert terminal(*command.split()).code == 0
    assert [call[1].ask.devices for call in terminal.client.calls if call[0] == "submit"] == [count]


@pytest.mark.parametrize("number", ["5", "0.5", " +20 "])
@pytest.mark.parametrize("command", ["reserve --memory", "reserve --min-free", "submit --min-free"])
def test_an_amount_of_memory_says_its_unit(command, number):
    """Nobody means 5 bytes; as with times a bare number is refused, with what was meant."""
    terminal = Terminal()

    result = terminal(*command.split(), number, *(["--", "true"] if command.startswith("submit") else []))

    assert result.code == InvalidAsk.exit_code
    assert "has no unit." in result.err
    bare = number.strip().removeprefix("+")
    assert f"Say {bare}GiB, or {bare}MiB." in result.err
    assert not any(call[0] == "submit" for call in terminal.client.calls)


@pytest.mark.parametrize(("name", "said"), [("9", "there is no GPU '9'"), ("0", "GPU 0 is split into MIG devices")])
def test_on_nothing_is_refused_before_anything_is_asked(name, said):
    """A split GPU is none, and the refusal names its parts."""
    terminal = Terminal(client=FakeClient(split_lab()))

    result = terminal("reserve", "--on", name)

    assert result.code == 4
    assert said.lower() in result.err.lower()
    assert not any(call[0] == "submit" for call in terminal.client.calls)
