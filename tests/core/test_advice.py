"""What to do now about a job that is over: of the cards that are there, and of what is not known nothing."""

import msgspec
import pytest

from jupyter_gpu.core.advice import advice
from jupyter_gpu.core.status import view
from jupyter_gpu.model import Caller, Condition, EndReason, Outcome, Policy, Scope, SharingRule
from tests.world import CRASHED, GIB, Play, a_spec

OOM = Outcome(end=EndReason.GPU_OOM, exit_code=1, detail="exit code 1; it asked for 2.00 GiB")
ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ, Scope.SUBMIT}))


def cards(play: Play, *kinds: tuple[str, int | None]) -> None:
    """Let the devices be of these classes, with so much memory."""
    for device, (name, gib) in zip(sorted(play.world.devices.values(), key=lambda it: it.index), kinds, strict=True):
        size = None if gib is None else gib * GIB
        play.world.put_device(msgspec.structs.replace(device, device_class=name, memory_bytes=size))


def out_of_memory(play: Play, **words) -> str:
    """What is said of a job on the first device that found too little memory there."""
    id_ = play.running(**words)
    play.exit(id_, OOM)
    return advice(play.world, play[id_])


def test_the_next_larger_card_is_named_after_want_of_gpu_memory():
    """Of the smallest kind that has more; whether it is enough nobody knows, and nobody says."""
    play = Play(3)
    cards(play, ("rtx", 24), ("h200", 141), ("a100", 80))

    said = out_of_memory(play, device_class="rtx")

    assert "Its GPU has 24GiB; `jupyter gpu again 1 --class a100` gets one of 80GiB, and smaller batches" in said
    assert said.startswith("It is not repeated by itself, since it would end the same way.")


def test_a_card_that_is_lost_or_in_another_pool_than_was_asked_for_is_no_help():
    """Then what is left is to need less."""
    play = Play(2)
    cards(play, ("rtx", 24), ("a100", 80))
    larger = play.world.devices["gpu-1"]
    play.world.put_device(msgspec.structs.replace(larger, condition=Condition.LOST))

    assert "No GPU here has more than its 24GiB: smaller batches need less" in out_of_memory(play)
    play.world.put_device(msgspec.structs.replace(larger, pool="elsewhere"))
    assert "`--class a100`" not in out_of_memory(play, pool="local")


def test_where_its_memory_is_not_known_that_is_said():
    """No number is made up."""
    play = Play(2)
    cards(play, ("odd", None), ("a100", 80))

    assert "How much its GPU has is not known." in out_of_memory(play)


def test_who_had_a_part_asks_for_a_larger_one():
    """The part was the bound, not the card."""
    play = Play(1, Policy(sharing=(SharingRule(),)))

    assert "It had 20GiB of a GPU: `jupyter gpu again 1 --memory SIZE`" in out_of_memory(play, memory_bytes=20 * GIB)


@pytest.mark.parametrize(("retries", "said"), [(None, "with `--retries N`"), (0, "`jupyter gpu again 1` runs it once")])
def test_a_failure_says_when_it_would_have_been_repeated(retries, said):
    """Who said how often knows the rule already."""
    play = Play(1)
    id_ = play.running(spec=a_spec(retries=retries))
    play.exit(id_, CRASHED)

    assert said in advice(play.world, play[id_])
    assert ("--retries" in advice(play.world, play[id_])) is (retries is None)


def test_what_to_do_is_for_its_owner():
    """Others read that it ended, and how."""
    play = Play(1)
    id_ = play.running()
    play.exit(id_, CRASHED)
    eve = Caller(name="eve", account="eve", scopes=frozenset({Scope.READ}))

    assert "`jupyter gpu log 1`" in view(play.world, play[id_], ADA, play.now, alone=True).reason
    assert view(play.world, play[id_], eve, play.now, alone=True).reason == "It ended: failed."


def test_nothing_is_to_be_done_about_what_ended_as_it_was_meant_to():
    """A success, and a reservation that was given back."""
    play = Play(2)
    job, held = play.running(), play.reservation()
    play.exit(job)

    assert [advice(play.world, play[id_]) for id_ in (job, held)] == ["", ""]
