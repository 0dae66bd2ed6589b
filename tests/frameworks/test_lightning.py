"""Lightning as people use it: epochs, validation, gathered gradients, either of its two packages."""

import pytest

from .examples import Example, needs

pytestmark = [needs("torch", "lightning"), pytest.mark.slow, pytest.mark.timeout(180)]

MODEL = """
import torch
from PACKAGE import LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, TensorDataset
from jupyter_gpu import training
from jupyter_gpu.integrations.lightning import Resumable, latest

seed_everything(0)
x = torch.randn(256, 8)
data = TensorDataset(x, x.sum(dim=1, keepdim=True))

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]))
        with open("validated", "a") as file:
            print(self.global_step, file=file)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

model = Model()
"""
END = """
torch.save(model.state_dict(), "model.pt")
training.finished()
"""
QUIET = (
    'logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", callbacks=[Resumable()]'
)


def job(folder, fit, package="lightning.pytorch"):
    """Give a training that fits as told."""
    code = MODEL.replace("PACKAGE", package) + fit.replace("QUIET", QUIET) + END
    return Example(folder, "lightning", code)


EPOCHS = """
from torchdata.stateful_dataloader import StatefulDataLoader
trainer = Trainer(max_epochs=4, QUIET, enable_checkpointing=False, num_sanity_val_steps=0)
trainer.fit(model, StatefulDataLoader(data, 16, shuffle=True), DataLoader(data, 128), ckpt_path=latest())
"""


@needs("torchdata")
def test_in_the_middle_of_a_shuffled_epoch_a_loader_with_a_state_goes_on_exactly(tmp_path):
    """Epochs of 16 steps, validation after each: step 21 is in the middle of the second."""
    whole, resumed = job(tmp_path / "whole", EPOCHS), job(tmp_path / "resumed", EPOCHS)
    assert whole.run() == 0, whole.output
    assert resumed.run(step_21="notice") == 75, resumed.output
    assert resumed.saved() == [21]
    assert resumed.run() == 0, resumed.output
    assert resumed.ran() == whole.ran() == list(range(1, 65))
    assert resumed.learnt() == whole.learnt()
    validated = [(it.folder / "validated").read_text() for it in (whole, resumed)]
    assert validated[0] == validated[1]


def test_with_any_other_loader_it_makes_the_same_number_of_steps(tmp_path):
    """Lightning passes over no batch of its own, and says so; no step is lost or done twice."""
    fit = """
trainer = Trainer(max_epochs=4, QUIET, enable_checkpointing=False)
trainer.fit(model, DataLoader(data, 16, shuffle=True), ckpt_path=latest())
"""
    resumed = job(tmp_path / "resumed", fit)
    assert resumed.run(step_21="notice") == 75, resumed.output
    assert resumed.run() == 0, resumed.output
    assert resumed.ran() == list(range(1, 65))
    assert "your dataloader is not resumable" in resumed.output


def test_it_leaves_before_min_epochs_and_with_no_validation(tmp_path):
    """trainer.should_stop would go on until both are done, and the grace would be over."""
    fit = """
trainer = Trainer(max_epochs=4, min_epochs=3, QUIET, enable_checkpointing=False, num_sanity_val_steps=0)
trainer.fit(model, DataLoader(data, 16), DataLoader(data, 128), ckpt_path=latest())
"""
    resumed = job(tmp_path / "resumed", fit)
    assert resumed.run(step_7="SIGTERM") == 75, resumed.output
    assert resumed.ran()[-1] == 7
    assert not (resumed.folder / "validated").exists()


def test_gradients_that_are_still_gathered_are_waited_for(tmp_path):
    """With four batches a step, a checkpoint lies between two steps; resumed, the weights are the same."""
    fit = """
from torchdata.stateful_dataloader import StatefulDataLoader
trainer = Trainer(max_epochs=8, accumulate_grad_batches=4, QUIET, enable_checkpointing=False)
trainer.fit(model, StatefulDataLoader(data, 16, shuffle=True), ckpt_path=latest())
"""
    whole, resumed = job(tmp_path / "whole", fit), job(tmp_path / "resumed", fit)
    assert whole.run() == 0, whole.output
    assert resumed.run(step_6="notice") == 75, resumed.output
    assert resumed.run() == 0, resumed.output
    assert resumed.ran() == whole.ran() == list(range(1, 33))
    assert resumed.learnt() == whole.learnt()


@needs("pytorch_lightning")
def test_the_older_name_of_the_package_works_as_well(tmp_path):
    """`import pytorch_lightning` is another package with classes of its own."""
    fit = """
trainer = Trainer(max_epochs=2, QUIET)
trainer.fit(model, DataLoader(data, 16), ckpt_path=latest())
"""
    resumed = job(tmp_path / "resumed", fit, package="pytorch_lightning")
    assert resumed.run(step_21="notice") == 75, resumed.output
    assert resumed.run() == 0, resumed.output
    assert resumed.ran() == list(range(1, 33))
