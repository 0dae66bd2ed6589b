"""The server extension: it loads, says whom a page talks to, and never breaks a Jupyter server."""

from __future__ import annotations

import getpass

from tests.jupyter.server_ground import a_broker, a_server, play


def test_hello_without_a_broker(tmp_path, tmp_runtime):
    """It loads where no broker runs and starts none: the page learns that there is no store yet."""

    async def story():
        async with a_server(tmp_path) as server:
            answer = await server.program().get("jupyter-gpu/hello")

        assert answer.status_code == 200
        said = answer.json()
        assert (said["store_id"], said["caller"], said["simulated"], said["start_broker"]) == (
            None, getpass.getuser(), False, True,
        )  # fmt: skip
        assert not (tmp_runtime.runtime_dir / "broker.sock").exists()

    play(story)


def test_hello_with_a_broker(tmp_path, tmp_runtime):
    """With one the page learns its store, and who it is there: the account, not the name that a browser was given."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir) as broker, a_server(tmp_path) as server:
            said = (await server.program().get("jupyter-gpu/hello")).json()

            assert said["store_id"] == broker.loop.broker_view().store_id
            assert said["caller"] == getpass.getuser()

    play(story)
