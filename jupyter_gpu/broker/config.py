"""From what an admin writes to the frozen Policy: units as people write them, and the line that is wrong.

Traits only receive; this reads. "2h" and "20GiB" are taken wherever a field ends in _seconds or _bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import GpuError, InvalidAsk
from ..model import Policy
from ..units import parse_bytes, parse_seconds


def read_policy(settings: Mapping[str, Any]) -> Policy:
    """Make the policy of what was configured. Raises InvalidAsk that names the setting which cannot be meant."""
    plain = {name: _with_units(name, value, name) for name, value in settings.items()}
    try:
        policy = msgspec.convert(plain, Policy, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidAsk(f"the policy cannot be meant: {error}{_allowed(str(error))}", hint=_HINT) from None
    unknown = sorted(set(plain) - set(Policy.__struct_fields__))
    problems = [f"{name}: there is no such setting" for name in unknown] + policy.problems()
    if problems:
        raise InvalidAsk("the policy cannot be meant: " + "; ".join(problems), hint=_HINT)
    return policy


def _allowed(said: str) -> str:
    """The words that stand where another was written, like "; use one of: end, warn"; empty for other faults."""
    place = re.search(r"^Invalid enum value .* - at `\$(.*)`$", said, re.DOTALL)
    kind: Any = msgspec.inspect.type_info(Policy)
    for name in re.findall(r"\.(\w+)", place[1]) if place else ():
        fields = {field.encode_name: field.type for field in getattr(kind, "fields", ())}
        kind = fields.get(name)
        kind = getattr(kind, "item_type", kind)  # of a list: what stands in it
    enum = getattr(kind, "cls", None) if isinstance(kind, msgspec.inspect.EnumType) else None
    words = tuple(enum) if enum is not None else getattr(kind, "values", ())
    return "; use one of: " + ", ".join(map(str, words)) if words else ""


_HINT = "Mend jupyter_gpu_config.py; docs/admin.md lists every setting with an example."


def _with_units(name: str, value: Any, place: str) -> Any:
    """The value with its units read; `place` is where it stands, like sharing[0].slack_bytes."""
    if isinstance(value, Mapping):
        return {key: _with_units(str(key), inner, f"{place}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_units("", inner, f"{place}[{number}]") for number, inner in enumerate(value)]
    if isinstance(value, str):
        try:
            if name.endswith("_seconds"):
                return parse_seconds(value, what=name, allow_zero=True)
            if name.endswith("_bytes"):
                return parse_bytes(value, what=name, allow_zero=True)
        except GpuError as error:
            raise InvalidAsk(f"{place}: {error.message}", hint=_HINT) from None
    return value
