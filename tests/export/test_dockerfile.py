"""A Dockerfile is one by hadolint's reading, and its command and variables are those of the job."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.export import TARGETS, dockerfile
from jupyter_gpu.model import Ask

from .ground import HOSTILE, a_job, an_array, run, teller, told, work

PYTHON = {"python": "/home/ada/venv/bin/python", "python_version": "3.11.7"}
PACKAGES = (
    b"# of /home/ada/venv/bin/python\nmine @ file:///home/ada/mine (editable)\nnumpy==2.1.0\ntorch==2.3.1+cu121\n"
)


def checked(text: str) -> str:
    """The text, after the checker has read it and has nothing to say."""
    program = shutil.which("hadolint", path=Path(sys.executable).parent)
    assert program is not None, "the checker comes with the extra `test`"
    done = subprocess.run([program, "--no-color", "-"], input=text.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode()) == (0, ""), done.stdout.decode() + text
    return text


def instruction(text: str, name: str) -> list[str]:
    """What stands behind each of these."""
    joined = text.replace("\\\n", "")
    return [line.removeprefix(f"{name} ") for line in joined.splitlines() if line.startswith(f"{name} ")]


def command(text: str) -> list[str]:
    """The words that its container runs; in this form no shell reads them."""
    (line,) = instruction(text, "CMD")
    return json.loads(line)


def environment(text: str) -> dict[str, str]:
    """What its variables come to: in quotes a backslash stands before what is meant as it is."""
    found = {}
    for line in instruction(text, "ENV"):
        name, _, value = line.partition("=")
        quoted = re.fullmatch(r'"((?:[^"\\$]|\\["\\$])*)"', value)
        assert quoted is not None or re.fullmatch(r"[\w,./+@-]*", value), value
        found[name] = value if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    return found


def test_it_builds_on_the_python_and_the_packages_of_the_record():
    """What is of no index is named, and left to whoever builds it; the interpreter is the image's own."""
    text = checked(
        dockerfile(work(a_job(PYTHON["python"], "train.py", folder="/home/ada", recorded=PYTHON), packages=PACKAGES))
    )
    assert instruction(text, "FROM") == ["python:3.11-slim"]
    assert instruction(text, "WORKDIR") == ["/home/ada"]
    (run_,) = instruction(text, "RUN")
    assert run_.split() == ["pip", "install", "--no-cache-dir", "numpy==2.1.0", "torch==2.3.1+cu121"]
    assert "# Not of an index, install it yourself: mine @ file:///home/ada/mine (editable)" in text
    assert command(text) == ["python", "train.py"]


def test_packages_that_were_not_asked_for_are_counted_and_left_to_whoever_builds_it():
    """A script that imports one of two hundred needs no two hundred."""
    recorded = PYTHON | {"packages": "182"}
    text = checked(dockerfile(work(a_job(PYTHON["python"], "train.py", recorded=recorded))))
    assert instruction(text, "RUN") == []
    assert "or all 182: `jupyter gpu export 12 --to dockerfile --packages`." in text


@pytest.mark.parametrize("system", sorted(TARGETS))
def test_places_of_this_machine_alone_go_nowhere_and_are_named(system):
    """A certificate that is not there breaks every download; a Jupyter's settings are its own."""
    places = {"JUPYTER_CONFIG_DIR": "/here/jupyter", "SSL_CERT_FILE": "/here/ca", "REQUESTS_CA_BUNDLE": "/here/ca"}
    text = TARGETS[system](work(a_job("x", environment=places | {"SEED": "1"})))
    assert "/here" not in text
    assert f"lies on this machine: {', '.join(sorted(places))}." in text
    assert "SEED" in text


def test_an_image_that_was_asked_for_is_the_base():
    """What it holds is its own affair."""
    text = checked(dockerfile(work(a_job("python", "x.py", image="lab/torch:2.3", recorded=PYTHON), packages=PACKAGES)))
    assert (instruction(text, "FROM"), instruction(text, "RUN")) == (["lab/torch:2.3"], [])


def test_what_is_no_python_builds_on_an_image_for_gpus():
    """A compiled program finds the libraries of CUDA there."""
    text = checked(dockerfile(work(a_job("./solver"))))
    assert instruction(text, "FROM")[0].startswith("nvidia/cuda:")


def test_every_word_and_variable_arrives_as_it_was(tmp_path):
    """Those that no ENV can say too: the command is really run, and the bytes are compared."""
    names = {f"V{n}": word for n, word in enumerate(HOSTILE)} | {"odd.name": "x y"}
    text = checked(dockerfile(work(a_job(*teller(tmp_path), *HOSTILE, environment=names, folder=str(tmp_path)))))
    done = run(command(text), tmp_path, {"PATH": "/usr/bin:/bin", **environment(text)})
    found = told(done.stdout)
    assert found.words == [word.encode() for word in HOSTILE]
    assert {name: found.variables[name.encode()].decode() for name in names} == names
    assert not (tmp_path / "sprung").exists()


def test_the_jobs_of_an_array_are_told_by_a_variable(tmp_path):
    """One image runs each of them."""
    jobs = an_array(3, *teller(tmp_path), "{index}", "$(x)", folder=str(tmp_path), environment={"A": "1\n2"})
    text = checked(dockerfile(work(*jobs)))
    assert "-e JUPYTER_GPU_ARRAY_INDEX=1" in text
    for index in (1, 3):
        environ = {"PATH": "/usr/bin:/bin", "JUPYTER_GPU_ARRAY_INDEX": str(index)}
        found = told(run(command(text), tmp_path, environ).stdout)
        assert found.words == [str(index).encode(), b"$(x)"]
        assert (found.variables[b"A"], found.variables[b"JUPYTER_GPU_PARAMETERS"]) == (b"1\n2", b'{"lr": %d}' % index)
    assert run(command(text), tmp_path, {"PATH": "/bin", "JUPYTER_GPU_ARRAY_INDEX": "9"}).returncode == 2


def test_a_secret_is_in_no_image():
    """It is given when the container is started."""
    text = dockerfile(work(a_job("x", environment={"HF_TOKEN": "s3cret", "PATH": "/here", "SEED": "1"})))
    assert "s3cret" not in text
    assert "-e HF_TOKEN" in text
    assert "SEED" in environment(text)
    assert "PATH" not in environment(text)


def test_a_folder_with_odd_signs_is_another_one_there():
    """A builder would read them as variables."""
    assert instruction(checked(dockerfile(work(a_job("x", folder="/a $b\nc")))), "WORKDIR") == ["/work"]


def test_how_to_build_and_run_it_stands_at_its_head():
    """With the GPUs, the grace, and a place outside for its checkpoints."""
    text = dockerfile(work(a_job("x", folder="/h", grace_seconds=60, name="a\nRUN rm")))
    assert "#   docker build -f Dockerfile -t a-run-rm-12 .\n" in text
    expected = '--stop-timeout=60 --gpus 2 -v "$PWD/.jupyter-gpu:/h/.jupyter-gpu" a-run-rm-12\n'
    assert f"#   docker run --rm --ipc=host {expected}" in text
    assert "--gpus" not in dockerfile(work(a_job("x", ask=Ask(devices=0))))
    assert instruction(text, "RUN") == []


def test_what_is_no_utf_8_is_refused():
    """A Dockerfile cannot say it."""
    with pytest.raises(InvalidAsk, match="is no UTF-8"):
        dockerfile(work(a_job("x", b"\xff")))


def test_what_would_be_an_instruction_of_its_own_stays_a_word():
    """A package's name, an image or a version from a record that somebody has written."""
    recorded = {"python": "/p\nRUN rm", "python_version": "3.11\nRUN rm", "git_branch": "b\nRUN rm", "git_commit": "c"}
    text = dockerfile(work(a_job("x", recorded=recorded), packages=b"a==1\\\nRUN rm==1\nb==1; RUN rm\n"))
    assert instruction(text, "RUN") == []
    image = dockerfile(work(a_job("x", image="a\nRUN rm")))
    assert instruction(image, "RUN") == []
