"""A job is submitted once more, from what was kept of it, and what differs is said."""

import os
from pathlib import Path
from stat import S_ISLNK

import msgspec
import pytest

from jupyter_gpu.checkpoints import Writer, newest_complete
from jupyter_gpu.cli.changes import change, differing_files, read_changes
from jupyter_gpu.errors import BrokerUnavailable, Conflict, InvalidAsk
from jupyter_gpu.model import Ask, Dependency, Kind, Member, SubmitBody, Unfilled, unpack_bytes
from tests.cli.fake import HOUR, RECORDED, recorded_job

ARGV = ["python", "train.py", "--lr", "0.1", "--layers", "1", "2", "--amp", "--name=x", "model.dim=64", "-n", "-3"]


def sent(gpu) -> SubmitBody:
    """What was asked for."""
    return next(call[1] for call in gpu.client.calls if call[0] in ("submit", "dry_run"))


def argv(gpu) -> list[str]:
    """The command that was asked for."""
    spec = sent(gpu).spec
    assert spec is not None
    return [unpack_bytes(word).decode() for word in spec.argv]


def changed(*words: str, parameters=None) -> list[str]:
    """The command after changes."""
    return change(ARGV, parameters or {}, read_changes(words), first=2).argv


# -- which words are meant


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["--lr", "0.01"], "--lr 0.1", "--lr 0.01"),
        (["--lr=0.01"], "--lr 0.1", "--lr 0.01"),
        (["--name", "y"], "--name=x", "--name=y"),
        (["--name=y=z"], "--name=x", "--name=y=z"),
        (["--layers", "3", "4"], "--layers 1 2", "--layers 3 4"),
        (["model.dim=128"], "model.dim=64", "model.dim=128"),
        (["-n", "-5"], "-n -3", "-n -5"),
        (["--lr", "1e-3", "--name", "a b", "model.dim=1"], None, None),
    ],
)
def test_a_value_takes_the_place_of_what_is_there(words, before, after):
    """As one word or as two, as the command has it; a number below zero is a value."""
    if before is None:
        assert changed(*words)[2:4] == ["--lr", "1e-3"]
        assert "--name=a b" in changed(*words)
    else:
        assert " ".join(changed(*words)) == " ".join(ARGV).replace(before, after)


@pytest.mark.parametrize(
    "words",
    [
        ["--epochs", "3"],  # it is not there
        ["--lr"],  # no value
        ["--amp", "1"],  # it has no value there
        ["--layers", "1", "2", "3"],  # more than there are
        ["epochs=3"],
        ["--name", "a", "b"],  # two words where there is one
    ],
)
def test_what_is_not_certain_is_refused_with_what_is_there(words):
    """A job that runs with other words than its person thinks costs a night."""
    with pytest.raises(InvalidAsk) as error:
        changed(*words)
    assert "--lr 0.1" in (error.value.hint or "") or "VALUE" in (error.value.hint or "")


def test_an_option_that_is_there_twice_is_not_changed():
    """Which of them is meant nobody knows."""
    with pytest.raises(InvalidAsk, match="is 2 times in the command"):
        change(["x", "-D", "a=1", "-D", "b=2"], {}, read_changes(["-D", "c=3"]), first=1)


def test_words_before_the_script_are_not_the_commands_options():
    """`python -u train.py -u 3`: the first one is Python's."""
    found = change(["python", "-u", "train.py", "-u", "3"], {}, read_changes(["-u", "4"]), first=3)
    assert found.argv == ["python", "-u", "train.py", "-u", "4"]


def test_a_parameter_is_changed_where_no_word_of_the_command_is_meant():
    """Of a notebook: with its type, and a dash for what Python writes as an underscore."""
    found = change(["x"], {"lr": 0.1, "batch_size": 8}, read_changes(["--lr", "0.01", "--batch-size", "16"]), first=1)
    assert found.parameters == {"lr": 0.01, "batch_size": 16}
    with pytest.raises(InvalidAsk) as error:
        change(["x"], {"lr": 0.1}, read_changes(["--seed", "1"]), first=1)
    assert error.value.hint == "The command is: x. Its parameters: lr."


def test_a_word_without_a_name_is_no_change():
    """`again 12 0.01` cannot be meant."""
    with pytest.raises(InvalidAsk, match="is no change of an option"):
        read_changes(["0.01"])


# -- what an array filled in

FILLED = {
    "argv": ("python", "train.py", "0.1", "--seed", "2", "--out=run-2", "model.dim=64"),
    "unfilled": Unfilled(
        argv=("python", "train.py", "{lr}", "--seed", "{seed}", "--out=run-{seed}", "model.dim={dim}"),
        environment={"SEED": "s{seed}"},
        texts={"lr": "0.1", "seed": "2", "dim": "64", "index": "3"},
    ),
    "parameters": {"lr": 0.1, "seed": 2, "dim": 64},
    "environment": {"PATH": "/usr/bin", "SEED": "s2"},
}


@pytest.mark.parametrize("words", [["--seed", "9"], ["-p", "seed=9"], ["--dry-run", "--seed=9"]])
def test_a_value_of_one_of_an_array_follows_wherever_it_was_filled_in(gpu, words):
    """What is recorded and what runs are the same: in words, in variables, as a parameter, and when it is repeated."""
    gpu.client.answers["workload 7"] = recorded_job(spec=FILLED)
    result = gpu("again", "7", *words)

    spec = sent(gpu).spec
    assert argv(gpu)[2:] == ["0.1", "--seed", "9", "--out=run-9", "model.dim=64"]
    assert (spec.environment["SEED"], spec.parameters["seed"]) == ("s9", 9)
    assert "seed: 9 instead of 2" in " ".join(result.err.split())
    gpu.client.answers["workload 7"] = recorded_job(spec=msgspec.structs.asdict(spec))
    gpu.client.calls.clear()
    gpu("again", "7", "--lr", "1", "model.dim=8")
    assert argv(gpu)[2:] == ["1", "--seed", "9", "--out=run-9", "model.dim=8"]
    assert sent(gpu).spec.parameters == {"lr": 1, "seed": 9, "dim": 8}


def test_one_of_an_array_runs_as_it_was_where_nothing_is_given(gpu):
    """Each value where it stood."""
    gpu.client.answers["workload 7"] = recorded_job(spec=FILLED)
    result = gpu("again", "7")

    assert tuple(argv(gpu)) == FILLED["argv"]
    assert "It is as job 7 was." in result.err


def test_a_whole_array_is_submitted_again_as_it_was_submitted(gpu):
    """With the values of each, so many at once as then, and what is changed for all of them."""
    for place in (1, 2, 3):
        values = {"lr": "0.1", "seed": str(place - 1), "dim": "64"}
        member = Member(array=5, index=place, of=3, at_most=2, parameters=values)
        gpu.client.answers[f"workload {4 + place}"] = recorded_job(number=4 + place, spec=FILLED, member=member)
    result = gpu("again", "7", "--array", "--gpus", "1", "--env", "SEED=7")

    body = sent(gpu)
    assert [it["seed"] for it in body.array] == ["0", "1", "2"]
    assert (body.at_most, body.again, body.spec.unfilled, body.spec.parameters) == (2, 7, None, {})
    assert body.spec.argv == FILLED["unfilled"].argv
    assert body.spec.environment["SEED"] == "7"
    assert "It differs from array 5" in result.err
    for words, said in (
        (["--seed", "9"], "Each of the array has its own seed"),
        (["--resume"], "--resume is for one job"),
    ):
        refused = gpu("again", "7", "--array", *words)
        assert (refused.code, said in " ".join(refused.err.split())) == (2, True)


def test_a_word_of_which_a_value_is_but_a_part_is_not_changed(gpu):
    """The value would be another in the record than in the command."""
    gpu.client.answers["workload 7"] = recorded_job(spec=FILLED)
    result = gpu("again", "7", "--out", "mine")

    assert result.code == 2
    said = " ".join(result.err.split())
    assert "'--out=run-{seed}' was filled in with seed=2" in said
    assert "-p seed=VALUE" in said


# -- the command


def test_again_asks_for_the_same_from_what_was_kept(gpu):
    """The queue, the name, the GPUs and the time; the script and the record are taken by the broker."""
    result = gpu("again", "7")

    body = sent(gpu)
    assert result.code == 0
    assert (body.kind, body.again, body.queue, body.name) == (Kind.JOB, RECORDED, "training", "digits")
    assert body.ask == Ask(devices=2, duration_seconds=8 * HOUR)
    assert (body.script, body.record) == (None, ())
    assert argv(gpu) == [unpack_bytes(word).decode() for word in recorded_job().spec.argv]
    assert body.spec.script_index == 1
    assert body.spec.recorded["again"] == "7"
    assert "Submitted job 15 (digits) to queue training." in result.out
    assert "It is as job 7 was." in result.err


def test_what_is_given_is_different_and_said(gpu):
    """Options of ours, and those of the command, wherever they stand."""
    result = gpu("again", "--gpus", "4", "--queue", "deferred", "7", "--lr", "0.01", "--time", "2h", "model.dim=1")

    body = sent(gpu)
    assert body.ask == Ask(devices=4, duration_seconds=2 * HOUR)
    assert body.queue == "deferred"
    assert argv(gpu)[2:4] == ["--lr", "0.01"]
    said = " ".join(result.err.split())
    for words in ("--lr 0.01 instead of --lr 0.1", "model.dim=1 instead of", "queue deferred instead of training"):
        assert words in said
    assert "4 GPUs, 2h instead of 2 GPUs, 8h" in said


def test_behind_two_dashes_all_words_are_the_commands(gpu):
    """Also one that is named as one of ours."""
    gpu("again", "7", "--", "--name", "y")

    assert "--name=y" in argv(gpu)
    assert sent(gpu).name == "digits"


def test_variables_and_parameters_are_added_or_replaced(gpu):
    """The others stay; those that look like secrets pass, since they were asked for by name then."""
    secret = recorded_job(
        spec={"environment": {"PATH": "/usr/bin", "SEED": "1", "HF_TOKEN": "s"}, "parameters": {"a": 1}}
    )
    gpu.client.answers["workload 7"] = secret
    gpu("again", "7", "--env", "SEED=2", "-p", "b=[1]")

    assert sent(gpu).spec.environment == {"PATH": "/usr/bin", "SEED": "2", "HF_TOKEN": "s"}
    assert sent(gpu).spec.parameters == {"a": 1, "b": [1]}
    assert next(call[3] for call in gpu.client.calls if call[0] == "submit") == ("HF_TOKEN",)


def test_what_it_came_after_is_not_waited_for_again_and_that_is_said(gpu):
    """Those are over; who wants it after others says so."""
    gpu.client.answers["workload 7"] = recorded_job(after=(Dependency(workload=5, ok=True),))
    result = gpu("again", "7")

    assert sent(gpu).after == ()
    assert "it comes after nothing, and job 7 came after job 5" in " ".join(result.err.split())


def test_checkpoints_of_the_other_are_not_written_over(gpu):
    """A folder that was named is not used again unless it is named again."""
    gpu.client.answers["workload 7"] = recorded_job(spec={"checkpoint_dir": "ckpt"})
    result = gpu("again", "7")
    assert sent(gpu).spec.checkpoint_dir is None
    assert "and not into ckpt" in " ".join(result.err.split())
    gpu.client.calls.clear()
    gpu("again", "7", "--checkpoint-dir", "ckpt")
    assert sent(gpu).spec.checkpoint_dir == "ckpt"


def a_checkpoint(home: Path, step: int) -> Path:
    """A complete checkpoint, as a training leaves it, by its third attempt."""
    home.mkdir(parents=True, exist_ok=True)
    with Writer(home, 3).checkpoint(step, keep=None) as folder:
        (folder / "model").write_text(f"of step {step}")
    found, _ = newest_complete(home)
    assert found is not None
    return found


def test_with_resume_it_goes_on_from_the_newest_checkpoint(gpu, tmp_path):
    """In a folder of its own, where its first attempt may write; that of the other job stays as it is."""
    home = tmp_path / ".jupyter-gpu" / "job-7"
    a_checkpoint(home, 5)
    theirs = a_checkpoint(home, 10)
    gpu.client.answers["workload 7"] = recorded_job(spec={"folder": str(tmp_path)})

    assert "it goes on from the newest checkpoint" in " ".join(gpu("again", "7", "--resume").err.split())
    mine = tmp_path / sent(gpu).spec.checkpoint_dir
    found, _ = newest_complete(mine)
    assert (found.name, (found / "model").read_text()) == (theirs.name, "of step 10")
    with Writer(mine, 1).checkpoint(11, keep=None) as folder:
        (folder / "model").write_text("x")
    assert (theirs / "model").read_text() == "of step 10"


def test_a_dry_run_with_resume_makes_no_folder_and_tells_a_checkpoint_that_is_missing(gpu, tmp_path):
    """What would be refused is refused then too."""
    gpu.client.answers["workload 7"] = recorded_job(spec={"folder": str(tmp_path)})
    assert "no complete checkpoint" in " ".join(gpu("again", "7", "--resume", "--dry-run").err.split())
    a_checkpoint(tmp_path / ".jupyter-gpu" / "job-7", 10)
    result = gpu("again", "7", "--resume", "--dry-run")

    assert result.code == 0
    assert "it goes on from the newest checkpoint" in " ".join(result.err.split())
    assert [it.name for it in (tmp_path / ".jupyter-gpu").iterdir()] == ["job-7"]


def test_with_resume_and_a_key_the_checkpoint_is_taken_over_once(gpu, tmp_path):
    """So that it stays one job; a folder that job 7 had named is looked into."""
    a_checkpoint(tmp_path / "ckpt", 10)
    gpu.client.answers["workload 7"] = recorded_job(spec={"folder": str(tmp_path), "checkpoint_dir": "ckpt"})
    for _ in range(2):
        assert gpu("again", "7", "--resume", "--key", "k").code == 0
    first, second = (call[1].spec.checkpoint_dir for call in gpu.client.calls if call[0] == "submit")
    assert first == second
    assert [it.name for it in (tmp_path / first).iterdir() if it.name.startswith("step-")] == ["step-000000000010"]


def test_what_is_refused_leaves_no_folder_behind(gpu, tmp_path):
    """Nobody would look for its checkpoints there; where the answer is lost, the job may be there and look."""
    a_checkpoint(tmp_path / ".jupyter-gpu" / "job-7", 10)
    gpu.client.answers["workload 7"] = recorded_job(spec={"folder": str(tmp_path)})
    gpu.client.errors["submit"] = InvalidAsk("There is no queue of this name.")
    assert gpu("again", "7", "--resume").code == InvalidAsk.exit_code
    assert [it.name for it in (tmp_path / ".jupyter-gpu").iterdir()] == ["job-7"]

    gpu.client.errors["submit"] = BrokerUnavailable("The broker does not answer.")
    gpu("again", "7", "--resume", "--key", "k")
    assert [it.name[:7] for it in sorted((tmp_path / ".jupyter-gpu").iterdir())] == ["from-7-", "job-7"]


def test_links_in_a_checkpoint_stay_links(gpu, tmp_path):
    """What they lead to is neither linked nor copied: it may be what its owner alone may read."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("x")
    newest = a_checkpoint(tmp_path / "work" / ".jupyter-gpu" / "job-7", 10)
    (newest / "key").symlink_to(secret / "key")
    (newest / "all").symlink_to(secret)
    gpu.client.answers["workload 7"] = recorded_job(spec={"folder": str(tmp_path / "work")})
    assert gpu("again", "7", "--resume").code == 0

    found, _ = newest_complete(tmp_path / "work" / sent(gpu).spec.checkpoint_dir)
    assert [(found / name).readlink() for name in ("key", "all")] == [secret / "key", secret]
    assert (secret / "key").stat().st_nlink == 1


def test_a_checkpoint_of_another_account_is_not_taken_over(gpu, tmp_path, monkeypatch):
    """Only what this account wrote is brought to where it writes, and nothing is made where another's link leads."""
    home = tmp_path / ".jupyter-gpu" / "job-7"
    a_checkpoint(home, 10)
    gpu.client.answers["workload 7"] = recorded_job(spec={"folder": str(tmp_path)})
    real = Path.lstat

    def as_of_another(path):
        found = real(path)
        other = [*found[:4], found.st_uid + 1, *found[5:]]
        return os.stat_result(other) if path.name.startswith("step-") or S_ISLNK(found.st_mode) else found

    monkeypatch.setattr(Path, "lstat", as_of_another)
    result = gpu("again", "7", "--resume")
    assert (result.code, "belongs to another account" in " ".join(result.err.split())) == (2, True)
    (tmp_path / ".jupyter-gpu").rename(tmp_path / "elsewhere")
    (tmp_path / ".jupyter-gpu").symlink_to(tmp_path / "elsewhere")
    result = gpu("again", "7", "--resume")
    assert (result.code, "a link of another account" in " ".join(result.err.split())) == (2, True)
    assert [it.name for it in (tmp_path / "elsewhere").iterdir()] == ["job-7"]


def test_an_operator_runs_and_touches_nothing_of_anothers_job(gpu, tmp_path):
    """They see it, and it is refused before a program of its PATH runs or a folder is made in its own."""
    (tmp_path / "work" / ".git").mkdir(parents=True)
    a_checkpoint(tmp_path / "work" / ".jupyter-gpu" / "job-7", 10)
    spec = {"folder": str(tmp_path / "work"), "environment": {"PATH": str(a_false_git(tmp_path))}}
    gpu.client.answers["workload 7"] = recorded_job(spec=spec, owner="bob", is_mine=False)
    for words in ([], ["--dry-run"], ["--resume"]):
        assert gpu("again", "7", *words).code == InvalidAsk.exit_code
    assert not (tmp_path / "ran").exists()
    assert [it.name for it in (tmp_path / "work" / ".jupyter-gpu").iterdir()] == ["job-7"]


def test_git_is_the_one_of_whoever_asks(gpu, tmp_path):
    """Not one that the variables of a record lead to."""
    (tmp_path / "work" / ".git").mkdir(parents=True)
    spec = {"folder": str(tmp_path / "work"), "environment": {"PATH": str(a_false_git(tmp_path))}}
    gpu.client.answers["workload 7"] = recorded_job(spec=spec)
    assert gpu("again", "7").code == 0
    assert not (tmp_path / "ran").exists()


def a_false_git(place: Path) -> Path:
    """A folder of programs whose git tells that it ran."""
    (place / "bin").mkdir()
    (place / "bin" / "git").write_text(f"#!/bin/sh\n: > {place}/ran\nexit 1\n")
    (place / "bin" / "git").chmod(0o755)
    return place / "bin"


def test_without_a_checkpoint_there_is_nothing_to_resume(gpu, tmp_path):
    """It is said before anything is queued, with the folder that was looked into."""
    gpu.client.answers["workload 7"] = recorded_job(spec={"folder": str(tmp_path)})
    result = gpu("again", "7", "--resume")
    assert (result.code, "job-7" in result.err.replace("\n", "")) == (2, True)
    assert gpu("again", "7", "--resume", "--checkpoint-dir", "x").code == 2
    assert not [call for call in gpu.client.calls if call[0] == "submit"]


def test_what_belongs_to_the_job_and_has_changed_since_is_said(gpu, tmp_path):
    """The script's copy runs, and all else of the folder is as it is now; it is recorded anew."""
    (tmp_path / "train.py").write_text("print(2)")
    gpu.client.answers["workload 7"] = recorded_job(spec={"folder": str(tmp_path), "argv": ("/bin/true", "train.py")})
    gpu.client.answers |= {"record script": b"print(1)", "record packages": b"torch==1", "record diff": b"x"}
    gpu.width = 300
    result = gpu("again", "7")

    assert "The file train.py has changed since: the copy of job 7 runs." in result.err
    assert "Its folder is at commit none now, and was at 0123456789ab then." in result.err
    assert "git_commit" not in sent(gpu).spec.recorded
    assert "platform" in sent(gpu).spec.recorded

    gpu.client.answers["record script"] = b"print(2)"
    assert "has changed since" not in gpu("again", "7").err


def test_files_whose_uncommitted_lines_are_others_now_are_named():
    """Those that are the same in both are not."""
    words = (("m.py", 1), ("m.py", 2), ("a", 1), ("x y", 1))
    one, other, same, gone = (f"diff --git a/{name} b/{name}\n+{text}\n".encode() for name, text in words)
    assert differing_files(same + one + gone, same + other) == ["m.py", "x y"]
    assert differing_files(one, b"") == ["m.py"]


def test_a_folder_of_another_machine_keeps_its_record(gpu):
    """Nothing of it can be seen from here, so what was recorded then is said of it still."""
    gpu("again", "7")
    assert sent(gpu).spec.recorded["git_commit"] == recorded_job().spec.recorded["git_commit"]


def test_with_a_key_it_is_one_job(gpu):
    """The key goes to the broker; and what was there already is not said to be new."""
    gpu("again", "7", "--key", "k")
    assert next(call[2] for call in gpu.client.calls if call[0] == "submit") == "k"


def test_a_dry_run_queues_nothing(gpu):
    """It says what would become of it."""
    result = gpu("again", "7", "--dry-run", "--lr", "0.5")
    assert "Nothing is queued." in result.out
    assert not [call for call in gpu.client.calls if call[0] == "submit"]
    assert argv(gpu)[3] == "0.5"


@pytest.mark.parametrize("number", ["9", "14"])
def test_what_runs_nothing_is_not_submitted_again(gpu, number):
    """A reservation, and a job of which one may not see what it runs."""
    result = gpu("again", number)
    assert result.code == InvalidAsk.exit_code
    assert not [call for call in gpu.client.calls if call[0] == "submit"]


def test_what_the_broker_says_of_a_copy_that_is_gone_is_told(gpu):
    """With what helps."""
    gpu.client.errors["submit"] = Conflict("The script of job 7 was cleared away.", hint="Submit the file anew.")
    result = gpu("again", "7")
    assert (result.code, "Submit the file anew." in result.err) == (Conflict.exit_code, True)


def test_the_results_of_a_notebook_go_into_a_new_one(gpu, tmp_path):
    """No file is written over; with a key the name is always the same, so that it stays one job."""
    words = ("python", "-m", "jupyter_gpu.notebook_job", "--", "train.ipynb", "train-1.ipynb")
    spec = {"argv": words, "folder": str(tmp_path), "script_index": 4, "recorded": {"output_notebook": "train-1.ipynb"}}
    gpu.client.answers["workload 7"] = recorded_job(spec=spec)
    names = []
    for more in ((), ("--key", "k"), ("--key", "k")):
        gpu.client.calls.clear()
        gpu("again", "7", *more)
        names.append(argv(gpu)[-1])
        assert sent(gpu).spec.recorded["output_notebook"] == names[-1]
    assert all(name.startswith("train-") and name.endswith(".ipynb") for name in names)
    assert "train-1.ipynb" not in names
    assert names[1] == names[2]
    assert os.sep not in names[0]
    assert Path(names[0]).name == names[0]
