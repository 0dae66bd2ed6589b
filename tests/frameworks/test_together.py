"""Several processes of one training: they leave together though one alone saw the notice, and rank 0 writes."""

import json
import os
import subprocess
import sys

import pytest

from .examples import ENVIRONMENT, learnt, needs

pytestmark = [needs("torch"), pytest.mark.slow, pytest.mark.timeout(240)]

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

#: Only the second process is given a notice, after the step that TEST_NOTICE_AFTER names.
NOTICED = """
import os
from jupyter_gpu import training

def notice(rank, step):
    if rank == 1 and step == int(os.environ["TEST_NOTICE_AFTER"]):
        os.environ["JUPYTER_GPU_NOTICE_FILE"] += ".second"
        open(os.environ["JUPYTER_GPU_NOTICE_FILE"], "w").close()
        training._watch.look_at = 0
"""

LOOP = """
import json
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from jupyter_gpu.integrations.torch import Batches, Resumable

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
x = torch.arange(256.0).reshape(64, 4) / 256
data = TensorDataset(x, x.sum(dim=1, keepdim=True))
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters())
state = Resumable(model=model, optimizer=optimizer)
start = state.restore()
loader = DataLoader(data, batch_sampler=Batches(len(data), 4, start=start))
for step, (inputs, targets) in zip(state.steps(60), loader):
    with open(f"ran.{rank}", "a") as file:
        print(json.dumps([step, torch.rand(1).item(), inputs[:, 0].tolist()]), file=file)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    notice(rank, step + 1)
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
    training.finished()
dist.destroy_process_group()
"""

LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, TensorDataset
from jupyter_gpu.integrations.lightning import Resumable, latest
from jupyter_gpu.integrations.torch import Batches

seed_everything(0)
x = torch.randn(512, 8)
data = TensorDataset(x, x.sum(dim=1, keepdim=True))

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        notice(self.global_rank, self.global_step + 1)
        return torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def train_dataloader(self):
        return DataLoader(data, batch_sampler=Batches(len(data), 16, start=training.step_of(training.latest())))

model = Model()
trainer = Trainer(
    max_steps=60, callbacks=[Resumable()], accelerator="cpu", devices=2, strategy="ddp", use_distributed_sampler=False,
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(model, ckpt_path=latest())
if trainer.is_global_zero:
    torch.save(model.state_dict(), "model.pt")
    training.finished()
"""

TRAINER = """
import torch
from transformers import (
    BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed,
)
from jupyter_gpu.integrations.transformers import Resumable, latest, output_dir

set_seed(0)
texts = torch.randint(0, 100, (512, 16))
data = [{"input_ids": text, "labels": int(text[0] > 50)} for text in texts]
config = BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
model = BertForSequenceClassification(config)

class Noticed(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        notice(args.process_index, state.global_step)

arguments = TrainingArguments(output_dir(), num_train_epochs=2, save_steps=50, report_to=[], use_cpu=True)
trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Noticed(), Resumable()])
trainer.train(resume_from_checkpoint=latest())
if arguments.process_index == 0:
    torch.save(model.state_dict(), "model.pt")
    training.finished()
"""


def run(folder, code, attempt, *, launcher=TORCHRUN, notice_after=-1):
    """Run an attempt of two processes."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(NOTICED + code)
    environment = os.environ | ENVIRONMENT | {
        "JUPYTER_GPU_ATTEMPT": str(attempt),
        "JUPYTER_GPU_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "JUPYTER_GPU_NOTICE_FILE": str(folder / f"notice.{attempt}"),
        "TEST_NOTICE_AFTER": str(notice_after),
    }  # fmt: skip
    argv = [sys.executable, *launcher, "train.py"]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False)


def saved(folder):
    """Name the checkpoints that are complete."""
    return sorted(path.parent.name for path in folder.glob("checkpoints/step-*/COMPLETE"))


@pytest.mark.parametrize(
    ("code", "launcher", "code_of_leaving"),
    [
        # torchrun has one exit code for any of its processes'; the notice says the rest.
        pytest.param(LOOP, TORCHRUN, 1, id="loop"),
        pytest.param(LIGHTNING, (), 75, marks=needs("lightning"), id="lightning"),
        pytest.param(TRAINER, TORCHRUN, 1, marks=needs("transformers", "accelerate"), id="transformers"),
    ],
)
def test_two_processes_leave_together_and_end_with_the_same_weights(tmp_path, code, launcher, code_of_leaving):
    """Both stop at the step of the notice, one checkpoint is written, and no number differs in the end."""
    done = run(tmp_path / "whole", code, 1, launcher=launcher)
    assert done.returncode == 0, done.stderr
    done = run(tmp_path / "job", code, 1, launcher=launcher, notice_after=21)
    assert done.returncode == code_of_leaving, done.stderr
    assert saved(tmp_path / "job") == ["step-000000000021"]
    done = run(tmp_path / "job", code, 2, launcher=launcher)
    assert done.returncode == 0, done.stderr
    assert learnt(tmp_path / "job" / "model.pt") == learnt(tmp_path / "whole" / "model.pt")


def test_each_process_goes_on_with_its_own_random_numbers_and_samples(tmp_path, monkeypatch):
    """What each drew and saw is what it draws and sees undisturbed; one process alone may go on as well."""
    import torch

    from jupyter_gpu.integrations.torch import Resumable

    def ran(name):
        lines = [(tmp_path / name / f"ran.{rank}").read_text().splitlines() for rank in (0, 1)]
        return [[json.loads(text) for text in those] for those in lines]

    run(tmp_path / "whole", LOOP, 1)
    run(tmp_path / "job", LOOP, 1, notice_after=21)
    assert [len(those) for those in ran("job")] == [21, 21]
    monkeypatch.setenv("JUPYTER_GPU_CHECKPOINT_DIR", str(tmp_path / "job" / "checkpoints"))
    model = torch.nn.Linear(4, 1)
    assert Resumable(model=model, optimizer=torch.optim.AdamW(model.parameters())).restore() == 21
    run(tmp_path / "job", LOOP, 2)
    assert ran("job") == ran("whole")
    assert ran("job")[0] != ran("job")[1]
