"""Public reports about NVML, each with its smallest input, through the bindings that everybody has."""

import asyncio
import logging
import os
import time
from pathlib import Path

import msgspec
import pynvml
import pytest

from jupyter_gpu.broker.telemetry.clear import LOST, condition_of, why_not_clear
from jupyter_gpu.broker.telemetry.nvml import NvmlSource
from jupyter_gpu.broker.telemetry.sampler import Telemetry
from jupyter_gpu.model import Condition
from tests.nvml import boards, bytes_flavour
from tests.nvml.board import ALL_ONES, ALL_ONES_32, GIB, MIB, TEMPERATURE, Process, mig_device

from .child import in_child


def read(source, *answers):
    """Readings of these cards or MIG devices, or of the only one."""
    readings = source.read([it.uuid for it in answers])
    return readings[0] if len(readings) == 1 else readings


def figures(reading):
    """What a reading says beside its instant and who it is."""
    return msgspec.structs.replace(reading, at=0, uuid="")


def heard():
    """All that is logged from now on."""
    said = []
    logging.getLogger("jupyter_gpu").addHandler(handler := logging.Handler())
    handler.emit = lambda record: said.append(record.getMessage())
    return said


LIES = {
    "more used than there is": ({"memory_used": 41 * GIB}, "memory_used_bytes"),
    "all ones used": ({"memory_used": ALL_ONES}, "memory_used_bytes"),
    "all ones of memory": ({"memory_used": ALL_ONES, "memory_total": ALL_ONES}, "memory_total_bytes"),
    "no memory": ({"memory_total": 0}, "memory_total_bytes"),
    "load of all ones": ({"utilisation": ALL_ONES_32}, "utilisation_percent"),
    "load of 101 %": ({"utilisation": 101}, "utilisation_percent"),
    "hotter than the sun": ({TEMPERATURE: 65535}, "temperature_celsius"),
    "no temperature": ({TEMPERATURE: ALL_ONES_32}, "temperature_celsius"),
    "power of all ones": ({"power": ALL_ONES_32}, "power_watts"),
}


@in_child(boards.one_a100)
def test_numbers_that_cannot_be_true_are_not_known(board):
    """Each is "n/a" by itself, the others are as they were, and nothing is wrong with the card."""
    (card,) = board.cards
    source = NvmlSource()
    source.devices()
    was = msgspec.to_builtins(figures(read(source, card)))
    for what, (values, field) in LIES.items():
        before = dict(card.values)
        card.values |= values
        board.write()
        reading = read(source, card)
        now = msgspec.to_builtins(figures(reading))
        card.values = before

        assert getattr(reading, field) is None, what
        assert reading.fault is None, what
        memory = {"memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes"}
        assert {it: now[it] for it in now.keys() - memory} == {it: was[it] for it in was.keys() - memory - {field}}, (
            what
        )


@in_child(boards.one_a100)
def test_memory_of_a_process_may_not_be_known(board):
    """As with the display driver of Windows: the process counts, its memory does not (pytorch/pytorch#64491)."""
    board.cards[0].processes.append(Process(79, ALL_ONES))
    board.write()

    assert read(NvmlSource(), board.cards[0]).processes == ((79, None),)


@pytest.mark.parametrize("is_local", [True, False])
@in_child(boards.one_a100)
def test_pids_of_another_namespace_are_nobody_here(board, is_local):
    """In a container the driver names the host's pids: none is looked up here (wookayin/gpustat#117)."""
    board.cards[0].hold(os.getpid(), 1012 * MIB)
    board.write()
    source = NvmlSource()
    source.has_local_pids = is_local

    assert read(source, board.cards[0]).processes == ((os.getpid(), 1012 * MIB),)
    assert (Telemetry(source).name_of(os.getpid()) is not None) is is_local


@in_child(boards.one_a100)
def test_names_may_be_bytes(board):
    """Two makes of bindings, one text, and it can be sent as JSON (rossumai/nvgpu#29)."""
    old, new = NvmlSource(bytes_flavour), NvmlSource(pynvml)
    assert bytes_flavour.nvmlInit() is None
    assert isinstance(bytes_flavour.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)), bytes)

    assert old.devices() == new.devices()
    assert b'"NVIDIA A100-SXM4-40GB"' in msgspec.json.encode(old.devices())
    assert figures(read(old, board.cards[0])) == figures(read(new, board.cards[0]))
    assert msgspec.structs.replace(old.driver, bindings="") == msgspec.structs.replace(new.driver, bindings="")


@in_child(boards.one_a100)
def test_what_the_driver_keeps_for_itself_is_not_used(board):
    """Only where there is no newer call the older is asked, which counts it in (wookayin/gpustat#141)."""
    (card,) = board.cards
    card.values |= {"memory_total": 80 * GIB, "memory_used": 8 * MIB, "memory_reserved": 904 * MIB}
    board.write()

    reading = read(NvmlSource(), card)

    assert (reading.memory_used_bytes, reading.memory_reserved_bytes) == (8 * MIB, 904 * MIB)
    assert reading.memory_used_bytes + reading.memory_free_bytes + reading.memory_reserved_bytes == 80 * GIB
    card.fails["nvmlDeviceGetMemoryInfo_v2"] = 13
    board.write()
    assert read(NvmlSource(), card).memory_used_bytes == 912 * MIB


@in_child(boards.old_driver)
def test_a_driver_without_the_newer_calls_is_read_by_the_older_ones(board):
    """What it does not offer is told once, as a note and not as a fault (gpuopenanalytics/pynvml#43)."""
    said = heard()

    async def body():
        telemetry = Telemetry(NvmlSource(), interval_seconds=0.02)
        samples = []
        telemetry.start(asyncio.get_running_loop(), samples.append)
        await telemetry.inventory()
        while len(samples) < 10:
            await asyncio.sleep(0.02)
        telemetry.close()
        return telemetry, samples[-1]

    telemetry, sample = asyncio.run(body())

    (reading,) = sample.readings
    assert (reading.memory_total_bytes, reading.temperature_celsius, reading.processes) == (16 * GIB, 31, None)
    assert reading.fault is None
    assert telemetry.fault is None
    assert any("processes" in note for note in telemetry.notes), telemetry.notes
    assert len(said) == len(set(said))


@in_child(boards.gb10)
def test_a_card_may_share_the_memory_of_the_machine(board):
    """Then its memory is what the machine has, and used is what its processes use (wookayin/gpustat#179)."""
    board.cards[0].processes += [Process(7, 43 * MIB), Process(8, 18 * MIB)]
    board.write()
    source = NvmlSource()

    (device,) = source.devices()
    reading = read(source, board.cards[0])

    assert device.shares_host_memory
    assert reading.memory_used_bytes == 61 * MIB
    assert reading.memory_total_bytes > 1 * GIB
    assert reading.utilisation_percent == 0


@in_child(boards.a100_in_slices)
def test_a_split_card_offers_no_load_and_its_parts_are_what_there_is(board):
    """Two of seven slots are taken; the others are skipped without an error (XuehaiPan/nvitop#5)."""
    (card,) = board.cards
    card.values |= {"memory_total": 42505273344, "memory_used": 14987362304, "memory_reserved": 0}
    for slot in (4, 5):
        del card.slots[slot]
    card.slots[1] = card.slots.pop(2)
    board.write()
    source = NvmlSource()

    devices = source.devices()

    assert [(it.number, it.uuid) for it in devices] == [("0:0", card.slots[0].uuid), ("0:1", card.slots[1].uuid)]
    assert [it.uuid for it in source.cards()] == [card.uuid]
    whole, *parts = read(source, card, *card.slots.values())
    assert (whole.memory_used_bytes, whole.utilisation_percent, whole.fault) == (14987362304, None, None)
    assert [(it.memory_total_bytes, it.fault) for it in parts] == [(4864 * MIB, None)] * 2


@in_child(boards.a100_in_slices)
def test_a_mig_device_that_is_made_anew_is_another_one(board):
    """Its handle may be that of the old one; the old one is gone, and its siblings are read as ever."""
    (card,) = board.cards
    source = NvmlSource()
    old, sibling = card.slots[2], card.slots[4]
    source.devices()
    sibling_before = figures(read(source, sibling))

    fresh = mig_device(card, 2, "2g.10gb", memory_bytes=9856 * MIB, gpu_instance=3)
    fresh.hold(4711, GIB)
    board.write()

    assert condition_of(read(source, old)) is Condition.LOST
    assert figures(read(source, sibling)) == sibling_before
    assert fresh.uuid in {it.uuid for it in source.devices()}
    assert read(source, fresh).processes == ((4711, GIB),)
    card.slots.clear()
    card["mig_mode"] = 0
    board.write()
    assert [it.uuid for it in source.devices()] == [card.uuid]
    assert condition_of(read(source, fresh)) is Condition.LOST


@in_child(boards.four_lab_cards)
def test_an_index_that_moves_at_a_reboot_changes_nobodys_card(board):
    """A card is its UUID; the index is only where it stands today (unslothai/unsloth#6352)."""
    before = {it.uuid: it for it in NvmlSource().devices()}
    board.cards[0].hold(55, GIB)
    board.cards.reverse()
    board.write()
    source = NvmlSource()

    after = {it.uuid: it for it in source.devices()}

    assert after.keys() == before.keys()
    assert [after[it.uuid].index for it in board.cards] == [0, 1, 2, 3]
    assert [before[it.uuid].index for it in board.cards] == [3, 2, 1, 0]
    assert {uuid: it.nodes for uuid, it in after.items()} == {uuid: it.nodes for uuid, it in before.items()}
    assert dict(read(source, board.cards[3]).processes) == {55: GIB}


@in_child(boards.four_alike)
def test_a_lost_card_says_so_and_comes_back_by_itself(board):
    """The three others are read meanwhile (rossumai/nvgpu#6)."""
    source = NvmlSource()
    was = source.devices()
    board.cards[2].lose()
    board.write()

    readings = read(source, *board.cards)

    assert [condition_of(it) for it in readings] == [None, None, Condition.LOST, None]
    assert readings[2].fault.startswith(LOST)
    assert [it.uuid for it in source.devices()] == [it.uuid for it in was if it.uuid != board.cards[2].uuid]
    board.cards[2].come_back()
    board.write()
    assert {it.uuid for it in source.devices()} == {it.uuid for it in was}
    assert condition_of(read(source, board.cards[2])) is None


@in_child(boards.four_lab_cards)
def test_a_display_is_told_from_a_squatter(board):
    """Who only draws is marked so, and the card says that it drives a display (russellb/canhazgpu#5)."""
    shown = read(NvmlSource(), board.cards[3])

    assert (shown.memory_used_bytes, shown.processes) == (153 * MIB, ((1201, 150 * MIB),))
    assert shown.drawing_pids == (1201,)
    assert shown.vitals.drives_display is True


@in_child(boards.one_a100)
def test_load_without_anybody_is_a_figure_and_no_fault(board):
    """A card may show 100 % for days with nothing on it; it is clear, and others judge (Datura-ai/lium-io#1140)."""
    board.cards[0]["utilisation"] = 100
    board.write()

    for _ in range(10):
        reading = read(NvmlSource(), board.cards[0])
        assert (reading.utilisation_percent, reading.memory_used_bytes, reading.processes) == (100, 0, ())
        assert why_not_clear(reading, baseline_bytes=64 * MIB) is None


@in_child(boards.no_driver)
def test_without_a_library_there_is_one_sentence_and_no_more(board):
    """Said once, however often it is tried (rapidsai/jupyterlab-nvdashboard#114)."""
    said = heard()

    async def body():
        telemetry = Telemetry(NvmlSource(retry_seconds=0), interval_seconds=0.02)
        samples = []
        telemetry.start(asyncio.get_running_loop(), samples.append)
        assert await telemetry.inventory() is None
        while len(samples) < 10:
            await asyncio.sleep(0.02)
        telemetry.close()
        return telemetry.fault

    fault = asyncio.run(body())
    assert "was not found" in fault
    assert said == [fault]


@pytest.mark.parametrize(("code", "words"), [(18, "was updated"), (9, "is not loaded"), (1, "cannot be used")])
@in_child(boards.four_alike)
def test_a_driver_that_goes_away_is_named_with_its_remedy_and_comes_back(board, code, words):
    """There is no inventory then, which is not an inventory of nothing (lyulyul/shine-cluster#30)."""
    source = NvmlSource(retry_seconds=0)
    was, uuids = source.devices(), [it.uuid for it in board.cards]
    board.fails["*"] = code
    board.write()

    assert [condition_of(it) for it in source.read(uuids)] == [Condition.UNREADABLE] * 4
    assert source.devices() is None
    assert words in source.fault
    assert NvmlSource().devices() is None
    board.fails.clear()
    board.write()
    assert source.devices() == was
    assert source.fault is None
    assert {it.fault for it in source.read(uuids)} == {None}


@in_child(boards.one_a100)
def test_an_opening_that_takes_long_holds_up_nobody(board):
    """The loop goes on, and says meanwhile what it waits for (NVIDIA/nvidia-container-toolkit#1053)."""
    board.hangs.add("nvmlInitWithFlags")
    board.write()

    async def body():
        telemetry = Telemetry(NvmlSource(), interval_seconds=0.02, deadline_seconds=0.2)
        telemetry.start(asyncio.get_running_loop(), lambda _: None)
        begun, longest = time.monotonic(), 0.0
        asked = asyncio.create_task(telemetry.inventory())
        while telemetry.fault is None or not asked.done():
            before = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - before)
            assert time.monotonic() < begun + 20
        assert longest < 2
        assert await asked is None
        fault = telemetry.fault
        board.hangs.clear()
        board.write()
        while not await telemetry.inventory():
            await asyncio.sleep(0.01)
        telemetry.close()
        return fault, telemetry.fault

    during, after = asyncio.run(body())
    assert "start" in during.lower(), during
    assert after is None


@in_child(boards.eight_h100, counted=True)
def test_a_thousand_polls_open_nvml_once(board):
    """And no more files are open after them than before (lablup/all-smi#118)."""
    source = NvmlSource()
    uuids = [it.uuid for it in source.devices()]
    source.read(uuids)
    source.events()
    open_before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(1000):
        assert source.read(uuids[:1])[0].fault is None
        source.events()
    source.devices()

    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    calls = board.calls()
    assert calls["nvmlInitWithFlags"] == 1
    assert calls["nvmlShutdown"] == 0
    assert calls["nvmlEventSetCreate"] == 1


@in_child(boards.four_alike)
def test_a_fork_opens_nvml_for_itself(board):
    """What its parent opened is not open in it; the parent is unaffected (NVIDIA/cuCascade#138)."""
    source = NvmlSource()
    devices = source.devices()
    pid = os.fork()
    if pid == 0:
        seen = source.devices()
        readings = source.read([it.uuid for it in board.cards])
        os._exit(0 if seen == devices and all(it.fault is None for it in readings) else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert source.devices() == devices
    assert read(source, *board.cards)[3].fault is None


@in_child(boards.h100_mixed)
def test_an_xid_is_told_of_whom_it_is_about(board):
    """Of the MIG device where the driver names its instance, else of the card; each once."""
    source = NvmlSource()
    source.devices()
    assert source.events() == ()
    split = board.cards[1]

    board.report(board.cards[0], 79)
    board.report(split, 31, mig=split.slots[3])
    board.report(board.cards[3], 43, event_type=4)  # no Xid

    assert [(it.uuid, it.xid) for it in source.events()] == [(board.cards[0].uuid, 79), (split.slots[3].uuid, 31)]
    assert source.events() == ()


@in_child(boards.virtual)
def test_a_part_of_a_card_in_a_virtual_machine_can_be_leased(board):
    """It offers little beside its memory, and nothing is wrong with it."""
    source = NvmlSource()
    (device,) = source.devices()
    reading = read(source, board.cards[0])

    assert device.memory_bytes == 12 * GIB
    assert (reading.fault, reading.temperature_celsius, reading.power_watts) == (None, None, None)
