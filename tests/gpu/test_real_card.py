"""Our readings of a real card: the figures are there, and a process with a CUDA context is seen to come and to go."""

import asyncio
import ctypes
import subprocess
import sys

import pytest

from jupyter_gpu.broker.engines.verdict import judge
from jupyter_gpu.broker.telemetry.clear import why_not_clear
from jupyter_gpu.broker.telemetry.nvml import NvmlSource
from jupyter_gpu.broker.telemetry.sampler import Telemetry
from tests.stories.scene import a_broker

HELD_BYTES = 1 << 30

# The driver's own library and nothing else: no toolkit, no framework. What fails is named as the driver names it.
CUDA = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code:
        word = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(word))
        sys.exit(f"{name} answered {code}: {(word.value or b'').decode()}")
call("cuInit", 0)
device, context, memory, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
def allocate(size):
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
"""
HOLDER = (
    CUDA
    + f"""
allocate({HELD_BYTES})
print("held", flush=True)
sys.stdin.read()
"""
)
VISIBLE = (
    CUDA
    + """
call("cuDeviceGetCount", ctypes.byref(count))
for index in range(count.value):
    raw = (ctypes.c_ubyte * 16)()
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDeviceGetUuid_v2", raw, device)
    print(bytes(raw).hex())
"""
)


@pytest.fixture
def cuda():
    """Whoever computes needs more than the management library."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.skip(f"needs CUDA's driver library beside NVML: {error}")


@pytest.fixture(scope="module")
def source():
    """The cards of this machine."""
    return NvmlSource()


@pytest.fixture(scope="module")
def devices(source):
    """What can be leased here."""
    found = source.devices()
    if not found:
        pytest.skip(f"needs a GPU that can be leased: {source.fault or 'NVML lists none'}")
    return found


def test_the_figures_are_there(source, devices):
    """Who it is, how much it has and how much of that is used; what a card does not offer is None, not a lie."""
    readings = source.read([device.uuid for device in devices])

    for device, reading in zip(devices, readings, strict=True):
        assert reading.fault is None
        assert device.device_class
        assert device.device_class != "unknown"
        assert device.memory_bytes == reading.memory_total_bytes
        assert 0 <= reading.memory_used_bytes <= reading.memory_total_bytes
        assert reading.utilisation_percent is None or 0 <= reading.utilisation_percent <= 100
        assert reading.power_watts is None or 0 < reading.power_watts < 2000
        assert reading.temperature_celsius is None or 0 < reading.temperature_celsius < 120
        assert reading.processes is not None
    assert source.devices() == devices


@pytest.mark.usefixtures("cuda")
def test_a_process_is_seen_to_come_and_to_go(devices, monkeypatch):
    """Its memory shows on the card that it was pinned to and on no other; after its kill the card is clear again."""
    pinned, *others = devices
    source = NvmlSource()

    async def body():
        telemetry = Telemetry(source, interval_seconds=0.2, deadline_seconds=30)
        telemetry.start(asyncio.get_running_loop(), lambda _: None)
        uuids = [device.uuid for device in devices]
        before = await telemetry.probe(uuids)
        if before[0].processes:
            pytest.skip(f"needs GPU {pinned.index} to be empty: {before[0].processes} are on it")
        with holding(pinned.uuid, monkeypatch) as holder:
            held, *rest = await telemetry.probe(uuids)
            assert held.memory_used_bytes >= before[0].memory_used_bytes + HELD_BYTES
            assert [it.memory_used_bytes for it in rest] == pytest.approx(
                [it.memory_used_bytes for it in before[1:]], abs=HELD_BYTES // 2
            )
            assert len(rest) == len(others)
            terms = {"baseline_bytes": 1 << 30, "own_baseline_bytes": before[0].memory_used_bytes}
            assert why_not_clear(held, **terms) is not None
            if source.has_local_pids:
                assert dict(held.processes)[holder.pid] >= HELD_BYTES
            holder.kill()
            holder.wait()
            for _ in range(100):
                (left,) = await telemetry.probe([pinned.uuid])
                if why_not_clear(left, **terms) is None:
                    break
                await asyncio.sleep(0.1)
            assert why_not_clear(left, **terms) is None
        telemetry.close()

    asyncio.run(body())


@pytest.mark.usefixtures("cuda")
def test_a_pinned_process_sees_its_card_and_no_other(devices, monkeypatch):
    """Each in turn, by the UUID that CUDA itself gives it."""
    for device in devices:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device.uuid)
        done = computed(VISIBLE)
        assert done.returncode == 0, done.stderr
        seen = done.stdout.split()
        assert len(seen) == 1
        # CUDA names a MIG device by another scheme in some releases, so there the count must do.
        if device.card is None:
            assert seen == [device.uuid.removeprefix("GPU-").replace("-", "")]


@pytest.mark.usefixtures("cuda")
def test_nothing_is_visible_without_a_lease(monkeypatch):
    """A process that is pinned to none finds no card at all."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    done = computed(VISIBLE)

    assert done.returncode != 0
    assert "CUDA_ERROR_NO_DEVICE" in done.stderr


@pytest.mark.usefixtures("cuda")
def test_a_real_shortage_of_memory_is_known_as_one(devices, monkeypatch):
    """Twice what the card has is refused by the driver in words that the judge of attempts knows."""
    device = devices[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device.uuid)
    done = computed(f"{CUDA}\nallocate({2 * device.memory_bytes})")

    assert done.returncode == 1
    assert judge(done.returncode, None, done.stderr.encode(), 0)[0] == "gpu-oom", done.stderr


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("cuda", "devices")
def test_every_free_card_passes_its_trial(tmp_path):
    """`jupyter gpu doctor --trial`: it computes rightly, and is clear again."""
    with a_broker(tmp_path, devices=None, policy={}) as broker:
        argv = [sys.executable, "-m", "jupyter_gpu.cli", "doctor", "--trial"]
        done = subprocess.run(argv, env=broker.environment, capture_output=True, text=True, timeout=240, check=False)
        assert "trial GPU" in done.stdout, done.stderr
        assert not [line for line in done.stdout.splitlines() if "trial" in line and "fail" in line], done.stdout
        assert all(it.condition is None for it in broker.client.status().devices)


def computed(program):
    """Run a program that uses CUDA to its end."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


class holding:  # noqa: N801 - reads as what it does
    """A process that holds memory on a card, for as long as the block lasts."""

    def __init__(self, uuid, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid)

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = self.process.stdout.readline()
        if said != "held\n":
            pytest.fail(f"cannot hold memory through CUDA: {self.process.communicate(timeout=30)[1]}")
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate(timeout=30)
