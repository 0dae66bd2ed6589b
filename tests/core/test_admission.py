"""Asks that cannot be meant, limits, and who may enter which line. Beyond a quota one waits: see test_quota."""

from __future__ import annotations

import re

import msgspec
import pytest

from jupyter_gpu.core.admission import LONGEST_SECONDS
from jupyter_gpu.errors import Conflict, InvalidAsk, LimitExceeded, NotAllowed
from jupyter_gpu.model import (
    Ask,
    Cancel,
    Holder,
    Kind,
    Policy,
    Profile,
    QueuePolicy,
    SeeDevices,
    SharingRule,
    Submit,
    WaitingReason,
)
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING
from tests.world import DAY, GIB, HOUR, Play, a_device, a_job, a_mig_device, a_reservation, a_spec

MACHINE = (
    *(a_device(index, link_group="a" if index < 2 else "b") for index in range(4)),
    a_device(4, node="other", device_class="l4", memory_bytes=24 * GIB),
)
#: The other node's device in parts.
SHARED = Policy(sharing=(SharingRule(device_class="l4"),))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (a_job(devices=-1), "-1 devices cannot be asked for"),
        (a_reservation(devices=0), "reserves nothing"),
        (a_job(seconds=0), "length of 0"),
        (a_job(seconds=-5), "length of -5"),
        (a_job(seconds=LONGEST_SECONDS + 1), "cannot be meant"),
        (a_job(seconds=10**30), "cannot be meant"),
        (a_job(memory_bytes=0), "memory of 0"),
        (a_job(memory_bytes=-1), "memory of -1"),
        (a_job(min_free_bytes=0), "free memory of 0"),
        (a_job(host_memory_bytes=-1), "host memory of -1"),
        (a_job(cpus=0), "CPU count of 0"),
        (a_job(not_before=float("inf")), "no instant"),
        (a_job(not_before=float("nan")), "no instant"),
        (a_job(device_class="v100"), "no device class 'v100'"),
        (a_job(pool="moon"), "no pool 'moon'"),
        (a_job(queue="express"), "no queue 'express'"),
        (a_job(profile="big"), "no profile 'big'"),
        (a_job(queue="interactive"), "takes no jobs"),
        (a_reservation(queue="training"), "takes no reservations"),
        (a_job(spec=None), "nothing to run"),
        (a_job(spec=a_spec(argv=())), "nothing to run"),
        (a_job(spec=a_spec(hang_seconds=0)), "a time to hang of 0 cannot be meant"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_word_that_is_wrong(command, said):
    """InvalidAsk, in a sentence, with a hint; nothing is left behind."""
    play = Play(MACHINE, SHARED)

    with pytest.raises(InvalidAsk, match=said) as refused:
        play.do(command)

    assert refused.value.hint
    assert play.world.workloads == {}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (a_job(devices=5), "5 GPUs cannot be had on one node: the most is 4"),
        (a_job(devices=10**9), "the most is 4"),
        (a_job(devices=3, same_link_group=True), "in one link group .* the most is 2"),
        (a_job(devices=2, device_class="l4"), "2 GPUs of class l4 .* the most is 1"),
        (a_job(memory_bytes=25 * GIB), "no GPU that is shared has 25GiB: the largest is GPU . with 24GiB"),
        (a_job(min_free_bytes=81 * GIB), "no GPU has 81GiB: the largest is GPU 0 with 80GiB"),
        (a_job(devices=4, min_free_bytes=80 * GIB, device_class="l4"), "no GPU of class l4 has 80GiB: the largest is"),
        (a_job(spec=a_spec(grace_seconds=9 * HOUR)), "a grace of 9h is longer than the 15m"),
        (a_job(spec=a_spec(leftover_seconds=61)), "1m1s for what outlives the main process is longer than the 1m "),
        (a_reservation(seconds=13 * HOUR), "13h is longer than the 12h"),
    ],
)
def test_more_than_there_could_ever_be_is_refused(command, said):
    """What would wait for ever is refused at once, with the number that could be had."""
    with pytest.raises(LimitExceeded, match=said):
        Play(MACHINE, SHARED).do(command)


def test_without_devices_an_ask_for_none_still_runs():
    """Zero devices is a meaning of its own: a job that sees no GPU; all else says that there is none."""
    play = Play(0)

    assert play.do(a_job(devices=0)) == ["submitted 1", "granted 1"]
    assert play.devices_of(1) == ()
    with pytest.raises(LimitExceeded, match="no GPU"):
        play.do(a_job())


def test_what_is_cordoned_or_lost_may_come_back_and_is_waited_for():
    """Only what was never there is refused."""
    play = Play(1)
    play.do(SeeDevices(pool="local", devices=()))

    play.do(a_job())


def test_most_devices_of_one_ask_is_a_limit():
    """Beyond a limit one is refused, even where the devices exist."""
    with pytest.raises(LimitExceeded, match="one ask may contain 2 devices"):
        Play(4, Policy(most_devices=2)).do(a_job(devices=3))


def test_most_queued_is_counted_per_owner():
    """The limit of one owner does not stop another, and a place that was left can be taken again."""
    play = Play(1, Policy(most_queued=2))
    play.running()
    mine = [play.job(), play.job()]

    with pytest.raises(LimitExceeded, match="2 workloads waiting"):
        play.do(a_job())
    play.job("bob")
    play.do(Cancel(workload=mine[0], by="ada"))
    play.job()


def test_a_reservation_without_a_length_gets_the_usual_one():
    """Two hours, or what its queue allows if that is less."""
    short = Policy(queues=(QueuePolicy(name="short", priority=1, longest_seconds=600),))

    assert Play(1).submit(a_reservation()) == 1
    play, other = Play(1), Play(1, short)
    assert play[play.reservation()].ask.duration_seconds == 2 * HOUR
    assert other[other.reservation()].ask.duration_seconds == 600


VIP = QueuePolicy(name="vip", priority=200, users=("ada",), teams=("vision",))
GUARDED = Policy(queues=(VIP, INTERACTIVE, TRAINING, DEFERRED), teams={"vision": ("bob",), "speech": ("bob", "cleo")})


def test_the_usual_queue_is_the_first_that_takes_this_kind_from_this_person():
    """A guarded queue in front does not shut out those who never asked for it."""
    play = Play(4, GUARDED)

    assert play[play.job("ada")].queue == "vip"
    assert play[play.job("bob", team="vision")].queue == "vip"
    assert play[play.job("cleo")].queue == "training"


def test_a_guarded_queue_admits_its_users_and_teams():
    """By name, or by the team that the work counts for."""
    play = Play(4, GUARDED)

    play.do(a_job("ada", queue="vip"))
    with pytest.raises(NotAllowed, match="may not enter the queue vip"):
        play.do(a_job("cleo", queue="vip"))
    with pytest.raises(NotAllowed, match="no queue takes"):
        Play(1, Policy(queues=(VIP,))).do(a_job("cleo"))


def test_a_workload_counts_for_one_team():
    """The one asked for if the owner is in it, else their first by name; nobody speaks for a team of others."""
    play = Play(4, GUARDED)

    assert play[play.job("bob")].team == "speech"
    assert play[play.job("bob", team="vision")].team == "vision"
    assert play[play.job("dan")].team == "everyone"
    with pytest.raises(NotAllowed, match="not in the team 'vision'"):
        play.do(a_job("cleo", team="vision"))


def test_a_profile_is_a_named_ask():
    """Devices, class and memory are the profile's; a length or queue of one's own goes before the profile's."""
    profile = Profile(name="big", devices=2, device_class="a100", duration_seconds=HOUR, queue="deferred")
    play = Play(4, Policy(profiles=(profile,)))

    usual = play[play.job(profile="big")]
    own = play[play.job(profile="big", seconds=DAY, queue="training")]

    assert (usual.ask, usual.queue) == (Ask(devices=2, device_class="a100", duration_seconds=HOUR), "deferred")
    assert (own.ask.duration_seconds, own.queue) == (DAY, "training")


def test_a_group_of_the_hub_is_a_team_from_when_the_hub_says_so():
    """Not before, and not any more; the refusal names the groups that were seen (2i2c-org/infrastructure#8154)."""
    play = Play(4, GUARDED)

    with pytest.raises(NotAllowed, match="not in the team 'vision'") as refused:
        play.do(a_job("dan", team="vision", groups=("hiking",)))
    assert "hiking" in str(refused.value.hint)
    assert play[play.job("dan", team="vision", groups=("hiking", "vision"))].team == "vision"
    assert play[play.job("dan", groups=("hiking",))].team == "hiking"


def test_a_profile_is_for_whom_and_what_the_admin_says():
    """Whatever a form sends: by user or team, and for whole servers or for kernels and people."""
    lesson = Profile(name="lesson", teams=("ml101",), for_kernels=False)
    small = Profile(name="small", for_servers=False)
    play = Play(4, Policy(profiles=(lesson, small)))
    server = Holder(kind="server", name="ada/")

    with pytest.raises(NotAllowed, match="'lesson' is not for ada") as refused:
        play.do(a_reservation("ada", profile="lesson", holder=server))
    assert "small" in str(refused.value.hint)
    with pytest.raises(InvalidAsk, match="for whole servers only"):
        play.do(a_reservation("ada", profile="lesson", groups=("ml101",)))
    with pytest.raises(InvalidAsk, match="not for whole servers"):
        play.do(a_reservation("ada", profile="small", holder=server))
    play.do(a_reservation("ada", profile="lesson", holder=server, groups=("ml101",)))
    play.do(a_reservation("ada", profile="small"))


def test_a_job_runs_as_its_owner_unless_told_otherwise():
    """The account is fixed at submission."""
    play = Play(1)

    assert play[play.job("ada")].account == "ada"
    assert play[play.job("ada", account="u1000")].account == "u1000"


def test_a_submission_is_data():
    """What arrives over the wire as a command is what the core decides on."""
    command = Submit(kind=Kind.JOB, owner="ada", ask=Ask(), spec=a_spec())

    assert msgspec.json.decode(msgspec.json.encode(command), type=Submit) == command


def test_a_part_of_memory_where_nothing_is_shared_says_so():
    """The refusal names the reason, not a number that nobody understands."""
    with pytest.raises(LimitExceeded, match="no GPU here is shared") as refused:
        Play(1).do(a_job(memory_bytes=GIB))
    assert "--min-free" in (refused.value.hint or "")


def test_a_key_with_another_command_is_a_slip_and_not_a_success():
    """The same key and command is the same workload; with another command it is refused, and nothing is submitted."""
    play = Play(1)
    first = play.submit(a_job(idempotency_key="k"))
    assert play.do(a_job(idempotency_key="k")) == []
    for other in (
        a_job(spec=a_spec(argv=("python", "other.py")), idempotency_key="k"),
        a_reservation("ada", idempotency_key="k"),
    ):
        with pytest.raises(Conflict, match=f"the key 'k' belongs to job {first}"):
            play.do(other)
    assert list(play.world.workloads) == [first]


SLICES = tuple(a_mig_device(slot, uuid=f"MIG-{slot - 1}") for slot in (1, 2))


@pytest.mark.parametrize("make", [a_job, a_reservation])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"devices": 2, "device_class": "mig-3g.40gb"}, "drops the others$"),
        ({"devices": 2, "on": ("MIG-0", "MIG-1")}, "drops the others$"),
        ({"devices": 2, "on": ("MIG-0", "gpu-0")}, "of whole GPUs among GPU 0:1, GPU 0 the most on one node is 1"),
        ({"devices": 3}, "of whole GPUs the most on one node is 2"),
    ],
)
def test_two_mig_devices_for_one_ask_are_refused_at_once(make, words, said):
    """CUDA shows a process one MIG device and drops the others in silence, a whole GPU beside it too: for whoever asks.

    Never a success that wastes a slice (pytorch/pytorch#102715, pytorch/pytorch#130181).
    """
    play = Play((a_device(0), a_device(1), *SLICES))

    with pytest.raises(LimitExceeded, match="CUDA shows a process the first") as refused:
        play.do(make(**words))

    assert re.search(said, refused.value.message)
    assert "make one ask for each" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ((a_device(0), SLICES[0]), {"devices": 2, "device_class": "mig-3g.40gb"}),
        ((a_device(0), *SLICES), {"devices": 9, "device_class": "mig-3g.40gb"}),
        (SLICES, {"devices": 3}),
        (SLICES, {"devices": 2, "on": ("MIG-0", "MIG-1")}),
    ],
)
def test_of_mig_devices_alone_no_number_but_one_can_be_had(there, words):
    """However few there are: the reason is never their number."""
    with pytest.raises(LimitExceeded, match="MIG devices cannot be used together") as refused:
        Play(there).do(a_job(**words))

    assert "the most" not in refused.value.message


def test_one_mig_device_is_what_can_be_had_where_whole_gpus_do_not_serve():
    """The most is a true number: the MIG device alone is shared, and would serve one."""
    shared = Policy(sharing=(SharingRule(device_class="mig-3g.40gb"),))
    play = Play((a_device(0), SLICES[0]), shared)

    with pytest.raises(LimitExceeded, match="3 GPUs with 5GiB cannot be had on one node: the most is 1"):
        play.do(a_job(devices=3, memory_bytes=5 * GIB))
    assert play.devices_of(play.job(memory_bytes=5 * GIB)) == ("MIG-0",)


def test_an_ask_before_any_device_is_known_is_not_judged():
    """The driver is still being opened; what could never be served then says why it waits."""
    play = Play(())
    with pytest.raises(LimitExceeded, match="no GPU"):
        play.do(a_job())

    job, never = play.job(blind=True), play.job(blind=True, device_class="h100")
    assert play.waiting(job) is WaitingReason.ENGINE
    play.do(SeeDevices(pool="local", devices=(a_device(0),)))
    assert play.devices_of(job) == ("gpu-0",)
    assert play.waiting(never) is WaitingReason.ENGINE


def test_more_than_there_are_in_all_is_told_as_a_number():
    """Where all of them together would not do, MIG is not the reason."""
    play = Play((a_device(0), a_device(1), *SLICES))

    with pytest.raises(LimitExceeded, match="5 GPUs cannot be had on one node: the most is 2"):
        play.do(a_job(devices=5))


def test_what_one_process_can_see_is_granted():
    """One MIG device, or several whole GPUs."""
    play = Play((a_device(0), a_device(1), *SLICES))

    assert play.devices_of(play.reservation(devices=2)) == ("gpu-0", "gpu-1")
    assert play.devices_of(play.reservation(device_class="mig-3g.40gb")) == ("MIG-0",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"shares_host_memory": True}, "GPU 0: its memory is the machine's own, so no part of it can be leased"),
        ({"shares_host_memory": True, "memory_bytes": None}, "the machine's own"),
        ({"exclusive": True}, "GPU 0: its compute mode is exclusive, which lets one process in at a time"),
        ({"memory_bytes": None}, "how much memory it has is not known"),
    ],
)
def test_a_part_of_what_cannot_be_shared_is_refused_with_the_reason(words, said):
    """One pool with the CPU (wookayin/gpustat#179), or a compute mode for one process (pytorch/pytorch#3871)."""
    play = Play([a_device(0, **words)], Policy(sharing=(SharingRule(),)))

    with pytest.raises(LimitExceeded, match="a part of a GPU's memory cannot be had") as refused:
        play.do(a_job(memory_bytes=GIB))

    assert said in refused.value.message


def test_each_device_has_its_own_reason():
    """Of the kind that was asked for, by name."""
    devices = (a_device(0, exclusive=True), a_device(1), a_device(2, shares_host_memory=True), a_device(3))
    play = Play(devices, Policy(sharing=(SharingRule(device="gpu-0"),)))

    with pytest.raises(LimitExceeded) as refused:
        play.do(a_job(memory_bytes=GIB))

    assert refused.value.message == (
        "a part of a GPU's memory cannot be had: GPU 0: its compute mode is exclusive, which lets one process in at a "
        "time; GPU 1, GPU 3: no rule of `sharing` in the policy names it; GPU 2: its memory is the machine's own, so "
        "no part of it can be leased"
    )


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ({"on": ("gpu-9",)}, InvalidAsk, "there is no GPU 'gpu-9'"),
        ({"on": ("gpu-0",), "devices": 2}, InvalidAsk, "2 GPUs cannot be placed on GPU 0"),
        ({"on": ("gpu-0", "gpu-0"), "devices": 2}, InvalidAsk, "2 GPUs cannot be placed on GPU 0"),
        ({"on": ("gpu-0", "gpu-1"), "devices": 2}, LimitExceeded, "among GPU 0, GPU 1 cannot be had on one node"),
        ({"on": ("gpu-0",), "device_class": "l4"}, LimitExceeded, "of class l4 among GPU 0"),
        ({"on": ("gpu-0",), "min_free_bytes": 90 * GIB}, LimitExceeded, "GPU 0 has 80GiB, not 90GiB"),
        ({"on": ("gpu-0",), "devices": 0}, InvalidAsk, "0 devices on a certain GPU"),
        ({"on": ("gpu-0",), "memory_bytes": GIB}, LimitExceeded, "no GPU of this kind is shared"),
    ],
)
def test_a_placement_by_hand_that_can_never_be_is_refused(words, error, said):
    """Unknown names, too few, or ones that can never serve together."""
    play = Play([a_device(0), a_device(1, node="far", device_class="l4")])

    with pytest.raises(error, match=said):
        play.do(a_job(**words))
