"""`simulate`: a trace in a file, or the lab's own past, under several policies or on several pools."""

from __future__ import annotations

import gzip
import json
import sys

import pytest

from jupyter_gpu import simulated
from jupyter_gpu.errors import NotAllowed, NotFound
from jupyter_gpu.model import PastJob
from tests.cli.fake import NOW

#: One GPU, three jobs: the second waits behind the first, the third is short.
TRACE = "job_id,user,team_or_vc,submit_s,gpus,duration_s\n1,ada,v,0,1,600\n2,bob,w,10,1,3600\n3,ada,v,20,1,60\n"


@pytest.fixture
def trace(tmp_path):
    """A file with the three jobs."""
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    return path


def cells(out: str) -> list[list[str]]:
    """The table's lines, blanks aside."""
    return [line.split() for line in out.splitlines()]


def test_policies_stand_beside_each_other(gpu, trace):
    """By hand: first come first served lets the short job wait for an hour, shortest first does not."""
    result = gpu("simulate", str(trace), "--nodes", "1", "--policies", "fifo,sjf")

    assert result.code == 0
    lines = cells(result.out)
    assert lines[0][:5] == ["trace.csv:", "3", "jobs", "of", "2"]
    assert lines[2] == ["fifo", "sjf"]
    assert ["mean", "wait", "26m30s", "6m50s"] in lines
    assert ["preemptions", "0", "0"] in lines


def test_all_policies_are_replayed_where_none_is_named(gpu, trace):
    """The five of them, ours last."""
    document = json.loads(gpu("simulate", str(trace), "--nodes", "1x1", "--json").out)

    assert [run["policy"] for run in document["runs"]] == ["fifo", "easy", "sjf", "srtf", "ours"]
    assert {run["jobs"] for run in document["runs"]} == {3}


def test_how_many_gpus_are_needed(gpu, trace):
    """A line for each number of them; on three nobody waits."""
    out = gpu("simulate", str(trace), "--devices", "1,2,3").out

    rows = [line for line in cells(out) if line and line[-1] == "ours"]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert rows[2][1:4] == ["0s", "0s", "0s"]
    assert rows[0][1] != "0s"


def test_what_another_rule_would_have_done(gpu, trace, tmp_path):
    """The admin's own file, and a policy as JSON, beside each other and ours."""
    config = tmp_path / "jupyter_gpu_config.py"
    config.write_text("c.GpuBroker.policy = {'quotas': [{'user': 'bob', 'devices': 0}]}\n", encoding="utf-8")
    rule = tmp_path / "rule.json"
    rule.write_text('{"most_devices": 4}', encoding="utf-8")

    result = gpu("simulate", str(trace), "--nodes", "1x1", "--policy", str(config), "--policy", str(rule), "--json")

    runs = json.loads(result.out)["runs"]
    assert [(run["policy"], run["jobs"]) for run in runs] == [
        ("ours", 3),
        ("jupyter_gpu_config.py", 2),
        ("rule.json", 3),
    ]
    assert runs[1]["not_run"] == {"1 GPU is more than 0 GPUs at once, the quota of user bob": 1}


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (("c.py", "c.GpuBroker.policy = {'queue': 1}"), "queue: there is no such setting"),
        (("c.py", "1 / 0"), "ZeroDivisionError"),
        (("c.json", "[]"), "no JSON object"),
        (("c.json", "{"), "is no JSON"),
        (("c.json", "[" * 100_000), "is no JSON"),
    ],
    ids=["no setting", "a fault", "a list", "no JSON", "too deep"],
)
def test_a_rule_that_cannot_be_meant_is_refused(gpu, trace, tmp_path, file, said):
    """Before anything is replayed."""
    name, text = file
    (tmp_path / name).write_text(text, encoding="utf-8")

    result = gpu("simulate", str(trace), "--nodes", "1x1", "--policy", str(tmp_path / name))

    assert result.code == 2
    assert said in result.err
    assert result.out == ""


def test_the_lab_s_own_past_on_the_gpus_that_it_has(gpu, tmp_path):
    """And kept as a trace that can be read again."""
    gpu.client.answers["past"] = tuple(
        PastJob(id=it, user="ada", team="v", queue="training", submitted_at=NOW + it, gpus=1, duration_seconds=60.4)
        for it in range(1, 4)
    )
    kept = tmp_path / "past.csv"

    document = json.loads(gpu("simulate", "history", "--policies", "ours", "--save", str(kept), "--json").out)

    assert (document["trace"], document["jobs"], document["runs"][0]["devices"]) == ("history", 3, 4)
    again = simulated.open_trace(str(kept))
    assert [(job.job_id, job.submit_s, job.duration_s, job.queue) for job in again.jobs] == [
        (str(it), round(NOW) + it, 60, "training") for it in range(1, 4)
    ]
    result = gpu("simulate", "history", "--save", str(kept))
    assert (result.code, "already" in result.err) == (5, True)


def wide() -> tuple[PastJob, ...]:
    """One job of eight GPUs, more than the policy of the lab of these tests grants at once."""
    words = {"user": "ada", "team": "v", "queue": "training", "submitted_at": NOW, "duration_seconds": 450.0}
    return (PastJob(id=1, gpus=8, **words),)


def test_the_lab_s_own_past_is_replayed_by_the_rules_in_force(gpu):
    """An operator may read them; one job, one team, one GPU-hour are no many."""
    gpu.client.answers["past"] = wide()

    result = gpu("simulate", "history", "--policies", "ours", "--nodes", "1x8")

    assert result.out.startswith("history: 1 job of 1 team, 1 GPU-hour, submitted within 0s\n")
    assert f"`ours` decides by the policy in force ({gpu.client.policy().digest})." in result.out
    assert "ours on 8 GPUs: 1 job never ran (" in result.err


@pytest.mark.parametrize("error", [NotAllowed("not yours"), NotFound("no such page")], ids=["a user", "an old broker"])
def test_who_may_not_read_the_rules_in_force_gets_those_that_ship_and_is_told(gpu, error):
    """They grant eight at once."""
    gpu.client.answers["past"] = wide()
    gpu.client.errors["policy"] = error

    result = gpu("simulate", "history", "--policies", "ours", "--nodes", "1x8")

    assert "`ours` decides by the rules that ship, since " in result.out
    assert ["jobs", "run", "1"] in cells(result.out)
    assert result.code == 0


def test_a_file_is_replayed_by_the_rules_that_ship_and_no_broker_is_asked(gpu, trace):
    """It says so; where ours was not asked for, nothing is said of rules."""
    assert "`ours` decides by the rules that ship.\n" in gpu("simulate", str(trace), "--nodes", "1").out
    assert "decides by" not in gpu("simulate", str(trace), "--nodes", "1", "--policies", "fifo").out
    assert gpu.client.calls == []


def test_a_lab_without_a_past_is_told_so(gpu):
    """There is nothing to replay."""
    gpu.client.answers["past"] = ()
    result = gpu("simulate", "history")

    assert result.code == 2
    assert "no past yet" in result.err


def test_a_part_of_a_trace(gpu, trace):
    """From a second of it, until some time after its first, of one team."""
    ask = ("simulate", str(trace), "--nodes", "1", "--policies", "fifo", "--json")

    assert json.loads(gpu(*ask, "--from", "10").out)["jobs"] == 2
    assert json.loads(gpu(*ask, "--until", "15s").out)["jobs"] == 2
    assert json.loads(gpu(*ask, "--teams", "w").out)["jobs"] == 1
    nothing = gpu(*ask, "--from", "100")
    assert (nothing.code, "Nothing of the trace is left" in nothing.err) == (2, True)
    nobody = gpu(*ask, "--teams", "x")
    assert (nobody.code, "no team 'x'" in nobody.err) == (2, True)


def test_a_packed_trace_is_unpacked(gpu, tmp_path):
    """Whatever its name."""
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(TRACE.encode(), mtime=0))

    assert json.loads(gpu("simulate", str(path), "--nodes", "1", "--policies", "fifo", "--json").out)["jobs"] == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(TRACE.encode(), mtime=0)[:-20], "cannot be unpacked"),
        (b"\x1f\x8b\x08broken", "cannot be unpacked"),
        (b"job_id,\xff\xfe", "is no text in UTF-8"),
        (TRACE.encode() + b"4,ada,v,x,1,1\n", "'trace', line 5: submit_s is 'x'"),
    ],
    ids=["cut off", "broken", "not text", "a wrong row"],
)
def test_a_file_that_is_no_trace_is_refused(gpu, tmp_path, content, said):
    """With what is wrong, and no traceback."""
    path = tmp_path / "trace"
    path.write_bytes(content)

    result = gpu("simulate", str(path), "--nodes", "1")

    assert result.code == 2
    assert said in result.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--nodes", "0x8"), 2, "is no number of nodes"),
        (("--nodes", "9999999x8"), 2, "is no number of nodes"),
        (("--nodes", "99999x8"), 2, "is no number of nodes"),
        (("--devices", "8,zero"), 2, "'zero' is no number of GPUs"),
        (("--devices", "0"), 2, "'0' is no number of GPUs"),
        (("--devices", ",".join(["8"] * 21)), 2, "too many at once"),
        (("--nodes", "1", "--devices", "8"), 2, "leave one of them out"),
        ((), 2, "Say on which GPUs"),
        (("--nodes", "1", "--policies", "lifo"), 2, "no policy 'lifo'"),
        (("--nodes", "1", "--picture", "waits.gif"), 2, "cannot be written as 'waits.gif'"),
        (("--nodes", "1", "--policy", "nowhere.py"), 4, "no policy file 'nowhere.py'"),
        (("--nodes", "1", "--from", "10x"), 2, "10x"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(gpu, trace, words, code, said):
    """Each with what to write instead."""
    result = gpu("simulate", str(trace), *words)

    assert (result.code, result.out) == (code, "")
    assert said in result.err


def test_a_file_that_is_not_there(gpu):
    """The exit code of what is not found."""
    assert gpu("simulate", "nowhere.csv", "--nodes", "1").code == 4


def test_what_is_not_in_the_numbers_is_said(gpu, tmp_path):
    """Jobs that are too wide, jobs without a GPU, teams in the place of users."""
    path = tmp_path / "trace.csv"
    rows = "1,,v,0,1,600\n2,,v,10,4,600\n3,,v,20,0,60\n"
    path.write_text("job_id,user,team_or_vc,submit_s,gpus,duration_s\n" + rows, encoding="utf-8")

    err = gpu("simulate", str(path), "--nodes", "1x2", "--policies", "fifo").err

    assert "1 job without a GPU is left out." in err
    assert "The trace names no users, so each team stands in for one." in err
    assert "fifo on 2 GPUs: 1 job never ran (more GPUs than there are)." in err


@pytest.mark.parametrize("name", ["waits.svg", "waits.png"])
def test_a_picture_is_drawn(gpu, trace, tmp_path, name):
    """With a line for each policy."""
    pytest.importorskip("matplotlib", reason="pip install 'jupyter-gpu[pictures]'")
    path = tmp_path / name

    result = gpu("simulate", str(trace), "--nodes", "1", "--policies", "fifo,easy", "--picture", str(path))

    assert result.code == 0
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") if name.endswith("png") else b"<svg" in content
    assert str(path) in result.err.replace("\n", "")


def test_without_what_draws_a_picture_is_refused_before_anything_is_replayed(gpu, trace, monkeypatch):
    """It says how to install it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    result = gpu("simulate", str(trace), "--nodes", "1", "--picture", "waits.svg")

    assert (result.code, result.out) == (1, "")
    assert "pip install 'jupyter-gpu[pictures]'" in result.err


def test_ctrl_c_ends_it_without_a_word(gpu, trace, monkeypatch):
    """As every command."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(simulated, "replay", interrupted)

    result = gpu("simulate", str(trace), "--nodes", "1")

    assert (result.code, result.out) == (130, "")
    assert "Traceback" not in result.err


def test_where_a_person_looks_on_it_is_shown_how_far_it_is(gpu, trace):
    """On stderr, so that the answer can be piped."""
    gpu.tty = True

    result = gpu("simulate", str(trace), "--nodes", "1", "--policies", "fifo")

    assert "fifo on 1 GPU" in result.err
    assert "1 GPUs" not in result.err
    assert "fifo on 1 GPU" not in result.out
