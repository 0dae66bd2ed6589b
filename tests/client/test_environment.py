"""Which variables a job gets, and that it can be started with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.environment import LONGEST_STRING_BYTES, MOST_TOTAL_BYTES, looks_secret, scrub, select
from jupyter_gpu.errors import InvalidAsk


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JPY_PARENT_PID", "1"),
        ("JPY_SESSION_NAME", "x.ipynb"),
        ("JUPYTERHUB_API_TOKEN", "t"),
        ("JUPYTER_TOKEN", "t"),
        ("JUPYTER_SERVER_URL", "http://x"),
        ("JUPYTER_GPU_TOKEN", "t"),
        ("MPLBACKEND", "module://matplotlib_inline.backend_inline"),
        ("MPLBACKEND", "module://ipympl.backend_nbagg"),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("SLURM_JOB_ID", "1"),
        ("BASH_FUNC_module%%", "() {  eval 1\n}"),
        ("HF_TOKEN", "t"),
        ("WANDB_API_KEY", "t"),
        ("AWS_SECRET_ACCESS_KEY", "t"),
        ("DB_PASSWORD", "t"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/x"),
        ("http_proxy", "http://ada:s3cret@proxy:3128"),
    ],
)
def test_marks_and_secrets_stay_out(name, value):
    """Unless the user gives them by name; what only the broker may say stays out even then (PmagPy/PmagPy#919)."""
    assert scrub({name: value}) == ({}, (name,))
    kept, dropped = scrub({name: value}, given=[name])
    is_ours = name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "JUPYTER_GPU_TOKEN")
    assert (kept, dropped) == (({}, (name,)) if is_ours else ({name: value}, ()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MPLBACKEND", "Agg"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("PATH", "/usr/bin"),
        ("JUPYTER_PATH", "/opt/jupyter"),
        ("KEYBOARD", "us"),
        ("PASSENGER_COUNT", "3"),
        ("http_proxy", "http://proxy:3128"),
        ("EMPTY", ""),
        ("LINES", "a\nb\n"),
        ("WANDB_PROJECT", "digits"),
        ("PATTERN", "x"),
    ],
)
def test_what_only_sounds_like_one_passes(name, value):
    """A word inside another is no secret."""
    assert scrub({name: value}) == ({name: value}, ())


def test_one_string_over_the_kernels_limit_is_refused_by_name_and_size():
    """Linux starts nothing with a string of 128 KiB, whatever the total (DataBiosphere/toil#3955)."""
    fits = "x" * (LONGEST_STRING_BYTES - len("BIG=") - 1)
    assert scrub({"BIG": fits})[0] == {"BIG": fits}
    with pytest.raises(InvalidAsk, match=rf"'BIG' has {len(fits) + 1} bytes"):
        scrub({"BIG": fits + "x"})
    # What stays out anyway refuses nothing.
    assert scrub({"BASH_FUNC_x%%": fits + "x"})[0] == {}


def test_many_small_ones_pass_up_to_a_total():
    """5000 small variables are no trouble; a megabyte of them is (DataBiosphere/toil#3955)."""
    many = {f"V{n}": "x" * 20 for n in range(5000)}
    assert scrub(many) == (many, ())
    with pytest.raises(InvalidAsk, match="together"):
        scrub({f"V{n}": "x" * 1000 for n in range(MOST_TOTAL_BYTES // 1000)})


@pytest.mark.parametrize("name", ["", "A=B", "A\0B", "base64:!"])
def test_what_is_no_name_is_refused(name):
    """Neither the kernel nor a shell could carry it."""
    with pytest.raises(InvalidAsk):
        scrub({name: "x"})


def test_a_zero_byte_in_a_value_is_refused():
    """It would end the string early, without a word."""
    with pytest.raises(InvalidAsk):
        scrub({"A": "x\0y"})


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=10))
def test_all_is_kept_or_named(environment):
    """Whatever comes is kept as it is, dropped by name, or refused as a whole; nothing is changed."""
    try:
        kept, dropped = scrub(environment)
    except InvalidAsk:
        return
    assert kept == {name: value for name, value in environment.items() if name not in dropped}
    assert set(dropped) | set(kept) == set(environment)
    assert scrub(kept) == (kept, ())


def test_a_face_sends_what_is_needed_and_what_is_named():
    """Enough to find the interpreter, not the rest of a kernel; given ones win, and what would be dropped is named."""
    environ = {
        "PATH": "/bin",
        "VIRTUAL_ENV": "/venv",
        "CONDA_PREFIX": "/conda",
        "LC_ALL": "C.UTF-8",
        "HOME": "/home/ada",
        "USER": "ada",
        "EDITOR": "vi",
        "HTTPS_PROXY": "http://ada:pw@proxy",
        "HF_TOKEN": "t",
        "ODD": "\udcff",
    }

    sent, keep = select(environ, ["HF_TOKEN", "PATH=/mine", "EMPTY=", "EQ=a=b", "ODD"])

    assert sent == {
        "PATH": "/mine",
        "VIRTUAL_ENV": "/venv",
        "CONDA_PREFIX": "/conda",
        "LC_ALL": "C.UTF-8",
        "HF_TOKEN": "t",
        "EMPTY": "",
        "EQ": "a=b",
        "ODD": "base64:/w==",
    }
    assert keep == ("HF_TOKEN",)
    assert scrub(sent, given=keep) == (sent, ())


def test_a_variable_that_is_not_set_cannot_be_passed_on():
    """Said at once, with what to write."""
    with pytest.raises(InvalidAsk, match="NOPE") as caught:
        select({}, ["NOPE"])
    assert "NOPE=VALUE" in (caught.value.hint or "")


def test_secrets_in_addresses_are_seen():
    """A name and a password before the @."""
    assert looks_secret("URL", "postgres://ada:pw@db/x")
    assert not looks_secret("URL", "postgres://ada@db/x")
    assert not looks_secret("TIME", "10:30@home")
