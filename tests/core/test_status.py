"""The one document: what a caller may see, each wait with its place and its sentence, at bounded cost."""

import pytest

from jupyter_gpu.core.status import MOST_EXPLAINED, MOST_SHOWN, status, view
from jupyter_gpu.model import Caller, Kind, Policy, Reading, Release, Scope, State, Status, pack_bytes
from tests.world import GIB, Play, a_job, a_reservation, a_spec

ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))
GRACE = Caller(name="grace", account="grace", scopes=frozenset({Scope.READ}))
ROOT = Caller(name="root", account="root", scopes=frozenset(Scope))


def seen_by(play: Play, caller: Caller) -> Status:
    """The document for one caller."""
    return status(play.world, caller, play.now, store_id="s", simulated=True)


def test_the_caller_sees_their_own_work_and_who_holds_the_devices() -> None:
    """Own work in every state, others' work only where it holds a device; what of others waits is a number."""
    play = Play(devices=1)
    held, _, mine = (play.submit(a_job(owner=owner)) for owner in ("grace", "grace", "ada"))

    document = seen_by(play, ADA)

    assert [(it.id, it.is_mine) for it in document.workloads] == [(held, False), (mine, True)]
    assert document.waiting["training"] == 2
    assert document.devices[0].workloads == (held,)
    assert document.devices[0].holders == ("grace",)


def test_a_wait_has_its_place_and_a_sentence_that_helps() -> None:
    """What, why and what now: who holds the devices, how many are ahead, and how to leave the line."""
    play = Play(devices=1)
    play.submit(a_reservation(owner="grace", seconds=3600))
    waiting = [play.submit(a_reservation(owner="ada")) for _ in range(2)]

    first, second = (it for it in seen_by(play, ADA).workloads if it.is_mine)

    assert (first.ahead, second.ahead) == (0, 1)
    assert "GPU 0 is reserved by grace until" in first.reason
    assert "You are first in queue interactive" in first.reason
    assert "1 ahead in queue interactive" in second.reason
    assert f"jupyter gpu cancel {waiting[0]}" in first.reason


def test_names_are_hidden_where_the_policy_says_so() -> None:
    """Without public names others' work is a kind on a device; operators and the owner see whose it is."""
    play = Play(devices=1, policy=Policy(names_are_public=False))
    held = play.submit(a_job(owner="grace", name="secret-project"))

    (for_ada,), (for_grace,), (for_root,) = (seen_by(play, who).workloads for who in (ADA, GRACE, ROOT))

    assert (for_ada.id, for_ada.owner, for_ada.name, for_ada.kind) == (held, None, None, Kind.JOB)
    assert seen_by(play, ADA).devices[0].holders == ()
    assert (for_grace.owner, for_grace.name) == ("grace", "secret-project")
    assert (for_root.owner, for_root.name) == ("grace", "secret-project")


def test_what_runs_and_with_which_variables_is_for_the_owner_who_looks_at_it() -> None:
    """The document carries no command and no environment; a look at one workload does, for owner and operator."""
    play = Play(devices=1)
    job = play.world.workloads[play.submit(a_job(owner="grace"))]

    assert seen_by(play, GRACE).workloads[0].spec is None
    assert view(play.world, job, ADA, play.now, alone=True).spec is None
    assert view(play.world, job, GRACE, play.now, alone=True).spec == job.spec
    assert view(play.world, job, ROOT, play.now, alone=True).spec == job.spec


@pytest.mark.parametrize(
    ("argv", "script", "shown"),
    [
        (("/usr/bin/python3", "/home/ada/train.py", "a b"), 1, "train.py 'a b'"),
        (("python", "-c", "print(1)"), None, "python -c 'print(1)'"),
        (("/bin/bash", "-c", "a && b"), None, "a && b"),
        (("./run.sh",), 0, "run.sh"),
        (("./run.sh",), 7, "run.sh"),
        ((pack_bytes(b"./\xff.sh"), pack_bytes(b"base64:x")), None, "'\ufffd.sh' base64:x"),
    ],
)
def test_a_job_is_told_from_its_neighbours_by_its_command(argv, script, shown) -> None:
    """The script without its folder and its interpreter, of a shell's line the line; for the owner and operators."""
    play = Play(devices=1)
    play.submit(a_job(owner="grace", spec=a_spec(argv=argv, script_index=script)))

    assert seen_by(play, GRACE).workloads[0].command == shown
    assert seen_by(play, ROOT).workloads[0].command == shown
    assert seen_by(play, ADA).workloads[0].command == ""


def test_a_long_line_of_ones_own_is_shortened_and_said_to_be() -> None:
    """The first have place and sentence, more have their place, and the rest is counted."""
    play = Play(devices=1)
    play.submit(a_job(owner="grace"))
    for _ in range(MOST_SHOWN + 5):
        play.submit(a_job(owner="ada"))

    document = seen_by(play, ADA)
    mine = [it for it in document.workloads if it.is_mine]

    assert (len(mine), document.more_of_mine) == (MOST_SHOWN, 5)
    assert [it.ahead for it in mine] == list(range(MOST_SHOWN))
    assert [bool(it.reason) for it in mine] == [True] * MOST_EXPLAINED + [False] * (MOST_SHOWN - MOST_EXPLAINED)
    assert all(it.state is State.QUEUED for it in mine)


def test_the_first_in_line_hears_when_it_may_expect_to_start() -> None:
    """By the end of the holder; for who may preempt, by protected time, grace and kill; others hear nothing."""
    play = Play(devices=1)
    play.running(owner="grace", seconds=3600)
    first, second = play.submit(a_job(owner="ada", seconds=60)), play.submit(a_job(owner="ada", seconds=60))
    person = play.submit(a_reservation(owner="ada"))

    seen = {it.id: it for it in seen_by(play, ADA).workloads if it.is_mine}

    assert seen[first].expected_start_at == play.now + 3600
    assert seen[second].expected_start_at is None
    assert seen[person].expected_start_at == play.now + 600 + 120 + 30
    assert "Expected by about" in seen[person].reason


def test_a_wait_beside_a_free_device_says_what_is_short() -> None:
    """Who wants two is not told that none is free while one is."""
    play = Play(devices=2)
    play.submit(a_reservation(owner="grace"))
    play.submit(a_reservation(owner="ada", devices=2))

    (mine,) = (it for it in seen_by(play, ADA).workloads if it.is_mine)

    assert mine.reason.startswith("1 of the 2 GPUs it wants is free: GPU 0 is reserved by grace")


def test_what_a_kernel_has_left_behind_is_named_to_its_owner() -> None:
    """A child in a session of its own outlives its kernel and keeps the card (jupyter/jupyter_client#104)."""
    play = Play(devices=1)
    held = play.submit(a_reservation(owner="ada"))
    play.do(Release(workload=held, by="ada"))
    (before,) = seen_by(play, ADA).workloads
    reading = Reading(uuid="gpu-0", at=play.now + 1, processes=((4711, GIB), (4712, None)))
    play.world.readings["gpu-0"] = reading

    (mine,) = seen_by(play, ADA).workloads

    assert before.reason == "It is over; its devices are being checked before anybody else gets them."
    assert mine.reason == f"{before.reason} GPU 0 still has processes 4711, 4712 on it."
