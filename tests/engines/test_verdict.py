"""What an attempt died of is read from evidence, never guessed from a number."""

import pytest

from jupyter_gpu.broker.engines.verdict import TAIL_BYTES, describe, judge

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
    "",
]


@pytest.mark.parametrize("line", GPU)
def test_gpu_memory(line):
    """The words of six frameworks, and CUDA's own."""
    end, detail = judge(1, None, b"epoch 1\n" + line.encode() + b"\n", 0)
    assert end == "gpu-oom"
    assert line[-60:-20] in detail or line in detail


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


def test_only_the_end_of_the_log_is_evidence():
    """What happened long before the end was survived."""
    assert judge(1, None, GPU[0].encode() + b"\n" + b"x" * TAIL_BYTES, 0)[0] == "failed"


def test_137_is_no_proof():
    """A signal and an exit code are told apart; host memory needs a counter: cortexlabs/cortex#1806."""
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
