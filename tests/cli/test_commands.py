"""Verbs that change something: what is asked of the broker, what is told, and with which exit code."""

import inspect

import msgspec
import pytest

from jupyter_gpu import errors, spawn
from jupyter_gpu.cli import VERBS, base
from jupyter_gpu.cli import gpu as group
from jupyter_gpu.cli.checkpoints import FoldersDocument
from jupyter_gpu.cli.doctor import Checkup
from jupyter_gpu.cli.export import ExportDocument
from jupyter_gpu.cli.holder import shell_holder
from jupyter_gpu.cli.log import LogDocument
from jupyter_gpu.client import Client, find
from jupyter_gpu.model import (
    BrokerView,
    Condition,
    DevicePage,
    EndReason,
    EventPage,
    HoldPage,
    HoldView,
    Kind,
    PolicyView,
    ProgressPage,
    QuotaPage,
    RecurringPage,
    RecurringView,
    ReportView,
    SimulationView,
    State,
    Status,
    WorkloadPage,
    WorkloadView,
)
from tests.cli.conftest import Terminal
from tests.cli.fake import HOUR, NOW, STORY, FakeClient, ended, holder, workload

JSON = [
    ("status", Status),
    ("queue", WorkloadPage),
    ("show 12", WorkloadView),
    ("log 12", LogDocument),
    ("progress 12", ProgressPage),
    ("events 12", EventPage),
    ("export 7 --to slurm", ExportDocument),
    ("checkpoints", FoldersDocument),
    ("quota", QuotaPage),
    ("devices", DevicePage),
    ("report", ReportView),
    ("simulate history", SimulationView),
    ("broker", BrokerView),
    ("broker start", BrokerView),
    ("broker stop", BrokerView),
    ("doctor", Checkup),
    ("reserve", WorkloadView),
    ("submit -- true", WorkloadView),
    ("submit --wait -- true", WorkloadView),
    ("again 7", WorkloadView),
    ("recurring", RecurringPage),
    ("recurring add --cron @daily -- true", RecurringView),
    ("recurring pause 15", RecurringPage),
    ("recurring let-go 15", RecurringPage),
    ("recurring fire 15", WorkloadPage),
    ("recurring remove 15", RecurringPage),
    ("hold", HoldPage),
    ("hold add x --maintenance --devices 1 --to +1h", HoldView),
    ("hold remove 15", HoldPage),
    ("reserve --at +1h", WorkloadView),
    ("wait 1 2", WorkloadPage),
    ("cancel 12 14", WorkloadPage),
    ("pause 14", WorkloadPage),
    ("let-go 14", WorkloadPage),
    ("amend 14 --after 12", WorkloadPage),
    ("keep 9", WorkloadPage),
    ("release 9", WorkloadPage),
    ("extend 9 1h", WorkloadView),
    ("cordon 0", DevicePage),
    ("uncordon 0", DevicePage),
    ("drain 0", DevicePage),
    ("forget 3", DevicePage),
    ("policy show", PolicyView),
]


@pytest.mark.parametrize("name", [name for name in vars(FakeClient) if not name.startswith("_")])
def test_the_fake_is_asked_as_the_client_is(name):
    """The client that these tests use takes the same words as the real one."""
    there = inspect.signature(getattr(Client, name)).parameters

    assert list(inspect.signature(getattr(FakeClient, name)).parameters) == list(there)


def with_json(command: str) -> list[str]:
    """Put --json behind the verb."""
    verb, *rest = command.split()
    return [verb, "--json", *rest]


@pytest.mark.parametrize(("command", "document"), JSON)
def test_json_is_exactly_one_document(gpu, command, document):
    """With --json stdout holds one document of the API and nothing else."""
    result = gpu(*with_json(command))

    assert result.code == 0
    assert msgspec.json.decode(result.out, type=document, strict=True)
    assert result.err == ""


def test_json_steers_no_terminal(gpu):
    """What somebody's name would make of it is escaped where people sit, and stays as it is in a pipe."""
    name = "a\u202eb\x9b31m\x7f\U000e0041é"
    gpu.client.answers["workload 7"] = workload(7, name=name)
    for gpu.tty in (False, True):
        out = gpu("show", "7", "--json").out
        assert msgspec.json.decode(out, type=WorkloadView).name == name
        assert out.replace("\n", "").isprintable() is gpu.tty
        assert "é" in out


def test_every_verb_has_json():
    """No verb lacks --json, save the one that prints a script for a shell."""
    verbs = {verb for verbs in VERBS.values() for verb in verbs} - {"completion"}

    assert {command.split()[0] for command, _ in JSON} == verbs


def test_the_documents_are_those_of_the_broker(gpu):
    """What the broker says arrives unchanged."""
    assert msgspec.json.decode(gpu("status", "--json").out, type=Status) == gpu.client.lab
    assert msgspec.json.decode(gpu("events", "12", "--json").out, type=EventPage).items == STORY


@pytest.mark.parametrize("kind", errors.TREE)
@pytest.mark.parametrize(
    ("command", "method"),
    [
        ("status", "status"),
        ("submit -- true", "submit"),
        ("cancel 12", "cancel"),
        ("wait 12", "wait"),
        ("log 12", "log_part"),
    ],
)
def test_an_error_becomes_its_exit_code(gpu, kind, command, method):
    """Every error of the tree ends with its own number, in sentences, without a traceback."""
    gpu.client.errors[method] = kind("it is so", hint="Do this.")

    result = gpu(*command.split())

    assert result.code == kind.exit_code
    assert result.out == ""
    assert result.err == "Error: It is so.\nDo this.\n"


@pytest.mark.parametrize("kind", errors.TREE)
def test_an_error_is_json_where_json_was_asked_for(gpu, kind):
    """With --json an error is one JSON document on stderr, and stdout stays empty."""
    gpu.client.errors["status"] = kind("it is so", hint="Do this.")

    result = gpu("status", "--json")

    assert (result.code, result.out) == (kind.exit_code, "")
    assert msgspec.json.decode(result.err) == {"code": kind.code, "message": "it is so.", "hint": "Do this."}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("list", "Did you mean queue?"),
        ("logs 1", "Did you mean log?"),
        ("submti", "Did you mean submit?"),
        ("zzz", "There is no command 'zzz'."),
        ("show", "Missing argument"),
        ("show x", "'x' is no number of a workload"),
        ("show 0", "no number of a workload"),
        ("show 99999999999999999999999", "no number of a workload"),
        ("queue --foo", "No such option"),
        ("wait 1 --until never", "'never'"),
        ("cancel", "Missing argument"),
        ("status --watch --json", "choose one"),
        ("log 1 --json --raw", "do not fit"),
        ("log 1 --attempt 0", "0"),
        ("submit --gpus -1 -- true", "-1"),
        ("submit --retries -1 -- true", "-1"),
        ("submit --follow --json -- true", "choose one"),
        ("submit --shell x -- true", "not both"),
        ("submit", "no command to run"),
        ("submit --time -1h -- true", "is negative"),
        ("submit --time 0 -- true", "is zero"),
        ("submit --time soon -- true", "cannot be read"),
        ("submit --time 99999d -- true", "more than 10 years"),
        ("submit --memory -1GiB -- true", "is negative"),
        ("submit --memory much -- true", "cannot be read"),
        ("submit --min-free 0 -- true", "is zero"),
        ("submit --grace 1:30 -- true", "cannot be read"),
        ("submit --not-before yesterday -- true", "cannot be read as a time"),
        ("submit --not-before 2020-01-01 -- true", "is past"),
        ("reserve 0", "'0' is too few"),
        ("reserve -1", "'-1' is no number of GPUs"),
        ("reserve two", "'two' is no number of GPUs"),
        ("reserve python train.py", "`jupyter gpu reserve -- python train.py`"),
        ("reserve 2 python train.py", "`jupyter gpu reserve -- python train.py`"),
        ("reserve python train.py --lr 0.1", "`jupyter gpu reserve -- python train.py --lr 0.1`"),
        ("reserve 2h", "`jupyter gpu reserve --for 2h`"),
        ("reserve 1 2h", "`jupyter gpu reserve --for 2h`"),
        ("reserve 1 2", "`jupyter gpu reserve -- 2`"),
        ("reserve --foo", "No such option"),
        ("submit --gpus two -- true", "'two' is no number of GPUs"),
        ("wait 1 2 --export", "one reservation"),
        ("broker status --simulated 4", "broker start"),
        ("reserve --for 0s", "is zero"),
        ("reserve --json -- true", "do not fit"),
        ("reserve --", "no command after --"),
        ("reserve -- no-such-command", "no command 'no-such-command'"),
        ("extend 9 -1h", "'-1h' is negative"),
        ("broker dance", "'dance'"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_cannot_be_meant_is_exit_2(gpu, command, said, as_json):
    """A slip of the person ends with 2 and a sentence, and asks nothing of the broker."""
    words = command.split()
    words[1:1] = ["--json"] * as_json

    result = gpu(*words)

    assert (result.code, result.out) == (2, "")
    if not (as_json and "--json" not in command):
        assert said in result.err
    if as_json:
        assert set(msgspec.json.decode(result.err)) == {"code", "message", "hint"}
    assert not [call for call in gpu.client.calls if call[0] in ("submit", "cancel", "extend")]


def test_help_is_no_error(gpu, capsys):
    """Help is answered with 0, for the group and for each verb, and the one-line texts agree."""
    for verbs in VERBS.values():
        for verb, (_, text) in verbs.items():
            assert gpu(verb, "--help").code == 0
            assert group.get_command(None, verb).short_help == text
    assert gpu("--help").code == 0
    assert gpu().code == 0
    assert "Traceback" not in capsys.readouterr().out


# -- several at once


@pytest.mark.parametrize("verb", ["cancel", "pause", "let-go", "release"])
def test_several_are_handled_each(gpu, verb):
    """A failure stops none of the others; it is told, and the first one gives the exit code."""
    method = verb.replace("-", "_")
    gpu.client.errors[f"{method} 9"] = errors.NotAllowed("reservation 9 is bob's")

    result = gpu(verb, "12", "9", "99", "14", "12")

    assert result.code == errors.NotAllowed.exit_code
    asked = [call[1] for call in gpu.client.calls if call[0] == method]
    # What is not there is not given back, and what waits is cancelled before what runs.
    assert asked == {"release": [12, 9, 14], "cancel": [14, 12, 9, 99]}.get(verb, [12, 9, 99, 14])
    assert "Job 12 (digits)" in result.out
    assert "Job 14 (sweep 3)" in result.out
    assert "Error: Reservation 9 is bob's." in result.err
    assert "There is no workload 99." in result.err


@pytest.mark.parametrize("holder_is_a_kernel", [False, True])
def test_a_shell_is_told_to_undo_its_pin(gpu, holder_is_a_kernel):
    """A shell that is still pinned would go on with a GPU that is somebody else's; a kernel unpins itself."""
    told = "Unset CUDA_VISIBLE_DEVICES in this shell: `unset CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES"
    uuids = ",".join(gpu.client.workload(9).devices)
    gpu.holder = holder() if holder_is_a_kernel else None
    said = []
    for pin in ({"CUDA_VISIBLE_DEVICES": uuids}, {"CUDA_VISIBLE_DEVICES": "GPU-another"}, {}):
        gpu.environ = pin
        said.append(told in gpu("release", "9").out)

    assert uuids
    assert said == [not holder_is_a_kernel, False, False]


def test_partial_failure_in_json(gpu):
    """The document has those that went well; each failure is a line of JSON on stderr."""
    result = gpu("cancel", "--json", "99", "14")

    assert result.code == errors.NotFound.exit_code
    assert [it.id for it in msgspec.json.decode(result.out, type=WorkloadPage).items] == [14]
    assert msgspec.json.decode(result.err)["code"] == "not-found"


def test_cancel_says_whether_it_is_over(gpu):
    """Who waits is out at once; who runs has its grace."""
    result = gpu("cancel", "14", "12")

    assert result.out == (
        "Job 14 (sweep 3) is cancelled.\n"
        "Job 12 (digits) is being cancelled: it may save until 14:07:00, then it is ended by force.\n"
    )


def test_what_waits_is_cancelled_before_what_runs(gpu):
    """Else it would get the GPU of what was cancelled before it, and start; documents keep the order of the asking."""
    result = gpu("cancel", "12", "9", "14", "--json")

    assert [call[1] for call in gpu.client.calls if call[0] == "cancel"] == [14, 12, 9]
    assert [it.id for it in msgspec.json.decode(result.out, type=WorkloadPage).items] == [12, 9, 14]


def test_nothing_is_saved_by_what_has_not_begun(gpu):
    """A job that was granted a moment ago has nothing to save."""
    (job,) = (it for it in gpu.client.lab.workloads if it.id == 12)
    granted = msgspec.structs.replace(job, started_at=None)
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, workloads=(granted,))

    assert gpu("cancel", "12").out == "Job 12 (digits) is being cancelled before it has begun.\n"


def test_nothing_on_stdout_where_nothing_went_well(gpu):
    """With --json no document is written where all failed, however many there were."""
    for command in ("cancel 98 99", "release 99", "wait 98 99", "pause 99", "drain 8 9"):
        result = gpu(*with_json(command))

        assert (result.code, result.out) == (errors.NotFound.exit_code, "")
        assert len(result.err.splitlines()) == len(command.split()) - 1


def test_json_has_no_words_beside_it():
    """Progress is for people: with --json nothing is said on stderr, at a terminal neither."""
    terminal = Terminal(tty=True)
    terminal.client.answers["submit"] = lambda body: workload(15, kind=body.kind, name="")
    terminal.client.answers["wait 15"] = workload(15, kind=Kind.RESERVATION, state=State.ACTIVE, devices=("GPU-1",))

    assert terminal("reserve", "--json").err == ""
    assert terminal("wait", "--json", "5").err == ""
    terminal.client.errors["wait"] = KeyboardInterrupt()
    assert terminal("wait", "--json", "5").err == ""


def test_what_has_ended_cannot_be_given_back(gpu):
    """As with cancel, a person is told that there was nothing left to do: 5."""
    gpu.client.answers["workload 5"] = ended(5, EndReason.RELEASED)

    result = gpu("release", "5")

    assert (result.code, result.out) == (errors.Conflict.exit_code, "")
    assert result.err.startswith("Error: Job 5 (digits) has ended already (released).")
    assert not [call for call in gpu.client.calls if call[0] == "release"]


def test_what_has_no_limit_cannot_be_extended(gpu):
    """The sentence says why there is nothing to extend."""
    gpu.client.answers["workload 5"] = workload(5, state=State.ACTIVE)
    gpu.client.errors["extend"] = errors.Conflict("job 5 (digits) has no end to extend")

    result = gpu("extend", "5", "1h")

    assert (result.code, result.err) == (
        errors.Conflict.exit_code,
        "Error: Job 5 (digits) has no time limit, so there is nothing to extend.\n",
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("submit --time 5 -- true", "The time limit '5' has no unit.\nSay 5s, 5m or 5h."),
        ("reserve --for 2", "The duration '2' has no unit.\nSay 2s, 2m or 2h."),
        ("reserve --timeout 3.5", "Say 3.5s, 3.5m or 3.5h."),
        ("wait 5 --timeout 3", "Say 3s, 3m or 3h."),
        ("extend 9 30", "Say 30s, 30m or 30h."),
        ("submit --not-before +2 -- true", "Say 2s, 2m or 2h."),
    ],
)
def test_a_bare_number_is_no_length(gpu, command, said):
    """Some mean seconds and some mean minutes, so neither is guessed."""
    result = gpu(*command.split())

    assert result.code == 2
    assert said in result.err


def test_help_may_be_asked_for_in_words(gpu, capsys):
    """`help` and `help VERB` are what --help is."""
    assert gpu("help").code == gpu("help", "submit").code == 0
    told = capsys.readouterr().out
    assert "Share the GPUs of a lab" in told
    assert "Queue COMMAND as a job." in told
    assert "Did you mean submit?" in gpu("help", "submti").err


def test_a_name_begins_a_sentence_as_it_is_spelt(gpu, monkeypatch):
    """The broker's sentences about the caller begin with their name, and `ada` is not `Ada`."""
    monkeypatch.setattr(base, "login", lambda: "ada")
    gpu.client.errors["status"] = errors.NotAllowed("ada may not enter the queue deferred")

    assert gpu("status").err == "Error: ada may not enter the queue deferred.\n"


def test_extend_states_the_new_end(gpu):
    """The answer says until when."""
    assert gpu("extend", "9", "90m").out == "Reservation 9 now ends 16:05.\n"
    assert ("extend", 9, 5400) in gpu.client.calls


# -- waiting


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (EndReason.SUCCEEDED, 0),
        (EndReason.RELEASED, 0),
        (EndReason.FAILED, 1),
        (EndReason.CANCELLED, 1),
        (EndReason.LOST, 1),
    ],
)
def test_wait_ends_as_the_work_did(gpu, end, code):
    """0 where it succeeded or was given back, 1 otherwise."""
    gpu.client.answers["wait 5"] = ended(5, end)

    result = gpu("wait", "5")

    assert result.code == code
    assert result.out == f"Job 5 (digits) ended 14:05: {end}.\n"


def test_wait_until_active(gpu):
    """Who waits for the GPUs gets 0 once they are held, and 1 if it ended without ever having run."""
    gpu.client.answers["wait 5"] = workload(5, state=State.ACTIVE, reason="It holds GPU 0.")
    gpu.client.answers["wait 6"] = msgspec.structs.replace(ended(6, EndReason.CANCELLED), attempt=0)

    assert gpu("wait", "5", "--until", "active").code == 0
    assert gpu("wait", "6", "--until", "active").code == 1
    assert ("wait", 5, "active", None, True) in gpu.client.calls


def test_wait_says_at_a_terminal_what_it_waits_for(gpu):
    """Who sits there sees why nothing happens; a script does not."""
    terminal = Terminal(tty=True)
    terminal.client.answers["workload 5"] = workload(5, reason="No GPU is free. 2 ahead in queue training.")

    assert "Waiting for job 5 (digits) to end. No GPU is free. 2 ahead" in " ".join(terminal("wait", "5").err.split())
    assert gpu("wait", "5").err == ""


def waiting_alone(number, **more):
    """Make a reservation as `reserve --no-wait` leaves it: in line, and nobody holds it."""
    return workload(number, kind=Kind.RESERVATION, queue="interactive", name="", **more)


def test_wait_takes_what_nobody_holds(gpu):
    """A reservation of one's own without a holder is held by this shell once it is granted, and it says how."""
    uuid = gpu.client.lab.devices[2].uuid
    granted = waiting_alone(5, state=State.ACTIVE, devices=(uuid,), ends_at=NOW + HOUR, attach_by=NOW + 300)
    gpu.client.answers |= {"workload 5": waiting_alone(5), "wait 5": granted}

    result, export, as_json = gpu("wait", "5"), gpu("wait", "5", "--export"), gpu("wait", "--json", "5")

    assert (result.code, export.code, as_json.code) == (0, 0, 0)
    assert ("wait", 5, "active", None, True) in gpu.client.calls
    assert ("move", 5, shell_holder()) in gpu.client.calls
    assert (
        f"Reservation 5 holds GPU 2 until 15:05. Pin this shell with:\n\nexport CUDA_VISIBLE_DEVICES={uuid}"
        in result.out
    )
    assert export.out.startswith(f"export CUDA_VISIBLE_DEVICES={uuid} ")
    assert msgspec.json.decode(as_json.out, type=WorkloadPage).items[0].holder == shell_holder()


def test_wait_takes_nothing_that_is_another_s(gpu):
    """What somebody holds, or is not the caller's, is only waited for; and so is everything with --until ended."""
    held = waiting_alone(5, holder=holder())
    for it, words in (
        (held, ()),
        (msgspec.structs.replace(held, holder=None, is_mine=False), ()),
        (waiting_alone(5), ("--until", "ended")),
    ):
        gpu.client.answers |= {"workload 5": it, "wait 5": ended(5)}

        assert gpu("wait", "5", *words).code == 0
        assert gpu.client.calls[-1] == ("wait", 5, "ended", None, True)


def test_wait_shows_what_this_shell_holds_already(gpu):
    """After `reserve --timeout` this shell is the holder: it is not passed on once more."""
    uuid = gpu.client.lab.devices[2].uuid
    granted = waiting_alone(5, state=State.ACTIVE, devices=(uuid,), holder=shell_holder())
    gpu.client.answers |= {"workload 5": granted, "wait 5": granted}

    assert f"export CUDA_VISIBLE_DEVICES={uuid}" in gpu("wait", "5").out
    assert not [call for call in gpu.client.calls if call[0] == "move"]


def test_wait_times_out_with_7(gpu):
    """After --timeout it says where the work stands, and ends with 7."""
    gpu.client.errors["wait"] = errors.WaitTimeout("Job 5 is still queued: no GPU is free.")

    result = gpu("wait", "5", "--timeout", "0")

    assert result.code == 7
    assert ("wait", 5, "ended", 0.0, True) in gpu.client.calls
    assert "still queued" in result.err


def test_ctrl_c_ends_the_waiting_only(gpu):
    """Ctrl-C is 130, and a sentence says that the work goes on."""
    gpu.client.errors["wait"] = KeyboardInterrupt()

    result = gpu("wait", "5")

    assert result.code == 130
    assert "the work goes on" in result.err


# -- operating


def test_devices_are_named_by_number_or_uuid(gpu):
    """Both words mean the same card; an unknown one stops none of the others."""
    uuid = gpu.client.lab.devices[1].uuid

    result = gpu("drain", "0", uuid, "7")

    assert result.code == errors.NotFound.exit_code
    assert "GPU 0 (" in result.out
    assert "GPU 1 (" in result.out
    assert "no GPU '7'" in result.err


def test_operating_says_what_there_was_to_do(gpu):
    """An empty GPU has nothing to yield, and what was not cordoned does not come back."""
    free, held, lost = (gpu.client.lab.devices[at].uuid for at in (2, 0, 3))

    assert gpu("drain", "2").out == f"GPU 2 ({free}) is cordoned; nothing runs on it.\n"
    assert gpu("drain", "0").out.endswith("the work on it has been asked to yield (workload 12).\n")
    assert gpu("cordon", "0").out == f"GPU 0 ({held}) is cordoned; what runs on it goes on (workload 12).\n"
    assert gpu("cordon", "3").out == f"GPU 3 ({lost}) is cordoned; no workload holds it.\n"  # nobody can look
    assert gpu("uncordon", "2").out == f"GPU 2 ({free}) was not cordoned; it gets leases as before.\n"
    gone = f"GPU 3 ({lost}) was not cordoned, and gets no leases yet: lost: it fell off the bus.\n"
    assert gpu("uncordon", "3").out == gone
    assert gpu("forget", "3").out == f"GPU 3 ({lost}) is forgotten: it is listed no more.\n"
    marked = tuple(msgspec.structs.replace(it, cordoned=True) for it in gpu.client.lab.devices)
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, devices=marked)
    assert gpu("cordon", "2").out == f"GPU 2 ({free}) is cordoned already; nothing runs on it.\n"


def test_uncordon_says_what_else_keeps_a_gpu_from_work(gpu):
    """An operator's word ends a fault that was found, and nothing that is seen now."""
    sick = [
        msgspec.structs.replace(gpu.client.lab.devices[at], cordoned=True, condition=it, condition_detail="so it is")
        for at, it in ((2, Condition.FAULTY), (3, Condition.HOT))
    ]
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, devices=tuple(sick))

    said = gpu("uncordon", "2", "3").out.splitlines()

    assert said[0].endswith(" gets leases again.")
    assert said[1].endswith(" is cordoned no more, and gets no leases yet: too hot: so it is.")


def test_simulated_gpus_can_be_asked_for(gpu, monkeypatch):
    """`broker start --simulated 4` starts such a broker, and none beside one that runs."""
    started = []
    monkeypatch.setattr(spawn, "start_broker", started.append)
    monkeypatch.setattr(find, "running_broker", lambda: None)

    assert gpu("broker", "start", "--simulated", "4").code == 0
    assert started == [["--simulated=4"]]

    monkeypatch.setattr(find, "running_broker", lambda: "/run/broker.sock")
    assert gpu("broker", "start", "--simulated", "4").code == errors.Conflict.exit_code
    assert len(started) == 1


def test_the_broker_is_shown_and_stopped(gpu):
    """Stopping says what goes on; looking starts nothing."""
    assert "pid" in gpu("broker").out
    assert ("stop_broker",) not in gpu.client.calls
    said = gpu("broker", "stop").out
    assert "What runs goes on" in said
    assert "--simulated" not in said
    assert ("stop_broker",) in gpu.client.calls


def test_who_stops_simulated_gpus_is_told_how_the_next_broker_has_them(gpu, monkeypatch):
    """The next command starts one that has none, and what runs on them would have to yield."""
    view = msgspec.structs.replace(gpu.client.broker(), simulated=True)
    monkeypatch.setattr(gpu.client, "broker", lambda: view)

    said = " ".join(gpu("broker", "stop").out.split())
    assert "`jupyter gpu broker start --simulated 4`" in said
    assert "must yield" in said


def test_completion_scripts(gpu):
    """Each shell gets its script."""
    for shell in ("bash", "zsh", "fish"):
        assert "_JUPYTER_GPU_COMPLETE" in gpu("completion", shell).out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["show"], {"12", "9", "14"}),
        (["cordon"], {it.uuid for it in FakeClient().lab.devices}),
        (["submit", "--queue"], {"training", "interactive", "deferred"}),
        (["submit", "--after"], {"12", "9", "14"}),
        (["amend", "14", "--after-ok"], {"12", "9", "14"}),
    ],
)
def test_completion_asks_the_broker(words, found):
    """The Tab key offers what the broker knows."""
    from click.shell_completion import ShellComplete

    from jupyter_gpu.cli.base import Face

    completer = ShellComplete(group, {"obj": Face(client=FakeClient())}, "jupyter-gpu", "X")

    assert {item.value for item in completer.get_completions(words, "")} == found


def test_completion_goes_on_behind_a_comma():
    """Several numbers are one word."""
    from click.shell_completion import ShellComplete

    from jupyter_gpu.cli.base import Face

    completer = ShellComplete(group, {"obj": Face(client=FakeClient())}, "jupyter-gpu", "X")

    assert {it.value for it in completer.get_completions(["submit", "--after"], "9,1")} == {"9,12", "9,14"}


def test_completion_is_silent_where_nothing_answers(capsys):
    """Without a broker the Tab key offers nothing, says nothing, and starts none."""
    from click.shell_completion import ShellComplete

    from jupyter_gpu.cli.base import Face

    client = FakeClient()
    client.errors["status"] = errors.BrokerUnavailable("none")
    completer = ShellComplete(group, {"obj": Face(client=client)}, "jupyter-gpu", "X")

    assert completer.get_completions(["show"], "") == []
    assert capsys.readouterr() == ("", "")


def test_url_names_a_broker_elsewhere(gpu):
    """--url stands before the verb."""
    assert gpu("--url", "https://gpu.example.org", "status").code == 0


def test_an_instant_as_people_say_it(gpu):
    """22:00 is the next one; +2h counts from now; a date is of the clock on the wall."""
    for word, when in (
        ("14:06", NOW + 60),
        ("14:05", NOW + 24 * HOUR),
        ("+2h", NOW + 2 * HOUR),
        ("2026-03-02T15:05", NOW + HOUR),
        ("2026-03-02T16:05+01:00", NOW + HOUR),
    ):
        assert gpu("submit", "--not-before", word, "--", "true").code == 0
        assert gpu.client.calls[-1][1].not_before == when
