"""Bindings of an older make: where the current ones give text they give bytes (rossumai/nvgpu#29)."""

from __future__ import annotations

from typing import Any

import pynvml


def __getattr__(name: str) -> Any:
    found = getattr(pynvml, name)
    if not name.startswith("nvml") or not callable(found) or isinstance(found, type):
        return found

    def call(*args: Any) -> Any:
        answer = found(*args)
        if isinstance(answer, pynvml.nvmlPciInfo_t):
            return answer  # ctypes gives its fields as bytes by itself
        return answer.encode() if isinstance(answer, str) else answer

    return call
