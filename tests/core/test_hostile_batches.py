"""What one user writes into an array or a chain costs no other user anything: neither their devices nor their time."""


from jupyter_gpu.core import chains
from jupyter_gpu.model import Cancel, Dependency, EndReason, JobSpec, State, is_deep, typed_value
from tests.world import CRASHED, Play, a_spec, differences, refolded


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
