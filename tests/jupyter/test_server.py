"""The server extension: it loads, says whom a page talks to, and never breaks a Jupyter server."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from traitlets.config import Config

from jupyter_gpu.notebooks import PROVISIONER, PROVISIONER_WORD
from tests.jupyter.server_ground import a_broker, a_server, error_of, play

#: jupyterhub/jupyterhub-deploy-docker#76
PREFIXES = ["/", "/j", "/j/", "/a/b/user/ana@uni.example/"]


def ours(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What we wrote into the server's log."""
    return [line for line in capsys.readouterr().err.splitlines() if "jupyter_gpu:" in line]


def test_without_a_broker(tmp_path, tmp_runtime, capsys):
    """rapidsai/jupyterlab-nvdashboard#114: no driver and no broker: it loads, says so in one line, and starts none."""

    async def story():
        async with a_server(tmp_path) as server:
            answer = await server.program().get("jupyter-gpu/hello")
            assert (await server.program().get("api/kernelspecs")).json()["kernelspecs"]

        said = answer.json()
        assert (answer.status_code, said["store_id"], said["caller"]) == (200, None, getpass.getuser())
        assert (said["simulated"], said["start_broker"]) == (False, True)

    play(story)
    assert not (tmp_runtime.runtime_dir / "broker.sock").exists()
    lines = [it for it in ours(capsys) if "kernels cannot" not in it]
    assert len(lines) == 1
    assert "No broker runs" in lines[0]
    assert "The first page that asks starts one." in lines[0]


def test_with_a_broker(tmp_path, tmp_runtime):
    """The page learns its store, and who it is there: the account, not the name that a browser was given."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            said = (await server.program().get("jupyter-gpu/hello")).json()

            assert said["store_id"] == broker.loop.broker_view().store_id
            assert said["caller"] == getpass.getuser()

    play(story)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix(tmp_path, tmp_runtime, prefix):
    """jupyterhub/jupyterhub-deploy-docker#76: API and stream below any base URL; doubled slashes lead nowhere."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path, base_url=prefix) as server:
            store = broker.loop.broker_view().store_id
            program = server.program()
            assert (await program.get("jupyter-gpu/hello")).json()["store_id"] == store
            assert (await program.get("jupyter-gpu/api/v1/status")).json()["store_id"] == store
            assert (await (await server.listen()).status()).store_id == store
            for path in ("jupyter-gpu//hello", "jupyter-gpu/api/v1//status"):
                answer = await program.get(path, follow_redirects=True)
                assert (answer.status_code, error_of(answer)["code"]) == (404, "not-found")

    play(story)


def test_what_fails_is_a_line_of_the_log(tmp_path, tmp_runtime, monkeypatch, capsys):
    """A part of ours that cannot be loaded takes nothing along: the server works, and says what is missing."""
    monkeypatch.setitem(sys.modules, "jupyter_gpu.jupyter.kernels", None)

    async def story():
        async with a_server(tmp_path) as server:
            assert (await server.program().get("jupyter-gpu/hello")).status_code == 200
            answer = await server.program().get("jupyter-gpu/kernels")
            assert (answer.status_code, error_of(answer)["code"]) == (503, "broker-unavailable")
            assert (await server.program().get("api/kernels")).json() == []

    play(story)
    assert len([it for it in ours(capsys) if "kernels cannot be looked after" in it]) == 1


def test_our_provisioner_becomes_the_default(tmp_path, tmp_runtime):
    """Of all kernels, without a word in any kernelspec; what the server starts beside them is left alone."""

    async def story():
        async with a_server(tmp_path):
            assert KernelProvisionerFactory.instance().default_provisioner_name == PROVISIONER
            assert PROVISIONER_WORD not in os.environ

    play(story)


@pytest.mark.parametrize(
    ("extension", "config", "expected"),
    [
        ({"provisioner": False}, {}, "local-provisioner"),
        ({}, {"KernelProvisionerFactory": {"default_provisioner_name": "another"}}, "another"),
    ],
)
def test_another_choice_stands(tmp_path, tmp_runtime, extension, config, expected):
    """An admin may turn ours off or choose another."""

    async def story():
        async with a_server(tmp_path, extension=extension, config=Config(config)):
            assert KernelProvisionerFactory.instance().default_provisioner_name == expected

    play(story)


def test_a_provisioner_that_is_missing_hides_no_kernel(tmp_path, tmp_runtime, monkeypatch):
    """Half an installation: kernels are started as if we were not there."""
    monkeypatch.setattr("jupyter_gpu.jupyter.server.PROVISIONER", "not-installed")

    async def story():
        async with a_server(tmp_path) as server:
            assert KernelProvisionerFactory.instance().default_provisioner_name == "local-provisioner"
            assert (await server.program().get("api/kernelspecs")).json()["kernelspecs"]

    play(story)


def test_children_are_told_when_an_admin_wants_it(tmp_path, tmp_runtime):
    """Then what the server starts uses ours too, save terminals, where another environment may be activated."""

    async def story():
        async with a_server(tmp_path, extension={"pass_provisioner_to_children": True}) as server:
            assert os.environ[PROVISIONER_WORD] == PROVISIONER
            terminals = server.app.web_app.settings["terminal_manager"]
            assert terminals.make_term_env()[PROVISIONER_WORD] == "local-provisioner"
            assert terminals.make_term_env()["JUPYTER_SERVER_ROOT"] == str(tmp_path)
        assert PROVISIONER_WORD not in os.environ

    play(story)


def test_one_file_configures_it_all(tmp_path, tmp_runtime, monkeypatch):
    """The file that the broker reads as well; one that cannot be read leaves a server that works."""
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))

    async def starts_a_broker() -> bool:
        async with a_server(tmp_path) as server:
            return (await server.program().get("jupyter-gpu/hello")).json()["start_broker"]

    config = tmp_path / "jupyter_gpu_config.py"
    config.write_text("c.GpuExtension.start_broker = False\nc.GpuBroker.simulated_devices = 1\n")
    assert asyncio.run(starts_a_broker()) is False
    config.write_text("c.GpuExtension.start_broker = ")
    assert asyncio.run(starts_a_broker()) is True


def test_the_extension_is_found_by_its_name(tmp_path, tmp_runtime):
    """What `jupyter server extension list` does: the package names its point, and it validates."""
    from jupyter_server.extension.manager import ExtensionPackage

    package = ExtensionPackage(name="jupyter_gpu", enabled=True)

    assert package.validate()
    assert list(package.extension_points) == ["jupyter_gpu"]
