"""Boards that are out there, ready to be changed."""

from __future__ import annotations

from pathlib import Path

from .board import (
    GIB,
    MIB,
    Board,
    Card,
    consumer_card,
    data_centre_card,
    join,
    mig_device,
)

A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"
MISMATCH, NOT_LOADED = 18, 9


def one_a100(folder: Path) -> Board:
    """One card that offers everything."""
    return Board(folder, data_centre_card(0, A100, 40 * GIB))


def eight_h100(folder: Path) -> Board:
    """Eight, each joined with each through NVSwitches."""
    cards = [data_centre_card(number, H100, 81559 * MIB) for number in range(8)]
    join(*cards, by_switch=True)
    return Board(folder, *cards)


def four_lab_cards(folder: Path) -> Board:
    """A workstation with what was bought over the years; the last card drives a display."""
    names = (("NVIDIA GeForce RTX 4090", 24564), ("NVIDIA GeForce RTX 3090", 24576), ("NVIDIA TITAN V", 12288))
    cards = [consumer_card(number, name, mib * MIB) for number, (name, mib) in enumerate(names)]
    shown = consumer_card(3, "NVIDIA GeForce GTX 1080 Ti", 11264 * MIB)
    shown["display_active"] = shown["display_mode"] = 1
    shown["memory_used"] = 3 * MIB
    shown.hold(1201, 150 * MIB, kind="g", name="gnome-shell")
    del shown["field.230"], shown["fan"]
    return Board(folder, *cards, shown)


def four_alike(folder: Path) -> Board:
    """Four data centre cards without NVLink."""
    return Board(folder, *(data_centre_card(number, "NVIDIA L40S", 46068 * MIB) for number in range(4)))


def one_lost_of_four(folder: Path) -> Board:
    """The third has fallen off the bus (rossumai/nvgpu#6)."""
    board = four_alike(folder)
    board.cards[2].lose()
    board.write()
    return board


def a100_in_slices(folder: Path) -> Board:
    """One card in MIG mode with seven slots, of which the second, fourth and last are empty."""
    card = data_centre_card(0, A100, 40 * GIB)
    for slot in (0, 2, 4, 5):
        mig_device(card, slot, "1g.5gb", memory_bytes=4864 * MIB, gpu_instance=7 + slot)
    return Board(folder, card)


def h100_mixed(folder: Path) -> Board:
    """Two whole cards, one in three unequal parts, and one in MIG mode that has none yet."""
    cards = [data_centre_card(number, H100, 81559 * MIB) for number in range(4)]
    mig_device(cards[1], 0, "3g.40gb", memory_bytes=40448 * MIB, gpu_instance=2)
    mig_device(cards[1], 1, "2g.20gb", memory_bytes=20096 * MIB, gpu_instance=3)
    mig_device(cards[1], 3, "1g.10gb", memory_bytes=9984 * MIB, gpu_instance=9)
    cards[2]["mig_mode"] = 1
    del cards[2]["utilisation"]
    return Board(folder, *cards)


def gb10(folder: Path) -> Board:
    """One whose memory is the machine's own, so that it tells none (wookayin/gpustat#179)."""
    card = data_centre_card(0, "NVIDIA GB10", 0)
    del card["memory_total"], card["memory_used"], card["memory_reserved"], card["mig_mode"], card["ecc_mode"]
    card["addressing"] = 2
    return Board(folder, card)


def virtual(folder: Path) -> Board:
    """A part of a card in a virtual machine: no temperature, no power, no health, processes as the licence allows."""
    card: Card = consumer_card(0, "NVIDIA A40-12Q", 12 * GIB)
    card["virtualization"] = 2
    for key in ("temperature.0", "threshold.0", "threshold.1", "threshold.3", "power", "power_limit", "fan", "slowed"):
        del card[key]
    card["events"] = 0
    return Board(folder, card)


def mismatched(folder: Path) -> Board:
    """The library was updated and the kernel module was not: nothing can be opened (lyulyul/shine-cluster#30)."""
    board = four_alike(folder)
    board.fails["*"] = MISMATCH
    board.write()
    return board


def not_loaded(folder: Path) -> Board:
    """The library is there, and the kernel module is not."""
    board = one_a100(folder)
    board.fails["*"] = NOT_LOADED
    board.write()
    return board


def no_driver(folder: Path) -> Board:
    """There is no library at all."""
    return Board(folder, has_library=False)


#: What a library of the year 2020 has not got (gpuopenanalytics/pynvml#43).
NEWER_CALLS = (
    "nvmlDeviceGetMemoryInfo_v2",
    *(
        f"nvmlDeviceGet{kind}RunningProcesses{suffix}"
        for kind in ("Compute", "Graphics", "MPSCompute")
        for suffix in ("_v2", "_v3")
    ),
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetRunningProcessDetailList",
    "nvmlDeviceGetConfComputeMemSizeInfo",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetDriverModel_v2",
    "nvmlEventSetWait_v2",
)


def old_driver(folder: Path) -> Board:
    """One card, and a library without the newer calls."""
    return Board(folder, data_centre_card(0, "Tesla V100-SXM2-16GB", 16 * GIB), without=NEWER_CALLS)


ALL = {
    it.__name__: it
    for it in (
        one_a100,
        eight_h100,
        four_lab_cards,
        four_alike,
        one_lost_of_four,
        a100_in_slices,
        h100_mixed,
        gb10,
        virtual,
        mismatched,
        not_loaded,
        no_driver,
        old_driver,
    )
}
