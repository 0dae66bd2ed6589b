"""The description of the API, made of the route table and the model: it cannot disagree with either."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ... import __version__
from ...model import API_VERSION, Change, Error

_REF = "#/components/schemas/{name}"
_VERBS = ("get", "post", "delete")

_ABOUT = """\
Share the GPUs of a lab. Callers on a Unix socket are known by the kernel, all others bring a token. Errors are
`{code, message, hint}`; to be over quota is none: such an ask is answered with 202 and waits, with its reason. What a
caller may not see answers 404, the same as what does not exist.
"""


class Operations(msgspec.Struct, frozen=True):
    """One route as it is described: its path with names in braces, and its operation for each verb."""

    path: str
    handler: Any

    def verbs(self) -> dict[str, Any]:
        """Verb -> operation."""
        found = {verb: getattr(getattr(self.handler, verb), "operation", None) for verb in _VERBS}
        return {verb: operation for verb, operation in found.items() if operation is not None}


def described(routes: Sequence[tuple[str, Any]]) -> list[Operations]:
    """The routes with their path parts named: workloads by id, devices by UUID or index, parts of a record by name."""
    return [Operations(_named(path), handler) for path, handler in routes]


def _named(path: str) -> str:
    for before, name in (("devices/", "device"), ("record/", "name"), ("", "id")):
        path = path.replace(f"{before}([^/]+)", f"{before}{{{name}}}")
    return path


def document(routes: Sequence[tuple[str, Any]]) -> str:
    """OpenAPI 3.1 as JSON text."""
    table = described(routes)
    operations = [operation for route in table for operation in route.verbs().values()]
    answers = [answer for op in operations for answer in _by_status(op).values()]
    types = [it for it in (*answers, *(op.body for op in operations)) if it is not None and not isinstance(it, str)]
    # What no route answers by itself, but a line of the stream or an error does.
    _, schemas = msgspec.json.schema_components([*types, Error, Change], ref_template=_REF)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "jupyter_gpu", "version": __version__, "description": _ABOUT},
            "servers": [{"url": f"/api/v{API_VERSION}"}],
            "paths": {route.path: _path(route) for route in table},
            "components": {
                "schemas": dict(sorted(schemas.items())),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            # An empty one: a Unix socket needs none.
            "security": [{"token": []}, {}],
        },
        indent=1,
        ensure_ascii=False,
    )


def _path(route: Operations) -> dict[str, Any]:
    parts = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    described = {verb: _operation(route.path, verb, op) for verb, op in route.verbs().items()}
    return {"parameters": parts, **described} if parts else described


#: What one of a list is called.
_ONE = {"workloads": "workload", "recurring": "recurring_job", "holds": "hold"}


def _operation(path: str, verb: str, op: Any) -> dict[str, Any]:
    words = [word for word in re.split(r"\W+", path) if word not in ("", "id", "device", "name", "json")]
    said: dict[str, Any] = {"operationId": "_".join([verb, *words]), "summary": op.summary}
    if "{id}" in path and len(words) == 1:
        said["operationId"] = f"{verb}_{_ONE[words[0]]}"
    if path.endswith("{device}"):
        said["operationId"] = f"{verb}_device"
    if op.scope is not None:
        said["description"] = f"Needs the scope `{op.scope}`."
    if op.query is not None:
        said["parameters"] = _parameters(op.query)
    if op.body is not None:
        body = {"application/json": {"schema": _ref(op.body)}}
        needed = any(field.required for field in msgspec.structs.fields(op.body))
        said["requestBody"] = {"required": needed, "content": body}
    said["responses"] = {str(status): _answer(op, status) for status in sorted(op.statuses)}
    said["responses"]["default"] = {
        "description": "What went wrong.",
        "content": {"application/json": {"schema": _ref(Error)}},
    }
    return said


def _parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, schemas = msgspec.json.schema_components([query], ref_template=_REF)
    schema = schemas[query.__name__]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _inlined(part, schemas),
        }
        for name, part in schema["properties"].items()
    ]


def _inlined(part: Any, schemas: dict[str, Any]) -> Any:
    """Enums of a query stand where they are used."""
    if isinstance(part, dict):
        if "$ref" in part:
            return {key: value for key, value in schemas[part["$ref"].rsplit("/", 1)[-1]].items() if key != "title"}
        return {key: _inlined(value, schemas) for key, value in part.items()}
    if isinstance(part, list):
        return [_inlined(value, schemas) for value in part]
    return part


def _by_status(op: Any) -> dict[int, Any]:
    return op.answer if isinstance(op.answer, dict) else dict.fromkeys(op.statuses, op.answer)


def _answer(op: Any, status: int) -> dict[str, Any]:
    answer = _by_status(op)[status]
    if isinstance(answer, str):
        content: dict[str, Any] = {answer: {}}
    else:
        content = {"application/json": {"schema": _ref(answer)}}
    described = {
        200: "As asked.",
        201: "Granted at once, or added.",
        202: "Accepted; it waits, or is under way.",
        207: "As asked, of all of an array.",
    }
    return {"description": described[status], "content": content}


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}
