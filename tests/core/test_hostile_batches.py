"""What one user writes into an array or a chain costs no other user anything: neither their devices nor their time."""

import pytest

from jupyter_gpu.core import chains
from jupyter_gpu.errors import Conflict, LimitExceeded
from jupyter_gpu.model import (
    Cancel,
    Chain,
    Dependency,
    EndReason,
    JobSpec,
    State,
    is_deep,
    pack_bytes,
    readable,
    typed_value,
    unpack_bytes,
)
from tests.world import CRASHED, Play, a_job, a_spec, differences, refolded


def nested(depth: int) -> str:
    """Lists in lists."""
    return "[" * depth + "]" * depth


def test_a_value_that_lies_deep_in_itself_stays_the_text_that_it_was():
    """Whoever writes it has no use for it, and everybody who reads it would go down as deep."""
    for text in (nested(1000), nested(2048), "[" * 4096, '{"a":' * 600 + "1" + "}" * 600):
        assert typed_value(text) == text
    assert not isinstance(typed_value(nested(20)), str)


def test_a_job_weighs_something_whatever_its_parameters_are():
    """Also of a store that was written when nothing refused them."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert is_deep(deep)
    spec = a_spec(parameters={"deep": deep, "digits": 10**5000, "text": "a" * 1000, "none": None})

    assert spec.weight > 100_000


def test_empty_words_and_variables_weigh_something():
    """A list of ten thousand of nothing takes as much memory as one of ten thousand letters."""
    plain = a_spec().weight
    assert a_spec(argv=("python", *[""] * 7000)).weight > plain + 7000 * 10
    assert a_spec(environment={f"{n:x}": "" for n in range(2700)}).weight > plain + 2700 * 20


def test_an_end_stands_although_what_it_means_for_somebody_elses_job_cannot_be_found_out(monkeypatch):
    """The job that comes after ends and says why; whose devices they were has them no more; others go on."""
    play = Play(1)
    victim = play.running("ada")
    child = play.job("mallory", after=(Dependency(workload=victim, ok=True),))
    other = play.job("bob", after=(Dependency(workload=victim),))
    real = chains.why_never

    def faulty(*words):
        raise RecursionError

    monkeypatch.setattr(chains, "why_never", faulty)
    play.exit(victim, CRASHED)
    monkeypatch.setattr(chains, "why_never", real)

    assert (play.state(victim), play[victim].end) == (State.ENDED, EndReason.FAILED)
    assert play[child].end is EndReason.DEPENDENCY_UNMET
    assert "(RecursionError), which is a fault of the broker" in play[child].detail
    assert play.state(other) is State.ACTIVE
    assert differences(refolded(play), play.world) == []


def test_an_end_stands_although_the_job_that_comes_after_cannot_even_be_ended(monkeypatch):
    """It is left as it was, whole."""
    play = Play(1)
    victim = play.running("ada")
    child = play.job("mallory", after=(Dependency(workload=victim, ok=True),))
    mark = play[child].spec
    real = JobSpec.weight.fget

    def weight(spec):
        if spec is mark:
            raise RecursionError
        return real(spec)

    monkeypatch.setattr(JobSpec, "weight", property(weight))
    play.exit(victim, CRASHED)

    assert (play.state(victim), play.state(child)) == (State.ENDED, State.QUEUED)
    assert play.world.check() == []
    monkeypatch.undo()
    play.do(Cancel(workload=child, by="mallory"))
    assert play.state(child) is State.ENDED


def test_what_an_array_has_in_common_is_kept_once():
    """Thousands with an environment each have one environment, and one argv where no value stands in it."""
    spec = a_spec(argv=("python", *[""] * 100), environment={"A": "{other}"}, checkpoint_dir="/run")
    play = Play(0)
    play.do(a_job(devices=0, spec=spec, array=({"x": "1"}, {"x": "2"})))
    first, second = (play[id_].spec for id_ in (1, 2))

    assert first.argv is second.argv is spec.argv
    assert first.environment is second.environment is spec.environment
    assert first.recorded is second.recorded
    assert (first.checkpoint_dir, second.checkpoint_dir) == ("/run/1", "/run/2")


def test_the_waiting_jobs_of_one_owner_wait_for_so_many_ends():
    """All of them are told in one step; another's are counted by themselves, and who waits no more is not counted."""
    play = Play(1)
    first, second = play.running("ada"), play.job("ada")
    array = tuple({"x": str(n)} for n in range(2000))
    both = (Dependency(workload=first), Dependency(workload=second))
    play.do(a_job("mallory", array=array, after=both))
    with pytest.raises(LimitExceeded, match="mallory wait for 4000 ends already; 4000 more would be above 5000"):
        play.do(a_job("mallory", array=array, after=both))
    play.do(a_job("bob", array=array, after=both))
    alone = play.job("mallory")
    play.do(a_job("mallory", array=array[:999], after=(Dependency(workload=first),)))
    with pytest.raises(LimitExceeded, match="wait for 4999 ends already; 2 more"):
        play.do(Chain(workload=alone, by="mallory", after=both))

    play.exit(first)
    assert play.world.links_by == {"mallory": 2000, "bob": 2000}
    play.do(Chain(workload=alone, by="mallory", after=(Dependency(workload=second),)))


def test_a_long_circle_is_told_by_its_ends():
    """Six thousand numbers help nobody."""
    play = Play(0)
    first = play.job("ada", devices=0, paused=True)
    last = first
    for _ in range(100):
        last = play.job("ada", devices=0, after=(Dependency(workload=last),))

    with pytest.raises(Conflict, match=r"1 → 101 → 100 → .* → \(82 more\) → .* → 3 → 2 → 1, each after") as refused:
        play.do(Chain(workload=first, by="ada", after=(Dependency(workload=last),)))
    assert len(refused.value.message) < 300


def test_a_text_that_was_never_packed_is_shown_as_it_stands():
    """A store may hold one; whoever lists it wants to see the rest too."""
    for text in ("base64:A", "base64:!!", "\ud800"):
        with pytest.raises(ValueError, match=r"base64|surrogate|padded|data"):
            unpack_bytes(text)
        assert readable(text) == text
        assert a_spec(argv=("echo", text)).brief()
    assert readable(pack_bytes(b"a\xff")) == "a\udcff"
