"""Names and numbers of a driver that does not work as it should, kept from doing harm further on.

A UUID goes into environments, where a comma or a space would make two of it; a name goes to terminals; and a count is
walked through in the sampler.
"""

from __future__ import annotations

import re
from typing import Any

from .calls import text

#: More than any machine has, and any card can be split into.
MOST_CARDS = 256
MOST_PARTS = 64
_LONGEST_NAME = 96
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,95}")


class UnfitError(Exception):
    """A device that cannot be leased, because nobody could say which one is meant; the sentence says why."""


def fit_uuid(raw: Any) -> str:
    """The UUID of a device; UnfitError where it is none."""
    uuid = text(raw)
    if not _UUID.fullmatch(uuid):
        raise UnfitError(
            f"The driver gives it {uuid[:_LONGEST_NAME]!a} for a UUID, by which no program can be told of it."
        )
    return uuid


def clean_name(raw: Any) -> str:
    """A name with nothing in it but what can be shown in one line, and not too long."""
    words = "".join(it if it.isprintable() and it != "\ufffd" else " " for it in text(raw)).split()
    return " ".join(words)[:_LONGEST_NAME].strip()
