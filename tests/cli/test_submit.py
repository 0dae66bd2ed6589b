"""`submit` and `reserve`: what is asked for, and what a person is told."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu import errors, spawn
from jupyter_gpu.cli.holder import process_holder, shell_holder
from jupyter_gpu.model import Ask, EndReason, Kind, State, WaitingReason, WorkloadView
from tests.cli.fake import GIB, NOW, ended, holder, workload


def asked(gpu):
    """Give the body that was sent."""
    return next(call[1] for call in gpu.client.calls if call[0] == "submit")


def waits(body):
    """Answer that nothing is free."""
    return workload(
        15, kind=body.kind, queue="interactive", name="", waiting=WaitingReason.DEVICES, reason="No GPU is free."
    )


def test_a_job_with_everything(gpu, tmp_path):
    """Each option arrives where it is meant."""
    result = gpu(
        *(
            "submit",
            "--gpus",
            "2",
            "--class",
            "a100-80gb",
            "--min-free",
            "20GiB",
            "--time",
            "8h",
            "--queue",
            "deferred",
        ),
        *("--team", "vision", "--name", "a/b [c]", "--env", "A=1", "--folder", str(tmp_path), "--retries", "0"),
        *("--grace", "60s", "--checkpoint-dir", "ckpt", "--not-before", "+2h", "--paused", "--key", "k1"),
        *("--pool", "local", "--", "true", "--gpus", "7", "--", "--json"),
    )

    body = asked(gpu)
    assert result.code == 0
    assert body.kind is Kind.JOB
    assert body.ask == Ask(
        devices=2, device_class="a100-80gb", min_free_bytes=20 * GIB, duration_seconds=8 * 3600, pool="local"
    )
    assert (body.queue, body.team, body.name, body.paused) == ("deferred", "vision", "a/b [c]", True)
    assert body.not_before == NOW + 7200
    assert body.spec.argv == ("true", "--gpus", "7", "--", "--json")
    assert (body.spec.folder, body.spec.retries, body.spec.grace_seconds) == (str(tmp_path), 0, 60)
    assert body.spec.checkpoint_dir == "ckpt"
    assert body.spec.environment["A"] == "1"
    assert gpu.client.calls[1][2] == "k1"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("true", "--gpus", "2"), "--gpus 2 goes to the command; options of submit stand before it."),
        (("--", "true", "--time=8h"), "--time=8h goes to the command; options of submit stand before it."),
        (("--gpus", "2", "--", "true", "--gpu", "2"), ""),
    ],
)
def test_an_option_after_the_command_is_remarked_on(gpu, words, told):
    """It may well be the command's own, so the job is queued, and who slipped sees why it got one GPU."""
    result = gpu("submit", *words)

    assert result.code == 0
    assert result.err.strip() == told


def test_what_is_told_of_a_job(gpu):
    """The number, the command as it can be pasted (Nukesor/pueue#182), and why it waits."""
    result = gpu("submit", "--name", "n [red]", "--", "echo", "two words", "it's")

    assert result.out == (
        "Submitted job 15 (n [red]) to queue training.\n"
        "It runs: echo 'two words' 'it'\"'\"'s'\n"
        "No GPU is free. You are first in queue training.\n"
    )


def test_options_of_the_command_are_its_own(gpu):
    """Without -- too, what follows the command belongs to it."""
    assert gpu("submit", "true", "--name", "x", "-h").code == 0
    assert asked(gpu).spec.argv == ("true", "--name", "x", "-h")
    assert asked(gpu).name == ""


def test_the_shell_is_asked_for_explicitly(gpu):
    """Only --shell gives a line to a shell."""
    assert gpu("submit", "--shell", "a && b | c").code == 0
    assert asked(gpu).spec.argv[1:] == ("-c", "a && b | c")
    assert asked(gpu).spec.argv[0] in ("/bin/bash", "/bin/sh")


def test_two_submissions_are_two_jobs(gpu):
    """Without --key each submission has a key of its own, so a repeated send is one job and two commands are two."""
    gpu("submit", "--", "true")
    gpu("submit", "--", "true")

    keys = [call[2] for call in gpu.client.calls]
    assert len(set(keys)) == 2
    assert all(keys)


def test_follow_shows_the_log_and_ends_as_the_job(gpu):
    """--follow is the log, then the end; a job that failed makes the command fail."""
    gpu.client.log_chunks = [b"step 1\n", b"step 2\n"]
    gpu.client.answers["wait 15"] = ended(15, EndReason.FAILED, detail="exit code 3")

    result = gpu("submit", "--follow", "--", "true")

    assert result.code == 1
    assert "step 1\nstep 2\nJob 15 (digits) ended 14:05: failed (exit code 3).\n" in result.out


def test_success_is_told_in_one_word(gpu):
    """That the exit code was 0 is what success means."""
    gpu.client.answers["wait 15"] = ended(15, detail="exit code 0")

    assert gpu("submit", "--wait", "--", "true").out.endswith("Job 15 (digits) ended 14:05: succeeded.\n")


def test_ctrl_c_while_following_says_that_the_job_goes_on(gpu):
    """Ctrl-C ends the looking: 130, and how to look again."""
    gpu.client.log_chunks = [b"step 1\n", KeyboardInterrupt()]
    gpu.client.answers["workload 15"] = workload(15, state=State.ACTIVE, attempt=1)

    result = gpu("submit", "--follow", "--", "true")

    assert result.code == 130
    assert "Job 15 goes on. `jupyter gpu log 15 --follow`" in result.err
    assert not [call for call in gpu.client.calls if call[0] == "cancel"]


def test_ctrl_c_before_it_starts_says_that_it_stays_in_line(gpu):
    """A job that still waits does not go on, it waits on."""
    gpu.client.log_chunks = [KeyboardInterrupt()]

    assert "Job 15 stays in line. " in gpu("submit", "--follow", "--", "true").err


def test_a_known_key_is_told_as_such(gpu):
    """Nobody takes the job of an earlier command for a new one."""
    gpu.client.answers["submit"] = lambda _: workload(14, name="sweep 3", reason="No GPU is free.")

    assert gpu("submit", "--key", "k", "--", "true").out == (
        "Job 14 (sweep 3) is there already (same key).\nNo GPU is free.\n"
    )
    del gpu.client.answers["submit"]
    assert gpu("submit", "--key", "k2", "--", "true").out.startswith("Submitted job 15")


def test_a_word_of_a_shell_is_asked_about(gpu):
    """Without a shell `|` is a word like any other; the line that was meant is named."""
    result = gpu("submit", "--", "echo", "it's", "|", "tee", "out.txt")

    assert result.code == 0
    assert "'|' goes to the command as a word. Did you mean --shell" in result.err
    assert "| tee out.txt" in result.err
    assert gpu("submit", "--", "echo", "a|b").err == ""


@pytest.mark.parametrize("command", ["submit -- true", "reserve"])
def test_ctrl_c_while_asking_says_where_to_look(gpu, command):
    """Nobody knows then whether the broker has it; the sentence says how to see."""
    gpu.client.errors["submit"] = KeyboardInterrupt()

    result = gpu(*command.split())

    assert result.code == 130
    assert "`jupyter gpu queue --mine`" in result.err


# -- reserve


def test_a_reservation_for_this_shell(gpu):
    """It says what it got, until when, and the line that pins the shell."""
    result = gpu("reserve", "2", "--for", "2h", "--class", "a100-80gb")

    body = asked(gpu)
    uuid = gpu.client.lab.devices[2].uuid
    assert result.code == 0
    assert body.ask == Ask(devices=2, device_class="a100-80gb", duration_seconds=7200)
    assert body.holder.kind == "shell"
    assert body.holder == shell_holder()
    assert "Reservation 15 holds GPU 2 until 16:05." in result.out
    assert f"\nexport CUDA_VISIBLE_DEVICES={uuid} CUDA_DEVICE_ORDER=PCI_BUS_ID" in result.out
    assert "`jupyter gpu release 15`" in result.out


def test_export_is_only_the_line(gpu):
    """--export can be given to eval."""
    uuid = gpu.client.lab.devices[2].uuid

    result = gpu("reserve", "--export")

    pin = f"CUDA_VISIBLE_DEVICES={uuid} CUDA_DEVICE_ORDER=PCI_BUS_ID NVIDIA_VISIBLE_DEVICES={uuid}"
    assert (result.out, result.err) == (f"export {pin} JUPYTER_GPU_RESERVATION=15\n", "")


def test_a_given_holder_is_used(gpu):
    """A magic reserves for its kernel."""
    gpu.holder = msgspec.structs.replace(holder(), kind="kernel")

    result = gpu("reserve")

    assert result.out == "Reservation 15 holds GPU 2 until 16:05. It ends with this kernel.\n"
    assert asked(gpu).holder == gpu.holder


def test_waiting_in_line_can_be_given_up(gpu):
    """Ctrl-C while waiting leaves the line: 130, and it says so."""
    gpu.client.answers["submit"] = waits
    gpu.client.errors["wait"] = KeyboardInterrupt()
    gpu.client.errors["cancel"] = errors.NotFound("gone meanwhile")

    result = gpu("reserve")

    assert result.code == 130
    assert ("cancel", 15) in gpu.client.calls
    assert "Ctrl-C gives its place up" in result.err
    assert "Reservation 15 has left the line" in result.err


def test_a_shell_keeps_its_place_after_a_timeout(gpu):
    """Without a command the ask stays in line when the waiting ends: 7."""
    gpu.client.answers["submit"] = waits
    gpu.client.errors["wait"] = errors.WaitTimeout("Reservation 15 is still queued.")

    gpu.client.answers["workload 15"] = workload(15, kind=Kind.RESERVATION, holder=shell_holder(), reason=IN_LINE)

    result = gpu("reserve", "--timeout", "5s")

    assert result.code == 7
    assert ("wait", 15, "active", 5, False) in gpu.client.calls
    assert not [call for call in gpu.client.calls if call[0] == "cancel"]
    assert result.out == (
        "Reservation 15 stays in line for this shell. No GPU is free. 2 ahead in queue interactive.\n"
        "This shell holds it when it is granted: `jupyter gpu wait 15` waits for that.\n"
        "Leave the line: `jupyter gpu cancel 15`.\n"
    )


IN_LINE = "No GPU is free. 2 ahead in queue interactive. Leave the line with `jupyter gpu cancel 15`."


def test_no_wait_leaves_it_in_line_for_nobody(gpu):
    """--no-wait answers at once: 7, and a later grant has a no-show time, since nobody would know of it."""
    gpu.client.answers["submit"] = lambda body: msgspec.structs.replace(waits(body), reason=IN_LINE)

    plain, export, as_json = (gpu("reserve", "--no-wait", *words) for words in ((), ("--export",), ("--json",)))

    assert plain.code == export.code == as_json.code == 7
    assert asked(gpu).holder is None
    assert plain.out == (
        "Reservation 15 stays in line. No GPU is free. 2 ahead in queue interactive.\n"
        "When it is granted you have 5m to take it: `jupyter gpu wait 15`.\n"
        "Leave the line: `jupyter gpu cancel 15`.\n"
    )
    assert (export.out, export.err) == ("", plain.out)
    assert (msgspec.json.decode(as_json.out, type=WorkloadView).id, as_json.err) == (15, "")


def test_no_wait_takes_what_is_granted_at_once(gpu):
    """Where a GPU is free --no-wait is no different: this shell holds it."""
    result = gpu("reserve", "--no-wait")

    assert result.code == 0
    assert ("move", 15, shell_holder()) in gpu.client.calls
    assert "Reservation 15 holds GPU 2" in result.out


def test_a_given_holder_waits_for_its_own(gpu):
    """A kernel that asks with --no-wait stays, and holds it when it is granted."""
    gpu.holder = msgspec.structs.replace(holder(), kind="kernel")
    gpu.client.answers["submit"] = lambda body: msgspec.structs.replace(waits(body), holder=body.holder)

    result = gpu("reserve", "--no-wait")

    assert asked(gpu).holder == gpu.holder
    assert "Reservation 15 stays in line for this kernel." in result.out


def test_an_ask_that_ends_while_waiting(gpu):
    """Cancelled by somebody else meanwhile is no GPU, and no success."""
    gpu.client.answers["submit"] = waits
    gpu.client.answers["wait 15"] = workload(15, kind=Kind.RESERVATION, state=State.ENDED, end=EndReason.CANCELLED)

    assert gpu("reserve").code == errors.LeaseLost.exit_code


@pytest.fixture
def became(monkeypatch):
    """Remember what would take our place."""
    seen = []
    monkeypatch.setattr(spawn, "become", lambda argv, environ: seen.append((argv, environ)), raising=False)
    return seen


def test_a_command_takes_our_place_and_is_pinned(gpu, became):
    """The holder is this process, whose pid the command keeps; it sees only the leased GPUs."""
    gpu.environ = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "0"}

    result = gpu("reserve", "1", "--for", "1h", "--", "env", "--json", "a b")

    uuid = gpu.client.lab.devices[2].uuid
    argv, environ = became[0]
    assert asked(gpu).holder == process_holder("command", os.getpid())
    assert argv == ("env", "--json", "a b")
    assert environ == {
        "PATH": os.environ["PATH"],
        "CUDA_VISIBLE_DEVICES": uuid,
        "NVIDIA_VISIBLE_DEVICES": uuid,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "JUPYTER_GPU_RESERVATION": "15",
    }
    assert result.out == ""
    assert "Ctrl-C goes to the command" in result.err


@pytest.mark.parametrize("words", [("--no-wait",), ("--timeout", "1s")])
def test_a_command_that_is_not_run_gives_its_place_up(gpu, became, words):
    """Nobody would run it later, so it does not stay in line: 7."""
    gpu.client.answers["submit"] = waits
    gpu.client.errors["wait"] = errors.WaitTimeout("Reservation 15 is still queued.")
    gpu.client.answers["workload 15"] = workload(15, kind=Kind.RESERVATION, waiting=WaitingReason.DEVICES)

    result = gpu("reserve", *words, "--", "true")

    assert result.code == 7
    assert ("cancel", 15) in gpu.client.calls
    assert became == []
    assert result.out == ""
    last = "Error: The command was not run: " + (
        "no GPU is free now." if words == ("--no-wait",) else "after 1s no GPU"
    )
    assert last in result.err
    assert "Its place in line is given up." in result.err
    assert "cancel" not in result.err


def test_a_command_that_cannot_be_run_gives_back(gpu, monkeypatch):
    """When the last step fails the GPUs are given back."""

    def fail(argv, environ):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(spawn, "become", fail, raising=False)

    assert gpu("reserve", "--", "true").code == 2
    assert ("cancel", 15) in gpu.client.calls


def test_a_shell_that_asks_in_a_subshell_is_the_holder():
    """`$(...)` runs in a copy of the shell that is gone at once; the shell itself holds."""
    code = "from jupyter_gpu.cli.holder import shell_holder; print(shell_holder().pid)"
    script = f"echo $$; echo $(true; {sys.executable} -c '{code}'; true)"

    shell, found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert found == shell


def test_a_holder_is_told_apart_by_its_start():
    """Pid, start ticks and boot id, as the broker compares them."""
    found = shell_holder()

    stat = Path(f"/proc/{found.pid}/stat").read_text(encoding="utf-8")
    assert found.start_ticks == int(stat.rpartition(")")[2].split()[19])
    assert found.boot_id
    assert msgspec.json.decode(msgspec.json.encode(workload(1, holder=found)), type=WorkloadView).holder == found
