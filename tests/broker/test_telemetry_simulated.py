"""Simulated devices follow real processes: who carries the pin is on the device, and only for as long."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from jupyter_gpu.broker.telemetry.simulated import (
    BASELINE_BYTES,
    BYTES_VARIABLE,
    SimulatedSource,
    simulated_uuid,
)

MIB = 1 << 20
WAIT = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def source(tmp_path):
    """Devices of this test alone: what other tests run at the same time is not on them."""
    return SimulatedSource(3, memory_bytes=1 << 30, place=str(tmp_path))


@pytest.fixture
def run():
    """Start a process with variables of its own; it is up when this returns, and ended with the test."""
    started = []

    def start(code=WAIT, **variables):
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", code],
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def on(source, index):
    """Name who is on a device."""
    (reading,) = source.read([source.uuids[index]])
    return [pid for pid, _ in reading.processes]


def test_the_inventory_says_what_it_is(source, tmp_path):
    """Labelled simulated, with UUIDs that look like UUIDs, the same after a restart and other for another broker."""
    devices = source.devices()

    assert [device.index for device in devices] == [0, 1, 2]
    assert all(device.simulated and device.name == "Simulated GPU" for device in devices)
    assert {device.device_class for device in devices} == {"simulated-1gb"}
    assert all(
        re.fullmatch(r"GPU-5111[0-9a-f]{4}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-\d{12}", device.uuid)
        for device in devices
    )
    assert devices == SimulatedSource(3, memory_bytes=1 << 30, place=str(tmp_path)).devices()
    assert not set(source.uuids) & set(SimulatedSource(3, place="elsewhere").uuids)
    assert simulated_uuid(7) == "GPU-51110000-0000-4000-8000-000000000007"


def test_an_empty_device_is_at_rest(source):
    """Nothing runs: the baseline, no process, and no figure for what nobody simulates."""
    readings = source.read(source.uuids)

    assert [reading.uuid for reading in readings] == list(source.uuids)
    assert {reading.memory_used_bytes for reading in readings} == {BASELINE_BYTES}
    assert {reading.processes for reading in readings} == {()}
    assert {reading.temperature_celsius for reading in readings} == {None}


def test_who_carries_the_pin_is_on_the_device(source, run):
    """By the exact UUID, on each device that is named; memory is what is resident, and goes with the process."""
    one, two = source.uuids[:2]
    process = run(CUDA_VISIBLE_DEVICES=f"{one}, {two}")
    run(CUDA_VISIBLE_DEVICES=two[:-1])
    run(OTHER_VARIABLE=two)

    first, second, third = source.read(source.uuids)

    ((pid, used),) = first.processes
    assert pid == process.pid
    assert MIB < used < 200 * MIB
    assert first.memory_used_bytes == BASELINE_BYTES + used
    assert [pid for pid, _ in second.processes] == [process.pid]
    assert third.processes == ()

    process.kill()
    process.wait()

    assert on(source, 0) == []


def test_a_stated_amount_counts_instead_of_the_resident_size(source, run):
    """As people write amounts; one that cannot be read is no amount. A device never holds more than it has."""
    pin = {"CUDA_VISIBLE_DEVICES": source.uuids[0]}
    sizes = {run(**pin, **{BYTES_VARIABLE: text}).pid: text for text in ("300MiB", "1000000", "much", "8GiB")}

    (reading,) = source.read(source.uuids[:1])
    seen = {sizes[pid]: used for pid, used in reading.processes}

    assert (seen["300MiB"], seen["1000000"], seen["8GiB"]) == (300 * MIB, 1_000_000, 8 << 30)
    assert MIB < seen["much"] < 200 * MIB
    assert reading.memory_used_bytes == reading.memory_total_bytes == 1 << 30


def test_an_exec_is_seen_at_once(source, run):
    """A process that was on no device a moment ago may be on one now, with the same pid and start time."""
    code = (
        "import os, sys; print(flush=True); sys.stdin.readline();"
        f"os.environ['CUDA_VISIBLE_DEVICES'] = sys.stdin.readline().strip();"
        f"os.execv(sys.executable, [sys.executable, '-S', '-c', {WAIT!r}])"
    )
    process = run(code)
    for _ in range(3):
        assert on(source, 0) == []

    process.stdin.write(f"\n{source.uuids[0]}\n".encode())
    process.stdin.flush()
    process.stdout.readline()

    assert on(source, 0) == [process.pid]


def test_children_count_and_the_dead_do_not(source, run):
    """What a wrapper leaves behind is still on the device; who has ended and waits to be reaped is not."""
    code = (
        "import os, sys\n"
        "child = os.fork()\n"
        "if not child: os.execv(sys.executable, [sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
        "print(child, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": source.uuids[0]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child = int(process.stdout.readline())
    try:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on

        assert set(on(source, 0)) <= {child}
        deadline = time.monotonic() + 30
        while on(source, 0) != [child]:  # for a moment of its exec a process holds nothing
            assert time.monotonic() < deadline
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_long_environment_is_read_whole(source, run):
    """The pin may stand behind more than one buffer of other variables."""
    process = run(**{f"A{number}": "x" * 100_000 for number in range(3)}, CUDA_VISIBLE_DEVICES=source.uuids[2])

    assert on(source, 2) == [process.pid]


def test_the_reader_itself_is_on_no_device(source, monkeypatch):
    """A broker that was started in a pinned shell does not use the device."""
    script = (
        "import sys; from jupyter_gpu.broker.telemetry.simulated import SimulatedSource;"
        "source = SimulatedSource(1, place=sys.argv[1]); print(source.read(source.uuids)[0].processes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "own"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": simulated_uuid(0, "own")},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    assert done.stdout.strip() == "()"


def test_utilisation_follows_the_processor(source, run, monkeypatch):
    """It is the processor time between two looks; the first look cannot know it, and it ends with the work."""
    clock = [1000.0]
    monkeypatch.setattr("jupyter_gpu.broker.telemetry.simulated.time.monotonic", lambda: clock[0])
    process = run(
        "import sys, time\n"
        "print(flush=True)\n"
        "while sys.stdin.readline():\n"
        "    end = time.process_time() + 0.3\n"
        "    while time.process_time() < end: pass\n"
        "    print(flush=True)\n",
        CUDA_VISIBLE_DEVICES=source.uuids[0],
    )
    assert source.read(source.uuids)[0].utilisation_percent is None
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()

    clock[0] += 0.1
    assert source.read(source.uuids)[0].utilisation_percent is None  # too short to say
    clock[0] += 0.9
    first, second, _ = source.read(source.uuids)
    assert 25 <= first.utilisation_percent <= 40
    assert second.utilisation_percent == 0

    clock[0] += 1.0
    assert source.read(source.uuids)[0].utilisation_percent <= 5


def test_a_device_that_is_not_there_says_so(source):
    """A lease from another life of the broker may name a device that this one does not simulate."""
    (reading,) = source.read(["GPU-other"])

    assert "no such simulated device" in reading.fault


def test_a_process_that_vanishes_between_list_and_look_makes_it_look_again(source, monkeypatch):
    """Its child may have been born after the list was made: only a scan from which nobody vanished is believed."""
    scans = []
    real = source._processes._pids

    def pids():
        scans.append(1)
        return [*real(), 2**22 + 1] if len(scans) == 1 else real()

    source.read(source.uuids)  # from now on it knows which environments are always empty
    monkeypatch.setattr(source._processes, "_pids", pids)

    source.read(source.uuids)

    assert len(scans) >= 2


def test_a_zombie_that_stays_costs_no_second_scan(source, run, monkeypatch):
    """Who has been without an environment before has not vanished just now."""
    process = run("print(flush=True)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped before the test ends
    scans = []
    real = source._processes._pids
    monkeypatch.setattr(source._processes, "_pids", lambda: scans.append(1) or real())
    source.read(source.uuids)

    took = []
    for _ in range(20):  # others on this machine may come and go meanwhile, but not at each of these
        scans.clear()
        source.read(source.uuids)
        took.append(len(scans))

    assert min(took) == 1


def test_it_works_without_getdents64(source, run, monkeypatch):
    """Older C libraries lack it; the list is then made by os.listdir."""
    monkeypatch.setattr("jupyter_gpu.broker.telemetry.simulated._getdents", None)

    process = run(CUDA_VISIBLE_DEVICES=source.uuids[0])

    assert on(source, 0) == [process.pid]
