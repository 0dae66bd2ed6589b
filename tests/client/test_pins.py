"""What shows a process its GPUs: written by UUID, none said as such, and read back as CUDA reads it."""

import pytest

from jupyter_gpu import pins
from jupyter_gpu.environment import scrub, select

FOUR = ("GPU-aa", "GPU-ab", "GPU-b0", "GPU-c0")


def test_a_pin_names_uuids_whatever_the_order_of_cuda():
    """NVML's numbers are not CUDA's, so no number is ever written (unslothai/unsloth#6352)."""
    assert pins.variables(["GPU-b0", "GPU-aa"]) == {
        "CUDA_VISIBLE_DEVICES": "GPU-b0,GPU-aa",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": "GPU-b0,GPU-aa",
    }


def test_no_device_is_said_as_such():
    """Nothing said would show all of them (flux-framework/flux-core#3154)."""
    assert pins.visible(pins.variables(())["CUDA_VISIBLE_DEVICES"], FOUR) == ()
    assert pins.inherited({}) == pins.variables(())
    assert pins.inherited({"CUDA_VISIBLE_DEVICES": "GPU-b0", "PATH": "/"}) == {"CUDA_VISIBLE_DEVICES": "GPU-b0"}


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("0,2,-1,1", [0, 2]),
        ("NoDevFiles", []),
        ("none", []),
        ("0,0", []),
        ("9", []),
        ("1gpu2,2ampere", [1, 2]),
        ("0,1", [0, 1]),
        (" 0 , 1 ", [0, 1]),
        ("+1", [1]),
        ("3,0", [3, 0]),
    ],
)
def test_numbers_are_read_as_cuda_reads_them(value, numbers):
    """Values that look alike mean different things (rstudio/tensorflow#434, pytorch/pytorch#92315)."""
    assert pins.visible(value, FOUR) == tuple(FOUR[number] for number in numbers)


OLD_MIG = "MIG-GPU-11111111-2222-3333-4444-555555555555/3/0"
NEW_MIG = "MIG-11111111-2222-5333-8444-555555555555"
WHOLE = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize("uuid", [OLD_MIG, NEW_MIG, WHOLE])
def test_uuids_of_every_form_are_words_and_no_numbers(uuid):
    """Nothing calls int() on a word that is none (vllm-project/vllm#41848)."""
    assert pins.read(uuid) == (uuid,)
    assert pins.visible(uuid, (OLD_MIG, NEW_MIG, WHOLE)) == (uuid,)


def test_uuids_may_be_short_and_end_at_what_is_none():
    """A beginning names the one device that has it; a word of another kind ends the list, a repeat empties it."""
    assert pins.visible("GPU-b,GPU-c0", FOUR) == ("GPU-b0", "GPU-c0")
    assert pins.visible("GPU-a", FOUR) == ()
    assert pins.visible("GPU-b0,1", FOUR) == ("GPU-b0",)
    assert pins.visible("GPU-b0,GPU-x", FOUR) == ("GPU-b0",)
    assert pins.visible("GPU-b0,GPU-b", FOUR) == ()
    assert pins.read("GPU-b0,GPU-b0") == ()


@pytest.mark.parametrize("name", [pins.RESERVATION, pins.KERNEL, pins.ATTEMPT])
def test_whose_pin_it_is_stays_out_of_jobs(name):
    """A job that believed to be under a reservation would show its kernels GPUs that are not the job's."""
    assert scrub({name: "7"}, given=[name]) == ({}, (name,))


def test_which_provisioner_starts_kernels_is_not_passed_on():
    """An environment without this package would show no kernel at all; a job's notebooks inherit its pin anyway."""
    word = {"JUPYTER_DEFAULT_PROVISIONER_NAME": "jupyter-gpu"}

    assert select(word) == ({}, ())
    assert scrub(word) == ({}, tuple(word))
