"""`submit` with all that goes beside a command: arrays, chains, parameters, containers, notifications, a dry run."""

import json

import msgspec
import pytest

from jupyter_gpu import errors
from jupyter_gpu.model import Ask, Dependency, DryRunView, EndReason, JobSpec, Member, State, WorkloadPage, WorkloadView
from tests.cli.fake import HOUR, NOW, ended, lab, workload
from tests.cli.test_submit import asked


def dry(gpu):
    """Give the body that was only tried."""
    return next(call[1] for call in gpu.client.calls if call[0] == "dry_run")


@pytest.fixture(autouse=True)
def own_files(tmp_path, monkeypatch):
    """A home without wishes, and a folder that is in no repository."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- arrays


def test_an_array_is_told_with_its_numbers(gpu):
    """Who submits many learns how many, and which numbers they have."""
    words = ("--array", "lr=0.1,0.01", "seed=1..5", "--at-most", "2", "--name", "digits")
    result = gpu("submit", *words, "--", "true", "--lr={lr}", "{seed}")

    assert result.code == 0
    assert result.out == (
        "Submitted array 15 (digits) to queue training: 10 jobs, numbers 15 to 24.\n"
        "Each runs: true '--lr={lr}' '{seed}'\n"
        "No GPU is free. You are first in queue training.\n"
    )
    first = workload(15, state=State.ACTIVE, member=Member(array=15, index=1, of=10), reason="It holds GPU 0.")
    gpu.client.answers["submit"] = lambda _: first
    said = gpu("submit", *words, "--", "true", "--lr={lr}", "{seed}").out
    assert said.splitlines()[-1] == "Its first, job 15: It holds GPU 0."
    assert result.err == ""
    body = asked(gpu)
    assert body.spec.argv == ("true", "--lr={lr}", "{seed}")
    assert body.array[0] == {"lr": "0.1", "seed": "1"}
    assert (len(body.array), body.array[-1], body.at_most) == (10, {"lr": "0.01", "seed": "5"}, 2)


@pytest.mark.parametrize(
    "words",
    [
        ("--array", "lr=1,2", "seed=1..2", "true"),
        ("--array=lr=1,2", "--array=seed=1..2", "true"),
        ("--array", "lr=1,2", "--gpus", "1", "--array", "seed=1..2", "--", "true"),
    ],
)
def test_an_array_takes_its_words_and_leaves_the_command(gpu, words):
    """The words NAME=VALUES behind --array are its; the first that is none begins the command."""
    assert gpu("submit", *words).code == 0
    assert (len(asked(gpu).array), asked(gpu).spec.argv) == (4, ("true",))


def test_options_of_the_command_are_not_spread(gpu):
    """An --array of the command's own reaches it as it is."""
    gpu("submit", "--", "true", "--array", "a=1", "b=2")

    assert asked(gpu).spec.argv == ("true", "--array", "a=1", "b=2")
    assert asked(gpu).array == ()


def test_a_parameter_that_nothing_uses_is_told_before_it_is_sent(gpu):
    """A slip in a name would else be ten jobs that are all alike."""
    result = gpu("submit", "--array", "lr=1,2", "seed=1,2", "--", "true", "{lr}", "{sed}")

    assert result.code == 0
    assert "The parameter seed is used nowhere in the command" in result.err
    assert "{sed} is no parameter of the array" in result.err


def test_an_array_with_a_known_key_is_told_as_such(gpu):
    """The same command again is the same array, under the same number."""
    gpu.client.answers["submit"] = lambda _: workload(14, name="s", member=Member(array=14, index=1, of=2))

    assert gpu("submit", "--key", "k", "--array", "a=1,2", "--", "true", "{a}").out == (
        "Array 14 (s) is there already (same key).\n"
    )


def test_an_array_is_waited_for_as_a_whole(gpu):
    """Exit 0 only if all of it succeeded; each end is told."""
    gpu.client.answers["wait 16"] = ended(16, EndReason.FAILED, detail="exit code 3")

    result = gpu("submit", "--array", "seed=1..3", "--wait", "--", "true", "{seed}")

    assert result.code == 1
    assert [call[1] for call in gpu.client.calls if call[0] == "wait"] == [15, 16, 17]
    assert "Job 16 (digits) ended 14:05: failed (exit code 3).\n" in result.out
    waited = gpu("submit", "--json", "--array", "seed=1..3", "--wait", "--", "true", "{seed}").out
    assert [it.id for it in msgspec.json.decode(waited, type=WorkloadPage).items] == [15, 16, 17]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--at-most 2", "--at-most is for the jobs of an --array."),
        ("--array seed=1..3 --follow", "--follow shows one log"),
        ("--dry-run --wait", "--dry-run queues nothing"),
        ("--zone UTC", "--zone is for --cron."),
        ("--overlap skip", "--overlap is for --cron."),
        ("--cron @daily --wait", "A --cron has no end that could be waited for."),
        ("--cron @daily --not-before +1h", "--cron says when: leave --not-before out."),
        ("--cron @daily --follow", "--follow shows one log"),
        ("--array seed", "'seed' gives no values."),
        ("--array a=1..1000 b=1..1000", "1000000 jobs"),
        ("--after x", "'x' is no number of a job."),
        ("--param lr", "The parameter 'lr' has no value."),
        ("--params none.yaml", "The parameters in 'none.yaml' cannot be read"),
        ("--mount /tmp:/data", "Without an image there is no container."),
        ("--image a --mount /tmp:data", "The mount '/tmp:data' cannot be meant."),
        ("--image a --mount nowhere:/data", "There is no 'nowhere' to mount."),
        ("--notify-on ended", "--notify-on names nobody to tell."),
        ("--notify x --notify-on sometimes", "does not tell when it 'sometimes'"),
        ("--no-notify --notify x", "--no-notify tells nobody."),
        ("--hang 5", "has no unit"),
    ],
)
def test_what_does_not_fit_is_refused(gpu, words, said):
    """2, with a sentence, and nothing is queued."""
    result = gpu("submit", *words.split(), "--", "true")

    assert result.code == 2
    assert said in result.err
    assert not [call for call in gpu.client.calls if call[0] == "submit"]


# -- chains


def test_a_job_after_others(gpu):
    """Several numbers, and of some only their success."""
    result = gpu("submit", "--after", "12,13", "--after-ok", "#14", "--", "true")

    assert result.code == 0
    assert asked(gpu).after == (
        Dependency(workload=12),
        Dependency(workload=13),
        Dependency(workload=14, ok=True),
    )


# -- parameters


def test_parameters_reach_a_script_by_its_environment(gpu, tmp_path):
    """Files first, names after them; a number is one, and it is told where the job finds them."""
    (tmp_path / "a.yaml").write_text("lr: 0.5\nlayers: [64, 64]\n")

    result = gpu("submit", "--params", "a.yaml", "-p", "lr=1e-3", "-p", "tag=x=y", "--", "true")

    assert asked(gpu).spec.parameters == {"lr": 0.001, "layers": [64, 64], "tag": "x=y"}
    assert result.err == "The job finds lr, layers, tag in JUPYTER_GPU_PARAMETERS, which is JSON.\n"


def test_a_file_without_names_is_no_file_of_parameters(gpu, tmp_path):
    """What is wrong with it is said, and what it should hold."""
    (tmp_path / "a.yaml").write_text("- 1\n")

    assert "'a.yaml' holds no parameters" in gpu("submit", "--params", "a.yaml", "--", "true").err


# -- notebooks


def a_notebook(place, *cells):
    """Write a notebook: each cell a text, the one that begins with `# parameters` tagged."""
    found = [
        {
            "cell_type": "code",
            "source": text,
            "outputs": [],
            "execution_count": None,
            "metadata": {"tags": ["parameters"]} if text.startswith("# parameters") else {},
        }
        for text in cells
    ]
    document = {"cells": found, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    place.write_text(json.dumps(document))
    return place


def test_a_notebook_is_a_job_with_its_parameters(gpu, tmp_path):
    """It is copied, its parameters are typed, and its results have a name of their own."""
    a_notebook(tmp_path / "train.ipynb", "# parameters\nlr = 1", "print(lr)")

    result = gpu("submit", "--key", "k", "-p", "lr=0.1", "--grace", "60s", "train.ipynb")

    body = asked(gpu)
    assert (result.code, result.err) == (0, "")
    assert body.spec.parameters == {"lr": 0.1}
    assert (body.name, body.script.name, body.spec.grace_seconds) == ("train.ipynb", "train.ipynb", 60)
    assert body.spec.recorded["output_notebook"].startswith("train-")
    gpu("submit", "--key", "k", "-p", "lr=0.1", "train.ipynb")
    assert gpu.client.calls[-1][1].spec.argv == body.spec.argv


def test_a_notebook_says_what_of_its_parameters_is_lost(gpu, tmp_path):
    """A missing `parameters` cell, and a name that no cell uses, are told at once (nteract/papermill#637)."""
    a_notebook(tmp_path / "train.ipynb", "print(lr)")

    result = gpu("submit", "--array", "lr=1,2", "sede=1..2", "--", "train.ipynb")

    assert len(asked(gpu).array) == 4
    assert "No cell of train.ipynb is tagged `parameters`" in result.err
    assert "No cell of train.ipynb uses sede" in result.err
    a_notebook(tmp_path / "train.ipynb", "# parameters\nlr = 1", "lr = 2")
    assert "train.ipynb sets lr again" in gpu("submit", "-p", "lr=3", "train.ipynb").err
    assert "{index}" in asked(gpu).spec.recorded["output_notebook"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.ipynb", "--follow"], "'--follow' stands behind the notebook 'train.ipynb'"),
        (["train.ipynb", "results/"], "Name it, such as 'results/train.ipynb', or leave it out."),
        (["train.ipynb", "out/mine.ipynb"], "/out' for the results. Make it first: `mkdir -p "),
        (["none.ipynb"], "There is no notebook"),
    ],
)
def test_what_a_notebook_is_not_submitted_with_is_told_with_what_is_meant(gpu, tmp_path, monkeypatch, words, said):
    """A notebook is no command that could have options, and its results lie in a folder that is there."""
    monkeypatch.chdir(tmp_path)
    a_notebook(tmp_path / "train.ipynb", "1")
    gpu.width = 300
    result = gpu("submit", *words)
    assert result.code == 2
    assert said in " ".join(result.err.split())


def test_the_results_of_a_notebook_can_be_named(gpu, tmp_path):
    """Behind it; and no kernel is named for what is no notebook."""
    a_notebook(tmp_path / "train.ipynb", "1")

    gpu("submit", "train.ipynb", "mine.ipynb")

    assert asked(gpu).spec.recorded["output_notebook"] == "mine.ipynb"
    assert gpu("submit", "--kernel", "python3", "--", "true").code == 2


def test_a_notebook_that_recurs_has_new_results_each_time(gpu, tmp_path):
    """Those of last night are still there in the morning."""
    a_notebook(tmp_path / "train.ipynb", "1")

    result = gpu("submit", "--cron", "@daily", "train.ipynb")

    body = next(call[1] for call in gpu.client.calls if call[0] == "add_recurring")
    assert result.err == ""
    assert "--by-job" in body.job.spec.argv


# -- where it runs, and who is told


def test_a_container(gpu, tmp_path):
    """What is in the image is not looked for here, and a mount is named by its whole path."""
    (tmp_path / "data").mkdir()
    words = ("--image", "pytorch:2.4", "--mount", "data:/data:ro", "--container-engine", "podman", "--hang", "30m")

    assert gpu("submit", *words, "--", "only-there", "/app/train.py").code == 0

    spec = asked(gpu).spec
    assert (spec.image, spec.container_engine, spec.hang_seconds) == ("pytorch:2.4", "podman", 1800)
    assert spec.mounts == (f"{tmp_path}/data:/data:ro",)
    assert spec.argv == ("only-there", "/app/train.py")
    assert "program" not in spec.recorded


def test_who_is_told_is_said_here_or_in_the_own_file(gpu, tmp_path):
    """What is said with the job goes before what the file says; nobody is told where that was asked for."""
    place = tmp_path / ".config" / "jupyter-gpu" / "notify.toml"
    place.parent.mkdir(parents=True)
    place.write_text('default = ["chat"]\non = ["ended"]\n[targets]\nchat = "https://chat.example.org/x"\n')
    gpu.environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    said = []
    for words in ((), ("--notify", "cat -s x", "--notify-on", "failed,hung"), ("--no-notify",)):
        gpu.client.calls.clear()
        assert gpu("submit", *words, "--", "true").code == 0
        said.append((asked(gpu).spec.notify, asked(gpu).spec.notify_on))

    assert said == [(("chat",), ("ended",)), (("cat -s x",), ("failed", "hung")), ((), ())]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("chat", "There is no target 'chat' in {home}/.config/jupyter-gpu/notify.toml, and no command of that name"),
        ("nosuchcmd foo", "Nobody would be told by 'nosuchcmd foo': there is no command 'nosuchcmd'."),
        ("./tell.sh", "'./tell.sh' does not begin with a slash."),
        ("/no/such/tell", "there is no command '/no/such/tell'."),
        ("typo", "Nobody would be told by 'typo': there is no command 'mial'."),
    ],
)
def test_a_target_that_would_tell_nobody_is_refused_while_somebody_is_there(gpu, tmp_path, target, said):
    """At night the broker's log alone would know of it."""
    place = tmp_path / ".config" / "jupyter-gpu" / "notify.toml"
    place.parent.mkdir(parents=True)
    place.write_text('[targets]\ntypo = "mial -s x ada@example.org"\n')
    gpu.environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    result = gpu("submit", "--notify", target, "--", "true")

    assert result.code == 2
    assert said.format(home=tmp_path) in " ".join(result.err.split())
    assert not [call for call in gpu.client.calls if call[0] == "submit"]


def test_a_dry_run_says_who_would_be_told(gpu):
    """By name or address, and of what."""
    result = gpu("submit", "--dry-run", "--notify", "https://chat.lab/x", "--notify-on", "failed", "--", "true")
    assert "Told would be: https://chat.lab/x, of: failed." in result.out


def test_what_it_depends_on_is_written_down(gpu):
    """Every submission is recorded, unless that is not wanted."""
    gpu("submit", "--", "true")
    assert "platform" in asked(gpu).spec.recorded

    gpu.client.calls.clear()
    gpu("submit", "--no-record", "--", "true")
    assert (set(asked(gpu).spec.recorded), asked(gpu).record) == ({"program"}, ())


# -- again and again


def test_a_recurring_job_is_a_calendar_with_all_that_a_submission_has(gpu):
    """The calendar, its time zone and the rule for overlaps; it is told when it comes first."""
    words = ("--cron", "30 2 * * *", "--zone", "Europe/Amsterdam", "--overlap", "queue", "--name", "nightly")

    result = gpu("submit", *words, "--", "true", "a b")

    body = next(call[1] for call in gpu.client.calls if call[0] == "add_recurring")
    assert (body.cron, body.timezone, body.overlap) == ("30 2 * * *", "Europe/Amsterdam", "queue")
    assert (body.job.spec.argv, body.job.name) == (("true", "a b"), "nightly")
    assert result.out == (
        "Recurring job 15 (nightly) is queued by the calendar 30 2 * * *, in the time of Europe/Amsterdam.\n"
        "Each time it runs: true 'a b'\n"
        "The first time: 15:05. `jupyter gpu recurring` lists what is queued so.\n"
    )
    assert not [call for call in gpu.client.calls if call[0] == "submit"]
    gpu("submit", "--cron", "@daily", "--key", "k", "--", "true")
    assert gpu.client.calls[-1][2] == "k"


# -- a dry run


def test_a_dry_run_says_what_would_become_of_it(gpu):
    """Queue, reason, expected start, what it takes; nothing is sent."""
    gpu.client.answers["submit"] = lambda body: workload(
        30, name=body.name, reason="No GPU is free.", expected_start_at=NOW + 2 * HOUR
    )

    result = gpu("submit", "--dry-run", "--name", "digits", "--array", "seed=1..4", "--", "true", "{seed}")

    assert result.code == 0
    assert not [call for call in gpu.client.calls if call[0] == "submit"]
    assert len(dry(gpu).array) == 4
    assert result.out.startswith(
        "Nothing is queued. It would be 4 jobs (digits) in queue training.\n"
        "Each would run: true '{seed}'\n"
        "No GPU is free.\n"
        "Expected start: about 16:05.\n"
        "\n"
        "It would count for\n"
        "rule "
    )
    assert "devices per user" in result.out


def test_a_dry_run_of_a_calendar_says_its_first_times_by_the_readers_clock(gpu):
    """And nothing of now, when it would not come."""
    result = gpu("recurring", "add", "--dry-run", "--cron", "5 16 * * *", "--zone", "Europe/Amsterdam", "--", "true")

    assert next(call[2:] for call in gpu.client.calls if call[0] == "dry_run") == ("5 16 * * *", "Europe/Amsterdam")
    assert result.out.startswith(
        "Nothing is queued. It would be 1 job in queue training each time.\n"
        "It would run: true\n"
        "The first times by the clock here: 15:05, tomorrow 15:05. The calendar is in the"
    )
    assert "now" not in result.out


def test_a_dry_run_shows_an_array_filled_in_with_what_belongs_to_it_and_why_others_wait(gpu, monkeypatch):
    """An example of the command, its parameters and image, and why not all would start."""
    first = workload(0, state=State.ACTIVE, spec=JobSpec(argv=("true", "1"), folder="/"))
    said = DryRunView(workload=first, jobs=4, starts_now=2, others_wait="no GPU is free")
    monkeypatch.setattr(gpu.client, "dry_run", lambda *_: said)

    words = ("--array", "seed=1..4", "--image", "lab/torch", "-p", "lr=0.1", "--", "true", "{seed}")
    assert gpu("submit", "--dry-run", *words).out == (
        "Nothing is queued. It would be 4 jobs (digits) in queue training.\n"
        "Each would run: true '{seed}'\n"
        "The first of them: true 1\n"
        "Its parameters: lr=0.1.\n"
        "In the image: lab/torch.\n"
        "2 of them would start now. No GPU is free.\n"
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"jobs": 1, "starts_now": 1}, "It would start now.\n"),
        ({"jobs": 4, "starts_now": 4}, "All would start now.\n"),
        ({"jobs": 4, "starts_now": 2}, "2 of them would start now.\n"),
        ({"jobs": 1, "starts_now": 1, "evicts": (12,)}, "To make room, workload 12 would have to yield.\n"),
        ({"jobs": 1, "starts_now": 1, "evicts": (12, 9, 3)}, "workloads 3, 9 and 12 would have to yield.\n"),
    ],
)
def test_a_dry_run_names_who_would_make_room(gpu, monkeypatch, found, said):
    """Whom a better claim would cost their GPUs is told before it does."""
    it = workload(0, state=State.ACTIVE, ask=Ask())
    monkeypatch.setattr(gpu.client, "dry_run", lambda *_: DryRunView(workload=it, **found))

    assert said in gpu("submit", "--dry-run", "--", "true").out


def test_a_dry_run_says_that_it_would_come_after_what_failed(gpu, monkeypatch):
    """What could never start would end at once, with the reason."""
    detail = "job 12 (prep) failed, and job 16 was to come after its success"
    it = workload(16, state=State.ENDED, end=EndReason.DEPENDENCY_UNMET, detail=detail)
    monkeypatch.setattr(gpu.client, "dry_run", lambda *_: DryRunView(workload=it, jobs=1, starts_now=0))

    assert gpu("submit", "--dry-run", "--after-ok", "12", "--", "true").out.endswith(
        f"It would end at once: dependency-unmet ({detail}).\n"
    )


def test_a_dry_run_that_would_be_refused_is_refused(gpu):
    """As the submission itself would be, with the same exit code."""
    gpu.client.errors["dry_run"] = errors.LimitExceeded("it is more than anybody may have")

    assert gpu("submit", "--dry-run", "--", "true").code == 2


def test_the_documents(gpu):
    """With --json a dry run is its document, and an array the first of its jobs."""
    plan = msgspec.json.decode(gpu("submit", "--json", "--dry-run", "--", "true").out, type=DryRunView)
    assert (plan.jobs, plan.quotas) == (1, lab().quotas)

    first = msgspec.json.decode(gpu("submit", "--json", "--array", "s=1..3", "--", "true").out, type=WorkloadView)
    assert first.member == Member(array=15, index=1, of=3)


# -- its help


def test_the_help_has_its_options_under_headings(gpu, capsys):
    """More than thirty options are read only where they stand together."""
    assert gpu("submit", "--help").code == 0

    out = capsys.readouterr().out
    heads = ["GPUs:", "Its place in line:", "Many, and again and again:", "What it runs, and where:", "While it runs:"]
    assert [out.index(head) for head in heads] == sorted(out.index(head) for head in heads)
    assert out.index("--array") < out.index("What it runs, and where:") < out.index("--image")
    assert max(map(len, out.splitlines())) <= 80
