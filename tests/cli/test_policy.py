"""`policy`: the rules in force, and what others would change."""

import json

import pytest

from jupyter_gpu.errors import BrokerUnavailable, NotAllowed
from jupyter_gpu.model import BoundChange, Kind, Policy, PolicyAffected, PolicyCheckView, PolicyEffect
from tests.cli.fake import FakeClient

AFFECTED = PolicyAffected(
    workload=12, kind=Kind.JOB, title="job 12 (digits)", owner="ada\x1b[31m", team="vision", queue="training",
    effect=PolicyEffect.BORROWS, text="is beyond a quota then and counts as borrowed",
)  # fmt: skip


@pytest.fixture
def file(tmp_path):
    """A config that can be meant."""
    path = tmp_path / "jupyter_gpu_config.py"
    path.write_text("c.GpuBroker.policy = {'most_devices': 2}\n")
    return path


def test_the_policy_in_force_is_shown_by_what_differs_from_what_ships(gpu):
    """All of it would be two pages; the document has all."""
    assert gpu("policy").out == gpu("policy", "show").out
    result = gpu("policy", "show")

    assert f"The policy in force ({Policy(most_devices=4).digest()})" in result.out
    assert '"most_devices": 4' in result.out
    assert "reservation_seconds" not in result.out
    assert json.loads(gpu("policy", "show", "--json").out)["policy"]["reservation_seconds"] == 7200


def test_a_check_tells_what_would_change_and_for_whom(gpu, file):
    """A sentence each; nothing in a name steers the terminal."""
    bound = BoundChange(whose="each user", what="GPUs at once", before=4, after=2, shrinks=True, users=("ada",))
    gpu.client.answers["check_policy"] = PolicyCheckView(
        digest="abc", digest_now="def", bounds=(bound,), affected=(AFFECTED,)
    )

    result = gpu("policy", "check", str(file))

    assert result.code == 0
    assert result.out.splitlines() == [
        "It can be meant. Loaded now, the policy abc would change this:",
        "- Each user: GPUs at once 4, then 2 (less); concerns ada.",
        "- Job 12 (digits) of ada\\x1b[31m is beyond a quota then and counts as borrowed.",
    ]
    assert gpu.client.calls == [("check_policy", Policy(most_devices=2))]


def test_that_nobody_is_affected_is_said(gpu, file):
    """And as a document."""
    assert gpu("policy", "check", str(file)).out.splitlines()[1:] == ["- Nobody is affected."]
    assert json.loads(gpu("policy", "check", str(file), "--json").out) == {"digest": "abc", "digest_now": "def"}


def test_a_file_that_cannot_be_meant_ends_with_two_and_asks_no_broker(gpu, file):
    """With its line; as JSON where that was asked for."""
    file.write_text("c.GpuBroker.policy = {\n    'most_devices': 0,\n}\n")

    result = gpu("policy", "check", str(file))

    assert result.code == 2
    assert "jupyter_gpu_config.py, line 2: most_devices: 0 must be 1 or more" in result.err.replace("\n", " ")
    assert json.loads(gpu("policy", "check", str(file), "--json").err)["code"] == "invalid-ask"
    assert gpu.client.calls == []


def test_without_a_broker_it_affects_nobody(gpu, file):
    """Unless one was named: then it is the answer of that one that was wanted."""

    class Nobody(FakeClient):
        def check_policy(self, _wanted):
            raise BrokerUnavailable("Nobody answers.", hint="Start one.")

    gpu.client = Nobody()

    assert gpu("policy", "check", str(file)).out == "It can be meant. No broker runs here, so it affects nobody now.\n"
    assert json.loads(gpu("policy", "check", str(file), "--json").out)["digest_now"] == ""
    assert gpu("policy", "check", str(file), "--against", "http://127.0.0.1:1").code == 8


def test_who_is_no_operator_is_told_so(gpu, file):
    """The file could be meant; whom it concerns is not for everybody."""

    class Strict(FakeClient):
        def check_policy(self, _wanted):
            raise NotAllowed("'ada' lacks the scope operate, which this needs.", hint="An admin grants scopes.")

    gpu.client = Strict()

    assert gpu("policy", "check", str(file)).code == 3


@pytest.mark.parametrize(
    ("words", "code"), [(("check",), 2), (("show", "x.py"), 2), (("check", "/no/such.py"), 4), (("load",), 2)]
)
def test_what_makes_no_sense_is_refused(gpu, words, code):
    """A check without a file, a file to show, a file that is not there."""
    assert gpu("policy", *words).code == code
