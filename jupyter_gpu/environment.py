"""Which variables a job gets from where it was submitted: enough to find its interpreter, and what its user asks for.

Pure. A face sends a selection (`select`), the broker scrubs whatever it is sent (`scrub`): what marks a kernel, names
a GPU or looks like a secret stays out of the job and out of the store, unless the user gave it by name
(PmagPy/PmagPy#919). Linux starts no program with one string over 128 KiB, whatever the total, so such an environment is
refused while somebody is there to read why (DataBiosphere/toil#3955). Names and values are packed by `pack_bytes`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping

from .errors import InvalidAsk
from .model import pack_bytes, unpack_bytes

#: The kernel's MAX_ARG_STRLEN, its closing zero included.
LONGEST_STRING_BYTES = 128 << 10
#: Well below what the kernel takes for arguments and environment together with the usual stack of 8 MiB.
MOST_TOTAL_BYTES = 1 << 20

# Without these a command or its libraries are not found, or speak another language than in the terminal.
_NEEDED = re.compile(
    r"PATH|VIRTUAL_ENV|CONDA_(PREFIX|DEFAULT_ENV|EXE|PYTHON_EXE|SHLVL)|MAMBA_(EXE|ROOT_PREFIX)|PIXI_PROJECT_ROOT"
    r"|LANG|LANGUAGE|LC_[A-Z]+|TZ|PYTHON(PATH|HOME|NOUSERSITE|USERBASE|UTF8|IOENCODING)|LD_LIBRARY_PATH|LIBRARY_PATH"
    r"|CUDA_(HOME|PATH)|JULIA_(DEPOT_PATH|PROJECT|LOAD_PATH)|R_(HOME|LIBS|LIBS_USER)|MODULEPATH|LOADEDMODULES"
    r"|XDG_(CACHE|DATA|CONFIG)_HOME|HF_HOME|TORCH_HOME|JUPYTER_(PATH|DATA_DIR|CONFIG_DIR|PLATFORM_DIRS)"
    r"|(HTTPS?|ALL|NO)_PROXY|(https?|all|no)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE"
)
# What only the broker may say to a job; even when it is given by name.
_OURS = re.compile(
    r"(CUDA|NVIDIA)_VISIBLE_DEVICES|JUPYTER_GPU_(JOB|ATTEMPT|CHECKPOINT_DIR|RESUME_FROM|DEADLINE|NOTICE_FILE|TOKEN|URL"
    r"|RESERVATION|KERNEL)"
)
# The marks of the kernel, the server, the batch job or the shell that the submission came from.
_MARKS = re.compile(
    r"JPY_.*|JUPYTERHUB_.*|PYDEVD_.*"
    r"|JUPYTER_(?!PATH$|DATA_DIR$|CONFIG_DIR$|PLATFORM_DIRS$|PREFER_ENV_PATH$).*"
    r"|SLURM_.*|SBATCH_.*|PMI_.*|PMIX_.*|KUBERNETES_.*|BASH_FUNC_.*|BASH_ENV|ENV|_|SHLVL|OLDPWD|PWD"
)
_INLINE = re.compile(r"module://.*|.*inline.*|nbagg|widget", re.IGNORECASE)
_SECRET_WORDS = {
    *("TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASS", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY"),
    *("COOKIE", "PAT"),
}
_SECRET_PAIRS = re.compile(r"(API|ACCESS|PRIVATE|SECRET|AUTH|ACCOUNT|ENCRYPTION|CRYPT|SIGNING)_?KEY")
# A name and a password in an address, as in http://ada:secret@proxy/.
_SECRET_VALUE = re.compile(r"://[^/@\s:]*:[^/@\s]+@")


def scrub(environment: Mapping[str, str], *, given: Collection[str] = ()) -> tuple[dict[str, str], tuple[str, ...]]:
    """Split into what the job gets and the names of what stays out; `given` names what the user asked for by name.

    Raises InvalidAsk where the rest could not be handed to a program.
    """
    given = frozenset(given)
    dropped = {
        name
        for name, value in environment.items()
        if _OURS.fullmatch(name) or (name not in given and stays_out(name, value))
    }
    kept = {name: value for name, value in environment.items() if name not in dropped}
    _refuse_what_cannot_start(kept)
    return kept, tuple(sorted(dropped))


def stays_out(name: str, value: str) -> bool:
    """Whether a variable that nobody asked for by name stays out of the job."""
    if _OURS.fullmatch(name) or _MARKS.fullmatch(name):
        return True
    if name == "MPLBACKEND":  # inline plotting is the kernel's own; any other choice is the user's
        return _INLINE.fullmatch(value) is not None
    return looks_secret(name, value)


def looks_secret(name: str, value: str) -> bool:
    """Whether a name or a value looks like a secret. TOKENIZERS_PARALLELISM does not."""
    upper = name.upper()
    return (
        not _SECRET_WORDS.isdisjoint(upper.split("_"))
        or _SECRET_PAIRS.search(upper) is not None
        or _SECRET_VALUE.search(value) is not None
    )


def select(environ: Mapping[str, str], options: Iterable[str] = ()) -> tuple[dict[str, str], tuple[str, ...]]:
    """What a face sends: what is needed to run, and what the options `NAME` and `NAME=VALUE` name.

    The second part names what passes only because it was asked for; the broker keeps these.
    """
    chosen = {name: value for name, value in environ.items() if _NEEDED.fullmatch(name)}
    chosen = {name: value for name, value in chosen.items() if not stays_out(name, value)}
    given: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals and name not in environ:
            raise InvalidAsk(
                f"The variable {name!r} is not set here, so it cannot be passed on.",
                hint=f"Set it, or give a value: --env {name}=VALUE.",
            )
        given[name] = value if equals else environ[name]
    sent = {_pack(name): _pack(value) for name, value in (chosen | given).items()}
    return sent, tuple(sorted(_pack(name) for name, value in given.items() if stays_out(name, value)))


def _pack(text: str) -> str:
    return pack_bytes(os.fsencode(text))


def _refuse_what_cannot_start(environment: Mapping[str, str]) -> None:
    total = 0
    for name, value in environment.items():
        raw_name, raw_value = unpacked(name, "environment"), unpacked(value, name)
        if not raw_name or b"=" in raw_name or b"\0" in raw_name + raw_value:
            raise InvalidAsk(
                f"{name[:40]!r} cannot be a variable: a name has no '=', and neither part a zero byte.",
                hint="Correct the name, or leave the variable out.",
            )
        size = len(raw_name) + len(raw_value) + 2
        if size > LONGEST_STRING_BYTES:
            raise InvalidAsk(
                f"The variable {name[:100]!r} has {len(raw_value)} bytes, and Linux starts no program with a variable "
                f"over {LONGEST_STRING_BYTES} bytes.",
                hint="Leave it out, or put its content into a file.",
            )
        total += size
    if total > MOST_TOTAL_BYTES:
        raise InvalidAsk(
            f"The {len(environment)} variables have {total} bytes together; {MOST_TOTAL_BYTES} are the most.",
            hint="Pass only what the job needs.",
        )


def unpacked(text: str, what: str) -> bytes:
    """The bytes of a packed text that came from outside, or InvalidAsk."""
    try:
        return unpack_bytes(text)
    except ValueError:  # a broken base64, or half a surrogate pair
        raise InvalidAsk(
            f"The text of {what[:100]!r} is no packed text.", hint='Write UTF-8, or "base64:" and base64.'
        ) from None
