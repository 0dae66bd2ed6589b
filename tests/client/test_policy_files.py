"""A policy from a file, as a broker would read it; what cannot be meant is told with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_gpu.broker.app import GpuBroker
from jupyter_gpu.errors import InvalidAsk, NotFound
from jupyter_gpu.policy_files import SETTINGS, policy_of_file
from jupyter_gpu.policy_lines import where_in

GOOD = """\
# The lab's rules.
TEAMS = {"vision": ["ada"]}
c.GpuBroker.idle_seconds = 5
c.GpuBroker.policy = {
    "teams": TEAMS,
    "quotas": [
        {"team": "vision", "share_devices": 1},
        {"user": "*", "devices": 2, "window_seconds": "7d"},
    ],
    "reservation_seconds": "1h",
}
"""


def a_file(folder: Path, text: str, name: str = "jupyter_gpu_config.py") -> str:
    """Write it, and give its path."""
    path = folder / name
    path.write_text(text)
    return str(path)


def test_all_settings_of_a_broker_are_known():
    """A face imports no broker, so it has their names by itself."""
    assert sorted(GpuBroker.class_trait_names(config=True)) == list(SETTINGS)


def test_a_config_is_read_as_the_broker_reads_it(tmp_path):
    """Units and names; what it sets beside the policy is the broker's."""
    policy = policy_of_file(a_file(tmp_path, GOOD))

    assert policy.teams == {"vision": ("ada",)}
    assert [rule.title for rule in policy.quotas] == ["team vision", "each user"]
    assert policy.reservation_seconds == 3600


@pytest.mark.parametrize("whole", [True, False])
def test_the_policy_alone_or_a_whole_config_may_be_json(tmp_path, whole):
    """As a hub hands it over, or as Jupyter's config has it."""
    settings = {"failures": 4}
    text = json.dumps({"GpuBroker": {"policy": settings}} if whole else settings)

    assert policy_of_file(a_file(tmp_path, text, "p.json")).failures == 4


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"devices": 2', '"devices": -2', "jupyter_gpu_config.py, line 8: quotas[1]: devices of the rule"),
        ('"devices": 2', '"devices": "two"', "jupyter_gpu_config.py, line 8: Expected `int | null`, got `str`"),
        ('"devices": 2', '"device": 2', "jupyter_gpu_config.py, line 8: Object contains unknown field `device`"),
        ('"7d"', '"7 dogs"', "jupyter_gpu_config.py, line 8: quotas[1].window_seconds: "),
        (
            '"reservation_seconds": "1h"',
            '"reservation_seconds": 0',
            "line 10: reservation_seconds: 0 must be 1 or more",
        ),
        ('"reservation_seconds"', '"reservation_second"', "line 10: reservation_second: there is no such setting"),
        ('["ada"]', "3", "line 5: Expected `array`, got `int`"),
        ("c.GpuBroker.idle_seconds", "c.GpuBroker.idle_second", "no setting 'idle_second'. Did you mean idle_seconds?"),
        ("TEAMS = ", "TEAMS = = ", "jupyter_gpu_config.py, line 2 cannot be read: SyntaxError"),
        ('"teams": TEAMS', '"teams": TEAM', "jupyter_gpu_config.py, line 5 cannot be read: NameError"),
        ("c.GpuBroker.policy = {", "raise SystemExit(3)\nc.GpuBroker.policy = {", "line 4 cannot be read: SystemExit"),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_line(tmp_path, before, after, said):
    """The nearest that is known: which of the teams it is nobody tells."""
    assert before in GOOD

    with pytest.raises(InvalidAsk) as refused:
        policy_of_file(a_file(tmp_path, GOOD.replace(before, after)))

    assert said in refused.value.message
    assert refused.value.exit_code == 2


def test_a_setting_that_is_set_by_itself_has_its_line_too(tmp_path):
    """`c.GpuBroker.policy["quotas"] = [...]` is as good a way to write it."""
    text = 'c.GpuBroker.policy = {"failures": 1}\nc.GpuBroker.policy["quotas"] = [\n    {"user": "*"},\n]\n'

    with pytest.raises(InvalidAsk, match=r"line 3: quotas\[0\]: the rule for each user bounds nothing"):
        policy_of_file(a_file(tmp_path, text))


def test_what_stands_under_a_name_has_the_line_where_it_was_written(tmp_path):
    """The policy only names it."""
    text = 'RULES = [\n    {"user": "*"},\n]\nc.GpuBroker.policy = {\n    "quotas": RULES,\n}\n'

    with pytest.raises(InvalidAsk, match=r"line 2: quotas\[0\]"):
        policy_of_file(a_file(tmp_path, text))


def test_json_has_lines_as_well(tmp_path):
    """The policy alone, and within a whole config."""
    for text in (
        '{\n  "failures": true,\n  "quotas": [{"user": "*"}]\n}'.replace("true", "1"),
        '{"GpuBroker": {"policy": {\n"failures": 1,\n"quotas": [{"user": "*"}]}}}',
    ):
        with pytest.raises(InvalidAsk, match=r"p\.json, line 3: quotas\[0\]"):
            policy_of_file(a_file(tmp_path, text, "p.json"))


@pytest.mark.parametrize("text", ["[]", "{", '{"GpuBroker": {"policy": []}}'])
def test_what_is_no_policy_is_refused(tmp_path, text):
    """In words, and never with a traceback."""
    with pytest.raises(InvalidAsk, match=r"p\.json"):
        policy_of_file(a_file(tmp_path, text, "p.json"))


def test_a_file_that_is_not_there_is_named(tmp_path):
    """Most likely a slip in its name."""
    with pytest.raises(NotFound, match="no policy file"):
        policy_of_file(str(tmp_path / "none.py"))


def test_of_several_files_the_last_that_sets_it_is_named(tmp_path):
    """As Jupyter reads them; a fault that stands in none stays as it is."""
    first = a_file(tmp_path, "c.GpuBroker.policy = {'failures': 1, 'timeouts': -1}\n", "a.py")
    second = a_file(tmp_path, "\nc.GpuBroker.policy = {'failures': -1}\n", "b.py")
    where = where_in([first, second, tmp_path / "gone.py"])

    assert where("failures: -1 must be 0 or more").startswith("b.py, line 2: ")
    assert where("timeouts: -1 must be 0 or more").startswith("a.py, line 1: ")
    assert where("losses: -1 must be 0 or more") == "losses: -1 must be 0 or more"
    assert where("") == ""


def test_the_broker_says_the_line_at_its_start_and_at_a_reload(tmp_path, monkeypatch):
    """As the command that looks before does."""
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))
    file = Path(a_file(tmp_path, GOOD))
    app = GpuBroker()
    app.initialize([])
    assert app.read_policy().reservation_seconds == 3600

    file.write_text(GOOD.replace('"devices": 2', '"devices": -2'))
    with pytest.raises(InvalidAsk, match=r"jupyter_gpu_config\.py, line 8: quotas\[1\]"):
        app.read_policy_anew()
