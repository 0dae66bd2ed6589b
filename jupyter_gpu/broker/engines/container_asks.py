"""Whether a container engine can be used here and now by an account: asked of the engine itself, as that account.

What can be seen at submission is said then, while somebody is there to read it: that no daemon answers, or that it does
not let this user in. The answer is kept for a while and for all that this account submits, so that the many jobs of an
array ask once, and one whose engine hangs waits once.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import container_plan, containers, errand

_KEPT_SECONDS = 15.0
_ANSWER_SECONDS = 4.0
_LONGEST = 300
_MOST_KEPT = 256


class Asker(NamedTuple):
    """Who asks, and by which variables the engine is found."""

    account: str
    uid: int
    environment: tuple[tuple[str, str], ...]
    #: In what it is asked: see `errand`.
    fence: Mapping[str, Any]


_kept: dict[tuple[str, int], tuple[float, str]] = {}


def asker(account: str, uid: int, environment: Mapping[str, str], fence: Mapping[str, Any]) -> Asker:
    """One who asks, with what of a job's environment an engine goes by."""
    given = {name: environment[name] for name in containers.CLIENTS if name in environment}
    given["PATH"] = container_plan.search_path()
    try:
        given |= {"HOME": pwd.getpwuid(uid).pw_dir, "USER": account}
    except KeyError:  # a container runs as a number without a name
        given.setdefault("HOME", "/")
    return Asker(account, uid, tuple(sorted(given.items())), fence)


def why_not(engine: str, who: Asker) -> str:
    """Why this engine runs nothing for this account; empty where it does, as far as it says. It may take seconds."""
    if engine == containers.DOCKER and (why := _daemon_elsewhere(who)):
        return why
    kept = _kept.get((engine, who.uid))
    if kept is not None and time.monotonic() < kept[0]:
        return kept[1]
    answer = _ASKS[engine](who)
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[engine, who.uid] = time.monotonic() + _KEPT_SECONDS, answer
    return answer


def _daemon_elsewhere(who: Asker) -> str:
    host = dict(who.environment).get("DOCKER_HOST", containers.DOCKER_SOCKET)
    if host.startswith("unix://"):
        return ""
    return f"DOCKER_HOST names a daemon elsewhere ({host[:100]}), which has none of the GPUs here"


def _docker(who: Asker) -> str:
    code, said = _ask(who, "docker", "--version")
    if code == 0 and "podman" in said.lower():
        return "the program docker is podman's here; ask for podman"
    # A daemon that does not answer is told in the same words, and with an empty list by some clients.
    code, said = _ask(who, "docker", "info", "--format", "{{json .SecurityOptions}}")
    if code != 0 or not said.startswith("["):
        return _last(said) or "its daemon does not answer"
    if "name=rootless" in said:
        return "its daemon runs without root, and then files would not be the user's; podman does without a daemon"
    return ""


def _podman(who: Asker) -> str:
    code, said = _ask(who, "podman", "info", "--format", "{{.Host.OCIRuntime.Name}}")
    return "" if code == 0 else _last(said) or "it cannot be used"


def _apptainer(who: Asker) -> str:
    code, said = _ask(who, "apptainer", "--version")
    return "" if code == 0 else _last(said) or "it cannot be used"


_ASKS = {containers.DOCKER: _docker, containers.PODMAN: _podman, containers.APPTAINER: _apptainer}


def _ask(who: Asker, *words: str) -> tuple[int | None, str]:
    user = None
    if who.uid != os.geteuid():
        try:
            entry = pwd.getpwuid(who.uid)
        except KeyError as error:
            return None, str(error)
        user = (who.uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid))
    environment = dict(who.environment)
    if words[0] == containers.DOCKER:
        environment.setdefault("DOCKER_HOST", containers.DOCKER_SOCKET)
    code, output, errors = errand.run(words, environment, _ANSWER_SECONDS, user=user, fence=who.fence)
    if code is None:
        return None, f"it did not answer within {_ANSWER_SECONDS:.0f} s"
    return code, (output if code == 0 and output.strip() else errors).strip()


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""
