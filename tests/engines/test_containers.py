"""The words that put a job into docker, podman or apptainer, byte for byte; and what is made of their ends."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.broker.engines import container_plan, containers, outside
from jupyter_gpu.broker.engines.accounts import Account
from jupyter_gpu.broker.engines.base import Attempt
from jupyter_gpu.model import Device
from tests.engines.bench import attempt, bench, device, scenario

ADA = Account(1000, 100, (44, 100, 2000), {})
TWO = (device(0), device(1))
MOUNTS = ("/data/set:/data:ro", "/home/ada/out:/out")


def plan(engine: str, *, account: Account = ADA, **more: Any) -> dict[str, Any]:
    """The plan of an attempt of ada's on two GPUs."""
    given = {"devices": TWO, "folder": "/home/ada/project", "image": "lab/torch:2", "container_engine": engine}
    made = container_plan.plan(
        attempt("python3", **(given | more)), "/spool/12.1", "jupyter-gpu-ab-12.1", account, {"PATH": "/bin", "X": "1"}
    )
    assert made is not None
    return made | {"shared_bytes": 1 << 30}


def argv(engine: str, environment: dict[str, str] | None = None, **more: Any) -> list[str]:
    """The words of the engine, up to and with the command."""
    return containers.wrapped(plan(engine, **more), ["python3", "a b"], environment or {"WORD": "secret"})[0]


def test_docker_byte_for_byte() -> None:
    """The GPUs by their UUIDs whatever the image says of them; the user as a number, with its groups and no rights.

    Values of variables are not in it.
    """
    assert argv("docker", mounts=MOUNTS) == [
        *("docker", "run", "--name", "jupyter-gpu-ab-12.1", "--init", "--user", "1000:100", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--shm-size", "1073741824"),
        *("--log-driver", "none", "--userns", "host", "--group-add", "44", "--group-add", "2000"),
        *("--gpus", '"device=GPU-00000000,GPU-00000001"'),
        *("--env", "NVIDIA_VISIBLE_DEVICES=GPU-00000000,GPU-00000001", "--ulimit", "core=0"),
        *("--mount", "type=bind,source=/home/ada/project,target=/home/ada/project"),
        *("--mount", "type=bind,source=/spool/12.1,target=/spool/12.1,readonly"),
        *("--mount", "type=bind,source=/data/set,target=/data,readonly"),
        *("--mount", "type=bind,source=/home/ada/out,target=/out"),
        *("--workdir", "/home/ada/project", "--env", "WORD", "--env", "HOME=/tmp", "--entrypoint", "", "lab/torch:2"),
        *("python3", "a b"),
    ]


def test_podman_byte_for_byte() -> None:
    """Without a daemon and without root: ids and groups stay the user's, and the GPUs are CDI's."""
    assert argv("podman") == [
        *("podman", "run", "--name", "jupyter-gpu-ab-12.1", "--init", "--user", "1000:100", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--shm-size", "1073741824"),
        *("--log-driver", "none", "--userns", "keep-id", "--group-add", "keep-groups"),
        *("--device", "nvidia.com/gpu=GPU-00000000", "--device", "nvidia.com/gpu=GPU-00000001"),
        *("--env", "NVIDIA_VISIBLE_DEVICES=void"),
        *("--mount", "type=bind,source=/home/ada/project,target=/home/ada/project"),
        *("--mount", "type=bind,source=/spool/12.1,target=/spool/12.1,readonly"),
        *("--workdir", "/home/ada/project", "--env", "WORD", "--env", "HOME=/tmp", "--entrypoint", "", "lab/torch:2"),
        *("python3", "a b"),
    ]


def test_apptainer_byte_for_byte() -> None:
    """Folders before what is in them; the variables come by names of their own, and no others of the machine's."""
    words, environment = containers.wrapped(
        plan("apptainer", mounts=("/x:/home/ada/project/data",)), ["python3"], {"WORD": "secret", "PATH": "/bin"}
    )
    assert words == [
        *("apptainer", "exec", "--cleanenv", "--no-home", "--nv", "--bind", "/spool/12.1:/spool/12.1:ro"),
        *("--bind", "/home/ada/project:/home/ada/project:rw", "--bind", "/x:/home/ada/project/data:rw"),
        *("--pwd", "/home/ada/project", "docker://lab/torch:2", "python3"),
    ]
    assert environment == {
        "WORD": "secret", "PATH": os.environ["PATH"], "APPTAINERENV_WORD": "secret", "APPTAINERENV_HOME": "/tmp",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("image", "word"),
    [
        ("python:3.12", "docker://python:3.12"),
        ("registry.lab:5000/torch:2", "docker://registry.lab:5000/torch:2"),
        ("library://lab/torch", "library://lab/torch"),
        ("docker-archive:/x/y.tar", "docker-archive:/x/y.tar"),
        ("/images/torch.sif", "/images/torch.sif"),
    ],
)
def test_an_image_is_named_the_same_way_for_all(image: str, word: str) -> None:
    """Apptainer wants to be told where a name is from; a file and an address say so themselves."""
    assert word in argv("apptainer", image=image)


@pytest.mark.parametrize("engine", containers.ENGINES)
def test_without_a_gpu_none_is_given(engine: str) -> None:
    """A variable that is not set would show all of them: so nothing is given, and that is said."""
    for devices in ((), (Device(uuid="GPU-S", index=0, name="S", device_class="s", simulated=True),)):
        words = argv(engine, devices=devices)
        assert not {"--gpus", "--device", "--nv"} & set(words)
        assert ("NVIDIA_VISIBLE_DEVICES=void" in words) == (engine != "apptainer")


def test_roots_own_podman_keeps_all_ids() -> None:
    """There keep-id is refused: it is of podman without root."""
    assert "--userns" not in argv("podman", account=Account(0, 0, (0,), {}))


def test_a_core_may_be_dumped_where_it_was_asked_for() -> None:
    """Docker's daemon has a limit of its own."""
    assert "--ulimit" in argv("docker")
    assert "--ulimit" not in argv("docker", core_dumps=True)


def test_checkpoints_beside_the_folder_are_shown_too() -> None:
    """Where they lie in the folder they are there already."""
    words = containers.wrapped(plan("docker"), ["x"], {}, ["/scratch/ckpt"])[0]
    assert "type=bind,source=/scratch/ckpt,target=/scratch/ckpt" in words


@pytest.mark.parametrize(
    ("name", "value", "goes_in"),
    [
        ("JUPYTER_GPU_CHECKPOINT_DIR", "/home/ada/project/.jupyter-gpu/job-1", True),
        ("CUDA_VISIBLE_DEVICES", "GPU-1", True),
        ("OMP_NUM_THREADS", "4", True),
        ("https_proxy", "http://proxy:3128", True),
        ("HF_HOME", "/home/ada/project/hf", True),
        ("HF_HOME", "/home/ada/.cache/hf", False),
        ("HOME", "/home/ada", False),
        ("PYTHONPATH", "/home/ada/project/lib:/opt/lib", False),
        ("PYTHONPATH", "/home/ada/project/lib", True),
        ("PATH", "/home/ada/project/bin", False),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64", False),
        ("LD_PRELOAD", "/x.so", False),
        ("VIRTUAL_ENV", "/home/ada/project/.venv", False),
        ("CONDA_PREFIX", "/opt/conda", False),
        ("DOCKER_HOST", "unix:///x", False),
        ("NVIDIA_VISIBLE_DEVICES", "GPU-1", False),
        ("BASH_FUNC_x%%", "() { :; }", False),
    ],
)
def test_which_variables_go_in(name: str, value: str, goes_in: bool) -> None:
    """What finds programs of this machine stays out, and a place goes in only where it is seen from inside."""
    words, environment = containers.wrapped(plan("docker"), ["x"], {name: value})
    pairs = list(itertools.pairwise(words))
    assert (("--env", name) in pairs and environment[name] == value) is goes_in


def test_a_client_keeps_its_own_home() -> None:
    """There are the store of podman and the credentials for registries; inside it is another, and that one is named."""
    words, environment = containers.wrapped(plan("podman"), ["x"], {"HOME": "/home/ada"})
    assert environment["HOME"] == "/home/ada"
    assert "HOME=/tmp" in words
    assert "HOME" in containers.wrapped(plan("podman", folder="/home"), ["x"], {"HOME": "/home/ada"})[0]


def test_a_client_speaks_to_the_daemon_of_this_machine() -> None:
    """A context of the user's may name one elsewhere, which has none of our GPUs."""
    assert containers.wrapped(plan("docker"), ["x"], {})[1]["DOCKER_HOST"] == "unix:///var/run/docker.sock"


def test_what_is_kept_to_ask_the_engine_later_holds_no_secret() -> None:
    """It stays in the attempt's folder as long as the log does."""
    given = {"PATH": "/bin", "HOME": "/home/ada", "HF_TOKEN": "x", "WANDB_API_KEY": "y"}
    assert containers.clients("podman", given) == {"PATH": "/bin", "HOME": "/home/ada"}


@pytest.mark.parametrize(
    ("mount", "found"),
    [
        ("/a:/b", ("/a", "/b", False)),
        ("/a:/b:ro", ("/a", "/b", True)),
        ("/a:/b:rw", ("/a", "/b", False)),
        ("/a b:/c/../d", ("/a b", "/d", False)),
    ],
)
def test_a_mount_is_read(mount: str, found: tuple[str, str, bool]) -> None:
    """Source, target, and whether it may be written to."""
    assert containers.parsed(mount) == found


@pytest.mark.parametrize(
    "mount", ["/a", "a:/b", "/a:b", "/a:/b:rx", "/a:/b:ro:z", "/a,readonly=false:/b", '/a":/b', "/a:/b\n", ":", ""]
)
def test_what_is_no_mount_is_refused(mount: str) -> None:
    """A comma would begin another field of it, and so would what else an engine reads."""
    with pytest.raises(ValueError, match=r"."):
        containers.parsed(mount)


# -- what became of it


class Told(outside.Container):
    """A container of which an engine has said this."""

    def __init__(self, engine: str, seen: str) -> None:
        spec = {
            "workload": 1,
            "attempt": 1,
            "argv": ["python3"],
            "container": {"engine": engine, "image": "lab/torch:2"},
        }
        super().__init__("/spool/1.1", spec)
        self._seen = seen


TOOLKIT = "NVIDIA Container Toolkit is missing"
NEVER, BEGAN = "false 0001-01-01T00:00:00Z", "false 2026-03-01T10:00:00Z"


@pytest.mark.parametrize(
    ("engine", "seen", "code", "tail", "found"),
    [
        ("docker", BEGAN, 125, b"", None),
        ("docker", BEGAN, 1, b"Traceback", None),
        ("docker", "", 1, b"Traceback", None),
        (
            "docker",
            "",
            125,
            b"docker: Error response: pull access denied for lab/torch\n\nRun 'docker run --help'\n",
            (False, "pull access denied"),
        ),
        (
            "docker",
            NEVER,
            125,
            b"docker: Error response: could not select device driver with capabilities: [[gpu]].\n",
            (True, TOOLKIT),
        ),
        (
            "podman",
            "",
            125,
            b"Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=GPU-1\n",
            (True, TOOLKIT),
        ),
        ("podman", "", 125, b"Error: container-init binary not found on the host\n", (True, "install catatonit")),
        ("podman", BEGAN, 1, b"ERROR (catatonit:6): failed to exec pid1: No such file\n", (False, "python3")),
        (
            "docker",
            BEGAN,
            127,
            b"[FATAL tini (7)] exec python3 failed: No such file or directory\n",
            (False, "python3"),
        ),
        ("podman", "", 126, b"Error: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted\n", (True, "ulimit -Hn")),
        ("podman", "", 125, b"Error: no cgroups\n", (True, "`podman run --rm lab/torch:2 true` shows whether")),
        ("apptainer", "", 255, b"FATAL:   could not open image /x.sif: no such file or directory\n", (False, "/x.sif")),
        ("apptainer", "", 255, b"FATAL:   container creation failed: no space\n", (True, "container creation failed")),
        ("apptainer", "", 255, b"my own words\n", None),
    ],
)
def test_whose_fault_it_is(engine: str, seen: str, code: int, tail: bytes, found: tuple[bool, str] | None) -> None:
    """A job that began has failed by itself. Else its ask was wrong, or the engine is: only that is tried again."""
    outcome = Told(engine, seen).failed(code, tail)
    if found is None:
        assert outcome is None
    else:
        assert outcome is not None
        assert (outcome["end"], outcome["engine_fault"]) == ("launch-failed", found[0])
        assert found[1] in outcome["detail"]
        assert "lab/torch:2" in outcome["detail"]


def test_what_the_kernel_killed_is_told_by_the_engine() -> None:
    """The container's own cgroup is gone by then, and counted it."""
    assert Told("docker", "true 2026-03-01T10:00:00Z").ran_out_of_memory
    assert not Told("docker", BEGAN).ran_out_of_memory


# -- a program in place of apptainer, which is an ordinary tree


FAKE = """#!/bin/sh
printf '%s\\0' "$@" > "$RECORD"
while [ "$1" != docker://lab/torch:2 ]; do shift; done
shift
"$@"
"""


@scenario
async def test_apptainer_is_a_tree_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notice goes through it to the training; its exit code is the training's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "apptainer").write_text(FAKE)
    (folder / "apptainer").chmod(0o755)
    record = tmp_path / "record"
    environment = {"PATH": os.environ["PATH"], "RECORD": str(record)}
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    training = "trap 'echo saved; exit 3' TERM; echo runs; while true; do sleep 0.1; done"
    async with bench(tmp_path) as it:
        await it.hand_over(
            "sh", "-c", training, image="lab/torch:2", container_engine="apptainer", environment=environment
        )
        await it.says(b"runs")
        await it.order(30)
        outcome = await it.end()
        assert (outcome.exit_code, outcome.noticed, outcome.forced) == (3, True, ())
        assert it.log().count(b"saved") == 1
    assert record.read_bytes().split(b"\0")[-4:] == [b"sh", b"-c", training.encode(), b""]
    assert b"--nv" not in record.read_bytes()


@scenario
async def test_an_engine_that_is_gone_at_the_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there when the job was submitted. What the job's own PATH calls so is none."""
    (tmp_path / "podman").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    async with bench(tmp_path) as it:
        outcome = await it.run("true", image="x", container_engine="podman", environment={"PATH": str(tmp_path)})
        assert outcome.end == "launch-failed"
        assert "could not start podman" in outcome.detail


def test_a_job_without_an_image_has_no_plan() -> None:
    """And nothing changes for it."""
    plain: Attempt = attempt("true")
    assert container_plan.plan(plain, "/spool/1.1", "x", ADA, {}) is None
    assert container_plan.engine_of(plain.spec) == ""
