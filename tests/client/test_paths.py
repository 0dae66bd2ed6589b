"""Where broker and faces meet."""

import os
import socket
from pathlib import Path

import pytest

from jupyter_gpu import paths
from jupyter_gpu.errors import NotAllowed


def test_a_named_folder_moves_everything_aside(tmp_path):
    """No face under test looks at the machine's own socket."""
    environ = {"JUPYTER_GPU_RUNTIME_DIR": str(tmp_path / "r"), "JUPYTER_GPU_STATE_DIR": str(tmp_path / "s")}

    assert paths.runtime_dir(environ) == tmp_path / "r"
    assert paths.user_socket(environ) == paths.system_socket(environ) == tmp_path / "r" / "broker.sock"
    assert paths.state_dir(environ) == tmp_path / "s"


def test_the_runtime_folder_of_another_user_is_not_ours(tmp_path):
    """`sudo` keeps XDG_RUNTIME_DIR: it counts only where it belongs to who asks."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}

    assert paths.runtime_dir(environ) == tmp_path / "jupyter-gpu"
    assert not paths.runtime_dir(environ, uid=os.geteuid() + 1).is_relative_to(tmp_path)
    assert paths.runtime_dir({}, uid=987654) == Path("/tmp/jupyter-gpu-987654")


def test_a_path_too_long_for_a_socket_has_a_short_one(tmp_path):
    """107 bytes fit; for a longer path both sides compute the same short one, in a private folder."""
    fits = Path("/" + "x" * 106)
    assert paths.fitting(fits) == fits
    long = Path("/" + "x" * 107)
    assert paths.fitting(long) == paths.fitting(long)
    assert len(os.fsencode(paths.fitting(long))) <= 107
    assert paths.fitting(long) != paths.fitting(Path("/" + "y" * 107))
    with pytest.raises(OSError, match="too long"), socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / ("x" * 108)))


def test_a_private_folder_is_private(tmp_path):
    """Made with 0700, tightened where it is ours, refused where it is a link or somebody else's."""
    made = paths.make_private(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    assert paths.make_private(made).stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(made)
    with pytest.raises(NotAllowed):
        paths.make_private(tmp_path / "link")
    if os.geteuid() == 0:
        os.chown(made, 65534, 65534)
        with pytest.raises(NotAllowed):
            paths.make_private(made)


def test_state_is_kept_per_machine(monkeypatch, tmp_path):
    """A home on several machines has a store for each."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))

    assert paths.state_dir({}) == tmp_path / "gpu" / paths.machine_id()
    assert len(paths.machine_id()) == 12


def test_the_machine_lock_is_one_for_all(monkeypatch):
    """Nothing of the environment moves it, or two users would lock two files."""
    before = paths.machine_lock()
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    assert paths.machine_lock() == before
    assert before.name == "jupyter-gpu.lock"
