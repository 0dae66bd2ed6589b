"""A Job for Kubernetes is valid by its strict schema, and starts the job's words as they were."""

import msgspec
import pytest
from kubernetes_validate import validate

from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.export import kubernetes
from jupyter_gpu.model import Ask, Dependency

from .ground import HOSTILE, a_job, an_array, run, teller, told, work

#: The newest that the checker knows, and one that clusters still run.
VERSIONS = ("1.37.0", "1.31")


def read(text: str) -> dict:
    """The document, after Kubernetes' own schema has taken it and knows every field."""
    document = msgspec.yaml.decode(text)
    for version in VERSIONS:
        validate(document, version, strict=True)
    return document


def container(text: str) -> dict:
    """The one container of its pods."""
    (it,) = read(text)["spec"]["template"]["spec"]["containers"]
    return it


def expand(word: str, known: dict[str, str]) -> str:
    """What Kubernetes makes of a word: $$ is a $, and $(NAME) a variable that it knows; all else stays as it is."""
    out, place = "", 0
    while place < len(word):
        if word[place] == "$" and word[place + 1 : place + 2] == "$":
            out, place = out + "$", place + 2
        elif word[place] == "$" and word[place + 1 : place + 2] == "(" and ")" in word[place:]:
            end = word.index(")", place)
            out += known.get(word[place + 2 : end], word[place : end + 1])
            place = end + 1
        else:
            out, place = out + word[place], place + 1
    return out


def variables(it: dict) -> dict[str, str]:
    """The variables of a container, as its program gets them: each may name those before it."""
    found: dict[str, str] = {}
    for entry in it["env"]:
        if "value" in entry:
            found[entry["name"]] = expand(entry["value"], found)
    return found


def test_it_asks_for_what_the_job_asked_for():
    """GPUs, processors, memory and time of each attempt; grace, retries, and no failure for what is taken away."""
    text = kubernetes(work(a_job("python", "train.py", retries=3, grace_seconds=300)))
    spec = read(text)["spec"]
    pod = spec["template"]["spec"]
    assert spec["backoffLimit"] == 3
    rules = spec["podFailurePolicy"]["rules"]
    assert [it["action"] for it in rules] == ["Ignore", "Ignore", "FailJob"]
    assert [it["onExitCodes"]["values"] for it in rules[1:]] == [[75], [93]]
    assert (pod["activeDeadlineSeconds"], pod["terminationGracePeriodSeconds"]) == (8 * 3600, 300)
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"][0]["resources"]["limits"] == {
        "nvidia.com/gpu": "2",
        "cpu": "4",
        "memory": str(16 << 30),
    }


def test_a_class_of_mig_devices_is_a_resource_of_its_own():
    """As the device plugin names it; without GPUs none is asked for."""
    mig = kubernetes(work(a_job("true", ask=Ask(devices=1, device_class="mig-3g.40gb"))))
    assert container(mig)["resources"]["limits"] == {"nvidia.com/mig-3g.40gb": "1"}
    assert container(kubernetes(work(a_job("true", ask=Ask(devices=0)))))["resources"]["limits"] == {}


def test_every_word_and_variable_arrives_as_it_was(tmp_path):
    """After Kubernetes has put in what it knows; the command is really run, and the bytes are compared."""
    names = {f"V{n}": word for n, word in enumerate(HOSTILE)}
    it = container(kubernetes(work(a_job(*teller(tmp_path), *HOSTILE, environment=names, folder=str(tmp_path)))))
    found = variables(it)
    assert {name: found[name] for name in names} == names
    done = run([expand(word, found | {"JOB": "put in"}) for word in it["command"]], tmp_path, found)
    assert told(done.stdout).words == [word.encode() for word in HOSTILE]


def test_an_array_is_one_job_with_indexes(tmp_path):
    """Each pod runs its own command, whatever shells and Kubernetes would read in it; so many of them at once."""
    text = kubernetes(work(*an_array(3, *teller(tmp_path), "--lr={index}", *HOSTILE, folder=str(tmp_path), at_most=2)))
    spec = read(text)["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 2)
    it = container(text)
    for index in range(3):
        own = {"JOB_COMPLETION_INDEX": str(index), "JOB": "put in"}
        done = run([expand(word, own) for word in it["command"]], tmp_path, own)
        found = told(done.stdout)
        assert found.words == [f"--lr={index + 1}".encode(), *(word.encode() for word in HOSTILE)]
        assert found.variables[b"JUPYTER_GPU_PARAMETERS"] == b'{"lr": %d}' % (index + 1)
        assert found.variables[b"JUPYTER_GPU_ARRAY_INDEX"] == str(index + 1).encode()


def test_the_folder_and_what_was_mounted_are_there():
    """At the same places, and checkpoints below it, those of each pod of an array apart."""
    one = container(kubernetes(work(a_job("x", folder="/home/ada", mounts=("/data:/in:ro", "/tmp:/out")))))
    assert one["workingDir"] == "/home/ada"
    assert {it["mountPath"]: it.get("readOnly", False) for it in one["volumeMounts"]} == {
        "/home/ada": False,
        "/dev/shm": False,
        "/in": True,
        "/out": False,
    }
    assert variables(one)["JUPYTER_GPU_CHECKPOINT_DIR"] == "/home/ada/.jupyter-gpu/digits-12"
    many = container(kubernetes(work(*an_array(2, "x", folder="/h"))))
    assert many["env"][-1]["value"] == "/h/.jupyter-gpu/digits-12/$(JOB_COMPLETION_INDEX)"
    own = container(kubernetes(work(a_job("x", folder="/h", checkpoint_dir="/c"))))
    assert variables(own)["JUPYTER_GPU_CHECKPOINT_DIR"] == "/c"


def test_what_lies_elsewhere_in_an_image_is_not_said():
    """The PATH of this machine would hide that of the image; what was asked for by name stays."""
    names = {
        "PATH": "/home/ada/venv/bin",
        "VIRTUAL_ENV": "/home/ada/venv",
        "CONDA_PREFIX": "/c",
        "SEED": "1",
        "LANG": "C",
    }
    found = variables(container(kubernetes(work(a_job("x", environment=names)))))
    assert {name: found[name] for name in names if name in found} == {"SEED": "1", "LANG": "C"}


def test_a_secret_is_one_of_the_cluster():
    """Its value is in no file; how to make it stands at the head."""
    text = kubernetes(work(a_job("x", environment={"WANDB_API_KEY": "s3cret"})))
    assert "s3cret" not in text
    assert "# Before it: kubectl create secret generic digits-12 --from-literal=WANDB_API_KEY=..." in text
    (entry,) = (it for it in container(text)["env"] if it["name"] == "WANDB_API_KEY")
    assert entry["valueFrom"]["secretKeyRef"] == {"name": "digits-12", "key": "WANDB_API_KEY"}


@pytest.mark.parametrize("name", ["", "Größe 1", "x" * 200, "-a-", "1", "a\nkind: Pod", "日本"])
def test_its_name_is_one_of_kubernetes(name):
    """Whatever people called it; pods of an index add to it, so it is shorter than a label may be."""
    document = read(kubernetes(work(a_job("x", name=name))))
    found = document["metadata"]["name"]
    assert msgspec.convert(found, str) == found
    assert len(found) <= 52
    assert all(char.islower() or char.isdigit() or char == "-" for char in found)
    assert found[0].isalpha()
    assert found[-1].isalnum()


def test_what_is_no_utf_8_is_refused():
    """YAML cannot say it; what can is named."""
    for job in (a_job("x", b"\xff"), a_job("x", folder="base64:L/8="), a_job("x", environment={"A": "base64:/w=="})):
        with pytest.raises(InvalidAsk, match="is no UTF-8") as error:
            kubernetes(work(job))
        assert "slurm" in (error.value.hint or "")


def test_its_head_is_a_comment():
    """Whatever stands in names and records."""
    odd = {"A_TOKEN\nkind: Pod": "x"}  # a secret's name is said, and its value is not
    it = a_job(
        "x",
        environment=odd,
        name="a\nkind: Pod",
        after=(Dependency(workload=3),),
        recorded={"git_commit": "abc\nkind: Pod"},
    )
    lines = kubernetes(work(it)).splitlines()
    assert "# It came after job 3." in lines
    assert all(line.startswith("#") for line in lines[: lines.index("apiVersion: batch/v1")])


@pytest.mark.parametrize("word", ["a\u202eb", "\x9b31m", "\x7f", "\U0001f469\U000e0041\u202e$x"])
def test_nothing_in_it_steers_a_terminal(word):
    """It is printed where nobody names a file; it says the same all the same."""
    text = kubernetes(work(a_job("x", word, environment={"A": word}, recorded={"git_commit": word})))
    assert text.replace("\n", "").isprintable()
    (it,) = msgspec.yaml.decode(text)["spec"]["template"]["spec"]["containers"]
    assert it["command"] == ["x", word.replace("$", "$$")]
