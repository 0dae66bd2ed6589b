"""A real hub below a sub-path: its proxy, the GPU service, people in two teams, their servers, kernels and jobs."""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil
import pytest

from jupyter_gpu.errors import NotAllowed, NotFound
from jupyter_gpu.model import Ask, JobSpec, Kind, State, SubmitBody

from .hub import CACHE_SECONDS, CONTRACTOR, OPERATOR, STRANGER, Hub, a_hub, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

BASE = "/lab/gpus/"
ENVIRONMENT = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('JUPYTER_GPU_RESERVATION'))"
#: Names as single sign-on gives them (jupyterhub/jupyterhub#345, jupyterhub/jupyterhub#2128).
ODD = ("ana.b@uni.example", "lab\\ana", "ana~1", "ana b", "ana+gpu@uni.example", "анна", "user (test)")


#: Who may come to ana's servers.
SHARED = f"""
c.JupyterHub.load_roles.append({{
    "name": "shared", "users": ["ben", "{CONTRACTOR}"], "scopes": ["access:servers!user=ana"],
}})
"""


@pytest.fixture(scope="module")
def the_hub():
    """One for the module; its places have short paths for sockets."""
    with tempfile.TemporaryDirectory(prefix="jgh-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        try:
            with a_hub(root / "hub", base=BASE, more=SHARED) as hub:
                yield hub
        finally:
            if os.environ.get("JUPYTER_GPU_HUB_LOG"):
                Path(os.environ["JUPYTER_GPU_HUB_LOG"]).write_bytes((root / "hub" / "hub.log").read_bytes())


@pytest.fixture
def hub(the_hub):
    """The hub with nobody's work on it, before and after."""
    yield the_hub
    the_hub.clear()


def live(hub: Hub, user: str) -> list:
    """What somebody has now."""
    return list(hub.as_(user).workloads(mine=True, ended=False))


def is_refused(hub: Hub, user: str) -> bool:
    """Whether their token is nobody's by now: the hub's word is kept for some seconds."""
    try:
        hub.as_(user).status()
    except NotAllowed:
        return True
    return False


def reserve(devices: int = 1) -> SubmitBody:
    """An ask for devices."""
    return SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=devices, duration_seconds=600))


def job(folder: Path, code: str, *, devices: int = 1) -> SubmitBody:
    """A job that runs a line of Python."""
    spec = JobSpec(argv=(sys.executable, "-c", code), folder=str(folder))
    return SubmitBody(kind=Kind.JOB, ask=Ask(devices=devices), spec=spec)


# -- servers and their kernels


def test_a_kernel_sees_what_its_server_was_given(hub):
    """The device of the lease, by UUID; a stop gives it back."""
    hub.spawn("ana", gpu_profile="one").raise_for_status()
    (held,) = live(hub, "ana")

    assert hub.kernel("ana").run(ENVIRONMENT) == f"{held.devices[0]} {held.id}"
    assert (held.holder.kind, held.holder.name, held.holder.pid) == ("server", "ana/", hub.pid_of("ana"))

    hub.stop_server("ana")
    until(lambda: not live(hub, "ana"), "the stop gave it back")


def test_a_server_without_gpus_sees_none_and_its_kernel_reserves_one(hub):
    """Explicitly none, so that nobody takes a card by accident; `%gpu` asks with the server's own token."""
    hub.spawn("ana", gpu_profile="none").raise_for_status()
    kernel = hub.kernel("ana")
    assert kernel.run(ENVIRONMENT) == "none None"

    said = kernel.run("%gpu reserve 1\n" + ENVIRONMENT)

    held = [it.devices[0] for it in live(hub, "ana")]
    assert len(held) == 1, said
    assert held[0] in said


def test_a_start_that_finds_nothing_free_is_refused_with_words(hub):
    """409 and what to do instead; the server is not left pending, and holds nothing."""
    hub.spawn("ana", gpu_profile="two").raise_for_status()
    hub.spawn("cho", gpu_profile="two").raise_for_status()

    refused = hub.spawn("ben", gpu_profile="one")

    assert refused.status_code == httpx.codes.CONFLICT
    assert "“One GPU” is not free now" in refused.json()["message"]
    assert "choose “No GPU”, which starts at once" in refused.json()["message"]
    assert refused.headers["X-Jupyter-Gpu-Refused"] == "gpu_capacity"
    assert int(refused.headers["Retry-After"]) > 0
    assert hub.server("ben") == {}
    assert live(hub, "ben") == []


@pytest.mark.parametrize(("options", "devices"), [({}, 0), ({"gpus": ["1"]}, 1)])
def test_a_start_without_the_form_means_the_same(hub, options, devices):
    """Nothing is the first profile; forms send lists of text and programs numbers (jupyterhub/jupyterhub#1629)."""
    hub.spawn("dov", **options).raise_for_status()

    assert sum(len(it.devices) for it in live(hub, "dov")) == devices


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"profile": "gone"}, 400, "There is no profile 'gone'.*none, one, two"),
        ({"gpu_profile": "vision"}, 403, "is not yours to start a server with"),
    ],
)
def test_a_profile_that_is_not_theirs_starts_nothing(hub, options, status, said):
    """Neither one that is not there nor one of another team, whatever is sent."""
    refused = hub.spawn("dov", **options)

    assert refused.status_code == status
    assert re.search(said, refused.json()["message"])
    assert hub.server("dov") == {}


def test_named_servers_hold_each_their_own(hub):
    """Stopping one leaves the other, and the quota is of the person (jupyterhub/jupyterhub#4926)."""
    hub.spawn("cho", "train", gpu_profile="one").raise_for_status()
    hub.spawn("cho", "look", gpu_profile="one").raise_for_status()
    assert {it.holder.name: len(it.devices) for it in live(hub, "cho")} == {"cho/train": 1, "cho/look": 1}

    refused = hub.spawn("cho", "more", gpu_profile="one")
    hub.stop_server("cho", "train")

    assert refused.status_code == httpx.codes.CONFLICT
    until(lambda: [it.holder.name for it in live(hub, "cho")] == ["cho/look"], "only the stopped one gave back")


def test_stopping_all_of_a_person_gives_back_what_each_server_had(hub):
    """The default one and the named ones, and stopped ones count no more (jupyterhub/jupyterhub#3406)."""
    for server in ("", "train"):
        hub.spawn("cho", server, gpu_profile="one").raise_for_status()
    assert sorted(it.holder.name for it in live(hub, "cho")) == ["cho/", "cho/train"]

    for server in list(hub.api.get("/users/cho").json()["servers"]):
        hub.stop_server("cho", server)

    until(lambda: not live(hub, "cho"), "all is given back")
    assert hub.as_("cho").submit(reserve(2)).state is State.ACTIVE


def test_who_is_deleted_leaves_no_gpu_held_and_their_jobs_to_the_operator(hub, tmp_path):
    """Their server is stopped and gives back; their jobs stay, and their token is nobody's."""
    hub.spawn("fay", gpu_profile="none").raise_for_status()
    hub.join("fay", "speech")
    hub.stop_server("fay")
    hub.spawn("fay", gpu_profile="one").raise_for_status()
    ran = hub.as_("fay").submit(job(tmp_path, "import time; time.sleep(600)"))
    waits = hub.as_("fay").submit(job(tmp_path, "print(1)", devices=2))
    (held,) = (it for it in live(hub, "fay") if it.holder is not None and it.holder.kind == "server")

    hub.api.delete("/users/fay").raise_for_status()

    operator = hub.as_(OPERATOR)
    until(lambda: operator.workload(held.id).end is not None, "its GPU is free again")
    assert {it.id for it in operator.workloads(owner="fay", ended=False)} == {ran.id, waits.id}
    until(lambda: is_refused(hub, "fay"), "their token counts no more")
    for it in (ran, waits):
        operator.cancel(it.id)


def test_a_server_that_dies_gives_its_devices_back(hub):
    """By itself: nobody stopped it."""
    hub.spawn("ana", gpu_profile="one").raise_for_status()

    psutil.Process(hub.pid_of("ana")).kill()

    until(lambda: not live(hub, "ana"), "what it held is free again")


# -- hubs that go and come

_WAITS = """\
import os, pathlib, time
print(os.getpid(), flush=True)
while not os.path.exists({!r}):
    time.sleep(0.05)
pathlib.Path({!r}).write_text(str(os.getpid()))
"""


def test_a_server_killed_while_the_hub_is_down_is_noticed_at_its_return(hub):
    """No hook of its end ever ran (jupyterhub/jupyterhub#4519)."""
    hub.spawn("ana", gpu_profile="one").raise_for_status()
    hub.spawn("ben", gpu_profile="one").raise_for_status()
    pid = hub.pid_of("ana")
    hub.stop()

    psutil.Process(pid).kill()
    hub.start()

    until(lambda: not live(hub, "ana"), "what it held is free again", seconds=100)
    assert len(live(hub, "ben")) == 1
    assert hub.server("ben")["ready"]


@pytest.mark.parametrize("way", ["stop_all_of_it", "kill"])
def test_servers_and_jobs_outlive_a_restart_of_the_hub(hub, tmp_path, way):
    """The server keeps its lease and its kernel, the job its process (jupyterhub/jupyterhub#5107).

    Also where the signal goes to all that the hub has started, as a service manager may send it, and over an upgrade.
    """
    hub.spawn("ana", gpu_profile="one").raise_for_status()
    kernel = hub.kernel("ana")
    assert kernel.run("kept = 7") == ""
    go, said = tmp_path / "go", tmp_path / "said"
    ran = hub.as_("ben").submit(job(tmp_path, _WAITS.format(str(go), str(said))))
    until(lambda: hub.as_("ben").log(ran.id), "the job runs")
    (held,) = live(hub, "ana")

    getattr(hub, way)()
    hub.upgrade_db()
    hub.start()

    assert [(it.id, it.devices) for it in live(hub, "ana")] == [(held.id, held.devices)]
    assert kernel.run("print(kept)") == "7"
    assert live(hub, "ben")[0].attempt == 1
    go.touch()
    over = hub.as_("ben").wait(ran.id, until="ended", timeout_seconds=60)
    assert (over.end, over.attempt) == ("succeeded", 1)
    assert said.read_text() == hub.as_("ben").log(ran.id).decode().strip()
    hub.stop_server("ana")
    until(lambda: not live(hub, "ana"), "a hub that came back still gives back what it did not lend")


# -- who may what


def test_nobody_reads_cancels_or_spends_for_another(hub, tmp_path):
    """Not by their number, not by their log, and not in their name."""
    ana, ben = hub.as_("ana"), hub.as_("ben")
    theirs = ana.submit(reserve())
    ran = ana.submit(job(tmp_path, "print('secret of ana', flush=True); import time; time.sleep(600)"))
    until(lambda: ana.log(ran.id), "the job runs")

    for forbidden in (
        lambda: ben.cancel(theirs.id),
        lambda: ben.release(theirs.id),
        lambda: ben.extend(theirs.id, 60),
        lambda: ben.cancel(ran.id),
        lambda: ben.log(ran.id),
        lambda: ben.cordon(ana.devices().items[0].uuid),
    ):
        with pytest.raises((NotAllowed, NotFound)):
            forbidden()
    with hub.raw(hub.token_of("ben")) as raw:
        spent = raw.post(
            "/workloads", headers={"X-Jupyter-Gpu-For": "ana"}, json={"kind": "reservation", "ask": {"devices": 1}}
        )
    assert spent.status_code == httpx.codes.FORBIDDEN
    assert "Only the hub's spawner" in spent.json()["message"]
    assert {it.id for it in live(hub, "ana")} == {theirs.id, ran.id}


def test_a_token_in_a_kernel_is_its_owners_and_no_more(hub):
    """Code of users reads it: it reserves for its owner, and neither operates nor asks for others."""
    hub.spawn(OPERATOR, gpu_profile="none").raise_for_status()

    said = hub.kernel(OPERATOR).run(
        "import os\nfrom jupyter_gpu.client import Client\nfrom jupyter_gpu.errors import NotAllowed\n"
        "with Client() as client:\n"
        "    print(client.broker().user)\n"
        "    try:\n        client.cordon(client.devices().items[0].uuid)\n"
        "    except NotAllowed as error:\n        print(error.message)\n"
        "print([name for name in os.environ if 'SPAWNER' in name])"
    )

    assert "lacks the scope operate" in said
    assert said.endswith("[]")


def visited(hub: Hub, user: str) -> httpx.Client:
    """The browser of somebody who came to ana's server, and let it know who they are as the hub asks them to."""
    browser = hub.browser(user)
    page = browser.get("user/ana/files/")
    if page.url.path.endswith("/authorize"):
        assert "custom:jupyter-gpu:submit" not in page.text
        form = re.findall(r'<input[^>]*name="(\w+)"[^>]*value="([^"]*)"', page.text)
        fields = {name: [value for other, value in form if other == name] for name, _ in form}
        headers = {"Origin": str(page.url.copy_with(path="", query=None)), "Referer": str(page.url)}
        page = browser.post(page.url, data=fields, headers=headers)
    browser.headers["X-XSRFToken"] = browser.cookies.get("_xsrf", path=f"{BASE}user/ana/") or ""
    return browser


def test_who_visits_a_server_looks_and_lets_it_do_nothing_in_their_name(hub):
    """Not by its page, and not by whoever runs it with the token that it was shown; its owner's page does all."""
    hub.spawn("ana", gpu_profile="none").raise_for_status()
    ask = {"kind": "reservation", "ask": {"devices": 1, "duration_seconds": 600}}
    path = "user/ana/jupyter-gpu/api/v1"

    ben = visited(hub, "ben")
    assert ben.get(f"{path}/status").json()["caller"] == "ben"
    refused = ben.post(f"{path}/workloads", json=ask)
    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
    assert "somebody else's server" in refused.json()["message"]

    eve = visited(hub, CONTRACTOR)
    refused = eve.get(f"{path}/status")
    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
    assert "your own server" in refused.json()["hint"]

    scopes = {f"custom:jupyter-gpu:{it}" for it in ("reserve", "submit", "logs", "operate", "admin")}
    shown = [it for it in hub.api.get("/users/ben/tokens").json()["api_tokens"] if it["oauth_client"] != "JupyterHub"]
    assert [it for it in shown if "ana" in it["oauth_client"]], "ben showed ana's server a token"
    assert not [it for it in shown if "ana" in it["oauth_client"] and scopes & set(it["scopes"])]

    ana = visited(hub, "ana")
    made = ana.post(f"{path}/workloads", json=ask)
    assert (made.status_code, made.json()["owner"]) == (201, "ana")


def test_a_contractor_sees_only_their_own(hub):
    """Of devices whether they are free or busy, and of others' work nothing at all."""
    hub.as_("ana").submit(reserve(2))
    eve = hub.as_(CONTRACTOR)

    own = eve.submit(reserve())

    assert [it.id for it in eve.workloads(ended=False)] == [own.id]
    status = eve.status()
    assert len(status.devices) == 4
    assert "ana" not in repr(status)
    with pytest.raises((NotAllowed, NotFound)):
        eve.workload(own.id - 1)


def test_who_has_no_role_is_told_so(hub):
    """A stranger of the hub gets words, and no place in line."""
    with pytest.raises(NotAllowed):
        hub.as_(STRANGER).submit(reserve())
    with hub.raw("no such token") as raw:
        assert raw.get("/status").status_code == httpx.codes.FORBIDDEN


def test_a_change_of_groups_counts_soon_and_without_a_new_login(hub):
    """Within the time for which the hub's word is kept, in both directions (2i2c-org/infrastructure#8154)."""
    zoe = hub.as_(STRANGER)
    with pytest.raises(NotAllowed):
        zoe.status()

    hub.join(STRANGER, "vision")
    time.sleep(CACHE_SECONDS)
    assert zoe.submit(reserve()).team == "vision"

    hub.leave(STRANGER, "vision")
    time.sleep(CACHE_SECONDS)
    with pytest.raises(NotAllowed):
        zoe.submit(reserve())


@pytest.mark.parametrize("name", ODD)
def test_names_as_single_sign_on_gives_them(hub, tmp_path, name):
    """Each reserves, runs a job and is helped by an operator, under the name as it is typed."""
    name = name.lower()
    hub.token_of(name)
    hub.join(name, "speech")
    person = hub.as_(name)

    held = person.submit(reserve())
    ran = person.submit(job(tmp_path, "print('done', flush=True)"))

    assert (held.owner, held.state) == (name, State.ACTIVE)
    assert person.wait(ran.id, until="ended", timeout_seconds=60).end == "succeeded"
    assert person.log(ran.id) == b"done\n"
    hub.as_(OPERATOR).cancel(held.id)
    until(lambda: not live(hub, name), "the operator ended it")


# -- its page


def test_the_service_is_below_the_hubs_own_path(hub):
    """No loops and no double slashes (jupyterhub/jupyterhub-deploy-docker#76): who has no cookie is sent to log in."""
    with httpx.Client(trust_env=False) as browser:
        sent = browser.get(f"{hub.url}services/jupyter-gpu/")
        api = browser.get(f"{hub.url}services/jupyter-gpu/api/v1/status")

    assert sent.status_code == httpx.codes.FOUND
    assert sent.headers["location"].startswith(f"{BASE}hub/api/oauth2/authorize")
    assert api.status_code == httpx.codes.UNAUTHORIZED


def test_the_log_of_the_hub_has_no_token(hub):
    """Neither the spawner's nor anybody else's."""
    hub.spawn("ana", gpu_profile="one").raise_for_status()
    said = hub.log.read_text(errors="replace")

    assert hub.token_of("ana") not in said
    assert "gpu_token" not in said
    for process in psutil.process_iter(["cmdline"]):
        assert hub.token_of("ana") not in " ".join(process.info["cmdline"] or ())
