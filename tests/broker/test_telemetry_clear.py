"""When a device is free, and what is said of one that is not."""

import os
import subprocess
import sys

import pytest

from jupyter_gpu.broker.telemetry.clear import (
    LOST,
    SLACK_BYTES,
    Unreadable,
    baseline_of,
    condition_of,
    is_of_the_system,
    process_has_ended,
    process_name,
    who_is_left,
    why_not_clear,
)
from jupyter_gpu.model import Condition, Policy, Reading, Vitals

MIB, GIB = 1 << 20, 1 << 30
NAMES = {100: "Xorg", 101: "gnome-shell", 102: "nvidia-persiste", 4711: "python"}


def reading(used=0, processes=(), **more):
    """Make a reading of one device."""
    return Reading(uuid="GPU-a", at=0.0, memory_used_bytes=used, processes=processes, **more)


def why(it, **more):
    """Ask with the terms of these tests."""
    terms = {
        "baseline_bytes": GIB,
        "ignored_names": ("Xorg", "gnome-shell", "nvidia-persistenced"),
        "name_of": NAMES.get,
    }
    return why_not_clear(it, **terms | more)


@pytest.mark.parametrize(
    "it",
    [
        reading(0),
        reading(GIB),
        # A desktop, whatever it takes (russellb/canhazgpu#5); the kernel cuts long names.
        reading(3 * GIB, ((100, GIB), (101, 2 * GIB))),
        reading(10 * MIB, ((102, 5 * MIB),)),
        # 100 % busy with nothing on it is no process (Datura-ai/lium-io#1140).
        reading(0, utilisation_percent=100),
        # Only one of the two can be read: GB10 has no memory figures, an old driver no list.
        reading(None),
        reading(MIB, None),
    ],
)
def test_clear(it):
    """No process but ignored ones, and memory at rest without theirs."""
    assert why(it) is None


@pytest.mark.parametrize(
    ("it", "said"),
    [
        (reading(3 * GIB, ((4711, 2254857830),)), "process 4711 (python) holds 2.1GiB"),
        (reading(0, ((4711, None),)), "process 4711 (python) is on it"),
        (reading(0, ((4712, 0),)), "process 4712 holds 0B"),
        (
            reading(0, ((1, 5), (4711, 6 * MIB), (2, None))),
            "process 4711 (python) holds 6MiB, and 2 more processes with it",
        ),
        (reading(0, ((100, 5), (4711, 6), (2, 3))), "process 4711 (python) holds 6B, and 1 more process with it"),
        (
            reading(GIB + MIB * 100),
            "1.1GiB of its memory is in use by no process that can be seen; at rest it shows at most 1GiB",
        ),
        (
            reading(3 * GIB, ((100, GIB),)),
            "2GiB of its memory is in use by no process that can be seen; at rest it shows at most 1GiB",
        ),
        (
            reading(2 * GIB, None),
            "2GiB of its memory is in use by no process that can be seen; at rest it shows at most 1GiB",
        ),
    ],
)
def test_not_clear(it, said):
    """The sentence names the process that holds most, or the memory that nobody explains."""
    assert why(it) == said


def test_the_lower_of_both_baselines_counts():
    """What the card showed when it was last empty, plus a slack, but never more than the policy lets stand."""
    assert why(reading(400 * MIB), own_baseline_bytes=300 * MIB) is None
    assert "at most 428MiB" in why(reading(500 * MIB), own_baseline_bytes=300 * MIB)
    assert why(reading(300 * MIB + SLACK_BYTES), own_baseline_bytes=300 * MIB) is None
    assert "at most 200MiB" in why(reading(201 * MIB), own_baseline_bytes=300 * MIB, baseline_bytes=200 * MIB)


def test_a_display_is_nobodys_use_whoever_draws():
    """153 MiB of a desktop must not keep a card from being reserved, by name or without one (russellb/canhazgpu#5)."""
    policy = Policy()
    terms = {"baseline_bytes": 100 * MIB, "ignored_names": (), "drawing_bytes": policy.drawing_bytes}
    desktop = reading(153 * MIB, ((4712, 150 * MIB),), drawing_pids=(4712,))

    assert why_not_clear(desktop, **terms) is None
    assert baseline_of(desktop, **terms) == 3 * MIB
    assert why_not_clear(desktop, **terms | {"drawing_bytes": 149 * MIB}) == "process 4712 holds 150MiB"
    # Both lists have it: then it computes, and is no display.
    assert why_not_clear(reading(153 * MIB, ((4712, 150 * MIB),)), **terms) == "process 4712 holds 150MiB"
    assert why_not_clear(reading(0, ((4712, None),), drawing_pids=(4712,)), **terms) is None


def test_what_the_driver_reserves_beside_a_display_is_still_memory_of_nobody():
    """Only the display's own memory is taken off."""
    it = reading(900 * MIB, ((4712, 150 * MIB),), drawing_pids=(4712,))

    said = why_not_clear(it, baseline_bytes=500 * MIB, drawing_bytes=GIB)

    assert said.startswith("750MiB of its memory is in use by no process")


def test_memory_of_the_dead_is_told_as_such():
    """Nobody can be asked to leave: the text says what brings the memory back, unless somebody alive is there too."""
    gone = {11, 12}.__contains__

    said = why(reading(40 * GIB, ((11, 40 * GIB),)), has_ended=gone)
    assert "40GiB for process 11, which has ended" in said
    assert "nvidia-smi --gpu-reset" in said

    both = why(reading(40 * GIB, ((11, 30 * GIB), (12, None))), has_ended=gone)
    assert "30GiB for processes 11, 12, which have ended" in both
    assert "memory for process 11" in why(reading(None, ((11, None),)), has_ended=gone)
    assert (
        why(reading(40 * GIB, ((11, 30 * GIB), (4711, 6 * MIB))), has_ended=gone) == "process 4711 (python) holds 6MiB"
    )


def test_exclusive_mode_is_named():
    """74 MiB in use look like room for others, and CUDA says "busy or unavailable" (pytorch/pytorch#3871)."""
    held = reading(74 * MIB, ((4711, 74 * MIB),), vitals=Vitals(compute_mode="exclusive-process"))

    assert why(held) == (
        "process 4711 (python) holds 74MiB; the GPU's compute mode is exclusive-process, so CUDA lets nobody else in"
    )
    assert "compute mode" not in why(reading(0, ((4711, 5),), vitals=Vitals(compute_mode="default")))
    assert why(reading(0, vitals=Vitals(compute_mode="exclusive-process"))) is None


def test_an_idle_board_of_an_older_driver_is_clear():
    """Its 912 MiB are the driver's own, which the older call counts as used (XuehaiPan/nvitop#13)."""
    assert why_not_clear(reading(912 * MIB), baseline_bytes=Policy().baseline_bytes) is None


def test_a_name_that_is_not_known_is_ignored_by_nobody():
    """Where pids cannot be looked up, every process counts."""
    assert why(reading(0, ((100, 5),)), name_of=lambda _: None) == "process 100 holds 5B"


@pytest.mark.parametrize("it", [reading(fault="The GPU driver is silent."), reading(None, None)])
def test_what_cannot_be_read_is_neither(it):
    """The caller lets its clock stand still: unknown is not clear, and not occupied."""
    with pytest.raises(Unreadable):
        why(it)
    with pytest.raises(Unreadable):
        who_is_left(it, {1})


def test_a_shared_device_is_clear_when_the_own_processes_are_gone():
    """What others do there does not count."""
    shared = reading(9 * GIB, ((4711, GIB), (5, 8 * GIB)))

    assert who_is_left(shared, {4711, 6}, name_of=NAMES.get) == "process 4711 (python) holds 1GiB"
    assert who_is_left(shared, {6}) is None
    with pytest.raises(Unreadable):
        who_is_left(reading(9 * GIB, None), {6})


def test_the_own_baseline_only_falls():
    """A leak that nobody holds must not become what is normal; nor what is there while work runs."""

    def after(it, own):
        return baseline_of(it, baseline_bytes=GIB, own_baseline_bytes=own, ignored_names=("Xorg",), name_of=NAMES.get)

    assert after(reading(300 * MIB), None) == 300 * MIB
    assert after(reading(310 * MIB), 300 * MIB) == 300 * MIB
    assert after(reading(5 * MIB), 300 * MIB) == 5 * MIB
    assert after(reading(2 * GIB), None) is None
    assert after(reading(900 * MIB), 300 * MIB) == 300 * MIB
    assert after(reading(0, ((4711, 0),)), 300 * MIB) == 300 * MIB
    assert after(reading(303 * MIB, ((100, 300 * MIB),)), None) == 3 * MIB
    assert after(reading(fault="silent"), 300 * MIB) == 300 * MIB
    assert after(reading(None), None) is None


def test_what_is_wrong_is_one_of_the_conditions():
    """A card that has gone is told from one that only cannot be read just now."""
    assert condition_of(reading()) is None
    assert condition_of(reading(fault=f"{LOST}: it has fallen off the bus.")) is Condition.LOST
    assert condition_of(reading(fault="The GPU driver has not answered.")) is Condition.UNREADABLE


def test_the_name_of_a_process():
    """As the kernel has it; none for a process that has ended."""
    assert process_name(os.getpid())
    assert process_name(2**22 + 1) is None


def test_whether_a_process_has_ended():
    """By the kernel, since /proc may hide the processes of others."""
    assert not process_has_ended(os.getpid())
    assert not process_has_ended(1)
    assert process_has_ended(2**22 + 1)
    assert not process_has_ended(2**40)  # no number that the kernel knows: nothing is certain


def test_a_name_hides_only_what_is_the_systems_own():
    """Anybody may call a program Xorg: of an ordinary user it counts like any other, and is named."""
    display = reading(5, ((100, 5),))
    names = {100: "Xorg"}
    assert why(display, name_of=names.get, is_systems=lambda _: True) is None
    assert why(display, name_of=names.get, is_systems=lambda _: False) == "process 100 (Xorg) holds 5B"


def test_who_is_of_the_system():
    """Root and the users of services, in all that the process may become; nobody who is gone."""
    if os.geteuid() != 0:
        pytest.skip("only root starts processes of others: run the tests as root")
    for ids, is_theirs in (((0, 0, 0), True), ((0, 2000, 0), False), ((2000, 0, 2000), False), ((33, 33, 33), True)):
        code = f"import os, time; os.setresuid{ids}; print(flush=True); time.sleep(600)"
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            assert is_of_the_system(process.pid) is is_theirs
            process.kill()
    assert not is_of_the_system(2**22 + 1)


def test_what_nobody_has_taken_note_of_the_end_of_has_ended():
    """Nobody could end it any more."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_has_ended(process.pid)
    process.wait()


def test_of_very_many_processes_few_are_looked_at():
    """Ten thousand on one card, each asked for its name three times, held up every answer; all are counted."""
    asked = []
    processes = tuple((pid, pid) for pid in range(1, 10_001))

    def name_of(pid):
        asked.append(pid)
        return "python"

    it = reading(GIB, processes)

    assert why(it, name_of=name_of) == "process 10000 (python) holds 9.8KiB, and 9999 more processes with it"
    assert len(asked) < 100
    # Those that are ignored, however many, hide nobody.
    it = reading(GIB, (*((100, 1 << 20) for _ in range(100)), (4711, 1)))
    assert why(it) == "process 4711 (python) holds 1B"
