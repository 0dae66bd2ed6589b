"""Tools that people trust read the same boards beside us: where they can, the figures are theirs.

Each reads in a process of its own, with the bindings and the library that we use. What a peer cannot read at all (MIG
devices after an empty slot, a lost card) is stated of us alone.
"""

import json
import os
import sys

import pytest

from . import boards
from .board import GIB, MIB, TEMPERATURE, Mig
from .child import run
from .library import needs_standin

pytestmark = needs_standin

OURS = """
import json
from jupyter_gpu.broker.telemetry.nvml import NvmlSource
source = NvmlSource()
uuids = [it.uuid for it in (*source.devices(), *source.cards())]
print(json.dumps({it.uuid: {
    "used": it.memory_used_bytes, "total": it.memory_total_bytes, "load": it.utilisation_percent,
    "celsius": it.temperature_celsius, "watts": it.power_watts, "processes": dict(it.processes or ()),
    "fault": it.fault,
} for it in source.read(uuids)}))
"""
NVITOP = """
import json
from nvitop import Device, NA
def known(value):
    return None if value is NA else value
def told(it):
    power = known(it.power_usage())
    return {
        "used": known(it.memory_used()), "total": known(it.memory_total()), "load": known(it.gpu_utilization()),
        "celsius": known(it.temperature()), "watts": None if power is None else power / 1000,
        "processes": {pid: known(one.gpu_memory()) for pid, one in it.processes().items()},
    }
found = [one for it in Device.all() for one in (it, *it.mig_devices())]
print(json.dumps({it.uuid(): told(it) for it in found}))
"""
GPUSTAT = """
import gpustat, json
print(json.dumps({it["uuid"]: {
    "used": it["memory.used"], "total": it["memory.total"], "load": it["utilization.gpu"],
    "celsius": it["temperature.gpu"], "watts": it["power.draw"],
    "processes": {one["pid"]: one["gpu_memory_usage"] for one in it["processes"]},
} for it in gpustat.new_query().jsonify()["gpus"] if "uuid" in it}, default=str))
"""
SIZES = ("used", "total")


def told(program, board):
    """What a program says of each device, by UUID."""
    done = run([sys.executable, "-c", program], board)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def busy(board):
    """Let a process that is there (peers show no other) hold memory on each card, each at another figure."""
    for card in board.cards:
        if "memory_used" in card.values:
            card.hold(os.getpid(), (card.number + 2) * GIB)
        if "utilisation" in card.values:
            card["utilisation"] = 10 * card.number + 7
        if TEMPERATURE in card.values:
            card[TEMPERATURE] = 40 + card.number
    board.write()
    return board


def agree(ours, theirs, *, unit=1):
    """Every figure that a peer has is ours too; `unit` is the peer's for memory."""
    for uuid, figures in theirs.items():
        mine = ours[uuid]
        for name, value in figures.items():
            if name == "processes":
                assert {pid: (used or 0) // unit for pid, used in mine[name].items()} == value, uuid
            elif name in SIZES and value is not None:
                assert mine[name] // unit == value, (uuid, name)
            elif name == "watts" and value is not None:
                assert mine[name] == pytest.approx(value, abs=0.5), uuid
            elif name not in SIZES:
                assert mine[name] == value, (uuid, name)


@pytest.mark.parametrize("make", ["one_a100", "eight_h100", "four_lab_cards", "four_alike", "virtual"])
def test_figures_of_whole_cards_are_those_of_nvitop_and_gpustat(tmp_path, make):
    """Memory, load, temperature, power and who is on it, on every card."""
    board = busy(boards.ALL[make](tmp_path))
    for card in board.cards:  # a display's process is none of this machine's, and peers leave it out
        for it in [it for it in card.processes if it.kind == "g"]:
            card.release(it.pid)
    board.write()

    ours, nvitop, gpustat = (told(it, board) for it in (OURS, NVITOP, GPUSTAT))

    assert set(ours) == set(nvitop) == set(gpustat) == {it.uuid for it in board.cards}
    assert all(it["processes"] for it in ours.values())
    agree(ours, nvitop)
    agree(ours, gpustat, unit=MIB)


def test_figures_of_mig_devices_are_those_of_nvitop(tmp_path):
    """Of MIG devices before the first empty slot, which is where nvitop stops; gpustat knows the card alone."""
    board = busy(boards.h100_mixed(tmp_path))
    split = board.cards[1]
    split.slots[1].hold(os.getpid(), 3 * GIB)
    board.write()

    ours, nvitop, gpustat = (told(it, board) for it in (OURS, NVITOP, GPUSTAT))

    parts = {it.uuid for it in split.slots.values()}
    assert parts & set(nvitop) == {split.slots[0].uuid, split.slots[1].uuid}
    # A card in MIG mode is none of our devices, and its aggregate is the peers' to tell.
    split_cards = {split.uuid, board.cards[2].uuid}
    agree(ours, {uuid: it for uuid, it in nvitop.items() if uuid in parts})
    agree(ours, {uuid: it for uuid, it in nvitop.items() if uuid not in parts | split_cards})
    agree(ours, {uuid: it for uuid, it in gpustat.items() if uuid not in split_cards}, unit=MIB)
    assert parts <= set(ours)
    assert ours[split.slots[3].uuid]["total"] == split.slots[3]["memory_total"]
    assert ours[split.slots[1].uuid]["processes"] == {str(os.getpid()): 3 * GIB}


def test_all_mig_devices_are_seen_where_slots_are_empty(tmp_path):
    """Instances are made and destroyed in any order; a peer sees the first of four (XuehaiPan/nvitop#5)."""
    board = boards.a100_in_slices(tmp_path)
    for slot, mig in board.cards[0].slots.items():
        assert isinstance(mig, Mig)
        mig.hold(900 + slot, slot * 100 * MIB)
    board.write()

    ours, nvitop = told(OURS, board), told(NVITOP, board)

    for slot, mig in board.cards[0].slots.items():
        assert ours[mig.uuid]["processes"] == {str(900 + slot): slot * 100 * MIB}
        assert ours[mig.uuid]["used"] == slot * 100 * MIB
    assert len([uuid for uuid in nvitop if uuid.startswith("MIG-")]) < 4


def test_the_rest_is_read_beside_a_lost_card(tmp_path):
    """Three figures that are those of gpustat, and one card that is not in the inventory (rossumai/nvgpu#6)."""
    board = busy(boards.one_lost_of_four(tmp_path))

    ours, gpustat = told(OURS, board), told(GPUSTAT, board)

    well = {it.uuid for it in board.cards if it is not board.cards[2]}
    assert set(ours) == well
    agree(ours, {uuid: it for uuid, it in gpustat.items() if uuid in well}, unit=MIB)


def test_a_card_without_memory_of_its_own_shows_the_machines(tmp_path):
    """Where gpustat shows no figure at all (wookayin/gpustat#179)."""
    board = boards.gb10(tmp_path)

    ours, gpustat = told(OURS, board), told(GPUSTAT, board)

    (mine,), (theirs,) = ours.values(), gpustat.values()
    assert theirs["total"] is None
    assert mine["total"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert mine["used"] == 0
    assert (mine["load"], mine["celsius"]) == (theirs["load"], theirs["celsius"])
