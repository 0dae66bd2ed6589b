"""The stand-in itself: unmodified bindings take it for a driver, and it fails, hangs and changes as it is told."""

import os
import threading
import time

import pynvml
import pytest

from tests.nvml import boards
from tests.nvml.board import GIB, HW_THERMAL, MIB, TEMPERATURE, mig_device

from .child import in_child


def refusal(call, *args):
    """The number of the NVML error that a call ends in."""
    with pytest.raises(pynvml.NVMLError) as caught:
        call(*args)
    return caught.value.value


def the_card(index=0):
    """The handle of a card."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)


@in_child(boards.one_a100)
def test_it_tells_what_the_board_shows(board):
    """Each number comes out of the call that it belongs to, and a change shows at the next call."""
    pynvml.nvmlInit()
    card = the_card()

    board.cards[0][TEMPERATURE] = 71
    board.cards[0]["slowed"] = HW_THERMAL
    board.cards[0].hold(77, 3 * GIB, name="train.py")
    board.write()

    assert pynvml.nvmlDeviceGetCount() == 1
    assert pynvml.nvmlDeviceGetName(card) == "NVIDIA A100-SXM4-40GB"
    assert pynvml.nvmlDeviceGetTemperature(card, 0) == 71
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(card) == HW_THERMAL
    assert pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(card) == HW_THERMAL
    assert pynvml.nvmlDeviceGetMemoryInfo(card).used == 3 * GIB + 500 * MIB
    assert pynvml.nvmlDeviceGetMemoryInfo(card, pynvml.nvmlMemory_v2).used == 3 * GIB
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
    assert (process.pid, process.usedGpuMemory) == (77, 3 * GIB)
    assert pynvml.nvmlSystemGetProcessName(77) == "train.py"
    assert pynvml.nvmlDeviceGetPciInfo(card).busId == "00000000:18:00.0"
    assert pynvml.nvmlDeviceGetRemappedRows(card) == (0, 0, 0, 0)
    assert refusal(pynvml.nvmlDeviceGetFanSpeed, card) == pynvml.NVML_ERROR_NOT_SUPPORTED


@in_child(boards.one_a100)
def test_fields_have_answers_of_their_own(board):
    """One that a card does not know fails by itself, and the call does not."""
    pynvml.nvmlInit()
    board.cards[0]["field.230"] = pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    board.write()

    known, unknown = pynvml.nvmlDeviceGetFieldValues(the_card(), [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 185])

    assert (known.nvmlReturn, known.value.uiVal) == (0, pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET)
    assert unknown.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED


@in_child(boards.old_driver)
def test_a_library_may_lack_symbols(board):
    """The bindings then say of the newer call what they say of an old driver."""
    pynvml.nvmlInit()

    with pytest.raises(pynvml.NVMLLibraryMismatchError):
        pynvml.nvmlDeviceGetComputeRunningProcesses(the_card())
    assert refusal(pynvml.nvmlDeviceGetRemappedRows, the_card()) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert pynvml.nvmlDeviceGetMemoryInfo(the_card()).total == 16 * GIB


@in_child(boards.no_driver)
def test_there_may_be_no_library(board):
    """Nothing is found on the path."""
    assert refusal(pynvml.nvmlInit) == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND


@in_child(boards.four_alike)
def test_a_lost_card_fails_alone(board):
    """Whatever is asked about it, also by whom a handle is looked up."""
    pynvml.nvmlInit()
    card = the_card(2)
    board.cards[2].lose()
    board.write()

    assert refusal(pynvml.nvmlDeviceGetUUID, card) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert refusal(the_card, 2) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert refusal(pynvml.nvmlDeviceGetHandleByUUID, board.cards[2].uuid) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert pynvml.nvmlDeviceGetUUID(the_card(3)) == board.cards[3].uuid
    board.cards[2].come_back()
    board.write()
    assert pynvml.nvmlDeviceGetUUID(card) == board.cards[2].uuid


@in_child(boards.one_a100)
def test_a_call_may_be_slow_or_hang_until_it_is_let_go(board):
    """Other calls go on meanwhile."""
    pynvml.nvmlInit()
    card = the_card()
    board.cards[0].hangs.add("nvmlDeviceGetTemperature")
    board.slow["nvmlDeviceGetPowerUsage"] = 120
    board.write()
    hanging = threading.Thread(target=pynvml.nvmlDeviceGetTemperature, args=(card, 0))
    hanging.start()

    begun = time.monotonic()
    assert pynvml.nvmlDeviceGetPowerUsage(card) == 62_000
    assert time.monotonic() - begun >= 0.12
    assert hanging.is_alive()
    board.cards[0].hangs.clear()
    board.write()
    hanging.join(10)
    assert not hanging.is_alive()


@in_child(boards.a100_in_slices)
def test_a_handle_of_a_mig_device_dies_and_is_used_again(board):
    """What is asked of the old handle is told of the new device."""
    pynvml.nvmlInit()
    card = the_card()
    assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
    assert refusal(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, 1) == pynvml.NVML_ERROR_NOT_FOUND
    handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 2)
    assert pynvml.nvmlDeviceGetUUID(handle) == board.cards[0].slots[2].uuid

    del board.cards[0].slots[2]
    board.write()
    assert refusal(pynvml.nvmlDeviceGetUUID, handle) == pynvml.NVML_ERROR_NOT_FOUND
    fresh = mig_device(board.cards[0], 2, "2g.10gb", memory_bytes=10 * GIB, gpu_instance=3)
    board.write()
    assert pynvml.nvmlDeviceGetUUID(handle) == fresh.uuid
    assert pynvml.nvmlDeviceGetAttributes(handle).gpuInstanceSliceCount == 2


@in_child(boards.a100_in_slices)
def test_events_come_to_those_who_have_registered(board):
    """Once each, those of a MIG device with the numbers of its instances, and none from before."""
    pynvml.nvmlInit()
    (card,) = board.cards
    board.report(card, 13)
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(the_card(), pynvml.nvmlEventTypeXidCriticalError, events)
    assert refusal(pynvml.nvmlEventSetWait, events, 0) == pynvml.NVML_ERROR_TIMEOUT

    board.report(card, 79)
    board.report(card, 43, mig=card.slots[4])
    first, second = pynvml.nvmlEventSetWait(events, 1000), pynvml.nvmlEventSetWait(events, 1000)

    assert (first.eventData, first.gpuInstanceId, second.eventData, second.gpuInstanceId) == (79, 2**32 - 1, 43, 11)
    assert pynvml.nvmlDeviceGetUUID(first.device) == card.uuid
    assert refusal(pynvml.nvmlEventSetWait, events, 10) == pynvml.NVML_ERROR_TIMEOUT
    pynvml.nvmlEventSetFree(events)
    assert refusal(pynvml.nvmlEventSetWait, events, 0) == pynvml.NVML_ERROR_INVALID_ARGUMENT


@in_child(boards.one_a100, counted=True)
def test_calls_are_counted_and_a_fork_has_no_nvml(board):
    """As with a driver, what was opened before a fork is not open after it (NVIDIA/cuCascade#138)."""
    pynvml.nvmlInit()
    pid = os.fork()
    if pid == 0:
        try:
            pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            os._exit(error.value)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == pynvml.NVML_ERROR_UNINITIALIZED
    assert pynvml.nvmlDeviceGetCount() == 1
    assert board.calls() == {"nvmlInitWithFlags": 1, "nvmlDeviceGetCount_v2": 2}
