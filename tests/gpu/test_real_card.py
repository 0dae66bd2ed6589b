"""Our readings of a real card: the figures are there, and a process with a CUDA context is seen to come and to go."""

import asyncio
import subprocess
import sys

import pytest

from jupyter_gpu.broker.telemetry.clear import why_not_clear
from jupyter_gpu.broker.telemetry.nvml import NvmlSource
from jupyter_gpu.broker.telemetry.sampler import Telemetry

HELD_BYTES = 1 << 30

# The driver's own library and nothing else: no toolkit, no framework.
HOLDER = f"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code:
        sys.exit(f"{{name}} answered {{code}}")
call("cuInit", 0)
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t({HELD_BYTES}))
print("held", flush=True)
sys.stdin.read()
"""


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
