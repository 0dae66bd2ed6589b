"""The one document: what a caller may see, each wait with its place and its sentence, at bounded cost."""

from typing import Any

import msgspec
import pytest

from jupyter_gpu.core.status import MOST_EXPLAINED, MOST_SHOWN, status, view
from jupyter_gpu.core.told import why_not_served
from jupyter_gpu.model import (
    AlertView,
    Caller,
    Card,
    Condition,
    Cordon,
    DeviceView,
    EndReason,
    IsolationView,
    Kind,
    LoadPolicy,
    Outcome,
    Policy,
    Profile,
    QuotaRule,
    Reading,
    Release,
    Scope,
    SeeCondition,
    SharingRule,
    State,
    Status,
    Use,
    UseKind,
    Vitals,
    pack_bytes,
)
from tests.world import GIB, Play, a_device, a_job, a_mig_device, a_reservation, a_spec

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
    assert f"You are 2nd in queue interactive, behind reservation {waiting[0]}." in second.reason
    assert f"jupyter gpu cancel {waiting[0]}" in first.reason


def test_a_list_can_be_put_in_the_order_of_the_line_by_what_the_views_say() -> None:
    """A short job passes a long one that came before it, which its number does not tell."""
    play = Play(devices=1)
    play.running("grace")
    long, short = play.job("ada", seconds=8 * 3600), play.job("bob", seconds=600)

    views = [view(play.world, play[id_], ROOT, play.now) for id_ in (long, short)]

    views.sort(key=lambda it: (-it.priority, not it.lifted, it.rank_ms, it.id))
    assert [it.id for it in views] == [it.id for it in play.world.queued()] == [short, long]


def test_who_waits_for_their_own_reservation_reads_that_it_is_theirs() -> None:
    """With a name it reads like somebody else's."""
    play = Play(devices=1)
    play.submit(a_reservation(owner="ada", seconds=3600))
    job = play.submit(a_job("ada"))

    assert view(play.world, play[job], ADA, play.now, alone=True).reason.startswith(
        "No GPU is free: GPU 0 is reserved by you"
    )


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


def test_what_a_queue_expects_of_work_without_a_limit_is_told_to_nobody_as_its_end() -> None:
    """It orders the line; as "until about 14:05" it reads like a fact, and it is four hours off."""
    play = Play(devices=1)
    running = play.running(owner="grace")
    first = play.submit(a_job(owner="ada", seconds=60))
    person = play.submit(a_reservation(owner="ada"))

    document = seen_by(play, ADA)
    seen = {it.id: it for it in document.workloads if it.is_mine}

    assert document.devices[0].free_at is None
    assert seen[first].expected_start_at is None
    assert f"When is not known: job {running} has no time limit." in seen[first].reason
    assert seen[person].expected_start_at == play.now + 600 + 120 + 30, "to whom it must yield in any case"


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


# -- devices as they are


MIB = 1 << 20


def seen_device(play: Play, caller: Caller = ADA) -> DeviceView:
    """The first device, as a caller sees it."""
    return seen_by(play, caller).devices[0]


def read(play: Play, **words: Any) -> None:
    """What NVML says of the first device."""
    play.world.readings["gpu-0"] = Reading(uuid="gpu-0", at=play.now, memory_total_bytes=80 * GIB, **words)


def test_what_is_used_and_what_the_driver_keeps_stand_apart() -> None:
    """An idle board is idle, though the older call counts the reserve as used (wookayin/gpustat#141)."""
    play = Play(devices=1)
    read(play, memory_used_bytes=8 * MIB, memory_reserved_bytes=904 * MIB)

    shown = seen_device(play)

    assert (shown.memory_used_bytes, shown.memory_reserved_bytes) == (8 * MIB, 904 * MIB)
    assert shown.note == ""


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ({"vitals": Vitals(drives_display=True)}, "Drives a display, 153MiB already used."),
        ({"drawing_pids": (7,)}, "Drives a display, 153MiB already used."),
        ({"drawing_pids": (7,), "vitals": Vitals(drives_display=False)}, ""),
        ({}, ""),
    ],
)
def test_a_display_is_a_note_and_no_fault(words: dict[str, Any], note: str) -> None:
    """A desktop's 153 MiB keep nobody from reserving the card (russellb/canhazgpu#5)."""
    play = Play(devices=1)
    read(play, memory_used_bytes=153 * MIB, processes=((7, 150 * MIB),), **words)

    assert seen_device(play).note == note
    assert play.state(play.submit(a_reservation())) is State.ACTIVE


def test_of_a_display_only_what_it_draws_with_is_its_own_while_somebody_works() -> None:
    """What the holder uses is not the display's; where that is not told, no amount is."""
    play = Play(devices=1)
    play.submit(a_reservation())
    for drawn, note in ((150 * MIB, "Drives a display, 150MiB already used."), (None, "Drives a display.")):
        read(play, memory_used_bytes=9 * GIB, processes=((7, drawn), (8, 8 * GIB)), drawing_pids=(7,))

        assert seen_device(play).note == note


def test_what_cannot_be_checked_is_said() -> None:
    """Where the driver tells no memory of single processes nobody's part is checked (pytorch/pytorch#64491)."""
    play = Play([a_device(0, exclusive=True)])
    assert seen_device(play).note == "Its compute mode lets one process in at a time."

    play = Play(1, Policy(sharing=(SharingRule(),)))
    read(play, processes=((7, None),))
    assert "nobody's part is checked" in seen_device(play).note


def test_parts_are_shown_as_leased_in_all() -> None:
    """Nothing of a shared device, a sum, and not known of one that is leased whole."""
    play = Play(2, Policy(sharing=(SharingRule(device="gpu-0"),)))
    assert [it.memory_leased_bytes for it in seen_by(play, ADA).devices] == [0, None]

    for _ in range(2):
        play.submit(a_job(memory_bytes=20 * GIB, on=("gpu-0",)))
    assert seen_device(play).memory_leased_bytes == 40 * GIB
    assert seen_by(play, ADA).workloads[0].reason.startswith("It holds 20GiB of GPU 0")


def test_who_is_on_a_device_is_shown_with_what_the_caller_may_know() -> None:
    """The largest first. What somebody runs is for them and operators; whose it is where names are public."""
    play = Play(devices=1, policy=Policy(names_are_public=False))
    job = play.running("grace")
    play.world.uses["gpu-0"] = (
        Use(pid=1, kind=UseKind.HOLDER, workload=job, memory_bytes=GIB, name="python", user="u1000"),
        Use(pid=2, kind=UseKind.KERNEL, memory_bytes=None, name="ipykernel", user="ada", where="kernel of x.ipynb"),
        Use(pid=3, kind=UseKind.SYSTEM, memory_bytes=4 * MIB, name="Xorg", user="root"),
        Use(pid=4, kind=UseKind.UNKNOWN, memory_bytes=2 * GIB),
    )

    for_ada, for_grace, for_root = ({it.pid: it for it in seen_device(play, who).uses} for who in (ADA, GRACE, ROOT))

    assert list(for_ada) == [4, 1, 3, 2]
    assert [(it.name, it.user, it.where) for it in for_ada.values()] == [
        ("", None, ""), ("", None, ""), ("Xorg", "root", ""), ("ipykernel", "ada", "kernel of x.ipynb"),
    ]  # fmt: skip
    assert (for_grace[1].name, for_grace[1].user, for_grace[2].user, for_grace[2].where) == (
        "python",
        "u1000",
        None,
        "",
    )
    assert (for_root[1].user, for_root[2].where) == ("u1000", "kernel of x.ipynb")
    assert [it.foreign for it in for_ada.values()] == [True, False, False, True]
    assert for_ada[1].workload == job

    play.do(LoadPolicy(policy=Policy()))
    assert [(it.user, it.name) for it in seen_device(play).uses if it.pid == 1] == [("u1000", "")]


def test_nobody_is_said_to_be_on_a_device_that_is_lost() -> None:
    """What was read last is of before."""
    play = Play(devices=2)
    play.running("grace")
    job = play.running("ada")
    play.world.uses["gpu-0"] = (Use(pid=1, kind=UseKind.ASTRAY, workload=job),)
    play.do(SeeCondition(device="gpu-0", condition=Condition.LOST))

    assert seen_device(play).uses == ()
    assert view(play.world, play[job], ADA, play.now, alone=True).reason == "It holds GPU 1."


def test_a_gpu_in_mig_mode_is_a_card_beside_its_mig_devices() -> None:
    """It shows what it still offers, and what it does not offer is not known (XuehaiPan/nvitop#5)."""
    play = Play([a_device(1), a_mig_device(0), a_mig_device(2)])
    play.world.readings["card-0"] = Reading(
        uuid="card-0", at=play.now, memory_used_bytes=14_987_362_304, memory_total_bytes=42_505_273_344
    )
    bare = Card(uuid="card-7", index=7, name="A30", memory_bytes=24 * GIB)

    document = status(play.world, ADA, play.now, store_id="s", simulated=False, cards=(bare,))

    assert [(it.number, it.card) for it in document.devices] == [("0:0", "card-0"), ("0:2", "card-0"), ("1", None)]
    split, empty = document.cards
    assert (split.index, split.memory_used_bytes, split.utilisation_percent) == (0, 14_987_362_304, None)
    assert (split.memory_total_bytes, split.sampled_at) == (42_505_273_344, play.now)
    assert (empty.uuid, empty.memory_total_bytes, empty.memory_used_bytes, empty.sampled_at) == (
        "card-7", 24 * GIB, None, None,
    )  # fmt: skip


def test_alerts_and_isolation_are_passed_on() -> None:
    """They are found elsewhere; the document only carries them."""
    alert, isolation = AlertView(key="k", since=1.0, text="t"), IsolationView(enforced=True, by="cgroup v2")

    document = status(
        Play(1).world, ADA, 0.0, store_id="s", simulated=False, alerts=(alert,), isolation=isolation
    )  # fmt: skip

    assert (document.alerts, document.isolation) == ((alert,), isolation)


def test_what_a_holder_should_know_stands_in_its_reason_for_its_owner() -> None:
    """And for operators: it runs on a GPU that is not its own (justanhduc/task-spooler#73)."""
    play = Play(devices=2)
    play.running("ada")
    job = play.running("grace")
    play.world.uses["gpu-0"] = (Use(pid=4711, kind=UseKind.ASTRAY, workload=job),)
    said = "It runs outside its reservation: process 4711 of it is on GPU 0."

    reasons = [view(play.world, play[job], who, play.now, alone=True).reason for who in (GRACE, ROOT, ADA)]

    assert [said in reason for reason in reasons] == [True, True, False]
    assert reasons[0].startswith("It holds GPU 1.")
    assert said in seen_by(play, GRACE).workloads[1].reason


def test_a_device_that_is_not_well_is_named_in_words() -> None:
    """Who waits reads what it has, and not a code."""
    play = Play(devices=3)
    play.do(SeeCondition(device="gpu-0", condition=Condition.FAULTY))
    play.do(SeeCondition(device="gpu-1", condition=Condition.FOREIGN))
    play.do(Cordon(device="gpu-2", by="op"))
    play.submit(a_job("ada"))

    (mine,) = seen_by(play, ADA).workloads

    assert mine.reason.startswith(
        "No GPU is free: GPU 0 has a hardware fault, GPU 1 is used by somebody who has no lease of it, "
        "GPU 2 is taken out of use by an operator."
    )


def test_a_device_that_is_cordoned_and_not_well_is_both() -> None:
    """Who uncordons it must not wonder why it gets no work, and who mends it neither."""
    play = Play(devices=1)
    play.do(SeeCondition(device="gpu-0", condition=Condition.FOREIGN))
    play.do(Cordon(device="gpu-0", by="op"))
    play.submit(a_job("ada"))

    (mine,) = seen_by(play, ADA).workloads

    assert mine.reason.startswith(
        "No GPU is free: GPU 0 is used by somebody who has no lease of it, and is taken out of use by an operator."
    )


def test_who_waits_for_a_device_that_is_lost_reads_which() -> None:
    """And not that there is none such."""
    play = Play([a_device(0), a_mig_device(0, card=1), a_mig_device(1, card=1)])
    play.do(SeeCondition(device="mig-1:0", condition=Condition.LOST))
    play.submit(a_job("ada", on=("mig-1:0",)))

    (mine,) = seen_by(play, ADA).workloads

    assert mine.reason.startswith(
        "GPU 1:0 is lost: it has gone from the bus or from the inventory. You are first in queue training."
    )


def test_who_waits_for_simulated_gpus_of_the_last_broker_reads_how_they_come_back() -> None:
    """They have not gone from any bus: it is this broker that does not make them."""
    play = Play(devices=1)
    why = why_not_served(4, simulated=True)
    play.do(SeeCondition(device="gpu-0", condition=Condition.LOST, detail=why))
    job = play.job()

    reason = view(play.world, play[job], ADA, play.now, alone=True).reason
    assert reason.startswith(f"GPU 0 is lost: {why}.")
    assert "`jupyter gpu broker start --simulated 4`" in reason


def test_who_asked_for_a_part_and_a_least_free_memory_reads_what_is_missing() -> None:
    """The larger of the two is what decides."""
    play = Play([a_device(0)], Policy(sharing=(SharingRule(),)))
    play.submit(a_job("grace", memory_bytes=50 * GIB))
    play.submit(a_job("ada", memory_bytes=20 * GIB, min_free_bytes=40 * GIB))

    reason = view(play.world, play[2], ADA, play.now, alone=True).reason

    assert reason.startswith("No GPU has 40GiB free: GPU 0 has 30GiB free.")


def test_a_device_says_what_it_has_and_since_when() -> None:
    """And on what evidence, so that people can judge it."""
    play = Play(devices=1)
    assert seen_device(play).condition_since is None
    play.do(SeeCondition(device="gpu-0", condition=Condition.HOT, detail="it shows 97°C"))
    began = play.now
    play.later(60)

    it = seen_device(play)

    assert (it.condition, it.condition_detail, it.condition_since) == (Condition.HOT, "it shows 97°C", began)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (Condition.FOREIGN, "used by a process without a lease"),
        (Condition.NOT_CLEAR, "something is left on it; an operator can see what"),
        (Condition.HOT, "process 4711 (secret-project) holds 30GiB"),
    ],
)
def test_where_names_are_not_public_a_condition_names_no_process_to_others(condition: Condition, said: str) -> None:
    """What others run is theirs to know; operators read all of it."""
    detail = "process 4711 (secret-project) holds 30GiB"
    play = Play(devices=1)
    play.do(SeeCondition(device="gpu-0", condition=condition, detail=detail))

    assert seen_by(play, ADA).devices[0].condition_detail == detail
    play.do(LoadPolicy(policy=Policy(names_are_public=False)))
    assert seen_by(play, ADA).devices[0].condition_detail == said
    assert seen_by(play, ROOT).devices[0].condition_detail == detail


def test_who_has_yielded_reads_from_where_it_goes_on_and_nobody_else_does() -> None:
    """That it lost nothing is what its owner wants to know."""
    play = Play(1)
    job = play.running()
    play.reservation(owner="grace")
    left = Outcome(end=EndReason.FAILED, exit_code=75, noticed=True, progressed=True, to_step=21)
    play.exit(job, left)

    mine, theirs = (view(play.world, play[job], who, play.now, alone=True).reason for who in (ADA, GRACE))
    assert mine.endswith(" It goes on from step 21.")
    assert "step" not in theirs


def test_words_that_end_with_a_full_stop_of_their_own_get_no_other() -> None:
    """Frameworks end their errors with one."""
    play = Play(1)
    job = play.running()
    play.exit(job, Outcome(end=EndReason.GPU_OOM, exit_code=1, detail="exit code 1; CUDA out of memory."))

    reason = view(play.world, play[job], ADA, play.now, alone=True).reason
    assert reason.startswith("It ended: gpu-oom (exit code 1; CUDA out of memory). ")


def test_who_waits_for_another_device_than_the_one_it_died_on_reads_why() -> None:
    """The one that is free is none for it."""
    play = Play(devices=2)
    job = play.running("ada")
    play.running("grace")
    play.exit(job, Outcome(end=EndReason.DEVICE_LOST, exit_code=1, detail="uncorrectable ECC error"))
    (mine,) = (it for it in seen_by(play, ADA).workloads if it.is_mine)
    assert mine.reason == "Its last attempt died of the hardware (uncorrectable ECC error); the next try is in 10s."
    play.later(10)

    (mine,) = (it for it in seen_by(play, ADA).workloads if it.is_mine)

    assert mine.reason.startswith("No GPU is free: an attempt of it died of the hardware of GPU 0, GPU 1 runs job 2.")


def test_who_waits_for_memory_reads_how_much_there_is() -> None:
    """Of a part what is really free of each device; who has it whole is named as always."""
    play = Play(3, Policy(sharing=(SharingRule(),)))
    play.running("grace", memory_bytes=70 * GIB, on=("gpu-0",))
    play.running("grace", on=("gpu-1",))
    play.world.readings["gpu-2"] = Reading(
        uuid="gpu-2", at=play.now, memory_used_bytes=75 * GIB, memory_total_bytes=80 * GIB
    )
    play.submit(a_job("ada", memory_bytes=20 * GIB))
    play.submit(a_job("ada", min_free_bytes=20 * GIB))
    play.submit(a_job("ada", devices=2, memory_bytes=10 * GIB, on=("gpu-0", "gpu-1")))

    part, whole, two = (it.reason for it in seen_by(play, ADA).workloads if it.is_mine)

    assert part.startswith("No GPU has 20GiB free: GPU 0 has 10GiB free, GPU 1 runs job 2, GPU 2 has 5GiB free.")
    assert whole.startswith("No GPU has 20GiB free: GPU 0 runs job 1, GPU 1 runs job 2, GPU 2 has 5GiB free.")
    assert two.startswith("1 of the 2 GPUs it wants has 10GiB free: GPU 1 runs job 2.")


def test_who_waits_for_a_part_that_nobody_shares_any_more_reads_so() -> None:
    """It is not that there were no GPU."""
    play = Play(1, Policy(sharing=(SharingRule(),)))
    play.running("grace")
    play.submit(a_job("ada", memory_bytes=GIB))
    play.do(LoadPolicy(policy=Policy()))

    (mine,) = (it for it in seen_by(play, ADA).workloads if it.is_mine)

    assert mine.reason.startswith("No GPU that is shared is there at the moment.")


def test_a_device_names_the_nodes_that_its_holder_must_be_let_open() -> None:
    """Who starts a unit or a container for a lease needs them, and NVML's numbers do not tell."""
    play = Play(devices=1)
    (uuid,) = play.world.devices
    play.world.put_device(msgspec.structs.replace(play.world.devices[uuid], nodes=("/dev/nvidia3",)))

    assert seen_by(play, ADA).devices[0].nodes == ("/dev/nvidia3",)


def test_the_document_says_which_profiles_and_teams_are_the_callers() -> None:
    """And each rule that binds them, once for each of their teams; when the hub said so stands beside."""
    rules = (QuotaRule(team="*", devices=2), QuotaRule(user="*", devices=3))
    open_to_all, lesson = Profile(name="small", title="One GPU"), Profile(name="lesson", teams=("ml101",))
    play = Play(4, Policy(quotas=rules, profiles=(open_to_all, lesson)))
    ada = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}), groups=("ml101", "vision"), groups_at=5.0)

    seen = status(play.world, ada, play.now, store_id="s", simulated=False)
    other = status(play.world, msgspec.structs.replace(ada, groups=()), play.now, store_id="s", simulated=False)

    assert (seen.teams, seen.teams_at) == (("ml101", "vision"), 5.0)
    assert [(it.name, it.title) for it in seen.profiles] == [("small", "One GPU"), ("lesson", "lesson")]
    assert [it.rule for it in seen.quotas] == ["your team ml101", "your team vision", "you"]
    assert other.teams == ("everyone",)
    assert [it.name for it in other.profiles] == ["small"]
    assert [it.rule for it in other.quotas] == ["your team everyone", "you"]


def test_a_share_is_called_guaranteed_and_a_bound_is_not() -> None:
    """More than a share may be held: "your team vision: 3 of 2 GPUs" read as a bound that nobody keeps."""
    rules = (QuotaRule(team="vision", share_devices=2), QuotaRule(team="vision", share_devices=1, devices=3))

    ada = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}), groups=("vision",))
    seen = status(Play(4, Policy(quotas=rules[:1])).world, ada, 0.0, store_id="s", simulated=False)
    bound = status(Play(4, Policy(quotas=rules[1:])).world, ada, 0.0, store_id="s", simulated=False)

    assert [(it.rule, it.devices_allowed) for it in seen.quotas] == [("guaranteed to your team vision", 2)]
    assert [(it.rule, it.devices_allowed) for it in bound.quotas] == [("your team vision", 3)]
