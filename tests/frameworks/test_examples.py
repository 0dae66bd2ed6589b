"""The examples of docs/training.md, with the real frameworks: preempted or not, they end with the same weights."""

import pytest

from .examples import EXAMPLES, Example, needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
EACH = [pytest.param(name, marks=needs(*modules)) for name, (modules, _) in EXAMPLES.items()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Run each example once without any notice."""
    done = {}

    def of(framework):
        if framework not in done:
            done[framework] = Example(tmp_path_factory.mktemp("whole") / framework, framework)
            assert done[framework].run() == 0, done[framework].output
            done[framework].steps = done[framework].ran()
        return done[framework]

    return of


@pytest.mark.parametrize("framework", EACH)
def test_undisturbed_each_step_runs_once_and_the_last_is_saved(undisturbed, framework):
    """The training ends with a complete checkpoint of its last step, and says that it is done."""
    whole = undisturbed(framework)
    steps = whole.steps
    assert steps == list(range(1, steps[-1] + 1))
    assert whole.saved()[-1] == steps[-1]
    assert (whole.home / "finished.1").exists()


@pytest.mark.parametrize("framework", EACH)
def test_given_notice_twice_it_ends_with_the_very_same_weights(undisturbed, framework, tmp_path):
    """Notice, save, exit 75, resume, twice: each step runs once, and no number differs."""
    whole = undisturbed(framework)
    job = Example(tmp_path / "job", framework)
    assert job.run(step_71="notice") == 75, job.output
    assert job.run(step_133="notice") == 75, job.output
    assert not list(job.home.glob("finished.*"))
    assert job.run() == 0, job.output
    assert job.ran() == whole.steps
    assert job.learnt() == whole.learnt()
    assert len(job.saved()) <= 2


@pytest.mark.parametrize("framework", EACH)
def test_started_again_after_its_end_it_has_nothing_left_to_do(undisturbed, framework):
    """A preemption between the last step and the end of the script costs no step."""
    whole = undisturbed(framework)
    learnt, count = whole.learnt(), len(whole.ran())
    assert whole.run() == 0, whole.output
    # The Trainer says once more where it stands.
    assert set(whole.ran()[count:]) <= {whole.steps[-1]}
    assert whole.learnt() == learnt


@pytest.mark.faults
@pytest.mark.parametrize("framework", EACH)
def test_killed_without_notice_it_goes_on_from_what_was_saved(undisturbed, framework, tmp_path):
    """After kill -9, what was not saved is done again, and the weights are the same."""
    whole = undisturbed(framework)
    job = Example(tmp_path / "job", framework)
    assert job.run(step_71="notice") == 75, job.output
    saved = job.saved()[-1]
    assert job.run(step_133="SIGKILL") == -9, job.output
    newest = job.saved()[-1]
    assert newest >= saved
    assert job.run() == 0, job.output
    assert job.learnt() == whole.learnt()
    again = job.ran()[job.ran().index(133) + 1 :]
    assert again == list(range(newest + 1, whole.steps[-1] + 1))
