"""docs/openapi.json, from the route table and the model."""

from jupyter_gpu.broker.api import ROUTES
from jupyter_gpu.broker.openapi import document

TARGET = "docs/openapi.json"


def render() -> str:
    """Write the description that a broker answers itself at /openapi.json."""
    return document(ROUTES) + "\n"
