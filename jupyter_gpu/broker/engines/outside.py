"""A job's container, as it is seen from outside: what lives of it, what its end was, and that it is removed.

Podman and apptainer start a job's processes below the supervisor, so all that is done to a plain tree reaches them.
Docker's daemon starts them elsewhere: what the supervisor has below it is only a client, which may die and leave the
job running. So they are found by the variables that they were started with, wherever they are; the notice, the closing
and the kill reach them like a tree's, and an attempt is not over while one of them lives. What the engine alone knows
is asked of it by the container's name, as the job's user and never as root. Standard library only: the launcher
imports it.
"""

from __future__ import annotations

import os
import re
import time

from . import containers, files, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ANSWER_SECONDS = 10.0
_TRIES, _AGAIN_SECONDS = 5, 0.1
#: What both say of a container that has never begun.
_NEVER = "0001-01-01"
_SEEN = "{{.State.OOMKilled}} {{.State.StartedAt}}"
#: Exit codes by which docker and podman, and apptainer, say that they themselves have failed.
_ENGINE_FAILED, _APPTAINER_FAILED = (125, 126, 127), 255
# What an init says when the command that it is to start cannot be: the container itself has begun then.
_NO_PROGRAM = re.compile(
    r"^\[FATAL tini \(\d+\)\] exec .* failed: |^ERROR \(catatonit:\d+\): failed to exec "
    r"|executable file not found in \$PATH|^FATAL:.*: (exec|stat) .*: (no such file|permission denied)"
)
_TAIL_CHARACTERS = 300
_TRIES_IT = {
    containers.PODMAN: "podman run --rm", containers.DOCKER: "docker run --rm", containers.APPTAINER: "apptainer exec"
}  # fmt: skip

# What engines say where another try is of no use, or where something is to be done first. In lower case.
_NO_IMAGE = (
    "unable to find image", "pull access denied", "manifest unknown", "repository does not exist", "no such image",
    "requested access to the resource is denied", "invalid reference format", "image not known", "could not open image",
    "short-name", "reading manifest", "initializing source", "failed to get checksum",
)  # fmt: skip
_REMEDIES = (
    (("cannot connect to the docker daemon", "is the docker daemon running"), "start docker's daemon"),
    (("permission denied while trying to connect", "dial unix"), "only who is in the group docker may use docker"),
    (("could not select device driver", "nvidia-container-cli", "unresolvable cdi"),
     "the NVIDIA Container Toolkit is missing or not set up (`jupyter gpu doctor` says what is)"),
    (("container-init", "catatonit"), "install catatonit, by which podman hands signals on"),
    (("subuid", "newuidmap", "cannot find mappings"), "the account needs lines in /etc/subuid and /etc/subgid"),
    (("setrlimit",),
     "this machine does not let it raise limits: set those of `ulimit -Hn` and `ulimit -Hu` in containers.conf, as "  # noqa: ISC004
     'default_ulimits = ["nofile=N:N", "nproc=N:N"]'),
)  # fmt: skip


class Container:
    """The container of one attempt."""

    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._plan: dict[str, Any] = spec["container"]
        self._tags = tags(folder, spec)
        self._seen: str | None = None

    def processes(self, tree: dict[int, procs.Proc]) -> dict[int, procs.Proc]:
        """What lives of it that is not below us, each topmost one as if we were its parent. OSError: not known."""
        if self._plan["engine"] != containers.DOCKER:
            return {}
        tagged = procs.tagged(self._tags)
        found = {pid: proc for pid, proc in tagged.items() if pid not in tree and self._is_the_users(pid)}
        everyone = procs.everyone() if found else {}
        for pid in list(found):
            found |= procs.descendants(pid, everyone)
        for proc in found.values():
            if proc.parent not in found:
                proc.parent = os.getpid()
        return found

    def _is_the_users(self, pid: int) -> bool:
        """Anybody may give a process of theirs the same variables, and would else keep the devices from others."""
        uid = self._spec["uid"]
        try:
            return procs.users_of(pid) == {os.geteuid() if uid is None else uid}
        except (FileNotFoundError, ProcessLookupError):
            return False

    def is_gone(self) -> bool:
        """Whether nothing of it lives, and nothing can begin any more. Asked when we have no child left."""
        try:
            if self.processes({}):
                return False
            self.look()
            self.remove()
            return not self.processes({})
        except OSError:
            return False

    def look(self) -> None:
        """Ask, once, what became of it: removed it can no longer be asked."""
        if self._seen is None and self._plan["engine"] != containers.APPTAINER:
            code, said = ask(self._spec, [self._plan["engine"], "inspect", "--format", _SEEN, self._plan["name"]])
            self._seen = said.strip() if code == 0 else ""

    def remove(self) -> None:
        """Have the engine end and remove it; one that is not there is no trouble."""
        remove(self._spec)

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of it for want of host memory, as the engine noted."""
        return (self._seen or "").startswith("true ")

    def failed(self, code: int | None, tail: bytes) -> dict[str, Any] | None:
        """The outcome where the command never began: what the engine failed of; None where it did begin."""
        engine = self._plan["engine"]
        said = _last_words(tail)
        has_no_program = _NO_PROGRAM.search(said) is not None
        if engine == containers.APPTAINER:
            began = code != _APPTAINER_FAILED or not said.startswith("FATAL:")
        else:
            self.look()
            # Of what has begun something is known, unless its daemon has died meanwhile.
            began = _NEVER not in self._seen if self._seen else code not in _ENGINE_FAILED
        if began and not has_no_program:
            return None
        low = tail.decode("utf-8", "replace").lower()
        # The job's own affair: an image that is not there or has no such program is not there at the next try either.
        is_its_own = has_no_program or any(word in low for word in _NO_IMAGE)
        remedy = next((f" ({what})" for words, what in _REMEDIES if any(it in low for it in words)), "")
        if not remedy and not is_its_own:
            remedy = f" (`{_TRIES_IT[engine]} {self._plan['image']} true` shows whether that is so without a job)"
        what = f"{self._spec['argv'][0]} in {self._plan['image']}"
        detail = f"{engine} could not run {what}: {said or f'it ended with exit code {code}'}{remedy}"
        return {"end": "launch-failed", "detail": detail[: files.LONGEST_DETAIL], "engine_fault": not is_its_own}


def tags(folder: str, spec: dict[str, Any]) -> list[bytes]:
    """The variables by which all processes of an attempt are found, as `NAME=value`.

    The path of its notice is one of them, since another broker on this machine may have a job of the same number.
    """
    found = procs.tags(spec["workload"], spec["attempt"]) | {"JUPYTER_GPU_NOTICE_FILE": f"{folder}/{files.NOTICE}"}
    return [os.fsencode(f"{name}={value}") for name, value in found.items()]


def _last_words(tail: bytes) -> str:
    """The last line that says something; engines end with a hint to their own help."""
    lines = [line.strip() for line in tail.decode("utf-8", "replace").splitlines()]
    told = [line for line in lines if line and not line.startswith(("See '", "Run 'docker"))]
    return told[-1][:_TAIL_CHARACTERS] if told else ""


def remove(spec: dict[str, Any]) -> None:
    """End and remove the container of an attempt, whatever is left of it; an engine may still be busy with its end."""
    plan = spec["container"]
    if plan["engine"] == containers.APPTAINER:
        return
    for _ in range(_TRIES):
        code, said = ask(spec, [plan["engine"], "rm", "--force", "--volumes", plan["name"]])
        if not code or "no such container" in said.lower():
            return
        time.sleep(_AGAIN_SECONDS)


def ask(spec: dict[str, Any], words: list[str], within_seconds: float = _ANSWER_SECONDS) -> tuple[int | None, str]:
    """What an engine says to a command of the job's user; None as code where it could not be asked, or hangs."""
    from . import errand  # noqa: PLC0415 - only a job in a container has a use for it

    user = None if spec["uid"] is None else (spec["uid"], spec["gid"], spec["groups"])
    fence = (spec.get("isolation") or {}).get("errands")
    code, output, errors = errand.run(words, spec["container"]["client"], within_seconds, user=user, fence=fence)
    return code, output or errors
