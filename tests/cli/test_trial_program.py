"""What `doctor --trial` runs: it computes, checks, and says how fast; on a stand-in for the driver's library."""

import json
import os
import select
import subprocess
import sys

import pytest

from jupyter_gpu.cli import trial_program
from jupyter_gpu.cli.trial_program import side_for, word_of
from tests.cli.trial.library import HERE, build, needs_compiler


@pytest.fixture(scope="session")
def cuda(tmp_path_factory) -> dict[str, str]:
    """Give an environment in which the driver's library is the stand-in."""
    return {"LD_LIBRARY_PATH": str(build(tmp_path_factory.mktemp("cuda"))), "CUDA_VISIBLE_DEVICES": "GPU-1"}


def command(engines: str, seconds: float = 0.05) -> list[str]:
    """Give the command line as it is run."""
    return [sys.executable, "-P", trial_program.__file__, engines, str(seconds)]


def found(engines: str, environ: dict[str, str], **more: str) -> dict:
    """Run it and read its answer."""
    environ = {**os.environ, **environ, **more}
    done = subprocess.run(command(engines), env=environ, capture_output=True, text=True, check=False, timeout=50)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == ("error" in answer), done.stderr
    return answer


@needs_compiler
def test_memory_is_copied_and_checked(cuda):
    """Every word is checked, the speed is told, and it is the GPU that it was pinned to."""
    answer = found("cuda", cuda)

    assert (answer["engine"], answer["card"], answer["unit"]) == ("CUDA driver, copies", "stand-in of GPU-1", "GB/s")
    assert (answer["checked"], answer["wrong"]) == ((16 << 20) // 4, 0)  # a quarter of what is free
    assert answer["speed"] > 0
    assert answer["seconds"] >= 0.05


@needs_compiler
def test_one_wrong_word_is_found(cuda):
    """A copy that changes a word is found however many copies follow it."""
    assert found("cuda", cuda, CUDA_STANDIN_SPOIL="3")["wrong"] == 1


@needs_compiler
@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("cuInit:100", "cuInit failed with CUDA_ERROR_NO_DEVICE (100)"),
        ("cuMemAlloc_v2:2", "cuMemAlloc_v2 failed with CUDA_ERROR_OUT_OF_MEMORY (2)"),
        ("cuCtxSynchronize:214", "cuCtxSynchronize failed with an unknown error (214)"),
        ("cuMemcpyDtoD_v2:700", "cuMemcpyDtoD_v2 failed with"),
        ("cuMemcpyDtoH_v2:999", "cuMemcpyDtoH_v2 failed with"),
    ],
)
def test_a_call_that_fails_is_named(cuda, fails, said):
    """The call, the driver's name of the error, and its number."""
    assert said in found("cuda", cuda, CUDA_STANDIN_FAIL=fails)["error"]


@needs_compiler
def test_a_full_card_is_no_crash(cuda):
    """Where nothing is free, that is what is said."""
    assert "only 100 bytes" in found("cuda", cuda, CUDA_STANDIN_FREE_BYTES="100")["error"]


def test_nothing_to_compute_with(tmp_path):
    """Without driver and libraries it says what was missing of each."""
    (tmp_path / "libcuda.so.1").write_bytes(b"")  # a real one elsewhere must not be found instead

    answer = found("torch,cuda", {"LD_LIBRARY_PATH": str(tmp_path)})

    assert answer["error"] == "nothing here can compute on a GPU"
    assert answer["has_no_engine"] is True  # which says nothing about the GPU
    assert set(answer["skipped"]) == {"torch", "cuda"}


def test_the_first_that_can_use_a_gpu_is_taken():
    """PyTorch and JAX without CUDA are passed over, with the reason; products are checked on the way."""
    answer = found("torch,jax,cupy,cuda", {"PYTHONPATH": str(HERE / "fake")})

    assert (answer["engine"], answer["card"], answer["unit"]) == ("CuPy 13.0", "a processor", "TFLOP/s")
    assert set(answer["skipped"]) == {"torch", "jax"}
    assert answer["checked"] == 1024**2 + 48
    assert answer["wrong"] == 0


def test_a_wrong_product_is_found():
    """One entry that is not what it was before."""
    assert found("cupy", {"PYTHONPATH": str(HERE / "fake")}, FAKE_CUPY_SPOILS="1")["wrong"] >= 1


@needs_compiler
def test_a_library_without_code_for_this_gpu_says_nothing_about_the_gpu(cuda):
    """Then the next one is tried; any other failure is the finding."""
    fake = cuda | {"PYTHONPATH": str(HERE / "fake")}

    old = found("cupy,cuda", fake, FAKE_CUPY_FAILS="CUDA error: no kernel image is available for execution")
    sick = found("cupy,cuda", fake, FAKE_CUPY_FAILS="CUDA error: uncorrectable ECC error encountered\nmore")

    assert (old["engine"], list(old["skipped"])) == ("CUDA driver, copies", ["cupy"])
    assert sick["error"] == "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def test_a_module_in_this_folder_is_none(tmp_path, monkeypatch):
    """A torch.py that lies about is not what was installed."""
    (tmp_path / "torch.py").write_text("raise SystemExit('mine')\n")
    monkeypatch.chdir(tmp_path)

    assert "torch" in found("torch", {})["skipped"]


@needs_compiler
@pytest.mark.parametrize("engine", ["cuda", "torch"])
def test_it_ends_with_who_started_it(cuda, tmp_path, engine):
    """However its parent ends, and while it still loads a library too: by then the GPU is somebody else's."""
    busy = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    (tmp_path / "torch.py").write_text(busy)
    (tmp_path / "sitecustomize.py").write_text("import os; print(os.getpid(), flush=True)")
    environ = {**os.environ, **cuda, "PYTHONPATH": str(tmp_path)}
    words = " ".join(f"'{word}'" for word in command(engine, 600))

    with subprocess.Popen(["sh", "-c", f"{words} $$ & cat"], env=environ, stdin=subprocess.PIPE, stdout=-1) as parent:
        said = [int(parent.stdout.readline()) for _ in range(2 if engine == "torch" else 1)]
        pidfd = os.pidfd_open(said[-1])
        parent.kill()
        assert select.select([pidfd], [], [], 30)[0], "it goes on"
        os.close(pidfd)


def test_it_begins_nothing_for_one_who_has_ended():
    """Who started it may be gone before it could ask to end with that."""
    done = subprocess.run([*command("cuda", 600), "1"], capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize(("free", "side"), [(80 << 30, 8192), (5 << 30, 4096), (1 << 30, 2048), (1, 1024), (0, 1024)])
def test_the_matrices_fit(free, side):
    """They take a small part of what is free."""
    assert side_for(free) == side


def test_blocks_differ():
    """What is copied to the wrong place is not what belongs there."""
    words = [word_of(block) for block in range(1024)]

    assert len(set(words)) == 1024
    assert all(0 < word < 2**32 for word in words)
