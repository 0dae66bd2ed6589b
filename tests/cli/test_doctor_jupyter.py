"""`doctor` on Jupyter: what of ours a server and its pages would find in this environment."""

import json
import sys

import pytest

from jupyter_gpu import __version__
from jupyter_gpu.cli import doctor_jupyter
from jupyter_gpu.cli.doctor_jupyter import (
    PROVISIONER_WORD,
    jupyter_checks,
    lab_check,
    papermill_check,
    provisioner_check,
    server_check,
)

BOTH = ("local-provisioner", "jupyter-gpu")


def written(folder, **files):
    """A folder with such JSON files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("enabled", "error", "state", "said"),
    [
        (True, None, "ok", "enabled"),
        (None, None, "warn", "no configuration"),
        (False, None, "warn", "disabled"),
        (True, "ImportError: x", "fail", "ImportError: x"),
    ],
)
def test_the_server_extension(enabled, error, state, said):
    """Enabled, disabled, unknown to this environment, or broken: each has its own remedy."""
    check = server_check(enabled, error)

    assert (check.state, said in check.text, bool(check.remedy)) == (state, True, state != "ok")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"ServerApp": {"jpserver_extensions": {"jupyter_gpu": True}}}, True),
        ({"ServerApp": {"jpserver_extensions": {"jupyter_gpu": False}}}, False),
        ({"ServerApp": {"jpserver_extensions": {"other": True}}}, None),
        ("{", None),
    ],
)
def test_what_the_configuration_says(tmp_path, content, expected):
    """As jupyter_server reads it: the files of the folder, and a user's own word goes before."""
    assert doctor_jupyter._enabled([]) is None
    env = tmp_path / "env"
    written(env / "jupyter_server_config.d", jupyter_gpu=content)
    assert doctor_jupyter._enabled([env]) is expected


def test_a_users_word_goes_before(tmp_path):
    """Who disables it for themselves has it disabled."""
    ours = {"ServerApp": {"jpserver_extensions": {"jupyter_gpu": True}}}
    env, user = tmp_path / "env", tmp_path / "user"
    written(env / "jupyter_server_config.d", jupyter_gpu=ours)
    ours["ServerApp"]["jpserver_extensions"]["jupyter_gpu"] = False
    written(user, jupyter_server_config=ours)

    assert doctor_jupyter._enabled([user, env]) is False


@pytest.mark.parametrize(
    ("package", "page", "state", "said"),
    [
        ({"version": __version__}, {}, "ok", "installed"),
        (None, {}, "warn", "not installed"),
        ({"version": "0.0.1"}, {}, "warn", "0.0.1"),
        ("{", {}, "warn", "None"),
        ({"version": __version__}, {"disabledExtensions": {"jupyter-gpu": True}}, "warn", "disabled"),
        ({"version": __version__}, {"disabledExtensions": ["jupyter-gpu"]}, "warn", "disabled"),
        ({"version": __version__}, {"disabledExtensions": {"jupyter-gpu": False}}, "ok", "installed"),
        ({"version": __version__}, {"disabledExtensions": {"other": True}}, "ok", "installed"),
    ],
)
def test_the_lab_extension(tmp_path, package, page, state, said):
    """There, of this version, and not disabled."""
    if package is not None:
        written(tmp_path / "lab" / "jupyter-gpu", package=package)
    written(tmp_path / "labconfig", page_config=page)

    check = lab_check([tmp_path / "none", tmp_path / "lab"], [tmp_path / "labconfig"])

    assert (check.state, said in check.text, bool(check.remedy)) == (state, True, state != "ok")


@pytest.mark.parametrize(
    ("names", "chosen", "error", "state", "said"),
    [
        (BOTH, None, None, "ok", "registered"),
        (BOTH, "jupyter-gpu", None, "ok", "default of all"),
        (BOTH, "local-provisioner", None, "warn", "nobody reserved"),
        (BOTH, "gone", None, "fail", "no kernel is found"),
        (("local-provisioner",), "jupyter-gpu", None, "fail", "no kernel is found"),
        (("local-provisioner",), None, None, "fail", "not registered"),
        (BOTH, None, "ImportError: x", "fail", "ImportError: x"),
    ],
)
def test_the_provisioner(names, chosen, error, state, said):
    """One that is named and missing hides every kernel, which is the worst of all."""
    check = provisioner_check(names, chosen, error)

    assert (check.state, said in check.text, bool(check.remedy)) == (state, True, state != "ok")


@pytest.mark.parametrize(("is_there", "state"), [(True, "ok"), (False, "warn")])
def test_papermill(is_there, state):
    """Without it only scripts can be submitted."""
    assert papermill_check(is_there=is_there).state == state


def test_all_of_it_here(monkeypatch):
    """In this environment: all four are looked at, and what is broken is found."""
    found = {check.name: check for check in jupyter_checks({})}
    assert set(found) == {"jupyter server", "jupyterlab", "provisioner", "papermill"}
    assert (found["provisioner"].state, found["papermill"].state) == ("ok", "ok")
    assert found["jupyter server"].state != "fail"

    monkeypatch.setitem(sys.modules, "jupyter_gpu.jupyter.server", None)
    found = {check.name: check for check in jupyter_checks({PROVISIONER_WORD: "gone"})}
    assert (found["jupyter server"].state, found["provisioner"].state) == ("fail", "fail")


def test_doctor_has_them(gpu):
    """The command itself."""
    assert '"jupyter server"' in gpu("doctor", "--json").out
