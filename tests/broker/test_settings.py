"""A hub tells the service that it starts what its configuration says; what cannot be meant is said by name."""

import json
import os
import signal
import subprocess
import sys

import pytest

from jupyter_gpu.broker.app import GpuBroker
from jupyter_gpu.broker.settings import SETTINGS, settings_of
from jupyter_gpu.errors import InvalidAsk


@pytest.fixture
def config_dir(monkeypatch, tmp_path):
    """A folder of config files that counts."""
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))
    return tmp_path


def test_what_the_hub_says_counts_more_than_files(monkeypatch, config_dir):
    """And the policy as a whole: half of one and half of another is nobody's will."""
    (config_dir / "jupyter_gpu_config.py").write_text(
        "c.GpuBroker.policy = {'failures': 9, 'timeouts': 9}\nc.GpuBroker.idle_seconds = 5\n"
    )
    monkeypatch.setenv(SETTINGS, json.dumps({"policy": {"failures": 1}, "simulated_devices": 3}))
    app = GpuBroker()

    app.initialize(["--simulated=4"])

    assert app.read_policy().failures == 1
    assert app.read_policy().timeouts == 3
    assert (app.idle_seconds, app.simulated_devices) == (5, 4)
    assert app.read_policy_anew().failures == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ('{"simulated_device": 2}', "no setting 'simulated_device'. Did you mean simulated_devices?"),
    ],
)
def test_what_cannot_be_meant_is_said(text, said):
    """With where it comes from: nobody writes this variable by hand."""
    with pytest.raises(InvalidAsk, match=said) as refused:
        settings_of({SETTINGS: text}, GpuBroker.class_trait_names(config=True))
    assert "setup_hub" in (refused.value.hint or "")


def test_a_setting_of_the_wrong_kind_ends_the_start_with_a_sentence(monkeypatch, config_dir):
    """As it does in a file."""
    monkeypatch.setenv(SETTINGS, json.dumps({"simulated_devices": "many"}))

    with pytest.raises(SystemExit, match="simulated_devices"):
        GpuBroker().initialize([])


@pytest.mark.parametrize("is_of_a_file", [True, False])
def test_a_setting_that_there_is_not_ends_the_start(config_dir, is_of_a_file):
    """A slip in a name is no setting that may be passed over, as in the policy: what was meant would not hold."""
    if is_of_a_file:
        (config_dir / "jupyter_gpu_config.py").write_text("c.GpuBroker.polcy = {'failures': 1}\n")

    with pytest.raises(SystemExit, match=r"no setting 'polcy'\. Did you mean policy\?"):
        GpuBroker().initialize([] if is_of_a_file else ["--GpuBroker.polcy={}"])


def test_a_setting_that_there_is_not_stops_a_reload(config_dir):
    """The policy in force stays, and nobody is told that another one was loaded."""
    file = config_dir / "jupyter_gpu_config.py"
    file.write_text("c.GpuBroker.policy = {'failures': 1}\nc.GpuExtension.provisioner = False\n")
    app = GpuBroker()
    app.initialize([])

    file.write_text("c.GpuBroker.policy = {'failures': 2}\nc.GpuBroker.quotas = []\n")

    with pytest.raises(InvalidAsk, match="no setting 'quotas'") as refused:
        app.read_policy_anew()
    assert "jupyter_gpu_config.py" in (refused.value.hint or "")


@pytest.mark.parametrize("option", ["--help", "--help-all"])
def test_who_reads_no_further_ends_it_quietly(option):
    """As `--help-all | head` does: without a traceback, and with the shell's number for a closed pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "jupyter_gpu.broker.app", option]

    done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)

    assert done.stderr == b""
    assert done.returncode == 128 + signal.SIGPIPE
