"""Two amounts that a sentence compares never read alike where they differ: "No GPU has 20GiB free: GPU 0 has 20GiB"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.core.impossible import refuse_the_impossible
from jupyter_gpu.core.offers import offer
from jupyter_gpu.core.sentences import sentence
from jupyter_gpu.core.told import above_its_part, told, what_it_used
from jupyter_gpu.errors import LimitExceeded
from jupyter_gpu.model import Ask, Caller, Policy, Profile, QuotaRule, Scope, SharingRule, Use, UseKind
from jupyter_gpu.units import MAX_BYTES, bytes_apart, format_bytes, format_hours, hours_apart, parse_bytes
from tests.world import GIB, HOUR, Play, a_device, a_job

MIB = 1 << 20
ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))

amounts = st.integers(0, MAX_BYTES)


@given(amounts, st.lists(amounts, max_size=4))
def test_what_differs_reads_differently_and_what_is_equal_alike(size, others):
    """Whatever the amounts are, and also those that are a byte apart."""
    for more in ([*others], [*others, size], [size + 1], [size - 1]):
        text, *texts = bytes_apart(size, *more)
        assert [it == text for it in texts] == [it == size for it in more]


@given(amounts, amounts)
def test_what_is_more_reads_as_more(one, other):
    """And each text can be typed again."""
    less, more = sorted((one, other))
    text, then = bytes_apart(less, more)
    assert (parse_bytes(text, allow_zero=True) < parse_bytes(then, allow_zero=True)) == (less < more)


@pytest.mark.parametrize(
    ("sizes", "texts"),
    [
        ((20 * GIB, 10 * GIB), ("20GiB", "10GiB")),
        ((20 * GIB, 20 * GIB), ("20GiB", "20GiB")),
        ((20 * GIB, 20 * GIB - 10 * MIB), ("20GiB", "19.99GiB")),
        ((20 * GIB, 20 * GIB - MIB), ("20GiB", "19.999GiB")),
        ((20 * GIB, 20 * GIB - 100 * 1024), ("20480MiB", "20479.9MiB")),
        ((20 * GIB, 20 * GIB - 1), ("20971520KiB", "20971519.999KiB")),
        ((20 * GIB + 40 * MIB, 20 * GIB + 10 * MIB, 10 * GIB), ("20.04GiB", "20.01GiB", "10GiB")),
    ],
)
def test_it_takes_no_more_digits_than_it_needs(sizes, texts):
    """The usual text where that is enough."""
    assert bytes_apart(*sizes) == texts


def test_hours_are_told_apart_likewise():
    """In milliseconds, as use is counted."""
    hour = 3_600_000
    assert hours_apart(2 * hour, hour) == ("2", "1")
    assert hours_apart(hour + 1000, hour) == ("1.0003", "1")
    assert hours_apart(hour + 1, hour) == ("1.0000003", "1")
    assert format_hours(hour * 3 // 2) == "1.5"


# --- where they are said --------------------------------------------------------------------------


def sharing(devices) -> Play:
    """A lab that leases parts."""
    return Play(devices, Policy(sharing=(SharingRule(slack_bytes=0),)))


def test_a_wait_says_how_much_is_short():
    """A GPU that has all but ten MiB of it."""
    play = sharing([a_device(0)])
    play.running("grace", memory_bytes=60 * GIB + 10 * MIB)
    waits = play.submit(a_job("ada", memory_bytes=20 * GIB))

    said = sentence(play.world, play[waits], ADA, play.now, 0)

    assert said.startswith("No GPU has 20GiB free: GPU 0 has 19.99GiB free.")


def test_of_several_gpus_each_is_told_from_what_is_wanted():
    """And not from each other: what two lack alike may be said alike."""
    play = sharing(2)
    for _ in range(2):
        play.running("grace", memory_bytes=60 * GIB + 10 * MIB)
    waits = play.submit(a_job("ada", memory_bytes=20 * GIB))

    said = sentence(play.world, play[waits], ADA, play.now, 0)

    assert "GPU 0 has 19.99GiB free, GPU 1 has 19.99GiB free" in said


@pytest.mark.parametrize("on", [(), ("gpu-0",)])
def test_a_refusal_says_how_much_is_too_much(on):
    """More than the largest has, by a little."""
    play = Play([a_device(0)])
    there = play.world.devices["gpu-0"].memory_bytes
    assert there is not None

    with pytest.raises(LimitExceeded) as refused:
        refuse_the_impossible(play.world, Ask(min_free_bytes=there + MIB, on=on))

    assert format_bytes(there + MIB) == format_bytes(there), "they would read alike"
    assert refused.value.message.count(format_bytes(there)) == 1


def test_who_uses_a_little_more_than_their_part_reads_how_much():
    """While it runs, and in how it ended."""
    play = sharing([a_device(0)])
    held = play.reservation("ada", memory_bytes=20 * GIB)
    used = 20 * GIB + 3 * MIB
    play.world.uses["gpu-0"] = (Use(pid=4711, kind=UseKind.HOLDER, workload=held, memory_bytes=used),)

    above = above_its_part(play.world, play[held])

    assert above is not None
    assert "uses 20.003GiB of GPU 0, more than its part of 20GiB," in told(play.world, play[held])
    assert what_it_used(above).startswith("it used 20.003GiB of GPU 0, of which its part is 20GiB")


def test_a_budget_says_what_is_left_and_what_this_takes():
    """A second more than there is left."""
    little_more = Profile(name="one", devices=1, duration_seconds=HOUR + 1)
    rule = QuotaRule(user="*", gpu_hours=2, window_seconds=24 * HOUR)
    play = Play(2, Policy(profiles=(little_more,), quotas=(rule,)))
    play.reservation("ada", seconds=HOUR)

    found = offer(play.world, little_more, ADA, play.now)

    assert "have 1 of the 2 GPU-hours" in found.why
    assert "this takes 1.0003." in found.why
