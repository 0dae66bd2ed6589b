"""The device class of a card from the name that its driver gives: "NVIDIA A100-SXM4-80GB" is an `a100-80gb`.

A class is what people ask for: the chip and its memory. How a card is mounted and cooled, and the words of marketing
that tell no two cards apart, are left out; words that do (Quadro, Titan, Laptop, Ti) stay.
"""

from __future__ import annotations

import re

#: Sizes that cards are sold with, in the GB of their boxes. Drivers show up to 8 % less: ECC and firmware take a part.
_SOLD_GB = (2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96, 128, 141, 144, 180, 192, 288)
_LESS = 0.08

_SIZE = re.compile(r"(\d+)\s?gb?", re.IGNORECASE)
_MIG = re.compile(r"\bMIG (\d+[a-z]\S*)", re.IGNORECASE)
_MOUNT = re.compile(r"sxm\d*|pcie|hbm\d*e?|nvl|oam", re.IGNORECASE)
_SILENT = frozenset({"nvidia", "tesla", "geforce", "gpu", "generation", "graphics", "workstation", "edition"})


def device_class(name: str, memory_bytes: int | None) -> str:
    """Name the class; without a known size it is the chip alone, and without any name "unknown"."""
    if mig := _MIG.search(name):
        return f"mig-{mig[1].lower()}"
    stated_gb = None
    words = []
    for word in re.split(r"[\s\-_/]+", name):
        if size := _SIZE.fullmatch(word):
            stated_gb = int(size[1])
        elif word.lower() not in _SILENT and not _MOUNT.fullmatch(word):
            words.append(re.sub(r"[^a-z0-9.+]", "", word.lower()))
    gb = _size_gb(stated_gb, memory_bytes)
    return "-".join([*filter(None, words)] or ["unknown"]) + (f"-{gb}gb" if gb else "")


def _size_gb(stated_gb: int | None, memory_bytes: int | None) -> int | None:
    if not memory_bytes:
        return stated_gb
    gib = memory_bytes / 2**30
    # Some names state other memory too: a GH200 480GB has 96 GB of its own beside 480 of the processor.
    if stated_gb is not None and abs(gib - stated_gb) <= stated_gb / 10:
        return stated_gb
    sold = next((size for size in _SOLD_GB if gib - 0.1 <= size), None)
    return sold if sold is not None and gib >= sold * (1 - _LESS) else max(1, round(gib))
