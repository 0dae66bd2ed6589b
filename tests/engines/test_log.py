"""The log: every byte, at its offset, bounded, whatever happens to the disk."""

import contextlib
import json
import os
import signal
import subprocess

import pytest

from jupyter_gpu.broker.engines import joblog
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.broker.engines.joblog import JobLog
from jupyter_gpu.model import EndReason
from tests.engines.bench import PYTHON, bench, scenario, until

KIB = 1024


def disk_used(path):
    """What it takes on the disk, holes aside."""
    return path.stat().st_blocks * 512


@scenario
async def test_bytes_are_kept_as_they_came(tmp_path):
    """Bytes that are no UTF-8, NULs, a cut character, no newline at the end: hail-is/hail#12614, Nukesor/pueue#41."""
    async with bench(tmp_path) as it:
        await it.run("bash", "-c", r"echo hi; printf '\x80\0'; echo end >&2; printf '\xe2\x96'")
        assert it.log() == b"hi\n\x80\0end\n\xe2\x96"


@scenario
async def test_a_lot_of_output_just_before_the_end_is_complete(tmp_path):
    """The outcome is not known before the last byte is in the log."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", "import os; os.write(1, b'x' * 3_000_000); os.write(2, b'END')")
        await it.end()
        assert len(it.log()) == 3_000_003
        assert it.log().endswith(b"xEND")


@scenario
async def test_a_long_log_keeps_its_beginning_its_end_and_its_offsets(tmp_path):
    """Bounded on disk, marked where it is cut, and readable on by offset."""
    limit = 256 * KIB
    async with bench(tmp_path) as it:
        script = "import sys\nfor i in range(200_000): sys.stdout.write('%09d\\n' % i)\n"
        await it.run(*PYTHON[:3], "-c", script, log_limit_bytes=limit)
        log = it.log()
        assert len(log) == 2_000_000
        assert disk_used(it.engine.log_path(1, 1)) <= limit + 8 * KIB
        [[begin, end, why]] = it.file("log.gaps")["gaps"]
        assert why == "limit"
        assert log[:begin] == b"".join(b"%09d\n" % i for i in range(200_000))[:begin]
        assert log[end:] == b"".join(b"%09d\n" % i for i in range(200_000))[end:]
        assert len(log) - end >= limit // 4
        assert f"{end - begin} bytes of output are left out here (limit)".encode() in log[begin : begin + 100]
        assert it.file("outcome.json")["log_gaps"] == [[begin, end, "limit"]]


def test_where_holes_cannot_be_made_the_last_part_is_kept_all_the_same(tmp_path, monkeypatch):
    """Some file systems give nothing back: then writing pauses at the limit, and the end is written at the end."""
    monkeypatch.setattr(joblog, "_libc", type("", (), {"fallocate": staticmethod(lambda *_: -1)}))
    log = JobLog(str(tmp_path), 64 * KIB)
    text = b"".join(b"%07d\n" % number for number in range(50_000))
    for place in range(0, len(text), 1000):
        log.write(text[place : place + 1000])
    log.close()
    found = (tmp_path / "log").read_bytes()
    [[begin, end, why]] = log.gaps
    assert (why, len(found)) == ("limit", len(text))
    assert found[:begin] == text[:begin]
    assert found[end:] == text[end:]
    assert len(text) - end >= 8 * KIB
    assert disk_used(tmp_path / "log") <= 128 * KIB


def test_a_log_on_a_full_disk_marks_its_gap_and_goes_on(tmp_path, monkeypatch):
    """ENOSPC and EDQUOT never reach the job, offsets stay true, and writing resumes: bghira/SimpleTuner#2353."""
    real, full = os.pwrite, {"errno": None}

    def pwrite(*args):
        if full["errno"]:
            raise OSError(full["errno"], os.strerror(full["errno"]))
        return real(*args)

    monkeypatch.setattr(os, "pwrite", pwrite)
    log = JobLog(str(tmp_path), 1 << 20)
    log.write(b"before ")
    for full["errno"] in (28, 122):
        log.write(b"x" * 300)
        log.write(b"y" * 300)
    full["errno"] = None
    log.write(b" after")
    log.close()
    found = (tmp_path / "log").read_bytes()
    assert found.startswith(b"before \n[jupyter_gpu: 600 bytes of output are left out here (No space left on device)]")
    assert b"600 bytes of output are left out here (Disk quota exceeded)" in found
    assert found.endswith(b"\0 after")
    assert len(found) == 7 + 1200 + 6
    assert log.tail.endswith(b"yyy after")
    assert json.loads((tmp_path / "log.gaps").read_text())["gaps"] == [
        [7, 607, "No space left on device"], [607, 1207, "Disk quota exceeded"],
    ]  # fmt: skip


@pytest.fixture
def small_disk(tmp_path):
    """A disk of half a MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    where = tmp_path / "attempts"
    where.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", where], check=False)
    if made.returncode:
        pytest.skip("no mounts here")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


@pytest.mark.faults
@scenario
async def test_a_job_outlives_a_full_disk_and_its_outcome_is_written(tmp_path, small_disk):
    """The outcome's room was taken at the start, so a disk filled by the log itself does not lose it."""
    async with bench(tmp_path) as it:
        outcome = await it.run(*PYTHON, "-c", "import os\nfor _ in range(40): os.write(1, b'z' * 50_000)\nos._exit(3)")
        assert outcome.exit_code == 3
        full = it.file("outcome.json")
        assert full["log_bytes"] == 2_000_000
        assert [gap[2] for gap in full["log_gaps"]] == ["No space left on device"]
        assert disk_used(it.engine.log_path(1, 1)) > 100 * KIB


@pytest.mark.faults
@scenario
async def test_a_start_on_a_full_disk_is_the_engines_fault_and_can_be_repeated(tmp_path, small_disk):
    """Without room for the outcome nothing is started; with room again the same attempt starts."""
    async with bench(tmp_path) as it:
        await it.hand_over("true", workload=9)
        await it.end(9)
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError):
            ballast.write_bytes(b"x" * (1 << 20))
        outcome = await it.run("touch", "ran")
        assert (outcome.end, outcome.engine_fault) == (EndReason.LAUNCH_FAILED, True)
        assert "No space left on device" in outcome.detail
        ballast.unlink()
        await it.engine.take_back(1, 1)
        it.seen.clear()
        assert (await it.run("touch", "ran")).end is EndReason.SUCCEEDED


@pytest.mark.faults
@scenario
async def test_a_disk_that_is_full_when_the_supervisor_comes_is_told_with_its_errno(tmp_path, small_disk):
    """Without room for the outcome it makes no mark, and says so although its own log is on that disk too."""
    async with bench(tmp_path) as it:
        os.kill(it.engine.launcher_pid, signal.SIGSTOP)
        await it.hand_over("touch", "ran")
        with contextlib.suppress(OSError):
            (small_disk / "ballast").write_bytes(b"x" * (1 << 20))
        os.kill(it.engine.launcher_pid, signal.SIGCONT)
        outcome = await it.end()
        assert (outcome.end, outcome.engine_fault) == (EndReason.LAUNCH_FAILED, True)
        assert "No space left on device" in outcome.detail
        assert it.file("started") is None
        assert not (it.work / "ran").exists()


@pytest.mark.faults
@scenario
async def test_a_job_that_has_filled_the_disk_can_still_be_stopped(tmp_path, small_disk):
    """The room for an order was taken at the hand-over, also for a second one."""
    async with bench(tmp_path) as it:
        deaf = "import os, signal, time\nsignal.signal(15, lambda *_: os.write(1, b'told'))\n"
        await it.hand_over(*PYTHON, "-c", deaf + "while True: os.write(1, b'z' * 50_000); time.sleep(0.01)")
        await it.says(b"z")
        with contextlib.suppress(OSError):
            (small_disk / "ballast").write_bytes(b"x" * (1 << 20))
        await it.order(grace=600)
        await until(lambda: it.file("order.json"))
        await it.order(grace=0, kill_after=0, reason="cancelled")
        assert (await it.end()).noticed
        assert it.file("outcome.json")["order"]["reason"] == "cancelled"


@scenario
async def test_the_log_is_complete_while_the_broker_is_away(tmp_path):
    """Draining does not depend on the broker."""
    async with bench(tmp_path) as it:
        await it.hand_over("bash", "-c", "echo one; while [ ! -e go ]; do sleep 0.01; done; seq 100000; echo last")
        await it.says(b"one")
        await it.engine.close()
        (it.work / "go").touch()
        await until(lambda: it.file("outcome.json"))
        await it.begin()
        assert (await it.end()).end is EndReason.SUCCEEDED
        assert it.log().count(b"\n") == 100_002


@scenario
async def test_a_chatty_leftover_does_not_delay_the_outcome(tmp_path):
    """The outcome is told as soon as the main process has ended, however much the rest still says."""
    async with bench(tmp_path) as it:
        script = "trap '' TERM; yes & echo pid $!; exit 4"
        await it.hand_over("bash", "-c", script, leftover_seconds=60, log_limit_bytes=1 << 20)
        outcome = (await it.sighting(Stage.EXITED)).outcome
        assert outcome.exit_code == 4
        await it.order(0, 0)
        await it.end()


@scenario
async def test_hundreds_of_megabytes_at_full_speed_are_taken_and_bounded(tmp_path):
    """A gigabyte in a minute and more: the job is never held up for long, and the disk holds no more than the limit."""
    block, count, limit = 64 * KIB, 6_000, 8 << 20
    script = f"import os\nfor n in range({count}):\n  left = (b'%015d\\n' % n).ljust({block}, b'x')\n"
    script += "  while left: left = left[os.write(1, left):]\n"
    async with bench(tmp_path) as it:
        outcome = await it.run(*PYTHON, "-c", script, log_limit_bytes=limit)
        assert outcome.exit_code == 0
        path = it.engine.log_path(1, 1)
        assert path.stat().st_size == block * count == it.file("outcome.json")["log_bytes"]
        assert disk_used(path) <= limit + block
        [[begin, end, why]] = it.file("log.gaps")["gaps"]
        assert why == "limit"
        with path.open("rb") as log:
            for number in [*range(begin // block), *range(-(-end // block), count)]:
                log.seek(number * block)
                assert log.read(17) == b"%015d\nx" % number
            log.seek(begin)
            assert f"{end - begin} bytes of output are left out here (limit)".encode() in log.read(100)


def test_who_speaks_is_seen_to_speak_also_where_nothing_can_be_written(tmp_path, monkeypatch):
    """By the time of the file: else a job whose log is full would look as if it hung."""
    log = JobLog(str(tmp_path), 64 * KIB)
    log.write(b"before")
    os.utime(tmp_path / "log", (1, 1))
    monkeypatch.setattr(os, "pwrite", fail_as_full)
    log.write(b"more")
    assert (tmp_path / "log").stat().st_mtime > 1
    log.close()


def fail_as_full(*_):
    """A disk without room."""
    raise OSError(28, os.strerror(28))
