"""docs/openapi.json, from the route table and the model."""

from jupyter_gpu.broker.api.openapi import document
from jupyter_gpu.broker.api.routes import ROUTES

TARGET = "docs/openapi.json"


def render() -> str:
    """Write the description that a broker answers itself at /openapi.json."""
    return document(ROUTES) + "\n"
