"""A PyTorch loop of one's own: what is saved, what is refused, and several processes that leave together."""

import json
import os
import subprocess
import sys
import warnings

import pytest

from jupyter_gpu import checkpoints, training

from .examples import ENVIRONMENT, needs

pytestmark = [needs("torch"), pytest.mark.timeout(180)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give the checkpoint folder of attempt 1 of a job."""
    monkeypatch.setenv("JUPYTER_GPU_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("JUPYTER_GPU_ATTEMPT", "1")
    monkeypatch.setattr(checkpoints, "_warned", set())
    return tmp_path / "checkpoints"


@pytest.fixture
def parts():
    """Give a small model and its optimizer."""
    import torch

    model = torch.nn.Linear(2, 1)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}


def test_importing_an_adapter_touches_no_gpu():
    """CUDA stays as it was: a loader may still fork, and no memory of a card is taken."""
    code = "import jupyter_gpu.integrations.torch, torch; from jupyter_gpu.integrations.randomness import *; "
    code += "set_random_state(random_state() | {'cuda': [[0] * 16]}); assert not torch.cuda.is_initialized()"
    subprocess.run([sys.executable, "-c", code], env=os.environ | ENVIRONMENT, check=True, timeout=100)


def test_each_part_is_a_file_of_its_own_that_loads_without_running_code(home, parts):
    """model.pt is the plain state_dict, to be used by anything."""
    import torch

    from jupyter_gpu.integrations.torch import Resumable

    state = Resumable(every_steps=2, keep=None, **parts)
    state.values["best"] = 0.25
    for _ in state.steps(5):
        pass
    assert [training.step_of(path) for path in sorted(home.glob("step-*"))] == [2, 4, 5]
    saved = torch.load(training.latest() / "model.pt", weights_only=True)
    assert saved.keys() == parts["model"].state_dict().keys()
    again = Resumable(**parts)
    assert again.restore() == 5
    assert again.values == {"best": 0.25}
    assert list(again.steps(5)) == []


def test_a_part_without_a_state_is_refused_with_the_place_for_it(parts):
    """Plain values go into .values."""
    from jupyter_gpu.integrations.torch import Resumable

    with pytest.raises(TypeError, match=r"best is a float.*state\.values\['best'\]"):
        Resumable(best=0.25, **parts)


def test_what_could_not_be_loaded_again_is_refused_when_it_is_saved(home, parts):
    """An object of one's own would need code to load: the first save says so, and leaves no checkpoint."""
    from jupyter_gpu.integrations.torch import Resumable

    state = Resumable(**parts)
    state.values["when"] = home
    with pytest.raises(TypeError, match=r"\.values could not be loaded again"):
        state.save()
    assert training.latest() is None


def test_a_checkpoint_of_other_parts_is_named(home, parts):
    """Which parts it has, and what to do."""
    from jupyter_gpu.integrations.torch import Resumable

    Resumable(**parts).save()
    with pytest.raises(ValueError, match=r"has no net: .*\(model, optimizer, resumable\)"):
        Resumable(net=parts["model"]).restore()


def test_a_loss_with_its_graph_is_reported_without_a_warning(home, parts):
    """`state.report(loss=loss)` as people write it."""
    import torch

    from jupyter_gpu.integrations.torch import Resumable

    state = Resumable(**parts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in state.steps(1):
            state.report(loss=parts["model"](torch.ones(2)).sum())
    line = json.loads((home / "progress.1.jsonl").read_text())
    assert (line["step"], line["of"]) == (1, 1)
    assert isinstance(line["numbers"]["loss"], float)


def test_random_numbers_go_on_from_the_first_step_whatever_was_drawn_before(home, parts):
    """A loader that is started after restore() draws too, and must not shift what the steps see."""
    import torch

    from jupyter_gpu.integrations.torch import Resumable

    def drawn(steps, before):
        state = Resumable(every_steps=1, **parts)
        state.restore()
        torch.rand(before)
        return [torch.rand(1).item() for _ in state.steps(steps)]

    torch.manual_seed(0)
    first = drawn(2, before=0)
    torch.manual_seed(0)
    expected = [torch.rand(1).item() for _ in range(4)]
    assert first == expected[:2]
    assert drawn(4, before=7) == expected[2:]


@pytest.mark.parametrize("start", [0, 1, 9, 10, 25])
def test_batches_are_those_of_the_step_wherever_one_starts(start):
    """Each epoch has each sample once, in an order of its own."""
    from itertools import chain, islice

    from jupyter_gpu.integrations.torch import Batches

    whole = list(islice(Batches(103, 10, seed=4), 30))
    assert list(islice(Batches(103, 10, seed=4, start=start), 30 - start)) == whole[start:]
    epochs = [sorted(chain(*whole[at : at + 10])) for at in (0, 10, 20)]
    for epoch in epochs:
        assert len(set(epoch)) == len(epoch) == 100
    assert whole[:10] != whole[10:20]
    with pytest.raises(ValueError, match="103 samples do not fill one step"):
        Batches(103, 104)
