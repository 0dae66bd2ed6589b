"""Split GPUs: the MIG devices are what can be leased, and their card shows what only a card has."""

from types import SimpleNamespace

import pytest

from jupyter_gpu.broker.telemetry.clear import condition_of
from jupyter_gpu.broker.telemetry.nodes import Nodes
from jupyter_gpu.model import Card as ModelCard
from jupyter_gpu.model import Condition
from tests.broker.fake_nvml import (
    GIB,
    LOST,
    MIB,
    MISMATCH,
    NO_FUNCTION,
    NOT_SUPPORTED,
    TIMEOUT,
    Card,
    opened,
    process,
    read,
)

NAME = "NVIDIA A100-SXM4-80GB"
ONLY_CARDS = dict.fromkeys(("UtilizationRates", "Temperature", "PowerUsage", "ComputeMode"), NOT_SUPPORTED)


def part(slot, **answers):
    """Make a MIG device 3g.40gb."""
    answers = {"errors": dict(ONLY_CARDS), "instance": slot, "part": 0} | answers
    return Card(
        0,
        **{
            "uuid": f"MIG-{slot}",
            "name": f"{NAME} MIG 3g.40gb",
            "v2": SimpleNamespace(total=40192 * MIB, used=MIB, reserved=0),
        }
        | answers,
    )


def split(*parts, index=0, **answers):
    """Make a GPU in MIG mode with these MIG devices, by their slots."""
    more = {"name": NAME, "mig": (1, 1), "v2": SimpleNamespace(total=80 * GIB, used=2 * MIB, reserved=600 * MIB)}
    return Card(index, **more | {"slots": {int(it.uuid[4:]): it for it in parts}} | answers)


def test_a_gpu_in_mig_mode_is_no_device_and_its_mig_devices_are():
    """Holes in the numbering are no end of it; MIG devices have no utilisation (XuehaiPan/nvitop#5)."""
    board, whole = split(part(1), part(4)), Card(1, errors={"MigMode": NOT_SUPPORTED})
    source, _, _ = opened(board, whole)

    devices = source.devices()

    assert [(it.uuid, it.index) for it in devices] == [("MIG-1", 101), ("MIG-4", 104), (whole.uuid, 1)]
    assert [it.title for it in devices] == ["GPU 0:1", "GPU 0:4", "GPU 1"]
    assert {it.device_class for it in devices[:2]} == {"mig-3g.40gb"}
    card = ModelCard(uuid=board.uuid, index=0, name=NAME, memory_bytes=80 * GIB)
    assert [it.card for it in devices] == [card, card, None]
    assert source.cards() == (card,)
    reading = read(source, board.slots[4])
    assert (reading.memory_used_bytes, reading.utilisation_percent, reading.fault) == (MIB, None, None)


def test_the_card_shows_what_only_a_card_has():
    """Its memory, temperature and power, and no utilisation: one field that is missing ends no row."""
    board = split(part(1), errors={"UtilizationRates": NOT_SUPPORTED}, ecc=3)
    source, nvml, _ = opened(board)

    reading = read(source, board)

    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (2 * MIB, 80 * GIB)
    assert (reading.temperature_celsius, reading.power_watts) == (55, 71.5)
    assert (reading.utilisation_percent, reading.fault) == (None, None)
    assert reading.vitals.ecc_uncorrected == 3
    # Of a MIG device nothing is asked that no driver answers, and its health is that of its card.
    nvml.calls.clear()
    assert read(source, board.slots[1]).vitals == reading.vitals
    assert not set(nvml.calls) & set(ONLY_CARDS)


def test_a_gpu_in_mig_mode_without_mig_devices_is_noted():
    """Nothing of it can be used, and nothing is wrong with it: a sentence says how to change that."""
    board = split()
    source, _, _ = opened(board)

    assert source.devices() == ()
    assert [it.uuid for it in source.cards()] == [board.uuid]
    (note,) = source.notes
    assert "GPU 0 is in MIG mode and has no MIG devices" in note
    assert "nvidia-smi mig -i 0 -cgi" in note

    board.slots = {0: part(0)}
    assert len(source.devices()) == 1
    assert source.notes == ()


def test_a_handle_of_a_mig_device_is_not_trusted():
    """It dies with the device and may be another's then: that one's memory must not be taken for this one's."""
    mine = part(0)
    source, _, _ = opened(split(mine))

    mine.uuid = "MIG-another"
    (reading,) = source.read(["MIG-0"])

    assert condition_of(reading) is Condition.LOST
    assert reading.memory_used_bytes is None


@pytest.mark.parametrize("uuid", ["MIG-GPU-11111111-2222-3333-4444-555555555555/3/0", "MIG-11111111-2222-5333"])
def test_both_forms_of_uuid_are_names_like_others(uuid):
    """Older drivers write MIG-GPU-<uuid>/<gi>/<ci>; nobody takes a number out of it (vllm-project/vllm#41848)."""
    board = split()
    board.slots = {2: part(2, uuid=uuid)}
    source, _, _ = opened(board)

    (device,) = source.devices()
    (reading,) = source.read([uuid])

    assert (device.uuid, device.number, device.device_class) == (uuid, "0:2", "mig-3g.40gb")
    assert (reading.uuid, reading.memory_used_bytes) == (uuid, MIB)


@pytest.mark.parametrize(
    ("name", "errors", "wanted"),
    [
        (NAME, {}, "mig-3g.40gb"),
        ("", {}, "mig-3g.40gb"),
        (NAME, {"Attributes_v2": NO_FUNCTION}, "mig-40gb"),
        (f"{NAME} MIG 1c.3g.40gb", {}, "mig-1c.3g.40gb"),
    ],
)
def test_a_mig_device_does_not_pass_for_a_card(name, errors, wanted):
    """Where the driver's name does not say the profile, a part of 40 GB must not be an `a100-40gb`."""
    source, _, _ = opened(split(part(1, name=name, errors=ONLY_CARDS | errors)))

    assert [it.device_class for it in source.devices()] == [wanted]


def test_processes_are_those_of_the_instance():
    """Older drivers list all of the card's for each of its parts, with the instance that each is on."""
    everybody = [process(7, GIB, 1, 0), process(8, GIB, 2, 0), process(9, GIB, 1, 1), process(10, 5, 2**32 - 1)]
    one, two = part(1, compute=everybody), part(2, compute=everybody)
    source, _, _ = opened(split(one, two))

    # What the driver places nowhere may be here.
    assert read(source, one).processes == ((7, GIB), (10, 5))
    assert read(source, two).processes == ((8, GIB), (10, 5))

    one.compute = [process(7, GIB)]
    assert read(source, one).processes == ((7, GIB),)


def test_the_cards_list_will_do_where_a_part_has_none():
    """As long as it says who is where: else nobody is known to be on the part, which is not "nobody"."""
    one = part(1, errors=ONLY_CARDS | {"ComputeRunningProcesses": NOT_SUPPORTED})
    one.errors["ComputeRunningProcesses_v2"] = NOT_SUPPORTED
    board = split(one, compute=[process(7, GIB, 1, 0), process(8, GIB, 2, 0)])
    source, _, _ = opened(board)
    assert read(source, one).processes == ((7, GIB),)

    board.compute = [process(7, GIB)]
    assert read(source, one).processes is None

    board.errors = {"ComputeRunningProcesses": NOT_SUPPORTED, "ComputeRunningProcesses_v2": NOT_SUPPORTED}
    assert read(source, one).processes is None
    assert read(source, one).memory_used_bytes == MIB


def test_compute_instances_share_the_memory_of_their_instance():
    """What one holds is not on the other, which is free: it is memory that the other cannot have, like the driver's."""
    figures = SimpleNamespace(total=40192 * MIB, used=3 * GIB, reserved=10 * MIB)
    one = part(1, instance=1, part=0, v2=figures, compute=[process(7, 2 * GIB)])
    two = part(2, instance=1, part=1, v2=figures)
    apart = part(3, instance=2, part=0)
    source, _, _ = opened(split(one, two, apart))

    first, second, third = read(source, one, two, apart)

    assert (first.memory_used_bytes, first.memory_reserved_bytes) == (3 * GIB, 10 * MIB)
    assert (second.memory_used_bytes, second.memory_reserved_bytes) == (GIB, 2 * GIB + 10 * MIB)
    assert first.memory_free_bytes == second.memory_free_bytes
    assert third.memory_used_bytes == MIB


def test_only_what_drivers_say_of_an_empty_slot_makes_it_empty():
    """Any other answer is about the moment: the parts are what they were, and a lost one is lost alone."""
    board = split(part(1), part(2))
    source, _, _ = opened(board)
    before = source.devices()

    board.slots[2].errors["MigDeviceHandleByIndex"] = NOT_SUPPORTED
    assert source.devices() == before

    board.slots[2].errors["MigDeviceHandleByIndex"] = LOST
    assert source.devices() == before[:1]
    assert read(source, board.slots[1]).fault is None


def test_who_is_a_part_is_known_before_the_first_reading():
    """Also after the driver was gone: then the parts may be others."""
    board = split(part(1))
    source, nvml, clock = opened(board)
    nvml.gone = MISMATCH
    read(source, board)
    nvml.gone, board.slots[1].compute = None, [process(7, GIB, 1, 0), process(8, GIB, 2, 0)]
    board.slots[1].instance = 2
    clock.now += 10

    assert read(source, board.slots[1]).processes == ((8, GIB),)


def test_a_part_made_anew_in_another_size_is_another_size():
    """Drivers give the same UUID to what is made at the same place."""
    one = part(1)
    source, _, _ = opened(split(one))
    assert source.devices()[0].device_class == "mig-3g.40gb"

    one.name, one.v2 = f"{NAME} MIG 1g.10gb", SimpleNamespace(total=9728 * MIB, used=0, reserved=0)

    (device,) = source.devices()
    assert (device.device_class, device.memory_bytes) == ("mig-1g.10gb", 9728 * MIB)


def test_parts_of_an_exclusive_card_are_exclusive():
    """The compute mode is the card's."""
    board = split(part(1))
    source, _, _ = opened(board)
    assert not source.devices()[0].exclusive

    board.mode = 3
    assert source.devices()[0].exclusive


def test_a_lost_card_takes_its_parts_along():
    """They may still answer by themselves for a while."""
    board = split(part(1))
    source, _, clock = opened(board)
    assert read(source, board.slots[1]).fault is None

    board.errors = {"*": LOST}
    clock.now += 10

    assert condition_of(read(source, board)) is Condition.LOST
    assert condition_of(read(source, board.slots[1])) is Condition.LOST
    assert source.devices() == ()


def test_a_card_that_only_fails_just_now_keeps_its_parts():
    """A timeout is no reconfiguration."""
    board = split(part(1), part(2))
    source, _, _ = opened(board)
    before, cards = source.devices(), source.cards()

    board.errors = {"MaxMigDeviceCount": TIMEOUT}

    assert source.devices() == before
    assert source.cards() == cards


def access(folder, number):
    """Write a capability's file as the driver does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "access").write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def test_the_nodes_that_only_its_holder_needs(tmp_path):
    """Of a GPU /dev/nvidiaN by its minor number, which is not its index; of a MIG device its capabilities beside it."""
    mig = tmp_path / "driver/nvidia/capabilities/gpu3/mig/gi1"
    access(mig, 12)
    access(mig / "ci0", 13)
    board, whole = split(part(1), minor=3), Card(1, minor=0)
    source, _, _ = opened(board, whole, dev=tmp_path / "dev", proc=tmp_path)

    dev = tmp_path / "dev"
    assert [it.nodes for it in source.devices()] == [
        (f"{dev}/nvidia3", f"{dev}/nvidia-caps/nvidia-cap12", f"{dev}/nvidia-caps/nvidia-cap13"),
        (f"{dev}/nvidia0",),
    ]

    (mig / "ci0/access").write_text("DeviceFileMode: 292\n")
    assert source.devices()[0].nodes == (f"{dev}/nvidia3", f"{dev}/nvidia-caps/nvidia-cap12")
    whole.errors = {"MinorNumber": NOT_SUPPORTED}
    assert source.devices()[1].nodes == ()


def test_nodes_are_where_linux_has_them():
    """Without a test's folders."""
    assert Nodes().of_card(0) == ("/dev/nvidia0",)
    assert Nodes().of_part(0, None, None) == ("/dev/nvidia0",)
    assert Nodes().of_part(None, 1, 0) == ()
