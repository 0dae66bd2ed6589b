"""A JAX that finds the processor alone, for the choosing."""

import types

__version__ = "0.0"


def devices():
    """Give the processor."""
    return [types.SimpleNamespace(platform="cpu")]
