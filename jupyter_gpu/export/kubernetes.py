"""A Job of Kubernetes, for `kubectl apply -f`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from ..training import EXIT_DO_NOT_RETRY, EXIT_REQUEUE
from .work import Work, case_of, heading, is_of_this_machine, must_be_text, text

_FOLDER, _SHARED_MEMORY = "folder", "shared-memory"


def kubernetes(it: Work) -> str:
    """Write the Job. Its pods see the folder at its place, as on nodes that share it."""
    must_be_text("a file for Kubernetes", it.folder, it.checkpoint_dir or "", *it.common().values())
    spec: dict[str, Any] = {
        "backoffLimit": it.spec.retries or 0,
        # What the cluster itself takes away, and what asks to be started anew, counts for no failure.
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [EXIT_REQUEUE]}},
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [EXIT_DO_NOT_RETRY]}},
            ]
        },
    }
    if it.is_array:
        count = len(it.jobs)
        spec |= {"completionMode": "Indexed", "completions": count, "parallelism": min(it.at_most or count, count)}
    spec["template"] = {"metadata": {"labels": {"app": it.name}}, "spec": _pod(it)}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": it.name}, "spec": spec}
    return "\n".join([*heading(it, *_notes(it)), _yaml(document)])


def _yaml(document: dict[str, Any]) -> str:
    """Write it as people do; where a terminal would be steered by it, with each word in quotes, and that escaped."""
    plain = msgspec.yaml.encode(document).decode()
    if plain.replace("\n", "").isprintable():
        return plain
    quoted = json.dumps(document, ensure_ascii=False, indent=2)  # is YAML too, but for the escapes that it has not
    return "".join(char if char.isprintable() or char == "\n" else f"\\U{ord(char):08X}" for char in quoted) + "\n"


def _notes(it: Work) -> Iterator[str]:
    if it.spec.image is None:
        yield f"The image is built with what `jupyter gpu export {it.id} --to dockerfile` writes."
    yield "Its folder is one of the nodes here; where they share none, put a claim in place of hostPath."
    if it.ask.device_class is not None and not it.ask.device_class.startswith("mig-"):
        yield f"It asked for GPUs of the class {it.ask.device_class!a}: add a nodeSelector that finds them."
    if it.withheld:
        words = " ".join(f"--from-literal={name}=..." for name in it.withheld)
        yield f"Before it: kubectl create secret generic {it.name} {words}"


def _pod(it: Work) -> dict[str, Any]:
    pod: dict[str, Any] = {"restartPolicy": "Never", "terminationGracePeriodSeconds": it.grace_seconds}
    if it.ask.duration_seconds is not None:
        pod["activeDeadlineSeconds"] = it.ask.duration_seconds
    mounts: list[dict[str, Any]] = [
        {"name": _FOLDER, "mountPath": it.folder},
        {"name": _SHARED_MEMORY, "mountPath": "/dev/shm"},  # noqa: S108 - its name everywhere
    ]
    volumes: list[dict[str, Any]] = [
        {"name": _FOLDER, "hostPath": {"path": it.folder}},
        {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}},
    ]
    for number, mount in enumerate(map(text, it.spec.mounts)):
        source, _, rest = mount.partition(":")
        target, _, mode = rest.partition(":")
        volumes.append({"name": f"mount-{number}", "hostPath": {"path": source}})
        mounts.append({"name": f"mount-{number}", "mountPath": target} | ({"readOnly": True} if mode == "ro" else {}))
    container = {
        "name": "job",
        "image": it.spec.image or f"{it.name}:latest",
        "workingDir": it.folder,
        "command": _command(it),
        "env": list(_environment(it)),
        "resources": {"limits": _limits(it)},
        "volumeMounts": mounts,
    }
    return pod | {"containers": [container], "volumes": volumes}


def _command(it: Work) -> list[str]:
    if it.is_array:
        return ["/bin/sh", "-c", literal(case_of(it, "JOB_COMPLETION_INDEX", 0))]
    (one,) = it.jobs
    must_be_text("a file for Kubernetes", *one.argv)
    return [literal(word) for word in one.argv]


def literal(word: str) -> str:
    """Write a word that Kubernetes reads as it is: it puts variables in place of $(NAME), and $ for $$."""
    return word.replace("$", "$$")


def _environment(it: Work) -> Iterator[dict[str, Any]]:
    for name, value in it.common().items():
        if not is_of_this_machine(name):
            yield {"name": name, "value": literal(value)}
    for name in it.withheld:
        yield {"name": name, "valueFrom": {"secretKeyRef": {"name": it.name, "key": name}}}
    own = literal(f"{it.folder.rstrip('/')}/.jupyter-gpu/{it.name}") + (
        "/$(JOB_COMPLETION_INDEX)" if it.is_array else ""
    )
    place = own if it.checkpoint_dir is None else literal(it.checkpoint_dir)
    if it.is_array and it.checkpoint_dir is None:
        field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        yield {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": field}}}
    yield {"name": "JUPYTER_GPU_CHECKPOINT_DIR", "value": place}


def _limits(it: Work) -> dict[str, str]:
    limits = {}
    if it.ask.devices:
        kind = it.ask.device_class or ""
        limits[f"nvidia.com/{kind if kind.startswith('mig-') else 'gpu'}"] = str(it.ask.devices)
    if it.ask.cpus is not None:
        limits["cpu"] = str(it.ask.cpus)
    if it.ask.host_memory_bytes is not None:
        limits["memory"] = str(it.ask.host_memory_bytes)
    return limits
