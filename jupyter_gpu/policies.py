"""From what an admin writes to the frozen Policy: units as people write them, and the line that is wrong.

Traits only receive; this reads. "2h" and "20GiB" are taken wherever a field ends in _seconds or _bytes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from .errors import GpuError, InvalidAsk
from .model import Policy
from .units import parse_bytes, parse_seconds


def read_policy(settings: Mapping[str, Any], where: Callable[[str], str] = lambda problem: problem) -> Policy:
    """Make the policy of what was configured. Raises InvalidAsk that names the setting which cannot be meant.

    `where` puts before a fault where it stands (`policy_lines.where_in`).
    """
    try:
        plain = {name: _with_units(name, value, name) for name, value in settings.items()}
        policy = msgspec.convert(plain, Policy, strict=True)
    except msgspec.ValidationError as error:
        said = where(f"{error}{_remedy(str(error))}")
        raise InvalidAsk(f"the policy cannot be meant: {said}", hint=_HINT) from None
    except InvalidAsk as error:
        raise InvalidAsk(where(error.message), hint=error.hint) from None
    unknown = sorted(set(plain) - set(Policy.__struct_fields__))
    known = Policy.__struct_fields__
    problems = [f"{name}: there is no such setting{_nearest(name, known)}" for name in unknown] + policy.problems()
    if problems:
        raise InvalidAsk("the policy cannot be meant: " + "; ".join(map(where, problems)), hint=_HINT)
    return policy


def _remedy(said: str) -> str:
    """What could stand there instead, like "; use one of: end, warn"; empty where the fault says all."""
    found = re.search(r"^(Invalid enum value|Object contains unknown field `(.*)`).* - at `\$(.*)`$", said, re.DOTALL)
    kind: Any = msgspec.inspect.type_info(Policy)
    for name in re.findall(r"\.(\w+)", found[3]) if found else ():
        fields = {field.encode_name: field.type for field in getattr(kind, "fields", ())}
        kind = fields.get(name)
        kind = getattr(kind, "item_type", kind)  # of a list: what stands in it
    if found and found[2] is not None:
        return _nearest(found[2], [field.encode_name for field in getattr(kind, "fields", ())])
    enum = getattr(kind, "cls", None) if isinstance(kind, msgspec.inspect.EnumType) else None
    words = tuple(enum) if enum is not None else getattr(kind, "values", ())
    return "; use one of: " + ", ".join(map(str, words)) if words else ""


def _nearest(name: str, names: Iterable[str]) -> str:
    """The name that was meant, most likely; else all that there are, where these are few."""
    known = sorted(names)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; use one of: {', '.join(known)}" if len(known) <= _FEW else ""


#: So many names still help somebody who looks for one.
_FEW = 15


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
