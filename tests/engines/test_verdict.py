"""What an attempt died of is read from evidence, never guessed from a number."""

import pytest

from jupyter_gpu.broker.engines.verdict import TAIL_BYTES, after_notice, judge
from jupyter_gpu.exits import describe

GPU = [
    # PyTorch, TensorFlow and Keras, JAX, CuPy, Paddle, MXNet; then CUDA's own words
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 79.1 GiB in all",
    "torch.cuda.OutOfMemoryError: CUDA out of memory.",
    "RuntimeError: HIP out of memory. Tried to allocate 2.00 MiB",
    "ResourceExhaustedError: {{function_node x}} OOM when allocating tensor with shape[256] on /device:GPU:0 by bfc",
    "keras ResourceExhaustedError: Graph execution error: OOM when allocating tensor with shape[8]",
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes",
    "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 0 bytes).",
    "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 4.0GB memory on GPU 0",
    "mxnet.base.MXNetError: src/storage/./pooled_storage_manager.h:157: cudaMalloc retry failed: out of memory",
    "CUDA error: out of memory",
    "RuntimeError: CUDA error 2: out of memory",
    "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation: out of memory",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
]
#: What must be told beside the fact; below it the line that it is of, and where that was reported.
SIZES = """\
it asked for 1002.00 MiB; (huggingface/meshgen#7)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 8.00 GiB of
which 0 bytes is free.

it asked for 20.00 MiB; (QwenLM/Qwen2.5-Omni#240)
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.

it asked for 124.68 GiB; it shared the GPU with processes 608946 and 734147; (jhc13/taggui#188)
CUDA out of memory. Tried to allocate 124.68 GiB. GPU 0 has a total capacity of 95.22 GiB of which 51.23 GiB is
free. Process 608946 has 14.91 GiB memory in use. Process 734147 has 29.07 GiB memory in use.

it asked for 22.78 GiB; it held 18.73 GiB by then; (murong-xu/CADS#4)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of
which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated memory
9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated.

it asked for 2.26 GiB; it held 781.59 MiB by then; (pytorch/pytorch#59778)
CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB
free; 1.24 GiB reserved in total by PyTorch)

it asked for 4.44 GiB; (patrickbryant1/AFProfile#8)
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.

the limit was its own memory pool's, 1.00 GiB, not the GPU's; it held 512.00 MiB by then; (cupy/cupy#7678)
cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 805,306,368 bytes (allocated so far: 536,870,912 bytes,
limit set to: 1,073,741,824 bytes).

it asked for 98.00 MiB; (udacity/aind2-cnn#15)
Resource exhausted: OOM when allocating tensor with shape[8,64,224,224] and type float on
/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
"""
HARDWARE = [
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "call to cuCtxCreate returned error 214 (CUDA_ERROR_ECC_UNCORRECTABLE)",
    "call to cuMemAlloc returned error 214",
    "cudaErrorECCUncorrectable: uncorrectable ECC error encountered",
    "CUDA error: uncorrectable NVLink error detected during the execution",
    "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU",
    "NVRM: GPU at PCI:0000:3b:00: GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    "[ 12.5] NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, Double Bit ECC Error",
]
DISK = [
    "Error while serializing: I/O error: No space left on device (os error 28)",
    "OSError: [Errno 122] Disk quota exceeded: 'ckpt.pt'",
    "write failed: ENOSPC",
]
PLAIN = [
    "ResourceExhaustedError: OOM when allocating tensor with shape[9] on /job:localhost/device:CPU:0 by allocator cpu",
    "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes. Error code 12",
    "MemoryError",
    "OSError: [Errno 28] inotify watch limit reached",
    "ValueError: out of range",
    "RuntimeError: CUDA error: unspecified launch failure",
    "RuntimeError: CUDA error: device-side assert triggered",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, Ch 00000010, MMU Fault",
    "        SRAM Uncorrectable                : 0",
    "",
]


@pytest.mark.parametrize("line", GPU)
def test_gpu_memory(line):
    """The words of six frameworks, and CUDA's own."""
    end, detail = judge(1, None, b"epoch 1\n" + line.encode() + b"\n", 0)
    assert end == "gpu-oom"
    assert line[-60:-20] in detail or line in detail


@pytest.mark.parametrize("case", SIZES.split("\n\n"))
def test_how_much_was_asked_for_and_who_else_was_there(case):
    """What it asked for and held in each framework's words, others on the card, and a limit of the program's own."""
    told, *lines = case.splitlines()
    line = " ".join(lines)
    end, detail = judge(1, None, b"epoch 1\n" + line.encode() + b"\nbye\n", 0)
    assert end == "gpu-oom"
    assert told.rpartition(" (")[0] in detail
    assert f"the log ends with: {line}"[:120] in detail


@pytest.mark.parametrize("text", ["allocate 1" + "0" * 5000 + " bytes", "shape[,] and type float", "shape[9" * 999])
def test_a_size_that_cannot_be_read_is_not_told(text):
    """What a job prints may be anything, and the verdict stands without it."""
    assert judge(1, None, f"CUDA out of memory {text}".encode(), 0)[0] == "gpu-oom"


@pytest.mark.parametrize("line", HARDWARE)
def test_hardware(line):
    """A faulty card is no fault of the job: MFlowCode/MFC#1748, vllm-project/vllm#5222, jade-hpc-gpu#194."""
    end, detail = judge(1, None, b"step 3\n" + line.encode() + b"\n", 0)
    assert end == "device-lost"
    assert detail == f"exit code 1; the log ends with: {line}"
    assert judge(0, None, line.encode(), 0)[0] == "succeeded"


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: cuda runtime error (46) : all CUDA-capable devices are busy or unavailable at Storage.cu:58",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "call to cuCtxCreate failed: CUDA_ERROR_DEVICE_UNAVAILABLE",
    ],
)
def test_a_busy_device_is_not_out_of_memory(line):
    """The compute mode is what to look at: pytorch/pytorch#3871, cBio/cbio-cluster#144."""
    end, detail = judge(1, None, line.encode(), 0)
    assert end == "failed"
    assert "compute mode is prohibited, or exclusive and another process holds it" in detail
    assert detail.endswith(line)


def test_a_disk_that_is_read_only_is_not_full():
    """Room would not help, and neither would another run."""
    end, detail = judge(1, None, b"OSError: [Errno 30] Read-only file system: 'digits-out.ipynb'\n", 0)
    assert end == "failed"
    assert "a disk that it writes to is read-only, so another run ends the same way: let it write elsewhere" in detail


@pytest.mark.parametrize(
    ("log", "quoted"),
    [
        (b"Traceback (most recent call last):\nKeyError: 'missing'\n\n", "KeyError: 'missing'"),
        (b"  5%|#   | 1/20\r 10%|##  | 2/20\r\x1b[31mbad batch\x1b[0m \n", "bad batch"),
        (b"x" * 400, "x" * 300),
    ],
)
def test_what_failed_is_told_in_its_own_last_words(log, quoted):
    """The last line that says something, bounded, as it looks on a screen."""
    assert judge(1, None, log, 0) == ("failed", f"exit code 1; the log ends with: {quoted}")
    assert judge(None, 6, log, 0) == ("failed", f"killed by signal 6; the log ends with: {quoted}")


@pytest.mark.parametrize(("exit_code", "signal_number"), [(75, None), (None, 9), (None, 15)])
def test_who_yields_or_is_killed_has_no_last_words(exit_code, signal_number):
    """The line that it was in the middle of does not say why."""
    assert "ends with" not in judge(exit_code, signal_number, b"step 3\n", 0)[1]


@pytest.mark.parametrize(
    ("status", "saved", "said"),
    [
        ((75, None), {"progressed": True, "to_step": 21}, "it yielded, saved up to step 21 (how)"),
        ((75, None), {"from_step": 10}, "it yielded, with nothing newer than step 10 (how)"),
        ((0, None), {}, "it left after its notice (how)"),
        ((None, 15), {}, "its notice ended it (how)"),
        ((None, 9), {}, "it was ended by force (how)"),
    ],
)
def test_who_left_because_it_was_told_to_has_not_failed(status, saved, said):
    """What it saved is what counts."""
    assert after_notice(*status, "how", saved) == said


def test_a_fork_after_cuda_is_the_programs_own():
    """And it is said that another run ends the same way: huggingface/accelerate#940, huggingface/accelerate#1293."""
    line = (
        b"RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use"
    )
    end, detail = judge(1, None, line + b" the 'spawn' start method\n", 0)
    assert end == "failed"
    assert "it used CUDA before it forked, so another run ends the same way" in detail


def test_help_that_speaks_of_memory_is_no_evidence():
    """A log that merely prints the words and exits 0 is a success: huggingface/meshgen#7."""
    text = b"usage: train.py [--batch N]\n  --batch N  lower it if you see 'CUDA out of memory'\n"
    assert judge(0, None, text, 0) == ("succeeded", "exit code 0")


@pytest.mark.parametrize("line", DISK)
def test_disk_full(line):
    """No space and no quota are one kind: bghira/SimpleTuner#2353, open-mmlab/mmdetection#12069."""
    assert judge(1, None, line.encode(), 0)[0] == "disk-full"


@pytest.mark.parametrize("line", PLAIN)
def test_anything_else_is_plain_failed(line):
    """Memory of the host is only blamed on the cgroup's evidence, and watches are no disk."""
    assert judge(1, None, line.encode(), 0)[0] == "failed"


@pytest.mark.parametrize("text", [*GPU, *DISK])
def test_a_success_is_a_success(text):
    """An error that was caught and survived changes nothing."""
    assert judge(0, None, text.encode(), 0)[0] == "succeeded"


def test_the_later_cause_counts():
    """A batch that was too big and was halved is not why the checkpoint could not be written."""
    both = (GPU[0] + "\n" + DISK[0]).encode()
    assert judge(1, None, both, 0)[0] == "disk-full"
    assert judge(1, None, (DISK[0] + "\n" + GPU[0]).encode(), 0)[0] == "gpu-oom"
    assert judge(1, None, (GPU[0] + "\n" + HARDWARE[0]).encode(), 0)[0] == "device-lost"


def test_only_the_end_of_the_log_is_evidence():
    """What happened long before the end was survived."""
    assert judge(1, None, GPU[0].encode() + b"\n" + b"x" * TAIL_BYTES, 0)[0] == "failed"


def test_137_is_no_proof():
    """A signal is told apart from an exit code, and host memory needs a counter.

    cortexlabs/cortex#1806, Blackwellboy/model-serving-minefield#28.
    """
    assert judge(None, 9, b"", 0) == ("failed", "killed by signal 9")
    assert judge(137, None, b"", 0) == ("failed", "exit code 137 (looks like signal 9)")
    assert judge(137, None, b"Killed", 1)[0] == "host-oom"
    killed = "killed by signal 9; the kernel killed 2 processes of it for want of host memory"
    assert judge(None, 9, b"", 2)[1] == killed
    assert judge(0, None, b"", 1)[0] == "succeeded"
    assert (describe(None, 11), describe(75, None)) == ("segmentation fault (signal 11)", "exit code 75")


def test_bytes_that_are_no_text_do_no_harm():
    """A log is bytes; the sentence is text."""
    assert "\ufffd" in judge(1, None, b"\xff\xfe No space left on device \x80\r\n\0", 0)[1]
