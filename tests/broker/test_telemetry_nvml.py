"""Real cards through NVML, with a stand-in for pynvml: each field and each card by itself, faults as sentences."""

from functools import partial
from types import SimpleNamespace

import pytest

from jupyter_gpu.broker.telemetry.clear import condition_of
from jupyter_gpu.broker.telemetry.nvml import NvmlSource
from jupyter_gpu.model import Condition

MIB, GIB = 1 << 20, 1 << 30
NOT_SUPPORTED, NOT_FOUND, NOT_LOADED, NO_LIBRARY, NO_FUNCTION = 3, 6, 9, 12, 13
TIMEOUT, LOST, MISMATCH, UNINITIALIZED, UNKNOWN = 10, 15, 18, 1, 999
ALL_ONES = 2**64 - 1


class FakeNvmlError(Exception):
    """pynvml.NVMLError: the number is what counts."""

    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


class FakeMismatchError(Exception):
    """pynvml.NVMLLibraryMismatchError, which is no NVMLError."""


def process(pid, used):
    """Make an entry of a list of processes."""
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


class Card:
    """One card. An answer that is an exception is raised, one that is a number in `errors` is an NVML error."""

    def __init__(self, index, **answers):
        self.uuid = f"GPU-{index:08d}-0000-0000-0000-000000000000"
        self.name = "NVIDIA L4"
        self.v1 = SimpleNamespace(total=24 * GIB, used=700 * MIB)
        self.v2 = SimpleNamespace(total=23034 * MIB, used=8 * MIB)
        self.utilisation, self.celsius, self.milliwatts = 40, 55, 71_500
        self.compute, self.graphics, self.mps = [], [], []
        self.mig, self.slots = (0, 0), {}
        self.links = ()
        self.errors = {}
        vars(self).update(answers)


def _handle_by_uuid(nvml, uuid):
    everybody = [*nvml.cards, *(it for card in nvml.cards for it in card.slots.values())]
    return _found(next((card for card in everybody if card.uuid == uuid), None))


def _found(card):
    if card is None:
        raise FakeNvmlError(NOT_FOUND)
    return card


CALLS = {
    "nvmlInit": lambda _: None,
    "nvmlShutdown": lambda _: None,
    "nvmlDeviceGetCount": lambda nvml: len(nvml.cards),
    "nvmlDeviceGetHandleByIndex": lambda nvml, index: nvml.cards[index],
    "nvmlDeviceGetHandleByUUID": _handle_by_uuid,
    "nvmlDeviceGetUUID": lambda nvml, card: nvml.text(card.uuid),
    "nvmlDeviceGetName": lambda nvml, card: nvml.text(card.name),
    "nvmlDeviceGetMemoryInfo": lambda _, card, version=None: card.v2 if version else card.v1,
    "nvmlDeviceGetUtilizationRates": lambda _, card: SimpleNamespace(gpu=card.utilisation),
    "nvmlDeviceGetTemperature": lambda _, card, _sensor: card.celsius,
    "nvmlDeviceGetPowerUsage": lambda _, card: card.milliwatts,
    "nvmlDeviceGetComputeRunningProcesses": lambda _, card: card.compute,
    "nvmlDeviceGetComputeRunningProcesses_v2": lambda _, card: card.compute,
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _, card: card.graphics,
    "nvmlDeviceGetMPSComputeRunningProcesses": lambda _, card: card.mps,
    "nvmlDeviceGetMigMode": lambda _, card: list(card.mig),
    "nvmlDeviceGetMaxMigDeviceCount": lambda _, _card: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda _, card, slot: _found(card.slots.get(slot)),
    "nvmlDeviceGetP2PStatus": lambda _, one, other, _what: 0 if other in one.links or one in other.links else 5,
}


class FakeNvml:
    """As much of pynvml as the source uses. Calls are counted, and fail, by their names without "nvmlDeviceGet"."""

    NVMLError = FakeNvmlError
    NVMLLibraryMismatchError = FakeMismatchError
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0
    nvmlMemory_v2 = 0x02000028  # noqa: N815 - its name in pynvml

    def __init__(self, *cards):
        self.cards = list(cards)
        self.init_error = None
        self.gone = None
        self.calls = []
        self.text = str

    def __getattr__(self, name):
        if name not in CALLS:
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name, *args):
        short = name.removeprefix("nvml").removeprefix("DeviceGet")
        if short == "MemoryInfo" and len(args) > 1:
            short = "MemoryInfo_v2"
        self.calls.append(short)
        self._fail(self.init_error if short == "Init" else self.gone)
        self._fail_as(short, args[0] if args else None)
        answer = CALLS[name](self, *args)
        self._fail_as(short, answer)  # a card that is looked up
        return answer

    def _fail_as(self, short, card):
        if isinstance(card, Card):
            self._fail(card.errors.get(short) or card.errors.get("*"))

    def _fail(self, error):
        if error:
            raise error if isinstance(error, Exception) else FakeNvmlError(error)


class Clock:
    """A monotonic clock that only the test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        """Tell the time."""
        return self.now


def opened(*cards):
    """Make a source over these cards that has listed them."""
    nvml, clock = FakeNvml(*cards), Clock()
    source = NvmlSource(nvml, node="node", retry_seconds=10, clock=clock)
    source.devices()
    nvml.calls.clear()
    return source, nvml, clock


def read(source, *cards):
    """Read these cards, or the only one."""
    readings = source.read([card.uuid for card in cards])
    return readings if len(cards) > 1 else readings[0]


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
        ({}, (8 * MIB, 23034 * MIB)),
        ({"MemoryInfo_v2": NO_FUNCTION}, (700 * MIB, 24 * GIB)),
        ({"MemoryInfo_v2": NOT_SUPPORTED, "MemoryInfo": NOT_SUPPORTED}, (None, None)),
    ],
)
def test_the_newer_memory_call_comes_first(errors, seen):
    """The older one counts the driver's own memory as used, so an idle board looks busy (XuehaiPan/nvitop#13)."""
    card = Card(0, errors=errors)
    source, _, _ = opened(card)

    reading = read(source, card)

    assert (reading.memory_used_bytes, reading.memory_total_bytes) == seen
    assert reading.fault is None


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

    assert read(source, card).processes == ((1, 3), (7, 9), (8, 4))

    card.errors = {"GraphicsRunningProcesses": UNKNOWN, "MPSComputeRunningProcesses": NOT_SUPPORTED}
    assert read(source, card).processes == ((7, 5), (8, None))


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


def test_a_gpu_in_mig_mode_is_no_device_and_its_mig_devices_are():
    """Holes in the numbering are no end of it; MIG devices have no utilisation (XuehaiPan/nvitop#5)."""
    slots = {
        slot: Card(
            0,
            uuid=f"MIG-{slot}",
            name="NVIDIA A100-SXM4-80GB MIG 3g.40gb",
            v2=SimpleNamespace(total=40192 * MIB, used=MIB),
            errors=dict.fromkeys(("UtilizationRates", "Temperature", "PowerUsage"), NOT_SUPPORTED),
        )
        for slot in (1, 4)
    }
    board = Card(0, name="NVIDIA A100-SXM4-80GB", mig=(1, 1), slots=slots)
    whole = Card(1, errors={"MigMode": NOT_SUPPORTED})
    source, _, _ = opened(board, whole)

    devices = source.devices()

    assert [(it.uuid, it.index) for it in devices] == [("MIG-1", 101), ("MIG-4", 104), (whole.uuid, 1)]
    assert {it.device_class for it in devices[:2]} == {"mig-3g.40gb"}
    reading = read(source, slots[4])
    assert (reading.memory_used_bytes, reading.utilisation_percent, reading.fault) == (MIB, None, None)


def test_a_handle_of_a_mig_device_is_not_trusted():
    """It dies with the device and may be another's then: that one's memory must not be taken for this one's."""
    mine = Card(0, uuid="MIG-mine")
    board = Card(0, mig=(1, 1), slots={0: mine})
    source, _, _ = opened(board)

    mine.uuid = "MIG-another"
    (reading,) = source.read(["MIG-mine"])

    assert condition_of(reading) is Condition.LOST
    assert reading.memory_used_bytes is None


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
    """Eight per card: what the numbers cost is the driver's time, and nothing is looked up twice."""
    cards = [Card(index, compute=[process(index, 1)]) for index in range(8)]
    source, nvml, _ = opened(*cards)

    for _ in range(100):
        read(source, *cards)

    assert len(nvml.calls) <= 100 * 8 * 8
    assert not {"Init", "Count", "HandleByIndex", "HandleByUUID", "P2PStatus", "MigMode"} & set(nvml.calls)


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
