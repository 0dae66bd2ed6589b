"""What each spawner would send, by its own classes: systemd-run, docker, the cluster, the batch system, a child."""

import contextlib
import getpass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import batchspawner
import docker
import dockerspawner
import pytest
import systemdspawner
import wrapspawner
from jupyterhub.spawner import SimpleLocalProcessSpawner, SpawnException
from traitlets import Unicode

from jupyter_gpu.model import State

from .ground import play
from .spawn_ground import a_hall, reservations

ME = getpass.getuser()


# -- systemd


def a_systemd(sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> type:
    """A machine with systemd, which keeps what it was told."""
    running: set[str] = set()

    async def start(unit: str, **words: Any) -> None:
        sent.append(words)
        running.add(unit)

    async def is_running(unit: str) -> bool:
        return unit in running

    async def has_failed(_unit: str) -> bool:
        return False

    async def stop(unit: str) -> None:
        running.discard(unit)

    monkeypatch.setattr(systemdspawner.systemd, "get_systemd_version", lambda: 252)
    for name, it in (
        ("start_transient_service", start),
        ("service_running", is_running),
        ("service_failed", has_failed),
        ("stop_service", stop),
    ):
        monkeypatch.setattr(systemdspawner.systemd, name, it)
    return systemdspawner.SystemdSpawner


def nodes_for(serving: Any) -> None:
    """Let the simulated devices have nodes, as real ones do."""
    import msgspec

    world = serving.loop.world
    for number, uuid in enumerate(sorted(world.devices)):
        world.put_device(msgspec.structs.replace(world.devices[uuid], nodes=(f"/dev/nvidia{number + 2}",)))


def test_systemd_gets_the_cards_of_the_lease_and_the_pin(tmp_runtime, monkeypatch):
    """Each in a line of its own, beside what the admin allows; the unit's environment has the pin."""
    sent: list[dict[str, Any]] = []
    cls = a_systemd(sent, monkeypatch)

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, cls) as (hall, serving):
            nodes_for(serving)
            hall.config.SystemdSpawner.unit_extra_properties = {"DeviceAllow": "/dev/fuse rw", "Slice": "{USERNAME}"}
            spawner = hall.spawner(ME, gpu_profile="one")
            await spawner.start()

            assert sent[0]["properties"]["DeviceAllow"] == [
                "/dev/fuse rw",
                "/dev/nvidiactl rw",
                "/dev/nvidia-uvm rw",
                "/dev/nvidia-uvm-tools rw",
                "/dev/nvidia-modeset rw",
                "/dev/nvidia2 rw",
            ]
            assert sent[0]["properties"]["Slice"] == ME
            assert sent[0]["environment_variables"]["CUDA_VISIBLE_DEVICES"] == "GPU-0"
            assert [it.state for it in await reservations(serving, ME)] == [State.ACTIVE]
            await spawner.stop()
            assert (await reservations(serving, ME, ended=True))[0].outcome is not None

    play(story)


def test_a_unit_that_fails_to_come_up_gives_back_only_then(tmp_runtime, monkeypatch):
    """Systemdspawner polls itself while it starts: that it is not up yet is no end."""
    sent: list[dict[str, Any]] = []
    cls = a_systemd(sent, monkeypatch)
    looks: list[bool] = []

    async def late(_unit: str) -> bool:
        looks.append(bool(sent))
        return len([it for it in looks if it]) > 2

    monkeypatch.setattr(systemdspawner.systemd, "service_running", late)

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, cls) as (hall, serving):
            await hall.spawner(ME, gpu_profile="one").start()
            assert [it.state for it in await reservations(serving, ME)] == [State.ACTIVE]

    play(story)


# -- docker


class Docker(dockerspawner.DockerSpawner):
    """A docker that keeps what it was told; the host's configuration is made by docker's own library."""

    kept: Any = None

    @property
    def client(self) -> Any:
        return docker.APIClient(base_url="http://127.0.0.1:1", version="1.43")

    async def docker(self, method: str, *words: Any, **more: Any) -> Any:
        self.sent = [*getattr(self, "sent", []), (method, words, more)]
        if method == "inspect_container":
            if type(self).kept is None:
                raise docker.errors.NotFound("no", SimpleNamespace(status_code=404))
            return {"Id": "c0ffee", "Config": {"Env": []}, "State": {"Running": False}} | type(self).kept
        return {"Id": "c0ffee"} if method == "create_container" else {}

    async def get_ip_and_port(self) -> tuple[str, int]:
        return "127.0.0.1", 8888

    def created(self) -> dict[str, Any]:
        """What the container was to be made of."""
        return next(more for method, _, more in self.sent if method == "create_container")


@contextlib.asynccontextmanager
async def a_docker(folder: Path, *, kept: Any = None, **traits: Any) -> Any:
    """A hub with docker, where a container may be kept from before."""
    Docker.kept = kept
    async with a_hall(folder, Docker, gpu_server_url="https://hub.example/services/jupyter-gpu") as (hall, serving):
        hall.config.DockerSpawner.update({"remove": True, "pull_policy": "skip", "cmd": ["start"]} | traits)
        yield hall, serving


def test_docker_gets_a_request_for_the_devices_of_the_lease(tmp_runtime):
    """In the words of docker's API, beside the admin's own configuration; and the way to the service from there."""

    async def story():
        admins = {"extra_host_config": {"shm_size": "1g", "device_requests": [{"driver": "nvidia", "count": -1}]}}
        async with a_docker(tmp_runtime.runtime_dir, **admins) as (hall, serving):
            spawner = hall.spawner("ana", gpu_profile="two")
            await spawner.start()

            (held,) = await reservations(serving, "ana")
            made = spawner.created()
            assert made["host_config"]["DeviceRequests"] == [
                {
                    "Driver": "nvidia",
                    "Count": 0,
                    "DeviceIDs": ["GPU-0", "GPU-1"],
                    "Capabilities": [["gpu"]],
                    "Options": {},
                }
            ]
            assert made["host_config"]["ShmSize"] == 1 << 30
            assert made["environment"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
            assert made["environment"]["JUPYTER_GPU_RESERVATION"] == str(held.id)
            assert made["environment"]["JUPYTER_GPU_URL"] == "https://hub.example/services/jupyter-gpu"
            await spawner._gpu_lease.give_back()

    play(story)


def test_docker_gets_no_gpus_where_none_are_leased(tmp_runtime):
    """Not even those that the admin's configuration gives to all, nor those of an image."""

    async def story():
        admins = {"extra_host_config": {"device_requests": [{"driver": "nvidia", "count": -1}]}}
        async with a_docker(tmp_runtime.runtime_dir, **admins) as (hall, _):
            spawner = hall.spawner("ana", gpu_profile="none")
            await spawner.start()

            assert "DeviceRequests" not in spawner.created()["host_config"]
            assert spawner.created()["environment"]["NVIDIA_VISIBLE_DEVICES"] == "none"

    play(story)


@pytest.mark.parametrize("ids", [["GPU-7"], None])
def test_a_kept_container_with_other_gpus_is_not_started(tmp_runtime, ids):
    """It would have the GPUs that it was made with, which may be somebody else's by now."""

    async def story():
        kept = {"HostConfig": {"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ids}]}}
        async with a_docker(tmp_runtime.runtime_dir, kept=kept, remove=False) as (hall, serving):
            spawner = hall.spawner("ana", gpu_profile="one")
            with pytest.raises(SpawnException, match="was made with other GPUs"):
                await spawner.start()
            assert not [method for method, _, _ in spawner.sent if method == "start"]
            assert (await reservations(serving, "ana", ended=True))[0].outcome is not None

    play(story)


# -- kubernetes

KUBECONFIG = """
{apiVersion: v1, kind: Config, current-context: lab, contexts: [{name: lab, context: {cluster: lab, user: hub}}],
 clusters: [{name: lab, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: hub, user: {token: none}}]}
"""


def test_kubernetes_gets_a_limit_in_the_pods_manifest(tmp_runtime, monkeypatch):
    """As many as are leased; the pod counts them from 0, and the admin's other limits stay."""
    kubeconfig = tmp_runtime.runtime_dir / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr("kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    from kubespawner import KubeSpawner

    class Kube(KubeSpawner):
        async def _start(self) -> tuple[str, int]:
            await self.load_user_options()
            self.manifest = await self.get_pod_manifest()
            return "10.0.0.1", 8888

        async def poll(self) -> int | None:
            return None

        async def stop(self, now: bool = False) -> None:
            pass

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, Kube) as (hall, serving):
            hall.config.KubeSpawner.update(
                {
                    "namespace": "lab",
                    "k8s_api_host": "http://127.0.0.1:1",
                    "extra_resource_limits": {"nvidia.com/gpu": "8", "smarter-devices/fuse": "1"},
                    "extra_resource_guarantees": {"nvidia.com/gpu": "8"},
                    "mem_limit": "4G",
                }
            )
            spawner = hall.spawner("ana", gpu_profile="two")
            assert await spawner.start() == ("10.0.0.1", 8888)

            (container,) = spawner.manifest.spec.containers
            assert container.resources.limits["nvidia.com/gpu"] == "2"
            assert container.resources.limits["smarter-devices/fuse"] == "1"
            assert container.resources.limits["memory"] == 4 << 30
            assert "nvidia.com/gpu" not in (container.resources.requests or {})
            seen = {it.name: it.value for it in container.env}
            assert seen["CUDA_VISIBLE_DEVICES"] == "0,1"
            assert "NVIDIA_VISIBLE_DEVICES" not in seen
            assert "JUPYTER_GPU_URL" not in seen  # 127.0.0.1 of the hub is nothing there
            assert [it.state for it in await reservations(serving, "ana")] == [State.ACTIVE]
            await spawner.stop()
            assert spawner.get_state().get("gpu_lease") is None
            await spawner.api.api_client.close()

    play(story)


# -- batch systems


def a_batch(cls: type) -> type:
    """A batch system that takes every job, and keeps its script."""

    class Batch(cls):  # type: ignore[misc]
        mock_port = 8888
        req_homedir = Unicode("/home/ana")

        def user_env(self, env: dict[str, str]) -> dict[str, str]:
            return env

        async def run_command(self, _cmd: str, input: str | None = None, env: Any = None) -> str:  # noqa: A002
            if input is not None:
                self.script, self.told = input, env
                return "17"
            return "RUNNING node1"

        def parse_job_id(self, output: str) -> str:
            return output

        def state_isrunning(self) -> bool:
            return True

        def state_gethost(self) -> str:
            return "node1"

    return Batch


@pytest.mark.parametrize(
    ("name", "settled", "settings", "line"),
    [
        ("SlurmSpawner", ["req_gres"], {"req_gres": "craynetwork:1"}, "#SBATCH --gres=craynetwork:1,gpu:1"),
        ("TorqueSpawner", ["req_nprocs"], {"req_nprocs": "4"}, "#PBS -l nodes=1:ppn=4:gpus=1"),
        (
            "PBSSpawner",
            ["req_nprocs"],
            {"req_nprocs": "4", "req_memory": "8gb"},
            "#PBS -l select=1:ncpus=4:ngpus=1:mem=8gb",
        ),
        ("GridengineSpawner", ["req_options"], {"req_options": "-q lab"}, "#$ -q lab -l gpu=1"),
        ("CondorSpawner", ["req_options"], {}, "request_gpus = 1"),
        ("LsfSpawner", ["req_ngpus"], {"batch_script": '#BSUB -gpu "num={ngpus}"\n{cmd}'}, '#BSUB -gpu "num=1"'),
    ],
)
def test_a_batch_system_reads_in_the_script_how_many_it_must_give(tmp_runtime, name, settled, settings, line):
    """As rendered by the spawner's own template; options that a user sends in by the API change nothing of it."""
    cls = a_batch(getattr(batchspawner, name))

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, cls) as (hall, serving):
            hall.config[name].update(settings)
            hall.config.Spawner.cmd = ["jupyterhub-singleuser"]
            more = {"ngpus": "8", "gres": "gpu:8"} | {key.removeprefix("req_"): "8 gpus=8" for key in settled}
            spawner = hall.spawner("ana", gpu_profile="one", **more)
            await spawner.start()

            assert line in spawner.script.splitlines()
            assert "CUDA_VISIBLE_DEVICES" not in spawner.told
            (held,) = await reservations(serving, "ana")
            assert spawner.told["JUPYTER_GPU_RESERVATION"] == str(held.id)
            await spawner._gpu_lease.give_back()

    play(story)


def test_a_template_without_a_place_for_gpus_is_said_and_keeps_no_lease(tmp_runtime):
    """The admin's slip is the user's message, with what the admin has to do."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, a_batch(batchspawner.LsfSpawner)) as (hall, serving):
            with pytest.raises(SpawnException, match="has no place for GPUs") as caught:
                await hall.spawner("ana", gpu_profile="one").start()
            assert "{ngpus}" in caught.value.message
            assert (await reservations(serving, "ana", ended=True))[0].outcome is not None

    play(story)


# -- a wrapspawner


#: It hands its child a word that newer traitlets deprecate.
OLD_TRAITS = pytest.mark.filterwarnings("ignore:Passing unrecognized arguments to super:DeprecationWarning")


class Profiles(wrapspawner.ProfilesSpawner):
    """Has profiles of its own, of which the chosen one starts the server."""


@OLD_TRAITS
def test_the_child_of_a_wrapspawner_gets_the_devices_and_its_own_profiles_stay(tmp_runtime):
    """An option `profile` is the wrapspawner's there, and ours has its own name; the child's process is named."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, Profiles, accounts={"ana": ME}) as (hall, serving):
            hall.config.ProfilesSpawner.profiles = [
                ("Small", "small", SimpleLocalProcessSpawner, {"environment": {"SIZE": "small"}}),
                ("Large", "large", SimpleLocalProcessSpawner, {"environment": {"SIZE": "large"}}),
            ]
            spawner = hall.spawner("ana")
            form = await spawner.get_options_form()
            assert 'name="gpu_profile"' in form
            assert '<option value="large"' in form
            options = await spawner.run_options_from_form({"profile": ["large"], "gpu_profile": ["two"]})
            assert options == {"profile": "large", "gpu_profile": "two"}

            await hall.user("ana").spawn("", options=options)

            (held,) = await reservations(serving, "ana")
            assert hall.environment()["SIZE"] == "large"
            assert hall.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
            spawner = hall.user("ana").spawners[""]
            assert held.holder.pid == spawner.child_spawner.pid
            await hall.user("ana").stop("")
            assert (await reservations(serving, "ana", ended=True))[0].outcome is not None

    play(story)


@OLD_TRAITS
def test_the_progress_of_a_child_follows_ours(tmp_runtime):
    """Before the child is chosen there is only ours to tell, and that is no error."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, Profiles) as (hall, _):
            spawner = hall.spawner("ana", gpu_profile="none")
            spawner.clear_state()  # as the hub does before each start
            spawner._gpu_lease.nothing_to_take()
            assert [it async for it in spawner.progress()] == []
            spawner.construct_child()
            assert [it["message"] async for it in spawner.progress()] == ["Spawning server..."]

    play(story)
