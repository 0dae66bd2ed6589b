"""Real cards through NVML, with a stand-in for pynvml: each field and each card by itself, faults as sentences."""

import os
from types import SimpleNamespace

import pytest

from jupyter_gpu.broker.telemetry.clear import condition_of
from jupyter_gpu.broker.telemetry.nvml import NO_PROCESSES, OLD_MEMORY, NvmlSource
from jupyter_gpu.model import Condition
from tests.broker.fake_nvml import (
    ALL_ONES,
    CALLS,
    GIB,
    LOST,
    MIB,
    MISMATCH,
    NO_FUNCTION,
    NO_LIBRARY,
    NOT_LOADED,
    NOT_SUPPORTED,
    TIMEOUT,
    UNINITIALIZED,
    UNKNOWN,
    Card,
    Clock,
    FakeMismatchError,
    FakeNvml,
    opened,
    process,
    read,
)


def test_a_card_and_its_reading():
    """Everything that NVML offers, under our names and in our units."""
    card = Card(0, compute=[process(9, 2 * GIB), process(7, GIB)])
    source, _, _ = opened(card)

    (device,) = source.devices()
    reading = read(source, card)

    assert (device.uuid, device.index, device.name) == (card.uuid, 0, "NVIDIA L4")
    assert (device.device_class, device.memory_bytes, device.node) == ("l4-24gb", 23034 * MIB, "node")
    assert (device.link_group, device.simulated) == (None, False)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (8 * MIB, 23034 * MIB)
    assert (reading.utilisation_percent, reading.temperature_celsius, reading.power_watts) == (40, 55, 71.5)
    assert reading.processes == ((7, GIB), (9, 2 * GIB))
    assert reading.fault is None


@pytest.mark.parametrize("text", [str, str.encode])
def test_names_are_bytes_or_text(text):
    """Both shapes occur in the field and give the same (rossumai/nvgpu#29)."""
    source, nvml, _ = opened(Card(0))
    nvml.text = text

    source = NvmlSource(nvml)

    (device,) = source.devices()
    assert device.uuid.startswith("GPU-")
    assert device.name == "NVIDIA L4"


FIELDS = {
    "UtilizationRates": "utilisation_percent",
    "Temperature": "temperature_celsius",
    "PowerUsage": "power_watts",
    "ComputeRunningProcesses": "processes",
}


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_FUNCTION, 4, FakeMismatchError(), TypeError("None / int")])
@pytest.mark.parametrize("call", FIELDS)
def test_what_a_card_does_not_offer_is_none_and_the_rest_is_read(call, error):
    """One field that is missing blanks nothing else (rapidsai/jupyterlab-nvdashboard#114)."""
    card = Card(0, errors={call: error, "ComputeRunningProcesses_v2": NO_FUNCTION})
    source, _, _ = opened(card)

    reading = read(source, card)

    assert reading.fault is None
    assert {name for name in FIELDS.values() if getattr(reading, name) is None} == {FIELDS[call]}


@pytest.mark.parametrize(
    ("errors", "seen"),
    [
        ({}, (8 * MIB, 23034 * MIB, 692 * MIB)),
        ({"MemoryInfo_v2": NO_FUNCTION}, (700 * MIB, 24 * GIB, None)),
        ({"MemoryInfo_v2": NOT_SUPPORTED, "MemoryInfo": NOT_SUPPORTED}, (None, None, None)),
    ],
)
def test_the_newer_memory_call_comes_first(errors, seen):
    """The older one counts the driver's own memory as used, so an idle board looks busy (XuehaiPan/nvitop#13)."""
    card = Card(0, errors=errors)
    source, _, _ = opened(card)

    reading = read(source, card)

    assert (reading.memory_used_bytes, reading.memory_total_bytes, reading.memory_reserved_bytes) == seen
    assert reading.fault is None


def test_used_free_and_reserved_make_up_the_total():
    """The vendor's tool says 8 MiB where the older call says 912 (wookayin/gpustat#141)."""
    total = 80 * GIB
    card = Card(
        0,
        v1=SimpleNamespace(total=total, used=912 * MIB),
        v2=SimpleNamespace(total=total, used=8 * MIB, reserved=904 * MIB),
    )
    source, _, _ = opened(card)

    reading = read(source, card)

    assert (reading.memory_used_bytes, reading.memory_reserved_bytes) == (8 * MIB, 904 * MIB)
    assert reading.memory_free_bytes == total - 912 * MIB
    assert OLD_MEMORY not in source.notes

    card.v2 = SimpleNamespace(total=total, used=8 * MIB, reserved=total)
    assert read(source, card).memory_reserved_bytes is None


def test_bindings_without_the_newer_memory_call_do():
    """Older releases know only the older one."""
    card = Card(0)
    nvml = FakeNvml(card)
    nvml.nvmlMemory_v2 = None

    assert NvmlSource(nvml).read([card.uuid])[0].memory_used_bytes == 700 * MIB


def test_numbers_that_cannot_be_true_are_none():
    """A reading that lies is worse than none: the planner would believe it."""
    lying = Card(
        0,
        v2=SimpleNamespace(total=GIB, used=2 * GIB),
        utilisation=101,
        celsius=2**32 - 1,
        milliwatts=2**32 - 1,
        compute=[process(7, ALL_ONES), process(8, None)],
    )
    none = Card(1, v2=SimpleNamespace(total=0, used=0), celsius=0, milliwatts=0)
    source, _, _ = opened(lying, none)

    first, second = read(source, lying, none)

    assert (first.memory_used_bytes, first.memory_total_bytes) == (None, GIB)
    assert (first.utilisation_percent, first.temperature_celsius, first.power_watts) == (None, None, None)
    assert first.processes == ((7, None), (8, None))
    assert (second.memory_used_bytes, second.memory_total_bytes) == (None, None)
    assert (second.temperature_celsius, second.power_watts) == (None, None)


def test_a_process_is_listed_once():
    """Compute, graphics and MPS lists overlap; a process that only draws is on the card too."""
    card = Card(
        0, compute=[process(7, 5), process(8, None)], graphics=[process(7, 9), process(1, 3)], mps=[process(8, 4)]
    )
    source, _, _ = opened(card)

    reading = read(source, card)
    assert reading.processes == ((1, 3), (7, 9), (8, 4))
    assert reading.drawing_pids == (1,)

    card.errors = {"GraphicsRunningProcesses": UNKNOWN, "MPSComputeRunningProcesses": NOT_SUPPORTED}
    assert read(source, card).processes == ((7, 5), (8, None))


def test_a_display_only_draws():
    """gnome-shell is in the graphics list and in no other (russellb/canhazgpu#5); MPS clients compute."""
    card = Card(0, graphics=[process(5, 150 * MIB), process(6, MIB)], mps=[process(6, MIB)])
    source, _, _ = opened(card)

    assert read(source, card).processes == ((5, 150 * MIB), (6, MIB))
    assert read(source, card).drawing_pids == (5,)


def test_a_list_that_grew_while_it_was_asked_is_asked_again():
    """The bindings ask for its length first; a process that starts in between makes it too long."""
    card = Card(0, compute=[process(7, 5)])
    source, nvml, _ = opened(card)
    answers = [FakeNvml.NVMLError(7)]
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda _: nvml._fail(answers.pop() if answers else None) or card.compute

    assert read(source, card).processes == ((7, 5),)


def test_what_a_driver_does_not_know_is_asked_once():
    """Not once a second, and there is one note for the log (gpuopenanalytics/pynvml#43)."""
    lacking = {"ComputeRunningProcesses": FakeMismatchError(), "ComputeRunningProcesses_v2": NO_FUNCTION}
    card = Card(0, errors=lacking | {"MemoryInfo_v2": NO_FUNCTION, "DisplayActive": NO_FUNCTION})
    source, nvml, clock = opened(card)
    assert NO_PROCESSES not in source.notes

    for _ in range(5):
        clock.now += 10
        assert read(source, card).processes is None

    asked = [nvml.calls.count(it) for it in (*lacking, "MemoryInfo_v2", "DisplayActive")]
    assert asked == [1, 1, 0, 1]  # memory was asked by the inventory already
    assert {NO_PROCESSES, OLD_MEMORY} <= set(source.notes)
    assert read(source, card).fault is None

    nvml.gone = MISMATCH
    read(source, card)
    nvml.gone, card.errors = None, {}
    clock.now += 10
    assert read(source, card).processes == ()
    assert not {NO_PROCESSES, OLD_MEMORY} & set(source.notes)


def test_an_older_driver_lists_processes_by_the_older_call():
    """Newer bindings on an older driver raise what is no NVMLError (gpuopenanalytics/pynvml#43)."""
    card = Card(0, compute=[process(7, 5)], errors={"ComputeRunningProcesses": FakeMismatchError()})
    source, _, _ = opened(card)

    assert read(source, card).processes == ((7, 5),)


def test_a_lost_card_is_its_own_fault():
    """One of four has fallen off the bus: it is lost, with a remedy, and the others are read (rossumai/nvgpu#6)."""
    cards = [Card(index) for index in range(4)]
    source, nvml, _ = opened(*cards)
    cards[2].errors = {"*": LOST}

    readings = read(source, *cards)

    assert [condition_of(it) for it in readings] == [None, None, Condition.LOST, None]
    assert "dmesg" in readings[2].fault
    assert [device.index for device in source.devices()] == [0, 1, 3]
    assert source.fault is None
    assert "Shutdown" not in nvml.calls

    cards[2].errors = {}
    assert read(source, cards[2]).fault is None
    assert len(source.devices()) == 4


def test_a_card_that_only_fails_just_now_is_not_gone():
    """It stays in the inventory as it was known; a reading that cannot tell says so and is not "empty"."""
    card = Card(0)
    source, _, _ = opened(card)
    before = source.devices()

    card.errors = {"HandleByIndex": TIMEOUT, "ComputeRunningProcesses": TIMEOUT}
    assert source.devices() == before
    assert condition_of(read(source, card)) is Condition.UNREADABLE

    card.errors = {"MigMode": TIMEOUT}
    assert source.devices() == before


def test_unknown_error_for_the_handle_is_a_lost_card():
    """That is how drivers say it while they still count the card (leptonai/gpud#810)."""
    cards = [Card(0), Card(1)]
    source, _, _ = opened(*cards)
    cards[0].errors = {"*": UNKNOWN}

    assert [device.index for device in source.devices()] == [1]
    read(source, cards[0])  # the handle that was known is of no use any more
    assert condition_of(read(source, cards[0])) is Condition.LOST


def test_a_lost_card_that_still_has_a_handle_does_not_seem_to_be_back():
    """What the inventory lists is there: a card that answers nothing but its UUID is not."""
    card = Card(0)
    source, _, _ = opened(card)
    card.errors = {"MemoryInfo_v2": LOST}

    assert source.devices() == ()
    assert condition_of(read(source, card)) is Condition.LOST


def test_a_device_that_nobody_knows_is_lost():
    """A lease may name a card that was taken out while the broker was down."""
    source, _, _ = opened(Card(0))

    (reading,) = source.read(["GPU-taken-out"])

    assert condition_of(reading) is Condition.LOST


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (NO_LIBRARY, "Install the driver"),
        (NOT_LOADED, "modprobe nvidia"),
        (MISMATCH, "Reboot"),
        (4, "/dev/nvidia"),
        (UNKNOWN, "nvidia-smi"),
    ],
)
def test_without_a_driver_there_is_a_sentence(code, said):
    """Nothing is raised; the inventory is unknown, not empty, and the sentence has a remedy."""
    nvml = FakeNvml(Card(0))
    nvml.init_error = code
    source = NvmlSource(nvml)

    assert source.devices() is None
    assert said in source.fault
    (reading,) = source.read(["GPU-x"])
    assert reading.fault == source.fault
    assert condition_of(reading) is Condition.UNREADABLE


def test_a_driver_without_cards_is_an_empty_inventory():
    """It runs and lists none: known, and no fault."""
    source, _, _ = opened()

    assert source.devices() == ()
    assert source.fault is None


def test_it_is_opened_again_after_a_while():
    """Not at every poll: opening may take long, and opening and closing leaks (lablup/all-smi#118)."""
    nvml, clock = FakeNvml(Card(0)), Clock()
    nvml.init_error = NOT_LOADED
    source = NvmlSource(nvml, retry_seconds=10, clock=clock)
    for _ in range(5):
        source.devices()
    assert nvml.calls == ["Init"]

    nvml.init_error = None
    clock.now += 10

    assert len(source.devices()) == 1
    assert source.fault is None
    assert nvml.calls.count("Init") == 2


@pytest.mark.parametrize(("code", "said"), [(MISMATCH, "Reboot"), (NOT_LOADED, "modprobe"), (UNINITIALIZED, "NVML")])
def test_a_driver_that_goes_under_us_comes_back(code, said):
    """All readings say why; the inventory is unknown, so nothing is lost; then all goes on by itself."""
    cards = [Card(0), Card(1)]
    source, nvml, clock = opened(*cards)
    nvml.gone = code

    readings = read(source, *cards)

    assert {condition_of(it) for it in readings} == {Condition.UNREADABLE}
    assert all(said in it.fault for it in readings)
    assert source.devices() is None
    assert nvml.calls.count("Shutdown") == 1

    nvml.gone = None
    assert source.devices() is None
    clock.now += 10
    assert len(source.devices()) == 2
    assert [it.fault for it in read(source, *cards)] == [None, None]


def test_an_inventory_that_fails_in_an_odd_way_is_unknown():
    """A timeout of the count, or bindings without a call: a sentence, and over with the next success."""
    source, nvml, _ = opened(Card(0))
    nvml.gone = TIMEOUT
    assert source.devices() is None
    assert "error 10" in source.fault

    nvml.gone = None
    assert len(source.devices()) == 1
    assert source.fault is None


def test_link_groups_are_what_nvlink_joins():
    """By the driver's verdict on each pair, through others too; a pair that fails to answer is what it was."""
    cards = [Card(index) for index in range(5)]
    cards[0].links = (cards[2],)
    cards[2].links = (cards[3],)
    source, _, _ = opened(*cards)

    before = source.devices()

    assert [it.link_group for it in before] == ["nvlink-0", None, "nvlink-0", "nvlink-0", None]
    for card in cards:
        card.errors = {"P2PStatus": UNKNOWN}
    assert source.devices() == before
    for card in cards:
        card.errors = {"P2PStatus": NOT_SUPPORTED}
    assert {it.link_group for it in source.devices()} == {None}


def test_a_poll_makes_few_calls_and_opens_nothing():
    """Eight per card, with what is asked every ten seconds: the numbers cost the driver's time."""
    cards = [Card(index, compute=[process(index, 1)]) for index in range(8)]
    source, nvml, clock = opened(*cards)
    source.events()
    nvml.calls.clear()

    for _ in range(100):
        clock.now += 1
        source.events()
        read(source, *cards)

    assert len(nvml.calls) <= 100 * (8 * 8 + 1)
    assert not {"Init", "Count", "HandleByIndex", "HandleByUUID", "P2PStatus", "MigMode"} & set(nvml.calls)


def test_another_process_opens_it_anew(monkeypatch):
    """A fork inherits the flag and not the library's state: it must never see "no GPUs" (dask/distributed#4873)."""
    card = Card(0)
    source, nvml, _ = opened(card)
    here = os.getpid()

    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    assert len(source.devices()) == 1
    assert nvml.calls.count("Init") == 1
    assert read(source, card).fault is None
    assert nvml.calls.count("Init") == 1


def test_what_reads_the_cards_is_told():
    """Versions, and the file of the bindings: an older distribution may shadow it (rossumai/nvgpu#29)."""
    nvml = FakeNvml(Card(0))
    nvml.init_error = NOT_LOADED
    nvml.__file__ = "/x/pynvml.py"
    clock = Clock()
    source = NvmlSource(nvml, clock=clock)
    assert source.driver is None
    source.devices()
    assert (source.driver.driver, source.driver.bindings) == (None, "/x/pynvml.py")

    nvml.init_error = None
    clock.now += 10
    source.devices()

    told = source.driver
    assert (told.driver, told.nvml, told.cuda) == ("570.86.15", "12.570.86.15", "12.8")


def test_bindings_are_named_with_their_distribution():
    """The real ones."""
    source = NvmlSource()

    source.devices()

    assert "pynvml.py (nvidia-ml-py " in source.driver.bindings


def test_a_card_that_moves_to_another_index_is_one_card():
    """Numbers may change when the driver is loaded anew: what does not answer is not shown at its old one too."""
    cards = [Card(0), Card(1)]
    source, nvml, _ = opened(*cards)

    nvml.cards = [cards[1], cards[0]]
    cards[0].errors = {"MigMode": TIMEOUT}

    assert [(it.uuid, it.index) for it in source.devices()] == [(cards[1].uuid, 0)]
    cards[0].errors = {}
    assert [(it.uuid, it.index) for it in source.devices()] == [(cards[1].uuid, 0), (cards[0].uuid, 1)]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ({"*": LOST}, "dmesg"),
        ({"HandleByIndex": TIMEOUT}, "error 10"),
        ({"HandleByIndex": 8}, "error 8"),  # a power cable that is missing
        ({"MigMode": TIMEOUT}, "error 10"),
    ],
)
def test_a_card_that_is_counted_and_not_there_is_noted(errors, said):
    """It was never known, so nobody misses it; the note says why it is not listed."""
    source, _, _ = opened(Card(0), Card(1, errors=errors))

    assert len(source.devices()) == 1
    (note,) = source.notes
    assert "GPU 1" in note
    assert said in note


def test_it_says_whom_it_asks():
    """So that a call that hangs can be named."""
    card = Card(0)
    source, nvml, _ = opened(card)
    seen = []
    nvml.nvmlDeviceGetPowerUsage = lambda _: seen.append(source.busy_with)

    read(source, card)

    assert seen == [card.uuid]
    assert source.busy_with is None


def test_the_real_bindings_have_what_we_call():
    """Without a driver pynvml still imports, and the source says what is missing instead of raising."""
    import pynvml

    source = NvmlSource()
    found = source.devices()

    assert (found is None) == (source.fault is not None)
    for name in (*CALLS, *(name for name in vars(FakeNvml) if name.lower().startswith("nvml"))):
        assert hasattr(pynvml, name), name
