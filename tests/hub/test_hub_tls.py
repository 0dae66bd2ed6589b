"""What a hub with internal TLS is helped with, and that one which needs no help is left as it is."""

import asyncio
import ssl

import pytest
from jupyterhub.app import JupyterHub

from jupyter_gpu.jupyter.hub_tls import let_the_hub_look_for_services

CLIENTS = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
SERVERS = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        pytest.param((SERVERS,), None, id="for-serving: the hub makes its own for asking"),
        pytest.param((CLIENTS,), CLIENTS, id="for-asking: a hub that has been mended"),
        pytest.param((None,), None, id="none: a hub without internal TLS"),
        pytest.param((), None, id="left out"),
    ],
)
def test_a_hub_looks_for_its_services_with_what_can_ask(monkeypatch, given, taken):
    """Only a context for serving is replaced, also where the configuration is read twice."""
    looked = []

    async def start_service(_hub, name, service, ssl_context=None):
        looked.append((name, service, ssl_context))
        return True

    monkeypatch.setattr(JupyterHub, "start_service", start_service)
    let_the_hub_look_for_services()
    once = JupyterHub.start_service
    let_the_hub_look_for_services()

    assert JupyterHub.start_service is once
    assert asyncio.run(JupyterHub.start_service(None, "gpu", "its service", *given))
    assert looked == [("gpu", "its service", taken)]
