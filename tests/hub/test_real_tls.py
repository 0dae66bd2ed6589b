"""A real hub with internal TLS: each of its parts shows the others a certificate, and ours are of them."""

import ssl
import tempfile
from pathlib import Path

import httpx
import pytest

from .hub import OPERATOR, a_hub, until
from .test_real_hub import ENVIRONMENT, live

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def hub():
    """Its people come without TLS, as from a proxy in front of it."""
    with (
        tempfile.TemporaryDirectory(prefix="jgt-", ignore_cleanup_errors=True) as folder,
        a_hub(Path(folder) / "hub", base="/lab/", tls=True) as hub,
    ):
        yield hub


def certificates(hub):
    """What the hub and its authorities are known by; each server has its own."""
    return {it.name: it.read_bytes() for it in sorted(hub.certificates.glob("*/*.crt")) if "user-" not in it.name}


def test_a_day_with_internal_tls(hub):
    """Start with a GPU, kernel, panel, page, a restart of the hub and the stop, as without it."""
    hub.spawn("ana", gpu_profile="one").raise_for_status()
    (held,) = live(hub, "ana")
    kernel = hub.kernel("ana")
    assert kernel.run(ENVIRONMENT) == f"{held.devices[0]} {held.id}"
    assert kernel.run("import jupyter_gpu\nprint(jupyter_gpu.status().caller)") == "ana"
    status = hub.at("ana").get("/jupyter-gpu/api/v1/status")
    assert (status.status_code, status.json()["caller"]) == (200, "ana")
    browser = hub.browser(OPERATOR)
    assert str(browser.get("services/jupyter-gpu/").url) == f"{hub.url}services/jupyter-gpu/"
    token = browser.cookies.get("_xsrf", path="/lab/services/jupyter-gpu/")
    status = browser.get("services/jupyter-gpu/api/v1/status", headers={"X-XSRFToken": token})
    assert (status.status_code, status.json()["caller"]) == (200, OPERATOR)
    before = certificates(hub)

    hub.stop()
    hub.start()

    assert certificates(hub) == before
    assert [(it.id, it.devices) for it in live(hub, "ana")] == [(held.id, held.devices)]
    assert kernel.run(ENVIRONMENT) == f"{held.devices[0]} {held.id}"
    hub.stop_server("ana")
    until(lambda: not live(hub, "ana"), "the stop gave it back")


def test_who_is_no_part_of_the_hub_does_not_get_to_the_service(hub):
    """Neither with a token but no certificate, nor in the clear."""
    at = f"127.0.0.1:{hub.service_port}/lab/services/jupyter-gpu/api/v1/status"
    headers = {"Authorization": f"token {hub.token_of(OPERATOR)}"}
    trusts = ssl.create_default_context(cafile=hub.certificates / "notebooks-ca" / "notebooks-ca.crt")
    for scheme in ("https", "http"):
        with pytest.raises(httpx.TransportError) as refused:
            httpx.get(f"{scheme}://{at}", headers=headers, verify=trusts, trust_env=False)
        assert "CERTIFICATE_VERIFY_FAILED" not in str(refused.value)
