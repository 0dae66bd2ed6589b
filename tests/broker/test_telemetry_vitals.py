"""What cards say of their own health, and boards that share the machine's memory."""

import pytest

from jupyter_gpu.broker.telemetry.clear import condition_of
from jupyter_gpu.model import Condition, Vitals
from tests.broker.fake_nvml import (
    LOST,
    MIB,
    NO_FUNCTION,
    NO_PERMISSION,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    Card,
    opened,
    process,
    read,
)

WELL = Vitals(
    compute_mode="default",
    slowdown_celsius=90,
    ecc_uncorrected=0,
    repair_pending=False,
    repair_failed=False,
    recovery_action="none",
    drives_display=False,
)


def vitals(**answers):
    """Read those of a card that answers so."""
    card = Card(0, **answers)
    source, _, _ = opened(card)
    return read(source, card).vitals


@pytest.mark.parametrize(
    ("answers", "field", "wanted"),
    [
        ({"mode": 3}, "compute_mode", "exclusive-process"),
        ({"mode": 1}, "compute_mode", "exclusive-process"),
        ({"mode": 2}, "compute_mode", "prohibited"),
        ({"mode": 9}, "compute_mode", None),
        # Idle, clocks that somebody set, the power cap: no fault.
        ({"reasons": 0x1 | 0x2 | 0x4 | 0x10 | 0x100}, "slowed_by", ()),
        ({"reasons": 0x40 | 0x08}, "slowed_by", ("hw-thermal",)),
        ({"reasons": 0x20 | 0x04}, "slowed_by", ("sw-thermal",)),
        ({"reasons": 0x80 | 0x08}, "slowed_by", ("power-brake",)),
        ({"reasons": 0x08}, "slowed_by", ("hw-slowdown",)),
        ({"slowdown": 2**32 - 1}, "slowdown_celsius", None),
        ({"ecc": 2}, "ecc_uncorrected", 2),
        ({"ecc": 2**64 - 1}, "ecc_uncorrected", None),
        ({"rows": (3, 1, 1, 0)}, "repair_pending", True),
        ({"rows": (3, 1, 0, 1)}, "repair_failed", True),
        ({"recovery": 1}, "recovery_action", "reset"),
        ({"recovery": 2}, "recovery_action", "reboot"),
        ({"recovery": 3}, "recovery_action", "drain-p2p"),
        ({"recovery": 4}, "recovery_action", "drain-and-reset"),
        ({"recovery": 77}, "recovery_action", None),
        ({"display": 1}, "drives_display", True),
    ],
)
def test_what_a_card_says_of_itself(answers, field, wanted):
    """Each figure under our names; what is no fault is left out."""
    found = vitals(**answers)

    assert getattr(found, field) == wanted
    assert {name for name in Vitals.__struct_fields__ if getattr(found, name) != getattr(WELL, name)} <= (
        {field} if wanted != getattr(WELL, field) else set()
    )


CALLS = {
    "ComputeMode": {"compute_mode"},
    "CurrentClocksEventReasons": set(),  # the older name is asked then
    "TemperatureThreshold": {"slowdown_celsius"},
    "TotalEccErrors": {"ecc_uncorrected"},
    "RemappedRows": {"repair_failed"},  # pending is also what older cards say of their pages
    "FieldValues": {"recovery_action"},
    "DisplayActive": {"drives_display"},
}


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_FUNCTION, NO_PERMISSION, TIMEOUT, UNKNOWN])
@pytest.mark.parametrize("call", CALLS)
def test_each_is_read_by_itself(call, error):
    """A consumer card has no ECC, a vGPU none of it: "n/a" there, and nowhere else."""
    found = vitals(errors={call: error}, reasons=0x20)

    assert found.slowed_by == ("sw-thermal",)
    assert {name for name in Vitals.__struct_fields__ if getattr(found, name) is None} == CALLS[call]


def test_a_vgpu_is_read_without_most_of_it():
    """Nothing that it lacks makes it unreadable."""
    lacking = [*CALLS, "CurrentClocksThrottleReasons", "RetiredPagesPendingStatus", "PowerUsage", "Temperature"]
    card = Card(0, name="GRID A100-10C", errors=dict.fromkeys(lacking, NOT_SUPPORTED))
    source, _, _ = opened(card)

    reading = read(source, card)

    assert reading.vitals == Vitals()
    assert (reading.fault, reading.memory_used_bytes) == (None, 8 * MIB)


def test_older_cards_retire_pages():
    """Before rows could be remapped."""
    assert vitals(errors={"RemappedRows": NOT_SUPPORTED}, pages=1).repair_pending is True
    assert vitals(errors={"RemappedRows": NOT_SUPPORTED}, pages=0).repair_pending is False


def test_they_are_asked_every_ten_seconds_and_carried_over():
    """What changes slowly costs little; after a fault nothing old is shown."""
    card = Card(0)
    source, nvml, clock = opened(card)
    assert read(source, card).vitals == WELL

    card.ecc = 1
    nvml.calls.clear()
    clock.now += 9.9
    assert read(source, card).vitals == WELL
    assert "TotalEccErrors" not in nvml.calls
    clock.now += 0.1
    assert read(source, card).vitals.ecc_uncorrected == 1

    card.errors = {"PowerUsage": LOST}
    assert condition_of(read(source, card)) is Condition.LOST
    card.errors, card.ecc = {}, 0
    assert read(source, card).vitals == WELL


def test_a_card_that_is_lost_says_so_by_any_call():
    """It is no "n/a"."""
    card = Card(0, errors={"TotalEccErrors": LOST})
    source, _, _ = opened(card)

    assert condition_of(read(source, card)) is Condition.LOST


@pytest.mark.parametrize(("mode", "exclusive"), [(0, False), (1, True), (2, False), (3, True)])
def test_an_exclusive_card_is_known_as_such(mode, exclusive):
    """CUDA lets one process in, so its memory cannot be shared (pytorch/pytorch#3871); it may be changed any time."""
    card = Card(0)
    source, _, _ = opened(card)

    card.mode = mode

    assert [it.exclusive for it in source.devices()] == [exclusive]


# --- memory that is the machine's (wookayin/gpustat#179) ------------------------------------------

NO_MEMORY = {"MemoryInfo": NOT_SUPPORTED, "MemoryInfo_v2": NOT_SUPPORTED}
MEMINFO = (
    "MemTotal:       127600748 kB\nMemFree:        99999999 kB\nMemAvailable:   118566368 kB\nHugePages_Total: 0\n"
)


def spark(folder, **answers):
    """Make a board with a processor and a GPU that share one memory."""
    (folder / "meminfo").write_text(MEMINFO)
    card = Card(0, **{"name": "NVIDIA GB10", "errors": dict(NO_MEMORY)} | answers)
    source, _, _ = opened(card, proc=folder)
    return card, source


def test_a_unified_board_shows_the_machines_memory(tmp_path):
    """Used is what its processes use, free what the machine has left; what all others use is neither."""
    card, source = spark(tmp_path, compute=[process(7, 43 * MIB)], graphics=[process(8, 18 * MIB)])

    (device,) = source.devices()
    reading = read(source, card)

    assert (device.memory_bytes, device.shares_host_memory, device.device_class) == (None, True, "gb10")
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (61 * MIB, 127600748 << 10)
    assert reading.memory_free_bytes == 118566368 << 10
    assert reading.utilisation_percent == 40

    card.compute, card.graphics = [], []
    assert read(source, card).memory_used_bytes == 0


def test_a_sum_skips_what_is_not_known(tmp_path):
    """And is not known itself where nothing is (pytorch/pytorch#64491)."""
    card, source = spark(tmp_path, compute=[process(7, 43 * MIB), process(8, None)])
    assert read(source, card).memory_used_bytes == 43 * MIB

    card.compute = [process(8, None)]
    assert read(source, card).memory_used_bytes is None

    card.errors |= {"ComputeRunningProcesses": NOT_SUPPORTED, "ComputeRunningProcesses_v2": NOT_SUPPORTED}
    reading = read(source, card)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (None, 127600748 << 10)


def test_without_the_machines_figures_there_are_none(tmp_path):
    """A /proc that lacks them blanks nothing else."""
    card, source = spark(tmp_path, compute=[process(7, 43 * MIB)])
    (tmp_path / "meminfo").unlink()

    reading = read(source, card)

    assert (reading.memory_used_bytes, reading.memory_total_bytes, reading.fault) == (43 * MIB, None, None)


@pytest.mark.parametrize(
    ("answers", "shares"),
    [
        ({}, True),
        ({"name": "NVIDIA Thing", "addressing": 2}, True),  # ATS: the processor's page tables
        ({"name": "Orin (nvgpu)"}, True),
        ({"name": "NVIDIA Thing", "addressing": 1}, False),
        ({"name": "NVIDIA L4", "errors": NO_MEMORY | {"AddressingMode": NO_FUNCTION}}, False),
        ({"errors": dict.fromkeys(NO_MEMORY, NO_PERMISSION)}, False),
        ({"errors": dict.fromkeys(NO_MEMORY, NO_FUNCTION)}, False),
        # A GH200 is addressed by the processor too, and has memory of its own.
        ({"name": "NVIDIA GH200 480GB", "addressing": 2, "errors": {}}, False),
    ],
)
def test_an_ordinary_board_is_not_taken_for_one(tmp_path, answers, shares):
    """One that only does not give its figures has none, instead of the machine's."""
    card, source = spark(tmp_path, **answers)

    (device,) = source.devices()
    reading = read(source, card)

    assert device.shares_host_memory is shares
    assert (reading.memory_total_bytes == 127600748 << 10) is shares
